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

/** A permutation that transposes the last two axes. */
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

function jointProduct(name: string, count: number, bias: boolean, transB = false, kept?: 'FP16'): Case {
  const places = Array.from({ length: count }, (_, index) => index);
  const matrices = places.map((index) => x(transB ? [5, 4] : [4, 5], 'FP32', index + 2));
  const biases = bias ? places.map((index) => x([5], 'FP32', index + 9)) : [];
  return conformanceCase('turntable.JointProduct', name, [x([2, 3, 4]), ...matrices, ...biases], {
    attributes: { count, transB: Number(transB), alpha: { float: 1 }, activation: 'none' },
    outputs: places.map(() => 'FP32' as const),
    ...(kept === undefined
      ? {}
      : { kept: Object.fromEntries(places.map((index) => [index + 1, kept])), tolerance: 3e-3 }),
    reference: (graph, [a, ...weights]) =>
      places.map((index) => {
        const matrix = transB ? graph.node('Transpose', [weights[index]!], { perm: [1, 0] }) : weights[index]!;
        const product = graph.node('MatMul', [a!, matrix]);
        return bias ? graph.node('Add', [product, weights[count + index]!]) : product;
      }),
  });
}

const jointProducts: readonly Case[] = [
  jointProduct('three with biases', 3, true),
  jointProduct('two without', 2, false),
  jointProduct('transposed, with biases', 3, true, true),
  jointProduct('16-bit weights', 3, true, false, 'FP16'),
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

/** Gates of a cell, and its number of states. */
const cells = { LSTM: { gates: 4, states: 2 }, GRU: { gates: 3, states: 1 }, RNN: { gates: 1, states: 1 } } as const;

function recurrent(
  operator: keyof typeof cells,
  direction: 'forward' | 'reverse' | 'bidirectional',
  {
    bias = true,
    initial = false,
    attributes = {},
    hidden = 4,
    lengths,
    isHalf = false,
  }: {
    bias?: boolean;
    initial?: boolean;
    attributes?: Record<string, AttributeValue>;
    hidden?: number;
    lengths?: readonly number[];
    /** Whether both matrices are kept in 16 bits. */
    isHalf?: boolean;
  } = {},
): Case {
  const { gates, states } = cells[operator];
  const [steps, batch, inputSize] = [5, 2, 3];
  const directions = direction === 'bidirectional' ? 2 : 1;
  const inputs = [
    x([steps, batch, inputSize]),
    x([directions, gates * hidden, inputSize], 'FP32', 2),
    // With many units, rounding of large sums would lead to another state.
    x([directions, gates * hidden, hidden], 'FP32', 3, hidden > 4 ? 0.02 : 1),
    bias ? x([directions, 2 * gates * hidden], 'FP32', 4) : undefined,
    lengths && given(tensor('INT32', [batch], lengths)),
    ...(initial ? Array.from({ length: states }, (_, index) => x([directions, batch, hidden], 'FP32', 5 + index)) : []),
  ];
  return conformanceCase(
    operator,
    `${direction}${bias ? '' : ', no bias'}${initial ? ', initial states' : ''}${hidden > 4 ? `, ${hidden} units` : ''}${lengths ? `, lengths ${lengths.join(' and ')}` : ''}`,
    inputs,
    {
      ...(isHalf && { kept: { 1: 'FP16', 2: 'FP16' } as const, tolerance: 6e-3 }),
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
  recurrent('LSTM', 'reverse', { initial: true, lengths: [0, 4] }),
  // With recurrent weights of more than 1 MiB each step is a launch of its own.
  recurrent('LSTM', 'bidirectional', { initial: true, hidden: 260 }),
  recurrent('GRU', 'reverse', { initial: true, hidden: 300 }),
  recurrent('GRU', 'forward', { hidden: 300, attributes: { linear_before_reset: 1 } }),
  recurrent('RNN', 'reverse', { initial: true, hidden: 520 }),
  recurrent('RNN', 'forward', { hidden: 740, lengths: [5, 0], isHalf: true }),
];

/** Scores of two heads of size 4, from queries and keys [batch, sequence, heads x size]. */
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

/** Sizes that are not multiples of the kernels' tiles. */
const uneven: readonly Case[] = [matmul([1, 65], [65, 3]), matmul([2, 2, 9, 7], [2, 1, 7, 11])];

const einsum = (equation: string, ...shapes: readonly (readonly number[])[]): Case =>
  conformanceCase(
    'Einsum',
    equation,
    shapes.map((shape, index) => x(shape, 'FP32', index + 1)),
    { attributes: { equation } },
  );

const einsums: readonly Case[] = [
  einsum('ij->ji', [3, 4]),
  einsum('ii->i', [4, 4]),
  einsum('ii', [4, 4]),
  einsum('ij->', [3, 4]),
  einsum('ijk->ik', [2, 3, 4]),
  einsum('ij,jk->ik', [3, 4], [4, 5]),
  einsum('ij,jk', [3, 4], [4, 5]),
  einsum('ba,ca', [3, 4], [5, 4]),
  einsum('ij,jk->ki', [3, 4], [4, 5]),
  einsum('i,i', [5], [5]),
  einsum('i,j->ij', [3], [4]),
  einsum('bij, bjk -> bik', [2, 3, 4], [2, 4, 5]),
  einsum('...ij,...jk->...ik', [2, 3, 4], [2, 4, 5]),
  einsum('...ij,...jk->...ik', [2, 1, 3, 4], [1, 5, 4, 6]),
  einsum('...ii->...i', [2, 3, 3]),
  einsum('bhid,bhjd->bhij', [2, 3, 4, 5], [2, 3, 6, 5]),
  einsum('bihd,bjhd->bhij', [2, 4, 3, 5], [2, 6, 3, 5]),
  einsum('bhij,bjhd->bihd', [2, 3, 4, 6], [2, 6, 3, 5]),
  einsum('bhwc,hkc->bhwk', [2, 3, 4, 5], [3, 6, 5]),
  einsum('bijk,bjl->bikl', [2, 3, 4, 5], [2, 4, 6]),
  einsum('ij,ij->ij', [3, 4], [3, 4]),
  einsum('ij,ij->i', [3, 4], [3, 4]),
  einsum('ijk,jil->kl', [2, 3, 4], [3, 2, 5]),
  einsum('ij,kj,lk->il', [2, 3], [4, 3], [5, 4]),
  einsum('ij,k->ik', [2, 3], [4]),
  einsum('Ab,bA->A', [2, 3], [3, 2]),
  einsum('ij,jk->ik', [0, 4], [4, 5]),
  einsum('ij,jk->ik', [1, 1], [1, 1]),
  conformanceCase('Einsum', 'INT32', [x([3, 4], 'INT32'), x([4, 2], 'INT32', 2)], {
    attributes: { equation: 'ij,jk->ik' },
  }),
  conformanceCase('Einsum', 'FP64', [x([3, 4], 'FP64'), x([4, 2], 'FP64', 2)], {
    attributes: { equation: 'ij,jk->ik' },
  }),
  conformanceCase('Einsum', 'FP16', [x([3, 4], 'FP16'), x([4, 2], 'FP16', 2)], {
    attributes: { equation: 'ij,jk->ik' },
    tolerance: 4e-3,
  }),
];

const microsoft = (
  operator: string,
  name: string,
  inputs: readonly (CaseInput | undefined)[],
  attributes: Record<string, AttributeValue>,
): Case => conformanceCase(`com.microsoft.${operator}`, name, inputs, { attributes });

const fused: readonly Case[] = [
  ...[0, 1].flatMap((transA) =>
    [0, 1].flatMap((transB) =>
      ['FusedMatMul', 'TransposeMatMul'].map((operator) =>
        microsoft(
          operator,
          `${transA} ${transB}`,
          [x(transA === 1 ? [2, 4, 3] : [2, 3, 4]), x(transB === 1 ? [2, 5, 4] : [2, 4, 5], 'FP32', 2)],
          { transA, transB, alpha: { float: 0.5 } },
        ),
      ),
    ),
  ),
  microsoft('FusedMatMul', 'rows before the batch', [x([3, 2, 4]), x([2, 4, 5], 'FP32', 2)], { transBatchA: 1 }),
  microsoft('FusedMatMul', 'rows before both batches', [x([3, 2, 4]), x([4, 2, 5], 'FP32', 2)], {
    transBatchA: 1,
    transBatchB: 1,
  }),
  ...['Relu', 'Tanh', 'Sigmoid', 'LeakyRelu', 'HardSigmoid', 'Clip'].flatMap((activation) => [
    microsoft('FusedConv', activation, [x([1, 2, 5, 5]), x([3, 2, 3, 3], 'FP32', 2), x([3], 'FP32', 3)], {
      activation,
      ...(activation === 'LeakyRelu' ? { activation_params: { floats: [0.1] } } : {}),
      ...(activation === 'HardSigmoid' || activation === 'Clip' ? { activation_params: { floats: [0.1, 0.6] } } : {}),
    }),
  ]),
  microsoft(
    'FusedConv',
    'with an addend',
    [x([1, 2, 5, 5]), x([3, 2, 3, 3], 'FP32', 2), x([3], 'FP32', 3), x([1, 3, 3, 3], 'FP32', 4)],
    {
      activation: 'Relu',
    },
  ),
  microsoft('FusedConv', 'without a bias', [x([1, 2, 5, 5]), x([2, 1, 3, 3], 'FP32', 2)], {
    activation: 'Relu',
    group: 2,
    pads: [1, 1, 1, 1],
  }),
  ...['Relu', 'Tanh', 'Sigmoid', 'LeakyRelu', 'Elu', 'Softplus', 'Softsign'].map((activation) =>
    microsoft('FusedGemm', activation, [x([3, 4]), x([5, 4], 'FP32', 2), x([5], 'FP32', 3)], {
      activation,
      transB: 1,
      alpha: { float: 0.5 },
      ...(activation === 'LeakyRelu' || activation === 'Elu' ? { activation_alpha: { float: 0.2 } } : {}),
    }),
  ),
];

export const denseCases: readonly Case[] = [
  ...products,
  ...uneven,
  ...gemms,
  ...fusedProducts,
  ...jointProducts,
  ...convolutions,
  ...recurrents,
  ...headProducts,
  ...einsums,
  ...fused,
  conformanceCase('MatMul', 'FP64', [
    given(tensor('FP64', [2, 2], [1, 2, 3, 4])),
    given(tensor('FP64', [2, 2], [5, 6, 7, 8])),
  ]),
];
