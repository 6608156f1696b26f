import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GpuError, type GpuClient, type GpuCoverage } from '../../../gpu/index.ts';
import { loadMachine } from '../../../hardware/index.ts';
import { parseGraphProfile, type GraphProfile } from '../../../profile/index.ts';
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
}

function fake(kind: VariantOptions['kind'], cpuMs: number, refused: (key: string) => boolean = () => false): Fake {
  const measured: string[] = [];
  const client: Pick<GpuClient, 'addPlan' | 'dropPlan' | 'measureOperators'> = {
    addPlan: (key, { id, segments }) => {
      if (refused(key)) return Promise.reject(new GpuError('invalid', 'there is no such operator'));
      const onCpu = new Set(segments.flatMap((segment) => segment.operators.map((name) => name.split('/')[0])));
      const kept = layers.flatMap((_, index) => (onCpu.has(`layer${index}`) ? [] : [index]));
      return Promise.resolve({ plan: id, layers: kept, weightBytes: 131_072 * kept.length, cores: 1 });
    },
    dropPlan: () => Promise.resolve(),
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
    kind,
    cores: 1,
    iterations: 1,
    measure: (work) => {
      const done = turn.then(work);
      turn = done;
      return done;
    },
  };
  return { options, measured };
}

function subject(name: string): VariantSubject {
  const profile = {
    unit: 'ms' as const,
    layers: layers.map((layer) => ({ ...layer, load: 0.07, exec: 0.2, dha: 0.3 })),
  };
  const memory = { weightBytes: 262_144, launches: 8 };
  const coverage: GpuCoverage = { covered: true, layers, ...memory };
  const plans = makePlans(profile, machine, mode);
  return { key: `${name}@1`, name, coverage, shapes: shaped({ x: [1] }), sloMs: 1000, profile, plans, machine, mode };
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
  const { options, measured } = fake('memory', 0.15, (key) => key === 'b@1');
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
