import { numberToBf16, numberToFp16 } from './half.ts';
import { type ArrayOf as ClientArrayOf, arrayOf, type Datatype } from '../client/index.ts';
import { TensorError } from './error.ts';
import type { Lent } from './lent.ts';

/**
 * A named tensor. `data` is always the raw little-endian row-major form that the Open Inference Protocol calls binary
 * tensor data (BYTES: each element is a 4-byte length, then that many bytes), so that no hop has to convert it.
 */
export interface Tensor {
  readonly name: string;
  readonly datatype: DataType;
  /** Sizes of the dimensions, outermost first; `[]` is a scalar. */
  readonly shape: readonly number[];
  readonly data: Uint8Array;
}

/** Of tensors {@link inParts}: by tensor, since a copy with other data has other parts. */
const partsOf = new WeakMap<Tensor, readonly Uint8Array[]>();

const lentOf = new WeakMap<Tensor, Lent>();

/** A tensor whose bytes are {@link Lent}. */
export function lentTensor({ name, datatype, shape }: Pick<Tensor, 'name' | 'datatype' | 'shape'>, lent: Lent): Tensor {
  const tensor: Tensor = {
    name,
    datatype,
    shape,
    get data() {
      return lent.data;
    },
  };
  lentOf.set(tensor, lent);
  return tensor;
}

/** A tensor's bytes for a reply: lent, if they are. */
export const bytesToSend = (tensor: Tensor): Uint8Array | Lent => lentOf.get(tensor) ?? tensor.data;

/** A tensor in pieces. A message copies each to where its receiver reads it; `data` is made of them when it is read. */
export function inParts(
  { name, datatype, shape }: Pick<Tensor, 'name' | 'datatype' | 'shape'>,
  parts: readonly Uint8Array[],
): Tensor {
  let data: Uint8Array | undefined;
  const tensor: Tensor = {
    name,
    datatype,
    shape,
    get data() {
      return (data ??= Buffer.concat(parts));
    },
  };
  partsOf.set(tensor, parts);
  return tensor;
}

/** The pieces of its bytes, mostly one. */
export const dataParts = (tensor: Tensor): readonly Uint8Array[] => partsOf.get(tensor) ?? [tensor.data];

/** Bytes of its data. */
export function dataBytes(tensor: Tensor): number {
  const parts = partsOf.get(tensor);
  if (parts !== undefined) return parts.reduce((sum, part) => sum + part.byteLength, 0);
  return (lentOf.get(tensor) ?? tensor.data).byteLength;
}

/** Copies the tensors' bytes behind each other. Returns where they end. */
export function copyInto(target: Uint8Array, at: number, tensors: readonly Tensor[]): number {
  let end = at;
  for (const tensor of tensors) {
    for (const part of dataParts(tensor)) {
      target.set(part, end);
      end += part.byteLength;
    }
  }
  return end;
}

/**
 * A value under the name of a tensor. These are kept in lists, in the model's order, which the keys of an object would
 * change.
 */
export interface NamedValue<Value> {
  readonly name: string;
  readonly value: Value;
}

/** Number of elements of a shape: the product of its dimensions, 1 for a scalar. */
export function elementCount(shape: readonly number[]): number {
  let count = 1;
  for (const size of shape) count *= size;
  return count;
}

/** Rows of a call: the size of dimension 0 if all its inputs share it; undefined if they do not, and cannot be joined. */
export function rowsOf(inputs: readonly Tensor[]): number | undefined {
  const rows = inputs[0]?.shape[0];
  if (rows === undefined || rows === 0) return undefined;
  return inputs.every((input) => input.shape[0] === rows) ? rows : undefined;
}

/** Bytes that `data` must have; undefined for BYTES, whose size depends on the data. */
export function byteCount(datatype: DataType, shape: readonly number[]): number | undefined {
  const width = elementBytes[datatype];
  return width === 0 ? undefined : width * elementCount(shape);
}

/**
 * @throws TensorError unless `tensor` has exactly the bytes that its datatype and shape need; also for a BYTES element
 * whose length runs past the end
 */
export function checkBytes(tensor: Tensor): void {
  const { name, datatype, shape, data } = tensor;
  const expected = byteCount(datatype, shape);
  if (expected !== undefined) {
    if (data.byteLength !== expected) {
      throw new TensorError(
        `tensor '${name}' has ${data.byteLength} bytes of data, but ${datatype} of shape [${shape.join(',')}] takes ${expected}`,
      );
    }
    return;
  }
  const count = elementCount(shape);
  let found = 0;
  for (const _ of bytesElements(tensor)) found++;
  if (found !== count) {
    throw new TensorError(
      `tensor '${name}' has ${found} BYTES elements, but its shape [${shape.join(',')}] takes ${count}`,
    );
  }
}

/** The elements of a BYTES tensor as views on its data. */
export function* bytesElements({ name, data }: Tensor): Generator<Uint8Array> {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  let at = 0;
  while (at < data.byteLength) {
    if (at + 4 > data.byteLength) {
      throw new TensorError(`tensor '${name}' ends inside the 4-byte length of a BYTES element`);
    }
    const length = view.getUint32(at, true);
    at += 4;
    if (at + length > data.byteLength) {
      throw new TensorError(
        `tensor '${name}' has a BYTES element of ${length} bytes, but only ${data.byteLength - at} follow`,
      );
    }
    yield data.subarray(at, at + length);
    at += length;
  }
}

/**
 * Joins elements into the raw form of a BYTES tensor; strings become UTF-8.
 * @throws TensorError if a string has a lone surrogate, which UTF-8 cannot express
 */
export function packBytes(elements: readonly (string | Uint8Array)[]): Uint8Array {
  const parts = elements.map((element, index) => {
    if (typeof element !== 'string') return element;
    const bytes = Buffer.from(element, 'utf8');
    // The conversion writes U+FFFD for a lone surrogate; it takes three bytes.
    if (bytes.byteLength > element.length && !isWellFormed(element)) {
      throw new TensorError(`element ${index} has half of a surrogate pair, which is no text`);
    }
    return bytes;
  });
  const packed = new Uint8Array(parts.reduce((sum, part) => sum + 4 + part.byteLength, 0));
  const view = new DataView(packed.buffer);
  let at = 0;
  for (const part of parts) {
    view.setUint32(at, part.byteLength, true);
    packed.set(part, at + 4);
    at += 4 + part.byteLength;
  }
  return packed;
}

const isWellFormed = (text: string): boolean => !/\p{Surrogate}/u.test(text);

export type ArrayOf<D extends Exclude<DataType, 'BYTES'>> = InstanceType<(typeof arrayOf)[D]>;
type NumericArray = ClientArrayOf[Exclude<DataType, 'BYTES'>];

/**
 * The elements of a fixed-width tensor as a typed array: a view if the alignment allows one, else a copy. The caller
 * has checked the byte count ({@link checkBytes}).
 * @param from index of the first element
 * @param to index after the last element; default: all
 */
export function elements<D extends Exclude<DataType, 'BYTES'>>(tensor: Tensor & { datatype: D }): ArrayOf<D>;
export function elements(tensor: Tensor, from?: number, to?: number): NumericArray;
export function elements(tensor: Tensor, from = 0, to?: number): NumericArray {
  if (tensor.datatype === 'BYTES')
    throw new TensorError(`tensor '${tensor.name}' is BYTES and has no numeric elements`);
  const width = elementBytes[tensor.datatype];
  const data = tensor.data.subarray(from * width, to === undefined ? undefined : to * width);
  // A Buffer's own slice() would be another view; this copies.
  const aligned = data.byteOffset % width === 0 ? data : new Uint8Array(data);
  return new arrayOf[tensor.datatype](aligned.buffer as ArrayBuffer, aligned.byteOffset, aligned.byteLength / width);
}

/** The number in a tensor of one element; undefined for other tensors, and for 16-bit floats. */
export function scalarOf(tensor: Tensor | undefined): number | undefined {
  if (tensor === undefined || elementCount(tensor.shape) !== 1) return undefined;
  if (tensor.datatype === 'FP16' || tensor.datatype === 'BF16' || tensor.datatype === 'BYTES') return undefined;
  const [element] = elements(tensor);
  return element === undefined ? undefined : Number(element);
}

/** Makes a tensor from a typed array (as raw bytes, not copied) or from strings (as BYTES). */
export function tensorOf(
  name: string,
  datatype: DataType,
  shape: readonly number[],
  values: NumericArray | readonly string[],
): Tensor {
  const data = ArrayBuffer.isView(values)
    ? new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
    : packBytes(values);
  const tensor: Tensor = { name, datatype, shape, data };
  checkBytes(tensor);
  return tensor;
}

const [lowest64, largest64] = [-(2n ** 63n), 2n ** 63n - 1n];

/** A slice's 64-bit end is often the largest number, which a JavaScript number rounds up beyond the range. */
function wholeOf(value: number): bigint {
  const whole = BigInt(value);
  return whole > largest64 ? largest64 : whole < lowest64 ? lowest64 : whole;
}

/** Converts numbers to the bytes of a datatype. */
export function bytesOfNumbers(datatype: Exclude<DataType, 'BYTES'>, values: readonly number[]): Uint8Array {
  if (datatype === 'INT64') return new Uint8Array(BigInt64Array.from(values, wholeOf).buffer);
  if (datatype === 'UINT64') return new Uint8Array(BigUint64Array.from(values, wholeOf).buffer);
  const toBits = datatype === 'FP16' ? numberToFp16 : datatype === 'BF16' ? numberToBf16 : undefined;
  return new Uint8Array(arrayOf[datatype].from(toBits ? values.map((value) => toBits(value)) : values).buffer);
}

export { arrayOf };
export type DataType = Datatype;

type Numeric = keyof typeof arrayOf;

export const dataTypes: readonly DataType[] = [...(Object.keys(arrayOf) as Numeric[]), 'BYTES'];

/** Bytes of one element; 0 for BYTES, whose elements each carry their own 4-byte length. */
export const elementBytes = Object.fromEntries(
  dataTypes.map((datatype) => [datatype, datatype === 'BYTES' ? 0 : arrayOf[datatype].BYTES_PER_ELEMENT]),
) as Readonly<Record<DataType, number>>;

export function isDataType(text: unknown): text is DataType {
  return typeof text === 'string' && Object.hasOwn(elementBytes, text);
}
