import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { describe, expect, test } from 'vitest';
import { paceBytesMin } from '../limits/watches.ts';
import { hasMoved, takesAtOnce, unsent } from './unsent.ts';

const bytes = 32_000_000;

/** Writes to a client that reads only when it is asked to; returns the bytes that are left in the end. */
async function leftAfter(server: Server, open: (port: number) => Socket): Promise<number> {
  const accepted = once(server, server.listenerCount('secureConnection') > 0 ? 'secureConnection' : 'connection');
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const client = open((server.address() as AddressInfo).port);
  const [socket] = (await accepted) as [Socket];
  socket.on('error', () => undefined);
  try {
    client.pause();
    // TLS copies what it encrypts.
    expect(takesAtOnce(socket, 200_000)).toBe(!('encrypted' in socket));
    expect(takesAtOnce(socket, bytes)).toBe(false);
    socket.write(Buffer.alloc(bytes));
    // What the kernel takes without a reader.
    let before = unsent(socket);
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      const now = unsent(socket);
      if (now.ofFirst === before.ofFirst && now.bytes === before.bytes) break;
      before = now;
    }
    expect(before.ofFirst).toBeGreaterThan(0);
    expect(takesAtOnce(socket, 1)).toBe(false);
    expect(hasMoved(before, unsent(socket))).toBe(false);
    client.resume();
    await expect.poll(() => hasMoved(before, unsent(socket))).toBe(true);
    await expect.poll(() => unsent(socket).bytes).toBe(0);
    return unsent(socket).bytes;
  } finally {
    client.destroy();
    server.close();
  }
}

const openTls = (port: number): Socket => connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });

describe('a reply moves with its reader, in a single write', () => {
  test('over TCP', async () => {
    expect(await leftAfter(createServer(), (port) => connect(port, '127.0.0.1'))).toBe(0);
  });

  test.skipIf(spawnSync('openssl', ['version']).error !== undefined)('over TLS', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'turntable-unsent-'));
    const [keyFile, certFile] = [join(folder, 'key.pem'), join(folder, 'cert.pem')];
    // prettier-ignore
    spawnSync('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-keyout', keyFile, '-out', certFile, '-days', '2', '-subj', '/CN=localhost']);
    const server = createTlsServer({ key: readFileSync(keyFile), cert: readFileSync(certFile) }, () => undefined);
    expect(await leftAfter(server, openTls)).toBe(0);
    rmSync(folder, { recursive: true });
  });
});

test('less than the least pace is no progress, unless nothing is left', () => {
  expect(hasMoved({ bytes: 9e6, ofFirst: 9e6 }, { bytes: 9e6, ofFirst: 9e6 - paceBytesMin + 1 })).toBe(false);
  expect(hasMoved({ bytes: 9e6, ofFirst: 9e6 }, { bytes: 9e6, ofFirst: 9e6 - paceBytesMin })).toBe(true);
  expect(hasMoved({ bytes: 9e6, ofFirst: 100 }, { bytes: 8e6, ofFirst: 8e6 })).toBe(true);
  expect(hasMoved({ bytes: 0, ofFirst: 0 }, { bytes: 0, ofFirst: 0 })).toBe(true);
});

test.each([10_000, 300_000, 600_000])(
  'what a connection is said to take at once, it takes: parts of %i bytes, until its reader must read',
  async (partBytes) => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const accepted = once(server, 'connection');
    const client = connect((server.address() as AddressInfo).port, '127.0.0.1').pause();
    const [socket] = (await accepted) as [Socket];
    try {
      let parts = 0;
      for (; takesAtOnce(socket, partBytes); parts++) {
        socket.write(Buffer.alloc(partBytes));
        expect(unsent(socket)).toEqual({ bytes: 0, ofFirst: 0 });
      }
      expect(parts).toBeGreaterThan(0);
      expect(takesAtOnce(socket, 1000 * partBytes)).toBe(false);
      socket.destroy();
      expect(takesAtOnce(socket, 1)).toBe(false);
    } finally {
      client.destroy();
      socket.destroy();
      server.close();
    }
  },
);
