import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { numberToBf16, numberToFp16, singlesToBf16, singlesToFp16 } from './half.ts';

function converted(value: number, convert: typeof singlesToFp16): number {
  const to = new Uint16Array(1);
  convert(new Uint32Array(Float32Array.of(value).buffer), to);
  return to[0]!;
}

/** By definition: (-1)^s * 2^(e-15) * (1 + m/1024), subnormal where e is 0. */
function fromHalf(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >>> 10) & 31;
  const mantissa = bits & 1023;
  if (exponent === 31) return mantissa === 0 ? sign * Infinity : NaN;
  return exponent === 0 ? sign * mantissa * 2 ** -24 : sign * (1 + mantissa / 1024) * 2 ** (exponent - 15);
}

function fromBrain(bits: number): number {
  return new Float32Array(Uint32Array.of(bits << 16).buffer)[0]!;
}

/** The neighbours of a 16-bit pattern of the same sign, as values. */
function isNearest(value: number, bits: number, back: (bits: number) => number): boolean {
  const own = Math.abs(back(bits) - value);
  const neighbours = [bits - 1, bits + 1].filter((other) => (other & 0x8000) === (bits & 0x8000) && other >= 0);
  return neighbours.every((other) => {
    const distance = Math.abs(back(other) - value);
    return Number.isNaN(distance) || own < distance || (own === distance && (bits & 1) === 0);
  });
}

describe('conversion to 16 bits', () => {
  it('conversion to 16 bits gives the nearest half, the even one of two', () => {
    fc.assert(
      fc.property(fc.float({ min: -65000, max: 65000, noNaN: true }), (value) => {
        expect(isNearest(value, converted(value, singlesToFp16), fromHalf)).toBe(true);
      }),
      { numRuns: 600 },
    );
  });

  it('conversion to 16 bits gives the nearest half of a number of 64 bits, also beside a tie', () => {
    const ties = Array.from({ length: 0x7bff }, (_, bits) => (fromHalf(bits) + fromHalf(bits + 1)) / 2);
    const beside = ties.flatMap((tie) => [tie * (1 - 2 ** -50), tie, tie * (1 + 2 ** -50)]);
    expect(beside.filter((value) => !isNearest(value, numberToFp16(value), fromHalf))).toEqual([]);
    expect(numberToFp16(1 + 2 ** -11 + 2 ** -40)).toBe(0x3c01);
    expect([numberToBf16(1 + 2 ** -8), numberToBf16(1 + 2 ** -8 + 2 ** -40)]).toEqual([0x3f80, 0x3f81]);
  });

  it('every half survives the conversion to 32 bits and back', () => {
    const all = Array.from({ length: 0x10000 }, (_, bits) => bits).filter((bits) => !Number.isNaN(fromHalf(bits)));
    const to = new Uint16Array(all.length);
    singlesToFp16(new Uint32Array(Float32Array.from(all, fromHalf).buffer), to);
    expect([...to]).toEqual(all);
  });

  it('conversion to 16 bits gives the nearest brain float', () => {
    fc.assert(
      fc.property(
        fc.float({ noNaN: true, noDefaultInfinity: true, max: Math.fround(3e38), min: Math.fround(-3e38) }),
        (value) => {
          expect(isNearest(value, converted(value, singlesToBf16), fromBrain)).toBe(true);
        },
      ),
      { numRuns: 600 },
    );
  });

  it('conversion to 16 bits keeps NaN and infinities, and overflows to infinity', () => {
    expect(fromHalf(converted(NaN, singlesToFp16))).toBeNaN();
    expect(fromBrain(converted(NaN, singlesToBf16))).toBeNaN();
    expect(fromHalf(converted(65519, singlesToFp16))).toBe(65504);
    expect(fromHalf(converted(65520, singlesToFp16))).toBe(Infinity);
    expect(fromHalf(converted(-Infinity, singlesToFp16))).toBe(-Infinity);
    expect(fromHalf(converted(2 ** -25, singlesToFp16))).toBe(0);
    expect(fromHalf(converted(2 ** -25 * 1.001, singlesToFp16))).toBe(2 ** -24);
  });
});
