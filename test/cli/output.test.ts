/** Hosts whose output nobody reads, or whose terminal goes away. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { freePort } from '../../bench/servers.ts';
import { packageRoot } from '../../src/host/config/options.ts';
import { redisMissing, RedisServer } from '../support/redis-server.ts';
import { startCommand } from '../support/run-command.ts';
import { serve } from './command.ts';

const failedCall = async (url: string): Promise<number> => (await fetch(`${url}/functions/not-there`)).status;

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), 'turntable-output-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const quiet = (): string[] => {
  const path = folder();
  return ['--data-dir', join(path, 'data'), '--functions-dir', path, '--gpu-use', 'off', '--grpc-port', 'off'];
};

test('a host whose output is closed serves on, and drains', async () => {
  const host = await serve(quiet());
  for (const pipe of host.child.stdio.slice(1) as { destroy(): void }[]) pipe.destroy();
  // Each is a line in the log.
  for (let call = 0; call < 20; call++) expect(await failedCall(host.url)).toBe(404);
  expect(await host.end()).toBe(0);
});

test('a host whose log is not read serves on', async () => {
  const host = await serve(['--log-level', 'debug', ...quiet()]);
  (host.child.stdio[2] as { pause(): void }).pause();
  // Some megabytes of lines: more than a pipe holds.
  for (let call = 0; call < 3000; call++) expect(await failedCall(host.url)).toBe(404);
  expect(await host.end()).toBe(0);
});

test('a host whose log is on a full disk serves on', async () => {
  // Nobody can read which port it has, so it is told one.
  const port = await freePort();
  const words = ['serve', '--port', String(port), ...quiet()];
  const command = `exec "$0" "$@" > /dev/full 2> /dev/full`;
  const child = spawn('/bin/sh', ['-c', command, process.execPath, join(packageRoot, 'bin/turntable.js'), ...words]);
  onTestFinished(() => void child.kill('SIGKILL'));
  const url = `http://127.0.0.1:${port}`;
  const answers = async (): Promise<number> => await failedCall(url).catch(() => 0);
  await expect.poll(answers, { interval: 50 }).toBe(404);
  expect(await answers()).toBe(404);
  child.kill('SIGTERM');
  expect(await once(child, 'exit')).toEqual([0, null]);
});

test('a host without a terminal takes SIGHUP for a reload, and serves on', async () => {
  const host = await serve(quiet());
  host.child.kill('SIGHUP');
  expect(await failedCall(host.url)).toBe(404);
  expect(await host.end()).toBe(0);
});

const scriptMissing = spawnSync('script', ['--version']).status === null;

test.skipIf(scriptMissing)('a host whose terminal is closed drains, and ends with exit code 0', async () => {
  const code = join(folder(), 'code');
  const words = [process.execPath, join(packageRoot, 'bin/turntable.js'), 'serve', '--port', '0', ...quiet()];
  // As a shell with jobs does, it hands on the signal that the kernel sends to the first process of a terminal.
  const command = `${words.join(' ')} & trap "kill -HUP $!" HUP; wait $!; wait $!; echo $? > ${code}`;
  const terminal = spawn('script', ['--quiet', '--flush', '--command', command, '/dev/null']);
  for await (const chunk of terminal.stdout) if (String(chunk).includes('is ready at')) break;
  terminal.kill('SIGKILL');
  await expect.poll(() => existsSync(code) && readFileSync(code, 'utf8')).toBe('0\n');
});

describe.skipIf(redisMissing !== undefined)('with Redis', () => {
  test('the log of a host is JSON line by line, what BullMQ prints included', async () => {
    await using redis = await RedisServer.start();
    await redis.command('CONFIG SET maxmemory-policy allkeys-lru');
    const host = await serve(['--redis', redis.url, '--log-format', 'json', ...quiet()]);
    await expect.poll(() => host.stderr()).toContain('IMPORTANT! Eviction policy is allkeys-lru');
    expect(await host.end()).toBe(0);
    const lines = host.stderr().trimEnd().split('\n');
    const messages = lines.map((line) => (JSON.parse(line) as { readonly msg: string }).msg);
    expect(messages.filter((message) => message.startsWith('IMPORTANT!'))).toHaveLength(1);
  });

  test('a worker whose output is closed serves on, takes SIGHUP for no end, and drains', async () => {
    await using redis = await RedisServer.start();
    const path = folder();
    const command = [join(packageRoot, 'bin/turntable.js'), 'worker', '--redis', redis.url, '--data', path];
    const { child, stdout, stderr } = startCommand(process.execPath, [...command, '--cores', '1', '--name', 'w']);
    onTestFinished(() => void child.kill('SIGKILL'));
    const exited = new Promise((resolve) => child.on('exit', (...end) => resolve(end)));
    await once(stdout, 'data');
    for (const pipe of [stdout, stderr]) pipe.destroy();
    const isThere = async (): Promise<boolean> => (await redis.command('SCARD turntable:members')) === ':1';
    await expect.poll(isThere).toBe(true);
    child.kill('SIGHUP');
    // Both that it is gone and that it is back are lines in the worker's log.
    await redis.kill();
    await redis.start();
    await expect.poll(isThere).toBe(true);
    child.kill('SIGTERM');
    expect(await exited).toEqual([0, null]);
  });
});
