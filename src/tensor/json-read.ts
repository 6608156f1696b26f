/**
 * Reads tensors from JSON text: a flat or nested array of numbers, booleans or strings, row-major. Numbers are read for
 * their datatype, so 64-bit integers keep every digit. JSON has no numbers for NaN and the infinities: they may be
 * strings, as in protobuf's JSON mapping, or bare, as Python writes them.
 */
import { TensorError } from './error.ts';
import { skipBlanks, unexpected, type JsonText } from './json-document.ts';
import { elementsOf } from './json-elements.ts';
import type { Steps } from './steps.ts';
import { elementCount, type Tensor, type DataType } from './tensor.ts';

const comma = 0x2c;
const openArray = 0x5b;
const closeArray = 0x5d;

/** Elements between two points where the work may be interrupted. */
const strideElements = 8192;
/** No tensor has more dimensions. */
const rankMax = 16;

/**
 * Reads a tensor of a known shape, flat or nested to that shape.
 * @throws TensorError naming the tensor, and the element that is not a value of the datatype; SyntaxError for text that
 * is not JSON
 */
export function* tensorFromJson(
  name: string,
  datatype: DataType,
  shape: readonly number[],
  text: JsonText,
): Steps<Tensor> {
  const { bytes, start } = text;
  if (bytes[start] !== openArray) throw new TensorError(`tensor '${name}': 'data' is not an array`);
  const { count, sizes, data } = yield* readNested(name, datatype, text, shape);
  const expected = elementCount(shape);
  const isNested = sizes.length > 1;
  // A size of 0 ends the nesting: [2,0,3] is [[],[]].
  const isWhole = sizes.length === shape.length || count === 0;
  if (isNested && !(isWhole && sizes.every((size, dimension) => size === shape[dimension])))
    throw misshapen(name, shape);
  if (count !== expected) {
    throw new TensorError(
      `tensor '${name}' has ${count} elements of data, but its shape [${shape.join(',')}] takes ${expected}`,
    );
  }
  return { name, datatype, shape, data };
}

/** Reads a tensor whose shape is that of its nesting; a bare number is a scalar. Empty arrays end the shape. */
export function* nestedTensorFromJson(name: string, datatype: DataType, text: JsonText): Steps<Tensor> {
  const { sizes, data } = yield* readNested(name, datatype, text, undefined);
  return { name, datatype, shape: sizes, data };
}

interface Nested {
  readonly sizes: readonly number[];
  readonly count: number;
  readonly data: Uint8Array;
}

function* readNested(
  name: string,
  datatype: DataType,
  { bytes, start, end }: JsonText,
  shape: readonly number[] | undefined,
): Steps<Nested> {
  const elements = elementsOf(name, datatype, end - start);
  const depthMax = shape === undefined ? rankMax : Math.max(1, shape.length);
  const sizes: number[] = [];
  /** Members so far of each open array, outermost first. */
  const open: number[] = [];
  /** Depth of the elements; unknown while all arrays are empty. */
  let rank: number | undefined;
  let count = 0;
  let strides = 0;
  let at = start;
  do {
    at = skipBlanks(bytes, at);
    if (bytes[at] === openArray) {
      if (open.length >= (rank ?? depthMax)) throw rank === undefined ? tooDeep(name, shape) : misshapen(name, shape);
      open.push(0);
      at = skipBlanks(bytes, at + 1);
      if (bytes[at] !== closeArray) continue;
    } else {
      rank ??= open.length;
      if (rank !== open.length || sizes.length > rank) throw misshapen(name, shape);
      at = elements.read(bytes, at, count++);
      if (rank > 0) open[rank - 1]!++;
    }
    // After an element, or before the end of an empty array.
    at = skipBlanks(bytes, at);
    while (open.length > 0 && bytes[at] === closeArray) {
      const size = open.pop()!;
      const depth = open.length;
      if ((sizes[depth] ??= size) !== size) throw misshapen(name, shape);
      if (depth > 0) open[depth - 1]!++;
      at = skipBlanks(bytes, at + 1);
    }
    if (open.length === 0) break;
    if (bytes[at] !== comma) throw unexpected(bytes, at);
    at++;
    if (++strides % strideElements === 0) yield;
  } while (at < end);
  if (open.length > 0 || at < end) throw unexpected(bytes, at);
  if (rank !== undefined && sizes.length > rank) throw misshapen(name, shape);
  return { sizes, count, data: elements.data(count) };
}

const misshapen = (name: string, shape: readonly number[] | undefined): TensorError =>
  new TensorError(
    shape === undefined
      ? `tensor '${name}': 'data' is ragged: its arrays of one depth differ in size`
      : `tensor '${name}': 'data' does not have the shape [${shape.join(',')}]`,
  );

const tooDeep = (name: string, shape: readonly number[] | undefined): TensorError =>
  new TensorError(
    `tensor '${name}': 'data' is nested deeper than ${shape === undefined ? `${rankMax} dimensions` : `its shape [${shape.join(',')}]`}`,
  );
