/** The life of a function through the commands that an operator types, over restarts of the host. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { writeScaleModel } from '../support/models.ts';
import { serve, type ServingHost } from './command.ts';
import { turntableHere } from './in-process.ts';

let dir: string;
let host: ServingHost;

const start = async (): Promise<ServingHost> =>
  await serve(['--data', join(dir, 'data'), '--functions', join(dir, 'functions'), '--log-level', 'warn']);

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), 'turntable-versions-'));
  host = await start();
});

afterAll(async () => {
  await host.end();
  rmSync(dir, { recursive: true, force: true });
});

/** The output of a command that must succeed. */
async function run(...words: string[]): Promise<string> {
  const { exitCode, stdout, stderr } = await turntableHere(words, { TURNTABLE_URL: host.url });
  expect([exitCode, stderr]).toEqual([0, '']);
  return stdout.trimEnd();
}

async function failing(...words: string[]): Promise<{ exitCode: number | null; stderr: string }> {
  const { exitCode, stderr } = await turntableHere(words, { TURNTABLE_URL: host.url });
  return { exitCode, stderr: stderr.split('\n')[0]! };
}

/** The factor of the version that answers. */
async function answer(): Promise<unknown> {
  return JSON.parse(await run('call', 'scale', '--data', '{"input": [[1, 0, 0, 0]]}'));
}

test('a function gets settings and versions, and goes back; all of it survives a restart', async () => {
  const [one, two] = await Promise.all([writeScaleModel(dir, 1), writeScaleModel(dir, 2)]);
  await run('publish', 'scale', one, '--slo', '80s', '--batch', '4', '--priority', '5');
  expect(JSON.parse(await run('publish', 'scale', two, '--no-traffic', '--json'))).toMatchObject({
    version: '2',
    slo_ms: 80_000,
    batching: { max: 4 },
    priority: 5,
  });
  expect(await answer()).toEqual({ output: [[1, 0, 0, 0]] });
  expect(await run('promote', 'scale', '2', '--percent', '50')).toBe('scale: version 1 50%, version 2 50%');
  expect(await run('promote', 'scale', '2')).toBe('scale: version 2 100%');
  expect(await answer()).toEqual({ output: [[2, 0, 0, 0]] });
  expect(await run('set', 'scale', 'slo=60s', 'batching.max=8')).toBe('scale: slo=60s, batching.max=8');
  expect(await run('rollback', 'scale')).toBe('scale: version 1 100% (before: version 2 100%)');
  await host.end();
  host = await start();
  expect(await answer()).toEqual({ output: [[1, 0, 0, 0]] });
  const table = await run('versions', 'scale');
  expect(table).toMatch(/^VERSION +CALLS +STATE +SLO +MODEL +PUBLISHED +ANSWERED +IN SLO +NOTE\n/);
  expect(table).toMatch(/^1 +100% +ready +1 min 0 s .* 1 +100%$/m);
  expect(table).toMatch(/^2 +ready +1 min 0 s /m);
  expect(JSON.parse(await run('versions', 'scale', '--json'))).toMatchObject({
    versions: [{ batching: { max: 8 } }, { batching: { max: 8 } }],
  });
  expect(await run('set', 'scale', 'slo=', '--version', '1')).toBe('scale: slo as published');
  expect(await run('versions', 'scale')).toMatch(/^1 +100% +ready +1 min 20 s/m);
});

test('calls are divided by share and key', async () => {
  expect(await run('split', 'scale', '1=90', '2=10', '--key', 'x-user')).toBe(
    'scale: version 1 90%, version 2 10%\ncalls with the same x-user go to the same version',
  );
  expect(await run('split', 'scale', '1=100')).toBe('scale: version 1 100%');
});

test('the retired command and field say what to do instead', async () => {
  const { exitCode, stderr } = await failing('shadow', 'scale', '2=10');
  expect([exitCode, stderr]).toEqual([2, expect.stringContaining('turntable promote my-model 2 --percent 1')]);
  expect((await failing('help', 'shadow')).stderr).toBe(stderr);
  expect((await failing('split', 'scale', '--header', 'a=b:2')).stderr).toContain(
    'turntable call my-model --version 2',
  );
  const body = JSON.stringify({ shadow: { version: '2', percent: 10 } });
  const reply = await fetch(`${host.url}/functions/scale/traffic`, { method: 'PATCH', body });
  expect([reply.status, await reply.text()]).toEqual([400, expect.stringContaining('Give the version a small share')]);
});

test('a wrong word is refused with the form that it must have', async () => {
  expect(await failing('split', 'scale', '1:90')).toEqual({
    exitCode: 2,
    stderr: 'turntable: "1:90" is no share, which looks like 2=10',
  });
  expect(await failing('split', 'scale', '1=90', '2=20')).toEqual({
    exitCode: 1,
    stderr: 'turntable: the shares add up to 110, but must make 100 [HTTP 400]',
  });
  expect((await failing('set', 'scale', 'slo')).stderr).toBe(
    'turntable: a setting is "slo", but must be key=value, such as slo=250ms',
  );
  expect((await failing('set', 'scale', 'sloo=5ms')).stderr).toContain("unknown setting 'sloo': did you mean 'slo'?");
  expect((await failing('rollback', 'nothing')).stderr).toContain("there is no function 'nothing'");
});
