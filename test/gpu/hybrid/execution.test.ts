/** Functions divided between emulated GPUs and worker threads, by plans of every kind, against ONNX Runtime. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { compileHybrid } from '../../../src/gpu/hybrid/compile.ts';
import { CpuCores } from '../../../src/gpu/hybrid/cpu-cores.ts';
import { openHybrid } from '../../../src/gpu/hybrid/open.ts';
import { livingNodes } from '../../../src/gpu/program/prepared.ts';
import type { HybridPlan } from '../../../src/gpu/hybrid/types.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { defaultSettings } from '../../../src/gpu/program/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { relativeError } from '../../support/run-program.ts';
import { exampleOf, loading, noise } from './examples.ts';
import { randomOf, randomPlan } from './random-plans.ts';
import { unrolledNetwork } from '../../support/unrolled-networks.ts';

let folder: string;
let cores: CpuCores;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-hybrid-'));
  cores = new CpuCores({ count: 3 });
});
afterAll(async () => {
  await cores.close();
  await rm(folder, { recursive: true, force: true });
});

const recurrent = { layers: 3, input: 8, hidden: 16, sequence: 5 };

describe.skipIf(emulatorMissing)('a function over a GPU and cores', () => {
  it('a function over a GPU and cores gives the answers of ONNX Runtime under random plans, cold and warm, and takes the promised bytes', async () => {
    const examples = await Promise.all([
      exampleOf(folder, 'lstm', unrolledNetwork('lstm', recurrent), [noise('input', [2, 5, 8], 1)]),
      exampleOf(folder, 'gru', unrolledNetwork('gru', recurrent), [noise('input', [2, 5, 8], 2)]),
      exampleOf(folder, 'lstm-primitive', unrolledNetwork('lstm', { ...recurrent, layers: 2 }, 'primitive'), [
        noise('input', [2, 5, 8], 3),
      ]),
    ]);
    const seed = Number(process.env['TURNTABLE_SEED'] ?? 20261121);
    console.log(`seed ${seed}`);
    const random = randomOf(seed);
    for (const [number, { prepared, inputs, expected }] of examples.entries()) {
      await withEmulatedCuda({ devices: 1, seed: seed + number }, async (cuda) => {
        const engine = new Engine(cuda, { hostBytes: 2 ** 24, slabBytes: 2 ** 20, gpuBytes: 2 ** 22 });
        for (let round = 0; round < 8; round++) {
          const plan = randomPlan(prepared, random, {
            id: `plan-${round}`,
            cores: 3,
            cpuShare: [0, 0.1, 0.3, 0.5, 0.7, 0.9, 1, 0.5][round]!,
          });
          const hybrid = await compileHybrid(prepared, plan, operators, defaultSettings, join(folder, 'cache'));
          const key = `function-${round}`;
          engine.addFunction(key, hybrid.layout);
          await engine.stage(key);
          const open = await openHybrid(engine, key, hybrid, cores);
          const options = { gpu: 0, plan: loading(prepared.base.layers, hybrid.promise.layers) };
          for (const start of ['cold', 'warm', 'warm'] as const) {
            const result = await open.run(inputs, options);
            expect(result.outputs.map(({ name }) => name)).toEqual(prepared.outputs);
            for (const [index, output] of result.outputs.entries()) {
              expect(relativeError(output, expected[index]!)).toBeLessThan(1e-4);
            }
            // With nothing to load every start is a warm one.
            expect(result.start).toBe(hybrid.promise.weightBytes > 0 ? start : 'warm');
          }
          expect(engine.residency(key, 0).bytes).toBe(hybrid.promise.weightBytes);
          expect(engine.residency(key, 0).layers).toEqual(hybrid.promise.layers);
          await open.close();
          await engine.removeFunction(key);
          expect(engine.memory()[0]!.weightBytes + engine.memory()[0]!.constantBytes).toBe(0);
        }
        await engine.close();
      });
    }
  });

  it('a function over a GPU and cores with a cycle between GPU and CPU is refused with the operators in it', async () => {
    const { prepared } = await exampleOf(folder, 'lstm', unrolledNetwork('lstm', recurrent), [
      noise('input', [2, 5, 8], 1),
    ]);
    const order = livingNodes(prepared).map(({ name }) => name);
    const recurrentNodes = livingNodes(prepared).flatMap(({ name, proto }) => (proto.opType === 'LSTM' ? [name] : []));
    const compile = (plan: HybridPlan) =>
      compileHybrid(prepared, plan, operators, defaultSettings, join(folder, 'cache'));
    const [first = '', second = '', third = ''] = recurrentNodes;
    await expect(compile({ id: 'a', order, segments: [{ core: 1, operators: [first, third] }] })).rejects.toThrow(
      /plan 'a' cannot be carried out: .* waits for/,
    );
    await expect(
      compile({
        id: 'b',
        order,
        segments: [
          { core: 1, operators: [first, third] },
          { core: 2, operators: [second] },
        ],
      }),
    ).rejects.toThrow(/plan 'b' cannot be carried out/);
    await expect(compile({ id: 'c', order: order.slice(1), segments: [] })).rejects.toThrow(/is not in its order/);
    await expect(compile({ id: 'd', order: order.toReversed(), segments: [] })).rejects.toThrow(/stands before/);
    await expect(compile({ id: 'e', order, segments: [{ core: 0, operators: [first] }] })).rejects.toThrow(
      /cores count from 1/,
    );
    await expect(compile({ id: 'f', order, segments: [{ core: 1, operators: ['nobody'] }] })).rejects.toThrow(
      "it places 'nobody', which is no operator of the function",
    );
  });
});
