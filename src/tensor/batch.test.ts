import { expect, test } from 'vitest';
import { joinInputs, joinKeyOf, splitOutputs, tensorOf, elements, type Tensor } from './index.ts';

const x = (...values: number[]): Tensor => tensorOf('x', 'FP32', [values.length / 2, 2], new Float32Array(values));
const call = (input: Tensor) => ({ inputs: [input], outputs: undefined });

test('calls are joined row by row, and the last row is repeated up to the size of the run', () => {
  const [joined] = joinInputs([call(x(1, 2)), call(x(3, 4, 5, 6))], 5);
  expect([joined!.shape, [...elements(joined!)]]).toEqual([
    [5, 2],
    [1, 2, 3, 4, 5, 6, 5, 6, 5, 6],
  ]);
});

test('an answer is cut into those of its calls, and the repeated rows are dropped', () => {
  const parts = splitOutputs([x(1, 2, 3, 4, 5, 6, 9, 9)], [1, 2], 4);
  expect(parts?.map(([output]) => [output!.shape, [...elements(output!)]])).toEqual([
    [
      [1, 2],
      [1, 2],
    ],
    [
      [2, 2],
      [3, 4, 5, 6],
    ],
  ]);
});

test('an answer without a row for each row of input is not cut', () => {
  expect(splitOutputs([x(1, 2)], [1, 1])).toBeUndefined();
  expect(splitOutputs([x(1, 2, 3, 4)], [1, 1], 4)).toBeUndefined();
});

test('calls with other inner shapes, datatypes or names have other keys', () => {
  const key = joinKeyOf(call(x(1, 2)));
  expect(joinKeyOf(call(x(3, 4, 5, 6)))).toBe(key);
  const others = [
    tensorOf('x', 'FP32', [1, 1], new Float32Array(1)),
    tensorOf('x', 'INT32', [1, 2], new Int32Array(2)),
    tensorOf('y', 'FP32', [1, 2], new Float32Array(2)),
  ];
  for (const other of others) expect(joinKeyOf(call(other))).not.toBe(key);
  expect(joinKeyOf(call(tensorOf('x', 'FP32', [], new Float32Array(1))))).toBeUndefined();
});
