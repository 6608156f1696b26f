/** From a model to plans that run: the GPU process times the operators, the planner decides, the process carries it out. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGpuProcess, type GpuClient } from '../../src/gpu/index.ts';
import { hybridPlanOf, planChrion, planMemoryOptimal } from '../../src/plan/chrion/index.ts';
import { parseGraphProfile } from '../../src/profile/index.ts';
import { buildEmulatedDriver } from '../emulated-driver/build.ts';
import { emulatorMissing } from '../support/emulated-cuda.ts';
import { relativeError } from '../support/run-program.ts';
import { architecture, exampleOf, loading, noise } from './examples.ts';
import { shaped } from '../support/shapes.ts';

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

const settings = { layers: 3, input: 8, hidden: 16, sequence: 6 };

describe.skipIf(emulatorMissing)('a function whose operators the GPU process has timed', () => {
  it('runs by the plans that are made of it, with the memory that they predict', async () => {
    const example = await exampleOf(folder, 'lstm', architecture('lstm', settings), [noise('input', [2, 6, 8], 1)], 3);
    const { modelPath, inputs, expected } = example;
    const spec = { key: 'f@1', modelPath, shapes: shaped({ input: [2, 6, 8] }), hybrid: { cells: 3 } };
    const coverage = await client.register(spec);
    if (!coverage.covered) throw new Error('the engine has all of it');
    const profile = parseGraphProfile(await client.measureOperators('f@1', { gpu: 0, iterations: 2 }));
    expect(profile.nodes.filter(({ shares }) => shares !== undefined).length).toBeGreaterThanOrEqual(9);
    // What an emulated GPU is measured to take would leave everything to the CPU.
    const nodes = profile.nodes.map((node) => ({ ...node, gpu: 0.05, cpu: [0.06, 0.07] }));
    const planned = { ...profile, nodes, latency: 0.01, callMs: 0.02 };
    const plans = [
      planChrion(planned, { alpha: 0 }),
      planChrion(planned, { alpha: 1000 }),
      planMemoryOptimal(planned, { latencyLimitMs: 100 }),
    ];
    for (const [index, plan] of plans.entries()) {
      const promise = await client.addPlan('f@1', hybridPlanOf(plan!, `plan ${index}`));
      expect(promise.weightBytes).toBe(plan!.gpuBytes);
      const options = { gpu: 0, plan: loading(coverage.layers, promise.layers), rung: promise.plan };
      const { outputs } = await client.run('f@1', inputs, options);
      for (const [at, output] of outputs.entries()) expect(relativeError(output, expected[at]!)).toBeLessThan(1e-4);
    }
  });

  it('is timed on as many cores as the process has and no more', async () => {
    const example = await exampleOf(folder, 'gru', architecture('gru', settings), [noise('input', [2, 6, 8], 1)]);
    const { modelPath } = example;
    await client.register({ key: 'g@1', modelPath, shapes: shaped({ input: [2, 6, 8] }), hybrid: { cells: 1 } });
    const { nodes } = await client.measureOperators('g@1', { gpu: 0, cores: 1, iterations: 1 });
    expect(nodes.every(({ cpu }) => cpu.length === 1)).toBe(true);
    await expect(client.measureOperators('g@1', { gpu: 0, cores: 3 })).rejects.toThrow(
      'operators cannot be timed on 3 cores: the GPU process has 2 for plans over GPU and CPU',
    );
    await expect(client.measureOperators('none', { gpu: 0 })).rejects.toMatchObject({ code: 'unknown-function' });
  });
});
