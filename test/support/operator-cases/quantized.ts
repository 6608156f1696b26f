/** Cases of quantized tensors: scales, zero points, 8-bit products and convolutions, weights of few bits. */
/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { DataType } from '../../../src/tensor/index.ts';
import { filled, given, known, operatorCase, tensor, type Case, type CaseInput, type CaseOptions } from './case.ts';
import type { Attributes, Draw, Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1, spread = 2): CaseInput =>
  given(filled(datatype, shape, seed, spread));
const list = (datatype: DataType, ...values: number[]): CaseInput => given(tensor(datatype, [values.length], values));
const one = (datatype: DataType, value: number): CaseInput => known(tensor(datatype, [], [value]));
/** Positive scales. */
const stepsOf = (count: number): CaseInput =>
  list('FP32', ...Array.from({ length: count }, (_, index) => 0.01 + (index % 7) * 0.013));

const linears: readonly Case[] = [
  operatorCase(
    'QuantizeLinear',
    'halves, and beyond the type',
    [list('FP32', -900, 900, 0.025, 0.075), one('FP32', 0.05)],
    {
      outputs: ['UINT8'],
    },
  ),
  operatorCase('QuantizeLinear', 'named type', [x([3, 7]), one('FP32', 0.02)], {
    attributes: { output_dtype: 3 },
    outputs: ['INT8'],
    opset: 21,
  }),
  ...(['INT16', 'UINT16'] as const).map((type) =>
    operatorCase('DequantizeLinear', type, [x([3, 7], type), one('FP32', 0.02), one(type, 3)], {
      outputs: ['FP32'],
      opset: 21,
    }),
  ),
  operatorCase('com.microsoft.QuantizeLinear', 'axis 0', [x([5, 3]), stepsOf(5), list('UINT8', 1, 2, 3, 4, 5)], {
    attributes: { axis: 0 },
    outputs: ['UINT8'],
  }),
  operatorCase(
    'com.microsoft.DequantizeLinear',
    'axis 0',
    [x([5, 3], 'UINT8'), stepsOf(5), list('UINT8', 1, 2, 3, 4, 5)],
    {
      attributes: { axis: 0 },
      outputs: ['FP32'],
    },
  ),
  ...(
    [
      ['many', x([3, 40, 100])],
      ['above 0', list('FP32', 1, 2, 3, 5)],
      ['below 0', list('FP32', -1, -2, -3, -5)],
      ['nothing but 0', list('FP32', 0, 0, 0)],
    ] as const
  ).map(([name, input]) =>
    operatorCase('DynamicQuantizeLinear', name, [input], { outputs: ['UINT8', 'FP32', 'UINT8'] }),
  ),
];

const byteTypes = ['UINT8', 'INT8'] as const;
const integers = (
  a: readonly number[],
  b: readonly number[],
  types: readonly [DataType, DataType] = ['UINT8', 'INT8'],
  zeros: readonly CaseInput[] = [],
): Case =>
  operatorCase(
    'MatMulInteger',
    `${types.join(' by ')} [${a.join(',')}] by [${b.join(',')}]`,
    [x(a, types[0]), x(b, types[1], 2), ...zeros],
    { outputs: ['INT32'] },
  );

/** Halves may be rounded the other way, since ONNX Runtime multiplies by the scales in another order. */
const rounding = { tolerance: 0.06 };

const products: readonly Case[] = [
  // Four products to an instruction, and a rest.
  ...byteTypes.flatMap((a) => byteTypes.map((b) => integers([4, 33], [33, 5], [a, b]))),
  integers([70, 40], [40, 50], ['UINT8', 'INT8'], [one('UINT8', 9)]),
  integers([2, 1, 3, 4], [5, 4, 2], ['UINT8', 'INT8'], [one('UINT8', 9), one('INT8', -3)]),
  integers([4], [4, 5]),
  integers([3, 4], [4]),
  integers([0, 4], [4, 5]),
  operatorCase('com.microsoft.MatMulInteger16', 'matrices', [x([3, 4], 'INT16'), x([4, 5], 'INT16', 2)], {
    outputs: ['INT32'],
  }),
  operatorCase(
    'QLinearMatMul',
    'by column',
    [
      x([4, 9], 'UINT8'),
      one('FP32', 0.02),
      one('UINT8', 20),
      x([9, 3], 'INT8', 2),
      stepsOf(3),
      list('INT8', 1, 2, 3),
      one('FP32', 0.09),
      one('UINT8', 30),
    ],
    { outputs: ['UINT8'], ...rounding },
  ),
  operatorCase(
    'com.microsoft.MatMulIntegerToFloat',
    'without zeros',
    [x([2, 4, 9], 'UINT8'), x([9, 5], 'INT8', 2), list('FP32', 0.02), list('FP32', 0.01)],
    { outputs: ['FP32'] },
  ),
  operatorCase(
    'com.microsoft.DynamicQuantizeMatMul',
    'without zeros',
    [x([4, 9]), x([9, 5], 'INT8', 2), one('FP32', 0.02)],
    {
      outputs: ['FP32'],
    },
  ),
  operatorCase(
    'com.microsoft.QGemm',
    'to floats, half',
    [x([9, 4], 'UINT8'), one('FP32', 0.02), one('UINT8', 9), x([9, 5], 'INT8', 2), one('FP32', 0.03), one('INT8', 4)],
    { attributes: { transA: 1, alpha: { float: 0.5 } }, outputs: ['FP32'] },
  ),
  operatorCase(
    'com.microsoft.QGemm',
    'to 8 bits, by column',
    [
      x([4, 9], 'UINT8'),
      one('FP32', 0.02),
      one('UINT8', 9),
      x([5, 9], 'INT8', 2),
      stepsOf(5),
      list('INT8', 1, 2, 3, 4, 5),
      x([5], 'INT32', 4, 20),
      one('FP32', 0.05),
      one('UINT8', 40),
    ],
    { attributes: { transB: 1 }, outputs: ['UINT8'], ...rounding },
  ),
];

const convolutions: readonly Case[] = (
  [
    ['every channel its own', [1, 4, 5, 5], [4, 1, 3, 3], { group: 4, pads: [1, 1, 1, 1] }],
    ['same', [1, 2, 5, 6], [2, 2, 3, 3], { auto_pad: 'SAME_UPPER', strides: [2, 2] }],
  ] as const
).flatMap(([name, shape, weight, attributes]) => [
  operatorCase('ConvInteger', name, [x(shape, 'UINT8'), x(weight, 'UINT8', 2), one('UINT8', 7), one('UINT8', 2)], {
    attributes,
    outputs: ['INT32'],
  }),
  ...['QLinearConv', 'com.microsoft.QLinearConv'].map((operator) =>
    operatorCase(
      operator,
      name,
      [
        x(shape, 'UINT8'),
        one('FP32', 0.02),
        one('UINT8', 20),
        x(weight, 'INT8', 2),
        stepsOf(weight[0]),
        list('INT8', ...Array.from({ length: weight[0] }, () => 0)),
        one('FP32', 0.11),
        one('UINT8', 30),
        x([weight[0]], 'INT32', 4, 30),
      ],
      { attributes, outputs: ['UINT8'], ...rounding },
    ),
  ),
]);

const between = (operator: string, name: string, inputs: readonly CaseInput[], options: CaseOptions = {}): Case =>
  operatorCase(`com.microsoft.${operator}`, name, inputs, { outputs: ['UINT8'], ...rounding, ...options });

/** A tensor with its scale and zero point. */
const eight = (shape: readonly number[], step: number, zero: number, seed = 1): CaseInput[] => [
  x(shape, 'UINT8', seed),
  one('FP32', step),
  one('UINT8', zero),
];
const result = [one('FP32', 0.05), one('UINT8', 20)] as const;

const betweens: readonly Case[] = [
  ...['QLinearAdd', 'QLinearMul'].map((operator) =>
    between(operator, 'broadcast', [...eight([2, 3, 17], 0.02, 4), ...eight([3, 1], 0.03, 9, 2), ...result]),
  ),
  between('QLinearSigmoid', 'fine steps', [...eight([3, 17], 0.02, 4), one('FP32', 0.004), one('UINT8', 20)]),
  between('QLinearLeakyRelu', 'steep', [...eight([3, 17], 0.02, 20), ...result], {
    attributes: { alpha: { float: 0.5 } },
  }),
  between('QLinearWhere', 'broadcast', [
    x([3, 5], 'BOOL'),
    ...eight([3, 5], 0.02, 4),
    ...eight([5], 0.03, 9, 2),
    ...result,
  ]),
  between('QLinearAveragePool', 'padded', [...eight([1, 2, 6, 6], 0.02, 4), one('FP32', 0.01), one('UINT8', 9)], {
    attributes: { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] },
  }),
  between('QLinearGlobalAveragePool', 'large images', [...eight([2, 3, 20, 20], 0.02, 4), ...result]),
  between(
    'QLinearConcat',
    'three',
    [...result, ...eight([2, 3], 0.02, 4), ...eight([2, 1], 0.03, 9, 2), ...eight([2, 4], 0.02, 9, 3)],
    {
      attributes: { axis: 1 },
    },
  ),
  between('QLinearSoftmax', 'long rows', [...eight([3, 40], 0.02, 4), one('FP32', 1 / 256), one('UINT8', 0)], {
    attributes: { axis: 1, opset: 13 },
  }),
];

/** Weights for 64 inputs of 8 outputs, in blocks of 16. */
const few = (name: string, rows: number, bits: 2 | 4, ...more: (CaseInput | undefined)[]): Case =>
  operatorCase(
    'com.microsoft.MatMulNBits',
    name,
    [x([rows, 64]), x([8, 4, 2 * bits], 'UINT8', 2, 5), stepsOf(32), ...more],
    {
      attributes: { N: 8, K: 64, bits, block_size: 16 },
      tolerance: 1e-4,
    },
  );

const weightsOfFewBits: readonly Case[] = [
  few('zeros as floats', 3, 4, x([32], 'FP32', 3, 4)),
  few('2 bits', 3, 2),
  few('bias', 3, 4, undefined, undefined, x([8], 'FP32', 4)),
  few('many rows', 80, 4, x([16], 'UINT8', 5, 5)),
  operatorCase(
    'com.microsoft.GatherBlockQuantized',
    'an odd number of blocks',
    [
      x([6, 24], 'UINT8'),
      given(tensor('INT64', [2, 2], [0, 5, 3, 1])),
      given(
        tensor(
          'FP32',
          [6, 3],
          Array.from({ length: 18 }, (_, place) => 0.01 * (place + 1)),
        ),
      ),
      x([6, 2], 'UINT8', 5),
    ],
    { attributes: { bits: 4, block_size: 16, gather_axis: 0, quantize_axis: 1 }, outputs: ['FP32'] },
  ),
];

type Byte = 'INT8' | 'UINT8';

const byte = (draw: Draw): Byte => draw.pick(['INT8', 'UINT8'] as const);

const scale = (draw: Draw, shape: readonly number[] = []): CaseInput => {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = draw.list(count, 5, 60).map((value) => value / 1000);
  return draw.values('FP32', shape, values, draw.chance(0.6));
};

const zero = (draw: Draw, type: Byte, shape: readonly number[] = []): CaseInput => {
  const count = shape.reduce((product, size) => product * size, 1);
  return draw.values(type, shape, draw.list(count, type === 'INT8' ? -20 : 0, 40), draw.chance(0.6));
};

const weights = (draw: Draw, type: DataType, shape: readonly number[]): CaseInput =>
  draw.chance(0.6) ? draw.w(type, shape) : draw.x(type, shape);

const dynamicQuantize: Drawn = (draw) =>
  draw.case('DynamicQuantizeLinear', [draw.x('FP32', draw.filledShape(0, 4))], {
    opset: draw.pick([11, 17]),
    outputs: 3,
  });

function matrices(draw: Draw): { readonly a: number[]; readonly b: number[]; readonly m: number; readonly n: number } {
  const [m, k, n] = [draw.int(1, 6), draw.int(1, 40), draw.int(1, 6)];
  const batch = draw.filledShape(0, 2, 3);
  const shared = draw.chance(0.5);
  return { a: [...batch, m, k], b: [...(shared ? [] : draw.narrowed(batch)), k, n], m, n };
}

const matmulInteger: Drawn = (draw) => {
  const { a, b, n } = matrices(draw);
  const [left, right] = [byte(draw), byte(draw)];
  const zeros = draw.pick([0, 1, 2, 3]);
  return draw.case('MatMulInteger', [
    draw.x(left, a),
    weights(draw, right, b),
    ...(zeros > 0 ? [zeros === 1 ? undefined : zero(draw, left)] : []),
    ...(zeros === 0 ? [] : [zero(draw, right, zeros === 3 && b.length === 2 ? [n] : [])]),
  ]);
};

const qlinearMatmul: Drawn = (draw) => {
  const { a, b, n } = matrices(draw);
  const [left, right] = [byte(draw), byte(draw)];
  const columns = b.length === 2 && draw.chance(0.4) ? [n] : [];
  return draw.case('QLinearMatMul', [
    draw.x(left, a),
    scale(draw),
    zero(draw, left),
    weights(draw, right, b),
    scale(draw, columns),
    zero(draw, right, columns),
    scale(draw),
    zero(draw, left),
  ]);
};

function convolution(draw: Draw): {
  readonly image: number[];
  readonly weight: number[];
  readonly attributes: Attributes;
} {
  const axes = draw.pick([1, 2, 2, 2, 3]);
  const group = draw.pick([1, 1, 2]);
  const perGroup = draw.int(1, 3);
  const kernel = draw.list(axes, 1, 3);
  return {
    image: [draw.int(1, 2), group * perGroup, ...draw.list(axes, 4, 7)],
    weight: [group * draw.int(1, 3), perGroup, ...kernel],
    attributes: {
      ...(group > 1 ? { group } : {}),
      ...draw.some(
        { strides: draw.list(axes, 1, 2), dilations: draw.list(axes, 1, 2), pads: draw.list(2 * axes, 0, 2) },
        0.4,
      ),
    },
  };
}

const convInteger: Drawn = (draw) => {
  const { image, weight, attributes } = convolution(draw);
  const [x, w] = ['UINT8', draw.pick(['UINT8', 'UINT8', 'INT8'] as const)] as const;
  return draw.case(
    'ConvInteger',
    [draw.x(x, image), weights(draw, w, weight), ...(draw.chance(0.6) ? [zero(draw, x)] : [])],
    { attributes },
  );
};

const qlinearConv =
  (operator: string): Drawn =>
  (draw) => {
    const { image, weight, attributes } = convolution(draw);
    const type = byte(draw);
    const right = type === 'INT8' ? 'INT8' : byte(draw);
    const filters = draw.chance(0.5) ? [weight[0]!] : [];
    return draw.case(
      operator,
      [
        draw.x(type, image),
        draw.values('FP32', [], [0.02]),
        zero(draw, type),
        draw.w(right, weight),
        draw.values(
          'FP32',
          filters,
          filters.length === 0 ? [0.03] : draw.list(weight[0]!, 5, 60).map((value) => value / 1000),
        ),
        draw.values(right, filters, filters.length === 0 ? [0] : draw.list(weight[0]!, 0, 0)),
        draw.values('FP32', [], [0.1]),
        zero(draw, type),
        ...(draw.chance(0.5) ? [draw.w('INT32', [weight[0]!], 20)] : []),
      ],
      { attributes },
    );
  };

const toFloat: Drawn = (draw) => {
  const { a, b, n } = matrices(draw);
  const right = byte(draw);
  const columns = b.length === 2 && draw.chance(0.5) ? [n] : [];
  return draw.case('com.microsoft.MatMulIntegerToFloat', [
    draw.x('UINT8', a),
    weights(draw, right, b),
    scale(draw),
    scale(draw, columns),
    zero(draw, 'UINT8'),
    zero(draw, right, columns),
    ...(draw.chance(0.5) ? [draw.w('FP32', [n])] : []),
  ]);
};

const dynamicMatmul: Drawn = (draw) => {
  const { a, b, n } = matrices(draw);
  const right = byte(draw);
  const columns = draw.chance(0.5) ? [n] : [];
  return draw.case('com.microsoft.DynamicQuantizeMatMul', [
    draw.x('FP32', a),
    weights(draw, right, b.slice(-2)),
    scale(draw, columns),
    zero(draw, right, columns),
    ...(draw.chance(0.5) ? [draw.w('FP32', [n])] : []),
  ]);
};

const qgemm: Drawn = (draw) => {
  const [m, k, n] = [draw.int(1, 6), draw.int(1, 20), draw.int(1, 6)];
  const [transA, transB] = [draw.int(0, 1), draw.int(0, 1)];
  const right = byte(draw);
  const narrow = draw.chance(0.5);
  const c = draw.pick([undefined, [n], [1, n], [m, n]]);
  return draw.case(
    'com.microsoft.QGemm',
    [
      draw.x('UINT8', transA === 1 ? [k, m] : [m, k]),
      draw.values('FP32', [], [0.02]),
      draw.values('UINT8', [], [9]),
      draw.w(right, transB === 1 ? [n, k] : [k, n]),
      draw.values('FP32', [], [0.03]),
      draw.values(right, [], [3]),
      c && draw.w('INT32', c, 20),
      ...(narrow ? [draw.values('FP32', [], [0.05]), draw.values('UINT8', [], [40])] : []),
    ],
    { attributes: { transA, transB } },
  );
};

const matmul16: Drawn = (draw) => {
  const { a, b } = matrices(draw);
  return draw.case('com.microsoft.MatMulInteger16', [draw.x('INT16', a), weights(draw, 'INT16', b)]);
};

const ofBytes =
  (operator: string, attributes: (draw: Draw) => Attributes = () => ({})): Drawn =>
  (draw) => {
    const type = byte(draw);
    const shape = draw.filledShape(1, 4);
    const both = operator === 'QLinearAdd' || operator === 'QLinearMul';
    return draw.case(
      `com.microsoft.${operator}`,
      [
        draw.x(type, shape),
        scale(draw),
        zero(draw, type),
        ...(both ? [draw.x(type, draw.narrowed(shape)), scale(draw), zero(draw, type)] : []),
        scale(draw),
        zero(draw, type),
      ],
      { attributes: attributes(draw) },
    );
  };

const qlinearWhere: Drawn = (draw) => {
  const type = byte(draw);
  const shape = draw.filledShape(1, 3);
  // ONNX Runtime assumes constant scales here, and crashes on computed ones.
  const known = (): CaseInput[] => [
    draw.values('FP32', [], [draw.int(5, 60) / 1000]),
    draw.values(type, [], [draw.int(0, 40)]),
  ];
  return draw.case('com.microsoft.QLinearWhere', [
    draw.x('BOOL', draw.narrowed(shape)),
    draw.x(type, shape),
    ...known(),
    draw.x(type, draw.narrowed(shape)),
    ...known(),
    ...known(),
  ]);
};

const qlinearConcat: Drawn = (draw) => {
  const type = byte(draw);
  const shape = draw.filledShape(1, 3);
  const axis = draw.axis(shape.length);
  const parts = draw.list(draw.int(1, 3), 1, 4);
  const place = axis < 0 ? axis + shape.length : axis;
  return draw.case(
    'com.microsoft.QLinearConcat',
    [
      scale(draw),
      zero(draw, type),
      ...parts.flatMap((size) => [draw.x(type, shape.with(place, size)), scale(draw), zero(draw, type)]),
    ],
    { attributes: { axis } },
  );
};

const qlinearPool =
  (operator: string): Drawn =>
  (draw) => {
    const type = byte(draw);
    const kernel = draw.list(2, 1, 3);
    return draw.case(
      `com.microsoft.${operator}`,
      [
        draw.x(type, [draw.int(1, 2), draw.int(1, 3), draw.int(4, 7), draw.int(4, 7)]),
        scale(draw),
        zero(draw, type),
        scale(draw),
        zero(draw, type),
      ],
      {
        attributes: operator.includes('Global')
          ? {}
          : { kernel_shape: kernel, ...draw.some({ strides: draw.list(2, 1, 2), pads: [0, 0, 0, 0] }) },
      },
    );
  };

const qlinearSoftmax: Drawn = (draw) => {
  const type = byte(draw);
  // A single share of 1 overflows in ONNX Runtime.
  const shape = [...draw.filledShape(1, 2), draw.int(2, 6)];
  return draw.case(
    'com.microsoft.QLinearSoftmax',
    [
      draw.x(type, shape),
      draw.values('FP32', [], [0.05]),
      draw.values(type, [], [4]),
      draw.values('FP32', [], [1 / 256]),
      draw.values(type, [], [type === 'INT8' ? -128 : 0]),
    ],
    { attributes: { axis: -1, opset: 13 } },
  );
};

const own =
  (operator: 'QuantizeLinear' | 'DequantizeLinear'): Drawn =>
  (draw) => {
    const type = byte(draw);
    const shape = draw.filledShape(1, 3);
    const axis = draw.axis(shape.length);
    const many = draw.chance(0.5) ? [shape.at(axis)!] : [];
    const from = operator === 'QuantizeLinear' ? 'FP32' : type;
    return draw.case(`com.microsoft.${operator}`, [draw.x(from, shape), scale(draw, many), zero(draw, type, many)], {
      attributes: many.length === 0 ? {} : { axis },
    });
  };

const bytes = (draw: Draw, shape: readonly number[]): CaseInput =>
  draw.values(
    'UINT8',
    shape,
    draw.list(
      shape.reduce((product, size) => product * size, 1),
      0,
      255,
    ),
    draw.chance(0.6),
  );

const matmulNBits: Drawn = (draw) => {
  const bits = draw.pick([4, 4, 8]);
  const block = draw.pick([16, 32]);
  const [n, k] = [draw.int(1, 9), draw.pick([16, 32, 40, 64, 96])];
  const blocks = Math.ceil(k / block);
  const rows = draw.pick([[1], [3], [2, 3], [70]]);
  return draw.case(
    'com.microsoft.MatMulNBits',
    [
      draw.x('FP32', [...rows, k]),
      bytes(draw, [n, blocks, (block * bits) / 8]),
      scale(draw, [n * blocks]),
      draw.chance(0.5) ? bytes(draw, [n * Math.ceil((blocks * bits) / 8)]) : undefined,
    ],
    { attributes: { N: n, K: k, bits, block_size: block } },
  );
};

const gatherBlock: Drawn = (draw) => {
  const bits = draw.pick([4, 8]);
  const [rows, blocks] = [draw.int(1, 6), draw.int(1, 3)];
  const width = (16 * blocks * bits) / 8;
  const shape = draw.filledShape(1, 2, 3);
  const count = shape.reduce((product, size) => product * size, 1);
  return draw.case(
    'com.microsoft.GatherBlockQuantized',
    [
      bytes(draw, [rows, width]),
      draw.values(draw.pick(['INT64', 'INT32'] as const), shape, draw.list(count, 0, rows - 1), false),
      scale(draw, [rows, blocks]),
      ...(draw.chance(0.5) ? [bytes(draw, [rows, bits === 4 ? Math.ceil(blocks / 2) : blocks])] : []),
    ],
    { attributes: { bits, block_size: 16, gather_axis: 0, quantize_axis: 1 } },
  );
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

export const quantized: FamilyCases = {
  named: [...linears, ...products, ...convolutions, ...betweens, ...weightsOfFewBits],
  drawn: {
    QuantizeLinear: quantize,
    DequantizeLinear: dequantize,
    DynamicQuantizeLinear: dynamicQuantize,
    MatMulInteger: matmulInteger,
    QLinearMatMul: qlinearMatmul,
    ConvInteger: convInteger,
    QLinearConv: qlinearConv('QLinearConv'),
    'com.microsoft.QLinearConv': qlinearConv('com.microsoft.QLinearConv'),
    'com.microsoft.MatMulIntegerToFloat': toFloat,
    'com.microsoft.DynamicQuantizeMatMul': dynamicMatmul,
    'com.microsoft.QGemm': qgemm,
    'com.microsoft.MatMulInteger16': matmul16,
    'com.microsoft.QLinearAdd': ofBytes('QLinearAdd'),
    'com.microsoft.QLinearMul': ofBytes('QLinearMul'),
    'com.microsoft.QLinearSigmoid': ofBytes('QLinearSigmoid'),
    'com.microsoft.QLinearLeakyRelu': ofBytes('QLinearLeakyRelu', (draw) => draw.some({ alpha: { float: 0.2 } })),
    'com.microsoft.QLinearWhere': qlinearWhere,
    'com.microsoft.QLinearConcat': qlinearConcat,
    'com.microsoft.QLinearAveragePool': qlinearPool('QLinearAveragePool'),
    'com.microsoft.QLinearGlobalAveragePool': qlinearPool('QLinearGlobalAveragePool'),
    'com.microsoft.QLinearSoftmax': qlinearSoftmax,
    'com.microsoft.QuantizeLinear': own('QuantizeLinear'),
    'com.microsoft.DequantizeLinear': own('DequantizeLinear'),
    'com.microsoft.MatMulNBits': matmulNBits,
    'com.microsoft.GatherBlockQuantized': gatherBlock,
  },
};
