import { expect, test } from 'vitest';
import { tensorOf, type Tensor } from '../../tensor/index.ts';
import { disagreementOf } from './compare.ts';

const floats = (name: string, values: readonly number[]): Tensor =>
  tensorOf(name, 'FP32', [values.length], Float32Array.from(values));

test('differences within the noise of 32-bit floats prove nothing, not even that the answer is right', () => {
  const expected = [floats('map', [8.94e-8, 0])];
  expect(disagreementOf([floats('map', [8.94e-8, 0])], expected, 'fp32')).toBeUndefined();
  expect(disagreementOf([floats('map', [1.6e-8, 0])], expected, 'fp32')).toMatchObject({
    output: 'map',
    isFaint: true,
  });
  expect(disagreementOf([floats('map', [3.4e-7, 0])], expected, 'fp32')).toMatchObject({ isFaint: false });
  expect(disagreementOf([floats('map', [NaN, 0])], expected, 'fp32')).toMatchObject({ isFaint: false });
});

test('beside an ordinary element faint differences do not count', () => {
  expect(disagreementOf([floats('map', [1.6e-8, 0.5])], [floats('map', [8.94e-8, 0.5])], 'fp32')).toBeUndefined();
});

test('an output that differs is named before one whose difference is faint', () => {
  const expected = [floats('faint', [8e-8]), floats('wrong', [1])];
  const actual = [floats('faint', [0]), floats('wrong', [2])];
  expect(disagreementOf(actual, expected, 'fp32')).toMatchObject({ output: 'wrong', isFaint: false });
});
