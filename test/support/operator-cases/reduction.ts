/** Cases of operators that reduce, order or accumulate along axes. */
/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import { elementCount, type DataType } from '../../../src/tensor/index.ts';
import { filled, given, ints, known, operatorCase, scalar, tensor, type Case, type CaseInput } from './case.ts';
import type { Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32', seed = 1): CaseInput =>
  given(filled(datatype, shape, seed));
const values = (shape: readonly number[], ...of: number[]): CaseInput => given(tensor('FP32', shape, of));

/** Axes are an attribute before opset 18 (13 for ReduceSum), then an input. */
const reduced = (
  operator: string,
  shape: readonly number[],
  axis: number,
  keepdims: 0 | 1,
  datatype: DataType = 'FP32',
): Case => {
  const asInput = operator === 'ReduceSum';
  return operatorCase(
    operator,
    `[${shape.join(',')}] over ${axis}, keepdims ${keepdims}`,
    [x(shape, datatype), ...(asInput ? [ints(axis)] : [])],
    { attributes: { keepdims, ...(asInput ? {} : { axes: [axis] }) } },
  );
};

const sums: readonly Case[] = [
  // Rows for a team of threads, for a block, for several rounds of one, and columns.
  ...['ReduceSum', 'ReduceMean', 'ReduceMax'].flatMap((operator) => [
    reduced(operator, [6, 40], -1, 0),
    reduced(operator, [2, 300], -1, 1),
    reduced(operator, [2, 4500], 1, 0),
    reduced(operator, [40, 50], 0, 0),
    reduced(operator, [2, 300, 3], 1, 1),
    reduced(operator, [4, 1], 1, 0),
    ...(['FP16', 'BF16', 'FP64', 'INT32', 'INT64'] as const).map((datatype) =>
      reduced(operator, [3, 33], 1, 1, datatype),
    ),
    ...(['FP16', 'FP64'] as const).map((datatype) => reduced(operator, [40, 3], 0, 1, datatype)),
  ]),
  ...['ReduceMin', 'ReduceProd', 'ReduceL1', 'ReduceSumSquare', 'ReduceLogSumExp'].map((operator) =>
    reduced(operator, [2, 300], 1, 0, 'FP64'),
  ),
  ...['ReduceL2', 'ReduceLogSum'].map((operator) =>
    operatorCase(operator, 'whole numbers', [given(tensor('INT32', [2, 3], [3, 4, 12, 1, 2, 2]))], {
      attributes: { axes: [1] },
    }),
  ),
  operatorCase('ReduceLogSumExp', 'large values', [values([1, 3], 500, 501, 499)], { attributes: { axes: [1] } }),
  operatorCase('ReduceMax', 'negative values and infinities', [values([2, 2], -3, -2, -Infinity, -7)], {
    attributes: { axes: [1] },
  }),
];

const repeated = values([2, 6], 1, 3, 3, 0, 3, 2, 5, 5, 5, 5, 5, 5);
const extremes: readonly Case[] = ['ArgMax', 'ArgMin'].flatMap((operator) => [
  ...(
    [
      [[3, 40], -1],
      [[2, 300], 1],
    ] as const
  ).map(([shape, axis]) =>
    operatorCase(operator, `[${shape.join(',')}] along ${axis}`, [x(shape)], {
      attributes: { axis },
      outputs: ['INT64'],
    }),
  ),
  operatorCase(operator, 'last of equals', [repeated], {
    attributes: { axis: 1, select_last_index: 1 },
    outputs: ['INT64'],
  }),
]);

const top = (shape: readonly number[], k: number, axis: number, largest = 1, datatype: DataType = 'FP32'): Case =>
  operatorCase('TopK', `${k} of [${shape.join(',')}] along ${axis}`, [x(shape, datatype), ints(k)], {
    attributes: { axis, largest },
    outputs: [datatype, 'INT64'],
  });

const summed = (
  shape: readonly number[],
  axis: number,
  more: Record<string, number> = {},
  datatype: DataType = 'FP32',
): Case =>
  operatorCase('CumSum', `[${shape.join(',')}] along ${axis}`, [x(shape, datatype), scalar('INT64', axis)], {
    attributes: more,
    tolerance: datatype === 'FP64' ? 1e-9 : datatype === 'FP32' ? 1e-5 : 0,
  });

const orders: readonly Case[] = [
  top([2, 40], 5, 1, 0),
  top([2, 300], 3, 1),
  operatorCase('TopK', 'equal values', [repeated, ints(4)], { outputs: ['FP32', 'INT64'] }),
  summed([2, 100], -1, { exclusive: 1 }),
  summed([1, 70], 1, { reverse: 1 }, 'INT64'),
  summed([2, 50, 3], 1, { exclusive: 1 }),
  operatorCase('CumProd', 'long', [x([2, 40]), scalar('INT64', -1)], { opset: 26 }),
  operatorCase('Det', '[2,2,5,5]', [x([2, 2, 5, 5])]),
  operatorCase('Det', 'nothing', [known(tensor('FP32', [2, 2], [1, 2, 2, 4]))]),
];

const floats: readonly DataType[] = ['FP32', 'FP32', 'FP16', 'FP64'];

const reduce =
  (operator: string, types: readonly DataType[]): Drawn =>
  (draw) => {
    const datatype = draw.pick(types);
    const shape = draw.shape(0, 4);
    const axes = draw.chance(0.2) ? undefined : draw.chance(0.1) ? [] : draw.axes(shape.length, 1);
    const asInput = operator === 'ReduceSum' ? draw.chance(0.7) : draw.chance(0.5);
    const attributes = draw.some({ keepdims: draw.int(0, 1) });
    // A product of whole numbers beyond 64 bits is undefined.
    const isWhole = operator === 'ReduceProd' && datatype.startsWith('INT');
    const x = draw.x(datatype, shape, isWhole ? 0.05 : 1);
    if (!asInput) {
      return draw.case(operator, [x], {
        attributes: axes === undefined || axes.length === 0 ? attributes : { ...attributes, axes },
        opset: operator === 'ReduceSum' ? 11 : draw.pick([11, 12, 13]),
      });
    }
    return draw.case(operator, axes === undefined ? [x] : [x, draw.ints(axes)], {
      attributes: { ...attributes, ...draw.some({ noop_with_empty_axes: draw.int(0, 1) }) },
      opset: operator === 'ReduceSum' ? draw.pick([13, 17, 18]) : draw.pick([18, 20]),
    });
  };

const arg =
  (operator: string): Drawn =>
  (draw) => {
    const shape = draw.filledShape(1, 4);
    const datatype = draw.pick(['FP32', 'FP32', 'FP16', 'FP64', 'INT32', 'INT8', 'UINT8'] as const);
    // Few different values, so that the first and the last of equal ones can be distinguished.
    const count = elementCount(shape);
    return draw.case(operator, [draw.values(datatype, shape, draw.list(count, 0, 3), false)], {
      attributes: draw.some({
        axis: draw.axis(shape.length),
        keepdims: draw.int(0, 1),
        select_last_index: draw.int(0, 1),
      }),
      opset: draw.pick([12, 13, 17]),
    });
  };

const topK: Drawn = (draw) => {
  const shape = draw.filledShape(1, 4);
  const axis = draw.axis(shape.length);
  const isDefault = draw.chance(0.3);
  const along = isDefault ? shape.at(-1)! : shape.at(axis)!;
  const k = draw.int(draw.chance(0.1) ? 0 : 1, along);
  const opset = draw.pick([10, 11, 17]);
  return draw.case(
    'TopK',
    [draw.x(draw.pick(['FP32', 'FP32', 'INT64', 'FP16', 'INT32'] as const), shape), draw.ints([k])],
    {
      attributes: {
        ...(isDefault ? {} : { axis }),
        ...(opset >= 11 ? draw.some({ largest: draw.int(0, 1), sorted: 1 }) : {}),
      },
      opset,
      outputs: 2,
    },
  );
};

const cumSum: Drawn = (draw) => {
  const shape = draw.shape(1, 4);
  return draw.case(
    'CumSum',
    [
      draw.x(draw.pick(['FP32', 'FP32', 'FP64', 'INT32', 'INT64'] as const), shape),
      draw.values(draw.pick(['INT64', 'INT32'] as const), draw.pick([[], [1]]), [draw.axis(shape.length)]),
    ],
    { attributes: draw.some({ exclusive: draw.int(0, 1), reverse: draw.int(0, 1) }), opset: draw.pick([11, 14]) },
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

export const reduction: FamilyCases = {
  named: [...sums, ...extremes, ...orders],
  drawn: {
    ...Object.fromEntries(
      'ReduceSum ReduceMean ReduceProd ReduceMax ReduceMin ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp'
        .split(' ')
        .map((operator) => {
          const whole = ['ReduceMax', 'ReduceMin'].includes(operator) ? (['INT8', 'UINT8'] as const) : [];
          return [operator, reduce(operator, [...floats, 'INT32', 'INT64', ...whole])];
        }),
    ),
    ArgMax: arg('ArgMax'),
    ArgMin: arg('ArgMin'),
    TopK: topK,
    CumSum: cumSum,
    CumProd: cumProd,
    Det: det,
  },
};
