/** Inputs to time a program with: their values matter only where they choose which rows of a table are read. */
import { bytesOfNumbers, elementBytes, type DataType } from '../../tensor/index.ts';
import type { ProgramTensor, WeightLayout } from '../program/types.ts';

/** The same numbers each time (Lehmer's generator, modulus 2^31 - 1): timings of two days shall compare. */
function* numbers(): Generator<number> {
  for (let state = 1; ; state = (state * 48271) % 0x7fffffff) yield state / 0x7fffffff;
}

/** Rows of the first table of embeddings, which is the words'. */
function wordRows(layout: WeightLayout): number {
  const table = layout.layers.find(({ kind }) => kind === 'embedding');
  const weight = layout.weights.find(({ layer }) => layer === table?.index);
  return weight?.shape[0] ?? 2;
}

/**
 * The longest that an item of a batch can be: what recurrent networks take as the length of each. Time is the second
 * axis, or the first where the batch that there are lengths for is the second.
 */
function lengthOf([batch]: readonly number[], inputs: readonly { readonly shape: readonly number[] }[]): number {
  const stepsOf = ([first, second]: readonly number[]): number =>
    (first !== batch && second === batch ? first : second) ?? 1;
  return Math.max(1, ...inputs.map(({ shape }) => (shape.length < 2 ? 1 : stepsOf(shape))));
}

/**
 * The bytes of one input: by its name as PyTorch's and Hugging Face's exports call them.
 *
 * @param inputs all of the function's: a length is that of another one
 */
export function sampleInput(
  layout: WeightLayout,
  { name, datatype, bytes, shape }: Omit<ProgramTensor, 'byteOffset'>,
  inputs: readonly { readonly shape: readonly number[] }[],
): Uint8Array {
  const random = numbers();
  const next = (): number => random.next().value as number;
  const lastSize = shape.at(-1) ?? 1;
  const rows = wordRows(layout);
  const integer = (index: number): number => {
    if (/mask/i.test(name)) return 1;
    if (/type|segment/i.test(name)) return 0;
    // Shorter ones would leave a network with less to do.
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
  // Zeros do for all others.
  if (datatype === 'BYTES' || element === undefined) return new Uint8Array(bytes);
  return bytesOfNumbers(
    datatype,
    Array.from({ length: bytes / elementBytes[datatype] }, (_, index) => element(index)),
  );
}
