/** Handlers whose model runs outside of their instance, as on a GPU. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { bodyOf, poolLimits, requestOf } from '../../test/support/cpu-pools.ts';
import { writeReluModel } from '../../test/support/models.ts';
import { elements, tensorOf, type Tensor } from '../tensor/index.ts';
import { Instance } from './instance/instance.ts';
import { Pace } from '../schedule/index.ts';
import { createCpuPools, CpuError, type CpuPools, type PoolLimits, type PoolResult, type RunModel } from './index.ts';

let folder: string;
let modelPath: string;
let pools: CpuPools;
let handlers = 0;

const limits: PoolLimits = { ...poolLimits, instancesMax: 1 };

/** Numbers in, numbers out; both halves must run in one process with the same request object. */
const numbers = `
const kept = new WeakMap();
export function preprocess(request) {
  const data = request.text().split(',').map(Number);
  if (data.some(Number.isNaN)) throw Object.assign(new Error('that is not a list of numbers'), { status: 400 });
  kept.set(request, data.length);
  return [{ name: 'x', datatype: 'FP32', shape: [1, data.length], data }];
}
export function postprocess(tensors, request) {
  if (kept.get(request) === undefined) throw new Error('the first half was somewhere else');
  return { values: Array.from(tensors[0].data), pid: process.pid };
}`;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-elsewhere-'));
  modelPath = await writeReluModel(folder, 'width');
});
afterAll(() => rm(folder, { recursive: true, force: true }));
afterEach(() => {
  vi.restoreAllMocks();
  return pools.stop(0);
});

async function register(key: string, source = numbers, changes: Partial<PoolLimits> = {}): Promise<void> {
  const handlerPath = join(folder, `handler-${handlers++}.mjs`);
  await writeFile(handlerPath, source);
  pools.register({ key, modelPath, threads: 1, handlerPath, inputNames: ['x'] }, { ...limits, ...changes });
}

function start(cores = 2): void {
  pools = createCpuPools({ cores, blankInstances: 0, memoryBytes: 4e9, log: () => undefined });
}

function call(key: string, text: string, runModel?: RunModel): Promise<PoolResult> {
  return pools.invoke(key, requestOf(text), runModel === undefined ? {} : { runModel });
}

function answered({ output }: PoolResult): { readonly values: readonly number[]; readonly pid: number } {
  if (output.kind !== 'response') throw new Error('tensors');
  return JSON.parse(Buffer.from(output.response.body).toString()) as { values: number[]; pid: number };
}

const floats = (tensor: Tensor | undefined): number[] => Array.from(elements(tensor!) as Float32Array);
/** The model's result plus ten, so that the answer shows where the model ran. */
const reluAndTen: RunModel = (inputs) => {
  const data = Float32Array.from(floats(inputs[0]), (value) => Math.max(0, value) + 10);
  return Promise.resolve([tensorOf('y', 'FP32', [...inputs[0]!.shape], data)]);
};
const here: RunModel = () => Promise.resolve(undefined);
const stateOf = (key: string): ReturnType<CpuPools['states']>[number] =>
  pools.states().find((state) => state.key === key)!;

/** A promise that the test settles by hand. */
function gate<T = void>(): { readonly passed: Promise<T>; readonly open: (value: T) => void } {
  let open!: (value: T) => void;
  const passed = new Promise<T>((resolve) => (open = resolve));
  return { passed, open };
}

/** Each turn fills as few lots as its order allows; of each lot, those of one width share a run. */
function runsOf(
  calls: readonly { readonly rows: number; readonly width: number; readonly turn: number }[],
  batchMax: number,
): number {
  let runs = 0;
  for (const now of [0, 1]) {
    let left = calls.filter(({ turn }) => turn === now);
    while (left.length > 0) {
      let free = batchMax;
      const lot = left.filter(({ rows }, at) => {
        const isIn = batchMax > 1 && rows <= free;
        if (isIn) free -= rows;
        return isIn || at === 0;
      });
      left = left.filter((each) => !lot.includes(each));
      runs += new Set(lot.map(({ width }) => width)).size;
    }
  }
  return runs;
}

test('a handler gets the outputs of a model run elsewhere, in the process and with the request of its first half', async () => {
  start();
  await register('numbers');
  const result = await call('numbers', '1,-2,3', reluAndTen);
  expect(answered(result).values).toEqual([11, 10, 13]);
  expect(result).toMatchObject({ modelElsewhere: true, coldStart: true, instancePid: answered(result).pid });
  const { preprocessMs, inferMs, postprocessMs, loadMs } = result.timings;
  for (const ms of [preprocessMs, inferMs, postprocessMs, loadMs]) expect(ms).toBeGreaterThan(0);
});

test('the instance loads the model only if it has to run it, and reports the load time', async () => {
  start();
  await register('numbers');
  await call('numbers', '1,2,3,4', reluAndTen);
  expect(stateOf('numbers').instances).toMatchObject([{ state: 'idle', holdsModel: false }]);
  const late = await call('numbers', '1,-2,3,4', here);
  expect(answered(late).values).toEqual([1, 0, 3, 4]);
  expect(late.coldStart).toBe(true);
  expect(late.timings.loadMs).toBeGreaterThan(0);
  expect(late.modelElsewhere).toBeUndefined();
  expect(stateOf('numbers').instances[0]).not.toHaveProperty('holdsModel');
  const warm = await call('numbers', '1,-2,3,4', here);
  expect(warm).toMatchObject({ coldStart: false, timings: { loadMs: 0 }, instancePid: late.instancePid });
});

test('the instance serves others while a model runs elsewhere', async () => {
  start();
  await register('numbers');
  const asked = gate();
  const answer = gate();
  const order: string[] = [];
  const first = call('numbers', '1', async (inputs) => {
    asked.open();
    await answer.passed;
    return reluAndTen(inputs);
  }).then((result) => (order.push('first'), result));
  await asked.passed;
  const others = await Promise.all(
    Array.from({ length: 40 }, (_, index) => call('numbers', String(index), reluAndTen)),
  );
  order.push('others');
  answer.open();
  expect(answered(await first).values).toEqual([11]);
  expect(order).toEqual(['others', 'first']);
  expect(others.map((result) => answered(result).values[0])).toEqual(others.map((_, index) => index + 10));
  expect(new Set([await first, ...others].map(({ instancePid }) => instancePid)).size).toBe(1);
});

describe('calls of one message', () => {
  /** Before its model, after it, or both, or never, it invokes another function; it may fail, too. */
  const asks = `
    const ask = async (text, step, context) => {
      if (!text.includes(step)) return;
      const [answer] = await context.invoke('other-' + step + text.split(' ')[0], []);
      if (answer.data[0] !== Number(text.split(' ')[0])) throw new Error('the answer of another call');
    };
    const given = (request) => request.text();
    export async function preprocess(request, context) {
      const text = given(request);
      await ask(text, 'before', context);
      if (text.includes('fails-first')) throw Object.assign(new Error(text), { status: 400 });
      const [rows, width] = /(\\d+)x(\\d+)/.exec(text).slice(1).map(Number);
      const data = Array.from({ length: rows * width }, (_, at) => Number(text.split(' ')[0]) + at);
      return [{ name: 'x', datatype: 'FP32', shape: [rows, width], data }];
    }
    export async function postprocess([{ shape, data }], request, context) {
      const text = given(request);
      await ask(text, 'after', context);
      if (text.includes('fails-last')) throw Object.assign(new Error(text), { status: 400 });
      if (!text.includes(shape.join('x'))) throw new Error('the outputs of another call');
      return { values: Array.from(data), pid: process.pid };
    }`;

  const kind = fc.record({
    asks: fc.constantFrom('', 'before', 'after', 'before after'),
    fails: fc.constantFrom('', '', 'fails-first', 'fails-last'),
    model: fc.constantFrom('here', 'elsewhere', 'none asked', 'none asked'),
    shape: fc.constantFrom([1, 4], [2, 4], [1, 2]),
  });

  test.each([1, 8])(
    'have their own answers, of up to %i in a run, as what they wait for is there',
    async (batchMax) => {
      vi.spyOn(Pace.prototype, 'callsPerMessage', 'get').mockReturnValue(8);
      const sent = vi.spyOn(Instance.prototype, 'run');
      start();
      await register('asks', asks, { batchMax });
      await call('asks', '0 1x4');
      let [most, mostElsewhere, mostJoined] = [0, 0, 0];
      await fc.assert(
        fc.asyncProperty(
          fc.array(kind, { minLength: 2, maxLength: 6 }),
          fc.infiniteStream(fc.nat(1000)),
          async (kinds, picks) => {
            sent.mockClear();
            /** What the host has been asked for, and not answered yet. */
            const open: (() => void)[] = [];
            const held = (): Promise<void> => new Promise((resolve) => open.push(resolve));
            const waiting = new Set(kinds.keys());
            const texts = kinds.map(({ asks: when, fails, shape }, at) =>
              [at, when, fails, shape.join('x')].filter((part) => part !== '').join(' '),
            );
            const calls = kinds.map(({ model }, at) => {
              const runModel: RunModel | undefined =
                model === 'none asked'
                  ? undefined
                  : async (inputs) => {
                      await held();
                      return model === 'here' ? undefined : await reluAndTen(inputs);
                    };
              const options = {
                ...(runModel && { runModel }),
                invokeOthers: async () => {
                  await held();
                  return [{ kind: 'tensors' as const, tensors: [tensorOf('y', 'FP32', [1], Float32Array.of(at))] }];
                },
              };
              const result = pools.invoke('asks', requestOf(texts[at]!), options);
              return result
                .then(
                  (ran) => {
                    mostJoined = Math.max(mostJoined, ran.batchSize);
                    return answered(ran).values;
                  },
                  (error: CpuError) => `${error.code}: ${error.message}`,
                )
                .finally(() => waiting.delete(at));
            });
            const expected = kinds.map(({ fails, model, shape: [rows = 0, width = 0] }, at) =>
              fails === ''
                ? Array.from({ length: rows * width }, (_, place) => at + place + (model === 'elsewhere' ? 10 : 0))
                : `handler-input: ${texts[at]}`,
            );
            // Answers what was asked in any order, one after the other, as long as anything waits.
            for (const pick of picks) {
              await expect.poll(() => waiting.size === 0 || open.length > 0, { interval: 1 }).toBe(true);
              if (waiting.size === 0) break;
              open.splice(pick % open.length, 1)[0]!();
            }
            expect(await Promise.all(calls)).toEqual(expected);
            for (const [, { calls: together }] of sent.mock.calls) {
              if (together[0]?.modelRun === undefined) most = Math.max(most, together.length);
              else mostElsewhere = Math.max(mostElsewhere, together.length);
            }
            expect(stateOf('asks')).toMatchObject({ inFlight: 0, queueLength: 0, instances: [{ state: 'idle' }] });
          },
        ),
        { numRuns: 40 },
      );
      expect(Math.min(most, mostElsewhere)).toBeGreaterThan(1);
      // Of the calls above few are alike enough, and with some seeds none that wait together.
      const alike = Array.from({ length: 6 }, (_, at) => pools.invoke('asks', requestOf(`${at} 1x4`)));
      for (const { batchSize } of await Promise.all(alike)) mostJoined = Math.max(mostJoined, batchSize);
      expect(mostJoined > 1).toBe(batchMax > 1);
    },
  );

  const rowsByWidth = `
    export const preprocess = (request) => {
      const [rows, width] = request.text().split('x').map(Number);
      return [{ name: 'x', datatype: 'FP32', shape: [rows, width], data: Array(rows * width).fill(rows) }];
    };
    export const postprocess = ([{ shape, data }]) => [...shape, ...new Set(data)].join(' ');`;
  const returning = fc.record({
    batchMax: fc.constantFrom(1, 2, 8),
    perMessage: fc.constantFrom(1, 3, 8),
    /** Of each call: rows and width of its input, and in which turn of the host it is given back. */
    calls: fc.array(
      fc.record({ rows: fc.constantFrom(1, 1, 2, 3), width: fc.constantFrom(4, 4, 5), turn: fc.nat(1) }),
      { minLength: 2, maxLength: 8 },
    ),
  });

  test('whose model has to run here after all share runs as calls do that were never away', async () => {
    start();
    let joined = 0;
    await fc.assert(
      fc.asyncProperty(returning, async ({ batchMax, perMessage, calls }) => {
        const pace = vi.spyOn(Pace.prototype, 'callsPerMessage', 'get').mockReturnValue(perMessage);
        const key = `returns-${handlers}`;
        await register(key, rowsByWidth, { batchMax });
        const turns = [gate(), gate()];
        let away = 0;
        const given = calls.map(({ rows, width, turn }) =>
          call(key, `${rows}x${width}`, async () => {
            // All are away before the first comes back.
            if (++away === calls.length) {
              turns[0]!.open();
              setImmediate(() => setImmediate(turns[1]!.open));
            }
            await turns[turn]!.passed;
            return undefined;
          }),
        );
        const results = await Promise.all(given);
        pace.mockRestore();
        expect(results.map(bodyOf)).toEqual(calls.map(({ rows, width }) => `${rows} ${width} ${rows}`));
        const runs = results.reduce((sum, { batchSize }) => sum + 1 / batchSize, 0);
        expect(runs).toBeCloseTo(runsOf(calls, batchMax));
        for (const { batchSize } of results) joined = Math.max(joined, batchSize);
        await pools.unregister(key);
      }),
      { numRuns: 25 },
    );
    expect(joined).toBeGreaterThan(2);
  });

  test('wait for no other: one without an answer delays only itself', async () => {
    vi.spyOn(Pace.prototype, 'callsPerMessage', 'get').mockReturnValue(8);
    start();
    await register('asks', asks);
    await call('asks', '0 1x1');
    const answer = gate();
    const slow = call('asks', '1 1x1', async (inputs) => {
      await answer.passed;
      return reluAndTen(inputs);
    });
    const others = [2, 3, 4].map((value) => call('asks', `${value} 1x1`, value === 2 ? undefined : reluAndTen));
    expect((await Promise.all(others)).map((result) => answered(result).values)).toEqual([[2], [13], [14]]);
    answer.open();
    expect(answered(await slow).values).toEqual([11]);
  });
});

test('the cores of an instance that waits are lent to others', async () => {
  start(2);
  const meeting = join(folder, 'meeting');
  await mkdir(meeting);
  // Neither of two calls leaves its first half before the other has entered it.
  const meets = `import { readdirSync, writeFileSync } from 'node:fs';
    ${numbers.replace('export function preprocess', 'function numbersOf')}
    export async function preprocess(request) {
      writeFileSync(${JSON.stringify(`${meeting}/`)} + process.pid, '');
      while (readdirSync(${JSON.stringify(meeting)}).length < 2) await new Promise((resolve) => setTimeout(resolve, 5));
      return numbersOf(request);
    }`;
  await register('away', numbers, { instancesMax: 2 });
  await register('meets', meets, { instancesMax: 2 });
  const answer = gate();
  const asked = gate();
  const first = call('away', '1', async (inputs) => {
    asked.open();
    await answer.passed;
    return reluAndTen(inputs);
  });
  await asked.passed;
  const both = await Promise.all([call('meets', '1,2,3,4', here), call('meets', '1,2,3,4', here)]);
  expect(both.map((result) => answered(result).values[3])).toEqual([4, 4]);
  answer.open();
  expect(answered(await first).values).toEqual([11]);
});

test.each<[string, string, object]>([
  ['the first half throws with a status', 'x', { code: 'handler-input', status: 400, message: 'that is not a list of numbers' }],
  ['the second half throws', '1', { code: 'handler-failed', message: "the handler's postprocess failed: no" }],
])('%s: the same error as with a model of its own', async (_what, text, failure) => {
  start();
  await register('numbers', numbers.replace('return { values', "throw new Error('no'); return { values"));
  await expect(call('numbers', text, reluAndTen)).rejects.toMatchObject(failure);
  if (text === '1') return;
  await expect(call('numbers', text)).rejects.toMatchObject(failure);
}); // prettier-ignore

test("a handler that gives a wrong input is told the model's inputs although no instance has loaded it", async () => {
  start();
  await register('numbers', numbers.replace("name: 'x'", "name: 'zz'"));
  await expect(call('numbers', '1', reluAndTen)).rejects.toMatchObject({
    code: 'handler-failed',
    message: "the handler's preprocess did not give the input 'x' of the model (it gave 'zz')",
  });
});

test.each(['preprocess', 'postprocess'])('%s that never returns is stopped at its time limit', async (step) => {
  start();
  const hangs = numbers.replace(`function ${step}(`, `function ${step}(...given) { if (given.at(-2).text() === '7') for (;;); return ${step}0(...given); }\nfunction ${step}0(`); // prettier-ignore
  await register('hangs', hangs, { handlerTimeoutMs: 400 });
  const waiting = gate();
  const answer = gate();
  const bystander = call('hangs', '1', async (inputs) => {
    waiting.open();
    await answer.passed;
    return reluAndTen(inputs);
  });
  await waiting.passed;
  await expect(call('hangs', '7', reluAndTen)).rejects.toMatchObject({
    code: 'handler-timeout',
    message: `${step} of hangs took longer than 400 ms and was stopped`,
  });
  answer.open();
  // It was in the same process, between its halves, and runs again in another.
  expect(answered(await bystander).values).toEqual([11]);
});

test('an instance killed between the halves fails no call: both halves run again in another', async () => {
  start();
  await register('numbers');
  const pids: number[] = [];
  let runs = 0;
  const result = await call('numbers', '5,-5', (inputs) => {
    const [{ pid } = { pid: 0 }] = stateOf('numbers').instances;
    pids.push(pid);
    if (runs++ === 0) {
      process.kill(pid, 'SIGKILL');
      return new Promise(() => undefined);
    }
    return reluAndTen(inputs);
  });
  expect(answered(result).values).toEqual([15, 10]);
  expect(runs).toBe(2);
  expect(new Set(pids).size).toBe(2);
});

test.each([
  ['elsewhere', reluAndTen],
  ['here after all, in one run', here],
])(
  'a call whose second half kills two instances fails, and others are served: its model ran %s',
  async (_, runModel) => {
    start();
    await register('dies', numbers.replace('return { values', "if (request.text() === '7') process.kill(process.pid, 'SIGKILL'); return { values"), { batchMax: 8 }); // prettier-ignore
    const texts = ['1', '7', '2', '3'];
    const turn = gate();
    let away = 0;
    const calls = texts.map((text) =>
      call('dies', text, async (inputs) => {
        if (++away === texts.length) turn.open();
        await turn.passed;
        return await runModel(inputs);
      }),
    );
    for (const [at, outcome] of (await Promise.allSettled(calls)).entries())
      expect(outcome).toMatchObject(
        texts[at] === '7' ? { reason: { code: 'instance-died' } } : { status: 'fulfilled' },
      );
  },
);

test('the error of a model run elsewhere is the error of the call, and the instance goes on', async () => {
  start();
  await register('numbers');
  const failure = new CpuError('deadline-passed', 'too late for a GPU');
  await expect(call('numbers', '1', () => Promise.reject(failure))).rejects.toBe(failure);
  expect(answered(await call('numbers', '1', reluAndTen)).values).toEqual([11]);
});

test('an unload waits for the calls that are between their halves', async () => {
  start();
  await register('numbers');
  const asked = gate();
  const answer = gate();
  const first = call('numbers', '1', async (inputs) => {
    asked.open();
    await answer.passed;
    return reluAndTen(inputs);
  });
  await asked.passed;
  let isUnloaded = false;
  const unloaded = pools.unload('numbers').then(() => (isUnloaded = true));
  expect(stateOf('numbers').instances).toHaveLength(1);
  expect(isUnloaded).toBe(false);
  answer.open();
  expect(answered(await first).values).toEqual([11]);
  await unloaded;
  expect(stateOf('numbers').instances).toEqual([]);
});

test('under a configuration its instances serve others meanwhile too, and drain when the last call is answered', async () => {
  start();
  await register('numbers', numbers, { batchMax: 4 });
  const configuration = { groups: [{ instances: 1, threads: 1, batch: 4 }] };
  expect(await pools.configure('numbers', configuration, 'test')).toMatchObject({ state: 'done' });
  const asked = gate();
  const answer = gate();
  const first = call('numbers', '1,2,3,4', async (inputs) => {
    asked.open();
    await answer.passed;
    return reluAndTen(inputs);
  });
  await asked.passed;
  const others = await Promise.all(Array.from({ length: 6 }, (_, index) => call('numbers', `${index},0,0,0`, index % 2 === 0 ? here : reluAndTen))); // prettier-ignore
  expect(others.map((result) => answered(result).values[0])).toEqual([0, 11, 2, 13, 4, 15]);
  const unloaded = pools.unload('numbers');
  answer.open();
  expect(answered(await first).values).toEqual([11, 12, 13, 14]);
  await unloaded;
  expect(stateOf('numbers').instances).toEqual([]);
});

test('without a host a handler is told that no function can be invoked, and a second call does not hang', async () => {
  start();
  await register('asks', `${numbers.replace('export function postprocess', 'function ownAnswer')}
    export const postprocess = (tensors, request, { invoke }) => invoke('other', tensors);`); // prettier-ignore
  const message =
    "function 'other' was not invoked: this handler runs on a worker, and only a host has other functions";
  const calls = await Promise.allSettled([call('asks', '1,2,3,4'), call('asks', '2,3,4,5')]);
  expect(calls).toMatchObject(calls.map(() => ({ reason: { code: 'handler-failed', message } })));
});

test('with the handler alone loaded ahead, the first call is no cold start', async () => {
  start();
  await register('numbers');
  await pools.load('numbers', { handlerOnly: true });
  expect(stateOf('numbers').instances).toMatchObject([{ holdsModel: false }]);
  expect(await call('numbers', '1', reluAndTen)).toMatchObject({ coldStart: false, timings: { loadMs: 0 } });
});
