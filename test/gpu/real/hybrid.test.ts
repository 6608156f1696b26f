/** Functions over this machine's GPU and cores: `npm run test:gpu`. Skipped unless TURNTABLE_TEST_GPU is 1. */
import { mkdtemp, rm } from 'node:fs/promises';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openCuda } from '../../../src/gpu/driver/open.ts';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { compileHybrid } from '../../../src/gpu/hybrid/compile.ts';
import { CpuCores } from '../../../src/gpu/hybrid/cpu-cores.ts';
import { openHybrid } from '../../../src/gpu/hybrid/open.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { defaultSettings } from '../../../src/gpu/program/index.ts';
import { architecture, exampleOf, loading, noise } from '../hybrid/examples.ts';
import { randomOf, randomPlan } from '../hybrid/random-plans.ts';
import { relativeError } from '../../support/run-program.ts';

const isHere = process.env['TURNTABLE_TEST_GPU'] === '1';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-real-hybrid-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

describe.skipIf(!isHere)('over the GPU and the cores of this machine', () => {
  it.each(['lstm', 'gru'])(
    "%s as large as the Chrion paper's baseline agrees with ONNX Runtime under random plans, cold and warm",
    async (name) => {
      const model = architecture(name, { layers: 12, input: 64, hidden: 64, sequence: 96 });
      const inputs = [noise('input', [8, 96, 64], 1)];
      const { prepared, expected } = await exampleOf(folder, name, model, inputs, 12);
      const random = randomOf(20261121);
      const count = Math.max(1, Math.min(4, availableParallelism() - 1));
      const cores = new CpuCores({ count });
      const cuda = openCuda({ cacheFolder: join(folder, 'kernels') });
      try {
        const engine = new Engine(cuda, { hostBytes: 2 ** 28, slabBytes: 2 ** 24, gpuBytes: 2 ** 29 });
        for (const [round, cpuShare] of [0, 0.2, 0.5, 0.8].entries()) {
          const plan = randomPlan(prepared, random, { id: `plan-${round}`, cores: count, cpuShare });
          const hybrid = await compileHybrid(prepared, plan, operators, defaultSettings, join(folder, 'cache'));
          engine.addFunction(plan.id, hybrid.layout);
          await engine.stage(plan.id);
          const open = await openHybrid(engine, plan.id, hybrid, cores);
          for (let start = 0; start < 4; start++) {
            const { outputs } = await open.run(inputs, {
              gpu: 0,
              plan: loading(prepared.base.layers, hybrid.promise.layers),
            });
            for (const [index, output] of outputs.entries()) {
              expect(relativeError(output, expected[index]!)).toBeLessThan(1e-3);
            }
          }
          expect(engine.residency(plan.id, 0).bytes).toBe(hybrid.promise.weightBytes);
          await open.close();
          await engine.removeFunction(plan.id);
        }
        await engine.close();
        expect(Object.entries(cuda.counts()).filter(([, left]) => left !== 0)).toEqual([]);
      } finally {
        await cores.close();
        cuda.release();
      }
    },
  );
});
