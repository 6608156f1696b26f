/** Cases of operators that move elements without computing with them, or fill tensors. */
/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import { elementCount, type DataType } from '../../../src/tensor/index.ts';
import {
  filled,
  given,
  ints,
  known,
  operatorCase,
  scalar,
  tensor,
  type Case,
  type CaseInput,
  type CaseOptions,
} from './case.ts';
import { anyTypes, shuffled, type Draw, type Drawn, type FamilyCases } from './draw.ts';

const everyWidth: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT8', 'UINT8', 'BOOL', 'INT32', 'INT64'];
const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1): CaseInput =>
  given(filled(datatype, shape, seed));
const places = (shape: readonly number[], values: readonly number[], datatype: DataType = 'INT64'): CaseInput =>
  given(tensor(datatype, shape, values));
const at = (...values: number[]): CaseInput => places([values.length], values);

const transposed = (shape: readonly number[], perm: readonly number[], datatype: DataType = 'FP32'): Case =>
  operatorCase('Transpose', `[${shape.join(',')}] by [${perm.join(',')}]`, [x(shape, datatype)], {
    attributes: { perm },
  });

/** Beyond a tile of the kernel in both axes, in one, and in words of several elements. */
const transposes: readonly Case[] = [
  transposed([40, 33], [1, 0]),
  transposed([64, 70], [1, 0]),
  transposed([2, 20, 3, 17], [0, 2, 3, 1]),
  transposed([2, 17, 40], [0, 2, 1], 'FP16'),
  transposed([3, 18, 16], [2, 0, 1], 'INT64'),
  transposed([1, 8, 4, 16], [0, 2, 1, 3]),
  ...everyWidth.map((datatype) => transposed([3, 16, 17], [0, 2, 1], datatype)),
];

const sliced = (shape: readonly number[], start: number, end: number, axis: number, step = 1): Case =>
  operatorCase('Slice', `${start} to ${end} by ${step}`, [x(shape), ints(start), ints(end), ints(axis), ints(step)]);

const most = 2 ** 31 - 1;
const slices: readonly Case[] = [
  sliced([10], most, -most, 0, -1),
  // Whole rows behind the axis, which are moved in words.
  sliced([4, 8, 8], 0, 4, 2),
  sliced([3, 16], 8, 16, 1),
  // One element, unlike numpy.
  sliced([2, 6], -7, -7, 1, -1),
  sliced([2, 6], -9, 100, 1, -1),
  ...everyWidth.map((datatype) =>
    operatorCase('Slice', datatype, [x([3, 8], datatype), ints(1), ints(7), ints(1), ints(3)]),
  ),
];

const joined = (axis: number, shapes: readonly (readonly number[])[], datatype: DataType = 'FP32'): Case =>
  operatorCase(
    'Concat',
    `${shapes.length} along ${axis}`,
    shapes.map((shape, index) => x(shape, datatype, index + 1)),
    { attributes: { axis } },
  );

const joins: readonly Case[] = [
  joined(1, [
    [3, 4, 4],
    [3, 8, 4],
    [3, 4, 4],
  ]),
  // More than one launch takes.
  joined(
    1,
    Array.from({ length: 19 }, (_, index) => [2, 1 + (index % 3)]),
  ),
  ...everyWidth.map((datatype) =>
    joined(
      1,
      [
        [2, 3, 2],
        [2, 4, 2],
      ],
      datatype,
    ),
  ),
  operatorCase('Split', '4, 4, 4 along 1, the second unused', [x([2, 12]), ints(4, 4, 4)], {
    attributes: { axis: 1 },
    outputs: ['FP32', undefined, 'FP32'],
  }),
];

const gathers: readonly Case[] = [
  ...everyWidth.map((datatype) => operatorCase('Gather', datatype, [x([4, 3], datatype), at(3, 0, -2)])),
  operatorCase('Gather', 'rows of words', [x([5, 8]), at(4, 0, -1, 2)], { attributes: { axis: 0 } }),
  operatorCase('Gather', 'table kept in 16 bits', [x([6, 8], 'FP32', 3), at(5, 0, 3)], {
    kept: { 0: 'FP16' },
    tolerance: 1e-3,
  }),
  operatorCase('GatherND', 'batches of tuples', [x([2, 3, 4], 'INT32'), places([2, 2, 1], [1, 0, 2, 2])], {
    attributes: { batch_dims: 1 },
  }),
];

const scatters: readonly Case[] = [
  operatorCase('ScatterElements', 'rows', [x([3, 3]), places([2, 3], [1, 0, 2, 0, 2, 1]), x([2, 3], 'FP32', 9)]),
  operatorCase('ScatterND', 'by tuples', [x([2, 3, 2]), places([2, 2], [0, 2, 1, -3]), x([2, 2], 'FP32', 9)]),
  operatorCase('Scatter', 'the form before opset 11', [x([3, 4]), places([1, 4], [0, 2, 1, 0]), x([1, 4], 'FP32', 2)], {
    opset: 9,
  }),
  operatorCase('TensorScatter', 'circular', [x([3, 2, 6, 4]), x([3, 2, 3, 4], 'FP32', 2), places([3], [1, 4, 5])], {
    attributes: { mode: 'circular' },
    opset: 24,
  }),
];

const pads: readonly Case[] = [
  // By a whole round.
  operatorCase('Pad', 'wrap', [x([3, 4]), ints(2, 3, 1, 4)], { attributes: { mode: 'wrap' }, opset: 19 }),
  // There is no buffer to read.
  operatorCase('Pad', 'around nothing', [x([0, 3]), ints(1, 0, 1, 0), scalar('FP32', 3)]),
  operatorCase('Pad', 'cuts alone', [x([4, 5]), ints(-1, -1, 0, -2)]),
  ...everyWidth.map((datatype) =>
    operatorCase('Pad', datatype, [x([2, 3], datatype), ints(1, 1, 0, 2)], { opset: 19 }),
  ),
];

/** The element is an attribute. */
const constantOfShape = (dataType: number, datatype: DataType, element: Float32Array | BigInt64Array): Case =>
  operatorCase('ConstantOfShape', datatype, [ints(2, 3)], {
    attributes: { value: { tensor: { name: '', dims: [1n], dataType, rawData: new Uint8Array(element.buffer) } } },
    outputs: [datatype],
  });

const made: readonly Case[] = [
  operatorCase('Trilu', 'lower below the diagonal', [x([4, 4]), scalar('INT64', -1)], { attributes: { upper: 0 } }),
  operatorCase(
    'Range',
    'fractions, an end that no step meets',
    [0.5, 3, 0.75].map((value) => scalar('FP32', value)),
  ),
  constantOfShape(1, 'FP32', Float32Array.of(1.5)),
  constantOfShape(7, 'INT64', BigInt64Array.of(-7n)),
  operatorCase('ConstantOfShape', 'nothing', [ints(0, 3)], { outputs: ['FP32'] }),
  operatorCase(
    'OneHot',
    'beyond its depth',
    [at(1, 0, -1, 9), scalar('INT64', 3), known(tensor('FP32', [2], [0.5, 2]))],
    {
      outputs: ['FP32'],
    },
  ),
  operatorCase('EyeLike', 'named type', [x([3, 3], 'INT32')], {
    attributes: { dtype: 11 },
    outputs: ['FP64'],
    opset: 9,
  }),
  operatorCase('Expand', 'to nothing', [x([1, 3]), ints(0, 3)]),
  ...everyWidth.map((datatype) => operatorCase('Expand', datatype, [x([2, 1, 4], datatype), ints(2, 3, 4)])),
  operatorCase('Tile', 'not at all', [x([2, 3]), ints(1, 1)]),
  operatorCase('DepthToSpace', 'DCR', [x([2, 8, 2, 3])], { attributes: { blocksize: 2 } }),
  operatorCase('SpaceToDepth', 'by 2', [x([2, 3, 4, 6])], { attributes: { blocksize: 2 } }),
  operatorCase('ReverseSequence', 'time first', [x([4, 3, 2]), places([3], [4, 1, 2])]),
  operatorCase(
    'MaxUnpool',
    'larger than the pools',
    [x([1, 1, 2, 2]), places([1, 1, 2, 2], [5, 7, 13, 15]), ints(1, 1, 5, 5)],
    {
      attributes: { kernel_shape: [2, 2], strides: [2, 2] },
      opset: 11,
    },
  ),
];

const floats = (values: readonly number[]): CaseInput => known(tensor('FP32', [values.length], values));

const resized = (
  name: string,
  shape: readonly number[],
  scales: readonly number[],
  attributes: Case['attributes'],
  datatype: DataType = 'FP32',
): Case => operatorCase('Resize', name, [x(shape, datatype), undefined, floats(scales)], { attributes, opset: 19 });

const resizes: readonly Case[] = [
  operatorCase('Resize', 'opset 10', [x([1, 1, 3, 3]), floats([1, 1, 2, 2])], { opset: 10 }),
  ...['linear', 'cubic'].map((mode) =>
    resized(`${mode} smoothed, without what is outside`, [1, 2, 8, 9], [1, 1, 0.6, 0.5], {
      mode,
      antialias: 1,
      exclude_outside: 1,
    }),
  ),
  // The region goes beyond the image.
  ...['nearest', 'linear', 'cubic'].map((mode) =>
    operatorCase(
      'Resize',
      `${mode} crop`,
      [x([1, 1, 4, 5]), floats([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7]), undefined, ints(1, 1, 3, 6)],
      {
        attributes: {
          mode,
          coordinate_transformation_mode: 'tf_crop_and_resize',
          extrapolation_value: { float: 10 },
        },
        opset: 19,
      },
    ),
  ),
  operatorCase(
    'Resize',
    'a region of all axes, two of them named',
    [x([2, 1, 2, 5]), floats([0, 0, 0.1, 0.1, 1, 1, 0.9, 0.9]), floats([2.5, 1.2])],
    { attributes: { mode: 'linear', coordinate_transformation_mode: 'tf_crop_and_resize', axes: [2, 3] }, opset: 19 },
  ),
  // Integers are cut off, so the last bit of a sum matters.
  ...(['UINT8', 'INT32'] as const).map((datatype) =>
    resized('linear', [1, 1, 3, 4], [1, 1, 2, 2], { mode: 'linear' }, datatype),
  ),
  ...(['INT8', 'INT32'] as const).map((datatype) => resized('nearest', [1, 1, 3, 4], [1, 1, 2, 2], {}, datatype)),
  operatorCase('Upsample', 'scales of opset 7', [x([1, 2, 3, 4])], {
    attributes: { scales: { floats: [1, 1, 2, 3] } },
    opset: 7,
  }),
  operatorCase('Upsample', 'linear', [x([1, 2, 3, 4]), floats([1, 1, 2, 3])], {
    attributes: { mode: 'linear' },
    opset: 9,
  }),
];

/** In three dimensions ONNX Runtime places the elements of dilated blocks by a rule of its own. */
const blockSums: readonly Case[] = [
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
      return operatorCase(
        'Col2Im',
        `3D, pads ${pads.join()}, ${items} ${channels}`,
        [x([items, 6 * channels, counts[0]! * counts[1]! * counts[2]!]), ints(3, 4, 4), ints(2, 1, 3)],
        { attributes: { strides, dilations: [2, 1, 1], pads }, opset: 18 },
      );
    }),
  ),
  operatorCase('Col2Im', '3D, a rest', [x([1, 1, 8]), ints(2, 4, 2), ints(1, 1, 1)], {
    attributes: { strides: [1, 2, 1] },
    opset: 18,
  }),
  operatorCase('Col2Im', '3D, steps of 2 channels', [x([2, 16, 8]), ints(3, 4, 4), ints(2, 2, 2)], {
    attributes: { strides: [1, 2, 2], pads: [0, 0, 0, 0, 0, 1] },
    opset: 18,
  }),
  operatorCase('Col2Im', '3D, dilated blocks of one', [x([2, 2, 36]), ints(3, 4, 4), ints(1, 1, 2)], {
    attributes: { dilations: [2, 2, 1] },
    opset: 18,
  }),
  operatorCase('Col2Im', '3D, dilated along the last axis', [x([2, 2, 24]), ints(3, 4, 4), ints(1, 1, 2)], {
    attributes: { dilations: [1, 1, 2] },
    opset: 18,
  }),
];

/** FP32 weights that are kept in 16 bits. */
const narrow: CaseOptions = { kept: { 0: 'FP16' }, tolerance: 1e-3 };
const narrowWeights: readonly Case[] = [
  operatorCase('Transpose', 'kept in 16 bits', [x([5, 8])], { ...narrow, attributes: { perm: [1, 0] } }),
  operatorCase('Transpose', 'kept in 16 bits, nothing moves', [x([1, 8])], { ...narrow, attributes: { perm: [1, 0] } }),
  operatorCase('Slice', 'kept in 16 bits', [x([5, 8]), ints(1), ints(4)], narrow),
  operatorCase('Concat', 'one kept in 16 bits', [x([5, 8]), x([2, 8])], { ...narrow, attributes: { axis: 0 } }),
  operatorCase('Split', 'kept in 16 bits', [x([4, 8]), ints(1, 3)], { ...narrow, outputs: ['FP32', 'FP32'] }),
  operatorCase('GatherElements', 'kept in 16 bits', [x([3, 3]), places([1, 3], [1, 2, 0])], narrow),
  operatorCase('Expand', 'kept in 16 bits', [x([3, 1]), ints(3, 4)], { kept: { 0: 'BF16' }, tolerance: 1e-2 }),
  operatorCase('Pad', 'kept in 16 bits', [x([3, 2]), ints(0, 1, 1, 0)], narrow),
];

/**
 * What Resize is made of: each coordinate of the second axis is a sum of one or two of the image's.
 * @param columns places and weights of each result
 */
const resampled = (
  name: string,
  input: CaseInput,
  columns: readonly (readonly (readonly [place: number, weight: number])[])[],
): Case => {
  const taps = [0, 1].map((tap) => columns.map((column) => column[tap] ?? [-1, 0]));
  const listOf = (of: 0 | 1): number[] => columns.flatMap((_, index) => taps.map((tap) => tap[index]![of]));
  return operatorCase(
    'turntable.Resample',
    name,
    [
      input,
      undefined,
      given(tensor('INT32', [columns.length, 2], listOf(0))),
      given(tensor('FP32', [columns.length, 2], listOf(1))),
    ],
    {
      attributes: { axes: [1] },
      reference: (graph, [image]) => {
        const width = input.tensor.shape[1]!;
        const matrix = Array.from({ length: width * columns.length }, () => 0);
        for (const [index, column] of columns.entries())
          for (const [place, weight] of column) matrix[place * columns.length + index]! += weight;
        const table = graph.constant({ tensor: tensor('FP32', [width, columns.length], matrix) });
        return [graph.node('MatMul', [image!, table])];
      },
    },
  );
};

const resample: Drawn = (draw) => {
  const [rows, width, count] = [draw.int(1, 6), draw.int(1, 9), draw.int(1, 9)];
  const columns = Array.from({ length: count }, () =>
    Array.from({ length: draw.int(1, 2) }, () => [draw.int(0, width - 1), draw.int(-4, 4) / 4] as const),
  );
  return resampled(`seed ${draw.seed}`, draw.x('FP32', [rows, width]), columns);
};

const transpose: Drawn = (draw) => {
  const shape = draw.shape(0, 5, 4);
  return draw.case('Transpose', [draw.x(draw.pick(anyTypes), shape)], {
    attributes: draw.chance(0.25) ? {} : { perm: shuffled(draw, shape.length) },
    opset: draw.pick([9, 13, 17, 21]),
  });
};

const slice: Drawn = (draw) => {
  const shape = draw.shape(1, 4);
  const isOld = draw.chance(0.2);
  const axes = draw.axes(shape.length, 1);
  const wide = draw.chance(0.2);
  const starts = axes.map((axis) => draw.int(-shape.at(axis)! - 2, shape.at(axis)! + 2));
  const ends = axes.map((axis) =>
    wide ? draw.pick([2 ** 31 - 1, -(2 ** 31)]) : draw.int(-shape.at(axis)! - 2, shape.at(axis)! + 2),
  );
  const x = draw.x(draw.pick(anyTypes), shape);
  if (isOld) return draw.case('Slice', [x], { attributes: { starts, ends, axes }, opset: 9 });
  const datatype = draw.pick(['INT64', 'INT32'] as const);
  const all = axes.length === shape.length && axes.every((axis, place) => axis === place);
  const steps = draw.chance(0.5)
    ? [
        draw.ints(
          axes.map(() => draw.pick([1, 2, 3, -1, -2])),
          datatype,
        ),
      ]
    : [];
  const given: (CaseInput | undefined)[] = [x, draw.ints(starts, datatype), draw.ints(ends, datatype)];
  if (!all || steps.length > 0) given.push(draw.ints(axes, datatype), ...steps);
  return draw.case('Slice', given, { opset: draw.pick([10, 11, 13, 17]) });
};

const expand: Drawn = (draw) => {
  const whole = draw.shape(1, 4);
  const wanted = whole.map((size) => (draw.chance(0.2) ? 1 : size));
  const from = draw.narrowed(whole);
  return draw.case('Expand', [draw.x(draw.pick(anyTypes), from), draw.ints(draw.chance(0.8) ? whole : wanted)], {
    opset: draw.pick([8, 13, 17]),
  });
};

const tile: Drawn = (draw) => {
  const shape = draw.shape(1, 4, 4);
  return draw.case(
    'Tile',
    [draw.x(draw.pick(anyTypes), shape), draw.ints(shape.map(() => draw.pick([1, 1, 2, 3, 0])))],
    {
      opset: draw.pick([9, 13, 17]),
    },
  );
};

const depth =
  (operator: string): Drawn =>
  (draw) => {
    const block = draw.int(1, 3);
    const [n, c, h, w] = [draw.pick([1, 2, 0, 1]), draw.int(1, 3), draw.int(1, 3), draw.int(1, 3)];
    const shape = operator === 'DepthToSpace' ? [n, c * block * block, h, w] : [n, c, h * block, w * block];
    return draw.case(operator, [draw.x(draw.pick(['FP32', 'FP32', 'FP16', 'FP64', 'UINT8'] as const), shape)], {
      attributes: {
        blocksize: block,
        ...(operator === 'DepthToSpace' ? draw.some({ mode: draw.pick(['DCR', 'CRD']) }) : {}),
      },
      opset: draw.pick([11, 13, 17]),
    });
  };

const concat: Drawn = (draw) => {
  const shape = draw.shape(1, 4);
  const axis = draw.axis(shape.length);
  const datatype = draw.pick(anyTypes);
  const inputs = Array.from({ length: draw.int(1, 5) }, () =>
    draw.x(datatype, shape.with(axis, draw.chance(0.15) ? 0 : draw.int(1, 4))),
  );
  return draw.case('Concat', inputs, { attributes: { axis }, opset: draw.pick([4, 11, 13, 17]) });
};

const split: Drawn = (draw) => {
  const shape = draw.shape(1, 4);
  const isDefault = draw.chance(0.3);
  const axis = isDefault ? 0 : draw.axis(shape.length);
  const parts = draw.int(1, 4);
  const datatype = draw.pick(anyTypes);
  const attributes = isDefault ? {} : { axis };
  const way = draw.pick(['input', 'input', 'attribute', 'equal', 'num_outputs'] as const);
  const each = draw.int(1, 3);
  const sizes = way === 'equal' ? Array.from({ length: parts }, () => each) : draw.list(parts, 0, 4);
  const whole = shape.with(
    axis,
    sizes.reduce((a, b) => a + b, 0),
  );
  const x = draw.x(datatype, whole);
  if (way === 'input')
    return draw.case('Split', [x, draw.ints(sizes)], { attributes, outputs: parts, opset: draw.pick([13, 18]) });
  if (way === 'attribute')
    return draw.case('Split', [x], {
      attributes: { ...attributes, split: sizes },
      outputs: parts,
      opset: draw.pick([2, 11]),
    });
  if (way === 'equal') return draw.case('Split', [x], { attributes, outputs: parts, opset: draw.pick([2, 11, 13]) });
  const uneven = draw.x(datatype, shape.with(axis, draw.int(parts, parts * 3)));
  return draw.case('Split', [uneven], { attributes: { ...attributes, num_outputs: parts }, outputs: parts, opset: 18 });
};

const indexTypes = ['INT64', 'INT64', 'INT32'] as const;

const gather: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  const isDefault = draw.chance(0.3);
  const axis = isDefault ? 0 : draw.axis(shape.length);
  const along = shape.at(axis)!;
  const indices = draw.shape(0, 3, 4);
  const values = draw.list(elementCount(indices), -along, along - 1);
  return draw.case(
    'Gather',
    [draw.x(draw.pick(anyTypes), shape), draw.values(draw.pick(indexTypes), indices, values, draw.chance(0.4))],
    {
      attributes: isDefault ? {} : { axis },
      opset: draw.pick([9, 11, 13, 17]),
    },
  );
};

const gatherElements: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  const isDefault = draw.chance(0.3);
  const axis = isDefault ? 0 : draw.axis(shape.length);
  const along = shape.at(axis)!;
  const indices = shape.map((size) => draw.int(1, size)).with(axis, draw.size());
  const values = draw.list(elementCount(indices), -along, along - 1);
  return draw.case(
    'GatherElements',
    [draw.x(draw.pick(anyTypes), shape), draw.values(draw.pick(indexTypes), indices, values, false)],
    {
      attributes: isDefault ? {} : { axis },
      opset: draw.pick([11, 13, 17]),
    },
  );
};

/** Indices of some leading axes: [..., depth], after `batch` axes of data and indices. */
function tuples(draw: Draw, shape: readonly number[], batch: number): { shape: number[]; values: number[] } {
  const depth = draw.int(1, shape.length - batch);
  const outer = [...shape.slice(0, batch), ...draw.filledShape(0, 2, 3)];
  const values = Array.from({ length: elementCount(outer) }, () =>
    Array.from({ length: depth }, (_, place) => {
      const size = shape[batch + place]!;
      return draw.int(-size, size - 1);
    }),
  );
  return { shape: [...outer, depth], values: values.flat() };
}

const gatherNd: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4, 4);
  const batch = draw.chance(0.6) ? 0 : draw.int(0, shape.length - 1);
  const indices = tuples(draw, shape, batch);
  return draw.case(
    'GatherND',
    [draw.x(draw.pick(anyTypes), shape), draw.values('INT64', indices.shape, indices.values, false)],
    {
      attributes: batch === 0 && draw.chance(0.5) ? {} : { batch_dims: batch },
      opset: draw.pick([12, 13, 17]),
    },
  );
};

const scatterElements: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3);
  const isDefault = draw.chance(0.3);
  const axis = isDefault ? 0 : draw.axis(shape.length);
  const along = shape.at(axis)!;
  const indices = shape.map((size) => draw.int(1, size));
  // If two writes meet without a reduction, the order is undefined: so each row gets different places.
  const reduction = draw.pick([undefined, undefined, 'add', 'mul', 'min', 'max', 'none']);
  const isReduced = reduction !== undefined && reduction !== 'none';
  const values = isReduced
    ? draw.list(elementCount(indices), -along, along - 1)
    : distinctAlong(indices, axis < 0 ? axis + shape.length : axis);
  const datatype = draw.pick(isReduced ? (['FP32', 'INT32', 'INT64'] as const) : anyTypes);
  return draw.case(
    'ScatterElements',
    [draw.x(datatype, shape), draw.values(draw.pick(indexTypes), indices, values, false), draw.x(datatype, indices)],
    {
      attributes: { ...(isDefault ? {} : { axis }), ...(reduction === undefined ? {} : { reduction }) },
      opset:
        reduction === undefined
          ? draw.pick([11, 13, 16, 18])
          : ['min', 'max'].includes(reduction)
            ? 18
            : draw.pick([16, 18]),
    },
  );
};

/** Each element's own place along the axis. */
function distinctAlong(shape: readonly number[], axis: number): number[] {
  const inner = elementCount(shape.slice(axis + 1));
  return Array.from({ length: elementCount(shape) }, (_, at) => Math.floor(at / inner) % shape[axis]!);
}

const scatterNd: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3, 5);
  const reduction = draw.pick([undefined, 'add', 'mul', 'min', 'max']);
  const depth = draw.int(1, shape.length);
  const rows = reduction === undefined ? 1 : draw.int(1, 4);
  const values = Array.from({ length: rows }, () =>
    shape.slice(0, depth).map((size) => draw.int(-size, size - 1)),
  ).flat();
  const datatype = draw.pick(reduction === undefined ? anyTypes : (['FP32', 'INT32'] as const));
  return draw.case(
    'ScatterND',
    [
      draw.x(datatype, shape),
      draw.values('INT64', [rows, depth], values, false),
      draw.x(datatype, [rows, ...shape.slice(depth)]),
    ],
    {
      attributes: reduction === undefined ? {} : { reduction },
      opset: reduction === undefined ? draw.pick([11, 13, 16, 18]) : 18,
    },
  );
};

const pad: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  const mode = draw.pick(['constant', 'constant', 'reflect', 'edge', 'wrap']);
  const isOld = mode !== 'wrap' && draw.chance(0.2);
  const named = !isOld && draw.chance(0.25);
  const axes = named ? draw.axes(shape.length, 1) : shape.map((_, axis) => axis);
  const pads = [...axes, ...axes].map((axis) => {
    const size = shape.at(axis)!;
    if (mode === 'constant') return draw.int(-Math.floor(size / 2), 3);
    return draw.int(0, mode === 'edge' ? 3 : Math.max(0, Math.min(3, size - 1)));
  });
  const datatype = draw.pick(
    isOld ? (['FP32'] as const) : (['FP32', 'FP32', 'FP16', 'INT32', 'INT64', 'BOOL', 'UINT8'] as const),
  );
  const attributes = draw.chance(0.3) && mode === 'constant' ? {} : { mode };
  const x = draw.x(datatype, shape);
  if (isOld)
    return draw.case('Pad', [x], {
      attributes: { ...attributes, pads, ...draw.some({ value: { float: 1.5 } }) },
      opset: 2 + draw.int(0, 8),
    });
  const value = draw.chance(0.5) ? draw.values(datatype, [], [1], draw.chance(0.7)) : undefined;
  const inputs: (CaseInput | undefined)[] = [x, draw.ints(pads)];
  if (named) inputs.push(value, draw.ints(axes, draw.pick(indexTypes)));
  else if (value !== undefined) inputs.push(value);
  const opset = mode === 'wrap' ? 19 : named ? draw.pick([18, 19, 21]) : draw.pick([11, 13, 18, 21]);
  return draw.case('Pad', inputs, { attributes, opset });
};

const resize: Drawn = (draw) => {
  const axes = draw.pick([1, 2, 2, 2, 3]);
  const shape = [draw.pick([1, 2]), draw.int(1, 2), ...draw.list(axes, 2, 6)];
  const mode = draw.pick(['nearest', 'nearest', 'linear', 'linear', 'cubic']);
  const opset = draw.pick([11, 13, 18, 19]);
  const bySizes = draw.chance(0.4);
  const scale = (): number => draw.pick([0.5, 0.75, 1, 1.5, 2, 2.5]);
  const x = draw.x(draw.pick(['FP32', 'FP32', 'FP16', 'UINT8'] as const), shape);
  const modes = [
    'half_pixel',
    'asymmetric',
    'align_corners',
    'pytorch_half_pixel',
    'tf_crop_and_resize',
    ...(opset >= 19 ? ['half_pixel_symmetric'] : []),
  ];
  const coordinate = draw.pick(modes);
  const roi =
    coordinate === 'tf_crop_and_resize'
      ? draw.values(
          'FP32',
          [2 * shape.length],
          [...shape.map((_, axis) => (axis < 2 ? 0 : 0.1)), ...shape.map((_, axis) => (axis < 2 ? 1 : 0.9))],
        )
      : undefined;
  const someAxes = opset >= 18 && draw.chance(0.3);
  const along = someAxes ? Array.from({ length: axes }, (_, axis) => axis + 2) : shape.map((_, axis) => axis);
  const amount = along.map((axis) => (axis < 2 ? 1 : scale()));
  const sizes = along.map((axis) => (axis < 2 ? shape[axis]! : draw.int(1, 9)));
  const inputs = bySizes
    ? [
        x,
        roi ?? (opset < 13 ? draw.values('FP32', [0], []) : undefined),
        opset < 13 ? draw.values('FP32', [0], []) : undefined,
        draw.ints(sizes),
      ]
    : [x, roi ?? (opset < 13 ? draw.values('FP32', [0], []) : undefined), draw.values('FP32', [amount.length], amount)];
  return draw.case('Resize', inputs, {
    attributes: {
      ...draw.some({ mode }, 0.9),
      ...(coordinate === 'half_pixel' && draw.chance(0.5) ? {} : { coordinate_transformation_mode: coordinate }),
      ...draw.some({ nearest_mode: draw.pick(['round_prefer_floor', 'round_prefer_ceil', 'floor', 'ceil']) }),
      ...(coordinate === 'tf_crop_and_resize' ? draw.some({ extrapolation_value: { float: 2 } }) : {}),
      ...(mode === 'cubic' ? draw.some({ cubic_coeff_a: { float: -0.5 }, exclude_outside: 1 }) : {}),
      ...(opset >= 18 && mode !== 'nearest' ? draw.some({ antialias: 1 }, 0.2) : {}),
      ...(opset >= 18 && bySizes
        ? draw.some({ keep_aspect_ratio_policy: draw.pick(['stretch', 'not_larger', 'not_smaller']) }, 0.4)
        : {}),
      ...(someAxes ? { axes: along } : {}),
    },
    opset,
  });
};

const upsample: Drawn = (draw) =>
  draw.case(
    'Upsample',
    [
      draw.x('FP32', [1, draw.int(1, 2), draw.int(1, 4), draw.int(1, 4)]),
      draw.values('FP32', [4], [1, 1, draw.pick([1, 2, 1.5]), draw.pick([2, 3])]),
    ],
    {
      attributes: draw.some({ mode: draw.pick(['nearest', 'linear']) }),
      opset: 9,
    },
  );

const trilu: Drawn = (draw) => {
  const shape = draw.shape(2, 4);
  const k = draw.chance(0.6) ? [draw.values('INT64', [], [draw.int(-4, 4)])] : [];
  return draw.case('Trilu', [draw.x(draw.pick(anyTypes), shape), ...k], {
    attributes: draw.some({ upper: draw.int(0, 1) }),
    opset: 14,
  });
};

const oneHot: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3);
  const size = draw.int(1, 5);
  // ONNX Runtime supports few combinations of types.
  const [index, depth, datatype] = draw.pick([
    ['INT64', 'INT64', 'FP32'],
    ['INT64', 'INT64', 'INT64'],
    ['INT32', 'INT32', 'FP32'],
    ['FP32', 'FP32', 'FP32'],
    ['INT64', 'INT32', 'FP32'],
  ] as const);
  const axis = draw.int(-shape.length - 1, shape.length);
  return draw.case(
    'OneHot',
    [
      draw.values(index, shape, draw.list(elementCount(shape), -size - 1, size), false),
      draw.values(depth, draw.pick([[], [1]]), [size]),
      draw.values(datatype, [2], [1, 5], draw.chance(0.5)),
    ],
    { attributes: draw.some({ axis }), opset: draw.pick([9, 11, 17]) },
  );
};

const scatter: Drawn = (draw) => {
  const shape = draw.filledShape(1, 3);
  const axis = draw.axis(shape.length);
  // Each line of indices names a place once.
  const indices = shape.with(axis < 0 ? axis + shape.length : axis, 1);
  const count = elementCount(indices);
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
  const count = elementCount(shape);
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
      draw.x('FP32', [draw.int(1, 2), draw.int(1, 3) * elementCount(block), elementCount(counts)]),
      draw.ints(image),
      draw.ints(block),
    ],
    { attributes: { strides, dilations, pads }, opset: 18 },
  );
};

const tensorScatter: Drawn = (draw) => {
  const shape = draw.filledShape(3, 4, 4);
  const axis = draw.int(1, shape.length - 1);
  const length = shape[axis]! + draw.int(0, 3);
  const circular = draw.chance(0.5);
  const rows = shape[axis]!;
  const starts = draw.list(shape[0]!, 0, circular ? length - 1 : length - rows);
  const type = draw.pick(['FP32', 'FP16', 'INT64', 'UINT8', 'BOOL'] as const);
  return draw.case(
    'TensorScatter',
    [
      draw.x(type, shape.with(axis, length)),
      draw.x(type, shape),
      ...(draw.chance(0.8) ? [draw.values('INT64', [shape[0]!], starts, false)] : []),
    ],
    {
      attributes: { axis: draw.chance(0.5) ? axis : axis - shape.length, ...(circular ? { mode: 'circular' } : {}) },
      opset: 24,
    },
  );
};

export const movement: FamilyCases = {
  named: [
    ...transposes,
    ...slices,
    ...joins,
    ...gathers,
    ...scatters,
    ...pads,
    ...made,
    ...resizes,
    ...blockSums,
    ...narrowWeights,
    resampled('one or two columns', x([2, 3]), [
      [
        [0, 0.25],
        [1, 0.75],
      ],
      [[2, 1]],
      [
        [1, 0.5],
        [2, 0.5],
      ],
      [[0, 2]],
    ]),
  ],
  drawn: {
    Transpose: transpose,
    Slice: slice,
    Expand: expand,
    Tile: tile,
    DepthToSpace: depth('DepthToSpace'),
    SpaceToDepth: depth('SpaceToDepth'),
    Concat: concat,
    Split: split,
    Gather: gather,
    GatherElements: gatherElements,
    GatherND: gatherNd,
    ScatterElements: scatterElements,
    ScatterND: scatterNd,
    Pad: pad,
    Resize: resize,
    Upsample: upsample,
    Trilu: trilu,
    Range: (draw) => {
      const datatype = draw.pick(['FP32', 'INT64', 'INT32', 'FP64'] as const);
      const values = [draw.int(-3, 3), draw.int(-3, 9), draw.pick([1, 2, -1])];
      return draw.case(
        'Range',
        values.map((value) => draw.values(datatype, [], [value])),
        { opset: draw.pick([11, 17]) },
      );
    },
    ConstantOfShape: (draw) =>
      draw.case('ConstantOfShape', [draw.ints(draw.shape(0, 3))], { opset: draw.pick([9, 20]) }),
    OneHot: oneHot,
    Scatter: scatter,
    ReverseSequence: reverseSequence,
    EyeLike: eyeLike,
    MaxUnpool: maxUnpool,
    Col2Im: col2im,
    TensorScatter: tensorScatter,
    'turntable.Resample': resample,
  },
};
