/** Random quantised tensors: scales, zero points, 8-bit products and convolutions. */
import type { DataType } from '../../../src/tensor/index.ts';
import type { CaseInput } from '../../gpu/conformance/case.ts';
import type { Attributes, Draw, Drawn } from './draw.ts';

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

const between =
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

export const quantized: Readonly<Record<string, Drawn>> = {
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
  'com.microsoft.QLinearAdd': between('QLinearAdd'),
  'com.microsoft.QLinearMul': between('QLinearMul'),
  'com.microsoft.QLinearSigmoid': between('QLinearSigmoid'),
  'com.microsoft.QLinearLeakyRelu': between('QLinearLeakyRelu', (draw) => draw.some({ alpha: { float: 0.2 } })),
  'com.microsoft.QLinearWhere': qlinearWhere,
  'com.microsoft.QLinearConcat': qlinearConcat,
  'com.microsoft.QLinearAveragePool': qlinearPool('QLinearAveragePool'),
  'com.microsoft.QLinearGlobalAveragePool': qlinearPool('QLinearGlobalAveragePool'),
  'com.microsoft.QLinearSoftmax': qlinearSoftmax,
  'com.microsoft.QuantizeLinear': own('QuantizeLinear'),
  'com.microsoft.DequantizeLinear': own('DequantizeLinear'),
  'com.microsoft.MatMulNBits': matmulNBits,
  'com.microsoft.GatherBlockQuantized': gatherBlock,
};
