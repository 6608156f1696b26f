import { createHash, X509Certificate } from 'node:crypto';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import { afterEach, expect, test, vi } from 'vitest';
import { keyCommand } from './key.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

async function run(...words: string[]): Promise<string> {
  const log = vi.spyOn(console, 'log').mockReturnValue();
  log.mockClear();
  await keyCommand().exitOverride().parseAsync(words, { from: 'user' });
  return log.mock.calls.flat().join('\n');
}

test('the printed entry has the hash of the printed key', async () => {
  const [, key = '', entry = ''] =
    /^key: {3}(\S+)\nentry: (\S+)$/.exec(await run('ci', '--scopes', 'publish,read')) ?? [];
  const hash = createHash('sha256').update(key).digest('hex');
  expect(entry).toBe(`ci:publish+read:sha256:${hash}`);
});

test('an unknown scope is refused', async () => {
  await expect(run('ci', '--scopes', 'root')).rejects.toMatchObject({
    message: "key 'ci' has the scope 'root', which is none of invoke, publish, read",
    exitCode: 2,
  });
});

test('--tls makes the CA once, and signs a certificate for each host with it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-key-'));
  const read = async (name: string): Promise<string> => await readFile(join(folder, name), 'utf8');
  try {
    expect(await run('10.0.0.5,host-a.internal', '--tls', folder, '--days', '30')).toBe(
      `Made the fleet's CA: keep ${folder}/ca.key where no host can read it.\n` +
        `--fleet-tls-cert ${folder}/10.0.0.5.pem\n--fleet-tls-key  ${folder}/10.0.0.5.key\n--fleet-tls-ca   ${folder}/ca.pem`,
    );
    const made = await read('ca.pem');
    expect(await run('::1', '--tls', folder)).not.toContain('Made the fleet');
    expect(await read('ca.pem')).toBe(made);
    const ca = new X509Certificate(made);
    for (const [name, host, days] of [
      ['10.0.0.5', 'host-a.internal', 30],
      ['::1', '::1', 365],
    ] as const) {
      const [cert, key] = [await read(`${name}.pem`), await read(`${name}.key`)];
      createSecureContext({ cert, key, ca: made });
      const certificate = new X509Certificate(cert);
      expect([certificate.verify(ca.publicKey), certificate.checkIssued(ca), certificate.ca]).toEqual([
        true,
        true,
        false,
      ]);
      expect(certificate.checkIP(name)).toBe(name);
      expect(certificate.subjectAltName).toContain(host === name ? 'IP Address:' : `DNS:${host}`);
      expect(Math.round((Date.parse(certificate.validTo) - Date.now()) / 86_400_000)).toBe(days);
      expect((await stat(join(folder, `${name}.key`))).mode & 0o777).toBe(0o600);
    }
    expect((await stat(join(folder, 'ca.key'))).mode & 0o777).toBe(0o600);
    await rm(join(folder, 'ca.key'));
    await expect(run('10.0.0.6', '--tls', folder)).rejects.toThrow(`ca.pem is there without ${folder}/ca.key`);
    await expect(run('not a host', '--tls', folder)).rejects.toThrow(
      "'not a host' is neither a host name nor an address",
    );
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
