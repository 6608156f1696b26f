import { expect, test } from 'vitest';
import { operators } from '../../../src/gpu/operators/index.ts';
import type { DataType, Tensor } from '../../../src/tensor/index.ts';
import {
  operatorCase,
  filled,
  given,
  ints,
  known,
  scalar,
  tensor,
  type Case,
  type CaseInput,
} from '../../support/operator-cases/case.ts';
import { Recording } from './recording.ts';

const x = (shape: readonly number[], datatype: DataType = 'FP32'): CaseInput => given(filled(datatype, shape));

const expectedOf = (datatype: DataType, shape: readonly number[]): Tensor => ({ name: '', ...filled(datatype, shape) });

/** The reason for which an operator refuses a case. @param shapes of its outputs */
function refusal(one: Case, ...shapes: (readonly number[])[]): string {
  const datatypes = one.outputs.filter((datatype) => datatype !== undefined);
  const expected = shapes.map((shape, index) => expectedOf(datatypes[index]!, shape));
  const recording = new Recording();
  try {
    recording.add(one, operators, expected);
  } catch (error) {
    return (error as Error).message.replace(/^.*?\{.*?\}: /, '');
  }
  return 'covered';
}

test('an unsupported use of an operator is refused with its name', () => {
  const at = given(tensor('INT64', [1], [1]));
  const cases: readonly (readonly [Case, readonly (readonly number[])[], string])[] = [
    [
      operatorCase('MaxPool', 'whole numbers', [x([1, 1, 4, 4], 'INT32')], { attributes: { kernel_shape: [2, 2] } }),
      [[1, 1, 3, 3]],
      "'input0' is INT32, but only FP32, FP16, BF16, FP64, INT8, UINT8 are covered",
    ],
    [
      operatorCase('Slice', 'at run time', [x([4]), at, ints(3)]),
      [[2]],
      "'input1', its starts, is computed at run time",
    ],
    [
      operatorCase('ReduceSum', 'at run time', [x([4, 2]), at]),
      [[4, 1]],
      "'input1', its axes, is computed at run time",
    ],
    [
      operatorCase('ReduceMean', 'axis', [x([4, 2])], { attributes: { axes: [2] } }),
      [[4, 2]],
      'axis 2 is outside of a tensor with 2 dimensions',
    ],
    [
      operatorCase('Col2Im', '3D, 2 channels', [x([1, 4, 24]), ints(3, 4, 4), ints(1, 1, 2)], {
        attributes: { dilations: [1, 1, 2] },
      }),
      [[1, 2, 3, 4, 4]],
      'dilated blocks along 3 axes, which ONNX Runtime misplaces',
    ],
    [
      operatorCase('TopK', 'many', [x([5000]), ints(2000)], { outputs: ['FP32'] }),
      [[2000]],
      'its K is 2000, but at most 1024 are covered',
    ],
    [
      operatorCase('BatchNormalization', 'training', [x([1, 2]), x([2]), x([2]), x([2]), x([2])], {
        attributes: { training_mode: 1 },
      }),
      [[1, 2]],
      'it is in training mode',
    ],
    [
      operatorCase('Resize', 'mode', [x([1, 1, 2, 2]), undefined, known(tensor('FP32', [4], [1, 1, 2, 2]))], {
        attributes: { mode: 'spline' },
      }),
      [[1, 1, 4, 4]],
      "its mode 'spline' is not covered",
    ],
    [
      operatorCase('com.microsoft.MatMulNBits', 'bits', [x([1, 16]), x([4, 1, 6], 'UINT8'), x([4])], {
        attributes: { N: 4, K: 16, bits: 3, block_size: 16 },
      }),
      [[1, 4]],
      'its weights have 3 bits',
    ],
    [
      operatorCase('Attention', 'heads', [x([1, 2, 6]), x([1, 2, 4]), x([1, 2, 4])], {
        attributes: { q_num_heads: 3, kv_num_heads: 2 },
        opset: 23,
      }),
      [[1, 2, 6]],
      '3 heads of queries do not share 2 heads of keys',
    ],
    [
      operatorCase('Transpose', 'permutation', [x([2, 3])], { attributes: { perm: [0, 0] } }),
      [[2, 2]],
      'its permutation [0,0] does not name each of 2 axes once',
    ],
    [
      operatorCase('CumSum', 'at run time', [x([4]), given(tensor('INT64', [], [0]))]),
      [[4]],
      "'input1', its axis, is computed at run time",
    ],
    [
      operatorCase('ScatterND', 'reduction', [x([4]), given(tensor('INT64', [1, 1], [1])), x([1])], {
        attributes: { reduction: 'mean' },
      }),
      [[4]],
      "its reduction 'mean' is not covered",
    ],
    [
      operatorCase('Gather', 'indices', [x([4]), given(tensor('FP32', [1], [1]))]),
      [[1]],
      "'input1' is FP32, but only INT64, INT32 are covered",
    ],
    [
      operatorCase('Pad', 'mode', [x([4]), ints(1, 1), scalar('FP32', 0)], { attributes: { mode: 'symmetric' } }),
      [[6]],
      "its mode 'symmetric' is not covered",
    ],
  ];

  const found = cases.map(([one, shapes]) => refusal(one, ...shapes));

  expect(found).toEqual(cases.map(([, , reason]) => reason));
});

test('empty tensors launch nothing', () => {
  const empty: readonly (readonly [Case, readonly (readonly number[])[]])[] = [
    [operatorCase('Softmax', 'no rows', [x([0, 4])]), [[0, 4]]],
    [operatorCase('Transpose', 'no columns', [x([3, 0])], { attributes: { perm: [1, 0] } }), [[0, 3]]],
    [operatorCase('Concat', 'nothing', [x([0, 2]), x([0, 2])], { attributes: { axis: 1 } }), [[0, 4]]],
    [operatorCase('Gather', 'no indices', [x([4, 2]), given(tensor('INT64', [0], []))]), [[0, 2]]],
    [operatorCase('MaxPool', 'no images', [x([0, 1, 4, 4])], { attributes: { kernel_shape: [2, 2] } }), [[0, 1, 3, 3]]],
    [operatorCase('Add', 'nothing', [x([0, 2]), x([2])]), [[0, 2]]],
    [operatorCase('MatMul', 'no rows', [x([0, 2]), x([2, 3])]), [[0, 3]]],
    [operatorCase('LayerNormalization', 'no rows', [x([0, 2]), x([2])]), [[0, 2]]],
    [operatorCase('Tile', 'no times', [x([2, 2]), ints(0, 1)]), [[0, 2]]],
  ];
  for (const [one, shapes] of empty) {
    const recording = new Recording();
    const expected = shapes.map((shape) => expectedOf('FP32', shape));
    recording.add(one, operators, expected);
    expect(recording.cases[0]!.launches, one.operator).toEqual([]);
  }
});
