/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { AttributeValue } from '../../../../src/onnx/index.ts';
import type { DataType } from '../../../../src/tensor/index.ts';
import { conformanceCase, filled, given, type Case } from '../case.ts';

function pooled(
  operator: string,
  shape: readonly number[],
  attributes: Record<string, AttributeValue>,
  datatype: DataType = 'FP32',
  opset = 17,
): Case {
  const name = `[${shape.join(',')}] ${datatype}`;
  return conformanceCase(operator, name, [given(filled(datatype, shape))], { attributes, opset });
}

const square = (kernel: number, stride = 1, pad = 0): Record<string, AttributeValue> => ({
  kernel_shape: [kernel, kernel],
  strides: [stride, stride],
  pads: [pad, pad, pad, pad],
});

const both: readonly Case[] = ['MaxPool', 'AveragePool'].flatMap((operator) => [
  pooled(operator, [1, 2, 6, 6], square(2, 2)),
  pooled(operator, [2, 3, 7, 7], square(3, 2, 1)),
  pooled(operator, [1, 2, 7, 5], { kernel_shape: [3, 2], strides: [2, 1], pads: [1, 0, 0, 1] }),
  pooled(operator, [1, 2, 7, 7], { ...square(3, 2), ceil_mode: 1 }),
  pooled(operator, [1, 1, 6, 6], { ...square(3, 2, 1), ceil_mode: 1 }),
  pooled(operator, [1, 2, 5, 6], { kernel_shape: [3, 3], strides: [2, 2], auto_pad: 'SAME_UPPER' }),
  pooled(operator, [1, 2, 5, 6], { kernel_shape: [2, 2], strides: [1, 1], auto_pad: 'SAME_LOWER' }),
  pooled(operator, [1, 2, 5, 6], { kernel_shape: [2, 3], auto_pad: 'VALID' }),
  pooled(operator, [2, 2, 9], { kernel_shape: [4], strides: [3], pads: [1, 2] }),
  pooled(operator, [1, 2, 4, 5, 4], { kernel_shape: [2, 2, 3], strides: [1, 2, 1] }),
  pooled(operator, [0, 2, 6, 6], square(2, 2)),
  ...(['FP16', 'BF16'] as const).map((datatype) => pooled(operator, [1, 2, 5, 5], square(3, 1, 1), datatype)),
]);

const withPlaces = (shape: readonly number[], attributes: Record<string, AttributeValue>): readonly Case[] =>
  [0, 1].map((storage_order) =>
    conformanceCase('MaxPool', `places, order ${storage_order}`, [given(filled('FP32', shape))], {
      attributes: { ...attributes, storage_order },
      outputs: ['FP32', 'INT64'],
    }),
  );

export const poolingCases: readonly Case[] = [
  ...withPlaces([2, 3, 7, 6], square(3, 2, 1)),
  ...withPlaces([1, 2, 9], { kernel_shape: [3], strides: [2] }),
  ...withPlaces([1, 2, 4, 5, 6], { kernel_shape: [2, 2, 3], strides: [1, 2, 1] }),
  ...[1, 2, 3].flatMap((p) => [
    pooled('LpPool', [1, 2, 7, 7], { ...square(3, 2), p }),
    pooled('LpPool', [1, 2, 6, 5], { ...square(2, 1, 1), p }),
    pooled('GlobalLpPool', [2, 3, 4, 5], { p }),
  ]),
  pooled('LpPool', [1, 2, 9], { kernel_shape: [4], strides: [3] }),
  pooled('LpPool', [1, 2, 9, 9], { ...square(3, 1), dilations: [2, 2] }, 'FP32', 18),
  ...both,
  pooled('MaxPool', [1, 2, 8, 8], { ...square(3, 1), dilations: [2, 2] }),
  pooled('MaxPool', [1, 2, 5, 5], square(3, 2, 1), 'UINT8'),
  pooled('MaxPool', [1, 2, 5, 5], square(3, 2, 1), 'INT8'),
  pooled('MaxPool', [1, 2, 5, 5], square(3, 2, 1), 'FP64'),
  pooled('AveragePool', [1, 2, 5, 5], { ...square(3, 1, 1), count_include_pad: 1 }),
  pooled('AveragePool', [1, 2, 7, 7], { ...square(3, 2, 1), count_include_pad: 1, ceil_mode: 1 }),
  pooled('AveragePool', [1, 2, 6, 6], { ...square(3, 2, 1), count_include_pad: 1, ceil_mode: 1 }, 'FP32', 19),
  pooled('AveragePool', [1, 2, 9, 9], { ...square(3, 1), dilations: [2, 2] }, 'FP32', 19),
  ...['GlobalAveragePool', 'GlobalMaxPool'].flatMap((operator) => [
    pooled(operator, [2, 3, 4, 5], {}),
    pooled(operator, [1, 2, 20, 20], {}),
    pooled(operator, [2, 3, 7], {}),
    pooled(operator, [2, 3, 4, 4], {}, 'FP16'),
  ]),
];
