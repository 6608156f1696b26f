/** Triton's classification extension: the highest values of an output instead of the output, as "value:index:label". */
import {
  bf16ToNumber,
  elementCount,
  elements,
  fp16ToNumber,
  packBytes,
  TensorError,
  type Tensor,
} from '../../tensor/index.ts';

/**
 * The `count` highest values of an output, highest first, as BYTES: of each row if dimension 0 is a batch, else of the
 * whole output.
 * @throws TensorError for an output without numbers
 */
export function classify(
  tensor: Tensor,
  count: number,
  { batched, labels }: { readonly batched: boolean; readonly labels: readonly string[] | undefined },
): Tensor {
  const { name, datatype, shape } = tensor;
  if (datatype === 'BYTES') throw new TensorError(`output '${name}' is BYTES, which has no classes to order`);
  const rows = batched ? (shape[0] ?? 1) : 1;
  const classes = rows === 0 ? 0 : elementCount(shape) / rows;
  const shownCount = Math.min(count, classes);
  const values = valuesOf(tensor);
  const isReal = datatype === 'FP16' || datatype === 'BF16' || datatype === 'FP32' || datatype === 'FP64';
  const texts: string[] = [];
  for (let row = 0; row < rows; row++) {
    for (const index of highest(values.subarray(row * classes, (row + 1) * classes), shownCount)) {
      const value = values[row * classes + index]!;
      const label = labels?.[index];
      texts.push(`${isReal ? value.toFixed(6) : String(value)}:${index}${label === undefined ? '' : `:${label}`}`);
    }
  }
  return { name, datatype: 'BYTES', shape: batched ? [rows, shownCount] : [shownCount], data: packBytes(texts) };
}

/** As doubles, which order 64-bit integers well enough for classes. */
function valuesOf(tensor: Tensor): Float64Array {
  const values = elements(tensor);
  switch (tensor.datatype) {
    case 'FP16':
      return Float64Array.from(values as Uint16Array, fp16ToNumber);
    case 'BF16':
      return Float64Array.from(values as Uint16Array, bf16ToNumber);
    default:
      return Float64Array.from(values as Float64Array, Number);
  }
}

/** Indices of the highest values; equal values in order of index, NaN last. */
function highest(values: Float64Array, count: number): number[] {
  const order = Array.from(values, (_, index) => index);
  const rank = (index: number): number => {
    const value = values[index]!;
    return Number.isNaN(value) ? -Infinity : value;
  };
  order.sort((a, b) => (rank(a) === rank(b) ? a - b : rank(b) > rank(a) ? 1 : -1));
  return order.slice(0, count);
}
