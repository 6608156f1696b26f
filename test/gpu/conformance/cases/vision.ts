/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { AttributeValue } from '../../../../src/onnx/index.ts';
import type { DataType } from '../../../../src/tensor/index.ts';
import { conformanceCase, filled, given, ints, known, tensor, type Case, type CaseInput } from '../case.ts';

type Attributes = Record<string, AttributeValue>;

const x = (shape: readonly number[], seed = 1, datatype: DataType = 'FP32', scale = 1): CaseInput =>
  given(filled(datatype, shape, seed, scale));
const floats = (values: readonly number[]): CaseInput => known(tensor('FP32', [values.length], values));

const resize = (
  name: string,
  shape: readonly number[],
  by: { readonly scales: readonly number[] } | { readonly sizes: readonly number[] },
  attributes: Attributes,
  options: { readonly roi?: readonly number[]; readonly opset?: number; readonly datatype?: DataType } = {},
): Case =>
  conformanceCase(
    'Resize',
    name,
    [
      x(shape, 1, options.datatype ?? 'FP32', 2),
      options.roi === undefined ? undefined : floats(options.roi),
      'scales' in by ? floats(by.scales) : undefined,
      ...('sizes' in by ? [ints(...by.sizes)] : []),
    ],
    { attributes, opset: options.opset ?? 19 },
  );

const resizes: readonly Case[] = [
  ...['half_pixel', 'align_corners', 'asymmetric', 'pytorch_half_pixel', 'half_pixel_symmetric'].flatMap((mode) => [
    resize(
      `cubic up, ${mode}`,
      [1, 2, 4, 5],
      { scales: [1, 1, 2, 1.6] },
      { mode: 'cubic', coordinate_transformation_mode: mode },
    ),
    resize(
      `cubic down, ${mode}`,
      [1, 2, 7, 9],
      { scales: [1, 1, 0.6, 0.7] },
      { mode: 'cubic', coordinate_transformation_mode: mode },
    ),
  ]),
  resize(
    'cubic, outside',
    [1, 1, 4, 4],
    { scales: [1, 1, 2, 2] },
    { mode: 'cubic', exclude_outside: 1, cubic_coeff_a: { float: -0.5 } },
  ),
  resize('cubic to sizes', [1, 1, 4, 4], { sizes: [1, 1, 9, 3] }, { mode: 'cubic' }),
  ...['linear', 'cubic'].flatMap((mode) => [
    resize(`${mode} smoothed`, [1, 2, 8, 9], { scales: [1, 1, 0.6, 0.5] }, { mode, antialias: 1 }),
    resize(`${mode} smoothed to sizes`, [1, 2, 8, 9], { sizes: [1, 2, 3, 4] }, { mode, antialias: 1 }),
    resize(
      `${mode} smoothed, outside`,
      [1, 2, 8, 9],
      { scales: [1, 1, 0.6, 0.5] },
      { mode, antialias: 1, exclude_outside: 1 },
    ),
    resize(`${mode} smoothed, larger`, [1, 2, 4, 5], { scales: [1, 1, 2, 1.5] }, { mode, antialias: 1 }),
  ]),
  ...['nearest', 'linear', 'cubic'].map((mode) =>
    resize(
      `${mode} crop`,
      [1, 1, 4, 5],
      { sizes: [1, 1, 3, 6] },
      { mode, coordinate_transformation_mode: 'tf_crop_and_resize', extrapolation_value: { float: 10 } },
      { roi: [0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7] },
    ),
  ),
  conformanceCase(
    'Resize',
    'a region of all axes, two of them named',
    [
      x([2, 1, 2, 5]),
      known(tensor('FP32', [8], [0, 0, 0.1, 0.1, 1, 1, 0.9, 0.9])),
      known(tensor('FP32', [2], [2.5, 1.2])),
    ],
    { attributes: { mode: 'linear', coordinate_transformation_mode: 'tf_crop_and_resize', axes: [2, 3] }, opset: 19 },
  ),
  ...['not_larger', 'not_smaller'].flatMap((keep_aspect_ratio_policy) => [
    resize(
      'aspect, nearest',
      [1, 1, 2, 4],
      { sizes: [7, 8] },
      { mode: 'nearest', axes: [2, 3], keep_aspect_ratio_policy },
    ),
    resize(
      'aspect, linear',
      [1, 1, 4, 6],
      { sizes: [3, 4] },
      { mode: 'linear', axes: [2, 3], keep_aspect_ratio_policy },
    ),
  ]),
  ...(['UINT8', 'INT8', 'INT32'] as const).flatMap((datatype) => [
    resize('nearest', [1, 1, 3, 4], { scales: [1, 1, 2, 2] }, { mode: 'nearest' }, { datatype }),
  ]),
  ...(['UINT8', 'INT32'] as const).map((datatype) =>
    resize('linear', [1, 1, 3, 4], { scales: [1, 1, 2, 2] }, { mode: 'linear' }, { datatype }),
  ),
  ...['nearest', 'linear'].flatMap((mode) => [
    conformanceCase('Upsample', mode, [x([1, 2, 3, 4]), floats([1, 1, 2, 3])], { attributes: { mode }, opset: 9 }),
  ]),
];

const sample = (
  name: string,
  shape: readonly number[],
  grid: readonly number[],
  attributes: Attributes,
  opset = 16,
  type = 'GridSample',
): Case => conformanceCase(type, name, [x(shape), x(grid, 2, 'FP32', 1.6)], { attributes, opset });

const samples: readonly Case[] = ['zeros', 'border', 'reflection'].flatMap((padding_mode) =>
  [0, 1].flatMap((align_corners) => [
    ...['bilinear', 'nearest', 'bicubic'].map((mode) =>
      sample(`${mode} ${padding_mode}`, [2, 3, 4, 5], [2, 3, 6, 2], { mode, padding_mode, align_corners }),
    ),
    ...['linear', 'nearest', 'cubic'].map((mode) =>
      sample(`${mode} ${padding_mode}, 20`, [1, 2, 4, 5], [1, 2, 3, 2], { mode, padding_mode, align_corners }, 20),
    ),
    ...['linear', 'nearest'].map((mode) =>
      sample(`3D ${mode} ${padding_mode}`, [1, 2, 3, 4, 5], [1, 2, 3, 2, 3], { mode, padding_mode, align_corners }, 20),
    ),
    sample(
      `com.microsoft ${padding_mode}`,
      [1, 2, 4, 5],
      [1, 2, 3, 2],
      { padding_mode, align_corners, mode: 'bilinear' },
      17,
      'com.microsoft.GridSample',
    ),
  ]),
);

const grids: readonly Case[] = [0, 1].flatMap((align_corners) => [
  conformanceCase('AffineGrid', '2D', [x([2, 2, 3]), ints(2, 3, 4, 5)], { attributes: { align_corners }, opset: 20 }),
  conformanceCase('AffineGrid', '3D', [x([2, 3, 4]), ints(2, 3, 4, 5, 2)], {
    attributes: { align_corners },
    opset: 20,
  }),
]);

const rois = (...values: number[]): CaseInput => given(tensor('FP32', [values.length / 4, 4], values));
const align = (name: string, attributes: Attributes, opset = 16): Case =>
  conformanceCase(
    'RoiAlign',
    name,
    [x([2, 3, 8, 9]), rois(1, 1.5, 6, 6.5, 0, 0, 3, 4, 2.5, 3, 7.8, 7.2), given(tensor('INT64', [3], [0, 1, 1]))],
    { attributes: { output_height: 2, output_width: 3, ...attributes }, opset },
  );

const regions: readonly Case[] = [
  ...['avg', 'max'].flatMap((mode) => [
    align(mode, { mode, sampling_ratio: 2 }),
    align(`${mode}, ratio found`, { mode }),
    align(`${mode}, scaled`, { mode, spatial_scale: { float: 0.5 }, sampling_ratio: 2 }),
    align(`${mode}, output_half_pixel`, { mode, coordinate_transformation_mode: 'output_half_pixel' }),
    align(`${mode}, 10`, { mode, sampling_ratio: 2 }, 10),
  ]),
  conformanceCase(
    'MaxRoiPool',
    'two regions',
    [x([1, 3, 8, 9]), given(tensor('FP32', [2, 5], [0, 1, 1, 6, 6, 0, 0, 0, 3, 4]))],
    { attributes: { pooled_shape: [2, 3] } },
  ),
  conformanceCase(
    'MaxRoiPool',
    'scaled',
    [x([2, 1, 8, 9]), given(tensor('FP32', [2, 5], [0, 2, 2, 12, 12, 1, 0, 0, 6, 20]))],
    { attributes: { pooled_shape: [3, 2], spatial_scale: { float: 0.5 } } },
  ),
];

const deform = (
  name: string,
  sizes: {
    readonly image: readonly number[];
    readonly weight: readonly number[];
    readonly out: readonly number[];
    readonly sets?: number;
  },
  attributes: Attributes,
  withMask: boolean,
): Case => {
  const { image, weight, out, sets = 1 } = sizes;
  const taps = weight[2]! * weight[3]!;
  return conformanceCase(
    'DeformConv',
    name,
    [
      x(image),
      x(weight, 2),
      x([image[0]!, sets * taps * 2, ...out], 3),
      x([weight[0]!], 4),
      ...(withMask ? [x([image[0]!, sets * taps, ...out], 5)] : []),
    ],
    { attributes: { offset_group: sets, ...attributes }, opset: 19 },
  );
};

const deforms: readonly Case[] = [
  deform('plain', { image: [1, 2, 5, 5], weight: [3, 2, 2, 2], out: [4, 4] }, {}, false),
  deform('pads, mask', { image: [2, 2, 5, 6], weight: [3, 2, 3, 3], out: [5, 6] }, { pads: [1, 1, 1, 1] }, true),
  deform(
    'groups',
    { image: [1, 4, 6, 6], weight: [4, 2, 3, 3], out: [2, 2], sets: 2 },
    { group: 2, strides: [2, 2] },
    true,
  ),
];

const shapes: readonly Case[] = [
  conformanceCase('ReverseSequence', 'time first', [x([4, 3, 2]), given(tensor('INT64', [3], [4, 1, 2]))]),
  conformanceCase('ReverseSequence', 'items first', [x([3, 4]), given(tensor('INT64', [3], [4, 1, 2]))], {
    attributes: { batch_axis: 0, time_axis: 1 },
  }),
  conformanceCase('ReverseSequence', 'INT64', [x([2, 2, 3], 1, 'INT64'), given(tensor('INT64', [2], [2, 1]))]),
  ...([-1, 0, 2] as const).flatMap((k) => [
    conformanceCase('EyeLike', `k ${k}`, [x([4, 5])], { attributes: { k }, opset: 9 }),
    conformanceCase('EyeLike', `k ${k}, INT32`, [x([4, 3], 1, 'INT32')], { attributes: { k }, opset: 9 }),
  ]),
  conformanceCase('EyeLike', 'named type', [x([3, 3], 1, 'INT32')], {
    attributes: { dtype: 11 },
    outputs: ['FP64'],
    opset: 9,
  }),
  conformanceCase('MaxUnpool', 'smallest', [x([1, 1, 2, 2]), given(tensor('INT64', [1, 1, 2, 2], [5, 7, 13, 15]))], {
    attributes: { kernel_shape: [2, 2], strides: [2, 2] },
    opset: 11,
  }),
  conformanceCase(
    'MaxUnpool',
    'larger',
    [x([1, 1, 2, 2]), given(tensor('INT64', [1, 1, 2, 2], [5, 7, 13, 15])), ints(1, 1, 5, 5)],
    { attributes: { kernel_shape: [2, 2], strides: [2, 2] }, opset: 11 },
  ),
  conformanceCase('Col2Im', 'plain', [x([1, 5, 5]), ints(5, 5), ints(1, 5)], { opset: 18 }),
  conformanceCase('Col2Im', 'steps', [x([2, 27, 4]), ints(5, 5), ints(3, 3)], {
    attributes: { strides: [2, 2] },
    opset: 18,
  }),
  conformanceCase('Col2Im', 'pads', [x([1, 5, 15]), ints(5, 5), ints(1, 5)], {
    attributes: { pads: [0, 1, 0, 1] },
    opset: 18,
  }),
  conformanceCase('Col2Im', 'dilations', [x([1, 4, 5]), ints(6, 6), ints(2, 2)], {
    attributes: { dilations: [1, 5] },
    opset: 18,
  }),
  conformanceCase('Col2Im', '3D, steps', [x([1, 8, 8]), ints(3, 4, 4), ints(2, 2, 2)], {
    attributes: { strides: [1, 2, 1], dilations: [2, 1, 1], pads: [0, 0, 0, 0, 0, 1] },
    opset: 18,
  }),
  conformanceCase('Col2Im', '3D, steps alone', [x([1, 8, 8]), ints(3, 4, 3), ints(2, 2, 2)], {
    attributes: { strides: [1, 2, 1] },
    opset: 18,
  }),
  conformanceCase('Col2Im', '3D, dilations alone', [x([1, 8, 9]), ints(3, 4, 4), ints(2, 2, 2)], {
    attributes: { dilations: [2, 1, 1] },
    opset: 18,
  }),
  conformanceCase('Col2Im', '3D, a rest', [x([1, 1, 8]), ints(2, 4, 2), ints(1, 1, 1)], {
    attributes: { strides: [1, 2, 1] },
    opset: 18,
  }),
  ...(
    [
      [0, 0, 1, 0, 0, 1],
      [0, 0, 0, 0, 0, 1],
      [1, 0, 0, 1, 0, 0],
      [0, 1, 0, 0, 1, 0],
    ] as const
  ).flatMap((pads) =>
    (
      [
        [1, 1],
        [2, 1],
      ] as const
    ).map(([items, channels]) => {
      const strides = [1, 2, 1];
      const counts = [3, 4, 4].map(
        (size, axis) => Math.floor((size + pads[axis]! + pads[axis + 3]! - [3, 1, 3][axis]!) / strides[axis]!) + 1,
      );
      return conformanceCase(
        'Col2Im',
        `3D, pads ${pads.join()}, ${items} ${channels}`,
        [x([items, 6 * channels, counts[0]! * counts[1]! * counts[2]!]), ints(3, 4, 4), ints(2, 1, 3)],
        { attributes: { strides, dilations: [2, 1, 1], pads }, opset: 18 },
      );
    }),
  ),
  conformanceCase('Col2Im', '3D, steps of 2 channels', [x([2, 16, 8]), ints(3, 4, 4), ints(2, 2, 2)], {
    attributes: { strides: [1, 2, 2], pads: [0, 0, 0, 0, 0, 1] },
    opset: 18,
  }),
  conformanceCase('Col2Im', '3D, dilated blocks of one', [x([2, 2, 36]), ints(3, 4, 4), ints(1, 1, 2)], {
    attributes: { dilations: [2, 2, 1] },
    opset: 18,
  }),
  conformanceCase('Col2Im', '3D, dilated along the last axis', [x([2, 2, 24]), ints(3, 4, 4), ints(1, 1, 2)], {
    attributes: { dilations: [1, 1, 2] },
    opset: 18,
  }),
  conformanceCase('Col2Im', '3D', [x([1, 10, 12]), ints(3, 4, 5), ints(1, 1, 5)], { opset: 18 }),
];

export const visionCases: readonly Case[] = [...resizes, ...samples, ...grids, ...regions, ...deforms, ...shapes];
