/** Makes inputs for a model when none were given: the right names, types and sizes, and values that it can run on. */
import { batchMax } from '../../pool/configuration.ts';
import { CpuError } from '../../types.ts';
import type { TensorSpec } from '../../../onnx/index.ts';
import { arrayOf, elementCount, packBytes, type DataType, type Tensor } from '../../../tensor/index.ts';

/** How a model takes its rows. */
export type BatchDimension =
  /** The first dimension of every input is open. */
  | { readonly kind: 'open' }
  /** It is fixed to so many rows. */
  | { readonly kind: 'fixed'; readonly rows: number }
  /**
   * Inputs have no common first dimension, or it is larger than any batch (the samples of a sound, say): one run is one
   * row.
   */
  | { readonly kind: 'none' };

export function batchDimension(inputs: readonly TensorSpec[]): BatchDimension {
  const [first] = inputs;
  const rows = first?.shape[0];
  if (rows === undefined || rows === 0 || rows > batchMax) return { kind: 'none' };
  if (!inputs.every(({ shape, anyRank }) => shape[0] === rows && anyRank !== true)) return { kind: 'none' };
  return rows === -1 ? { kind: 'open' } : { kind: 'fixed', rows };
}

/** Default sizes of open dimensions, by a part of their names. */
const defaultSizes: readonly (readonly [RegExp, number])[] = [
  [/past/i, 0],
  [/seq|len|token|time|step/i, 128],
  [/height|width|image/i, 224],
  [/channel/i, 3],
];

/** The size of an open dimension that the model names: as given, or its default; 1 for any other name. */
export function defaultSize(name: string | undefined): number {
  return defaultSizes.find(([pattern]) => name !== undefined && pattern.test(name))?.[1] ?? 1;
}

/**
 * The sizes of all open dimensions but the batch, by name. Throws {@link CpuError} `inference-input` for a name in
 * `given` that the model does not have.
 */
export function resolveSizes(
  inputs: readonly TensorSpec[],
  given: Readonly<Record<string, number>>,
): Record<string, number> {
  const sizes: Record<string, number> = {};
  const isBatched = batchDimension(inputs).kind === 'open';
  for (const { shape, dimensionNames } of inputs) {
    for (const [at, size] of shape.entries()) {
      const name = dimensionNames[at];
      if (size !== -1 || (at === 0 && isBatched) || name === undefined) continue;
      sizes[name] = given[name] ?? defaultSize(name);
    }
  }
  for (const name of Object.keys(given)) {
    if (Object.hasOwn(sizes, name)) continue;
    const known = Object.keys(sizes).join(', ') || 'none but the batch';
    throw new CpuError('inference-input', `the model has no open dimension '${name}' (open there: ${known})`);
  }
  return sizes;
}

/**
 * One tensor for each input with `rows` rows. Floating-point values are small and from a fixed sequence: zeros would
 * let a model skip work, and numbers below the normal range make it slower. Integers are `integer`, which must be an
 * index that every table has: 0 always is, 1 also makes a mask let everything through.
 */
export function makeInputs(
  inputs: readonly TensorSpec[],
  rows: number,
  sizes: Readonly<Record<string, number>>,
  integer: 0 | 1,
): Tensor[] {
  const isBatched = batchDimension(inputs).kind === 'open';
  return inputs.map(({ name, datatype, shape, dimensionNames }) => {
    const full = shape.map((size, at) => {
      if (size !== -1) return size;
      if (at === 0 && isBatched) return rows;
      return sizes[dimensionNames[at] ?? ''] ?? 1;
    });
    return { name, datatype, shape: full, data: valuesOf(datatype, elementCount(full), integer) };
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
