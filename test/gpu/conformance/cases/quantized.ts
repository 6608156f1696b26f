/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { AttributeValue } from '../../../../src/onnx/index.ts';
import type { DataType } from '../../../../src/tensor/index.ts';
import { conformanceCase, filled, given, known, tensor, type Case, type CaseInput, type CaseOptions } from '../case.ts';

type Attributes = Record<string, AttributeValue>;
const bytes = ['UINT8', 'INT8'] as const;

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1, scale = 2): CaseInput =>
  given(filled(datatype, shape, seed, scale));
const list = (datatype: DataType, ...values: number[]): CaseInput => given(tensor(datatype, [values.length], values));
const one = (datatype: DataType, value: number): CaseInput => known(tensor(datatype, [], [value]));
/** Computed at run time, as in dynamic quantisation. */
const made = (datatype: DataType, value: number): CaseInput => given(tensor(datatype, [], [value]));

const linear = (
  operator: string,
  name: string,
  inputs: readonly (CaseInput | undefined)[],
  output: DataType,
  attributes: Attributes = {},
  opset = 13,
): Case => conformanceCase(operator, name, inputs, { attributes, outputs: [output], opset });

/** Positive scales. */
const scales = (shape: readonly number[], datatype: DataType = 'FP32'): CaseInput => {
  const count = shape.reduce((product, size) => product * size, 1);
  return given(
    tensor(
      datatype,
      shape,
      Array.from({ length: count }, (_, index) => 0.01 + (index % 7) * 0.013),
    ),
  );
};

const linears: readonly Case[] = [
  ...bytes.flatMap((datatype) => [
    linear('QuantizeLinear', 'one scale', [x([3, 7], 'FP32', 1, 4), one('FP32', 0.02), one(datatype, 7)], datatype),
    linear('QuantizeLinear', 'made scale', [x([3, 7]), made('FP32', 0.03), made(datatype, 7)], datatype),
    linear('QuantizeLinear', 'axis 1', [x([2, 5, 3]), scales([5]), list(datatype, 1, 2, 3, 4, 5)], datatype),
    linear('QuantizeLinear', 'axis 0', [x([5, 3]), scales([5]), list(datatype, 1, 2, 3, 4, 5)], datatype, { axis: 0 }),
    linear('QuantizeLinear', 'axis -1', [x([3, 5]), scales([5]), list(datatype, 1, 2, 3, 4, 5)], datatype, {
      axis: -1,
    }),
    linear('QuantizeLinear', 'axis -2', [x([5, 3]), scales([5]), list(datatype, 1, 2, 3, 4, 5)], datatype, {
      axis: -2,
    }),
    linear(
      'QuantizeLinear',
      'blocks',
      [x([2, 6, 3]), scales([2, 3, 3]), x([2, 3, 3], datatype, 5, 0.2)],
      datatype,
      { axis: 1, block_size: 2 },
      21,
    ),
    linear('DequantizeLinear', 'one scale', [x([3, 7], datatype), one('FP32', 0.02), one(datatype, 7)], 'FP32'),
    linear('DequantizeLinear', 'without zero', [x([3, 7], datatype), one('FP32', 0.02)], 'FP32'),
    linear(
      'DequantizeLinear',
      'axis 1',
      [x([2, 5, 3, 2], datatype), scales([5]), list(datatype, 1, 2, 3, 4, 5)],
      'FP32',
    ),
    linear('DequantizeLinear', 'axis 0', [x([5, 3], datatype), scales([5])], 'FP32', { axis: 0 }),
    linear('DequantizeLinear', 'axis -1', [x([3, 5], datatype), scales([5])], 'FP32', { axis: -1 }),
    linear(
      'DequantizeLinear',
      'blocks',
      [x([2, 6, 3], datatype), scales([2, 3, 3]), x([2, 3, 3], datatype, 5, 0.2)],
      'FP32',
      { axis: 1, block_size: 2 },
      21,
    ),
    linear(
      'DequantizeLinear',
      'blocks, a short one',
      [x([2, 5], datatype), scales([2, 3])],
      'FP32',
      { axis: 1, block_size: 2 },
      21,
    ),
  ]),
  ...(['Quantize', 'Dequantize'] as const).map((name) => {
    const [from, to] = name === 'Quantize' ? (['FP32', 'INT8'] as const) : (['INT8', 'FP32'] as const);
    const inputs = [x([3, 5], from), scales([5]), list('INT8', 1, 2, 3, 4, 5)];
    return conformanceCase(`turntable.${name}`, 'a scale to a column', inputs, {
      outputs: [to],
      reference: (graph, given) => [graph.node(`${name}Linear`, given, { axis: 1 })],
    });
  }),
  linear(
    'DequantizeLinear',
    'a last block that is cut',
    [x([2, 5, 3], 'INT8'), scales([2, 3, 3]), x([2, 3, 3], 'INT8', 5, 0.2)],
    'FP32',
    { axis: 1, block_size: 2 },
    21,
  ),
  linear('QuantizeLinear', 'without zero', [x([3, 7]), one('FP32', 0.02)], 'UINT8'),
  linear('QuantizeLinear', 'INT16', [x([3, 7]), one('FP32', 0.001), one('INT16', 70)], 'INT16', {}, 21),
  linear('QuantizeLinear', 'UINT16', [x([3, 7]), one('FP32', 0.001), one('UINT16', 700)], 'UINT16', {}, 21),
  linear('QuantizeLinear', 'named type', [x([3, 7]), one('FP32', 0.02)], 'INT8', { output_dtype: 3 }, 21),
  linear('DequantizeLinear', 'INT32', [x([3, 7], 'INT32'), one('FP32', 0.02)], 'FP32'),
  linear('DequantizeLinear', 'INT32, axis 0', [x([5, 2], 'INT32'), scales([5])], 'FP32', { axis: 0 }),
  linear('DequantizeLinear', 'INT16', [x([3, 7], 'INT16'), one('FP32', 0.02), one('INT16', 3)], 'FP32', {}, 21),
  linear('DequantizeLinear', 'UINT16', [x([3, 7], 'UINT16'), one('FP32', 0.02), one('UINT16', 3)], 'FP32', {}, 21),
  ...['com.microsoft.QuantizeLinear', 'com.microsoft.DequantizeLinear'].flatMap((operator) => {
    const quantizes = operator.includes('.Quantize');
    const [from, to] = quantizes ? (['FP32', 'UINT8'] as const) : (['UINT8', 'FP32'] as const);
    return [
      linear(operator, 'one scale', [x([3, 7], from), one('FP32', 0.02), one('UINT8', 7)], to),
      linear(operator, 'axis 0', [x([5, 3], from), scales([5]), list('UINT8', 1, 2, 3, 4, 5)], to, { axis: 0 }),
    ];
  }),
];

const dynamic = (name: string, input: CaseInput): Case =>
  conformanceCase('DynamicQuantizeLinear', name, [input], { outputs: ['UINT8', 'FP32', 'UINT8'] });

const dynamics: readonly Case[] = [
  dynamic('both signs', x([3, 7])),
  dynamic('many', x([3, 40, 100])),
  dynamic('above 0', given(tensor('FP32', [4], [1, 2, 3, 5]))),
  dynamic('below 0', given(tensor('FP32', [4], [-1, -2, -3, -5]))),
  dynamic('nothing but 0', given(tensor('FP32', [3], [0, 0, 0]))),
  dynamic('a scalar', given(tensor('FP32', [], [3]))),
];

function integers(
  operator: string,
  a: readonly number[],
  b: readonly number[],
  zeros: readonly (CaseInput | undefined)[] = [],
  types: readonly [DataType, DataType] = ['UINT8', 'INT8'],
): Case {
  const name = `${types.join(' by ')} [${a.join(',')}] by [${b.join(',')}]`;
  return conformanceCase(operator, name, [x(a, types[0]), x(b, types[1], 2), ...zeros], { outputs: ['INT32'] });
}

const products: readonly Case[] = [
  ...bytes.flatMap((a) =>
    bytes.flatMap((b) => [
      integers('MatMulInteger', [4, 33], [33, 5], [], [a, b]),
      integers('MatMulInteger', [4, 3], [3, 5], [made(a, 12), made(b, 5)], [a, b]),
    ]),
  ),
  integers('MatMulInteger', [2, 3, 4], [4, 5], [one('UINT8', 9)]),
  integers('MatMulInteger', [2, 3, 4], [2, 4, 5], [one('UINT8', 9), one('INT8', -3)]),
  integers('MatMulInteger', [2, 1, 3, 4], [5, 4, 2], [one('UINT8', 9), one('INT8', -3)]),
  integers('MatMulInteger', [3, 4], [4, 5], [one('UINT8', 9), list('INT8', 1, -2, 3, -4, 5)]),
  integers('MatMulInteger', [4], [4, 5], [one('UINT8', 9)]),
  integers('MatMulInteger', [3, 4], [4], []),
  integers('MatMulInteger', [0, 4], [4, 5], []),
  integers('MatMulInteger', [70, 40], [40, 50], [one('UINT8', 9)]),
  integers('com.microsoft.MatMulInteger16', [3, 4], [4, 5], [], ['INT16', 'INT16']),
];

/** Halves may be rounded the other way, since ONNX Runtime multiplies by the scales in another order. */
const rounding = { tolerance: 0.06 };

const qlinear = (
  name: string,
  a: readonly number[],
  b: readonly number[],
  bScale: CaseInput,
  bZero: CaseInput,
  type: DataType = 'UINT8',
): Case =>
  conformanceCase(
    'QLinearMatMul',
    `${name}, ${type}`,
    [
      x(a, type),
      one('FP32', 0.02),
      one(type, 20),
      x(b, bZero.tensor.datatype, 2),
      bScale,
      bZero,
      one('FP32', 0.09),
      one(type, 30),
    ],
    { outputs: [type], ...rounding },
  );

const qlinears: readonly Case[] = [
  ...bytes.flatMap((type) => [
    qlinear('matrices', [4, 9], [9, 5], one('FP32', 0.03), one(type, 3), type),
    qlinear('items', [2, 4, 9], [2, 9, 5], one('FP32', 0.03), one(type, 3), type),
  ]),
  qlinear('signed weights', [4, 9], [9, 5], one('FP32', 0.03), one('INT8', 3)),
  qlinear('by column', [4, 9], [9, 3], scales([3]), list('INT8', 1, 2, 3)),
  ...(['FP32'] as const).flatMap((datatype) =>
    bytes.map((type) =>
      conformanceCase(
        'com.microsoft.MatMulIntegerToFloat',
        `${type} weights`,
        [
          x([4, 9], 'UINT8'),
          x([9, 5], type, 2),
          one(datatype, 0.02),
          scales([5]),
          one('UINT8', 9),
          list(type, 1, 2, 3, 4, 5),
          x([5], 'FP32', 3),
        ],
        { outputs: [datatype] },
      ),
    ),
  ),
  conformanceCase(
    'com.microsoft.MatMulIntegerToFloat',
    'without zeros',
    [x([2, 4, 9], 'UINT8'), x([9, 5], 'INT8', 2), made('FP32', 0.02), made('FP32', 0.01)],
    { outputs: ['FP32'] },
  ),
  ...bytes.flatMap((type) => [
    conformanceCase(
      'com.microsoft.DynamicQuantizeMatMul',
      type,
      [x([4, 9]), x([9, 5], type, 2), one('FP32', 0.02), one(type, 3)],
      {
        outputs: ['FP32'],
      },
    ),
    conformanceCase(
      'com.microsoft.DynamicQuantizeMatMul',
      `${type} by column, bias`,
      [x([2, 4, 9]), x([9, 5], type, 2), scales([5]), list(type, 1, 2, 3, 4, 5), x([5], 'FP32', 3)],
      { outputs: ['FP32'] },
    ),
  ]),
  ...[0, 1].flatMap((transA) =>
    [0, 1].flatMap((transB) => [
      conformanceCase(
        'com.microsoft.QGemm',
        `to floats, ${transA} ${transB}`,
        [
          x(transA === 1 ? [9, 4] : [4, 9], 'UINT8'),
          one('FP32', 0.02),
          one('UINT8', 9),
          x(transB === 1 ? [5, 9] : [9, 5], 'INT8', 2),
          one('FP32', 0.03),
          one('INT8', 4),
        ],
        { attributes: { transA, transB, alpha: { float: 0.5 } }, outputs: ['FP32'] },
      ),
      conformanceCase(
        'com.microsoft.QGemm',
        `to 8 bits, ${transA} ${transB}`,
        [
          x(transA === 1 ? [9, 4] : [4, 9], 'UINT8'),
          one('FP32', 0.02),
          one('UINT8', 9),
          x(transB === 1 ? [5, 9] : [9, 5], 'INT8', 2),
          scales([5]),
          list('INT8', 1, 2, 3, 4, 5),
          x([5], 'INT32', 4, 20),
          one('FP32', 0.05),
          one('UINT8', 40),
        ],
        { attributes: { transA, transB }, outputs: ['UINT8'], ...rounding },
      ),
    ]),
  ),
];

const convolutions: readonly Case[] = [
  ...(
    [
      ['plain', [1, 2, 5, 5], [3, 2, 3, 3], {}],
      ['steps and pads', [2, 2, 7, 6], [3, 2, 3, 2], { strides: [2, 1], pads: [1, 0, 1, 1] }],
      ['dilations', [1, 1, 8, 8], [2, 1, 3, 3], { dilations: [2, 2], pads: [2, 2, 2, 2] }],
      ['groups', [2, 4, 5, 5], [6, 2, 2, 2], { group: 2 }],
      ['every channel its own', [1, 4, 5, 5], [4, 1, 3, 3], { group: 4, pads: [1, 1, 1, 1] }],
      ['pointwise', [2, 3, 4, 4], [5, 3, 1, 1], {}],
      ['same', [1, 2, 5, 6], [2, 2, 3, 3], { auto_pad: 'SAME_UPPER', strides: [2, 2] }],
      ['one axis', [1, 2, 9], [2, 2, 3], { pads: [1, 1] }],
    ] as const
  ).flatMap(([name, shape, weight, attributes]) => [
    conformanceCase(
      'ConvInteger',
      name,
      [x(shape, 'UINT8'), x(weight, 'UINT8', 2), made('UINT8', 7), one('UINT8', 2)],
      {
        attributes,
        outputs: ['INT32'],
      },
    ),
    ...(['INT8', 'UINT8'] as const).map((type) =>
      conformanceCase(
        'QLinearConv',
        `${name}, ${type}`,
        [
          x(shape, 'UINT8'),
          one('FP32', 0.02),
          one('UINT8', 20),
          x(weight, type, 2),
          scales([weight[0]]),
          known(
            tensor(
              type,
              [weight[0]],
              Array.from({ length: weight[0] }, () => 0),
            ),
          ),
          one('FP32', 0.11),
          one('UINT8', 30),
          x([weight[0]], 'INT32', 4, 30),
        ],
        { attributes, outputs: ['UINT8'], ...rounding },
      ),
    ),
  ]),
  conformanceCase('ConvInteger', 'without zeros', [x([1, 2, 5, 5], 'UINT8'), x([3, 2, 3, 3], 'UINT8', 2)], {
    outputs: ['INT32'],
  }),
  conformanceCase(
    'QLinearConv',
    'INT8 all through',
    [
      x([1, 2, 5, 5], 'INT8'),
      one('FP32', 0.02),
      one('INT8', 3),
      x([3, 2, 3, 3], 'INT8', 2),
      one('FP32', 0.02),
      one('INT8', 0),
      one('FP32', 0.11),
      one('INT8', -3),
    ],
    { attributes: { pads: [1, 1, 1, 1] }, outputs: ['INT8'], ...rounding },
  ),
  conformanceCase(
    'com.microsoft.QLinearConv',
    'channels first',
    [
      x([1, 2, 5, 5], 'UINT8'),
      one('FP32', 0.02),
      one('UINT8', 3),
      x([3, 2, 3, 3], 'UINT8', 2),
      one('FP32', 0.02),
      one('UINT8', 5),
      one('FP32', 0.11),
      one('UINT8', 3),
    ],
    { outputs: ['UINT8'], ...rounding },
  ),
];

const between = (
  operator: string,
  name: string,
  inputs: readonly (CaseInput | undefined)[],
  type: DataType,
  options: CaseOptions = {},
): Case =>
  conformanceCase(`com.microsoft.${operator}`, `${name}, ${type}`, inputs, {
    outputs: [type],
    ...rounding,
    ...options,
  });

const betweens: readonly Case[] = bytes.flatMap((type) => {
  const [s1, s2, s3] = [one('FP32', 0.02), one('FP32', 0.03), one('FP32', 0.05)];
  const [z1, z2, z3] = [one(type, 4), one(type, 9), one(type, 20)];
  return [
    ...['QLinearAdd', 'QLinearMul'].flatMap((operator) => [
      between(operator, 'same shapes', [x([3, 5], type), s1, z1, x([3, 5], type, 2), s2, z2, s3, z3], type),
      between(operator, 'broadcast', [x([2, 3, 5], type), s1, z1, x([3, 1], type, 2), s2, z2, s3, z3], type),
    ]),
    between('QLinearSigmoid', 'all', [x([3, 5], type), s1, z1, one('FP32', 0.004), z3], type),
    between('QLinearLeakyRelu', 'all', [x([3, 5], type), s1, z3, s2, z2], type, {
      attributes: { alpha: { float: 0.1 } },
    }),
    between('QLinearWhere', 'all', [x([3, 5], 'BOOL'), x([3, 5], type), s1, z1, x([5], type, 2), s2, z2, s3, z3], type),
    between('QLinearAveragePool', 'pads', [x([1, 2, 6, 6], type), s1, z1, one('FP32', 0.01), z2], type, {
      attributes: { kernel_shape: [3, 3], strides: [2, 2], pads: [1, 1, 1, 1] },
    }),
    between('QLinearGlobalAveragePool', 'all', [x([2, 3, 4, 5], type), s1, z1, s2, z2], type),
    between(
      'QLinearConcat',
      'three',
      [s3, z3, x([2, 3], type), s1, z1, x([2, 1], type, 2), s2, z2, x([2, 4], type, 3), s1, z2],
      type,
      {
        attributes: { axis: 1 },
      },
    ),
    between(
      'QLinearSoftmax',
      'last axis',
      [x([3, 5], type, 1, 1), s1, z1, one('FP32', 1 / 256), one(type, type === 'INT8' ? -128 : 0)],
      type,
      {
        attributes: { axis: 1, opset: 13 },
      },
    ),
  ];
});

const all = (shape: readonly number[], seed: number): CaseInput =>
  given(
    tensor(
      'UINT8',
      shape,
      Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => (i * 37 + seed * 11) % 256),
    ),
  );

function blockwise(
  name: string,
  rows: readonly number[],
  sizes: { readonly n: number; readonly k: number; readonly bits?: number; readonly block?: number },
  zeros: 'none' | 'packed' | 'floats' = 'none',
  bias = false,
): Case {
  const { n, k, bits = 4, block = 16 } = sizes;
  const blocks = Math.ceil(k / block);
  const packedZeros = Math.ceil((blocks * bits) / 8);
  return conformanceCase(
    'com.microsoft.MatMulNBits',
    name,
    [
      x([...rows, k]),
      all([n, blocks, (block * bits) / 8], 1),
      scales([n * blocks]),
      zeros === 'none' ? undefined : zeros === 'packed' ? all([n * packedZeros], 2) : x([n * blocks], 'FP32', 3, 4),
      undefined,
      bias ? x([n], 'FP32', 4) : undefined,
    ],
    { attributes: { N: n, K: k, bits, block_size: block }, tolerance: 1e-4 },
  );
}

const weights: readonly Case[] = [
  blockwise('4 bits', [3], { n: 8, k: 32 }),
  blockwise('4 bits, zeros', [2, 3], { n: 8, k: 64 }, 'packed'),
  blockwise('4 bits, odd blocks, zeros', [3], { n: 5, k: 48 }, 'packed'),
  blockwise('4 bits, a short block', [3], { n: 5, k: 40 }),
  blockwise('8 bits', [3], { n: 8, k: 32, bits: 8 }),
  blockwise('8 bits, zeros', [3], { n: 8, k: 64, bits: 8 }, 'packed'),
  blockwise('4 bits, zeros as floats', [3], { n: 8, k: 64 }, 'floats'),
  blockwise('bias', [3], { n: 8, k: 64 }, 'none', true),
  blockwise('many rows', [80], { n: 8, k: 64 }, 'packed'),
  ...[4, 8].map((bits) =>
    conformanceCase(
      'com.microsoft.GatherBlockQuantized',
      `${bits} bits`,
      [
        x([6, bits * 4], 'UINT8'),
        given(tensor('INT64', [2, 2], [0, 5, 3, 1])),
        scales([6, 2]),
        x([6, bits === 4 ? 1 : 2], 'UINT8', 5),
      ],
      { attributes: { bits, block_size: 16, gather_axis: 0, quantize_axis: 1 }, outputs: ['FP32'] },
    ),
  ),
];

export const quantizedCases: readonly Case[] = [
  ...linears,
  ...dynamics,
  ...products,
  ...qlinears,
  ...convolutions,
  ...betweens,
  ...weights,
];
