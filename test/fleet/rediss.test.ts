/** Redis over TLS, as docs/fleet.md describes it: its certificate is one of `turntable key`, and the hosts are a user. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { freePort } from '../../bench/servers.ts';
import { serve, startWorkerCommand, turntable } from '../cli/command.ts';
import { patient } from '../support/fleet-calls.ts';
import { writeReluModel } from '../support/models.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';

test.skipIf(redisMissing !== undefined)(
  'a host and a worker work over rediss as a user, and a host that does not trust its signer says so',
  async () => {
    const folder = await mkdtemp(join(tmpdir(), 'turntable-rediss-'));
    const made = await turntable(['key', '127.0.0.1', '--tls', folder]);
    expect(made).toMatchObject({ exitCode: 0 });
    const [cert, key, ca] = ['127.0.0.1.pem', '127.0.0.1.key', 'ca.pem'].map((name) => join(folder, name));
    const port = await freePort();
    await using redis = await RedisServer.start({ tls: { port, cert: cert!, key: key!, ca: ca! } });
    await redis.command(
      'ACL SETUSER hosts on >secret ~turntable:* &turntable:* &bull:* +@all -@admin -@dangerous +info',
    );
    await redis.command('ACL SETUSER default off');
    const place = join(folder, 'functions', 'relu');
    await mkdir(place, { recursive: true });
    await writeReluModel(place);
    await writeFile(join(place, 'function.json'), '{"model": "relu.onnx"}');
    const url = `rediss://hosts:secret@127.0.0.1:${port}`;
    const store = ['--store', join(folder, 'store'), '--redis', url];
    const paths = ['--data-dir', join(folder, 'data'), '--functions-dir', join(folder, 'functions')];
    const trusting = { NODE_EXTRA_CA_CERTS: ca! };
    const host = await serve([...paths, ...store, '--gpu-use', 'off'], trusting);
    const worker = await startWorkerCommand([...store, '--data', join(folder, 'worker')], trusting);
    const stranger = await serve(['--data-dir', join(folder, 'other'), '--redis', url, '--gpu-use', 'off']);
    try {
      expect(await (await fetch(`${host.url}/v2/health/ready`)).json()).toEqual({ ready: true, redis: 'up' });
      const call = { method: 'POST', body: '{"input": [[1, -2, 3, -4]]}', headers: { 'X-Call-Id': 'a' } };
      expect((await fetch(`${host.url}/async-function/relu`, call)).status).toBe(202);
      await vi.waitFor(async () => {
        const reply = await fetch(`${host.url}/async-function/a`);
        expect(`${reply.status} ${await reply.text()}`).toBe('200 {"output":[[1,0,3,0]]}\n');
      }, patient);
      await vi.waitFor(async () => {
        const { workers } = (await (await fetch(`${host.url}/v2/workers`)).json()) as {
          workers: { functions: { held: boolean }[] }[];
        };
        expect(workers.map(({ functions }) => functions.map(({ held }) => held))).toEqual([[true]]);
      }, patient);
      const { redis: seen } = (await (await fetch(`${stranger.url}/v2/workers`)).json()) as { redis: object };
      expect(seen).toMatchObject({ status: 'down', reason: expect.stringMatching(/certificate/) as string });
    } finally {
      worker.kill('SIGKILL');
      await Promise.all([host.end('SIGKILL'), stranger.end('SIGKILL')]);
      await rm(folder, { recursive: true, force: true });
    }
  },
);
