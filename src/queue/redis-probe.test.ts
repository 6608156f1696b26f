import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { redisMissing } from '../../test/support/redis-server.ts';
import { spawn } from '../process/index.ts';
import { openRedis, RedisLink } from './redis-link.ts';
import { probeRedis } from './redis-probe.ts';

/** The URL of a Redis with these options. */
async function redisWith(...options: readonly string[]): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-probe-'));
  const socket = join(folder, 's');
  const words = ['redis-server', '--port', '0', '--unixsocket', socket, '--dir', folder, '--save', '', ...options];
  const child = spawn('/bin/sh', ['-c', 'exec "$0" "$@"', ...words], {
    env: process.env,
    stdio: ['ignore', 'ignore', 'ignore'],
    detached: false,
  });
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true });
  });
  const client = openRedis(`unix://${socket}`, { enableReadyCheck: false });
  client.on('error', () => undefined);
  await new Promise((resolve) => client.once('ready', resolve));
  client.disconnect();
  return `unix://${socket}`;
}

async function linkTo(url: string): Promise<RedisLink> {
  const link = new RedisLink({ url, prefix: 'turntable' });
  onTestFinished(() => link.close());
  await expect.poll(() => link.health).not.toMatchObject({ reason: 'it has not been reached yet' });
  return link;
}

test.skipIf(redisMissing !== undefined)('a cluster is refused with the reason', async () => {
  const url = await redisWith('--cluster-enabled', 'yes', '--cluster-config-file', 'nodes.conf');
  const link = await linkTo(url);
  await expect.poll(() => link.failure(undefined).message).toContain('refuses: it is a cluster');
  const client = openRedis(url, {});
  onTestFinished(() => client.disconnect());
  await client.cluster('ADDSLOTSRANGE', 0, 16_383);
  await expect.poll(async () => await client.cluster('INFO')).toContain('cluster_state:ok');
  await expect(probeRedis(client, 'turntable')).rejects.toThrow(/it is a cluster.*\(CROSSSLOT\)$/);
  expect(link.health.status).toBe('down');
});

test.skipIf(redisMissing !== undefined).each([
  [['-@scripting'], /^its user may not run scripts.*allow it \+eval and \+evalsha \(NOPERM/],
  [['-eval', '-evalsha'], /^its user may not run scripts.*\(NOPERM.*'eval'/],
  [['-evalsha'], /^its user may not run scripts.*\(NOPERM.*'evalsha'/],
  [['-info'], /^its user may not do what calls do \(NOPERM.*'info'/],
  [['-del'], /^its user may not do what calls do \(.*(?:NOPERM|can't run)/],
  [['resetkeys', '~other:*'], /^its user may not do what calls do \(NOPERM.*keys/],
])('a user with %j is refused with a sentence, and one with everything is served', async (rules, sentence) => {
  const client = openRedis(await redisWith(), {});
  onTestFinished(() => client.disconnect());
  await probeRedis(client, 'turntable');
  await client.call('ACL', 'SETUSER', 'poor', 'on', '>secret', '~*', '&*', '+@all', ...rules);
  await client.call('AUTH', 'poor', 'secret');
  await expect(probeRedis(client, 'turntable')).rejects.toThrow(sentence);
});
