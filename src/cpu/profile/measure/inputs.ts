/** Makes inputs for a model when none were given: the right names, types and sizes, and values that it can run on. */
import { CpuError } from '../../types.ts';
import { declaredRows } from '../../../rows/index.ts';
import { dimensionKey, shapesWith, trialSizes, unknownSize, type Sizes, type TensorSpec } from '../../../onnx/index.ts';
import { arrayOf, elementCount, packBytes, type DataType, type Tensor } from '../../../tensor/index.ts';

/** The name of the batch, if the first dimension of every input is open and has it. */
function batchName(inputs: readonly TensorSpec[]): string | undefined {
  const [name, ...others] = new Set(inputs.map(({ dimensionNames }) => dimensionNames[0]));
  return others.length === 0 && declaredRows({ inputs }).kind === 'open' ? name : undefined;
}

/**
 * The sizes of all open dimensions but the batch, in the order in which they should be tried; see `trialSizes` of
 * src/onnx. Throws {@link CpuError} `inference-input` for a name in `given` that the model does not have.
 */
export function trialSizesOf(inputs: readonly TensorSpec[], given: Sizes): readonly [Sizes, ...Sizes[]] {
  const isBatched = declaredRows({ inputs }).kind === 'open';
  const batch = isBatched ? batchName(inputs) : undefined;
  const name = Object.keys(given).find((key) => key === batch);
  const unknown = name === undefined ? unknownSize(inputs, given) : `'${name}' is the batch of the model`;
  if (unknown !== undefined) throw new CpuError('inference-input', unknown);
  const batches = new Set(isBatched ? inputs.map((input) => dimensionKey(input, 0)) : []);
  const withoutBatch = (sizes: Sizes): Sizes =>
    Object.fromEntries(Object.entries(sizes).filter(([key]) => !batches.has(key)));
  const [first, ...others] = trialSizes(inputs, given).map(withoutBatch);
  return [first!, ...others];
}

/** The sizes that are tried first. Throws as {@link trialSizesOf}. */
export const resolveSizes = (inputs: readonly TensorSpec[], given: Sizes): Sizes => trialSizesOf(inputs, given)[0];

/**
 * One tensor for each input with `rows` rows. Floating-point values are small and from a fixed sequence: zeros would
 * let a model skip work, and numbers below the normal range make it slower. Integers are `integer`, which must be an
 * index that every table has: 0 always is, 1 also makes a mask let everything through.
 */
export function makeInputs(inputs: readonly TensorSpec[], rows: number, sizes: Sizes, integer: 0 | 1): Tensor[] {
  const isBatched = declaredRows({ inputs }).kind === 'open';
  const name = batchName(inputs);
  const shapes = shapesWith(inputs, name === undefined ? sizes : { ...sizes, [name]: rows });
  return inputs.map(({ datatype }, index) => {
    const { name: input, shape } = shapes[index]!;
    const full = isBatched ? shape.with(0, rows) : shape;
    return { name: input, datatype, shape: full, data: valuesOf(datatype, elementCount(full), integer) };
  });
}

/** Fractions are -0.5 to 0.5, spread by the golden ratio; half precision is 0.5 throughout, and booleans are true. */
function valuesOf(datatype: DataType, count: number, integer: 0 | 1): Uint8Array {
  if (datatype === 'BYTES') return packBytes(Array.from({ length: count }, () => 'text'));
  const values = new arrayOf[datatype](count);
  if (values instanceof Float32Array || values instanceof Float64Array) {
    for (let index = 0; index < count; index++) values[index] = ((index * 0.618_033_988_75) % 1) - 0.5;
  } else if (values instanceof BigInt64Array || values instanceof BigUint64Array) values.fill(BigInt(integer));
  else values.fill(datatype === 'FP16' ? 0x3800 : datatype === 'BF16' ? 0x3f00 : datatype === 'BOOL' ? 1 : integer);
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
