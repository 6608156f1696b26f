/** From a model to running plans: the GPU process times the operators, the planner decides, the process executes. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGpuProcess, type GpuClient } from '../../../src/gpu/index.ts';
import { hybridPlanOf, planChrion, planMemoryOptimal } from '../../../src/plan/chrion/index.ts';
import { parseGraphProfile } from '../../../src/profile/index.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';
import { tensorOf } from '../../../src/tensor/index.ts';
import { buildEmulatedDriver } from '../../emulated-driver/build.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { buildFamily, families, familyInputs } from '../../support/model-families.ts';
import { rotaryExport } from '../../support/pytorch-exports.ts';
import { relativeError } from '../../support/run-program.ts';
import { architecture, exampleOf, loading, noise } from './examples.ts';
import { shaped } from '../../support/shapes.ts';

let folder: string;
let client: GpuClient;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-operator-profile-'));
  if (emulatorMissing) return;
  client = startGpuProcess({
    hostBytes: 2 ** 24,
    slabBytes: 2 ** 20,
    gpuBytes: 2 ** 26,
    cacheFolder: join(folder, 'cache'),
    environment: (await buildEmulatedDriver())?.environment ?? {},
    hybridCores: 2,
  });
  await client.ready;
});
afterAll(async () => {
  if (!emulatorMissing) await client.stop();
  await rm(folder, { recursive: true, force: true });
});

/** Its CPU part is folded; two folding passes of ONNX Runtime name the same constant. */
const attention = families.find(
  ({ kind, exporter, opset, precision }) =>
    kind === 'transformer' && exporter === 'dynamo' && opset === 23 && precision === 'fp32',
)!;

const settings = { layers: 3, input: 8, hidden: 16, sequence: 6 };

const timed = [
  {
    name: 'lstm',
    model: () => architecture('lstm', settings),
    inputs: [noise('input', [2, 6, 8], 1)],
    weighted: 9,
  },
  { name: 'attention', model: () => buildFamily(attention), inputs: familyInputs(attention), weighted: 1 },
  {
    name: 'rotary',
    model: rotaryExport,
    inputs: [
      noise('input', [2, 6, 16], 2),
      tensorOf(
        'positions',
        'INT64',
        [2, 6],
        new BigInt64Array(12).map((_, i) => BigInt(i)),
      ),
    ],
    weighted: 1,
  },
];

describe.skipIf(emulatorMissing)('a function whose operators the GPU process has timed', () => {
  it.each(timed)('$name runs by its plans, with the memory that they predict', async (each) => {
    const { modelPath, inputs, expected } = await exampleOf(folder, each.name, each.model(), each.inputs, 3);
    const key = `${each.name}@1`;
    const spec = { key, modelPath, shapes: shapesOf(inputs), hybrid: { cells: 3 } };
    const coverage = await client.register(spec);
    if (!coverage.covered) throw new Error('the engine has all of it');
    await client.stage(key);
    const profile = parseGraphProfile(await client.measureOperators(key, { gpu: 0, iterations: 2 }));
    expect(profile.nodes.filter(({ shares }) => shares !== undefined).length).toBeGreaterThanOrEqual(each.weighted);
    // The measured times of an emulated GPU would leave everything to the CPU.
    const nodes = profile.nodes.map((node) => ({ ...node, gpu: 0.05, cpu: [0.06, 0.07] }));
    const planned = { ...profile, nodes, latency: 0.01, callMs: 0.02 };
    const plans = [
      planChrion(planned, { alpha: 0 }),
      planChrion(planned, { alpha: 1000 }),
      planMemoryOptimal(planned, { latencyLimitMs: 100 }),
    ];
    for (const [index, plan] of plans.entries()) {
      const promise = await client.addPlan(key, hybridPlanOf(plan!, `plan ${index}`));
      expect(promise.weightBytes).toBe(plan!.gpuBytes);
      const options = { gpu: 0, plan: loading(coverage.layers, promise.layers), variant: promise.plan };
      const { outputs } = await client.run(key, inputs, options);
      for (const [at, output] of outputs.entries()) expect(relativeError(output, expected[at]!)).toBeLessThan(1e-4);
    }
  });

  it('a function whose operators the GPU process has timed is timed on as many cores as the process has and no more', async () => {
    const example = await exampleOf(folder, 'gru', architecture('gru', settings), [noise('input', [2, 6, 8], 1)]);
    const { modelPath } = example;
    await client.register({ key: 'g@1', modelPath, shapes: shaped({ input: [2, 6, 8] }), hybrid: { cells: 1 } });
    await client.stage('g@1');
    const { nodes } = await client.measureOperators('g@1', { gpu: 0, cores: 1, iterations: 1 });
    expect(nodes.every(({ cpu }) => cpu.length === 1)).toBe(true);
    await expect(client.measureOperators('g@1', { gpu: 0, cores: 3 })).rejects.toThrow(
      'operators cannot be timed on 3 cores: the GPU process has 2 for plans over GPU and CPU',
    );
    await expect(client.measureOperators('none', { gpu: 0 })).rejects.toMatchObject({ code: 'unknown-function' });
  });
});
