/** Handlers that invoke other functions, on a host with one core. */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { writeReluModel } from '../support/models.ts';
import { startReluHost, type ReluHost } from '../support/relu-host.ts';

const input = "[{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [1, 2, 3, 4] }]";
const quiet = `export const preprocess = () => ${input};`;

/** The source of each handler, by name. */
const handlers: Readonly<Record<string, string>> = {
  // Its own model, then another one on that output minus two and minus ten, in parallel.
  sum: `
    const less = (tensor, by) => ({ ...tensor, name: 'x', data: tensor.data.map((value) => value - by) });
    export const preprocess = (request) => [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: request.json() }];
    export async function postprocess([own], request, context) {
      const answers = await Promise.all([2, 10].map((by) => context.invoke('relu', [less(own, by)])));
      return { sums: answers.map(([{ data }]) => data.reduce((sum, value) => sum + value)) };
    }`,
  // Before its own model, another function's handler, which calls others itself.
  outer: `
    export async function preprocess(request, context) {
      const reply = await context.call('sum', request.json());
      return [{ name: 'x', datatype: 'FP32', shape: [1, 4], data: [...reply.json().sums, 0, reply.status] }];
    }
    export const postprocess = ([own]) => [...own.data];`,
  ping: `${quiet} export const postprocess = async (_, request, context) => (await context.call('pong', '')).text();`,
  pong: `${quiet} export const postprocess = async (_, request, context) => (await context.call('ping', '')).text();`,
  itself: `${quiet} export const postprocess = async (_, request, context) => (await context.call('itself', '')).text();`,
  strict: `
    export function preprocess() { throw Object.assign(new Error('no, not that'), { status: 422 }); }
    export const postprocess = () => 'done';`,
  broken: `${quiet} export const postprocess = () => { throw new Error('a bad day'); };`,
  // Makes the requested call, and reports the error.
  asks: `${quiet}
    export async function postprocess(_, request, context) {
      const { name, tensors, lets } = request.json();
      const asked = tensors === undefined ? context.call(name, '') : context.invoke(name, tensors);
      if (lets) return (await asked).length;
      return await asked.then(() => 'answered', ({ code, status, message }) => ({ code, status, message }));
    }`,
  // Works for the requested time, and then asks another function, or does not.
  works: `
    export async function preprocess(request, context) {
      const { workMs, asks } = request.json();
      const untilMs = performance.now() + workMs;
      while (performance.now() < untilMs);
      if (asks) await context.invoke('relu', ${input});
      return ${input};
    }
    export const postprocess = () => 'done';`,
  // Ends without an answer that it asked for.
  hurries: `${quiet}
    export function postprocess(_, request, context) {
      void context.invoke('nobody', ${input});
      return 'gone ahead';
    }`,
  'hurries-first': `
    export function preprocess(request, context) {
      void context.call('nobody', '');
      void context.invoke('nobody', 5);
      return ${input};
    }
    export function postprocess() {
      return process.pid;
    }`,
};

/** A call that works, and asks the next level for each of its own, before or after its model's run. */
interface Nested {
  readonly workMs: number;
  readonly isBefore: boolean;
  readonly asks: readonly Nested[];
}

const levels = 4;

const nestedHandler = (level: number): string => `
  async function ask(request, context) {
    const { workMs, asks } = request.json();
    const untilMs = performance.now() + workMs;
    while (performance.now() < untilMs);
    const replies = await Promise.all(asks.map((each) => context.call('level-${level + 1}', each)));
    return replies.reduce((sum, reply) => sum + reply.json().calls, 1);
  }
  export async function preprocess(request, context) {
    if (request.json().isBefore) request.calls = await ask(request, context);
    return ${input};
  }
  export const postprocess = async (_, request, context) => ({ calls: request.calls ?? (await ask(request, context)) });`;

const nested = (level: number): fc.Arbitrary<Nested> =>
  fc.record({
    workMs: fc.constantFrom(0, 0, 0, 1, 5),
    isBefore: fc.boolean(),
    asks: level + 1 < levels ? fc.array(nested(level + 1), { maxLength: 3 }) : fc.constant([]),
  });

const callsIn = ({ asks }: Nested): number => asks.reduce((sum, each) => sum + callsIn(each), 1);

let host: ReluHost;

beforeAll(async () => {
  host = await startReluHost(['relu'], {
    flags: { 'cpu.cores': '1' },
    prepare: async (functions) => {
      const chain = Array.from({ length: levels }, (_, level) => [`level-${level}`, nestedHandler(level)] as const);
      for (const [name, source] of [...Object.entries(handlers), ...chain]) {
        const folder = join(functions, name);
        await mkdir(folder);
        await writeReluModel(folder);
        await writeFile(join(folder, 'handler.mjs'), source);
        const settings = { model: 'relu.onnx', handler: 'handler.mjs', slo: '60s' };
        await writeFile(join(folder, 'function.json'), JSON.stringify(settings));
      }
    },
  });
});
afterAll(() => host[Symbol.asyncDispose]());

async function call(name: string, body: unknown = ''): Promise<{ status: number; body: unknown }> {
  const response = await fetch(`${host.url}/function/${name}`, { method: 'POST', body: JSON.stringify(body) });
  const text = await response.text();
  try {
    return { status: response.status, body: JSON.parse(text) };
  } catch {
    return { status: response.status, body: text };
  }
}

async function successesOf(name: string): Promise<number> {
  const metrics = await (await fetch(`${host.url}/metrics`)).text();
  const line = new RegExp(`^nv_inference_request_success\\{model="${name}",version="\\d+"\\} (\\d+)`, 'm').exec(
    metrics,
  );
  return Number(line?.[1] ?? 0);
}

test('a handler gets the outputs of other models, many calls at once, and each of them is counted', async () => {
  const before = await successesOf('relu');
  const calls = Array.from({ length: 12 }, (_, index) => call('sum', [index, 1, 2, 3]));
  const replies = await Promise.all(calls);
  expect(replies.map(({ status }) => status)).toEqual(Array.from({ length: 12 }, () => 200));
  const sums = replies.map(({ body }) => (body as { sums: number[] }).sums);
  expect(sums).toEqual(Array.from({ length: 12 }, (_, index) => [Math.max(0, index - 2) + 1, Math.max(0, index - 10)]));
  expect(await successesOf('relu')).toBe(before + 24);
});

test('functions that call functions that call functions', async () => {
  const replies = await Promise.all(Array.from({ length: 12 }, () => call('outer', [3, 4, 11, 12])));
  for (const reply of replies) expect(reply).toEqual({ status: 200, body: [1 + 2 + 9 + 10, 1 + 2, 0, 200] });
});

test('whatever calls nest in whatever others, one core answers all of them', async () => {
  const forests = fc.array(nested(0), { minLength: 1, maxLength: 8 });
  await fc.assert(
    fc.asyncProperty(forests, async (forest) => {
      const replies = await Promise.all(forest.map((each) => call('level-0', each)));
      expect(replies).toEqual(forest.map((each) => ({ status: 200, body: { calls: callsIn(each) } })));
    }),
    { numRuns: 20 },
  );
});

test('calls in one message with a call that invokes another function take no core from that function', async () => {
  // Runs this short share messages, and many are admitted at once; the long one ends that while they wait.
  for (let round = 0; round < 8; round++)
    await Promise.all(Array.from({ length: 13 }, () => call('works', { workMs: 0, asks: false })));
  const long = call('works', { workMs: 80, asks: false });
  const calls = Array.from({ length: 12 }, () => call('works', { workMs: 0, asks: true }));
  for (const reply of await Promise.all([long, ...calls])) expect(reply).toEqual({ status: 200, body: 'done' });
});

test.each([
  ['ping', "function 'pong', invoked by 'ping': function 'ping', invoked by 'pong': its own answer waits for this call: ping > pong > ping"],
  ['itself', "function 'itself', invoked by 'itself': its own answer waits for this call: itself > itself"],
])('%s, which waits for itself, is refused with its call path', async (name, error) => {
  expect(await call(name)).toEqual({ status: 500, body: { error } });
}); // prettier-ignore

test.each([
  ['nobody', undefined, 'unknown-function', 500, "no function 'nobody' is registered"],
  ['relu', undefined, 'bad-request', 500, 'it has no handler to answer a request: invoke it with tensors'],
  ['relu', [], 'bad-tensor', 500, "input 'x' (FP32 [batch,4]) is missing"],
  ['relu', [{ name: 'z', datatype: 'FP32', shape: [1], data: [1] }], 'bad-tensor', 500, "the model has no input 'z'; it has 'x'"],
  ['strict', undefined, 'handler-input', 422, 'no, not that'],
  ['broken', undefined, 'handler-failed', 500, "the handler's postprocess failed: a bad day"],
])('%s with %j: the handler gets the error with its code', async (name, tensors, code, status, sentence) => {
  const message = `function '${name}', invoked by 'asks': ${sentence}`;
  expect((await call('asks', { name, tensors })).body).toEqual({ code, status, message });
  const passed = await call('asks', { name, tensors, lets: true });
  expect(passed).toEqual({ status, body: { error: message } });
}); // prettier-ignore

test('an answer that a handler does not wait for ends neither the handler nor its process', async () => {
  expect(await call('hurries')).toEqual({ status: 200, body: 'gone ahead' });
  expect(await call('hurries')).toEqual({ status: 200, body: 'gone ahead' });
  const first = await call('hurries-first');
  expect(first.status).toBe(200);
  expect(await call('hurries-first')).toEqual(first);
});

test('an error about a function with a long name does not repeat all of it', async () => {
  const { body } = await call('asks', { name: 'x'.repeat(5000) });
  expect((body as { message: string }).message.length).toBeLessThan(400);
});
