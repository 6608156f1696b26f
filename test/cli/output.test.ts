/** Hosts whose output nobody reads, or whose terminal goes away. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { packageRoot } from '../../src/host/config-options.ts';
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
  const port = 20_000 + (process.pid % 20_000);
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
