import type { AttributeValue } from '../../../../src/onnx/index.ts';
import type { DataType } from '../../../../src/tensor/index.ts';
import { conformanceCase, filled, given, tensor, type Case, type CaseInput, type CaseOptions } from '../case.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1, scale = 1): CaseInput =>
  given(filled(datatype, shape, seed, scale));

const matmul = (
  a: readonly number[],
  b: readonly number[],
  datatype: DataType = 'FP32',
  options: CaseOptions = {},
): Case =>
  conformanceCase(
    'MatMul',
    `${datatype} [${a.join(',')}] by [${b.join(',')}]`,
    [x(a, datatype), x(b, datatype, 2)],
    options,
  );

const products: readonly Case[] = [
  matmul([3, 4], [4, 5]),
  matmul([4], [4]),
  matmul([4], [4, 3]),
  matmul([3, 4], [4]),
  matmul([2, 3, 4], [4, 5]),
  matmul([2, 3, 4], [2, 4, 5]),
  matmul([2, 1, 3, 4], [5, 4, 2]),
  matmul([3, 4], [2, 4, 5]),
  matmul([2, 3, 4], [4]),
  matmul([1, 3, 4], [2, 4, 1]),
  matmul([0, 4], [4, 5]),
  matmul([3, 0], [0, 5]),
  matmul([17, 33], [33, 19]),
  matmul([3, 8], [8, 4], 'FP16', { tolerance: 4e-3 }),
  matmul([3, 8], [8, 4], 'BF16', { tolerance: 3e-2 }),
  matmul([3, 8], [8, 4], 'FP32', { kept: { 1: 'FP16' }, tolerance: 2e-3 }),
  matmul([3, 8], [8, 4], 'FP32', { kept: { 1: 'BF16' }, tolerance: 2e-2 }),
];

const gemm = (
  a: readonly number[],
  b: readonly number[],
  c: readonly number[] | undefined,
  attributes: Record<string, AttributeValue> = {},
): Case =>
  conformanceCase(
    'Gemm',
    `[${a.join(',')}] by [${b.join(',')}] and [${c?.join(',') ?? ''}]`,
    [x(a), x(b, 'FP32', 2), ...(c === undefined ? [] : [x(c, 'FP32', 3)])],
    { attributes },
  );

const gemms: readonly Case[] = [
  gemm([3, 4], [4, 5], undefined),
  gemm([3, 4], [4, 5], [5]),
  gemm([3, 4], [5, 4], [5], { transB: 1 }),
  gemm([4, 3], [4, 5], [3, 5], { transA: 1, alpha: { float: 0.5 }, beta: { float: 2 } }),
  gemm([4, 3], [5, 4], [3, 1], { transA: 1, transB: 1 }),
  gemm([3, 4], [4, 5], [1], { beta: { float: 0.5 } }),
  gemm([3, 4], [4, 5], [], {}),
  gemm([0, 4], [4, 5], [5]),
];

interface Fused {
  readonly a: readonly number[];
  readonly b: readonly number[];
  readonly transA?: boolean;
  readonly transB?: boolean;
  readonly alpha?: number;
  readonly bias?: boolean;
  readonly activation?: 'none' | 'relu' | 'gelu-tanh';
}

/** A permutation that turns matrices around, wherever they are stacked. */
const swapped = (rank: number): number[] => [
  ...Array.from({ length: rank - 2 }, (_, axis) => axis),
  rank - 1,
  rank - 2,
];

function fusedProduct({
  a,
  b,
  transA = false,
  transB = false,
  alpha = 1,
  bias = false,
  activation = 'none',
}: Fused): Case {
  const n = b.at(transB ? -2 : -1)!;
  return conformanceCase(
    'turntable.Product',
    `${activation}${bias ? ' with a bias' : ''}`,
    [x(a), x(b, 'FP32', 2), ...(bias ? [x([n], 'FP32', 3)] : [])],
    {
      attributes: { transA: Number(transA), transB: Number(transB), alpha: { float: alpha }, activation },
      reference: (graph, [left, right, addend]) => {
        const turned = (name: string, of: readonly number[], yes: boolean): string =>
          yes ? graph.node('Transpose', [name], { perm: swapped(of.length) }) : name;
        const product = graph.node('MatMul', [turned(left!, a, transA), turned(right!, b, transB)]);
        const scaled = graph.node('Mul', [product, graph.constant({ floats: alpha })]);
        const sum = addend === undefined ? scaled : graph.node('Add', [scaled, addend]);
        if (activation === 'relu') return [graph.node('Relu', [sum])];
        return [activation === 'none' ? sum : graph.node('FastGelu', [sum], {}, { domain: 'com.microsoft' })];
      },
    },
  );
}

const fusedProducts: readonly Case[] = [
  fusedProduct({ a: [3, 4], b: [4, 5], bias: true }),
  fusedProduct({ a: [2, 3, 4], b: [4, 5], bias: true, activation: 'relu' }),
  fusedProduct({ a: [3, 4], b: [5, 4], transB: true, bias: true, activation: 'gelu-tanh' }),
  fusedProduct({ a: [3, 4], b: [4, 5], alpha: 0.5, activation: 'gelu-tanh' }),
  fusedProduct({ a: [3, 4], b: [4, 5], activation: 'relu', alpha: 2 }),
];

function convolution(
  input: readonly number[],
  weight: readonly number[],
  attributes: Record<string, AttributeValue> = {},
  bias = false,
  options: CaseOptions = {},
): Case {
  const inputs = [x(input), x(weight, 'FP32', 2), ...(bias ? [x([weight[0]!], 'FP32', 3)] : [])];
  return conformanceCase('Conv', `[${input.join(',')}] by [${weight.join(',')}]`, inputs, { attributes, ...options });
}

const convolutions: readonly Case[] = [
  convolution([1, 3, 6, 6], [4, 3, 3, 3], {}, true),
  convolution([2, 3, 7, 6], [4, 3, 3, 2], { strides: [2, 1], pads: [1, 0, 0, 1] }, true),
  convolution([2, 4, 5, 5], [6, 4, 1, 1], {}, true),
  convolution([1, 4, 6, 6], [6, 4, 1, 1], { strides: [2, 2] }),
  convolution([1, 4, 6, 6], [4, 1, 3, 3], { group: 4, pads: [1, 1, 1, 1] }, true),
  convolution([1, 4, 6, 6], [8, 1, 3, 3], { group: 4, strides: [2, 2] }),
  convolution([1, 6, 5, 5], [4, 3, 3, 3], { group: 2 }, true),
  convolution([1, 2, 8, 8], [3, 2, 3, 3], { dilations: [2, 2] }),
  convolution([1, 2, 5, 6], [3, 2, 3, 3], { auto_pad: 'SAME_UPPER', strides: [2, 2] }),
  convolution([1, 2, 5, 6], [3, 2, 2, 2], { auto_pad: 'SAME_LOWER' }),
  convolution([2, 3, 9], [4, 3, 3], { strides: [2], pads: [1, 1] }, true),
  convolution([1, 2, 4, 5, 4], [3, 2, 2, 3, 2], {}, true),
  convolution([0, 3, 6, 6], [4, 3, 3, 3]),
  convolution([1, 3, 6, 6], [4, 3, 3, 3], {}, true, { kept: { 1: 'FP16' }, tolerance: 3e-3 }),
  conformanceCase('Conv', 'FP16', [x([1, 3, 5, 5], 'FP16'), x([2, 3, 3, 3], 'FP16', 2)], { tolerance: 6e-3 }),
  conformanceCase('turntable.Conv', 'relu', [x([1, 3, 5, 5]), x([2, 3, 3, 3], 'FP32', 2), x([2], 'FP32', 3)], {
    attributes: { activation: 'relu' },
    reference: (graph, inputs) => [graph.node('Relu', [graph.node('Conv', inputs)])],
  }),
  conformanceCase(
    'turntable.Conv',
    'clip, by channel',
    [x([1, 3, 5, 5]), x([3, 1, 3, 3], 'FP32', 2), x([3], 'FP32', 3)],
    {
      attributes: { activation: 'clip', clipMin: { float: 0 }, clipMax: { float: 1 }, group: 3 },
      reference: (graph, inputs) => [
        graph.node('Clip', [
          graph.node('Conv', inputs, { group: 3 }),
          graph.constant({ floats: 0 }),
          graph.constant({ floats: 1 }),
        ]),
      ],
    },
  ),
  conformanceCase('ConvTranspose', 'strides', [x([1, 3, 4, 4]), x([3, 2, 3, 3], 'FP32', 2), x([2], 'FP32', 3)], {
    attributes: { strides: [2, 2], pads: [1, 1, 1, 1], output_padding: [1, 1] },
  }),
  conformanceCase('ConvTranspose', 'groups', [x([2, 4, 5]), x([4, 2, 3], 'FP32', 2)], { attributes: { group: 2 } }),
];

/** Gates of a cell, and outputs: everything, the last states. */
const cells = { LSTM: { gates: 4, states: 2 }, GRU: { gates: 3, states: 1 }, RNN: { gates: 1, states: 1 } } as const;

function recurrent(
  operator: keyof typeof cells,
  direction: 'forward' | 'reverse' | 'bidirectional',
  {
    bias = true,
    initial = false,
    attributes = {},
  }: { bias?: boolean; initial?: boolean; attributes?: Record<string, AttributeValue> } = {},
): Case {
  const { gates, states } = cells[operator];
  const [steps, batch, inputSize, hidden] = [5, 2, 3, 4];
  const directions = direction === 'bidirectional' ? 2 : 1;
  const inputs = [
    x([steps, batch, inputSize]),
    x([directions, gates * hidden, inputSize], 'FP32', 2),
    x([directions, gates * hidden, hidden], 'FP32', 3),
    bias ? x([directions, 2 * gates * hidden], 'FP32', 4) : undefined,
    undefined,
    ...(initial ? Array.from({ length: states }, (_, index) => x([directions, batch, hidden], 'FP32', 5 + index)) : []),
  ];
  return conformanceCase(
    operator,
    `${direction}${bias ? '' : ', no bias'}${initial ? ', initial states' : ''}`,
    inputs,
    {
      attributes: { hidden_size: hidden, direction, ...attributes },
      outputs: Array.from({ length: states + 1 }, () => 'FP32' as const),
    },
  );
}

const recurrents: readonly Case[] = [
  ...(['LSTM', 'GRU', 'RNN'] as const).flatMap((operator) => [
    recurrent(operator, 'forward'),
    recurrent(operator, 'forward', { bias: false }),
    recurrent(operator, 'reverse', { initial: true }),
    recurrent(operator, 'bidirectional', { initial: true }),
  ]),
  recurrent('GRU', 'bidirectional', { initial: true, attributes: { linear_before_reset: 1 } }),
  recurrent('GRU', 'forward', { bias: false, attributes: { linear_before_reset: 1 } }),
];

/** Scores of two heads of 4, with queries and keys as the projections leave them: [batch, sequence, heads x size]. */
const headProducts: readonly Case[] = [
  conformanceCase('turntable.HeadProduct', 'scores', [x([2, 3, 8]), x([2, 5, 8], 'FP32', 2)], {
    attributes: {
      m: 3,
      n: 5,
      k: 4,
      heads: 2,
      batch: 2,
      transB: 1,
      a: [0, 8, 4, 24],
      b: [0, 8, 4, 40],
      d: [0, 5, 15, 30],
    },
    reference: (graph, [queries, keys]) => {
      const heads = (name: string, length: number, perm: readonly number[]): string =>
        graph.node('Transpose', [graph.node('Reshape', [name, graph.constant({ ints: [2, length, 2, 4] })])], { perm });
      return [graph.node('MatMul', [heads(queries!, 3, [0, 2, 1, 3]), heads(keys!, 5, [0, 2, 3, 1])])];
    },
  }),
  conformanceCase('turntable.HeadProduct', 'contexts', [x([2, 2, 3, 5]), x([2, 5, 8], 'FP32', 2)], {
    attributes: {
      m: 3,
      n: 4,
      k: 5,
      heads: 2,
      batch: 2,
      transB: 0,
      a: [0, 5, 15, 30],
      b: [0, 8, 4, 40],
      d: [0, 8, 4, 24],
    },
    reference: (graph, [shares, values]) => {
      const split = graph.node('Reshape', [values!, graph.constant({ ints: [2, 5, 2, 4] })]);
      const product = graph.node('MatMul', [shares!, graph.node('Transpose', [split], { perm: [0, 2, 1, 3] })]);
      const merged = graph.node('Transpose', [product], { perm: [0, 2, 1, 3] });
      return [graph.node('Reshape', [merged, graph.constant({ ints: [2, 3, 8] })])];
    },
  }),
  conformanceCase('turntable.HeadProduct', 'scaled', [x([1, 2, 4]), x([1, 2, 4], 'FP32', 2)], {
    attributes: {
      m: 2,
      n: 2,
      k: 2,
      heads: 2,
      batch: 1,
      transB: 1,
      alpha: { float: 0.5 },
      a: [0, 4, 2, 8],
      b: [0, 4, 2, 8],
      d: [0, 2, 4, 8],
    },
    reference: (graph, [queries, keys]) => {
      const heads = (name: string, perm: readonly number[]): string =>
        graph.node('Transpose', [graph.node('Reshape', [name, graph.constant({ ints: [1, 2, 2, 2] })])], { perm });
      const scores = graph.node('MatMul', [heads(queries!, [0, 2, 1, 3]), heads(keys!, [0, 2, 3, 1])]);
      return [graph.node('Mul', [scores, graph.constant({ floats: 0.5 })])];
    },
  }),
];

/** Sizes that the matrix library's own tiles do not divide. */
const uneven: readonly Case[] = [matmul([1, 65], [65, 3]), matmul([2, 2, 9, 7], [2, 1, 7, 11])];

export const denseCases: readonly Case[] = [
  ...products,
  ...uneven,
  ...gemms,
  ...fusedProducts,
  ...convolutions,
  ...recurrents,
  ...headProducts,
  conformanceCase('MatMul', 'FP64', [
    given(tensor('FP64', [2, 2], [1, 2, 3, 4])),
    given(tensor('FP64', [2, 2], [5, 6, 7, 8])),
  ]),
];
