import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { GpuError, type GpuCoverage } from '../../../gpu/index.ts';
import { loadMachine } from '../../../hardware/index.ts';
import { parseGraphProfile, type GraphProfile } from '../../../profile/index.ts';
import { fingerprintOf, isWorthwhile, parseVariantTimes } from './timed-variants.ts';
import { VariantPlanner } from './variant-planner.ts';
import { makeVariants, type VariantOptions, type VariantSubject } from './make-variants.ts';
import { makePlans, ProfileStore } from '../plans.ts';
import { shaped } from '../../../../test/support/shapes.ts';
import { lstmCells } from '../../../../test/support/lstm-cells.ts';

const machine = loadMachine('p3.8xlarge');
const mode = 'pipeswitch';
const layers = ['one', 'two'].map((name) => ({ name, kind: 'recurrent' as const, bytes: 131_072 }));

/** Two layers of four cells; a cell's time on a core decides whether any is worth moving there. */
function operators(cpuMs: number): GraphProfile {
  const profile = lstmCells({ layers: 2, batch: 1, ioSize: 64, sequence: 4 }, 1);
  const nodes = profile.nodes.map((node, index) => ({ ...node, cpu: [cpuMs], shares: index < 4 ? 'one' : 'two' }));
  return { ...profile, nodes, activations: 'shared' };
}

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-variants-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

interface Fake {
  readonly options: VariantOptions;
  readonly measured: readonly string[];
  /** Runs by function and plan, and evictions. */
  readonly runs: readonly string[];
  readonly dropped: readonly string[];
}

interface FakeSettings {
  readonly refused?: (key: string) => boolean;
  /** Milliseconds of runs of each plan; without it none is timed. */
  readonly runMs?: (variant: string, isCold: boolean) => number;
}

function fake(kind: VariantOptions['kind'], cpuMs: number, { refused, runMs }: FakeSettings = {}): Fake {
  const measured: string[] = [];
  const runs: string[] = [];
  const dropped: string[] = [];
  let isCold = true;
  const client: VariantOptions['client'] = {
    run: (key, _, { variant = '' }) => {
      runs.push(`${key} ${variant}`);
      const timings = { waitMs: 0, gpuMs: 0, totalMs: runMs?.(variant, isCold) ?? 0 };
      isCold = false;
      return Promise.resolve({ outputs: [], start: 'warm', loadedBytes: 0, fromDisk: false, graph: false, timings });
    },
    evict: () => {
      runs.push('evicted');
      isCold = true;
      return Promise.resolve(0);
    },
    addPlan: (key, { id, segments }) => {
      if (refused?.(key) === true) return Promise.reject(new GpuError('invalid', 'there is no such operator'));
      const onCpu = new Set(segments.flatMap((segment) => segment.operators.map((name) => name.split('/')[0])));
      const kept = layers.flatMap((_, index) => (onCpu.has(`layer${index}`) ? [] : [index]));
      return Promise.resolve({ plan: id, layers: kept, weightBytes: 131_072 * kept.length, cores: 1 });
    },
    dropPlan: (key, plan) => Promise.resolve(void dropped.push(`${key} ${plan}`)),
    measureOperators: (key) => {
      measured.push(key);
      return Promise.resolve(operators(cpuMs));
    },
  };
  let turn = Promise.resolve<unknown>(undefined);
  const options: VariantOptions = {
    client,
    planner: new VariantPlanner(),
    logger: pino({ level: 'silent' }),
    profiles: new ProfileStore(folder, 'one GPU', parseGraphProfile),
    times: runMs && new ProfileStore(folder, 'one GPU', parseVariantTimes),
    kind,
    cores: 1,
    iterations: 1,
    measure: (work) => {
      const done = turn.then(work);
      turn = done;
      return done;
    },
  };
  return { options, measured, runs, dropped };
}

function subject(name: string): VariantSubject {
  const profile = {
    unit: 'ms' as const,
    layers: layers.map((layer) => ({ ...layer, load: 0.07, exec: 0.2, dha: 0.3 })),
  };
  const memory = { weightBytes: 262_144, launches: 8 };
  const coverage: GpuCoverage = { covered: true, layers, ...memory };
  const plans = makePlans(profile, machine, mode);
  return {
    key: `${name}@1`,
    name,
    coverage,
    shapes: shaped({ x: [1] }),
    inputs: [],
    sloMs: 1000,
    profile,
    plans,
    machine,
    mode,
  };
}

test('functions of one structure that come at the same time are measured once, and all have plan variants', async () => {
  const { options, measured } = fake('memory', 0.15);
  const found = await Promise.all(['a', 'b', 'c'].map((name) => makeVariants(options, subject(name))));
  // The disk decides which of the three reads its folder first.
  expect(measured).toHaveLength(1);
  for (const plans of found) expect(plans?.offers[0]).toMatchObject({ plan: 'gpu', smaller: { plan: 'hybrid-1' } });
  expect(await readdir(folder)).toHaveLength(1);
});

test('if the GPU alone is the fastest there are no variants for latency, and nothing is measured twice', async () => {
  const { options, measured } = fake('latency', 50);
  expect(await makeVariants(options, subject('a'))).toBeUndefined();
  expect(await makeVariants(options, subject('b'))).toBeUndefined();
  // The disk decides which of the three reads its folder first.
  expect(measured).toHaveLength(1);
});

test('a function is measured itself if the stored profile turns out to be of another graph', async () => {
  const { options, measured } = fake('memory', 0.15, { refused: (key) => key === 'b@1' });
  expect(await makeVariants(options, subject('a'))).toBeDefined();
  expect(await makeVariants(options, subject('b'))).toBeUndefined();
  expect(measured).toEqual(['a@1', 'b@1']);
});

test('nothing is measured without cores, with variants off, or for a large network without recurrent layers', async () => {
  const { options, measured } = fake('off', 0.15);
  expect(await makeVariants(options, subject('a'))).toBeUndefined();
  expect(await makeVariants({ ...options, kind: 'memory', cores: 0 }, subject('a'))).toBeUndefined();
  const large = {
    covered: true,
    layers: layers.map(({ name, bytes }) => ({ name, kind: 'linear' as const, bytes })),
  } as const;
  const rest = { weightBytes: 2 ** 29, launches: 1 };
  const largeOne = { ...subject('a'), coverage: { ...large, ...rest } };
  expect(await makeVariants({ ...options, kind: 'memory', cores: 1 }, largeOne)).toBeUndefined();
  expect(measured).toEqual([]);
});

const wholeMs = (isCold: boolean): number => (isCold ? 20 : 5);

describe('variants that were timed', () => {
  test('are offered with their times, and timed once for all functions of their structure', async () => {
    const { options, runs, dropped } = fake('memory', 0.15, {
      runMs: (variant, isCold) => (variant === 'gpu' ? wholeMs(isCold) : 12),
    });
    const [a] = await Promise.all(['a', 'b'].map((name) => makeVariants(options, subject(name))));
    expect(a?.offers[0]?.smaller).toMatchObject({ plan: 'hybrid-1' });
    expect(a?.offers[0]?.smaller?.warmMs).toBeCloseTo(12);
    expect(new Set(runs.map((run) => run.split(' ')[0]))).toEqual(new Set([runs[0]!.split(' ')[0], 'evicted']));
    const before = runs.length;
    const c = await makeVariants(options, subject('c'));
    expect(c?.offers[0]?.smaller?.warmMs).toBeCloseTo(12);
    expect(runs).toHaveLength(before);
    expect(dropped.filter((each) => each.endsWith('hybrid-1'))).toEqual([]);
  });

  test('are dropped if a cold start of the whole model is faster', async () => {
    const { options, dropped } = fake('memory', 0.15, {
      runMs: (variant, isCold) => (variant === 'gpu' ? wholeMs(isCold) : 21),
    });
    expect(await makeVariants(options, subject('a'))).toBeUndefined();
    expect(dropped).toContain('a@1 hybrid-1');
  });

  test('are of use for latency if a warm run of the whole model is slower, else if a cold one is', () => {
    const times = { variantMs: {}, whole: { warmMs: 5, coldMs: 20 } };
    const useful = (isForLatency: boolean, sloMs = 1000): number[] =>
      [4, 12, 21].filter((ms) => isWorthwhile(ms, times, isForLatency, sloMs));
    expect(useful(true)).toEqual([4]);
    expect(useful(false)).toEqual([4, 12]);
    expect(useful(false, 10)).toEqual([4]);
  });

  test('all stay for a function that has no other way to the GPU', async () => {
    const { options, runs } = fake('memory', 0.15, { runMs: () => 500 });
    const { coverage, ...rest } = subject('a');
    const obstacles = [{ node: 'n', operator: 'NonZero', reason: 'it is missing' }];
    const only = { ...rest, coverage: { covered: false, obstacles, layers: coverage.layers! } as const };
    const plans = await makeVariants(options, { ...only, profile: undefined, plans: undefined });
    expect(plans?.offers[0]?.warmMs).toBeCloseTo(500);
    expect(runs).not.toContain('evicted');
  });

  test('are timed again if what was kept is about other plans, and it stays kept', async () => {
    const { options, runs } = fake('memory', 0.15, { runMs: () => 1 });
    await makeVariants(options, subject('a'));
    const file = (await readdir(folder)).find((name) => name.includes('.variants'));
    const kept = JSON.parse(await readFile(join(folder, file!), 'utf8')) as { profile: { variantMs: object } };
    const other = fingerprintOf({ id: 'hybrid-1', order: [], segments: [] });
    kept.profile.variantMs = { [other]: 1 };
    await writeFile(join(folder, file!), JSON.stringify(kept));
    const before = runs.length;
    await makeVariants(options, subject('b'));
    expect(runs.length).toBeGreaterThan(before);
    const after = JSON.parse(await readFile(join(folder, file!), 'utf8')) as typeof kept;
    expect(Object.keys(after.profile.variantMs)).toHaveLength(2);
    expect(after.profile.variantMs).toHaveProperty(other, 1);
  });
});
