/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { DataType } from '../../../../src/tensor/index.ts';
import { conformanceCase, filled, given, ints, scalar, tensor, type Case, type CaseInput } from '../case.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1): CaseInput =>
  given(filled(datatype, shape, seed));
/** Positive values, for logarithms. */
const positive = (shape: readonly number[], datatype: DataType = 'FP32'): CaseInput => {
  const { data } = filled('FP32', shape);
  const values = Array.from(new Float32Array(data.buffer), (value) => Math.abs(value) + 0.1);
  return given(tensor(datatype, shape, values));
};

const operators = [
  'ReduceSum',
  'ReduceMean',
  'ReduceProd',
  'ReduceMax',
  'ReduceMin',
  'ReduceL1',
  'ReduceL2',
  'ReduceSumSquare',
  'ReduceLogSum',
  'ReduceLogSumExp',
] as const;

/** Axes are an attribute before opset 18 (13 for ReduceSum), then an input. */
function reduced(
  operator: string,
  shape: readonly number[],
  axes: readonly number[] | undefined,
  keepdims: 0 | 1,
  datatype: DataType = 'FP32',
): Case {
  const input = operator === 'ReduceLogSum' ? positive(shape, datatype) : x(shape, datatype);
  const asInput = operator === 'ReduceSum';
  return conformanceCase(
    operator,
    `[${shape.join(',')}] over ${axes?.join() ?? 'all'}, keepdims ${keepdims}`,
    [input, ...(asInput && axes !== undefined ? [ints(...axes)] : [])],
    { attributes: { keepdims, ...(asInput || axes === undefined ? {} : { axes }) } },
  );
}

const sums: readonly Case[] = [
  ...operators.flatMap((operator) => [
    reduced(operator, [3, 7], [1], 1),
    reduced(operator, [3, 7], [0], 0),
    reduced(operator, [2, 3, 4, 5], [1, 3], 1),
    reduced(operator, [2, 3, 4], undefined, 0),
  ]),
  ...['ReduceSum', 'ReduceMean', 'ReduceMax'].flatMap((operator) => [
    reduced(operator, [6, 40], [-1], 0),
    reduced(operator, [2, 300], [-1], 1),
    reduced(operator, [2, 4500], [1], 0),
    reduced(operator, [40, 50], [0], 0),
    reduced(operator, [2, 300, 3], [1], 1),
    reduced(operator, [4, 1], [1], 0),
    reduced(operator, [], [], 1),
    ...(['FP16', 'BF16', 'FP64', 'INT32', 'INT64'] as const).map((datatype) =>
      reduced(operator, [3, 33], [1], 1, datatype),
    ),
    ...(['FP16', 'FP64'] as const).map((datatype) => reduced(operator, [40, 3], [0], 1, datatype)),
  ]),
  reduced('ReduceMax', [3, 9], [1], 1, 'INT8'),
  reduced('ReduceMin', [3, 9], [1], 1, 'UINT8'),
  reduced('ReduceProd', [3, 4], [1], 0, 'INT32'),
  reduced('ReduceLogSumExp', [2, 300], [1], 0, 'FP64'),
  conformanceCase('ReduceSum', 'no axes is no reduction', [x([2, 3]), ints()], {
    attributes: { noop_with_empty_axes: 1 },
  }),
  conformanceCase('ReduceMean', 'axes as an input', [x([2, 3, 4]), ints(-2)], { opset: 18 }),
  conformanceCase('ReduceL2', 'axes as an input', [x([2, 3, 4]), ints(0, 2)], {
    attributes: { keepdims: 0 },
    opset: 18,
  }),
  conformanceCase('ReduceLogSumExp', 'large values', [given(tensor('FP32', [1, 3], [500, 501, 499]))], {
    attributes: { axes: [1] },
  }),
  conformanceCase(
    'ReduceMax',
    'negative values and infinities',
    [given(tensor('FP32', [2, 2], [-3, -2, -Infinity, -7]))],
    {
      attributes: { axes: [1] },
    },
  ),
];

const arg = (
  operator: string,
  shape: readonly number[],
  axis: number,
  more: Record<string, number> = {},
  datatype: DataType = 'FP32',
): Case =>
  conformanceCase(operator, `[${shape.join(',')}] along ${axis}`, [x(shape, datatype)], {
    attributes: { axis, ...more },
    outputs: ['INT64'],
  });

const repeated = given(tensor('FP32', [2, 6], [1, 3, 3, 0, 3, 2, 5, 5, 5, 5, 5, 5]));
const extremes: readonly Case[] = ['ArgMax', 'ArgMin'].flatMap((operator) => [
  arg(operator, [3, 9], 1),
  arg(operator, [3, 40], -1, { keepdims: 0 }),
  arg(operator, [2, 300], 1),
  arg(operator, [5, 4], 0),
  arg(operator, [2, 5, 3], 1, { keepdims: 0 }),
  arg(operator, [3, 9], 1, {}, 'INT32'),
  arg(operator, [3, 20], 1, {}, 'FP64'),
  conformanceCase(operator, 'first of equals', [repeated], { attributes: { axis: 1 }, outputs: ['INT64'] }),
  conformanceCase(operator, 'last of equals', [repeated], {
    attributes: { axis: 1, select_last_index: 1 },
    outputs: ['INT64'],
  }),
]);

const top = (shape: readonly number[], k: number, axis: number, largest = 1, datatype: DataType = 'FP32'): Case =>
  conformanceCase('TopK', `${k} of [${shape.join(',')}] along ${axis}`, [x(shape, datatype), ints(k)], {
    attributes: { axis, largest },
    outputs: [datatype, 'INT64'],
  });

const summed = (
  shape: readonly number[],
  axis: number,
  more: Record<string, number> = {},
  datatype: DataType = 'FP32',
): Case =>
  conformanceCase('CumSum', `[${shape.join(',')}] along ${axis}`, [x(shape, datatype), scalar('INT64', axis)], {
    attributes: more,
    tolerance: datatype === 'FP64' ? 1e-9 : datatype === 'FP32' ? 1e-5 : 0,
  });

export const reductionCases: readonly Case[] = [
  ...['ReduceL2', 'ReduceLogSum'].map((operator) =>
    conformanceCase(operator, 'whole numbers', [given(tensor('INT32', [2, 3], [3, 4, 12, 1, 2, 2]))], {
      attributes: { axes: [1] },
    }),
  ),
  ...sums,
  ...extremes,
  top([3, 9], 4, -1),
  top([2, 40], 5, 1, 0),
  top([5, 3], 2, 0),
  top([2, 300], 3, 1),
  top([2, 12], 12, 1, 1, 'INT64'),
  top([4], 0, 0),
  conformanceCase('TopK', 'equal values', [repeated, ints(4)], { outputs: ['FP32', 'INT64'] }),
  summed([3, 7], 1),
  summed([2, 100], 1),
  summed([2, 100], -1, { exclusive: 1 }),
  summed([1, 70], 1, { reverse: 1 }, 'INT64'),
  summed([2, 40], 1, { reverse: 1, exclusive: 1 }, 'INT32'),
  summed([4, 3, 2], 0),
  summed([2, 50, 3], 1, { exclusive: 1 }),
  summed([3, 5, 2], 1, { reverse: 1, exclusive: 1 }, 'FP64'),
];
