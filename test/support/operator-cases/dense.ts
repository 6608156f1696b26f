/** Cases of products, convolutions and recurrent networks. */
import type { AttributeValue } from '../../../src/onnx/index.ts';
import type { DataType } from '../../../src/tensor/index.ts';
import { filled, given, operatorCase, tensor, type Case, type CaseInput, type CaseOptions } from './case.ts';
import type { Attributes, Draw, Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1, scale = 1): CaseInput =>
  given(filled(datatype, shape, seed, scale));

const matmul = (
  a: readonly number[],
  b: readonly number[],
  datatype: DataType = 'FP32',
  options: CaseOptions = {},
): Case =>
  operatorCase(
    'MatMul',
    `${datatype} [${a.join(',')}] by [${b.join(',')}]`,
    [x(a, datatype), x(b, datatype, 2)],
    options,
  );

const products: readonly Case[] = [
  // Sizes that are not multiples of the kernels' tiles.
  matmul([17, 33], [33, 19]),
  matmul([1, 65], [65, 3]),
  matmul([2, 2, 9, 7], [2, 1, 7, 11]),
  matmul([3, 8], [8, 4], 'BF16', { tolerance: 3e-2 }),
  matmul([3, 8], [8, 4], 'FP32', { kept: { 1: 'FP16' }, tolerance: 2e-3 }),
  matmul([3, 8], [8, 4], 'FP32', { kept: { 1: 'BF16' }, tolerance: 2e-2 }),
  operatorCase('Gemm', 'all of it', [x([4, 17]), x([5, 4], 'FP32', 2), x([17, 1], 'FP32', 3)], {
    attributes: { transA: 1, transB: 1, alpha: { float: 0.5 }, beta: { float: 2 } },
  }),
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
  return operatorCase(
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

const drawnProduct: Drawn = (draw) => {
  const [m, k, n] = [draw.int(1, 9), draw.int(1, 9), draw.int(1, 9)];
  const [transA, transB] = [draw.chance(0.3), draw.chance(0.5)];
  const batch = draw.filledShape(0, 2, 3);
  return fusedProduct({
    a: [...batch, ...(transA ? [k, m] : [m, k])],
    b: transB ? [n, k] : [k, n],
    transA,
    transB,
    alpha: draw.pick([1, 0.5, -2]),
    bias: draw.chance(0.6),
    activation: draw.pick(['none', 'relu', 'gelu-tanh']),
  });
};

function jointProduct(name: string, count: number, bias: boolean, transB = false, kept?: 'FP16'): Case {
  const places = Array.from({ length: count }, (_, index) => index);
  const matrices = places.map((index) => x(transB ? [5, 4] : [4, 5], 'FP32', index + 2));
  const biases = bias ? places.map((index) => x([5], 'FP32', index + 9)) : [];
  return operatorCase('turntable.JointProduct', name, [x([2, 3, 4]), ...matrices, ...biases], {
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

const convolved = (
  name: string,
  input: readonly number[],
  weight: readonly number[],
  options: CaseOptions = {},
): Case => operatorCase('Conv', name, [x(input), x(weight, 'FP32', 2), x([weight[0]!], 'FP32', 3)], options);

interface Clipped {
  readonly activation: 'none' | 'relu' | 'clip';
  readonly group?: number;
}

/** With what fusion puts behind it. */
const fusedConv = (
  name: string,
  input: CaseInput,
  weight: readonly number[],
  { activation, group = 1 }: Clipped,
): Case =>
  operatorCase('turntable.Conv', name, [input, x(weight, 'FP32', 2), x([weight[0]!], 'FP32', 3)], {
    attributes: { activation, clipMin: { float: 0 }, clipMax: { float: 1 }, group },
    reference: (graph, inputs) => {
      const y = graph.node('Conv', inputs, { group });
      if (activation === 'none') return [y];
      const limits = activation === 'clip' ? [graph.constant({ floats: 0 }), graph.constant({ floats: 1 })] : [];
      return [graph.node(activation === 'clip' ? 'Clip' : 'Relu', [y, ...limits])];
    },
  });

const drawnConv: Drawn = (draw) => {
  const [group, filters] = draw.pick([
    [1, 3],
    [2, 4],
    [3, 3],
  ] as const);
  const perGroup = draw.int(1, 3);
  const input = draw.x('FP32', [draw.int(1, 2), group * perGroup, ...draw.list(2, 3, 7)]);
  const activation = draw.pick(['none', 'relu', 'clip'] as const);
  return fusedConv(`seed ${draw.seed}`, input, [filters, perGroup, ...draw.list(2, 1, 3)], { activation, group });
};

const convolutions: readonly Case[] = [
  // Products of matrices, without and with steps.
  convolved('pointwise', [2, 4, 5, 5], [6, 4, 1, 1]),
  convolved('pointwise, steps', [1, 4, 6, 6], [6, 4, 1, 1], { attributes: { strides: [2, 2] } }),
  convolved('weights kept in 16 bits', [1, 3, 6, 6], [4, 3, 3, 3], { kept: { 1: 'FP16' }, tolerance: 3e-3 }),
  fusedConv('relu', x([1, 3, 5, 5]), [2, 3, 3, 3], { activation: 'relu' }),
  fusedConv('clip, by channel', x([1, 3, 5, 5]), [3, 1, 3, 3], { activation: 'clip', group: 3 }),
  operatorCase('ConvTranspose', 'more behind', [x([1, 3, 4, 4]), x([3, 2, 3, 3], 'FP32', 2), x([2], 'FP32', 3)], {
    attributes: { strides: [2, 2], pads: [1, 1, 1, 1], output_padding: [1, 1] },
  }),
];

/** Gates of a cell, and its number of states. */
const cells = { LSTM: { gates: 4, states: 2 }, GRU: { gates: 3, states: 1 }, RNN: { gates: 1, states: 1 } } as const;

function network(
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
  return operatorCase(
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

const networks: readonly Case[] = [
  network('LSTM', 'reverse', { initial: true, lengths: [0, 4] }),
  // With recurrent weights of more than 1 MiB each step is a launch of its own.
  network('LSTM', 'bidirectional', { initial: true, hidden: 260 }),
  network('GRU', 'reverse', { initial: true, hidden: 300 }),
  network('GRU', 'forward', { hidden: 300, attributes: { linear_before_reset: 1 } }),
  network('RNN', 'reverse', { initial: true, hidden: 520 }),
  network('RNN', 'forward', { hidden: 740, lengths: [5, 0], isHalf: true }),
];

const sums = (equation: string, ...shapes: readonly (readonly number[])[]): Case =>
  operatorCase(
    'Einsum',
    equation,
    shapes.map((shape, index) => x(shape, 'FP32', index + 1)),
    { attributes: { equation } },
  );

/** Forms that are not among the drawn ones. */
const einsums: readonly Case[] = [
  sums('ijk->ik', [2, 3, 4]),
  sums('ba,ca', [3, 4], [5, 4]),
  sums('ij,jk->ki', [3, 4], [4, 5]),
  sums('i,i', [5], [5]),
  sums('bij, bjk -> bik', [2, 3, 4], [2, 4, 5]),
  sums('...ij,...jk->...ik', [2, 1, 3, 4], [1, 5, 4, 6]),
  sums('...ii->...i', [2, 3, 3]),
  sums('bhwc,hkc->bhwk', [2, 3, 4, 5], [3, 6, 5]),
  sums('ij,ij->ij', [3, 4], [3, 4]),
  sums('ijk,jil->kl', [2, 3, 4], [3, 2, 5]),
  sums('ij,k->ik', [2, 3], [4]),
  sums('Ab,bA->A', [2, 3], [3, 2]),
  sums('ij,jk->ik', [0, 4], [4, 5]),
];

const microsoft = (
  operator: string,
  name: string,
  inputs: readonly CaseInput[],
  attributes: Record<string, AttributeValue>,
): Case => operatorCase(`com.microsoft.${operator}`, name, inputs, { attributes });

const fused: readonly Case[] = [
  microsoft('TransposeMatMul', 'both', [x([2, 4, 17]), x([2, 5, 4], 'FP32', 2)], { transA: 1, transB: 1 }),
  microsoft('FusedMatMul', 'rows before the batch', [x([3, 2, 4]), x([2, 4, 5], 'FP32', 2)], { transBatchA: 1 }),
  microsoft('FusedMatMul', 'rows before both batches', [x([3, 2, 4]), x([4, 2, 5], 'FP32', 2)], {
    transBatchA: 1,
    transBatchB: 1,
  }),
  ...['HardSigmoid', 'Clip'].map((activation) =>
    microsoft('FusedConv', activation, [x([1, 2, 5, 5]), x([3, 2, 3, 3], 'FP32', 2), x([3], 'FP32', 3)], {
      activation,
      activation_params: { floats: [0.1, 0.6] },
    }),
  ),
  microsoft(
    'FusedConv',
    'with an addend',
    [x([1, 2, 5, 5]), x([3, 2, 3, 3], 'FP32', 2), x([3], 'FP32', 3), x([1, 3, 3, 3], 'FP32', 4)],
    { activation: 'Relu' },
  ),
  ...['Elu', 'Softplus', 'Softsign'].map((activation) =>
    microsoft('FusedGemm', activation, [x([3, 4]), x([5, 4], 'FP32', 2), x([5], 'FP32', 3)], {
      activation,
      transB: 1,
      ...(activation === 'Elu' ? { activation_alpha: { float: 0.2 } } : {}),
    }),
  ),
];

/** For empty matrices ONNX Runtime neither broadcasts nor writes its answer. */
const matMul: Drawn = (draw) => {
  const [m, k, n] = [draw.size(), draw.size(), draw.size()];
  const batch = draw.shape(0, 2, 3);
  const datatype = draw.pick(['FP32', 'FP32', 'FP16', 'FP64', 'INT32', 'INT64'] as const);
  const left = draw.chance(0.15) && k > 0 ? [k] : [...(k === 0 ? batch : draw.narrowed(batch)), m, k];
  const right = draw.chance(0.15) && k > 0 ? [k] : [...(k === 0 ? batch : draw.narrowed(batch)), k, n];
  const weight = draw.chance(0.4) ? draw.w(datatype, right) : draw.x(datatype, right);
  return draw.case('MatMul', [draw.x(datatype, left), weight], { opset: draw.pick([9, 13, 17, 21]) });
};

const gemm: Drawn = (draw) => {
  const [m, k, n] = [draw.size(), draw.size(), draw.size()];
  const [transA, transB] = [draw.int(0, 1), draw.int(0, 1)];
  const datatype = draw.pick(['FP32', 'FP32', 'FP16', 'FP64'] as const);
  const c = draw.pick([undefined, [m, n], [n], [1, n], [m, 1], [1], [], [1, 1]]);
  return draw.case(
    'Gemm',
    [
      draw.x(datatype, transA === 1 ? [k, m] : [m, k]),
      draw.chance(0.5)
        ? draw.w(datatype, transB === 1 ? [n, k] : [k, n])
        : draw.x(datatype, transB === 1 ? [n, k] : [k, n]),
      ...(c === undefined ? [] : [draw.chance(0.5) ? draw.w(datatype, c) : draw.x(datatype, c)]),
    ],
    {
      attributes: {
        ...(transA === 1 || draw.chance(0.3) ? { transA } : {}),
        ...(transB === 1 || draw.chance(0.3) ? { transB } : {}),
        ...draw.some({ alpha: { float: 0.5 }, beta: { float: draw.pick([0, 0.25, 2]) } }),
      },
      opset: draw.pick([11, 13, 17]),
    },
  );
};

function padding(draw: Draw, axes: number, mostPad = 2): Attributes {
  const kind = draw.pick(['none', 'pads', 'pads', 'SAME_UPPER', 'SAME_LOWER', 'VALID', 'NOTSET'] as const);
  if (kind === 'none') return {};
  if (kind === 'pads') return { pads: draw.list(2 * axes, 0, mostPad) };
  if (kind === 'NOTSET') return { auto_pad: kind, pads: draw.list(2 * axes, 0, mostPad) };
  return { auto_pad: kind };
}

const conv: Drawn = (draw) => {
  const axes = draw.pick([1, 2, 2, 3]);
  const group = draw.pick([1, 1, 2, 3]);
  const depthwise = draw.chance(0.2);
  const perGroup = depthwise ? 1 : draw.int(1, 3);
  const filters = group * draw.int(1, 3);
  const kernel = draw.list(axes, 1, 3);
  const datatype = draw.pick(['FP32', 'FP32', 'FP32', 'FP16', 'FP64'] as const);
  const x = draw.x(datatype, [draw.pick([1, 2, 0, 1]), group * perGroup, ...draw.list(axes, 5, 9)]);
  const weight = [filters, perGroup, ...kernel];
  const bias = draw.chance(0.5) ? [draw.w(datatype, [filters])] : [];
  return draw.case('Conv', [x, draw.chance(0.8) ? draw.w(datatype, weight) : draw.x(datatype, weight), ...bias], {
    attributes: {
      ...padding(draw, axes),
      ...draw.some({ kernel_shape: kernel }),
      ...(group > 1 || draw.chance(0.2) ? { group } : {}),
      ...draw.some({ strides: draw.list(axes, 1, 3), dilations: draw.list(axes, 1, 2) }, 0.4),
    },
    opset: draw.pick([9, 11, 17, 22]),
  });
};

const convTranspose: Drawn = (draw) => {
  const axes = draw.pick([1, 2, 2, 3]);
  const group = draw.pick([1, 1, 2]);
  const channels = group * draw.int(1, 2);
  const filters = draw.int(1, 3);
  const kernel = draw.list(axes, 1, 4);
  const strides = draw.list(axes, 1, 3);
  const sizes = draw.list(axes, 2, 5);
  const datatype = draw.pick(['FP32', 'FP32', 'FP32', 'FP16'] as const);
  const weight = draw.w(datatype, [channels, filters, ...kernel]);
  const bias = draw.chance(0.4) ? [draw.w(datatype, [filters * group])] : [];
  const extra = strides.map((stride) => draw.int(0, stride - 1));
  const shape = sizes.map((size, axis) => size * strides[axis]! + draw.int(0, 2));
  const way = draw.pick(['pads', 'auto', 'shape', 'none'] as const);
  const attributes: Attributes = {
    ...(way === 'pads' ? { pads: draw.list(2 * axes, 0, 1) } : {}),
    ...(way === 'auto' ? { auto_pad: draw.pick(['SAME_UPPER', 'SAME_LOWER', 'VALID']) } : {}),
    ...(way === 'shape' ? { output_shape: shape } : {}),
    ...(way === 'shape' && draw.chance(0.5) ? { auto_pad: draw.pick(['SAME_UPPER', 'SAME_LOWER']) } : {}),
    ...draw.some({ strides, output_padding: extra, kernel_shape: kernel, dilations: draw.list(axes, 1, 2) }, 0.6),
    ...(group > 1 ? { group } : {}),
  };
  return draw.case('ConvTranspose', [draw.x(datatype, [draw.pick([1, 2]), channels, ...sizes]), weight, ...bias], {
    attributes: 'output_padding' in attributes && !('strides' in attributes) ? { ...attributes, strides } : attributes,
    opset: draw.pick([9, 11, 17]),
  });
};

const takesBeta = ['Affine', 'HardSigmoid', 'ScaledTanh'];

const takesAlpha = [...takesBeta, 'Elu', 'LeakyRelu', 'ThresholdedRelu'];

const activationNames = [...takesAlpha, 'Relu', 'Sigmoid', 'Softplus', 'Softsign', 'Tanh'];

const recurrent =
  (operator: 'LSTM' | 'GRU' | 'RNN', gates: number): Drawn =>
  (draw) => {
    const [steps, batch, size, hidden] = [draw.int(1, 4), draw.int(1, 3), draw.int(1, 4), draw.int(1, 4)];
    const direction = draw.pick(['forward', 'reverse', 'bidirectional']);
    const directions = direction === 'bidirectional' ? 2 : 1;
    const maybe = (input: CaseInput): CaseInput | undefined => (draw.chance(0.5) ? input : undefined);
    const isLstm = operator === 'LSTM';
    const inputs = [
      draw.x('FP32', [steps, batch, size]),
      draw.w('FP32', [directions, gates * hidden, size]),
      draw.w('FP32', [directions, gates * hidden, hidden]),
      maybe(draw.w('FP32', [directions, 2 * gates * hidden])),
      maybe(draw.values('INT32', [batch], draw.list(batch, 1, steps), draw.chance(0.5))),
      maybe(draw.x('FP32', [directions, batch, hidden], 1)),
      ...(isLstm ? [maybe(draw.x('FP32', [directions, batch, hidden], 1))] : []),
      ...(isLstm ? [maybe(draw.w('FP32', [directions, 3 * hidden]))] : []),
    ];
    while (inputs.at(-1) === undefined) inputs.pop();
    const perDirection = isLstm ? 3 : operator === 'GRU' ? 2 : 1;
    const activations = Array.from({ length: directions * perDirection }, () => draw.pick(activationNames));
    const parametersOf = (takers: readonly string[]) => ({
      floats: activations.filter((name) => takers.includes(name)).map(() => draw.pick([0.1, 0.5, 1.5])),
    });
    const outputs = draw.pick(
      isLstm ? [[true], [true, true, true], [false, true], [true, false, true]] : [[true], [true, true], [false, true]],
    );
    return draw.case(operator, inputs, {
      attributes: {
        hidden_size: hidden,
        ...(direction === 'forward' && draw.chance(0.5) ? {} : { direction }),
        ...draw.some(
          {
            clip: { float: 0.5 },
            activations,
            ...(operator === 'GRU' ? { linear_before_reset: 1 } : {}),
            ...(isLstm ? { input_forget: draw.int(0, 1) } : {}),
          },
          0.25,
        ),
        ...(draw.chance(0.3)
          ? { activations, activation_alpha: parametersOf(takesAlpha), activation_beta: parametersOf(takesBeta) }
          : {}),
        ...(operator === 'GRU' && draw.chance(0.4) ? { linear_before_reset: 1 } : {}),
      },
      outputs,
      opset: draw.pick([7, 14, 17]),
    });
  };

const equations: readonly string[] = [
  'ij,jk->ik',
  'bij,bjk->bik',
  'bhid,bhjd->bhij',
  'bihd,bjhd->bhij',
  'bhij,bjhd->bihd',
  'ij->ji',
  'ii->i',
  'ii',
  'ij->',
  'ijk->ki',
  'i,j->ij',
  'i,i->',
  'ij,ij->i',
  'ij,jk',
  'bi,bj->bij',
  'ij,kj,lk->il',
  'bijk,bjl->bikl',
  '...ij,...jk->...ik',
  'abc,cd->abd',
];

const einsum: Drawn = (draw) => {
  const equation = draw.pick(equations);
  const sizes = new Map<string, number>();
  const hidden = draw.filledShape(1, 2, 3);
  const type = draw.pick(['FP32', 'FP32', 'FP16', 'FP64', 'INT32'] as const);
  const inputs = equation
    .split('->')[0]!
    .split(',')
    .map((term): CaseInput => {
      const letters = term
        .replace('...', '')
        .split('')
        .map((letter) => {
          if (!sizes.has(letter)) sizes.set(letter, draw.int(1, 5));
          return sizes.get(letter)!;
        });
      return draw.x(type, term.startsWith('...') ? [...hidden, ...letters] : letters);
    });
  return draw.case('Einsum', inputs, { attributes: { equation } });
};

const float = (value: number): { readonly float: number } => ({ float: value });

const fusedMatmul =
  (operator: string): Drawn =>
  (draw) => {
    const [m, k, n] = [draw.int(1, 6), draw.int(1, 9), draw.int(1, 6)];
    const batch = draw.filledShape(0, 2, 3);
    const [transA, transB] = [draw.int(0, 1), draw.int(0, 1)];
    return draw.case(
      operator,
      [
        draw.x('FP32', [...batch, ...(transA === 1 ? [k, m] : [m, k])]),
        draw.x('FP32', [...batch, ...(transB === 1 ? [n, k] : [k, n])]),
      ],
      { attributes: { transA, transB, ...draw.some({ alpha: float(0.5) }) } },
    );
  };

const activation = (draw: Draw): Attributes => {
  const name = draw.pick(['Relu', 'Tanh', 'Sigmoid', 'LeakyRelu']);
  return { activation: name };
};

const microsoftGemm: Drawn = (draw) => {
  const [m, k, n] = [draw.int(1, 6), draw.int(1, 9), draw.int(1, 6)];
  const named = activation(draw);
  const alpha: Attributes = named['activation'] === 'LeakyRelu' ? { activation_alpha: float(0.1) } : {};
  return draw.case(
    'com.microsoft.FusedGemm',
    [
      draw.x('FP32', [m, k]),
      draw.w('FP32', [k, n]),
      ...(draw.chance(0.6) ? [draw.w('FP32', draw.pick([[n], [m, n], [1]]))] : []),
    ],
    { attributes: { ...named, ...alpha, ...draw.some({ alpha: float(0.5), beta: float(0.5) }) } },
  );
};

const microsoftConv: Drawn = (draw) => {
  const group = draw.pick([1, 1, 2]);
  const [perGroup, filters] = [draw.int(1, 3), group * draw.int(1, 3)];
  const named = activation(draw);
  const parameters: Attributes = named['activation'] === 'LeakyRelu' ? { activation_params: { floats: [0.1] } } : {};
  return draw.case(
    'com.microsoft.FusedConv',
    [
      draw.x('FP32', [draw.int(1, 2), group * perGroup, draw.int(4, 7), draw.int(4, 7)]),
      draw.w('FP32', [filters, perGroup, ...draw.list(2, 1, 3)]),
      ...(draw.chance(0.6) ? [draw.w('FP32', [filters])] : []),
    ],
    {
      attributes: {
        group,
        ...named,
        ...parameters,
        ...draw.some({ strides: draw.list(2, 1, 2), pads: draw.list(4, 0, 1) }),
      },
    },
  );
};

export const dense: FamilyCases = {
  named: [
    ...products,
    fusedProduct({ a: [2, 3, 4], b: [4, 5], bias: true, activation: 'relu' }),
    fusedProduct({ a: [3, 4], b: [5, 4], transB: true, bias: true, activation: 'gelu-tanh' }),
    jointProduct('transposed, with biases', 3, true, true),
    jointProduct('16-bit weights', 3, true, false, 'FP16'),
    ...convolutions,
    ...networks,
    ...einsums,
    ...fused,
  ],
  drawn: {
    MatMul: matMul,
    Gemm: gemm,
    Conv: conv,
    ConvTranspose: convTranspose,
    LSTM: recurrent('LSTM', 4),
    GRU: recurrent('GRU', 3),
    RNN: recurrent('RNN', 1),
    Einsum: einsum,
    'com.microsoft.FusedMatMul': fusedMatmul('com.microsoft.FusedMatMul'),
    'com.microsoft.TransposeMatMul': fusedMatmul('com.microsoft.TransposeMatMul'),
    'com.microsoft.FusedGemm': microsoftGemm,
    'com.microsoft.FusedConv': microsoftConv,
    'turntable.Product': drawnProduct,
    'turntable.JointProduct': (draw) =>
      jointProduct(`seed ${draw.seed}`, draw.int(2, 4), draw.chance(0.5), draw.chance(0.5)),
    'turntable.Conv': drawnConv,
  },
};
