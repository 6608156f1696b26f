/** API keys that change while the host runs. */
import { mkdir, mkdtemp, rename, rm, symlink, unlink, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { hasTerminal } from '../../src/cli/lifecycle.ts';
import { apiKeyEntry } from '../../src/host/access/api-keys.ts';
import { serve, type ServingHost } from './command.ts';

let folder: string;
let host: ServingHost;

/** As Kubernetes mounts a configuration: the file is a link through a folder that is swapped. */
async function mount(version: string, content: string): Promise<void> {
  const place = join(folder, version);
  await mkdir(place);
  await writeFile(join(place, 'host.json'), content);
  const next = join(folder, 'next');
  await symlink(version, next);
  await rename(next, join(folder, 'current'));
}

/** Now, instead of within five seconds. From a terminal SIGHUP means that this has closed. */
function look(): void {
  if (!hasTerminal()) host.child.kill('SIGHUP');
}

const withKeys = (...keys: string[]): string =>
  JSON.stringify({ apiKeys: keys.map((key) => apiKeyEntry(`of-${key}`, ['publish'], key)) });

const status = async (key: string): Promise<number> =>
  (await fetch(`${host.url}/functions/none`, { method: 'DELETE', headers: { authorization: `Bearer ${key}` } })).status;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-keys-'));
  await mkdir(join(folder, 'functions'));
  await mount('one', withKeys('old'));
  await symlink(join('current', 'host.json'), join(folder, 'host.json'));
  // prettier-ignore
  host = await serve([
    '--config', join(folder, 'host.json'), '--data', join(folder, 'data'), '--functions', join(folder, 'functions'),
    '--gpu-use', 'off', '--cpu-cores', '1', '--log-format', 'json',
  ]);
});
afterAll(async () => {
  await host?.end('SIGKILL');
  await rm(folder, { recursive: true, force: true });
});

test('a key is rotated without a restart, and a file that is no good changes nothing', async () => {
  expect([await status('old'), await status('new')]).toEqual([404, 401]);
  await mount('two', withKeys('old', 'new'));
  await expect.poll(() => status('new')).toBe(404);
  expect(await status('old')).toBe(404);
  await mount('three', withKeys('new'));
  look();
  await expect.poll(() => status('old')).toBe(401);
  expect(await status('new')).toBe(404);
  for (const [version, content, reason] of [
    ['four', '{"apiKeys": [', 'is not JSON'],
    ['five', '{"apiKeys": []}', 'no API keys any more'],
    ['six', JSON.stringify({ apiKeys: ['of-x:publish:sha256:12'] }), '64 lower-case hexadecimal digits'],
  ] as const) {
    await mount(version, content);
    look();
    await expect.poll(() => host.stderr()).toContain(reason);
    expect([await status('new'), await status('old')]).toEqual([404, 401]);
  }
  await unlink(join(folder, 'host.json'));
  look();
  await expect.poll(() => host.stderr()).toMatch(/"reason":"[^"]*cannot be read/);
  expect(await status('new')).toBe(404);
});

test.skipIf(hasTerminal())('SIGHUP reads the keys of a file at once', async () => {
  await writeFile(join(folder, 'host.json'), withKeys('latest'));
  host.child.kill('SIGHUP');
  await expect.poll(() => status('latest')).toBe(404);
  expect(await status('new')).toBe(401);
});

test('keys are rotated under a flood of wrong ones and of bodies that never end, and no caller is mistaken', async () => {
  const file = join(folder, 'host.json');
  const write = async (...keys: string[]): Promise<void> => {
    await writeFile(join(folder, 'fresh.json'), withKeys(...keys));
    await rename(join(folder, 'fresh.json'), file);
    look();
  };
  await write('k0');
  await expect.poll(() => status('k0')).toBe(404);
  const attack = new AbortController();
  const got = new Set<number>();
  const floods = Array.from({ length: 16 }, async (_, attacker) => {
    for (let at = 0; !attack.signal.aborted; at++) got.add(await status(`wrong-${attacker}-${at}`));
  });
  const { hostname, port } = new URL(host.url);
  const unfinished = Array.from({ length: 100 }, () => {
    const socket = connect({ host: hostname, port: Number(port) });
    socket.on('error', () => undefined);
    socket.write(`PUT /functions/none HTTP/1.1\r\nHost: ${hostname}:${port}\r\nContent-Length: 1000000\r\n\r\n`);
    return socket;
  });
  try {
    for (let round = 0; round < 5; round++) {
      const [before, next] = [`k${round}`, `k${round + 1}`];
      await write(before, next);
      await expect.poll(() => status(next)).toBe(404);
      expect(await status(before)).toBe(404);
      await write(next);
      await expect.poll(() => status(before)).toBe(401);
      expect(await status(next)).toBe(404);
    }
  } finally {
    attack.abort();
    await Promise.all(floods);
    for (const socket of unfinished) socket.destroy();
  }
  expect([...got]).toEqual([401]);
});
