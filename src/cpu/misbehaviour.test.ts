/** Errors that handlers make, and how they are reported. */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { bodyOf as textOf, poolLimits, requestOf } from '../../test/support/cpu-pools.ts';
import { writeReluModel } from '../../test/support/models.ts';
import type { FrameMemory } from '../tensor/index.ts';
import { given } from '../tools/index.ts';
import { createCpuPools, type CpuPools, type PoolResult } from './index.ts';

let folder: string;
let modelPath: string;
let pools: CpuPools;
const logged: string[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-handlers-'));
  modelPath = await writeReluModel(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(async () => {
  await pools.stop(0);
  delete process.env['TURNTABLE_API_KEYS'];
  delete process.env['HANDLER_SETTING'];
});

const tensors = `[{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }]`;
let handlers = 0;

/** Calls a function whose handler has these bodies. */
async function call({
  pre = `return ${tensors}`,
  post = `return 'ok'`,
  before = '',
  replies,
}: {
  readonly pre?: string;
  readonly post?: string;
  readonly before?: string;
  readonly replies?: FrameMemory;
}): Promise<PoolResult> {
  const handlerPath = join(folder, `handler-${handlers++}.mjs`);
  await writeFile(
    handlerPath,
    `${before} export async function preprocess(request) { ${pre} }
     export async function postprocess(tensors) { ${post} }`,
  );
  logged.length = 0;
  pools = createCpuPools({
    cores: 2,
    blankInstances: 0,
    memoryBytes: 4e9,
    log: (_pid, _key, line) => logged.push(line),
    ...given({ replies }),
  });
  pools.register({ key: 'bad@1', modelPath, threads: 1, handlerPath }, { ...poolLimits, instancesMax: 1 });
  return await pools.invoke('bad@1', requestOf('x'));
}

/** The kernel kills the process with the highest score first. */
function killScore(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/oom_score_adj`, 'utf8'));
}

test.each([
  ['a promise that nobody waits for', `Promise.reject(new Error('a stray\\nrejection'))`, 'a stray rejection'],
  ['a timer', `setTimeout(() => { throw new Error('too late') }, 1)`, 'too late'],
])('what %s throws is told to whoever was being served', async (_what, stray, said) => {
  await expect(call({ pre: `${stray}; await new Promise(() => undefined)` })).rejects.toMatchObject({
    code: 'instance-died',
    message: expect.stringContaining(`an error that nothing caught: ${said}`) as string,
  });
});

test.each<[string, string, object]>([
  ['an object with a status', `throw { status: 418, message: 'teapot' }`, { code: 'handler-input', status: 418, message: 'teapot' }],
  ['nothing', `throw undefined`, { code: 'handler-failed', message: "the handler's preprocess failed: undefined" }],
  ['a message of several lines', `throw new Error('one\\n  two')`, { code: 'handler-failed', message: "the handler's preprocess failed: one two" }],
  ['what throws when it is looked at', `throw new Proxy({}, { get() { throw new Error('no') }, has() { throw new Error('no') } })`, { code: 'handler-failed', message: "the handler's preprocess failed: something that cannot be shown" }],
])('a handler that throws %s fails in one line', async (_what, pre, failure) => {
  await expect(call({ pre })).rejects.toMatchObject(failure);
}); // prettier-ignore

test("a handler's error is logged with its stack down to its own last frame; an error with a status is not logged", async () => {
  await expect(call({ pre: `const deep = () => { throw new Error('no such word'); }; deep()` })).rejects.toMatchObject({
    code: 'handler-failed',
    message: "the handler's preprocess failed: no such word",
  });
  await expect
    .poll(() => logged.join('\n'))
    .toMatch(/^Error: no such word\n +at deep .*\n +at .*preprocess .*:1:\d+\)$/);
  await pools.stop(0);
  await expect(call({ pre: `throw Object.assign(new Error('not a list'), { status: 400 })` })).rejects.toMatchObject({
    code: 'handler-input',
  });
  await pools.stop(0);
  expect(logged).toEqual([]);
});

test.each([
  ['another name', `return [{ name: 'zz', datatype: 'FP32', shape: [1], data: [1] }]`, `did not give the input 'x' of the model (it gave 'zz')`],
  ['no tensors', `return []`, `did not give the input 'x' of the model (it gave nothing)`],
  ['one too many', `return [...${tensors}, { name: 'zz', datatype: 'FP32', shape: [1], data: [1] }]`, `gave 'zz', which is no input of the model (it gave 'x', 'zz')`],
])('a preprocess that gives %s is told what the model takes', async (_what, pre, said) => {
  await expect(call({ pre })).rejects.toMatchObject({ code: 'handler-failed', message: `the handler's preprocess ${said}` });
}); // prettier-ignore

test('a handler that writes without end does not fill the log', async () => {
  const result = await call({
    pre: `for (let line = 0; line < 2000; line++) console.log('z'.repeat(5000)); return ${tensors}`,
  });
  expect(textOf(result)).toBe('ok');
  await pools.stop(0);
  expect(logged.length).toBeGreaterThan(0);
  expect(logged.join('').length).toBeLessThan(1_000_000);
});

test("a handler sees its operator's settings but none of the host's", async () => {
  process.env['TURNTABLE_API_KEYS'] = 'a-secret-key';
  process.env['HANDLER_SETTING'] = 'seen';
  const result = await call({ post: 'return process.env' });
  const seen = JSON.parse(textOf(result)) as Record<string, string>;
  expect(seen['HANDLER_SETTING']).toBe('seen');
  expect(Object.keys(seen).filter((name) => name.startsWith('TURNTABLE_'))).toEqual([]);
});

test.skipIf(process.platform !== 'linux')('when memory runs out, an instance goes before the host does', async () => {
  const { instancePid } = await call({});
  expect(killScore(instancePid)).toBeGreaterThan(killScore(process.pid));
});

test('headers that a handler writes to its request are not those of the next call', async () => {
  const pre = `request.headers.seen = (request.headers.seen ?? 0) + 1; seen = request.headers.seen; return ${tensors}`;
  const first = await call({ pre, post: 'return String(seen)', before: 'let seen;' });
  const second = await pools.invoke('bad@1', requestOf('x'));
  expect([first, second].map(textOf)).toEqual(['1', '1']);
});

test('a reply without room is dropped while it arrives, its call is told so, and the instance serves the next', async () => {
  const replyBytes = 4_000_000;
  let held = 0;
  const grown: number[] = [];
  const replies = {
    grow: (bytes: number) => {
      if (held + bytes > 6_000_000) throw new Error(`${held} bytes are held`);
      held += bytes;
      grown.push(bytes);
    },
  };
  const long = { post: `return 'x'.repeat(${replyBytes})`, replies };
  expect(textOf(await call(long))).toHaveLength(replyBytes);
  expect(grown).toEqual([expect.any(Number), -grown[0]!]);
  expect(grown[0]).toBeGreaterThan(replyBytes);
  held = 3_000_000;
  const instances = pools.state('bad@1')?.instances.map(({ pid }) => pid);
  await expect(pools.invoke('bad@1', requestOf('x'))).rejects.toMatchObject({
    code: 'too-many-requests',
    message: '3000000 bytes are held',
  });
  held = 0;
  expect(textOf(await pools.invoke('bad@1', requestOf('x')))).toHaveLength(replyBytes);
  expect(held).toBe(0);
  expect(pools.state('bad@1')?.instances.map(({ pid }) => pid)).toEqual(instances);
});
