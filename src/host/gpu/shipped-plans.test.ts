/** Shipped plans are those that the planners make, and a host uses them until it has measured. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { functionVersion } from '../../../test/host/fake-store.ts';
import { gpuBench } from '../../../test/gpu/host/gpu-bench.ts';
import type { GpuClient, GpuCoverage } from '../../gpu/index.ts';
import { formatShippedPlan, shippedMachines, shippedModels, shippedPlanOf } from '../../../scripts/shipped-plans.ts';
import { shippedPlans, type ShippedPlan } from './shipped-plans.ts';

const folder = join(import.meta.dirname, '../../../plans');
const read = (machine: string, model: string): Promise<string> =>
  readFile(join(folder, machine, `${model}.json`), 'utf8');

describe('the plans in plans/', () => {
  test.each(shippedMachines)('for %s are what the planners make today (npm run plans)', async (machine) => {
    expect((await readdir(join(folder, machine))).toSorted()).toEqual(
      shippedModels.map((model) => `${model}.json`).toSorted(),
    );
    for (const model of shippedModels) {
      expect(await read(machine, model), model).toBe(formatShippedPlan(shippedPlanOf(model, machine)));
    }
  });

  test('say that they were not measured, and give the time of a start in each mode', async () => {
    const plan = JSON.parse(await read('p3.8xlarge', 'bert-base')) as ShippedPlan;
    expect(plan.provenance).toMatch(/estimated for p3\.8xlarge.*simulated.*nothing of this was measured/);
    const { baseline, pipeswitch, dha, 'pt+dha': both } = plan.starts;
    expect(pipeswitch!.coldMs).toBeLessThan(baseline!.coldMs);
    expect(dha!.coldMs).toBeLessThan(pipeswitch!.coldMs);
    expect(both!.coldMs).toBeLessThan(dha!.coldMs);
    expect(dha!.gpuBytes).toBeLessThan(baseline!.gpuBytes);
  });

  test('are found by the sizes of the layers and the names of the GPUs, all of them', async () => {
    const find = shippedPlans(folder);
    const { layers } = JSON.parse(await read('a5000x2', 'resnet50')) as ShippedPlan;
    const sizes = layers.map(([, bytes]) => ({ bytes }));
    const names = ['RTX A5000', 'NVIDIA RTX A5000'];
    const found = await find(sizes, names);
    expect(found?.source).toBe('plans/a5000x2/resnet50.json, estimated');
    expect(found?.methodsOf('pipeswitch')).toEqual(sizes.map(() => 'load'));
    expect(found?.methodsOf('dha')).toEqual(layers.map((row) => row[5]));
    expect(await find(sizes, ['RTX A5000'])).toBeUndefined();
    expect(await find(sizes, ['RTX A5000', 'NVIDIA H100'])).toBeUndefined();
    expect(await find([...sizes.slice(1), { bytes: 4 }], names)).toBeUndefined();
    // As in the engine's layout: weights read by one product lie in the layer of the first.
    const [a, b, c, ...rest] = sizes.map(({ bytes }) => bytes);
    const joined = [a! + b! + c!, 0, 0, ...rest].map((bytes) => ({ bytes }));
    const { layers: laidOut } = (await find(joined, names))!.profile;
    const times = layers.slice(0, 3).map((row) => row[2]);
    expect(laidOut.map(({ bytes }) => bytes)).toEqual(joined.map(({ bytes }) => bytes));
    expect(laidOut[0]!.load).toBeCloseTo(times[0]! + times[1]! + times[2]!, 9);
    expect(laidOut[1]!.load).toBe(0);
    const short = [a! + b!, 0, ...joined.slice(2)];
    expect(
      await find(
        short.map((one) => (typeof one === 'number' ? { bytes: one } : one)),
        names,
      ),
    ).toBeUndefined();
    expect(await find(sizes.slice(1), names)).toBeUndefined();
    expect(await shippedPlans(join(folder, 'nowhere'))(sizes, names)).toBeUndefined();
  });
});

describe('a function of a shipped structure', () => {
  let dataDir: string;
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'turntable-shipped-'));
  });
  afterEach(() => rm(dataDir, { recursive: true, force: true }));

  test("uses the file's plan until it has been measured here", async () => {
    const plan = JSON.parse(await read('p3.8xlarge', 'bert-base')) as ShippedPlan;
    const layers = plan.layers.map(([name, bytes]) => ({ name, kind: 'linear' as const, bytes }));
    const coverage: GpuCoverage = {
      covered: true,
      layers,
      weightBytes: layers.reduce((sum, { bytes }) => sum + bytes, 0),
      launches: 1,
    };
    // Twice the file's times, so that the test sees which ones are offered.
    const measured = {
      unit: 'ms' as const,
      layers: plan.layers.map(([name, bytes, load, exec, dha]) => ({
        name,
        kind: 'linear',
        bytes,
        load: 2 * load,
        exec: 2 * exec,
        dha: 2 * dha,
      })),
    };
    const calls: string[] = [];
    const client = {
      register: () => Promise.resolve(coverage),
      measure: () => Promise.resolve(calls.push('measure')).then(() => measured),
      evict: () => Promise.resolve(0),
    } as unknown as GpuClient;
    let isIdle!: () => void;
    const idle = new Promise<void>((resolve) => (isIdle = resolve));
    let isAsked!: () => void;
    const asked = new Promise<void>((resolve) => (isAsked = resolve));
    const { functions, runtime, store, close } = gpuBench({
      dataDir,
      client,
      functions: {
        shippedPlans: shippedPlans(folder),
        whenIdle: () => {
          isAsked();
          return idle;
        },
      },
    });
    const { scheduler } = runtime;
    functions.up(runtime);
    const version = functionVersion('bert');
    store.put(version);

    await asked;
    expect(functions.record(version.key)).toMatchObject({
      state: { kind: 'planned' },
      estimated: 'plans/p3.8xlarge/bert-base.json, estimated',
    });
    const estimatedMs = scheduler.sheetOf(version.key)!.gpus[0]!.warmMs;
    const methods = scheduler
      .plansOf(version.key)!
      .planOf(0, 'dha')
      .layers.map(({ method }) => method);
    expect(methods).toEqual(plan.layers.map((row) => row[5]));
    expect(calls).toEqual([]);

    isIdle();
    await functions.settled();
    expect(calls).toEqual(['measure']);
    expect(functions.record(version.key)?.estimated).toBeUndefined();
    expect(functions.record(version.key)?.state.kind).toBe('planned');
    expect(scheduler.plansOf(version.key)?.mode).toBe('dha');
    expect(scheduler.sheetOf(version.key)!.gpus[0]!.warmMs).toBeCloseTo(2 * estimatedMs, 2);
    await close();
  });
});
