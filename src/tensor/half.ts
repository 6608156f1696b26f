/**
 * 16-bit floats as numbers: FP16 is IEEE 754 binary16 (1 sign, 5 exponent, 10 fraction bits), BF16 the upper half of a
 * binary32.
 */
const single = new Float32Array(1);
const singleBits = new Uint32Array(single.buffer);

/** The number that a binary16 pattern stands for. */
export function fp16ToNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** The nearest binary16 pattern, ties to even; beyond 65504 infinity. */
export function numberToFp16(value: number): number {
  if (Number.isNaN(value)) return 0x7e00;
  const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
  const size = Math.abs(value);
  // 65520 is half-way between the largest finite value and the next step.
  if (size >= 65520) return sign | 0x7c00;
  // Below 2^-14 the step stays 2^-24 (subnormal); above, it is 2^-10 of the leading power of two.
  const exponent = size < 2 ** -14 ? -14 : Math.floor(Math.log2(size));
  const step = 2 ** (exponent - 10);
  const steps = roundToEven(size / step);
  // A carry out of the fraction raises the exponent by itself, since the two fields are adjacent.
  return sign | (size < 2 ** -14 ? steps : ((exponent + 15) << 10) + (steps - 1024));
}

export function bf16ToNumber(bits: number): number {
  singleBits[0] = (bits << 16) >>> 0;
  return single[0] ?? NaN;
}

/** The nearest bfloat16 pattern, ties to even. */
export function numberToBf16(value: number): number {
  if (Number.isNaN(value)) return 0x7fc0;
  single[0] = value;
  const bits = singleBits[0] ?? 0;
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

function roundToEven(value: number): number {
  const floor = Math.floor(value);
  const rest = value - floor;
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}
