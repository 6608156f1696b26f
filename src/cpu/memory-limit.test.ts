/** What all processes take stays within the memory of all functions, whatever sessions and runs weigh. */
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { poolLimits, ScheduledPools } from '../../test/support/cpu-pools.ts';
import { draws } from '../../test/support/draws.ts';
import { describeModel, ElementType, GraphBuilder, writeModel } from '../onnx/index.ts';
import { runBytesOf } from '../operators/index.ts';
import { tensorOf } from '../tensor/index.ts';
import { proportionalBytes } from './instance/index.ts';

const mebibyte = 2 ** 20;
/** Of each process: it varies from one look to the next. */
const marginOfProcessBytes = 2 * mebibyte;
const width = 256;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-memory-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Neighbour {
  readonly weightMib: number;
  /** Of each of three results that are alive at once. */
  readonly resultMib: number;
  readonly isolation: 'own' | 'shared';
}

async function written(key: string, { weightMib, resultMib, isolation }: Neighbour) {
  const graph = new GraphBuilder(key);
  const x = graph.input('x', ElementType.FLOAT, [1, 1]);
  const rows = (weightMib * mebibyte) / 4 / width;
  const ones = graph.weight('ones', [1, rows], new Float32Array(rows).fill(1));
  const weight = graph.weight('weight', [rows, width], new Float32Array(rows * width).fill(1 / rows));
  const row = graph.node('MatMul', [graph.node('MatMul', [x, ones]), weight]);
  const shape = graph.constant({ ints: [(resultMib * mebibyte) / 4 / width, width] });
  const wide = graph.node('Expand', [row, shape]);
  const both = graph.node('Mul', [graph.node('Sin', [wide]), graph.node('Cos', [wide])]);
  graph.output(graph.node('ReduceMean', [both], { axes: [0, 1] }), ElementType.FLOAT, [1, 1], 'y');
  const model = graph.build();
  const modelPath = join(folder, `${key}.onnx`);
  await writeModel(model, modelPath);
  const runBytes = runBytesOf(model, describeModel(model).inputs);
  return { key, modelPath, threads: 1, modelBytes: (await stat(modelPath)).size, runBytes, isolation };
}

let scenes = 0;

/** Calls all functions at once, again and again. Returns by how much their processes were over the limit at most. */
async function mostOverBytes(neighbours: readonly Neighbour[], memoryMib: number): Promise<number> {
  const scene = scenes++;
  const pids = new Set<number>();
  const pools = new ScheduledPools({
    // As many may load at once.
    cores: neighbours.length,
    memoryBytes: memoryMib * mebibyte,
    measureProcess: (pid) => {
      pids.add(pid);
      return proportionalBytes(pid);
    },
  });
  const specs = await Promise.all(neighbours.map((each, at) => written(`f${at}-${scene}`, each)));
  for (const spec of specs) pools.register(spec, { ...poolLimits, instancesMax: 1 });
  const pidsIn = (state?: 'loading'): number[] =>
    pools.pools
      .states()
      .flatMap(({ instances }) => instances.flatMap((each) => ((state ?? each.state) === each.state ? each.pid : [])));
  let mostBytes = -Infinity;
  const look = async (): Promise<void> => {
    for (const pid of pidsIn()) pids.add(pid);
    const loading = new Set(pidsIn('loading'));
    const sizes = new Map<number, number>();
    for (const pid of pids) sizes.set(pid, (await proportionalBytes(pid)) ?? 0);
    // What a load takes at its peak is another part of the memory.
    for (const pid of pidsIn('loading')) loading.add(pid);
    let over = -memoryMib * mebibyte;
    for (const [pid, size] of sizes) if (size > 0 && !loading.has(pid)) over += size - marginOfProcessBytes;
    mostBytes = Math.max(mostBytes, over);
  };
  const input = { kind: 'tensors', tensors: [tensorOf('x', 'FP32', [1, 1], Float32Array.of(1))] } as const;
  const called = async ({ key }: (typeof specs)[number]): Promise<void> => {
    // The second run takes more than the first.
    for (let call = 0; call < 2; call++) await pools.invoke(key, input);
    await look();
  };
  try {
    for (let round = 0; round < 2; round++) await Promise.all(specs.map(called));
  } finally {
    await pools.pools.stop(0);
  }
  return mostBytes;
}

test('processes take no more than the memory of all functions, whatever their weights and results', async () => {
  const neighbour = fc.record({
    weightMib: fc.integer({ min: 1, max: 8 }),
    resultMib: fc.integer({ min: 4, max: 12 }),
    isolation: fc.constantFrom('own', 'own', 'shared'),
  });
  await fc.assert(
    fc.asyncProperty(
      fc.array(neighbour, { minLength: 6, maxLength: 8 }),
      fc.integer({ min: 180, max: 260 }),
      async (neighbours, memoryMib) => {
        expect(await mostOverBytes(neighbours, memoryMib)).toBeLessThanOrEqual(0);
      },
    ),
    // Each takes seconds, and so would making the scene smaller.
    { numRuns: draws(1), endOnFailure: true },
  );
});
