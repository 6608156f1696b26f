/** HTTPS between the hosts of a fleet, with certificates of their own CA. */
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { loadConfig, startHost } from '../../src/host/index.ts';
import { call, json, patient, placed, untilPublished, type At } from '../support/fleet-calls.ts';
import { FleetHosts, nameOf } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';

/** Enough that they do not all have the same home. */
const count = 14;

interface Shown {
  readonly hosts: readonly { name: string; state: string; reason?: string }[];
}

let folder: string;
const openssl = (words: string): void =>
  void execFileSync('openssl', words.split(' '), { stdio: 'ignore', cwd: folder });

/** Makes NAME.pem and NAME.key: a CA. */
function makeAuthority(name: string): void {
  const subject = `-subj /CN=${name} -addext basicConstraints=critical,CA:TRUE`;
  openssl(`req -x509 -newkey rsa:2048 -nodes -keyout ${name}.key -out ${name}.pem -days 2 ${subject}`);
}

const flags = (ca: string): Record<string, string> => ({
  'listen.tlsCert': join(folder, 'host.pem'),
  'listen.tlsKey': join(folder, 'host.key'),
  'fleet.caFile': join(folder, ca),
});

const shown = async (at: At): Promise<Shown['hosts']> => (await json<Shown>(at, '/v2/fleet')).hosts;

describe.skipIf(redisMissing !== undefined)('a fleet over HTTPS', () => {
  let fleet: FleetHosts;
  let one: At;
  let other: At;
  const add = async (ca: string): Promise<At> => {
    const { url } = await fleet.add({ flags: flags(ca) });
    return { url, ca: await readFile(join(folder, 'ca.pem'), 'utf8') };
  };
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'turntable-fleet-tls-'));
    for (const name of ['ca', 'strangers']) makeAuthority(name);
    await writeFile(join(folder, 'names'), 'subjectAltName=IP:127.0.0.1\n');
    openssl('req -newkey rsa:2048 -nodes -keyout host.key -out host.csr -subj /CN=host');
    const signer = '-CA ca.pem -CAkey ca.key -CAcreateserial';
    openssl(`x509 -req -in host.csr ${signer} -out host.pem -days 2 -extfile names`);
    fleet = await FleetHosts.start(0);
    [one, other] = [await add('ca.pem'), await add('ca.pem')];
  });
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]();
    await rm(folder, { recursive: true, force: true });
  });

  test('content and calls pass between hosts that verify each other by "fleet.caFile"', async () => {
    await vi.waitFor(async () => {
      for (const at of [one, other]) expect((await shown(at)).map(({ state }) => state)).toEqual(['up', 'up']);
    }, patient);
    expect(one.url).toMatch(/^https:/);
    for (let index = 0; index < count; index++) await untilPublished(one, `sealed-${index}`, 3);
    await vi.waitFor(async () => {
      const placements: string[] = [];
      for (let index = 0; index < count; index++) {
        expect(await call(other, `sealed-${index}`)).toEqual([3, 6, 9, 12]);
        placements.push((await placed(other, `sealed-${index}`)).placement);
      }
      expect(placements).toContainEqual(expect.stringContaining(`host ${nameOf(one)} (home)`));
    }, patient);
  });

  test('a host with another CA trusts no host of the fleet, and says why', async () => {
    const stranger = await add('strangers.pem');
    await vi.waitFor(async () => {
      const others = (await shown(stranger)).filter(({ name }) => name !== nameOf(stranger));
      expect(others.map(({ state }) => state)).toEqual(['sick', 'sick']);
      for (const { name, reason } of others) {
        expect(reason).toContain(`host ${name} was lost: no certificate in "fleet.caFile" vouches for its own`);
      }
    }, patient);
  });

  test('a file without certificates is refused at the start', async () => {
    const { config } = loadConfig({
      flags: {
        'fleet.name': 'lab',
        'redis.url': fleet.redis.url,
        'store.place': join(folder, 'store'),
        'fleet.secretFile': join(folder, 'names'),
        'fleet.caFile': join(folder, 'names'),
        'listen.port': '0',
        dataDir: join(folder, 'data'),
      },
      environment: {},
    });
    await expect(startHost(config)).rejects.toThrow('holds no certificate in PEM form');
  });
});
