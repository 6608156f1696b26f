/** Converts 32-bit floating point to the 16-bit forms, rounding to nearest, ties to even, as in IEEE 754. */

/** To brain floating point: the upper half. */
export function bfloat16FromFloat32(from: Uint32Array, to: Uint16Array): void {
  for (let i = 0; i < from.length; i++) {
    const bits = from[i]!;
    // NaN stays NaN, whatever the lower half was.
    to[i] = (bits & 0x7fffffff) > 0x7f800000 ? (bits >>> 16) | 0x40 : (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
  }
}

/** To IEEE half precision: beyond 65504 infinite, below 2^-24 zero, subnormal in between. */
export function float16FromFloat32(from: Uint32Array, to: Uint16Array): void {
  for (let i = 0; i < from.length; i++) to[i] = half(from[i]!);
}

function half(bits: number): number {
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
  const kept = mantissa >>> shift;
  const rest = mantissa & ((1 << shift) - 1);
  const tie = 1 << (shift - 1);
  return sign | (kept + (rest > tie || (rest === tie && (kept & 1) === 1) ? 1 : 0));
}
