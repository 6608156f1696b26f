/** Cases of operators on windows of images. */
/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { DataType } from '../../../src/tensor/index.ts';
import { filled, given, operatorCase, type Case, type CaseInput, type CaseOptions } from './case.ts';
import type { Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32'): CaseInput => given(filled(datatype, shape));
const pooled = (
  operator: string,
  name: string,
  input: CaseInput,
  attributes: Case['attributes'],
  more: CaseOptions = {},
): Case => operatorCase(operator, name, [input], { attributes, ...more });

const square = { kernel_shape: [3, 3], strides: [1, 1], pads: [1, 1, 1, 1] };
const cases: readonly Case[] = [
  ...['MaxPool', 'AveragePool'].map((operator) => pooled(operator, 'BF16', x([1, 2, 5, 5], 'BF16'), square)),
  ...[0, 1].map((storage_order) =>
    pooled(
      'MaxPool',
      `places in three dimensions, order ${storage_order}`,
      x([1, 2, 4, 5, 6]),
      { kernel_shape: [2, 2, 3], strides: [1, 2, 1], storage_order },
      { outputs: ['FP32', 'INT64'] },
    ),
  ),
  // The last window lies partly beyond the padding: whether it counts there changed with opset 19.
  ...[17, 19].map((opset) =>
    pooled(
      'AveragePool',
      'a last window beyond the padding',
      x([1, 2, opset === 17 ? 7 : 6, opset === 17 ? 7 : 6]),
      { ...square, strides: [2, 2], count_include_pad: 1, ceil_mode: 1 },
      { opset },
    ),
  ),
  pooled('LpPool', 'dilated, p 3', x([1, 2, 9, 9]), { kernel_shape: [3, 3], dilations: [2, 2], p: 3 }, { opset: 18 }),
  pooled('com.microsoft.NhwcMaxPool', 'padded', x([1, 5, 5, 3], 'UINT8'), square),
  ...['GlobalAveragePool', 'GlobalMaxPool', 'GlobalLpPool'].map((operator) =>
    pooled(operator, 'large images', x([1, 2, 20, 20]), {}),
  ),
];

const pool =
  (operator: 'MaxPool' | 'AveragePool' | 'LpPool'): Drawn =>
  (draw) => {
    const axes = draw.pick([1, 2, 2, 3]);
    const kernel = draw.list(axes, 1, 4);
    const types: readonly DataType[] =
      operator === 'MaxPool' ? ['FP32', 'FP32', 'FP16', 'FP64', 'INT8', 'UINT8'] : ['FP32', 'FP32', 'FP16'];
    const way = draw.pick(['none', 'pads', 'pads', 'pads', 'auto'] as const);
    const dilated = operator !== 'AveragePool' || draw.chance(0.3);
    const opset = dilated ? (operator === 'MaxPool' ? draw.pick([10, 12, 22]) : 19) : draw.pick([10, 11, 19, 22]);
    const outputs = operator === 'MaxPool' && draw.chance(0.15) ? 2 : 1;
    return draw.case(
      operator,
      [draw.x(draw.pick(types), [draw.pick([1, 2, 1, 0]), draw.int(1, 3), ...draw.list(axes, 3, 9)])],
      {
        attributes: {
          kernel_shape: kernel,
          ...(way === 'pads' ? { pads: [...kernel, ...kernel].map((size) => draw.int(0, Math.max(0, size - 1))) } : {}),
          ...(way === 'auto' ? { auto_pad: draw.pick(['SAME_UPPER', 'SAME_LOWER', 'VALID']) } : {}),
          ...draw.some({ strides: draw.list(axes, 1, 4) }, 0.7),
          ...draw.some({ ceil_mode: 1 }),
          ...(dilated ? draw.some({ dilations: draw.list(axes, 1, 2) }, 0.4) : {}),
          ...(operator === 'AveragePool' ? draw.some({ count_include_pad: draw.int(0, 1) }) : {}),
          ...(operator === 'LpPool' ? draw.some({ p: draw.int(1, 3) }) : {}),
          ...(outputs === 2 ? draw.some({ storage_order: draw.int(0, 1) }) : {}),
        },
        opset,
        outputs,
      },
    );
  };

const global =
  (operator: string): Drawn =>
  (draw) => {
    const shape = [draw.pick([1, 2, 0, 1]), draw.int(1, 3), ...draw.filledShape(1, 3)];
    return draw.case(operator, [draw.x(draw.pick(['FP32', 'FP32', 'FP16'] as const), shape)], {
      attributes: operator === 'GlobalLpPool' ? draw.some({ p: draw.int(1, 3) }) : {},
      opset: draw.pick([9, 17, 22]),
    });
  };

const nhwc: Drawn = (draw) => {
  const sizes = draw.list(2, 3, 9);
  return draw.case(
    'com.microsoft.NhwcMaxPool',
    [draw.x(draw.pick(['INT8', 'UINT8']), [draw.int(1, 2), ...sizes, draw.int(1, 4)])],
    {
      attributes: {
        kernel_shape: draw.list(2, 1, 3),
        ...draw.some({ strides: draw.list(2, 1, 3), dilations: draw.list(2, 1, 2), ceil_mode: 1 }),
      },
    },
  );
};

export const pooling: FamilyCases = {
  named: cases,
  drawn: {
    MaxPool: pool('MaxPool'),
    AveragePool: pool('AveragePool'),
    LpPool: pool('LpPool'),
    'com.microsoft.NhwcMaxPool': nhwc,
    GlobalAveragePool: global('GlobalAveragePool'),
    GlobalMaxPool: global('GlobalMaxPool'),
    GlobalLpPool: global('GlobalLpPool'),
  },
};
