import type { AttributeValue } from '../../../../src/onnx/index.ts';
import type { DataType } from '../../../../src/tensor/index.ts';
import {
  conformanceCase,
  filled,
  given,
  ints,
  known,
  scalar,
  tensor,
  type Case,
  type CaseInput,
  type CaseOptions,
} from '../case.ts';

const everyWidth: readonly DataType[] = ['FP32', 'FP16', 'BF16', 'FP64', 'INT8', 'UINT8', 'BOOL', 'INT32', 'INT64'];
const x = (shape: readonly number[], datatype: DataType = 'FP32'): CaseInput => given(filled(datatype, shape));

const views: readonly Case[] = [
  conformanceCase('Identity', 'matrix', [x([2, 3])]),
  conformanceCase('Reshape', 'with -1 and 0', [x([2, 3, 4]), ints(0, -1)]),
  conformanceCase('Flatten', 'negative axis', [x([2, 3, 4])], { attributes: { axis: -1 } }),
  conformanceCase('Squeeze', 'negative axis', [x([2, 1, 3]), ints(-2)]),
  conformanceCase('Unsqueeze', 'two axes', [x([2, 3]), ints(0, -1)]),
  conformanceCase('Dropout', 'at inference', [x([2, 3])]),
  conformanceCase('turntable.View', 'another shape', [x([2, 6])], {
    reference: (graph, [input]) => [graph.node('Reshape', [input!, graph.constant({ ints: [3, 4] })])],
  }),
];

const transposed = (shape: readonly number[], perm: readonly number[], datatype: DataType = 'FP32'): Case =>
  conformanceCase('Transpose', `[${shape.join(',')}] by [${perm.join(',')}]`, [x(shape, datatype)], {
    attributes: { perm },
  });

const transposes: readonly Case[] = [
  conformanceCase('Transpose', 'without a permutation', [x([2, 3, 4])]),
  conformanceCase('Transpose', 'scalar', [x([])]),
  transposed([5, 7], [1, 0]),
  transposed([40, 33], [1, 0]),
  transposed([64, 70], [1, 0]),
  transposed([2, 20, 3, 17], [0, 2, 3, 1]),
  transposed([2, 17, 40], [0, 2, 1], 'FP16'),
  transposed([3, 18, 16], [2, 0, 1], 'INT64'),
  transposed([1, 8, 4, 16], [0, 2, 1, 3]),
  transposed([2, 3, 5], [1, 0, 2], 'UINT8'),
  transposed([1, 5, 1, 6], [2, 1, 0, 3]),
  transposed([2, 3, 4, 5, 6], [4, 2, 0, 3, 1]),
  transposed([0, 3], [1, 0]),
  ...everyWidth.map((datatype) => transposed([3, 16, 17], [0, 2, 1], datatype)),
];

const sliced = (shape: readonly number[], starts: number[], ends: number[], axes?: number[], steps?: number[]): Case =>
  conformanceCase('Slice', `${starts.join()} to ${ends.join()} by ${steps?.join() ?? 1}`, [
    x(shape),
    ints(...starts),
    ints(...ends),
    ...(axes === undefined && steps === undefined ? [] : [axes === undefined ? undefined : ints(...axes)]),
    ...(steps === undefined ? [] : [ints(...steps)]),
  ]);

const most = 2 ** 31 - 1;
const slices: readonly Case[] = [
  sliced([4, 5, 6], [1, 0, 2], [3, 5, 6]),
  sliced([4, 5], [0], [2], [1]),
  sliced([10], [-3], [most], [0]),
  sliced([10], [most], [-most], [0], [-1]),
  sliced([7, 6], [5, 1], [0, 100], [-2, -1], [-2, 2]),
  sliced([4, 8, 8], [0], [4], [2]),
  sliced([3, 16], [8], [16], [1]),
  sliced([5], [3], [2], [0]),
  sliced([2, 3], [-100], [-50], [1]),
  sliced([2, 12], [9], [-100], [1], [-4]),
  // One element, unlike numpy.
  sliced([2, 6], [-7], [-7], [1], [-1]),
  sliced([2, 6], [-9], [100], [1], [-1]),
  conformanceCase('Slice', 'attributes of opset 9', [x([3, 4])], {
    attributes: { starts: [1], ends: [-1], axes: [1] },
    opset: 9,
  }),
  ...everyWidth.map((datatype) =>
    conformanceCase('Slice', datatype, [x([3, 8], datatype), ints(1), ints(7), ints(1), ints(3)]),
  ),
];

const joined = (axis: number, shapes: readonly (readonly number[])[], datatype: DataType = 'FP32'): Case =>
  conformanceCase(
    'Concat',
    `${shapes.length} along ${axis}`,
    shapes.map((shape, index) => given(filled(datatype, shape, index + 1))),
    { attributes: { axis } },
  );

const split = (shape: readonly number[], axis: number, sizes: number[], options: CaseOptions = {}): Case =>
  conformanceCase('Split', `${sizes.join()} along ${axis}`, [x(shape), ints(...sizes)], {
    attributes: { axis },
    outputs: sizes.map(() => 'FP32' as const),
    ...options,
  });

const joins: readonly Case[] = [
  joined(0, [
    [2, 3],
    [4, 3],
  ]),
  joined(1, [
    [2, 3],
    [2, 5],
    [2, 1],
  ]),
  joined(-1, [
    [2, 2, 4],
    [2, 2, 8],
  ]),
  joined(1, [
    [3, 4, 4],
    [3, 8, 4],
    [3, 4, 4],
  ]),
  joined(
    1,
    Array.from({ length: 19 }, (_, index) => [2, 1 + (index % 3)]),
  ),
  joined(1, [
    [2, 0, 3],
    [2, 2, 3],
  ]),
  joined(0, [
    [0, 3],
    [0, 3],
  ]),
  joined(1, [[2, 3]]),
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
  split([6, 4], 0, [2, 4]),
  split([2, 12], -1, [4, 4, 4]),
  split([2, 3, 7], 2, [3, 1, 3]),
  split([2, 3, 7], 2, [3, 0, 4]),
  split([2, 12], 1, [4, 4, 4], { outputs: ['FP32', undefined, 'FP32'] }),
  conformanceCase('Split', 'into equal parts', [x([4, 6])], {
    attributes: { axis: 1 },
    outputs: ['FP32', 'FP32', 'FP32'],
  }),
  conformanceCase('Split', 'unequal at the end, opset 18', [x([2, 7])], {
    attributes: { axis: 1, num_outputs: 3 },
    outputs: ['FP32', 'FP32', 'FP32'],
    opset: 18,
  }),
  conformanceCase('Split', 'attribute of opset 11', [x([5, 2])], {
    attributes: { axis: 0, split: [3, 2] },
    outputs: ['FP32', 'FP32'],
    opset: 11,
  }),
];

const strided: readonly Case[] = [
  conformanceCase('Expand', 'both ways', [x([3, 1]), ints(2, 1, 4)]),
  conformanceCase('Expand', 'the same', [x([3, 4]), ints(1)]),
  conformanceCase('Expand', 'scalar', [x([]), ints(2, 3)]),
  conformanceCase('Expand', 'to nothing', [x([1, 3]), ints(0, 3)]),
  ...everyWidth.map((datatype) => conformanceCase('Expand', datatype, [x([2, 1, 4], datatype), ints(2, 3, 4)])),
  conformanceCase('Tile', 'two axes', [x([2, 3]), ints(2, 3)]),
  conformanceCase('Tile', 'not at all', [x([2, 3]), ints(1, 1)]),
  conformanceCase('Tile', 'to nothing', [x([2, 3]), ints(0, 1)]),
  conformanceCase('Tile', 'INT64', [x([1, 4, 2], 'INT64'), ints(3, 1, 2)]),
  conformanceCase('DepthToSpace', 'DCR', [x([2, 8, 2, 3])], { attributes: { blocksize: 2 } }),
  conformanceCase('DepthToSpace', 'CRD', [x([2, 8, 2, 3])], { attributes: { blocksize: 2, mode: 'CRD' } }),
  conformanceCase('SpaceToDepth', 'by 2', [x([2, 3, 4, 6])], { attributes: { blocksize: 2 } }),
];

const at = (...values: number[]): CaseInput => given(tensor('INT64', [values.length], values));
const places = (shape: readonly number[], values: readonly number[], datatype: DataType = 'INT64'): CaseInput =>
  given(tensor(datatype, shape, values));

const gathers: readonly Case[] = [
  conformanceCase('Gather', 'rows', [x([5, 8]), at(4, 0, -1, 2)], { attributes: { axis: 0 } }),
  conformanceCase('Gather', 'odd rows', [x([5, 7]), places([2, 2], [4, 0, -5, 2])]),
  conformanceCase('Gather', 'last axis', [x([3, 5]), at(4, 0)], { attributes: { axis: -1 } }),
  conformanceCase('Gather', 'middle axis', [x([2, 5, 4]), places([2, 3], [0, 1, 2, -1, -2, 4])], {
    attributes: { axis: 1 },
  }),
  conformanceCase('Gather', 'scalar index', [x([2, 5, 4]), places([], [3])], { attributes: { axis: 1 } }),
  conformanceCase('Gather', 'no indices', [x([5, 4]), places([0], [])]),
  conformanceCase('Gather', '32-bit indices', [x([5, 4]), places([3], [1, 4, -2], 'INT32')]),
  conformanceCase('Gather', 'table kept in 16 bits', [given(filled('FP32', [6, 8], 3)), at(5, 0, 3)], {
    kept: { 0: 'FP16' },
    tolerance: 1e-3,
  }),
  ...everyWidth.map((datatype) => conformanceCase('Gather', datatype, [x([4, 3], datatype), at(3, 0, -2)])),
  conformanceCase('GatherElements', 'rows', [x([3, 3]), places([2, 3], [1, 2, 0, 2, 0, 0])]),
  conformanceCase('GatherElements', 'columns', [x([2, 4], 'INT64'), places([2, 3], [0, -1, 2, 3, 1, 1])], {
    attributes: { axis: 1 },
  }),
  conformanceCase('GatherElements', 'inner axis of 3', [x([2, 2, 3]), places([1, 2, 2], [0, -3, 2, 1])], {
    attributes: { axis: -1 },
  }),
  conformanceCase('GatherND', 'elements', [x([2, 2]), places([2, 2], [0, 0, 1, -1])]),
  conformanceCase('GatherND', 'slices', [x([3, 2, 4]), places([2, 1], [1, 0])]),
  conformanceCase('GatherND', 'batches', [x([2, 3, 4]), places([2, 1], [1, 0])], { attributes: { batch_dims: 1 } }),
  conformanceCase('GatherND', 'batches of tuples', [x([2, 3, 4], 'INT32'), places([2, 2, 1], [1, 0, 2, 2])], {
    attributes: { batch_dims: 1 },
  }),
];

const reductions = ['none', 'add', 'mul', 'max', 'min'] as const;
const scatters: readonly Case[] = [
  conformanceCase('ScatterElements', 'rows', [
    x([3, 3]),
    places([2, 3], [1, 0, 2, 0, 2, 1]),
    given(filled('FP32', [2, 3], 9)),
  ]),
  conformanceCase(
    'ScatterElements',
    'columns',
    [x([1, 5]), places([1, 2], [1, -2]), given(filled('FP32', [1, 2], 9))],
    {
      attributes: { axis: 1 },
    },
  ),
  ...reductions
    .slice(1)
    .map((reduction) =>
      conformanceCase(
        'ScatterElements',
        reduction,
        [x([2, 3], 'INT32'), places([2, 4], [1, 1, 0, 1, 2, 2, 2, 2]), given(filled('INT32', [2, 4], 9))],
        { attributes: { axis: 1, reduction }, opset: 18 },
      ),
    ),
  conformanceCase('ScatterND', 'elements', [
    x([8], 'INT64'),
    places([4, 1], [4, 3, 1, 7]),
    given(filled('INT64', [4], 9)),
  ]),
  conformanceCase('ScatterND', 'slices', [x([4, 2, 3]), places([2, 1], [0, 2]), given(filled('FP32', [2, 2, 3], 9))]),
  conformanceCase('ScatterND', 'by tuples', [
    x([2, 3, 2]),
    places([2, 2], [0, 2, 1, -3]),
    given(filled('FP32', [2, 2], 9)),
  ]),
  ...reductions
    .slice(1)
    .map((reduction) =>
      conformanceCase(
        'ScatterND',
        reduction,
        [x([4, 2]), places([3, 1], [1, 3, 1]), given(filled('FP32', [3, 2], 9))],
        { attributes: { reduction }, opset: 18 },
      ),
    ),
];

const padded = (
  shape: readonly number[],
  pads: number[],
  mode: string,
  more: readonly (CaseInput | undefined)[] = [],
  opset = 17,
): Case =>
  conformanceCase('Pad', `${mode} by ${pads.join()}`, [x(shape), ints(...pads), ...more], {
    attributes: { mode },
    opset,
  });

const pads: readonly Case[] = [
  padded([2, 3], [0, 2, 1, 1], 'constant'),
  padded([2, 3], [1, 0, 0, 2], 'constant', [scalar('FP32', -1.5)]),
  padded([2, 3], [1, 0, 0, 2], 'constant', [given(tensor('FP32', [], [2.5]))]),
  padded([4, 5], [-1, 1, 0, -2], 'constant'),
  padded([4, 5], [-1, -1, 0, -2], 'constant'),
  padded([1, 2, 4, 4], [0, 0, 1, 2, 0, 0, 2, 1], 'reflect'),
  padded([2, 3], [1, 2, 1, 2], 'edge'),
  padded([3, 4], [2, 3, 1, 4], 'wrap', [], 19),
  padded([0, 3], [1, 0, 1, 0], 'constant', [scalar('FP32', 3)]),
  padded([2, 3, 4], [1, 2], 'constant', [undefined, ints(-1)], 18),
  ...everyWidth.map((datatype) =>
    conformanceCase('Pad', datatype, [x([2, 3], datatype), ints(1, 1, 0, 2)], { opset: 19 }),
  ),
  conformanceCase('Pad', 'attributes of opset 10', [x([2, 3])], {
    attributes: { pads: [0, 1, 1, 0], value: { float: 1.5 } },
    opset: 10,
  }),
];

const range = (datatype: DataType, start: number, limit: number, step: number): Case =>
  conformanceCase('Range', `${datatype} ${start} to ${limit} by ${step}`, [
    given(tensor(datatype, [], [start])),
    given(tensor(datatype, [], [limit])),
    given(tensor(datatype, [], [step])),
  ]);

const filledCases: readonly Case[] = [
  conformanceCase('Trilu', 'upper', [x([2, 4, 5])]),
  conformanceCase('Trilu', 'lower below the diagonal', [x([4, 4]), scalar('INT64', -1)], { attributes: { upper: 0 } }),
  conformanceCase('Trilu', 'upper, diagonal at run time', [x([3, 4], 'INT64'), given(tensor('INT64', [], [1]))]),
  conformanceCase('Trilu', 'empty', [x([0, 4])]),
  range('INT64', 2, 11, 3),
  range('INT32', 5, -4, -2),
  range('FP32', 0.5, 3, 0.75),
  range('INT64', 3, 3, 1),
  conformanceCase('ConstantOfShape', 'zeros', [ints(2, 3)], { outputs: ['FP32'] }),
  conformanceCase('ConstantOfShape', 'floats', [ints(2, 3)], {
    attributes: {
      value: { tensor: { name: '', dims: [1n], dataType: 1, rawData: new Uint8Array(Float32Array.of(1.5).buffer) } },
    },
    outputs: ['FP32'],
  }),
  conformanceCase('ConstantOfShape', 'ones of 64 bits', [ints(5)], {
    attributes: {
      value: { tensor: { name: '', dims: [1n], dataType: 7, rawData: new Uint8Array(BigInt64Array.of(-7n).buffer) } },
    },
    outputs: ['INT64'],
  }),
  conformanceCase('ConstantOfShape', 'nothing', [ints(0, 3)], { outputs: ['FP32'] }),
  conformanceCase('OneHot', 'last axis', [at(1, 0, -1, 9), scalar('INT64', 3), known(tensor('FP32', [2], [0.5, 2]))], {
    outputs: ['FP32'],
  }),
  conformanceCase(
    'OneHot',
    'first axis',
    [places([2, 2], [1, 0, 3, 2]), scalar('INT64', 4), known(tensor('INT64', [2], [3, -1]))],
    { attributes: { axis: 0 }, outputs: ['INT64'] },
  ),
];

const resized = (
  shape: readonly number[],
  by: { readonly scales?: readonly number[]; readonly sizes?: readonly number[] },
  attributes: Readonly<Record<string, AttributeValue>>,
  options: CaseOptions = {},
): Case =>
  conformanceCase(
    'Resize',
    `[${shape.join(',')}] ${by.sizes === undefined ? 'by' : 'to'} ${(by.sizes ?? by.scales)?.join() ?? ''}`,
    [
      x(shape),
      undefined,
      by.scales === undefined ? undefined : known(tensor('FP32', [by.scales.length], by.scales)),
      ...(by.sizes === undefined ? [] : [ints(...by.sizes)]),
    ],
    { attributes, ...options },
  );

const transformations = ['half_pixel', 'pytorch_half_pixel', 'align_corners', 'asymmetric'];
const resizes: readonly Case[] = [
  ...transformations.flatMap((transformation) =>
    ['nearest', 'linear'].flatMap((mode) => [
      resized([1, 2, 3, 4], { scales: [1, 1, 2, 2] }, { mode, coordinate_transformation_mode: transformation }),
      resized([1, 2, 5, 7], { sizes: [1, 2, 3, 4] }, { mode, coordinate_transformation_mode: transformation }),
    ]),
  ),
  ...['round_prefer_ceil', 'floor', 'ceil'].map((rounding) =>
    resized([1, 1, 4, 6], { scales: [1, 1, 1.5, 0.5] }, { nearest_mode: rounding }),
  ),
  resized([2, 3, 4], { scales: [1, 1, 3] }, { mode: 'linear' }),
  resized([1, 1, 4, 4], { sizes: [6, 8] }, { mode: 'linear', axes: [2, 3] }, { opset: 18 }),
  resized(
    [1, 1, 4, 4],
    { scales: [1, 1, 1.4, 1.4] },
    { mode: 'linear', coordinate_transformation_mode: 'half_pixel_symmetric' },
    { opset: 19 },
  ),
  conformanceCase('Resize', 'opset 10', [x([1, 1, 3, 3]), known(tensor('FP32', [4], [1, 1, 2, 2]))], { opset: 10 }),
  conformanceCase('Resize', 'INT32', [x([1, 1, 3, 3], 'INT32'), undefined, known(tensor('FP32', [4], [1, 1, 2, 2]))]),
];

/** FP32 weights that are kept in 16 bits. */
const narrow: CaseOptions = { kept: { 0: 'FP16' }, tolerance: 1e-3 };
const narrowWeights: readonly Case[] = [
  conformanceCase('Transpose', 'kept in 16 bits', [x([5, 8])], { ...narrow, attributes: { perm: [1, 0] } }),
  conformanceCase('Transpose', 'kept in 16 bits, nothing moves', [x([1, 8])], {
    ...narrow,
    attributes: { perm: [1, 0] },
  }),
  conformanceCase('Slice', 'kept in 16 bits', [x([5, 8]), ints(1), ints(4)], narrow),
  conformanceCase('Concat', 'one kept in 16 bits', [x([5, 8]), x([2, 8])], { ...narrow, attributes: { axis: 0 } }),
  conformanceCase('Split', 'kept in 16 bits', [x([4, 8]), ints(1, 3)], { ...narrow, outputs: ['FP32', 'FP32'] }),
  conformanceCase('GatherElements', 'kept in 16 bits', [x([3, 3]), places([1, 3], [1, 2, 0])], narrow),
  conformanceCase('Expand', 'kept in 16 bits', [x([3, 1]), ints(3, 4)], { kept: { 0: 'BF16' }, tolerance: 1e-2 }),
  conformanceCase('Pad', 'kept in 16 bits', [x([3, 2]), ints(0, 1, 1, 0)], narrow),
];

/** Four columns of the image, each a sum of one or two of its three. */
const resampled = conformanceCase(
  'turntable.Resample',
  'one or two columns',
  [
    x([2, 3]),
    given(tensor('INT32', [4, 2], [0, 1, 2, -1, 1, 2, 0, -1])),
    given(tensor('FP32', [4, 2], [0.25, 0.75, 1, 0, 0.5, 0.5, 2, 0])),
  ],
  {
    attributes: { axes: [1] },
    reference: (graph, [image]) => {
      const columns = Float32Array.of(0.25, 0, 0, 2, 0.75, 0, 0.5, 0, 0, 1, 0.5, 0);
      return [graph.node('MatMul', [image!, graph.weight('columns', [3, 4], columns)])];
    },
  },
);

export const movementCases: readonly Case[] = [
  resampled,
  conformanceCase(
    'Scatter',
    'the form before opset 11',
    [given(filled('FP32', [3, 4])), given(tensor('INT64', [1, 4], [0, 2, 1, 0])), given(filled('FP32', [1, 4], 2))],
    { opset: 9 },
  ),
  ...views,
  ...transposes,
  ...slices,
  ...joins,
  ...strided,
  ...gathers,
  ...scatters,
  ...pads,
  ...filledCases,
  ...resizes,
  ...narrowWeights,
];
