/** Constants as C source. */
import { elements, type Tensor } from '../../../tensor/index.ts';
import { floatLiteral } from '../common/element.ts';

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

/** The one element of a tensor as a C expression of the type that its datatype computes in. */
export function literal(tensor: Tensor): string {
  if (tensor.datatype === 'BYTES') throw new TypeError(`'${tensor.name}' is BYTES, which C has no literals for`);
  const [element = 0] = elements(tensor);
  switch (tensor.datatype) {
    case 'FP32':
      return floatLiteral(Number(element));
    case 'FP64':
      return floatLiteral(Number(element), 'double');
    case 'FP16':
      return floatLiteral(halfToNumber(Number(element)));
    case 'BF16':
      return floatLiteral(bfloat16ToNumber(Number(element)));
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
