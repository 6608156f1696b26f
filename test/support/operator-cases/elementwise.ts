import type { DataType } from '../../../src/tensor/index.ts';
import type { Draw, Drawn } from './draw.ts';

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

const castLike: Drawn = (draw) => {
  const [from, to] = [draw.pick(numbers), draw.pick(numbers)];
  return draw.case('CastLike', [draw.x(from, draw.shape(0, 3)), draw.x(to, [1])], { opset: draw.pick([15, 19, 21]) });
};

const quantised: readonly DataType[] = ['UINT8', 'INT8'];

const scales = (draw: Draw, shape: readonly number[]) => {
  const count = shape.reduce((product, size) => product * size, 1);
  return draw.values(
    'FP32',
    shape,
    Array.from({ length: count }, () => draw.int(1, 40) / 32),
    draw.chance(0.7),
  );
};

/** Per tensor, per axis, in blocks. */
function scaleShape(draw: Draw, shape: readonly number[]) {
  const kind = shape.length === 0 ? 'tensor' : draw.pick(['tensor', 'axis', 'axis', 'block'] as const);
  const axis = draw.axis(shape.length);
  if (kind === 'tensor') return { shape: [], attributes: {}, opset: draw.pick([10, 13, 19, 21]) };
  if (kind === 'axis') {
    const isDefault = shape.length > 1 && draw.chance(0.3);
    return {
      shape: [isDefault ? shape[1]! : shape.at(axis)!],
      attributes: isDefault ? {} : { axis },
      opset: draw.pick([13, 19, 21]),
    };
  }
  const size = shape.at(axis)!;
  const block = draw.pick([1, 2, 3]);
  const blocks = shape.with(axis < 0 ? axis + shape.length : axis, Math.ceil(size / block));
  return { shape: blocks, attributes: { axis, block_size: block }, opset: 21 };
}

const quantize: Drawn = (draw) => {
  const shape = draw.filledShape(0, 4);
  const { shape: scale, attributes, opset } = scaleShape(draw, shape);
  const datatype = draw.pick(opset === 21 ? ([...quantised, 'INT16', 'UINT16'] as const) : quantised);
  const count = scale.reduce((product, size) => product * size, 1);
  const zero = draw.chance(0.3) ? [] : [draw.values(datatype, scale, draw.list(count, 0, 9))];
  return draw.case('QuantizeLinear', [draw.x('FP32', shape, 20), scales(draw, scale), ...zero], { attributes, opset });
};

const dequantize: Drawn = (draw) => {
  const shape = draw.filledShape(0, 4);
  const { shape: scale, attributes, opset } = scaleShape(draw, shape);
  const datatype = draw.pick([...quantised, 'INT32' as const]);
  const count = scale.reduce((product, size) => product * size, 1);
  const zero = draw.chance(0.3) || datatype === 'INT32' ? [] : [draw.values(datatype, scale, draw.list(count, 0, 9))];
  return draw.case('DequantizeLinear', [draw.x(datatype, shape), scales(draw, scale), ...zero], { attributes, opset });
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

const named = (operators: string, make: (operator: string) => Drawn): Record<string, Drawn> =>
  Object.fromEntries(operators.split(' ').map((operator) => [operator, make(operator)]));

export const elementwise: Readonly<Record<string, Drawn>> = {
  ...named('Neg Abs Sign', (operator) => unary(operator, [...numbers, 'INT8'])),
  ...named('Reciprocal Sqrt Exp Log Erf Tanh Sin Cos Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh', (operator) =>
    unary(operator),
  ),
  ...named('Floor Ceil Round Sigmoid Softplus Softsign', (operator) => unary(operator, floats, {}, 11)),
  Relu: unary('Relu', [...floats, 'INT32', 'INT8'], {}, 9),
  ...named('LeakyRelu ThresholdedRelu Elu', (operator) => unary(operator, floats, { alpha: 1 }, 10)),
  Celu: unary('Celu', ['FP32'], { alpha: 1 }, 13),
  Selu: unary('Selu', floats, { alpha: 1, gamma: 1 }),
  Mish: unary('Mish', floats, {}, 18),
  HardSigmoid: unary('HardSigmoid', floats, { alpha: 0.2, beta: 0.3 }),
  HardSwish: unary('HardSwish', floats, {}, 14),
  Shrink: unary('Shrink', floats, { lambd: 0.5, bias: 0.5 }),
  Swish: unary('Swish', floats, { alpha: 1 }, 24),
  ...named('Add Sub Mul Div', (operator) => binary(operator, [...numbers, 'INT8', 'UINT8'])),
  Mod: binary('Mod', [...numbers, 'INT8', 'UINT8'], 10),
  Pow: pow,
  ...named('Min Max', (operator) => variadic(operator, numbers)),
  ...named('Sum Mean', (operator) => variadic(operator)),
  ...named('Equal Less Greater', (operator) => binary(operator, numbers, 11)),
  ...named('LessOrEqual GreaterOrEqual', (operator) => binary(operator, numbers, 12)),
  ...named('And Or Xor', logical),
  Not: (draw) => draw.case('Not', [draw.x('BOOL', draw.shape(0, 3))]),
  ...named('BitwiseAnd BitwiseOr BitwiseXor', (operator) => (draw) => {
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
  CastLike: castLike,
  QuantizeLinear: quantize,
  DequantizeLinear: dequantize,
  PRelu: prelu,
  Gelu: gelu('Gelu', 20),
  'com.microsoft.Gelu': gelu('com.microsoft.Gelu', 17),
  'com.microsoft.BiasGelu': gelu('com.microsoft.BiasGelu', 17),
  'com.microsoft.FastGelu': gelu('com.microsoft.FastGelu', 17),
  'com.microsoft.QuickGelu': (draw) =>
    draw.case('com.microsoft.QuickGelu', [draw.x('FP32', draw.shape(0, 3))], {
      attributes: draw.some({ alpha: { float: 1.5 } }),
    }),
};
