/** Random images, spectra and fused products: operators that are neither elementwise nor movement. */
import type { CaseInput } from '../../gpu/conformance/case.ts';
import type { Attributes, Draw, Drawn } from './draw.ts';

const gridSample =
  (operator: string): Drawn =>
  (draw) => {
    const own = operator === 'GridSample';
    const opset = own ? draw.pick([16, 20, 22]) : 17;
    const axes = own && opset >= 20 && draw.chance(0.3) ? 3 : 2;
    const [items, channels] = [draw.int(1, 2), draw.int(1, 3)];
    const linear = opset >= 20 ? 'linear' : 'bilinear';
    const cubic = opset >= 20 ? 'cubic' : 'bicubic';
    const modes = axes === 3 ? [linear, 'nearest'] : [linear, 'nearest', cubic];
    return draw.case(
      operator,
      [
        draw.x('FP32', [items, channels, ...draw.list(axes, 1, 6)]),
        draw.x('FP32', [items, ...draw.list(axes, 1, 4), axes], 1.7),
      ],
      {
        attributes: draw.some(
          {
            mode: draw.pick(modes),
            padding_mode: draw.pick(['zeros', 'border', 'reflection']),
            align_corners: draw.int(0, 1),
          },
          0.7,
        ),
        opset,
      },
    );
  };

const affineGrid: Drawn = (draw) => {
  const axes = draw.pick([2, 3]);
  const items = draw.int(1, 3);
  return draw.case(
    'AffineGrid',
    [draw.x('FP32', [items, axes, axes + 1]), draw.ints([items, draw.int(1, 3), ...draw.list(axes, 1, 5)])],
    { attributes: draw.some({ align_corners: draw.int(0, 1) }), opset: 20 },
  );
};

const float = (value: number): { readonly float: number } => ({ float: value });

const roiAlign: Drawn = (draw) => {
  const [items, count] = [draw.int(1, 2), draw.int(1, 4)];
  const corners = Array.from({ length: count }, () => {
    const [x, y] = [draw.int(0, 40) / 10, draw.int(0, 40) / 10];
    return [x, y, x + draw.int(1, 50) / 10, y + draw.int(1, 50) / 10];
  }).flat();
  const opset = draw.pick([10, 16, 22]);
  return draw.case(
    'RoiAlign',
    [
      draw.x('FP32', [items, draw.int(1, 3), draw.int(3, 9), draw.int(3, 9)]),
      draw.values('FP32', [count, 4], corners, false),
      draw.values('INT64', [count], draw.list(count, 0, items - 1), false),
    ],
    {
      attributes: {
        output_height: draw.int(1, 3),
        output_width: draw.int(1, 3),
        ...draw.some({ sampling_ratio: draw.int(0, 3), spatial_scale: float(0.7) }),
        ...(draw.chance(0.3) ? { mode: 'max', sampling_ratio: 1 } : {}),
        ...(opset >= 16
          ? draw.some({ coordinate_transformation_mode: draw.pick(['half_pixel', 'output_half_pixel']) })
          : {}),
      },
      opset,
    },
  );
};

const maxRoiPool: Drawn = (draw) => {
  const [items, count] = [draw.int(1, 2), draw.int(1, 4)];
  const rois = Array.from({ length: count }, () => {
    const [x, y] = [draw.int(0, 4), draw.int(0, 4)];
    return [draw.int(0, items - 1), x, y, x + draw.int(0, 6), y + draw.int(0, 6)];
  }).flat();
  return draw.case(
    'MaxRoiPool',
    [
      draw.x('FP32', [items, draw.int(1, 3), draw.int(3, 9), draw.int(3, 9)]),
      draw.values('FP32', [count, 5], rois, false),
    ],
    { attributes: { pooled_shape: draw.list(2, 1, 3), ...draw.some({ spatial_scale: float(0.5) }) } },
  );
};

const deformConv: Drawn = (draw) => {
  const [items, group, perGroup, sets] = [
    draw.int(1, 2),
    draw.pick([1, 1, 2]),
    draw.pick([2, 4]),
    draw.pick([1, 1, 2]),
  ];
  const kernel = draw.list(2, 1, 3);
  const sizes = draw.list(2, 4, 7);
  const strides = draw.list(2, 1, 2);
  const pads = draw.list(4, 0, 1);
  const out = sizes.map(
    (size, axis) => Math.floor((size + pads[axis]! + pads[axis + 2]! - kernel[axis]!) / strides[axis]!) + 1,
  );
  const filters = group * draw.int(1, 3);
  const taps = kernel[0]! * kernel[1]!;
  return draw.case(
    'DeformConv',
    [
      draw.x('FP32', [items, group * perGroup, ...sizes]),
      draw.w('FP32', [filters, perGroup, ...kernel]),
      draw.x('FP32', [items, sets * taps * 2, ...out]),
      draw.chance(0.5) ? draw.w('FP32', [filters]) : undefined,
      ...(draw.chance(0.5) ? [draw.x('FP32', [items, sets * taps, ...out])] : []),
    ],
    { attributes: { group, offset_group: sets, strides, pads, kernel_shape: kernel }, opset: draw.pick([19, 22]) },
  );
};

const reverseSequence: Drawn = (draw) => {
  const shape = draw.filledShape(2, 4);
  const time = draw.int(0, 1);
  return draw.case(
    'ReverseSequence',
    [
      draw.x(draw.pick(['FP32', 'FP16', 'INT64', 'UINT8'] as const), shape),
      draw.values('INT64', [shape[1 - time]!], draw.list(shape[1 - time]!, 1, shape[time]!), false),
    ],
    { attributes: { time_axis: time, batch_axis: 1 - time } },
  );
};

const eyeLike: Drawn = (draw) =>
  draw.case('EyeLike', [draw.x(draw.pick(['FP32', 'INT32', 'INT64', 'FP64'] as const), draw.filledShape(2, 2))], {
    attributes: draw.some({ k: draw.int(-3, 3), dtype: draw.pick([1, 6, 7, 11]) }),
    opset: draw.pick([9, 22]),
  });

const maxUnpool: Drawn = (draw) => {
  const sizes = draw.list(2, 1, 4);
  const [items, channels] = [draw.int(1, 2), draw.int(1, 2)];
  const shape = [items, channels, ...sizes];
  const count = shape.reduce((product, size) => product * size, 1);
  // Unique places for all elements.
  return draw.case(
    'MaxUnpool',
    [
      draw.x('FP32', shape),
      draw.values(
        'INT64',
        shape,
        Array.from({ length: count }, (_, place) => 4 * place + draw.int(0, 3)),
        false,
      ),
    ],
    { attributes: { kernel_shape: [2, 2], strides: [2, 2] }, opset: draw.pick([11, 22]) },
  );
};

const product = (list: readonly number[]): number => list.reduce((a, b) => a * b, 1);

const col2im: Drawn = (draw) => {
  const axes = draw.pick([2, 2, 3]);
  const image = draw.list(axes, 3, 6);
  const block = draw.list(axes, 1, 3);
  const strides = draw.list(axes, 1, 2);
  const dilations = draw
    .list(axes, 1, 2)
    .map((dilation, axis) => ((block[axis]! - 1) * dilation < image[axis]! ? dilation : 1));
  const pads = draw.list(2 * axes, 0, 1);
  const counts = image.map((size, axis) => {
    const span = dilations[axis]! * (block[axis]! - 1) + 1;
    return Math.floor((size + pads[axis]! + pads[axis + axes]! - span) / strides[axis]!) + 1;
  });
  return draw.case(
    'Col2Im',
    [
      draw.x('FP32', [draw.int(1, 2), draw.int(1, 3) * product(block), product(counts)]),
      draw.ints(image),
      draw.ints(block),
    ],
    { attributes: { strides, dilations, pads }, opset: 18 },
  );
};

const dft: Drawn = (draw) => {
  const opset = draw.pick([17, 20, 20]);
  const complex = draw.chance(0.5);
  const shape = [draw.int(1, 3), draw.int(2, 12), ...(draw.chance(0.4) ? [draw.int(2, 9)] : []), complex ? 2 : 1];
  const axis = draw.int(0, shape.length - 2);
  const attributes: Attributes = complex ? draw.some({ inverse: 1 }) : draw.some({ onesided: 1 });
  const length = draw.chance(0.3) ? draw.values('INT64', [], [draw.int(2, 12)]) : undefined;
  const type = draw.pick(['FP32', 'FP32', 'FP64'] as const);
  return draw.case('DFT', [draw.x(type, shape), length, ...(opset === 20 ? [draw.values('INT64', [], [axis])] : [])], {
    attributes: { ...attributes, ...(opset === 17 ? { axis } : {}) },
    opset,
  });
};

/**
 * Real signals only: for complex ones ONNX Runtime 1.30 reads memory after the signal, and answers differently each
 * time.
 */
const stft: Drawn = (draw) => {
  const length = draw.int(4, 9);
  const window = draw.chance(0.6);
  return draw.case(
    'STFT',
    [
      draw.x('FP32', [draw.int(1, 2), draw.int(12, 30), 1]),
      draw.values('INT64', [], [draw.int(1, 5)]),
      window ? draw.w('FP32', [length]) : undefined,
      ...(window && draw.chance(0.5) ? [] : [draw.values('INT64', [], [length])]),
    ],
    { attributes: draw.some({ onesided: draw.int(0, 1) }) },
  );
};

const det: Drawn = (draw) => {
  const size = draw.int(1, 5);
  return draw.case('Det', [draw.x('FP32', [...draw.filledShape(0, 2, 3), size, size])], { opset: draw.pick([11, 22]) });
};

const cumProd: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3, 20);
  return draw.case('CumProd', [draw.x('FP32', shape, 1), draw.values('INT64', [], [draw.axis(shape.length)])], {
    attributes: draw.some({ exclusive: 1, reverse: 1 }),
    opset: 26,
  });
};

const bitCast: Drawn = (draw) =>
  draw.case('BitCast', [draw.x('FP32', draw.shape(0, 3))], { attributes: { to: draw.pick([6, 12]) }, opset: 26 });

const hardmax: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  return draw.case('Hardmax', [draw.x('FP32', shape)], {
    attributes: shape.length > 1 ? draw.some({ axis: draw.axis(shape.length) }) : { axis: 0 },
    opset: draw.pick([11, 13]),
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

const fusedGemm: Drawn = (draw) => {
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

const fusedConv: Drawn = (draw) => {
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

const scatter: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3);
  const axis = draw.axis(shape.length);
  // Each line of indices names a place once.
  const indices = shape.with(axis < 0 ? axis + shape.length : axis, 1);
  const count = indices.reduce((product, size) => product * size, 1);
  return draw.case(
    'Scatter',
    [
      draw.x('FP32', shape),
      draw.values('INT64', indices, draw.list(count, 0, shape.at(axis)! - 1), false),
      draw.x('FP32', indices),
    ],
    { attributes: { axis }, opset: 9 },
  );
};

export const vision: Readonly<Record<string, Drawn>> = {
  GridSample: gridSample('GridSample'),
  'com.microsoft.GridSample': gridSample('com.microsoft.GridSample'),
  AffineGrid: affineGrid,
  RoiAlign: roiAlign,
  MaxRoiPool: maxRoiPool,
  DeformConv: deformConv,
  ReverseSequence: reverseSequence,
  EyeLike: eyeLike,
  MaxUnpool: maxUnpool,
  Col2Im: col2im,
  DFT: dft,
  STFT: stft,
  Det: det,
  CumProd: cumProd,
  BitCast: bitCast,
  Hardmax: hardmax,
  Einsum: einsum,
  Scatter: scatter,
  'com.microsoft.FusedMatMul': fusedMatmul('com.microsoft.FusedMatMul'),
  'com.microsoft.TransposeMatMul': fusedMatmul('com.microsoft.TransposeMatMul'),
  'com.microsoft.FusedGemm': fusedGemm,
  'com.microsoft.FusedConv': fusedConv,
};
