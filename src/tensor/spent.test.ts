import { describe, expect, test } from 'vitest';
import { free, freedBytesMin, keepTensors, SpentBuffers } from './spent.ts';
import type { Tensor } from './tensor.ts';

const tensor = (data: Uint8Array): Tensor => ({ name: 'x', datatype: 'UINT8', shape: [data.byteLength], data });

test('memory that is freed is gone at once', () => {
  const before = process.memoryUsage().arrayBuffers;
  const buffer = Buffer.allocUnsafeSlow(2 ** 24);
  free(buffer.buffer);
  expect(buffer.byteLength).toBe(0);
  expect(process.memoryUsage().arrayBuffers).toBeLessThan(before + 2 ** 23);
});

describe('what a call leaves behind', () => {
  test.each([
    ['one tensor that is all of a buffer', [[0, 100_000]], true],
    [
      'two that are all of it together',
      [
        [0, 60_000],
        [60_000, 40_000],
      ],
      true,
    ],
    ['one beside which another call may have a part', [[0, 99_999]], false],
    [
      'two with a gap between them',
      [
        [0, 50_000],
        [60_000, 40_000],
      ],
      false,
    ],
  ] as const)('the buffer of %s is freed with its call: %o', (_, places, isFreed) => {
    const { buffer } = Buffer.allocUnsafeSlow(100_000);
    const spent = new SpentBuffers();
    spent.addWhole(places.map(([from, bytes]) => new Uint8Array(buffer, from, bytes)));
    expect(spent.isEmpty).toBe(!isFreed);
    spent.free();
    expect(buffer.byteLength).toBe(isFreed ? 0 : 100_000);
  });

  test('the body of a call is freed once, however many tensors are views of it', () => {
    const body = Buffer.allocUnsafeSlow(50_000);
    const spent = new SpentBuffers();
    spent.addOwn(body, body.subarray(10, 20), body.subarray(20));
    spent.free();
    spent.free();
    expect(body.byteLength).toBe(0);
  });

  test('a buffer that another reader keeps stays', () => {
    const body = Buffer.allocUnsafeSlow(50_000);
    keepTensors([tensor(body.subarray(8))]);
    const spent = new SpentBuffers();
    spent.addOwn(body);
    spent.addWhole([body]);
    expect(spent.isEmpty).toBe(true);
  });

  test('a buffer that is too small to be worth it stays', () => {
    const spent = new SpentBuffers();
    spent.addOwn(Buffer.allocUnsafeSlow(freedBytesMin - 1));
    expect(spent.isEmpty).toBe(true);
  });

  test('the pool that Node cuts small buffers from stays, however large it is', () => {
    const { poolSize } = Buffer;
    Buffer.poolSize = 2 ** 17;
    try {
      // The pool before this one had another size.
      while (Buffer.from('filled').buffer.byteLength !== Buffer.poolSize);
      const [own, other] = [Buffer.from('a small body'), Buffer.from('of another call')];
      expect(own.buffer).toBe(other.buffer);
      const spent = new SpentBuffers();
      spent.addOwn(own);
      spent.free();
      free(own.buffer);
      expect([own.toString(), other.toString()]).toEqual(['a small body', 'of another call']);
    } finally {
      Buffer.poolSize = poolSize;
    }
  });
});
