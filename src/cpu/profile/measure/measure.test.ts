import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { writeReluModel, writeTableModel } from '../../../../test/support/models.ts';
import { readLogicalCores } from '../../../hardware/index.ts';
import {
  describeModel,
  ElementType,
  GraphBuilder,
  readModel,
  writeModel,
  type TensorSpec,
} from '../../../onnx/index.ts';
import { checkBytes, elements } from '../../../tensor/index.ts';
import { parseCpuProfile, PoolTable, type CpuProfile } from '../predict/index.ts';
import { makeInputs, measureCpu, median, ProfileFiles, reaches, relativeSpread, resolveSizes } from './index.ts';
import type { MeasureOptions, MeasureProgress } from './index.ts';
import { budgetMsOf, type Measurement } from './measurements.ts';
import { steadyMean, steadyVariation } from './samples.ts';
import { measureServiceTimes } from './service-times.ts';

let folder: string;
let reluPath: string;
let tablePath: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-measure-'));
  reluPath = await writeReluModel(folder);
  tablePath = await writeTableModel(folder);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** The machine's cores, two at most; a single core counts as two for this test. */
const cores = readLogicalCores()
  .slice(0, 2)
  .map(({ id }) => id);
const sockets = [cores];

async function optionsFor(modelPath: string, more: Partial<MeasureOptions> = {}): Promise<MeasureOptions> {
  const { inputs } = describeModel(await readModel(modelPath));
  return { modelPath, modelSha256: 'ab', inputs, sockets, batchMax: 4, samples: 3, ...more };
}

function input(shape: number[], dimensionNames: (string | undefined)[] = [], datatype = 'FP32'): TensorSpec {
  return { name: 'x', datatype: datatype as TensorSpec['datatype'], shape, dimensionNames };
}

/** Of all measurements of single instances and of like ones beside each other. */
function budgetMs(cores: number, batches: number): number {
  const threads = Array.from({ length: cores }, (_, index) => index + 1);
  const plan = threads.flatMap((count): Measurement[] =>
    Array.from({ length: batches }, (_, at): Measurement => ({ kind: 'alone', threads: count, batch: 2 ** at })).concat(
      { kind: 'service', threads: count, batch: 1, levels: Math.log2(cores / count) + 1 },
    ),
  );
  return budgetMsOf(plan);
}

describe('a measurement', () => {
  test('has every entry, predicts, and says how it came about', async () => {
    const told: MeasureProgress[] = [];
    const profile = await measureCpu(await optionsFor(reluPath, { onProgress: (progress) => told.push(progress) }));
    expect(parseCpuProfile(JSON.parse(JSON.stringify(profile)))).toEqual(profile);
    expect(profile.pool.batches).toEqual([1, 2, 4]);
    expect(profile.pool.threads).toEqual(cores.map((_, index) => index + 1));
    expect(profile.pool.latency.flat().every((ms) => ms !== null && ms > 0)).toBe(true);
    expect(profile.service.configurations.map(({ concurrency, threads }) => concurrency * threads)).toContain(
      cores.length,
    );
    expect(new Set(profile.lists.map(({ batch }) => batch))).toEqual(new Set([1, 2, 4]));
    expect(profile.exhaustiveMs).toBeGreaterThan(profile.tookMs);
    for (const { extraMs, gapMs } of profile.idle) {
      expect(extraMs).toBeGreaterThanOrEqual(0);
      expect(gapMs).toBeGreaterThan(0);
    }
    expect(profile.dispatchMs).toBeGreaterThan(0);
    expect(profile.variation.every(({ squared }) => squared >= 0)).toBe(true);
    for (const { aheadShare } of profile.lists) {
      expect(aheadShare).toBeGreaterThanOrEqual(0);
      expect(aheadShare).toBeLessThanOrEqual(1);
    }
    expect(told.at(-1)).toMatchObject({ total: told.length });
    const table = new PoolTable(profile, { cores: cores.length, batchMax: 4, batchTimeoutMs: 1 });
    expect(table.best(1, { kind: 'latency' })?.prediction.state).toBe('stable');
  });

  test('of a model whose tables have no second row runs on zeros', async () => {
    const profile = await measureCpu(await optionsFor(tablePath, { batchMax: 1 }));
    expect(profile.pool.latency[0]?.[0]).toBeGreaterThan(0);
  });

  test('of a model whose batch is fixed is of one request at a time', async () => {
    const graph = new GraphBuilder('fixed');
    const x = graph.input('x', ElementType.FLOAT, [3, 2]);
    graph.output(graph.node('Relu', [x]), ElementType.FLOAT, [3, 2], 'y');
    const modelPath = join(folder, 'fixed.onnx');
    await writeModel(graph.build(), modelPath);
    const profile = await measureCpu(await optionsFor(modelPath, { batchMax: 16 }));
    expect(profile).toMatchObject({ pool: { batches: [3] }, lists: [] });
    expect(reaches(profile, [input([3, 2])], 16)).toBe(true);
    // As many instances as there are cores can be chosen, and each takes requests of these rows only.
    const { candidates } = new PoolTable(profile, { cores: cores.length, batchMax: 3, batchTimeoutMs: 1 });
    const shapes = candidates.map(({ groups }) => groups);
    expect(shapes).toContainEqual([{ instances: cores.length, threads: 1, batch: 3 }]);
    expect(shapes.flat().every(({ batch }) => batch === 3)).toBe(true);
  });

  test('ends when its budget is used up, with one row on one thread at least', async () => {
    const profile = await measureCpu(await optionsFor(reluPath, { budgetMs: 0 }));
    const [first, ...rest] = profile.pool.latency.flat();
    expect(first).toBeGreaterThan(0);
    expect(new Set(rest)).toEqual(new Set([null]));
    expect(profile.service.configurations).toHaveLength(1);
  });

  test('is stopped by its signal, and goes on from there: nothing is measured twice', async () => {
    const controller = new AbortController();
    const done: string[] = [];
    let soFar: CpuProfile | undefined;
    const options = await optionsFor(reluPath, {
      onProgress: ({ label }) => void done.push(label),
      onMeasured: (profile) => {
        soFar = profile;
        // In the middle of what comes next, behind the first of the measurements side by side.
        if (profile.idle.length > 0) setImmediate(() => controller.abort());
      },
    });
    await expect(measureCpu({ ...options, signal: controller.signal })).rejects.toMatchObject({ code: 'stopping' });
    expect(soFar).toMatchObject({ ended: 'interrupted', lists: [] });
    expect(parseCpuProfile(JSON.parse(JSON.stringify(soFar)))).toEqual(soFar);
    expect(reaches(soFar!, options.inputs, 4)).toBe(false);

    const interrupted = done.pop();
    const whole = await measureCpu({ ...options, before: soFar });
    expect(whole).toMatchObject({ ended: 'whole', session: { arena: true, spinning: false } });
    expect(reaches(whole, options.inputs, 4)).toBe(true);
    expect(whole.tookMs).toBeGreaterThan(soFar!.tookMs);
    expect(whole.pool.latency).toEqual(soFar!.pool.latency);
    expect(done).toContain(interrupted);
    expect(new Set(done).size).toBe(done.length);

    // Larger batches only, and they end where no time is left, of all sittings together.
    done.length = 0;
    const larger = await measureCpu({ ...options, before: whole, batchMax: 8, budgetMs: whole.tookMs });
    expect(larger).toMatchObject({ ended: 'budget', pool: { batches: [1, 2, 4, 8] }, lists: whole.lists });
    expect(done).toEqual([]);
  });

  test('has a budget by cores and batches', () => {
    expect(budgetMs(2, 1)).toBeGreaterThan(15_000);
    // The models of the papers take up to 170 s on 16 cores.
    expect(budgetMs(16, 7)).toBeGreaterThan(2 * 170_000);
    expect(budgetMs(16, 7)).toBeGreaterThan(budgetMs(16, 1));
  });

  test('has something of each kind where the time is short: half of it is for single instances', async () => {
    const options = await optionsFor(reluPath, { batchMax: 2 });
    const before = { ...(await measureCpu({ ...options, budgetMs: 0 })), tookMs: 600_000 };
    const profile = await measureCpu({ ...options, before, budgetMs: 1_000_000 });
    expect(profile.ended).toBe('budget');
    expect(profile.pool.latency).toEqual(before.pool.latency);
    expect(new Set(profile.idle.map(({ threads }) => threads))).toEqual(new Set(profile.pool.threads));
    expect(profile.dispatchMs).toBeGreaterThan(0);
    expect(profile.lists.map(({ batch }) => batch)).toContain(1);
  });

  test('of a file that is no model fails with the words of the runtime', async () => {
    const path = join(folder, 'broken.onnx');
    await writeFile(path, 'no model');
    const run = measureCpu({ ...(await optionsFor(reluPath)), modelPath: path });
    await expect(run).rejects.toMatchObject({ code: 'model-load-failed' });
  });
});

describe('inputs', () => {
  test('have the bytes that their shape asks for, whatever their type', () => {
    const datatypes = ['FP32', 'FP64', 'FP16', 'BF16', 'INT64', 'UINT32', 'INT16', 'UINT8', 'BOOL', 'BYTES'];
    fc.assert(
      fc.property(
        fc.constantFrom(...datatypes),
        fc.integer({ min: 1, max: 5 }),
        fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 3 }),
        (datatype, rows, rest) => {
          const [tensor] = makeInputs([input([-1, ...rest], [], datatype)], rows, {}, 1);
          expect(tensor?.shape).toEqual([rows, ...rest]);
          if (tensor !== undefined) checkBytes(tensor);
        },
      ),
    );
  });

  test('of whole numbers are ones, of fractions small', () => {
    const [ids] = makeInputs([input([-1, 2], [], 'INT64')], 2, {}, 1);
    expect(ids && [...elements(ids)]).toEqual([1n, 1n, 1n, 1n]);
    const [values] = makeInputs([input([-1, 100])], 1, {}, 1);
    expect(values && [...elements(values)].every((value) => Math.abs(Number(value)) <= 0.5)).toBe(true);
  });

  test('take sizes by name: as given, else by what the name holds', () => {
    const inputs = [input([-1, -1, -1], ['batch', 'sequence_length', 'whatever'])];
    expect(resolveSizes(inputs, {})).toEqual({ sequence_length: 128, whatever: 16 });
    expect(resolveSizes(inputs, { sequence_length: 7 })).toEqual({ sequence_length: 7, whatever: 16 });
    expect(() => resolveSizes(inputs, { sequence: 7 })).toThrow(
      "no open dimension 'sequence' (open there: batch, sequence_",
    );
    expect(makeInputs(inputs, 3, { sequence_length: 7 }, 1)[0]?.shape).toEqual([3, 7, 1]);
  });
});

describe('profiles on disk', () => {
  test('are found for their machine, model and sizes only', async () => {
    const files = new ProfileFiles(folder);
    const profile = await measureCpu(await optionsFor(reluPath, { batchMax: 1 }));
    const path = await files.keep(profile);
    expect(await files.find(profile)).toEqual(profile);
    expect(await files.find({ ...profile, modelSha256: 'cd' })).toBeUndefined();
    expect(await files.find({ ...profile, dimensions: { sequence: 1 } })).toBeUndefined();
    expect(await files.find({ ...profile, machine: { ...profile.machine, onnxRuntime: '0' } })).toBeUndefined();
    // Sessions that run in another way have other times.
    await files.keep({ ...profile, session: { ...profile.session, arena: false } });
    expect(await files.find(profile)).toBeUndefined();
    await files.keep(profile);
    expect(await readdir(dirname(path))).toHaveLength(1);
    await writeFile(path, '{"format": 1');
    expect(await files.find(profile)).toBeUndefined();
    // A copy from another machine.
    const elsewhere = { ...profile, machine: { ...profile.machine, processor: 'another' } };
    await writeFile(path, JSON.stringify(elsewhere));
    expect(await files.find(profile)).toBeUndefined();
  });
});

test('the median, and how far samples lie apart', () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([1, 2, 3, 10])).toBe(2.5);
  expect(relativeSpread([10])).toBe(0);
  expect(relativeSpread([9, 10, 11])).toBeCloseTo(0.05, 9);
});

/** Takes 0.2 ms more for each other running instance, and 1 ms more after a pause. */
function madeUpService(): () => Promise<number> {
  let running = 0;
  let restedAtMs = performance.now();
  return async () => {
    const wasIdle = running === 0 && performance.now() - restedAtMs > 0.9;
    running++;
    const ms = 1 + 0.2 * (running - 1) + (wasIdle ? 1 : 0);
    await new Promise((resolve) => setImmediate(resolve));
    running--;
    restedAtMs = performance.now();
    return ms;
  };
}

describe('service times', () => {
  test('rise with the number at work, and after gaps', async () => {
    let turn = 0;
    const times = await measureServiceTimes({
      workers: [0, 1, 2],
      concurrencies: [1, 2, 3],
      run: madeUpService(),
      samples: 10,
      limitMs: 1000,
      random: () => (turn = (turn + 0.37) % 1),
    });
    const [alone = 0, two = 0, three = 0] = [1, 2, 3].map((count) => times.busyMs.get(count));
    expect(two).toBeGreaterThan(alone);
    expect(three).toBeGreaterThan(two);
    expect(times.idle.map(({ gapMs }) => gapMs)).toEqual(
      times.idle.map(({ gapMs }) => gapMs).toSorted((a, b) => a - b),
    );
    for (const { extraMs } of times.idle) {
      expect(extraMs).toBeGreaterThan(0.5);
      expect(extraMs).toBeLessThan(1.1);
    }
  });

  test('leave out glitches of the machine', () => {
    expect(steadyMean([4, 5, 6])).toBe(5);
    expect(steadyMean([4, 5, 6, 90])).toBe(5);
    expect(steadyMean([])).toBeNaN();
    expect(steadyVariation([5, 5, 5])).toBe(0);
    expect(steadyVariation([4, 6, 4, 6, 90])).toBeCloseTo(0.04, 9);
    expect(steadyVariation([])).toBe(0);
  });
});
