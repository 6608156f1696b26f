/** Constants as C source. */
import { floatLiteral } from '../../../operators/index.ts';
import { bf16ToNumber, elements, fp16ToNumber, type Tensor } from '../../../tensor/index.ts';

/** The only element of a tensor as a C expression, of the type that its datatype is computed in. */
export function literal(tensor: Tensor): string {
  if (tensor.datatype === 'BYTES') throw new TypeError(`'${tensor.name}' is BYTES, which C has no literals for`);
  const [element = 0] = elements(tensor);
  switch (tensor.datatype) {
    case 'FP32':
      return floatLiteral(Number(element));
    case 'FP64':
      return floatLiteral(Number(element), 'double');
    case 'FP16':
      return floatLiteral(fp16ToNumber(Number(element)));
    case 'BF16':
      return floatLiteral(bf16ToNumber(Number(element)));
    case 'INT64':
      // The smallest number has no literal: in C it would be minus a number that is one too large.
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
