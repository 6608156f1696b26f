/** Whole models of quantised and of opset-23 operators are covered and agree with ONNX Runtime. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ElementType, GraphBuilder, writeModel, type ModelProto } from '../../../src/onnx/index.ts';
import { elements, type DataType, type Tensor } from '../../../src/tensor/index.ts';
import { filled, tensor } from '../../support/operator-cases/case.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import { relativeError, runModel, runOnnxRuntime } from '../../support/run-program.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-quantized-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

let made = 0;
const weight = (graph: GraphBuilder, datatype: DataType, shape: readonly number[], scale = 1): string =>
  graph.initializer({ ...filled(datatype, shape, made, scale), name: `w${made++}` });
const constant = (graph: GraphBuilder, datatype: DataType, shape: readonly number[], ...values: number[]): string =>
  graph.initializer({ ...tensor(datatype, shape, values), name: `c${made++}` });
const one = (graph: GraphBuilder, op: string, inputs: readonly string[], attributes = {}): string =>
  graph.node(op, inputs, attributes);

/** A linear layer after `quantize_dynamic`: its input is quantised at run time. */
function dynamicLayer(graph: GraphBuilder, x: string, inputs: number, outputs: number): string {
  const [y, scale, zero] = graph.node(
    'DynamicQuantizeLinear',
    [x],
    {},
    { outputs: [`q${made++}`, `s${made++}`, `z${made++}`] },
  );
  const product = one(graph, 'MatMulInteger', [
    y,
    weight(graph, 'INT8', [inputs, outputs]),
    zero,
    constant(graph, 'INT8', [], 0),
  ]);
  const factor = one(graph, 'Mul', [scale, constant(graph, 'FP32', [], 0.01)]);
  const floats = one(graph, 'Mul', [one(graph, 'Cast', [product], { to: ElementType.FLOAT }), factor]);
  return one(graph, 'Add', [floats, weight(graph, 'FP32', [outputs])]);
}

function finished(graph: GraphBuilder, y: string): ModelProto {
  graph.output(y, ElementType.FLOAT, []);
  const model = graph.build();
  const output = model.graph.output.map(({ name }) => ({
    name,
    type: { tensorType: { elemType: ElementType.FLOAT } },
  }));
  return { ...model, irVersion: 10n, graph: { ...model.graph, output } };
}

function dynamicModel(): ModelProto {
  const graph = new GraphBuilder('dynamic', { opset: 17 });
  const x = graph.input('x', ElementType.FLOAT, ['batch', 16]);
  const hidden = one(graph, 'Relu', [dynamicLayer(graph, x, 16, 24)]);
  return finished(graph, dynamicLayer(graph, hidden, 24, 8));
}

/** QuantizeLinear and DequantizeLinear between all operators, with weights by channel. */
function qdqModel(): ModelProto {
  const graph = new GraphBuilder('qdq', { opset: 17 });
  const x = graph.input('x', ElementType.FLOAT, ['batch', 3, 8, 8]);
  const through = (value: string): string => {
    const [scale, zero] = [constant(graph, 'FP32', [], 0.05), constant(graph, 'UINT8', [], 110)];
    return one(graph, 'DequantizeLinear', [one(graph, 'QuantizeLinear', [value, scale, zero]), scale, zero]);
  };
  const weights = one(
    graph,
    'DequantizeLinear',
    [
      weight(graph, 'INT8', [4, 3, 3, 3]),
      constant(graph, 'FP32', [4], 0.01, 0.02, 0.015, 0.03),
      constant(graph, 'INT8', [4], 0, 0, 0, 0),
    ],
    { axis: 0 },
  );
  const bias = one(
    graph,
    'DequantizeLinear',
    [weight(graph, 'INT32', [4], 20), constant(graph, 'FP32', [4], 0.001, 0.001, 0.002, 0.001)],
    { axis: 0 },
  );
  const image = one(graph, 'Relu', [one(graph, 'Conv', [through(x), weights, bias], { pads: [1, 1, 1, 1] })]);
  const pooled = one(graph, 'GlobalAveragePool', [through(image)]);
  const flat = one(graph, 'Flatten', [through(pooled)]);
  const matrix = one(graph, 'DequantizeLinear', [weight(graph, 'INT8', [4, 5]), constant(graph, 'FP32', [], 0.02)]);
  return finished(graph, through(one(graph, 'MatMul', [flat, matrix])));
}

/** Quantised operators (QLinearConv and so on). */
function qOperatorModel(): ModelProto {
  const graph = new GraphBuilder('qoperator', { opset: 17 });
  const x = graph.input('x', ElementType.FLOAT, ['batch', 3, 8, 8]);
  const scale = (): string => constant(graph, 'FP32', [], 0.05);
  const zero = (): string => constant(graph, 'UINT8', [], 110);
  const quantized = one(graph, 'QuantizeLinear', [x, scale(), zero()]);
  const conv = one(
    graph,
    'QLinearConv',
    [
      quantized,
      scale(),
      zero(),
      weight(graph, 'INT8', [4, 3, 3, 3]),
      constant(graph, 'FP32', [4], 0.01, 0.02, 0.015, 0.03),
      constant(graph, 'INT8', [4], 0, 0, 0, 0),
      scale(),
      zero(),
      weight(graph, 'INT32', [4], 20),
    ],
    { pads: [1, 1, 1, 1], strides: [2, 2] },
  );
  const flat = one(graph, 'Flatten', [conv]);
  const product = one(graph, 'QLinearMatMul', [
    flat,
    scale(),
    zero(),
    weight(graph, 'INT8', [64, 5]),
    constant(graph, 'FP32', [], 0.02),
    constant(graph, 'INT8', [], 0),
    constant(graph, 'FP32', [], 0.3),
    zero(),
  ]);
  return finished(graph, one(graph, 'DequantizeLinear', [product, constant(graph, 'FP32', [], 0.3), zero()]));
}

/** A decoder layer in opset 23: RMSNormalization, RotaryEmbedding, Attention with grouped heads. */
function decoderModel(): ModelProto {
  const graph = new GraphBuilder('decoder', { opset: 23 });
  const x = graph.input('x', ElementType.FLOAT, ['batch', 'sequence', 32]);
  const positions = graph.input('positions', ElementType.INT64, ['batch', 'sequence']);
  const normal = one(graph, 'RMSNormalization', [x, weight(graph, 'FP32', [32])], { axis: -1 });
  const project = (width: number): string => one(graph, 'MatMul', [normal, weight(graph, 'FP32', [32, width], 0.3)]);
  const [cos, sin] = [weight(graph, 'FP32', [16, 4]), weight(graph, 'FP32', [16, 4])];
  const turned = (value: string, heads: number): string =>
    one(graph, 'RotaryEmbedding', [value, cos, sin, positions], { num_heads: heads });
  const attended = one(graph, 'Attention', [turned(project(32), 4), turned(project(16), 2), project(16)], {
    q_num_heads: 4,
    kv_num_heads: 2,
    is_causal: 1,
  });
  const joined = one(graph, 'Add', [x, one(graph, 'MatMul', [attended, weight(graph, 'FP32', [32, 32], 0.3)])]);
  return finished(graph, one(graph, 'Gelu', [joined], { approximate: 'tanh' }));
}

const floats = (shape: readonly number[], seed: number): Tensor => ({ ...filled('FP32', shape, seed), name: 'x' });
const places: Tensor = { ...tensor('INT64', [2, 5], [0, 1, 2, 3, 4, 3, 4, 5, 6, 7]), name: 'positions' };

const models: readonly (readonly [string, () => ModelProto, readonly Tensor[], step: number])[] = [
  ['linear layers of dynamic quantisation', dynamicModel, [floats([3, 16], 1)], 0],
  ['a QDQ network', qdqModel, [floats([2, 3, 8, 8], 2)], 0.05],
  ['a network of quantised operators', qOperatorModel, [floats([2, 3, 8, 8], 3)], 0.3],
  ['a decoder layer of opset 23', decoderModel, [floats([2, 5, 32], 4), places], 0],
];

/** The largest difference between two tensors. */
function farthest(a: Tensor, b: Tensor): number {
  const [found, wanted] = [a, b].map((each) => Array.from(elements(each) as Iterable<number>));
  return Math.max(...found!.map((value, place) => Math.abs(value - wanted![place]!)));
}

for (const [name, build, inputs, step] of models) {
  test.skipIf(emulatorMissing)(`${name} is covered and agrees with ONNX Runtime`, async () => {
    const path = join(folder, `${name.replaceAll(' ', '-')}.onnx`);
    await writeModel(build(), path);
    const [expected] = await runOnnxRuntime(path, inputs);
    const [actual] = await withEmulatedCuda({}, (cuda) => runModel(cuda, path, inputs, { cacheFolder: folder }));
    expect(actual!.shape).toEqual(expected!.shape);
    expect(new Set(elements(expected!) as Iterable<number>).size).toBeGreaterThan(3);
    // One quantisation step, since sums in another order may round to the next value.
    const error = step > 0 ? farthest(actual!, expected!) / step : relativeError(actual!, expected!);
    expect(error).toBeLessThan(step > 0 ? 1.01 : 1e-4);
  });
}
