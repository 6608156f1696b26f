/** Programs agree with ONNX Runtime: tiny versions of all architectures, and models as PyTorch exports them. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Cuda } from '../../../src/gpu/driver/types.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel, type ProgramSettings } from '../../../src/gpu/program/index.ts';
import { buildArchitecture, ElementType, GraphBuilder, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { singlesToFp16, tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import {
  bertExport,
  gpt2Export,
  lstmExport,
  mobilenetExport,
  rotaryExport,
  vitExport,
} from '../../support/pytorch-exports.ts';
import { relativeError, runOnnxRuntime, runProgram } from '../../support/run-program.ts';
import { shaped } from '../../support/shapes.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-agreement-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const count = (shape: readonly number[]): number => shape.reduce((product, size) => product * size, 1);

const tokens = (name: string, shape: readonly number[], at: (index: number) => number): Tensor =>
  tensorOf(
    name,
    'INT64',
    shape,
    BigInt64Array.from({ length: count(shape) }, (_, index) => BigInt(at(index))),
  );
const floats = (name: string, shape: readonly number[]): Tensor =>
  tensorOf(
    name,
    'FP32',
    shape,
    Float32Array.from({ length: count(shape) }, (_, index) => Math.sin(index * 1.7)),
  );

const ids = (shape: readonly number[]): Tensor => tokens('input_ids', shape, (index) => (index * 7 + 3) % 50);
/** The last third of each sequence is padding. */
const mask = (shape: readonly number[]): Tensor =>
  tokens('attention_mask', shape, (index) => Number(index % shape[1]! < (shape[1]! * 2) / 3));

interface Case {
  readonly name: string;
  readonly model: () => ModelProto;
  readonly inputs: readonly Tensor[];
  /** Inputs of another shape, compared as well. */
  readonly more?: readonly Tensor[];
}

const text = { layers: 2, hidden: 32, heads: 4, vocabulary: 50, positions: 40 };
const image = { image: 32, classes: 10 };
const architecture = (name: string, settings: Parameters<typeof buildArchitecture>[1]) => () =>
  buildArchitecture(name, settings).model;

const cases: readonly Case[] = [
  {
    name: 'BERT as exported, dynamic axes and shared weights',
    model: bertExport,
    inputs: [ids([2, 6]), mask([2, 6])],
    more: [ids([1, 9]), mask([1, 9])],
  },
  { name: 'BERT as exported, with sdpa', model: () => bertExport({ sdpa: true }), inputs: [ids([1, 6]), mask([1, 6])] },
  { name: 'GPT-2 as exported', model: gpt2Export, inputs: [ids([2, 5])], more: [ids([1, 20])] },
  { name: 'ViT as exported', model: vitExport, inputs: [floats('pixel_values', [2, 3, 16, 16])] },
  {
    name: 'MobileNet-v2 as exported',
    model: mobilenetExport,
    inputs: [floats('input', [2, 3, 16, 16])],
    more: [floats('input', [1, 3, 16, 16])],
  },
  {
    name: 'rotary attention, each product of which reads its own view of the input',
    model: rotaryExport,
    inputs: [floats('input', [1, 6, 16]), tokens('positions', [1, 6], (index) => index)],
    more: [floats('input', [3, 6, 16]), tokens('positions', [3, 6], (index) => 17 - index)],
  },
  {
    name: 'LSTM as exported, two directions',
    model: lstmExport,
    inputs: [floats('input', [2, 5, 8])],
    more: [floats('input', [1, 3, 8])],
  },
  {
    name: 'bert-base',
    model: architecture('bert-base', text),
    inputs: [ids([1, 7]), mask([1, 7]), tokens('token_type_ids', [1, 7], (index) => index % 2)],
    more: [ids([2, 20]), mask([2, 20]), tokens('token_type_ids', [2, 20], (index) => index % 2)],
  },
  { name: 'roberta-base', model: architecture('roberta-base', text), inputs: [ids([1, 6]), mask([1, 6])] },
  { name: 'gpt2', model: architecture('gpt2', text), inputs: [ids([1, 6])], more: [ids([2, 36])] },
  {
    name: 'resnet50',
    model: architecture('resnet50', { ...image, width: 8, blocks: [1, 1, 1, 1] }),
    inputs: [floats('pixel_values', [1, 3, 32, 32])],
    more: [floats('pixel_values', [2, 3, 32, 32])],
  },
  {
    name: 'vgg16',
    model: architecture('vgg16', { ...image, width: 4, hidden: 32 }),
    inputs: [floats('pixel_values', [1, 3, 32, 32])],
  },
  {
    name: 'inception-v3',
    model: architecture('inception-v3', { image: 75, classes: 10, width: 0.05 }),
    inputs: [floats('pixel_values', [1, 3, 75, 75])],
  },
  {
    name: 'mobilenet-v2',
    model: architecture('mobilenet-v2', { ...image, width: 0.25 }),
    inputs: [floats('pixel_values', [1, 3, 32, 32])],
  },
  {
    name: 'lstm',
    model: architecture('lstm', { layers: 2, hidden: 16, sequence: 5 }),
    inputs: [],
  },
  { name: 'gru', model: architecture('gru', { layers: 2, hidden: 16, sequence: 5 }), inputs: [] },
];

/** Two layers with 16-bit tensors only, as in a model that was converted to half precision. */
function halfModel(): ModelProto {
  const graph = new GraphBuilder('half');
  const half = (name: string, shape: readonly number[], scale: number): string => {
    const values = Uint32Array.from(
      Float32Array.from({ length: count(shape) }, (_, index) => Math.sin(index * 0.37) * scale),
      (value) => new Uint32Array(Float32Array.of(value).buffer)[0]!,
    );
    const bits = new Uint16Array(values.length);
    singlesToFp16(values, bits);
    return graph.initializer(tensorOf(name, 'FP16', shape, bits));
  };
  const x = graph.input('x', ElementType.FLOAT16, ['batch', 16]);
  const first = graph.node('Add', [graph.node('MatMul', [x, half('w1', [16, 32], 0.3)]), half('b1', [32], 0.1)]);
  const normed = graph.node('LayerNormalization', [
    graph.node('Relu', [first]),
    half('s', [32], 1),
    half('b', [32], 1),
  ]);
  const second = graph.node('MatMul', [normed, half('w2', [32, 8], 0.3)]);
  graph.output(graph.node('Softmax', [second]), ElementType.FLOAT16, ['batch', 8], 'y');
  return graph.build();
}

/** The case's inputs with the model's names, and random ones for those that the case does not give. */
function inputsOf(model: ModelProto, given: readonly Tensor[]): readonly Tensor[] {
  const named = model.graph.input.map(({ name, type }, index) => {
    const dims = type?.tensorType?.shape?.dim ?? [];
    const shape = dims.map(({ dimValue }) => (dimValue === undefined ? 1 : Number(dimValue)));
    return given[index] === undefined ? floats(name, shape) : { ...given[index], name };
  });
  return named;
}

async function errors(
  cuda: Cuda,
  path: string,
  inputs: readonly Tensor[],
  options: { readonly fusion?: boolean; readonly settings?: ProgramSettings } = {},
): Promise<number[]> {
  const shapes = shapesOf(inputs);
  const program = await compileModel(path, shapes, operators, { cacheFolder: join(folder, 'cache'), ...options });
  const expected = await runOnnxRuntime(path, inputs);
  const actual = await runProgram(cuda, program, inputs);
  return expected.map((wanted) =>
    relativeError(
      actual.find(({ name }) => name === wanted.name)!,
      wanted,
    ),
  );
}

describe.skipIf(emulatorMissing)('on the emulated driver', () => {
  const numbered = cases.map((one, index) => [one.name, one, index] as const);
  test.each(numbered)('%s agrees with ONNX Runtime', async (name, { model: build, inputs, more }, index) => {
    const model = build();
    const path = join(folder, `${name.replaceAll(/\W+/g, '-')}.onnx`);
    await writeModel(model, path);
    await withEmulatedCuda({}, async (cuda) => {
      const others = inputsOf(model, more ?? inputs);
      const exact = await errors(cuda, path, inputsOf(model, inputs));
      if (more !== undefined) {
        exact.push(...(await errors(cuda, path, others)), ...(await errors(cuda, path, others, { fusion: false })));
      }
      for (const error of exact) expect(error).toBeLessThan(1e-5);
      // In turns: test/gpu/dense and test/gpu/spec/precision.test.ts test every operator in both.
      const precision = index % 2 === 0 ? 'fp16' : 'bf16';
      // Mantissas of eleven and eight bits, through two layers.
      const limit = precision === 'fp16' ? 5e-3 : 4e-2;
      for (const error of await errors(cuda, path, others, { settings: { precision } }))
        expect(error).toBeLessThan(limit);
    });
  });

  test('a model of half precision agrees, and is not computed in 32 bits', async () => {
    const path = join(folder, 'half.onnx');
    await writeModel(halfModel(), path);
    const values = floats('x', [3, 16]);
    const bits = new Uint16Array(48);
    singlesToFp16(new Uint32Array(values.data.buffer), bits);
    const inputs = [tensorOf('x', 'FP16', [3, 16], bits)];
    const program = await compileModel(path, shaped({ x: [3, 16] }), operators, { cacheFolder: join(folder, 'cache') });
    expect(program.launches.filter(({ label }) => label.includes('Cast'))).toEqual([]);
    await withEmulatedCuda({}, async (cuda) => {
      for (const error of await errors(cuda, path, inputs)) expect(error).toBeLessThan(3e-3);
    });
  });
});
