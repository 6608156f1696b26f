import fc from 'fast-check';
import { expect, test } from 'vitest';
import { tensorOf } from '../../../tensor/index.ts';
import { broadcastStrides, collapse } from '../common/indexing.ts';
import { bf16ToNumber, fp16ToNumber } from '../../../tensor/index.ts';
import { literal } from './kernel.ts';

/** A shape, and operands that broadcast to it: some dimensions are 1, some leading ones are missing. */
const broadcast = fc.array(fc.integer({ min: 1, max: 4 }), { maxLength: 5 }).chain((shape) =>
  fc.record({
    shape: fc.constant(shape),
    operands: fc.array(
      fc
        .tuple(fc.array(fc.boolean(), { minLength: shape.length, maxLength: shape.length }), fc.nat(shape.length))
        .map(([ones, dropped]) => shape.map((size, axis) => (ones[axis] ? 1 : size)).slice(dropped)),
      { minLength: 1, maxLength: 3 },
    ),
  }),
);

/** For each element of the result, the index of the operand's element by numpy's rule. */
function expected(shape: readonly number[], operand: readonly number[]): number[] {
  const count = shape.reduce((product, size) => product * size, 1);
  return Array.from({ length: count }, (_, index) => {
    let rest = index;
    let at = 0;
    let stride = 1;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      const coordinate = rest % shape[axis]!;
      rest = Math.floor(rest / shape[axis]!);
      const own = operand[axis - shape.length + operand.length];
      if (own === undefined) continue;
      at += (own === 1 ? 0 : coordinate) * stride;
      stride *= own;
    }
    return at;
  });
}

test('collapsed dimensions visit the elements of numpy broadcasting', () => {
  fc.assert(
    fc.property(broadcast, ({ shape, operands }) => {
      const dimensions = collapse(shape, ...operands.map((operand) => broadcastStrides(operand, shape)));
      const sizes = dimensions.map(({ size }) => size);
      expect(sizes.length).toBeLessThanOrEqual(shape.length);
      for (const [place, operand] of operands.entries()) {
        const found = expected(shape, operand).map((_, index) => {
          let rest = index;
          let at = 0;
          for (let axis = sizes.length - 1; axis >= 0; axis--) {
            at += (rest % sizes[axis]!) * dimensions[axis]!.steps[place]!;
            rest = Math.floor(rest / sizes[axis]!);
          }
          return at;
        });
        expect(found).toEqual(expected(shape, operand));
      }
    }),
  );
});

test('operands of the full shape collapse to one dimension', () => {
  const full = [2, 3, 4];
  const strides = [full, [4]].map((operand) => broadcastStrides(operand, full));
  expect(collapse(full, strides[0]!, strides[0]!).map(({ size }) => size)).toEqual([24]);
  expect(collapse(full, ...strides).map(({ size }) => size)).toEqual([6, 4]);
});

test('shapes that do not broadcast are refused', () => {
  expect(() => broadcastStrides([3], [2, 4])).toThrow('[3] does not broadcast to [2,4]');
});

const bits = (value: number): number => new Uint32Array(Float32Array.of(value).buffer)[0]!;

test('literals have exactly the value of their element', () => {
  fc.assert(
    fc.property(fc.float({ noNaN: true, noDefaultInfinity: true }), (value) => {
      const text = literal(tensorOf('x', 'FP32', [], Float32Array.of(value)));
      expect(bits(Number(text.replaceAll(/[()f]/g, '')))).toBe(bits(value));
    }),
  );
  expect(literal(tensorOf('x', 'INT64', [], BigInt64Array.of(-(2n ** 63n))))).toBe('(-9223372036854775807LL - 1)');
  expect(literal(tensorOf('x', 'INT64', [1], BigInt64Array.of(2n ** 53n + 1n)))).toBe('(9007199254740993LL)');
  expect(literal(tensorOf('x', 'FP32', [], Float32Array.of(Number.NEGATIVE_INFINITY)))).toBe('(-F32_INFINITY)');
});

test('16-bit floats are decoded exactly', () => {
  expect([0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000].map((each) => fp16ToNumber(each))).toEqual([
    1,
    -2,
    2 ** -24,
    65504,
    -0,
  ]);
  expect(fp16ToNumber(0xfc00)).toBe(Number.NEGATIVE_INFINITY);
  expect(fp16ToNumber(0x7e00)).toBeNaN();
  expect(bf16ToNumber(0x3fc0)).toBe(1.5);
});
