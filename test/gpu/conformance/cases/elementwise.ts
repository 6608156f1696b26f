/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import { ElementType, elementTypeOf, type AttributeValue, type GraphBuilder } from '../../../../src/onnx/index.ts';
import { elementCount, type DataType } from '../../../../src/tensor/index.ts';
import {
  conformanceCase,
  filled,
  given,
  scalar,
  tensor,
  type Case,
  type CaseInput,
  type CaseOptions,
} from '../case.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1, scale = 2): CaseInput =>
  given(filled(datatype, shape, seed, scale));
const values = (datatype: DataType, ...of: number[]): CaseInput => given(tensor(datatype, [of.length], of));
/** Values in [low, high], for functions that are not defined everywhere, or divisors that must not be 0. */
const between = (low: number, high: number, shape: readonly number[], datatype: DataType = 'FP32'): CaseInput => {
  const count = elementCount(shape);
  return given(
    tensor(
      datatype,
      shape,
      Array.from({ length: count }, (_, i) => low + ((high - low) * (i + 0.5)) / count),
    ),
  );
};

const broadcasts: readonly (readonly [readonly number[], readonly number[]])[] = [
  [
    [2, 3, 4],
    [2, 3, 4],
  ],
  [[2, 3, 4], [4]],
  [[2, 3, 4], []],
  [
    [3, 1],
    [1, 5],
  ],
  [
    [1, 3, 1, 2],
    [4, 1, 5, 1],
  ],
  [[], []],
  [
    [2, 0, 3],
    [1, 3],
  ],
  [
    [8, 16],
    [8, 16],
  ],
  [
    [3, 7, 8],
    [7, 1],
  ],
];

function divisor(datatype: DataType, shape: readonly number[]): CaseInput {
  const count = elementCount(shape);
  return given(
    tensor(
      datatype,
      shape,
      Array.from({ length: count }, (_, i) => (i % 2 === 0 || datatype.startsWith('UINT') ? 1 : -1) * ((i % 7) + 2)),
    ),
  );
}

function binary(operator: string, datatypes: readonly DataType[], options: CaseOptions = {}, second = x): Case[] {
  const of = (a: readonly number[], b: readonly number[], datatype: DataType): Case =>
    conformanceCase(
      operator,
      `${datatype} [${a.join(',')}] and [${b.join(',')}]`,
      [x(a, datatype), second(b, datatype, 2)],
      options,
    );
  return [
    ...broadcasts.map(([a, b]) => of(a, b, datatypes[0]!)),
    ...datatypes.slice(1).map((datatype) => of([3, 5], [5], datatype)),
  ];
}

const numeric: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT32', 'INT64'];
const comparisons = { outputs: ['BOOL'] } as const;

const arithmetic: readonly Case[] = [
  ...['Add', 'Sub', 'Mul'].flatMap((operator) => binary(operator, numeric)),
  ...binary('Div', numeric, {}, (shape, datatype) => divisor(datatype ?? 'FP32', shape)),
  ...binary('Mod', ['INT32', 'INT64', 'UINT8', 'INT8'], {}, (shape, datatype) => divisor(datatype ?? 'INT32', shape)),
  ...binary('Mod', ['FP32', 'INT64'], { attributes: { fmod: 1 } }, (shape, datatype) =>
    divisor(datatype ?? 'FP32', shape),
  ),
  ...['Min', 'Max'].flatMap((operator) => [
    ...binary(operator, numeric),
    conformanceCase(operator, 'three inputs', [x([2, 3]), x([3], 'FP32', 2), x([2, 1], 'FP32', 3)]),
    conformanceCase(operator, 'NaN wins', [values('FP32', NaN, 1, NaN), values('FP32', 1, NaN, NaN)]),
  ]),
  ...['Sum', 'Mean'].map((operator) =>
    conformanceCase(operator, 'three inputs', [x([2, 3]), x([3], 'FP32', 2), x([2, 1], 'FP32', 3)]),
  ),
  conformanceCase('Pow', 'squares', [x([2, 5]), scalar('FP32', 2)]),
  conformanceCase('Pow', 'cubes', [x([2, 5]), scalar('FP32', 3)]),
  conformanceCase('Pow', 'roots', [between(0.1, 4, [2, 5]), scalar('FP32', 0.5)]),
  conformanceCase('Pow', 'elementwise', [between(0.1, 4, [2, 5]), x([5], 'FP32', 2)]),
  conformanceCase('Pow', 'whole exponents', [x([6]), given(tensor('INT64', [], [2]))]),
  conformanceCase('Pow', 'whole numbers', [between(-4, 5, [8], 'INT32'), given(tensor('INT32', [], [3]))]),
  conformanceCase('Div', 'cuts off', [values('INT64', 7, -7, 7, -7), values('INT64', 2, 2, -2, -2)]),
  conformanceCase('Mod', 'sign of the divisor', [values('INT64', 7, -7, 7, -7), values('INT64', 3, 3, -3, -3)]),
];

const compared: readonly Case[] = [
  ...['Equal', 'Less', 'Greater', 'LessOrEqual', 'GreaterOrEqual'].flatMap((operator) => [
    ...binary(operator, ['FP32', 'INT32', 'INT64', 'FP64'], comparisons),
    conformanceCase(
      operator,
      'equal, smaller, larger and NaN',
      [values('FP32', 1, 0, 2, NaN), values('FP32', 1, 1, 1, NaN)],
      comparisons,
    ),
  ]),
  ...['And', 'Or', 'Xor'].flatMap((operator) => binary(operator, ['BOOL'], comparisons)),
  conformanceCase('Not', 'truth values', [x([3, 5], 'BOOL')]),
  conformanceCase('IsNaN', 'some', [values('FP32', 1, NaN, -Infinity, 0)], comparisons),
  conformanceCase('IsInf', 'both signs', [values('FP32', 1, NaN, -Infinity, Infinity)], comparisons),
  conformanceCase('IsInf', 'negative ones', [values('FP32', 1, NaN, -Infinity, Infinity)], {
    ...comparisons,
    attributes: { detect_positive: 0 },
  }),
  ...broadcasts.map(([a, b]) =>
    conformanceCase(
      'Where',
      `[${a.join(',')}] and [${b.join(',')}]`,
      [x(a, 'BOOL'), x(b, 'FP32', 2), x(a, 'FP32', 3)],
      { outputs: ['FP32'] },
    ),
  ),
  conformanceCase('Where', 'INT64', [x([2, 1], 'BOOL'), x([3], 'INT64', 2), x([], 'INT64', 3)], { outputs: ['INT64'] }),
  ...['BitwiseAnd', 'BitwiseOr', 'BitwiseXor'].flatMap((operator) =>
    binary(operator, ['INT32', 'UINT8', 'INT64'], { opset: 18 }),
  ),
  conformanceCase('BitwiseNot', 'INT32', [x([7], 'INT32')], { opset: 18 }),
  ...['LEFT', 'RIGHT'].map((direction) =>
    conformanceCase('BitShift', direction, [values('UINT32', 1, 200, 77), values('UINT32', 3, 1, 2)], {
      attributes: { direction },
    }),
  ),
];

/** The domain on which a function is tested. */
const functions: Readonly<Record<string, readonly [low: number, high: number]>> = {
  Neg: [-3, 3],
  Abs: [-3, 3],
  Sign: [-3, 3],
  Reciprocal: [0.2, 3],
  Sqrt: [0, 5],
  Exp: [-5, 5],
  Log: [0.01, 5],
  Erf: [-3, 3],
  Tanh: [-4, 4],
  Sin: [-7, 7],
  Cos: [-7, 7],
  Tan: [-1.2, 1.2],
  Asin: [-0.99, 0.99],
  Acos: [-0.99, 0.99],
  Atan: [-5, 5],
  Sinh: [-3, 3],
  Cosh: [-3, 3],
  Asinh: [-5, 5],
  Acosh: [1.1, 6],
  Atanh: [-0.95, 0.95],
  Floor: [-3, 3],
  Ceil: [-3, 3],
  Round: [-3.25, 3.25],
  Sigmoid: [-6, 6],
  Relu: [-3, 3],
  LeakyRelu: [-3, 3],
  ThresholdedRelu: [-3, 3],
  Elu: [-3, 3],
  Celu: [-3, 3],
  Selu: [-3, 3],
  Softplus: [-30, 30],
  Softsign: [-5, 5],
  Mish: [-5, 5],
  HardSigmoid: [-4, 4],
  HardSwish: [-4, 4],
  Shrink: [-2, 2],
  'com.microsoft.Gelu': [-4, 4],
  'com.microsoft.QuickGelu': [-4, 4],
};
/** Operators that ONNX Runtime has for FP64 on the CPU. */
const doubles = new Set([
  'Neg',
  'Abs',
  'Sign',
  'Reciprocal',
  'Sqrt',
  'Exp',
  'Log',
  'Tanh',
  'Floor',
  'Ceil',
  'Round',
  'Sigmoid',
  'Relu',
  'Sin',
]);

/** Attributes for further cases. */
const parameters: Readonly<Record<string, Record<string, AttributeValue>>> = {
  LeakyRelu: { alpha: { float: 0.3 } },
  ThresholdedRelu: { alpha: { float: 0.5 } },
  Elu: { alpha: { float: 0.5 } },
  Celu: { alpha: { float: 2 } },
  Selu: { alpha: { float: 2 }, gamma: { float: 3 } },
  HardSigmoid: { alpha: { float: 0.5 }, beta: { float: 0.6 } },
  Shrink: { bias: { float: 0.5 }, lambd: { float: 1 } },
  'com.microsoft.QuickGelu': { alpha: { float: 1 } },
};

const unary: readonly Case[] = Object.entries(functions).flatMap(([operator, [low, high]]) => {
  const opset = operator === 'Mish' ? 18 : 17;
  const attributes = parameters[operator];
  return [
    conformanceCase(operator, 'over its domain', [between(low, high, [3, 41])], { opset }),
    conformanceCase(operator, 'FP16', [between(low, high, [24], 'FP16')], { opset }),
    ...(doubles.has(operator) ? [conformanceCase(operator, 'FP64', [between(low, high, [17], 'FP64')])] : []),
    ...(attributes === undefined
      ? []
      : [conformanceCase(operator, 'parameters', [between(low, high, [2, 9])], { attributes, opset })]),
  ];
});

const geluTanh: CaseOptions = { attributes: { approximate: 'tanh' }, opset: 20 };
const others: readonly Case[] = [
  conformanceCase('Neg', 'INT64', [x([5], 'INT64')]),
  conformanceCase('Abs', 'INT32', [x([5], 'INT32')]),
  conformanceCase('Relu', 'INT32', [x([5], 'INT32')]),
  conformanceCase('Relu', 'NaN passes', [values('FP32', NaN, -1)]),
  conformanceCase('Sign', 'INT64', [x([9], 'INT64')]),
  conformanceCase('Round', 'halves', [values('FP32', 0.5, 1.5, 2.5, -0.5, -1.5)]),
  conformanceCase('PRelu', 'a slope to a channel', [x([2, 3, 4]), x([3, 1], 'FP32', 2)]),
  conformanceCase('Gelu', 'exact', [between(-4, 4, [33])], { opset: 20 }),
  conformanceCase('Gelu', 'tanh', [between(-4, 4, [33])], geluTanh),
  conformanceCase('com.microsoft.BiasGelu', 'rows', [x([3, 8]), x([8], 'FP32', 2)]),
  conformanceCase('com.microsoft.FastGelu', 'rows', [x([3, 8]), x([8], 'FP32', 2)]),
  conformanceCase('com.microsoft.FastGelu', 'without a bias', [x([3, 8])]),
  conformanceCase('Swish', 'alpha 1.5', [x([3, 8])], {
    attributes: { alpha: { float: 1.5 } },
    reference: (graph, [input]) => {
      const scaled = graph.node('Mul', [input!, graph.constant({ floats: 1.5 })]);
      return [graph.node('Mul', [input!, graph.node('Sigmoid', [scaled])])];
    },
  }),
  conformanceCase('Clip', 'both limits', [x([3, 7]), scalar('FP32', -0.5), scalar('FP32', 0.75)]),
  conformanceCase('Clip', 'the upper one', [x([3, 7]), undefined, scalar('FP32', 0.75)]),
  conformanceCase('Clip', 'at run time', [x([3, 7]), given(tensor('FP32', [], [-0.25]))]),
  conformanceCase('Clip', 'none', [x([3, 7])]),
  conformanceCase('Clip', 'INT64', [x([9], 'INT64'), scalar('INT64', -5), scalar('INT64', 10)]),
  conformanceCase('Clip', 'attributes of opset 6', [x([3, 7])], {
    attributes: { min: { float: -1 }, max: { float: 1 } },
    opset: 10,
  }),
];

const castTypes: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT32', 'INT64', 'BOOL', 'UINT8', 'INT8'];
const casts: readonly Case[] = castTypes.flatMap((from) =>
  castTypes.map((to) => {
    // Values below 0 or above 127 have different results on different machines.
    const input = from === 'BOOL' ? x([11], from) : between(0, 100, [11], from);
    return conformanceCase('Cast', `${from} to ${to}`, [input], {
      attributes: { to: elementTypeOf(to) ?? ElementType.FLOAT },
      outputs: [to],
      // The reference computes 16-bit inputs and outputs in 32 bits.
      reference: (graph, [value]) => {
        const wide = to === 'FP16' || to === 'BF16' ? 'FP32' : to;
        return [graph.node('Cast', [value!], { to: elementTypeOf(wide) })];
      },
    });
  }),
);

const scale = scalar('FP32', 0.05);
const quantised: readonly Case[] = [
  conformanceCase('QuantizeLinear', 'UINT8', [x([4, 7]), scale, scalar('UINT8', 128)], { outputs: ['UINT8'] }),
  conformanceCase('QuantizeLinear', 'INT8', [x([4, 7]), scale, scalar('INT8', -3)], { outputs: ['INT8'] }),
  conformanceCase('QuantizeLinear', 'beyond the type', [values('FP32', -900, 900, 0.025, 0.075), scale], {
    outputs: ['UINT8'],
  }),
  conformanceCase('DequantizeLinear', 'UINT8', [x([4, 7], 'UINT8'), scale, scalar('UINT8', 128)], {
    outputs: ['FP32'],
  }),
  conformanceCase('DequantizeLinear', 'INT32', [x([9], 'INT32'), scale], { outputs: ['FP32'] }),
  conformanceCase(
    'DequantizeLinear',
    'a scale to a column',
    [x([3, 4], 'INT8'), between(0.1, 0.5, [4]), given(tensor('INT8', [4], [0, 1, -2, 3]))],
    { outputs: ['FP32'], attributes: { axis: 1 } },
  ),
];

const scaleShift = conformanceCase(
  'turntable.ScaleShift',
  'by channel',
  [x([2, 3, 4]), x([3, 1], 'FP32', 2), x([3, 1], 'FP32', 3), x([3, 1], 'FP32', 4), between(0.2, 2, [3, 1])],
  {
    attributes: { epsilon: { float: 1e-3 } },
    reference: (graph: GraphBuilder, [input, ...weights]) => {
      const flat = weights.map((weight) => graph.node('Reshape', [weight, graph.constant({ ints: [3] })]));
      return [graph.node('BatchNormalization', [input!, ...flat], { epsilon: { float: 1e-3 } })];
    },
  },
);

export const elementwiseCases: readonly Case[] = [
  ...quantised,
  ...arithmetic,
  ...compared,
  ...unary,
  ...others,
  ...casts,
  scaleShift,
];
