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
  return Number.isNaN(value) ? 0x7e00 : fp16OfSingle(singleBeside(value));
}

/**
 * The number's binary32 pattern, or of the two beside it the odd one: the even one may be half-way between two 16-bit
 * numbers, and would then be rounded as a tie.
 */
function singleBeside(value: number): number {
  single[0] = value;
  const rounded = single[0];
  const bits = singleBits[0]!;
  if (rounded === value || (bits & 1) === 1) return bits;
  return bits + (Math.abs(rounded) > Math.abs(value) ? -1 : 1);
}

/** The nearest binary16 pattern of a binary32 pattern, ties to even. */
function fp16OfSingle(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  // 65520 is the first that rounds to infinity.
  if (magnitude >= 0x477ff000) return sign | 0x7c00;
  if (magnitude >= 0x38800000) {
    const rounded = magnitude - 0x38000000 + 0xfff + ((magnitude >>> 13) & 1);
    return sign | (rounded >>> 13);
  }
  // Half the smallest subnormal is a tie, and goes to even: zero.
  if (magnitude <= 0x33000000) return sign;
  const exponent = magnitude >>> 23;
  const mantissa = (magnitude & 0x7fffff) | 0x800000;
  const shift = 126 - exponent;
  const highBits = mantissa >>> shift;
  const rest = mantissa & ((1 << shift) - 1);
  const tie = 1 << (shift - 1);
  return sign | (highBits + (rest > tie || (rest === tie && (highBits & 1) === 1) ? 1 : 0));
}

/** Many binary32 patterns at once, as {@link numberToFp16}. */
export function singlesToFp16(from: Uint32Array, to: Uint16Array): void {
  for (let i = 0; i < from.length; i++) to[i] = fp16OfSingle(from[i]!);
}

export function bf16ToNumber(bits: number): number {
  singleBits[0] = (bits << 16) >>> 0;
  return single[0] ?? NaN;
}

/** Many at once, as binary32 patterns. */
export function bf16ToSingles(from: Uint16Array, to: Uint32Array): void {
  for (let i = 0; i < from.length; i++) to[i] = from[i]! << 16;
}

/** The nearest bfloat16 pattern, ties to even. */
export function numberToBf16(value: number): number {
  return Number.isNaN(value) ? 0x7fc0 : bf16OfSingle(singleBeside(value));
}

function bf16OfSingle(bits: number): number {
  // NaN stays NaN, whatever the lower half was.
  return (bits & 0x7fffffff) > 0x7f800000
    ? (bits >>> 16) | 0x40
    : ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** Many binary32 patterns at once, as {@link numberToBf16}. */
export function singlesToBf16(from: Uint32Array, to: Uint16Array): void {
  for (let i = 0; i < from.length; i++) to[i] = bf16OfSingle(from[i]!);
}
