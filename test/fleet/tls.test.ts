/** A fleet over TLS: whose certificates count, and for whom. */
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { makeMemberCertificate } from '../../src/cli/member-certificate.ts';
import { MemberListener } from '../../src/fleet/index.ts';
import { ConnectionClient } from '../../src/fleet/connection.ts';
import { Peers } from '../../src/fleet/peers.ts';
import { fleetFormat, type Member } from '../../src/fleet/types.ts';
import { CertificateFiles } from '../../src/host/config/certificate-files.ts';
import { openRedis } from '../../src/queue/redis.ts';
import { call, json, patient, placed, untilPublished, type At } from '../support/fleet-calls.ts';
import { FleetHosts, nameOf } from '../support/fleet-hosts.ts';
import { redisMissing } from '../support/redis-server.ts';
import { waitLimitMs } from '../time-limits.ts';

/** Enough that they do not all have the same home. */
const count = 14;

interface Shown {
  readonly hosts: readonly { name: string; state: string; reason?: string }[];
}

type Files = Awaited<ReturnType<typeof makeMemberCertificate>>;

let folder: string;
const certificateFor = async (name: string, ca = 'ca'): Promise<Files> =>
  await makeMemberCertificate({ folder: join(folder, ca), names: [name], days: 2 });
const flagsOf = ({ cert, key, ca }: Pick<Files, 'cert' | 'key' | 'ca'>): Record<string, string> => ({
  'fleet.tlsCert': cert,
  'fleet.tlsKey': key,
  'fleet.tlsCa': ca,
});

const othersAt = async (at: At): Promise<Shown['hosts']> =>
  (await json<Shown>(at, '/v2/fleet')).hosts.filter(({ name }) => name !== nameOf(at));

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-fleet-tls-'));
});
afterAll(async () => {
  await rm(folder, { recursive: true, force: true });
});

describe.skipIf(redisMissing !== undefined)('a fleet over TLS', () => {
  let fleet: FleetHosts;
  let own: Files;
  let one: At;
  let other: At;
  beforeAll(async () => {
    own = await certificateFor('127.0.0.1');
    fleet = await FleetHosts.start(0);
    [one, other] = [await fleet.add({ flags: flagsOf(own) }), await fleet.add({ flags: flagsOf(own) })];
  });
  afterAll(async () => {
    await fleet?.[Symbol.asyncDispose]();
  });

  test('calls pass between hosts with certificates of `turntable key`', async () => {
    await vi.waitFor(async () => {
      for (const at of [one, other]) expect((await othersAt(at)).map(({ state }) => state)).toEqual(['up']);
    }, patient);
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

  test.each([
    [
      'a certificate of another CA',
      'is not signed by the CA in "fleet.tlsCa"',
      async () => await certificateFor('127.0.0.1', 'strangers'),
    ],
    [
      'a certificate for another host',
      'its certificate names another member',
      async () => await certificateFor('10.9.8.7'),
    ],
  ])('a host with %s is left out by both, which say why', async (_what, reason, made) => {
    const files = await made();
    const stranger = await fleet.add({ flags: flagsOf(files) });
    await vi.waitFor(async () => {
      const seen = (await othersAt(one)).find(({ name }) => name === nameOf(stranger));
      expect(seen).toMatchObject({ state: 'sick', reason: expect.stringContaining(reason) as string });
      const others = await othersAt(stranger);
      expect(others.map(({ state }) => state)).toEqual(['sick', 'sick']);
    }, patient);
    const homes = await Promise.all(
      Array.from({ length: count }, async (_, index) => {
        const { homes: named } = await json<{ homes: string[] }>(one, `/v2/fleet/functions/sealed-${index}`);
        return named;
      }),
    );
    expect(homes.flat()).not.toContain(nameOf(stranger));
    await fleet.stop(stranger);
  });

  test('a report that somebody else has written into Redis counts for nothing', async () => {
    const { sha256 } = await json<{ sha256: string }>(one, '/functions/sealed-0');
    const redis = openRedis(fleet.redis.url, {});
    const text = (await redis.get(`turntable:member:${nameOf(other)}`)) ?? '';
    const forged = { ...(JSON.parse(text) as Member), name: '127.0.0.1:9', id: 'forged', cores: 1000 };
    const offers = [[`sealed-0@1 ${sha256.slice(0, 12)}`, { ms: 0, isHeld: true, load: 0 }]];
    const report = JSON.stringify({ ...forged, offers: { generation: 1, changes: offers } });
    await redis.sadd('turntable:members', '127.0.0.1:9');
    await redis.set('turntable:member:127.0.0.1:9', report);
    await vi.waitFor(async () => {
      const seen = (await othersAt(one)).find(({ name }) => name === '127.0.0.1:9');
      expect(seen).toMatchObject({ state: 'sick', reason: expect.stringContaining('ECONNREFUSED') as string });
    }, patient);
    const { homes } = await json<{ homes: string[] }>(one, '/v2/fleet/functions/sealed-0');
    expect(homes).not.toContain('127.0.0.1:9');
    await redis.del('turntable:member:127.0.0.1:9');
    redis.disconnect();
  });

  test.each([
    ['without a certificate', async () => await Promise.resolve({})],
    [
      'with a certificate of another CA',
      async () => {
        const { cert, key } = await certificateFor('127.0.0.1', 'strangers');
        return { cert: await readFile(cert), key: await readFile(key) };
      },
    ],
  ])('a connection %s is closed before anything is said', async (_what, made) => {
    const [host = '', port = ''] = nameOf(one).split(':');
    const socket = connect({ host, port: Number(port), rejectUnauthorized: false, ...(await made()) });
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => (bytes += chunk.byteLength));
    // An alert of the other end, or a reset.
    socket.on('error', () => undefined);
    await new Promise((resolve) => socket.once('close', resolve));
    expect(bytes).toBe(0);
  });
});

test('renewed files count for new connections without a restart, and open connections go on', async () => {
  const paths = await certificateFor('127.0.0.1');
  const warned: string[] = [];
  const warn = (reason: string): void => void warned.push(reason);
  const files = new CertificateFiles(
    { section: 'fleet', certFile: paths.cert, keyFile: paths.key, caFile: paths.ca },
    warn,
  );
  const tls = {
    name: undefined,
    get pems() {
      return files.pems;
    },
    onChange: (listener: () => void) => files.onChange(listener),
  };
  const serials: string[] = [];
  const listener = await MemberListener.listen({
    host: '127.0.0.1',
    port: 0,
    tls,
    connectionsMax: 10,
    stallMs: waitLimitMs,
    greet: () => ({ id: 'it' }),
    serve: async (request) => await Promise.resolve(request),
  });
  const name = `127.0.0.1:${listener.port}`;
  const member = { name, id: 'it', format: fleetFormat } as Member;
  const peers = new Peers({ tls, fleet: 'lab', name, members: () => [] });
  const serialNow = async (): Promise<string> => {
    const socket: TLSSocket = connect({ host: '127.0.0.1', port: listener.port, ...files.pems });
    await once(socket, 'secureConnect');
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  try {
    await peers.ask(member, { header: { ask: 'ping' }, tensors: [] });
    // In several writes each way.
    const data = Uint8Array.from({ length: 1_000_003 }, (_, index) => index % 251);
    const tensor = { name: 'x', datatype: 'UINT8' as const, shape: [data.byteLength], data };
    const { tensors } = await peers.ask(member, { header: { ask: 'call' }, tensors: [tensor, tensor] });
    expect(tensors.map((each) => Buffer.compare(each.data, data))).toEqual([0, 0]);
    serials.push(await serialNow());
    // As while it is written: the former certificate stays, and the log says why, once.
    const key = await readFile(paths.key);
    await writeFile(paths.key, 'half a key');
    for (const _ of [1, 2]) files.look(warn);
    expect(warned).toEqual([expect.stringContaining('are not a PEM certificate and its key')]);
    expect(await serialNow()).toBe(serials[0]);
    await writeFile(paths.key, key);
    // Another CA in place of the first: nobody who has the former certificate is let in from now on.
    await Promise.all([rm(paths.ca), rm(join(folder, 'ca', 'ca.key'))]);
    await certificateFor('127.0.0.1');
    files.look(warn);
    serials.push(await serialNow());
    expect(serials[1]).not.toBe(serials[0]);
    // The connection that was open is still used.
    expect(await peers.ask(member, { header: { ask: 'ping' }, tensors: [] })).toMatchObject({ tensors: [] });
    expect(await peers.confirm(member)).toBeUndefined();
  } finally {
    peers.close();
    listener.close();
    files.close();
  }
});

test('a file without certificates is refused at the start', async () => {
  const { cert, key } = await certificateFor('127.0.0.1');
  await writeFile(join(folder, 'names'), 'subjectAltName=IP:127.0.0.1\n');
  const paths = { section: 'fleet' as const, certFile: cert, keyFile: key, caFile: join(folder, 'names') };
  expect(() => new CertificateFiles(paths, () => undefined)).toThrow(
    `"fleet.tlsCa": ${join(folder, 'names')} holds no certificate in PEM form`,
  );
});

test('a member that names itself by no host and port is refused, and the listener goes on', async () => {
  const paths = await certificateFor('127.0.0.1');
  const [cert, key, ca] = await Promise.all(
    [paths.cert, paths.key, paths.ca].map(async (path) => await readFile(path, 'utf8')),
  );
  const pems = { cert: cert!, key: key!, ca: ca! };
  const listener = await MemberListener.listen({
    host: '127.0.0.1',
    port: 0,
    tls: { pems, name: undefined, onChange: () => undefined },
    connectionsMax: 10,
    stallMs: waitLimitMs,
    greet: () => ({ id: 'it' }),
    serve: async (request) => await Promise.resolve(request),
  });
  const greeted = async (from: unknown): Promise<object> => {
    const socket = connect({ host: '127.0.0.1', port: listener.port, ...pems });
    await once(socket, 'secureConnect');
    const client = new ConnectionClient(socket);
    const { header } = await client.ask({ header: { from, to: 'it', fleet: 'lab', format: fleetFormat }, tensors: [] });
    client.destroy(new Error('done'));
    return header;
  };
  try {
    for (const from of ['', '[', 'a b:1', 'one', '127.0.0.1', ':8002', 5, null, {}, undefined])
      expect(await greeted(from)).toEqual({ refused: 'it does not say which member it is' });
    expect(await greeted('127.0.0.1:8002')).toEqual({ id: 'it' });
  } finally {
    listener.close();
  }
});
