/** A float as an exponent, which is coded, and the rest of its bits, which is not. */
import { forms, type Form } from './form.ts';

/** Elements of a form: exponents and rests are written to these for a part of the values. */
export interface Split {
  readonly exponents: Uint8Array;
  readonly rests: Uint32Array;
}

/** @param values of 32 or 16 bits, as the form stands in the pack */
export function split(form: Form, values: Uint32Array | Uint16Array, { exponents, rests }: Split): void {
  // A loop for each form: with one for all, encoding takes twice as long.
  switch (form) {
    case forms.f32:
      for (let index = 0; index < values.length; index++) {
        const value = values[index]!;
        exponents[index] = value >>> 23;
        rests[index] = ((value << 1) & 0xfffffe) | (value >>> 31);
      }
      return;
    case forms.bf16:
    case forms.bf16In32: {
      const shift = form === forms.bf16 ? 0 : 16;
      for (let index = 0; index < values.length; index++) {
        const bits = values[index]! >>> shift;
        exponents[index] = bits >>> 7;
        rests[index] = ((bits << 1) & 0xfe) | (bits >>> 15);
      }
      return;
    }
    case forms.f16:
    case forms.f16In32:
      for (let index = 0; index < values.length; index++) {
        const bits = form === forms.f16 ? values[index]! : f16Of(values[index]!);
        exponents[index] = (bits >>> 10) & 31;
        rests[index] = ((bits << 1) & 0x7fe) | (bits >>> 15);
      }
      return;
    case forms.raw:
      throw new RangeError('raw units have no exponents');
  }
}

/** The bits of an element, as in the pack. */
export function joined(form: Form, exponent: number, rest: number): number {
  const [mantissa, sign] = [rest >>> 1, rest & 1];
  switch (form) {
    case forms.f32:
      return ((sign << 31) | (exponent << 23) | mantissa) >>> 0;
    case forms.bf16:
      return (sign << 15) | (exponent << 7) | mantissa;
    case forms.bf16In32:
      return ((sign << 31) | (exponent << 23) | (mantissa << 16)) >>> 0;
    case forms.f16:
      return (sign << 15) | (exponent << 10) | mantissa;
    case forms.f16In32:
      return f32Of(sign, exponent, mantissa);
    case forms.raw:
      throw new RangeError('raw units have no exponents');
  }
}

/** Whether a float of 32 bits is exactly one of 16: then those are its bits. NaNs are not, whatever their bits. */
export function isExactlyF16(value: number): boolean {
  const exponent = (value >>> 23) & 255;
  const mantissa = value & 0x7fffff;
  if (exponent === 0 || exponent === 255) return mantissa === 0;
  if (exponent > 142 || exponent < 103) return false;
  // Below the 113 of the least normal number, a bit less for each step.
  const dropped = exponent >= 113 ? 13 : 126 - exponent;
  return ((0x800000 | mantissa) & ((1 << dropped) - 1)) === 0;
}

/** The f16 that a float of 32 bits is exactly. */
function f16Of(value: number): number {
  const sign = (value >>> 16) & 0x8000;
  const exponent = (value >>> 23) & 255;
  const mantissa = value & 0x7fffff;
  if (exponent === 255) return sign | 0x7c00;
  if (exponent >= 113) return sign | ((exponent - 112) << 10) | (mantissa >>> 13);
  return exponent === 0 ? sign : sign | ((0x800000 | mantissa) >>> (126 - exponent));
}

/** The bits of a float of 32 bits with the value of an f16 that is no NaN. */
function f32Of(sign: number, exponent: number, mantissa: number): number {
  const signBit = sign << 31;
  if (exponent === 31) return (signBit | 0x7f800000) >>> 0;
  if (exponent > 0) return (signBit | ((exponent + 112) << 23) | (mantissa << 13)) >>> 0;
  if (mantissa === 0) return signBit >>> 0;
  const shift = Math.clz32(mantissa) - 21;
  return (signBit | ((113 - shift) << 23) | ((mantissa << (shift + 13)) & 0x7fffff)) >>> 0;
}
