/** Whole models on the engine: tiny versions of all architectures, in all modes, agree with ONNX Runtime on the CPU. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { withCoding } from '../../../src/gpu/program/coded.ts';
import { compileModel } from '../../../src/gpu/program/index.ts';
import { buildArchitecture, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { bertExport, gpt2Export, vitExport } from '../../support/pytorch-exports.ts';
import { relativeError, runOnnxRuntime } from '../../support/run-program.ts';
import { inHost } from '../../support/in-host.ts';
import { planFor, type PlanShape } from './chains.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-models-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const text = { layers: 2, hidden: 32, heads: 4, vocabulary: 50, positions: 40 };
const image = { image: 32, classes: 10 };
const recurrent = { layers: 2, hidden: 16, sequence: 5 };

const sized = (name: string, settings: Parameters<typeof buildArchitecture>[1]): [string, () => ModelProto] => [
  name,
  () => buildArchitecture(name, settings).model,
];

const models: readonly [string, () => ModelProto][] = [
  sized('bert-base', text),
  sized('roberta-base', text),
  sized('gpt2', text),
  sized('resnet50', { ...image, width: 8, blocks: [1, 1, 1, 1] }),
  sized('vgg16', { ...image, width: 4, hidden: 32 }),
  sized('inception-v3', { image: 75, classes: 10, width: 0.05 }),
  sized('mobilenet-v2', { ...image, width: 0.25 }),
  sized('lstm', recurrent),
  sized('gru', recurrent),
  ['BERT as PyTorch exports it', bertExport],
  ['GPT-2 as PyTorch exports it', gpt2Export],
  ['ViT as PyTorch exports it', vitExport],
];

/** Every third layer executes from host memory, embeddings and products alike. */
const fromHost = (layer: number): boolean => layer % 3 === 0;

const shapes: readonly PlanShape[] = [
  { mode: 'baseline' },
  { mode: 'pipeswitch' },
  { mode: 'dha', fromHost },
  { mode: 'pt', primary: 1, secondaries: [0] },
  { mode: 'pt', primary: 2, secondaries: [0, 1, 3] },
  { mode: 'pt+dha', secondaries: [2], fromHost },
  { mode: 'pt+dha', secondaries: [1, 2, 3], fromHost },
  { mode: 'interleave', secondaries: [3], fromHost },
  { mode: 'interleave', secondaries: [1, 2, 3], fromHost },
];

function inputFor(name: string, dims: readonly number[], isFloat: boolean): Tensor {
  const length = dims.reduce((product, size) => product * size, 1);
  if (isFloat)
    return tensorOf(
      name,
      'FP32',
      dims,
      Float32Array.from({ length }, (_, index) => Math.sin(index * 1.7)),
    );
  const at = (index: number): number => {
    if (/mask/.test(name)) return index < 4 ? 1 : 0;
    return /type/.test(name) ? index % 2 : (index * 7 + 3) % 50;
  };
  return tensorOf(
    name,
    'INT64',
    dims,
    BigInt64Array.from({ length }, (_, index) => BigInt(at(index))),
  );
}

/** Large enough that some layers gain by being coded. */
const wide: readonly [string, Parameters<typeof buildArchitecture>[1]][] = [
  ['bert-base', { ...text, hidden: 64 }],
  ['roberta-base', { ...text, hidden: 64 }],
  ['gpt2', { ...text, hidden: 64 }],
  ['resnet50', { ...image, width: 16, blocks: [1, 1, 1, 1] }],
  ['vgg16', { ...image, width: 8, hidden: 64 }],
  ['inception-v3', { image: 75, classes: 10, width: 0.1 }],
  ['mobilenet-v2', { ...image, width: 0.5 }],
  ['lstm', { ...recurrent, hidden: 48 }],
  ['gru', { ...recurrent, hidden: 48 }],
  ['mlp', { layers: 3, input: 64, hidden: 96, output: 32 }],
];

describe.skipIf(emulatorMissing)('on the emulated driver, with coded layers', () => {
  const use = sharedEmulatedCuda({ devices: 2 });
  const coded: readonly PlanShape[] = [
    { mode: 'baseline' },
    { mode: 'pipeswitch' },
    { mode: 'dha', fromHost },
    { mode: 'pt+dha', secondaries: [1], fromHost },
    { mode: 'interleave', secondaries: [1] },
  ];

  // Half weights have less to gain: of FP16 an eighth, of BF16 a third. Models have one of these in turns, and the next
  // one, which is often of the same kind, the other.
  const cases = wide.flatMap(([name, settings], place) =>
    (['exact', place % 2 === 0 ? 'fp16' : 'bf16'] as const).map((precision) => ({
      name,
      settings,
      precision,
      // Each model has every second plan, and the next one the others, as below. Chains of layers have all modes coded
      // (coded.test.ts).
      own: precision === 'exact' ? coded.filter((_, at) => at % 2 === place % 2) : [coded[3]!],
    })),
  );
  it.each(cases)('$name in $precision has the same bits as without, cold, partly resident and warm', async (each) => {
    const { name, settings, precision, own } = each;
    const { model } = buildArchitecture(name, settings);
    const path = join(folder, `coded-${name}.onnx`);
    await writeModel(model, path);
    const inputs = model.graph.input.map(({ name: input, type }) => {
      const dims = (type?.tensorType?.shape?.dim ?? []).map(({ dimValue }, axis) =>
        dimValue === undefined ? (axis === 0 ? 1 : 6) : Number(dimValue),
      );
      return inputFor(input, dims, type?.tensorType?.elemType === 1);
    });
    const order = { cacheFolder: join(folder, 'cache'), settings: { precision } };
    const program = await compileModel(path, shapesOf(inputs), operators, order);
    const layout = await withCoding(program.layout, folder, { leastBytes: 0 });
    const ofCoded = { ...program, layout };
    const codedLayers = layout.layers.filter((layer) => layer.coded !== undefined);
    expect(codedLayers.length).toBeGreaterThan(0);
    await use(async (cuda) => {
      const engine = new Engine(cuda, { hostBytes: 2 ** 26, slabBytes: 2 ** 20, gpuBytes: 2 ** 26 });
      engine.addFunction('plain', program.layout);
      engine.addFunction('coded', layout);
      for (const key of ['plain', 'coded']) await inHost(engine, key);
      const gpu = 0;
      const whole = planFor({ program }, { mode: 'pipeswitch' });
      const { outputs: expected } = await engine.run('plain', program, inputs, { gpu, plan: whole });
      // The modes differ in how layers come, not in what they hold.
      for (const shape of own) {
        const plan = planFor({ program: ofCoded }, shape);
        const loaded = plan.layers.filter(({ method }) => method === 'load').length;
        for (const kept of [0, Math.floor(loaded / 2), loaded]) {
          await engine.trim('coded', gpu, kept);
          const { outputs } = await engine.run('coded', ofCoded, inputs, { gpu, plan });
          for (const [at, { data }] of outputs.entries()) expect(Buffer.compare(data, expected[at]!.data)).toBe(0);
          // What the plan leaves in host memory does not stay on the GPU, though it was decoded there.
          expect(engine.residency('coded', gpu).layers).toHaveLength(loaded);
        }
        await engine.evict('coded', gpu);
      }
      expect(engine.layersRepaired).toBe(0);
      await engine.close();
    });
  });
});

describe.skipIf(emulatorMissing)('on the emulated driver', () => {
  const use = sharedEmulatedCuda({ devices: 4 });
  // Each model has every second plan; the next model, often of the same kind, has the others. Chains of layers have all
  // modes (modes.test.ts).
  const played = models.map(([name, build], place) => ({
    name,
    build,
    own: shapes.filter((_, at) => at % 2 === place % 2),
  }));

  it.each(played)(
    '$name agrees with ONNX Runtime in every second mode, on 1 to 4 GPUs',
    async ({ name, build, own }) => {
      const model = build();
      const path = join(folder, `${name.replaceAll(/\W+/g, '-')}.onnx`);
      await writeModel(model, path);
      const inputs = model.graph.input.map(({ name: input, type }) => {
        const dims = (type?.tensorType?.shape?.dim ?? []).map(({ dimValue }, axis) =>
          dimValue === undefined ? (axis === 0 ? 1 : 6) : Number(dimValue),
        );
        return inputFor(input, dims, type?.tensorType?.elemType === 1);
      });
      const inputShapes = shapesOf(inputs);
      const program = await compileModel(path, inputShapes, operators, { cacheFolder: join(folder, 'cache') });
      const [expected] = await runOnnxRuntime(path, inputs);
      await use(async (cuda) => {
        const engine = new Engine(cuda, { hostBytes: 2 ** 25, slabBytes: 2 ** 20, gpuBytes: 2 ** 26 });
        engine.addFunction(name, program.layout);
        await engine.stage(name);
        const run = async (shape: PlanShape) => {
          const plan = planFor({ program }, shape);
          const result = await engine.run(name, program, inputs, { gpu: plan.primary, plan });
          const output = result.outputs.find((each) => each.name === expected!.name)!;
          expect(relativeError(output, expected!), `${shape.mode}, ${result.start}`).toBeLessThan(1e-4);
          return result;
        };
        for (const shape of own) {
          const { primary = 0 } = shape;
          await engine.evict(name, primary);
          expect((await run(shape)).start).toBe('cold');
          expect((await run(shape)).start).toBe('warm');
          const loaded = engine.residency(name, primary).layers.length;
          const kept = Math.floor(loaded / 2);
          await engine.trim(name, primary, kept);
          expect((await run(shape)).start).toBe(kept === 0 ? 'cold' : 'partial');
        }
        await engine.close();
      });
    },
  );
});
