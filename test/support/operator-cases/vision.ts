/** Cases of operators that sample images. */
import { filled, given, ints, operatorCase, tensor, type Case, type CaseInput } from './case.ts';
import type { Attributes, Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[], seed = 1, scale = 1): CaseInput => given(filled('FP32', shape, seed, scale));

const aligned = (name: string, attributes: Attributes): Case =>
  operatorCase(
    'RoiAlign',
    name,
    [
      x([2, 3, 8, 9]),
      given(tensor('FP32', [3, 4], [1, 1.5, 6, 6.5, 0, 0, 3, 4, 2.5, 3, 7.8, 7.2])),
      given(tensor('INT64', [3], [0, 1, 1])),
    ],
    { attributes: { output_height: 2, output_width: 3, mode: 'max', ...attributes }, opset: 16 },
  );

const cases: readonly Case[] = [
  ...['GridSample', 'com.microsoft.GridSample'].map((operator) =>
    operatorCase(operator, 'bicubic, reflected several times', [x([1, 2, 4, 5]), x([1, 2, 3, 2], 2, 5)], {
      attributes: { mode: 'bicubic', padding_mode: 'reflection' },
    }),
  ),
  operatorCase('AffineGrid', 'a wide volume', [x([1, 3, 4]), ints(1, 1, 2, 3, 33)], { opset: 20 }),
  // Of several samples ONNX Runtime takes the largest of the weighted neighbours, not of the samples.
  aligned('the largest of 4 samples', { sampling_ratio: 2 }),
  aligned('the largest, ratio found', {}),
  aligned('the largest, scaled', { spatial_scale: { float: 0.5 }, sampling_ratio: 2 }),
  aligned('the largest, output_half_pixel', { coordinate_transformation_mode: 'output_half_pixel' }),
  operatorCase(
    'MaxRoiPool',
    'a region beyond the image',
    [x([2, 1, 8, 9]), given(tensor('FP32', [2, 5], [0, 2, 2, 12, 12, 1, 0, 0, 6, 20]))],
    { attributes: { pooled_shape: [3, 2], spatial_scale: { float: 0.5 } } },
  ),
  operatorCase(
    'DeformConv',
    'without attributes',
    [x([1, 2, 5, 5]), x([3, 2, 2, 2], 2), x([1, 8, 4, 4], 3), x([3], 4)],
    { opset: 19 },
  ),
];

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

export const vision: FamilyCases = {
  named: cases,
  drawn: {
    GridSample: gridSample('GridSample'),
    'com.microsoft.GridSample': gridSample('com.microsoft.GridSample'),
    AffineGrid: affineGrid,
    RoiAlign: roiAlign,
    MaxRoiPool: maxRoiPool,
    DeformConv: deformConv,
  },
};
