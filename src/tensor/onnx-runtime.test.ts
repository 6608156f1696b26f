import { expect, test } from 'vitest';
import { loadOnnxRuntime } from './onnx-runtime.ts';

test('half-precision tensors hold their bits, whatever arrays the language has', () => {
  const before = Object.getOwnPropertyDescriptor(globalThis, 'Float16Array');
  const ort = loadOnnxRuntime();
  const bits = Uint16Array.of(0x3c00, 0xc000, 0x7e00);
  const { data } = new ort.Tensor('float16', bits, [3]);
  expect(data).toBeInstanceOf(Uint16Array);
  expect(data).toEqual(bits);
  expect(Object.getOwnPropertyDescriptor(globalThis, 'Float16Array')).toEqual(before);
});
