import type { DataType } from '../../../src/tensor/index.ts';
import type { Drawn } from './draw.ts';

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
    const count = shape.reduce((product, size) => product * size, 1);
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

export const reduction: Readonly<Record<string, Drawn>> = {
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
};
