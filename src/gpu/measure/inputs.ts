/** Inputs for timing a program. Their values matter only if they pick the rows of a table, or are lengths. */
import { bytesOfNumbers, elementBytes, type DataType } from '../../tensor/index.ts';
import { randomOf } from '../../tools/index.ts';
import type { ProgramTensor, WeightLayout } from '../program/types.ts';

/** Rows of the first embedding table, which is that of the words. */
function wordRows(layout: WeightLayout): number {
  const table = layout.layers.find(({ kind }) => kind === 'embedding');
  const weight = layout.weights.find(({ layer }) => layer === table?.index);
  return weight?.shape[0] ?? 2;
}

/**
 * The largest length of a batch item, for an input of lengths. Time is the second axis of other inputs, or the first if
 * their second axis is the batch.
 */
function lengthOf([batch]: readonly number[], inputs: readonly { readonly shape: readonly number[] }[]): number {
  const stepsOf = ([first, second]: readonly number[]): number =>
    (first !== batch && second === batch ? first : second) ?? 1;
  return Math.max(1, ...inputs.map(({ shape }) => (shape.length < 2 ? 1 : stepsOf(shape))));
}

/**
 * The bytes of an input. Its name decides (masks, types, lengths, positions), as in exports of PyTorch and Hugging
 * Face.
 *
 * @param inputs all inputs of the function: a length is that of another input
 */
export function sampleInput(
  layout: WeightLayout,
  { name, datatype, bytes, shape }: Omit<ProgramTensor, 'byteOffset'>,
  inputs: readonly { readonly shape: readonly number[] }[],
): Uint8Array {
  // The same each time, so that timings are comparable.
  const next = randomOf(1);
  const lastSize = shape.at(-1) ?? 1;
  const rows = wordRows(layout);
  const integer = (index: number): number => {
    if (/mask/i.test(name)) return 1;
    if (/type|segment/i.test(name)) return 0;
    // With shorter sequences a network would have less to do.
    if (/(^|_)(seq)?len(gth)?s?$/i.test(name)) return lengthOf(shape, inputs);
    return /position/i.test(name) ? index % lastSize : Math.floor(next() * rows);
  };
  const elementOf: Partial<Record<DataType, (index: number) => number>> = {
    FP32: () => next() * 2 - 1,
    BOOL: () => 1,
    INT64: integer,
    UINT64: integer,
    INT32: integer,
    UINT32: integer,
  };
  const element = elementOf[datatype];
  // All other types are zeros.
  if (datatype === 'BYTES' || element === undefined) return new Uint8Array(bytes);
  return bytesOfNumbers(
    datatype,
    Array.from({ length: bytes / elementBytes[datatype] }, (_, index) => element(index)),
  );
}
