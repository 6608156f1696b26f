/** Constants as C source. */
import { elements, type Tensor } from '../../../tensor/index.ts';

/** The value of a 16-bit float. */
export function halfToNumber(bits: number): number {
  const sign = (bits & 0x8000) === 0 ? 1 : -1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

const scratch = new DataView(new ArrayBuffer(4));

export function bfloat16ToNumber(bits: number): number {
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

/** A double as a C literal that has exactly its value; division makes what has no literal. */
function floating(value: number, suffix: 'f' | ''): string {
  const zero = `0.0${suffix}`;
  if (Number.isNaN(value)) return `(${zero} / ${zero})`;
  if (!Number.isFinite(value)) return value > 0 ? `(1.0${suffix} / ${zero})` : `(-1.0${suffix} / ${zero})`;
  // 17 digits name a double exactly, and a double that is a float is rounded to that float.
  const text = Object.is(value, -0) ? '-0.0' : value.toExponential(17);
  return `(${text}${suffix})`;
}

/** The one element of a tensor as a C expression of the type that its datatype computes in. */
export function literal(tensor: Tensor): string {
  if (tensor.datatype === 'BYTES') throw new TypeError(`'${tensor.name}' is BYTES, which C has no literals for`);
  const [element = 0] = elements(tensor);
  switch (tensor.datatype) {
    case 'FP32':
      return floating(Number(element), 'f');
    case 'FP64':
      return floating(Number(element), '');
    case 'FP16':
      return floating(halfToNumber(Number(element)), 'f');
    case 'BF16':
      return floating(bfloat16ToNumber(Number(element)), 'f');
    case 'INT64':
      // The smallest one has no literal: the minus is applied to a number that is one too large.
      return element === -(2n ** 63n) ? '(-9223372036854775807LL - 1)' : `(${element}LL)`;
    case 'UINT64':
      return `(${element}ULL)`;
    case 'UINT32':
      return `(${element}u)`;
    case 'INT32':
      return element === -(2 ** 31) ? '(-2147483647 - 1)' : `(${element})`;
    default:
      return `(${element})`;
  }
}
