/** Cases of operators on elements, each of which is an expression of those at the same place. */
/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import { elementTypeOf } from '../../../src/onnx/index.ts';
import { elementCount, type DataType } from '../../../src/tensor/index.ts';
import { filled, given, operatorCase, scalar, tensor, type Case, type CaseInput } from './case.ts';
import type { Draw, Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1): CaseInput =>
  given(filled(datatype, shape, seed));
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

const shapes: readonly (readonly [readonly number[], readonly number[]])[] = [
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

/** One kernel serves all of them: its layouts are tried on one operator of two and one of three inputs. */
const layouts: readonly Case[] = shapes.flatMap(([a, b]) => {
  const name = `[${a.join(',')}] and [${b.join(',')}]`;
  return [
    operatorCase('Add', name, [x(a), x(b, 'FP32', 2)]),
    operatorCase('Where', name, [x(a, 'BOOL'), x(b, 'FP32', 2), x(a, 'FP32', 3)], { outputs: ['FP32'] }),
  ];
});

const truth = { outputs: ['BOOL'] } as const;
const arithmetic: readonly Case[] = [
  ...['Add', 'Sub', 'Mul', 'Div', 'Min', 'Max'].map((operator) =>
    operatorCase(operator, 'BF16', [x([3, 5], 'BF16'), between(0.5, 4, [5], 'BF16')]),
  ),
  ...['Min', 'Max'].map((operator) =>
    operatorCase(operator, 'NaN wins', [values('FP32', NaN, 1, NaN), values('FP32', 1, NaN, NaN)]),
  ),
  ...['Sum', 'Mean'].map((operator) =>
    operatorCase(operator, 'three inputs', [x([2, 3]), x([3], 'FP32', 2), x([2, 1], 'FP32', 3)]),
  ),
  operatorCase('Pow', 'roots', [between(0.1, 4, [2, 5]), scalar('FP32', 0.5)]),
  operatorCase('Pow', 'fractions', [between(0.1, 4, [2, 5]), x([5], 'FP32', 2)]),
  operatorCase('Div', 'cuts off', [values('INT64', 7, -7, 7, -7), values('INT64', 2, 2, -2, -2)]),
  operatorCase('Mod', 'sign of the divisor', [values('INT64', 7, -7, 7, -7), values('INT64', 3, 3, -3, -3)]),
  ...['Equal', 'Less', 'Greater', 'LessOrEqual', 'GreaterOrEqual'].map((operator) =>
    operatorCase(
      operator,
      'equal, smaller, larger and NaN',
      [values('FP32', 1, 0, 2, NaN), values('FP32', 1, 1, 1, NaN)],
      truth,
    ),
  ),
  ...['And', 'Or', 'Xor'].map((operator) => operatorCase(operator, 'a row', [x([3, 5], 'BOOL'), x([5], 'BOOL', 2)])),
  operatorCase('Not', 'truth values', [x([3, 5], 'BOOL')]),
  operatorCase('IsNaN', 'some', [values('FP32', 1, NaN, -Infinity, 0)], truth),
  operatorCase('IsInf', 'negative ones', [values('FP32', 1, NaN, -Infinity, Infinity)], {
    ...truth,
    attributes: { detect_positive: 0 },
  }),
  ...['BitwiseAnd', 'BitwiseOr', 'BitwiseXor'].map((operator) =>
    operatorCase(operator, 'of both signs', [x([3, 5], 'INT32'), x([5], 'INT32', 2)], { opset: 18 }),
  ),
  operatorCase('BitwiseNot', 'of both signs', [x([7], 'INT32')], { opset: 18 }),
  operatorCase('BitShift', 'over the end', [values('UINT8', 1, 200, 77), values('UINT8', 3, 1, 2)], {
    attributes: { direction: 'LEFT' },
  }),
];

/** The domain on which a function is tested: beyond the drawn numbers, or where it is defined. */
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

/** Drawn in 32 bits alone. */
const halves = new Set(['Celu', 'com.microsoft.Gelu', 'com.microsoft.QuickGelu']);

const unaries: readonly Case[] = Object.entries(functions).flatMap(([operator, [low, high]]) => {
  const opset = operator === 'Mish' ? 18 : 17;
  return [
    operatorCase(operator, 'over its domain', [between(low, high, [3, 41])], { opset }),
    ...(halves.has(operator) ? [operatorCase(operator, 'FP16', [between(low, high, [24], 'FP16')], { opset })] : []),
  ];
});

const others: readonly Case[] = [
  operatorCase('Relu', 'NaN passes', [values('FP32', NaN, -1)]),
  operatorCase('Round', 'halves', [values('FP32', 0.5, 1.5, 2.5, -0.5, -1.5)]),
  operatorCase('PRelu', 'a slope to a channel', [x([2, 3, 4]), x([3, 1], 'FP32', 2)]),
  ...['none', 'tanh'].map((approximate) =>
    operatorCase('Gelu', approximate, [between(-4, 4, [33])], { attributes: { approximate }, opset: 20 }),
  ),
  operatorCase('com.microsoft.BiasGelu', 'rows', [x([3, 8]), x([8], 'FP32', 2)]),
  operatorCase('com.microsoft.FastGelu', 'rows', [x([3, 8]), x([8], 'FP32', 2)]),
  operatorCase('Swish', 'alpha 1.5', [x([3, 8])], {
    attributes: { alpha: { float: 1.5 } },
    reference: (graph, [input]) => {
      const scaled = graph.node('Mul', [input!, graph.constant({ floats: 1.5 })]);
      return [graph.node('Mul', [input!, graph.node('Sigmoid', [scaled])])];
    },
  }),
  operatorCase('Clip', 'the upper limit alone', [x([3, 7]), undefined, scalar('FP32', 0.75)]),
];

const castTypes: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT32', 'INT64', 'BOOL', 'UINT8', 'INT8'];
const casts: readonly Case[] = castTypes.flatMap((from) =>
  castTypes.map((to) => {
    // Values below 0 or above 127 have different results on different machines.
    const input = from === 'BOOL' ? x([11], from) : between(0, 100, [11], from);
    return operatorCase('Cast', `${from} to ${to}`, [input], {
      attributes: { to: elementTypeOf(to) },
      outputs: [to],
      // The reference computes 16-bit inputs and outputs in 32 bits.
      reference: (graph, [value]) => {
        const wide = to === 'FP16' || to === 'BF16' ? 'FP32' : to;
        return [graph.node('Cast', [value!], { to: elementTypeOf(wide) })];
      },
    });
  }),
);

/** Normalization of batches. @param shape [items, channels, ...] */
const scaleShift = (name: string, shape: readonly number[], seed = 1): Case => {
  const channels = [shape[1]!, ...shape.slice(2).map(() => 1)];
  return operatorCase(
    'turntable.ScaleShift',
    name,
    [x(shape, 'FP32', seed), ...[2, 3, 4].map((more) => x(channels, 'FP32', seed + more)), between(0.2, 2, channels)],
    {
      attributes: { epsilon: { float: 1e-3 } },
      reference: (graph, [input, ...weights]) => {
        const flat = weights.map((weight) => graph.node('Reshape', [weight, graph.constant({ ints: [shape[1]!] })]));
        return [graph.node('BatchNormalization', [input!, ...flat], { epsilon: { float: 1e-3 } })];
      },
    },
  );
};

/** A scale and a zero point to a column. */
const quantizing = (
  name: 'Quantize' | 'Dequantize',
  title: string,
  input: CaseInput,
  type: DataType,
  seed = 1,
): Case => {
  const columns = input.tensor.shape.at(-1)!;
  const zeros = Array.from({ length: columns }, (_, column) => (column * 7 + seed) % 11);
  return operatorCase(
    `turntable.${name}`,
    title,
    [input, between(0.05, 0.5, [columns]), given(tensor(type, [columns], zeros))],
    {
      outputs: [name === 'Quantize' ? type : 'FP32'],
      reference: (graph, inputs) => [graph.node(`${name}Linear`, inputs, { axis: -1 })],
    },
  );
};

const drawnQuantizing =
  (name: 'Quantize' | 'Dequantize'): Drawn =>
  (draw) => {
    const type = draw.pick(['INT8', 'UINT8'] as const);
    const input = draw.x(name === 'Quantize' ? 'FP32' : type, draw.filledShape(1, 4));
    return quantizing(name, `seed ${draw.seed}`, input, type, draw.int(0, 10));
  };

const floats: readonly DataType[] = ['FP32', 'FP32', 'FP32', 'FP16', 'FP64'];

const numbers: readonly DataType[] = [...floats, 'INT32', 'INT64'];

const integers: readonly DataType[] = ['INT8', 'UINT8', 'INT16', 'UINT16', 'INT32', 'UINT32', 'INT64', 'UINT64'];

const opsets = [9, 11, 13, 14, 16, 17, 18, 20, 21, 22];

const recent = [18, 20, 21];

const unary =
  (operator: string, types: readonly DataType[] = floats, attributes: Record<string, number> = {}, from = 9): Drawn =>
  (draw) => {
    const given = Object.fromEntries(
      Object.entries(attributes).map(([name, most]) => [name, { float: draw.int(1, 20) * 0.1 * most }]),
    );
    return draw.case(operator, [draw.x(draw.pick(types), draw.shape(0, 4))], {
      attributes: draw.some(given),
      opset: draw.pick([...opsets, 24].filter((opset) => opset >= from && (opset < 24 || from === 24))),
    });
  };

/** Values that are never 0, for division. */
const divisor = (draw: Draw, datatype: DataType, shape: readonly number[]) => {
  const count = shape.reduce((product, size) => product * size, 1);
  const sign = (): number => (datatype.startsWith('U') || draw.chance(0.5) ? 1 : -1);
  return draw.values(
    datatype,
    shape,
    Array.from({ length: count }, () => sign() * draw.int(1, 9)),
    draw.chance(0.3),
  );
};

const binary =
  (operator: string, types: readonly DataType[] = numbers, from = 7): Drawn =>
  (draw) => {
    const shape = draw.shape(0, 4);
    const datatype = draw.pick(types);
    const second = ['Div', 'Mod'].includes(operator)
      ? divisor(draw, datatype, draw.narrowed(shape))
      : draw.x(datatype, draw.narrowed(shape));
    return draw.case(operator, [draw.x(datatype, draw.narrowed(shape)), second], {
      opset: draw.pick(opsets.filter((opset) => opset >= from)),
      ...(operator === 'Mod' ? { attributes: { fmod: datatype.startsWith('FP') ? 1 : draw.int(0, 1) } } : {}),
    });
  };

const variadic =
  (operator: string, types: readonly DataType[] = floats): Drawn =>
  (draw) => {
    const shape = draw.shape(0, 4);
    const datatype = draw.pick(types);
    const inputs = Array.from({ length: draw.int(1, 4) }, () => draw.x(datatype, draw.narrowed(shape)));
    return draw.case(operator, inputs, { opset: draw.pick([8, 12, 13, 17, 20]) });
  };

const logical =
  (operator: string): Drawn =>
  (draw) => {
    const shape = draw.shape(0, 4);
    return draw.case(operator, [draw.x('BOOL', draw.narrowed(shape)), draw.x('BOOL', draw.narrowed(shape))], {
      opset: draw.pick(opsets),
    });
  };

const pow: Drawn = (draw) => {
  const shape = draw.shape(0, 3);
  const [base, exponent] = [draw.pick(numbers), draw.pick(['FP32', 'FP32', 'INT32', 'INT64', 'FP64', 'FP16'] as const)];
  const exponents = draw.values(exponent, [], [draw.int(0, 3)], draw.chance(0.5));
  return draw.case(
    'Pow',
    [draw.x(base, shape), draw.chance(0.5) ? exponents : draw.x(exponent, draw.narrowed(shape), 0.1)],
    {
      opset: draw.pick([12, 13, 15, 17]),
    },
  );
};

const bitShift: Drawn = (draw) => {
  const shape = draw.shape(0, 3);
  const datatype = draw.pick(['UINT8', 'UINT16', 'UINT32', 'UINT64'] as const);
  const count = shape.reduce((product, size) => product * size, 1);
  return draw.case('BitShift', [draw.x(datatype, shape), draw.values(datatype, shape, draw.list(count, 0, 7))], {
    attributes: { direction: draw.pick(['LEFT', 'RIGHT']) },
  });
};

const where: Drawn = (draw) => {
  const shape = draw.shape(0, 4);
  const datatype = draw.pick([...numbers, 'UINT8', 'BOOL'] as const);
  return draw.case(
    'Where',
    [
      draw.x('BOOL', draw.narrowed(shape)),
      draw.x(datatype, draw.narrowed(shape)),
      draw.x(datatype, draw.narrowed(shape)),
    ],
    { opset: draw.pick([9, 16, 17, 21]) },
  );
};

const clip: Drawn = (draw) => {
  if (draw.chance(0.3)) {
    return draw.case('Clip', [draw.x('FP32', draw.shape(0, 3))], {
      attributes: draw.some({ min: { float: -0.5 }, max: { float: 0.75 } }),
      opset: 6 + draw.int(0, 4),
    });
  }
  const datatype = draw.pick([...numbers, 'UINT8', 'INT8'] as const);
  const limit = (value: number) =>
    draw.chance(0.3) ? undefined : draw.values(datatype, [], [value], draw.chance(0.7));
  const limits = [limit(datatype.startsWith('U') ? 3 : -1), limit(draw.chance(0.1) ? -2 : 20)];
  while (limits.length > 0 && limits.at(-1) === undefined) limits.pop();
  return draw.case('Clip', [draw.x(datatype, draw.shape(0, 3)), ...limits], { opset: draw.pick([11, 12, 13, 17]) });
};

const elementType: Partial<Record<DataType, number>> = {
  FP32: 1,
  UINT8: 2,
  INT8: 3,
  UINT16: 4,
  INT16: 5,
  INT32: 6,
  INT64: 7,
  BOOL: 9,
  FP16: 10,
  FP64: 11,
  UINT32: 12,
  UINT64: 13,
};

const cast: Drawn = (draw) => {
  const [from, to] = [draw.pick(Object.keys(elementType)), draw.pick(Object.keys(elementType))] as [DataType, DataType];
  // A negative float has no unsigned value: the result depends on the machine.
  const wraps = from.startsWith('FP') && to.startsWith('U');
  const shape = draw.shape(0, 3);
  const count = shape.reduce((product, size) => product * size, 1);
  const x = wraps ? draw.values(from, shape, draw.list(count, 0, 99), false) : draw.x(from, shape);
  return draw.case('Cast', [x], { attributes: { to: elementType[to]! }, opset: draw.pick([9, 13, 19, 21]) });
};

const prelu: Drawn = (draw) => {
  const shape = draw.shape(1, 4);
  const datatype = draw.pick(['FP32', 'FP32', 'FP16', 'INT32'] as const);
  return draw.case('PRelu', [draw.x(datatype, shape), draw.w(datatype, draw.narrowed(shape))], {
    opset: draw.pick([9, 16, 17]),
  });
};

const gelu =
  (operator: string, opset: number): Drawn =>
  (draw) => {
    const shape = draw.shape(1, 3);
    const last = shape.at(-1)!;
    const bias =
      operator.endsWith('BiasGelu') || (operator.endsWith('FastGelu') && draw.chance(0.5))
        ? [draw.w('FP32', [last])]
        : [];
    const attributes = operator === 'Gelu' ? draw.some({ approximate: draw.pick(['none', 'tanh']) }) : {};
    return draw.case(operator, [draw.x('FP32', shape), ...bias], { attributes, opset });
  };

const isInf: Drawn = (draw) => {
  const [datatype, opset] = draw.pick([
    ['FP32', 10],
    ['FP64', 10],
    ['FP16', 20],
  ] as const);
  const values = draw.values(datatype, [5], [0, 1, Infinity, -Infinity, Number.NaN], false);
  return draw.case('IsInf', [values], {
    attributes: draw.some({ detect_negative: draw.int(0, 1), detect_positive: draw.int(0, 1) }),
    opset,
  });
};

const isNaN: Drawn = (draw) =>
  draw.case(
    'IsNaN',
    [draw.values(draw.pick(['FP32', 'FP16', 'FP64'] as const), [4], [0, Number.NaN, Infinity, 1], false)],
    {
      opset: draw.pick([9, 13, 20]),
    },
  );

const eachOf = (operators: string, make: (operator: string) => Drawn): Record<string, Drawn> =>
  Object.fromEntries(operators.split(' ').map((operator) => [operator, make(operator)]));

export const elementwise: FamilyCases = {
  named: [
    ...layouts,
    ...arithmetic,
    ...unaries,
    ...others,
    ...casts,
    scaleShift('by channel', [2, 3, 4]),
    quantizing('Quantize', 'a scale to a column', x([3, 5]), 'INT8'),
    quantizing('Dequantize', 'a scale to a column', x([3, 5], 'INT8'), 'INT8'),
  ],
  drawn: {
    ...eachOf('Neg Abs Sign', (operator) => unary(operator, [...numbers, 'INT8'])),
    ...eachOf('Reciprocal Sqrt Exp Log Erf Tanh Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh', (operator) =>
      unary(operator),
    ),
    ...eachOf('Floor Ceil Round Sigmoid Softplus Softsign', (operator) => unary(operator, floats, {}, 11)),
    Relu: unary('Relu', [...floats, 'INT32', 'INT8'], {}, 9),
    ...eachOf('LeakyRelu ThresholdedRelu Elu', (operator) => unary(operator, floats, { alpha: 1 }, 10)),
    Celu: unary('Celu', ['FP32'], { alpha: 1 }, 13),
    Selu: unary('Selu', floats, { alpha: 1, gamma: 1 }),
    Mish: unary('Mish', floats, {}, 18),
    HardSigmoid: unary('HardSigmoid', floats, { alpha: 0.2, beta: 0.3 }),
    HardSwish: unary('HardSwish', floats, {}, 14),
    Shrink: unary('Shrink', floats, { lambd: 0.5, bias: 0.5 }),
    Swish: unary('Swish', floats, { alpha: 1 }, 24),
    ...eachOf('Add Sub Mul Div', (operator) => binary(operator, [...numbers, 'INT8', 'UINT8'])),
    Mod: binary('Mod', [...numbers, 'INT8', 'UINT8'], 10),
    Pow: pow,
    ...eachOf('Min Max', (operator) => variadic(operator, numbers)),
    ...eachOf('Sum Mean', (operator) => variadic(operator)),
    ...eachOf('Equal Less Greater', (operator) => binary(operator, numbers, 11)),
    ...eachOf('LessOrEqual GreaterOrEqual', (operator) => binary(operator, numbers, 12)),
    ...eachOf('And Or Xor', logical),
    Not: (draw) => draw.case('Not', [draw.x('BOOL', draw.shape(0, 3))]),
    ...eachOf('BitwiseAnd BitwiseOr BitwiseXor', (operator) => (draw) => {
      const shape = draw.shape(0, 3);
      const datatype = draw.pick(integers);
      return draw.case(operator, [draw.x(datatype, draw.narrowed(shape)), draw.x(datatype, shape)], {
        opset: draw.pick(recent),
      });
    }),
    BitwiseNot: unary('BitwiseNot', integers, {}, 18),
    BitShift: bitShift,
    IsNaN: isNaN,
    IsInf: isInf,
    Where: where,
    Clip: clip,
    Cast: cast,
    PRelu: prelu,
    Gelu: gelu('Gelu', 20),
    'com.microsoft.Gelu': gelu('com.microsoft.Gelu', 17),
    'com.microsoft.BiasGelu': gelu('com.microsoft.BiasGelu', 17),
    'com.microsoft.FastGelu': gelu('com.microsoft.FastGelu', 17),
    'com.microsoft.QuickGelu': (draw) =>
      draw.case('com.microsoft.QuickGelu', [draw.x('FP32', draw.shape(0, 3))], {
        attributes: draw.some({ alpha: { float: 1.5 } }),
      }),
    'turntable.ScaleShift': (draw) => scaleShift(`seed ${draw.seed}`, draw.filledShape(2, 4), draw.int(1, 1000)),
    'turntable.Quantize': drawnQuantizing('Quantize'),
    'turntable.Dequantize': drawnQuantizing('Dequantize'),
  },
};
