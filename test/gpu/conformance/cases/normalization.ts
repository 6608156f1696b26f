/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { GraphBuilder } from '../../../../src/onnx/index.ts';
import type { DataType } from '../../../../src/tensor/index.ts';
import { conformanceCase, filled, given, tensor, type Case, type CaseInput } from '../case.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1): CaseInput =>
  given(filled(datatype, shape, seed));
/** Positive values, for variances. */
const positive = (shape: readonly number[]): CaseInput => {
  const values = Array.from(new Float32Array(filled('FP32', shape, 5).data.buffer), (value) => Math.abs(value) + 0.2);
  return given(tensor('FP32', shape, values));
};
const someFloats: readonly DataType[] = ['FP16', 'BF16', 'FP64'];

const softmaxes: readonly Case[] = ['Softmax', 'LogSoftmax'].flatMap((operator) => [
  conformanceCase(operator, 'short rows', [x([5, 3])]),
  conformanceCase(operator, 'warps', [x([5, 40])]),
  conformanceCase(operator, 'blocks', [x([3, 700])]),
  conformanceCase(operator, 'long rows, read again', [x([1, 33_000])], { tolerance: 1e-4 }),
  conformanceCase(operator, 'first axis', [x([6, 5])], { attributes: { axis: 0 } }),
  conformanceCase(operator, 'middle axis', [x([2, 40, 3])], { attributes: { axis: -2 } }),
  conformanceCase(operator, 'opset 11, axis 1 of 3', [x([2, 3, 4])], { opset: 11 }),
  conformanceCase(operator, 'opset 11, axis 2', [x([2, 3, 4])], { opset: 11, attributes: { axis: 2 } }),
  conformanceCase(operator, 'one column', [x([4, 1])]),
  conformanceCase(operator, 'empty', [x([0, 4])]),
  conformanceCase(operator, 'masked by infinity', [given(tensor('FP32', [2, 3], [1, -Infinity, 2, 0, 1, -Infinity]))]),
  conformanceCase(operator, 'large values', [given(tensor('FP32', [1, 3], [1000, 1001, 999]))]),
  ...someFloats.map((datatype) => conformanceCase(operator, datatype, [x([3, 20], datatype)])),
]);

interface Masked {
  readonly shape: readonly number[];
  readonly mask?: readonly number[];
  readonly scale?: number;
  readonly axis?: number;
  readonly datatype?: DataType;
}

function masked({ shape, mask, scale = 1, axis = -1, datatype = 'FP32' }: Masked): Case {
  return conformanceCase(
    'turntable.MaskedSoftmax',
    `mask [${mask?.join() ?? ''}], scale ${scale}`,
    [x(shape, datatype), ...(mask === undefined ? [] : [x(mask, datatype, 3)])],
    {
      attributes: { scale: { float: scale }, axis },
      reference: (graph, [input, addend]) => {
        const type = datatype === 'FP64' ? ('FP64' as const) : ('FP32' as const);
        const factor = graph.constant({ tensor: tensor(type, [], [Math.fround(scale)]) });
        const scaled = graph.node('Mul', [input!, factor]);
        const sum = addend === undefined ? scaled : graph.node('Add', [scaled, addend]);
        return [graph.node('Softmax', [sum], { axis })];
      },
    },
  );
}

const maskedSoftmaxes: readonly Case[] = [
  masked({ shape: [1, 2, 5, 5], mask: [1, 1, 1, 5], scale: 0.125 }),
  masked({ shape: [2, 3, 4, 40], mask: [2, 1, 4, 40], scale: 0.5 }),
  masked({ shape: [2, 6] }),
  masked({ shape: [3, 300], mask: [300] }),
  masked({ shape: [2, 5, 3], mask: [1, 5, 1], axis: 1, scale: 2 }),
  masked({ shape: [2, 20], mask: [], datatype: 'FP16', scale: 0.25 }),
];

/** LayerNormalization, or without a mean RMSNormalization, of the sum of several inputs, with all outputs. */
const normalized = (
  graph: GraphBuilder,
  addends: readonly string[],
  weights: readonly string[],
  attributes: { readonly axis: number; readonly epsilon: { readonly float: number } },
): { y: string; sum: string } => {
  const sum = addends.reduce((a, b) => graph.node('Add', [a, b]));
  return { sum, y: graph.node('LayerNormalization', [sum, ...weights], attributes) };
};

const layer = (shape: readonly number[], axis: number, datatype: DataType = 'FP32', bias = true): Case => {
  const weights = shape.slice(axis < 0 ? shape.length + axis : axis);
  return conformanceCase(
    'LayerNormalization',
    `[${shape.join(',')}] from ${axis}`,
    [x(shape, datatype), x(weights, datatype, 2), ...(bias ? [x(weights, datatype, 3)] : [])],
    { attributes: { axis, epsilon: { float: 1e-6 } } },
  );
};

function addNormalization(shape: readonly number[], other: readonly number[], addend: boolean, sum: boolean): Case {
  const width = shape.slice(-1);
  return conformanceCase(
    'turntable.AddLayerNormalization',
    `[${shape.join(',')}] and [${other.join(',')}]`,
    [x(shape), x(other, 'FP32', 4), x(width, 'FP32', 2), x(width, 'FP32', 3), ...(addend ? [x(width, 'FP32', 5)] : [])],
    {
      attributes: { axis: -1, epsilon: { float: 1e-5 } },
      outputs: ['FP32', sum ? 'FP32' : undefined],
      reference: (graph, [a, b, scale, bias, extra]) => {
        const addends = [a!, b!, ...(extra === undefined ? [] : [extra])];
        const made = normalized(graph, addends, [scale!, bias!], { axis: -1, epsilon: { float: 1e-5 } });
        return [made.y, made.sum];
      },
    },
  );
}

const rowNormalizations: readonly Case[] = [
  layer([3, 8], -1),
  layer([4, 3], -1),
  layer([2, 3, 40], 2),
  layer([2, 3, 4], 1),
  layer([3, 700], -1),
  layer([2, 5000], 1),
  layer([2, 9], -1, 'FP16'),
  layer([2, 40], -1, 'BF16'),
  layer([2, 40], -1, 'FP64'),
  layer([3, 8], -1, 'FP32', false),
  layer([0, 8], -1),
  conformanceCase(
    'LayerNormalization',
    'a large mean',
    [given(tensor('FP32', [1, 6], [1000, 1001, 1002, 1003, 1004, 1005])), x([6], 'FP32', 2), x([6], 'FP32', 3)],
    { tolerance: 1e-4 },
  ),
  conformanceCase('LayerNormalization', 'mean and inverse', [x([2, 3, 20]), x([20], 'FP32', 2), x([20], 'FP32', 3)], {
    outputs: ['FP32', 'FP32', 'FP32'],
  }),
  conformanceCase('LayerNormalization', 'the inverse alone', [x([4, 20]), x([20], 'FP32', 2), x([20], 'FP32', 3)], {
    outputs: ['FP32', undefined, 'FP32'],
  }),
  conformanceCase('RMSNormalization', 'rows', [x([3, 20]), x([20], 'FP32', 2)], {
    opset: 23,
    reference: rootMeanSquare,
  }),
  conformanceCase('RMSNormalization', 'from axis 1', [x([2, 3, 4]), x([3, 4], 'FP32', 2)], {
    attributes: { axis: 1 },
    opset: 23,
    reference: (graph, inputs) => rootMeanSquare(graph, inputs, [1, 2]),
  }),
  conformanceCase('SimplifiedLayerNormalization', 'rows', [x([3, 20]), x([20], 'FP32', 2)], {
    reference: rootMeanSquare,
  }),
  addNormalization([2, 4, 20], [2, 4, 20], false, true),
  addNormalization([2, 4, 20], [4, 20], true, false),
  addNormalization([3, 300], [3, 300], true, true),
  conformanceCase(
    'com.microsoft.SkipLayerNormalization',
    'with a bias',
    [x([2, 3, 20]), x([2, 3, 20], 'FP32', 4), x([20], 'FP32', 2), x([20], 'FP32', 3), x([20], 'FP32', 5)],
    { attributes: { epsilon: { float: 1e-5 } }, outputs: ['FP32', undefined, undefined, 'FP32'] },
  ),
  conformanceCase(
    'com.microsoft.SkipLayerNormalization',
    'without',
    [x([2, 3, 20]), x([2, 3, 20], 'FP32', 4), x([20], 'FP32', 2)],
    { attributes: { epsilon: { float: 1e-5 } } },
  ),
  conformanceCase(
    'com.microsoft.SkipSimplifiedLayerNormalization',
    'rows',
    [x([2, 3, 20]), x([2, 3, 20], 'FP32', 4), x([20], 'FP32', 2)],
    { attributes: { epsilon: { float: 1e-5 } } },
  ),
];

function rootMeanSquare(
  graph: GraphBuilder,
  [input, scale]: readonly string[],
  axes: readonly number[] = [-1],
): string[] {
  const squares = graph.node('Mul', [input!, input!]);
  const mean = graph.node('Div', [
    graph.node('ReduceSum', [squares, graph.constant({ ints: axes })]),
    graph.node('Div', [
      graph.node('ReduceSum', [
        graph.node('Exp', [graph.node('Sub', [input!, input!])]),
        graph.constant({ ints: axes }),
      ]),
      graph.constant({ floats: 1 }),
    ]),
  ]);
  const root = graph.node('Sqrt', [graph.node('Add', [mean, graph.constant({ floats: 1e-5 })])]);
  return [graph.node('Mul', [graph.node('Div', [input!, root]), scale!])];
}

const channels = (
  operator: string,
  name: string,
  shape: readonly number[],
  weights: number,
  more: Parameters<typeof conformanceCase>[3] = {},
): Case => conformanceCase(operator, name, [x(shape), x([weights], 'FP32', 2), x([weights], 'FP32', 3)], more);

const channelNormalizations: readonly Case[] = [
  channels('InstanceNormalization', 'images', [2, 3, 4, 5], 3),
  channels('InstanceNormalization', 'large images', [1, 2, 18, 18], 2),
  channels('InstanceNormalization', 'sequences', [2, 3, 7], 3),
  channels('GroupNormalization', 'opset 21', [2, 6, 3, 3], 6, { attributes: { num_groups: 2 }, opset: 21 }),
  channels('GroupNormalization', 'one group', [1, 4, 5], 4, { attributes: { num_groups: 1 }, opset: 21 }),
  channels('GroupNormalization', 'opset 18', [2, 6, 4], 3, {
    attributes: { num_groups: 3 },
    opset: 18,
    reference: (graph, [input, scale, bias]) => {
      const grouped = graph.node('Reshape', [input!, graph.constant({ ints: [2, 3, 8] })]);
      const made = graph.node('InstanceNormalization', [grouped, scale!, bias!]);
      return [graph.node('Reshape', [made, graph.constant({ ints: [2, 6, 4] })])];
    },
  }),
  ...[
    [2, 3, 4, 4],
    [3, 5],
    [2, 3, 7],
    [0, 3, 2],
  ].map((shape) =>
    conformanceCase('BatchNormalization', `[${shape.join(',')}]`, [
      x(shape),
      x([shape[1]!], 'FP32', 2),
      x([shape[1]!], 'FP32', 3),
      x([shape[1]!], 'FP32', 4),
      positive([shape[1]!]),
    ]),
  ),
  conformanceCase('LRN', 'odd size', [x([2, 7, 3, 3])], {
    attributes: { size: 3, alpha: { float: 0.5 }, beta: { float: 0.6 }, bias: { float: 1.5 } },
  }),
  conformanceCase('LRN', 'wider than the channels', [x([1, 3, 2, 2])], { attributes: { size: 5 } }),
];

export const normalizationCases: readonly Case[] = [
  ...softmaxes,
  ...maskedSoftmaxes,
  ...rowNormalizations,
  ...channelNormalizations,
];
