/** Models at full size on this machine's GPU: `npm run test:gpu`. Skipped unless TURNTABLE_TEST_GPU is 1. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openCuda } from '../../../src/gpu/driver/open.ts';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { sampleInput } from '../../../src/gpu/measure/inputs.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel } from '../../../src/gpu/program/index.ts';
import { writeModel } from '../../../src/onnx/index.ts';
import { namedModel } from '../../../src/profile/index.ts';
import type { Tensor } from '../../../src/tensor/index.ts';
import { relativeError, runOnnxRuntime } from '../../support/run-program.ts';
import { planFor, type PlanShape } from '../engine/chains.ts';

const isHere = process.env['TURNTABLE_TEST_GPU'] === '1';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-real-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const names = ['bert-base', 'roberta-base', 'gpt2', 'resnet50', 'vgg16', 'inception-v3', 'mobilenet-v2', 'lstm', 'gru'];

describe.skipIf(!isHere)('on the GPU of this machine', () => {
  it.each(names)('%s at full size agrees with ONNX Runtime, and everything is freed', async (name) => {
    const { model, dimensions } = namedModel(name);
    const path = join(folder, `${name}.onnx`);
    await writeModel(model, path);
    const shapes = model.graph.input.map(({ name: input, type }) => ({
      name: input,
      shape: (type?.tensorType?.shape?.dim ?? []).map(({ dimValue, dimParam }) =>
        dimValue === undefined ? (dimensions[dimParam ?? ''] ?? 1) : Number(dimValue),
      ),
    }));
    const program = await compileModel(path, shapes, operators, { cacheFolder: join(folder, 'cache') });
    const inputs = program.inputs.map((tensor): Tensor => ({
      name: tensor.name,
      datatype: tensor.datatype,
      shape: tensor.shape,
      data: sampleInput(program.layout, tensor, program.inputs),
    }));
    const [expected] = await runOnnxRuntime(path, inputs);
    const cuda = openCuda({ cacheFolder: join(folder, 'kernels') });
    try {
      const engine = new Engine(cuda, { hostBytes: 4 * 2 ** 30, gpuBytes: 8 * 2 ** 30 });
      engine.addFunction(name, program.layout);
      await engine.stage(name);
      const isEmbedding = (layer: number): boolean => program.layout.layers[layer]!.kind === 'embedding';
      const plans: readonly PlanShape[] = [
        { mode: 'baseline' },
        { mode: 'pipeswitch' },
        { mode: 'dha', fromHost: isEmbedding },
        // Products from host memory too.
        { mode: 'dha', fromHost: (layer) => layer % 7 === 3 },
      ];
      for (const shape of plans) {
        await engine.evict(name, 0);
        for (const start of ['cold', 'warm', 'warm', 'warm', 'partial']) {
          if (start === 'partial') await engine.trim(name, 0, Math.ceil(engine.residency(name, 0).layers.length / 2));
          const result = await engine.run(name, program, inputs, { gpu: 0, plan: planFor({ program }, shape) });
          const output = result.outputs.find((each) => each.name === expected!.name)!;
          expect(relativeError(output, expected!), `${shape.mode} ${start}`).toBeLessThan(1e-3);
        }
      }
      await engine.close();
      expect(Object.entries(cuda.counts()).filter(([, count]) => count !== 0)).toEqual([]);
    } finally {
      cuda.release();
    }
  });
});
