import type { AttributeValue } from '../../../../src/onnx/index.ts';
import type { DataType } from '../../../../src/tensor/index.ts';
import { conformanceCase, filled, given, known, scalar, tensor, type Case, type CaseInput } from '../case.ts';

type Attributes = Record<string, AttributeValue>;

const x = (shape: readonly number[], seed = 1, datatype: DataType = 'FP32'): CaseInput =>
  given(filled(datatype, shape, seed));

const dft = (
  name: string,
  shape: readonly number[],
  more: readonly (CaseInput | undefined)[],
  attributes: Attributes,
  opset = 20,
  datatype: DataType = 'FP32',
): Case => conformanceCase('DFT', name, [x(shape, 1, datatype), ...more], { attributes, opset, tolerance: 1e-4 });

const dfts: readonly Case[] = [
  dft('real', [1, 10, 1], [], {}),
  dft('complex', [2, 10, 2], [], {}),
  dft('a power of two', [2, 16, 1], [], {}),
  dft('inverse', [2, 10, 2], [], { inverse: 1 }),
  dft('inverse of real', [2, 8, 1], [], { inverse: 1 }),
  dft('one side', [2, 10, 1], [], { onesided: 1 }),
  dft('one side, odd', [2, 9, 1], [], { onesided: 1 }),
  dft('along 1', [2, 6, 4, 2], [undefined, scalar('INT64', 1)], {}),
  dft('along 0', [5, 3, 1], [undefined, scalar('INT64', 0)], {}),
  dft('along -3', [2, 6, 4, 1], [undefined, scalar('INT64', -3)], { onesided: 1 }),
  dft('longer', [2, 6, 1], [scalar('INT64', 10)], {}),
  dft('shorter', [2, 6, 2], [scalar('INT64', 4)], {}),
  dft('shorter, one side', [2, 9, 1], [scalar('INT64', 6)], { onesided: 1 }),
  dft('FP64', [2, 7, 1], [], {}, 20, 'FP64'),
  dft('17', [2, 6, 4, 1], [], { axis: 1 }, 17),
  dft('17, another axis', [2, 6, 4, 2], [], { axis: 2, inverse: 1 }, 17),
  dft('17, one side', [2, 6, 1], [], { onesided: 1 }, 17),
];

const stft = (
  name: string,
  shape: readonly number[],
  more: readonly (CaseInput | undefined)[],
  attributes: Attributes = {},
): Case => conformanceCase('STFT', name, [x(shape), scalar('INT64', 3), ...more], { attributes, tolerance: 1e-4 });

const stfts: readonly Case[] = [
  stft('length', [1, 20, 1], [undefined, scalar('INT64', 8)]),
  stft('window', [2, 20, 1], [x([8], 2)]),
  stft('window and length', [2, 20, 1], [x([6], 2), scalar('INT64', 6)]),
  stft('both sides', [2, 20, 1], [x([8], 2)], { onesided: 0 }),
  stft('complex', [1, 20, 2], [undefined, scalar('INT64', 8)], { onesided: 0 }),
];

export const signalCases: readonly Case[] = [
  ...dfts,
  ...stfts,
  ...[
    [3, 3],
    [2, 4, 4],
    [2, 2, 5, 5],
    [1, 1],
  ].map((shape) => conformanceCase('Det', `[${shape.join(',')}]`, [x(shape)])),
  conformanceCase('Det', 'nothing', [known(tensor('FP32', [2, 2], [1, 2, 2, 4]))]),
  ...[0, 1].flatMap((exclusive) =>
    [0, 1].map((reverse) =>
      conformanceCase('CumProd', `${exclusive} ${reverse}`, [x([3, 7]), scalar('INT64', 1)], {
        attributes: { exclusive, reverse },
        opset: 26,
      }),
    ),
  ),
  conformanceCase('CumProd', 'long', [x([2, 40]), scalar('INT64', -1)], { opset: 26 }),
  conformanceCase('BitCast', 'to whole numbers', [x([3, 4])], { attributes: { to: 6 }, outputs: ['INT32'], opset: 26 }),
  ...[1, 2].flatMap((p) =>
    [-1, 0, 1].map((axis) =>
      conformanceCase('LpNormalization', `${p} ${axis}`, [x([3, 4, 5])], { attributes: { p, axis } }),
    ),
  ),
  conformanceCase('LpNormalization', 'zeros', [given(tensor('FP32', [2, 2], [0, 0, 3, 4]))]),
  conformanceCase('MeanVarianceNormalization', 'default', [x([2, 3, 4, 5])], { tolerance: 1e-4 }),
  conformanceCase('MeanVarianceNormalization', 'last axes', [x([2, 3, 4, 5])], {
    attributes: { axes: [2, 3] },
    tolerance: 1e-4,
  }),
  conformanceCase('MeanVarianceNormalization', 'first axis', [x([5, 3, 4])], {
    attributes: { axes: [0] },
    tolerance: 1e-4,
  }),
  conformanceCase('MeanVarianceNormalization', 'one element', [given(tensor('FP32', [1, 1, 1, 1], [-0.69]))]),
  conformanceCase('MeanVarianceNormalization', 'equal ones in a channel', [
    given(tensor('FP32', [1, 2, 1, 2], [2, 2, 3, 4])),
  ]),
  ...[-1, 0, 1].flatMap((axis) =>
    [11, 13].map((opset) => conformanceCase('Hardmax', `${axis}`, [x([3, 4, 5])], { attributes: { axis }, opset })),
  ),
  conformanceCase('Hardmax', 'equal ones', [given(tensor('FP32', [2, 3], [1, 3, 3, 2, 2, 2]))]),
];
