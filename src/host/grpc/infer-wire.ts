/**
 * Reads `ModelInferRequest` from the wire. Typed contents stay bytes until their tensor is known, and become its bytes
 * in one step: lists of JavaScript's numbers take 8 times as much as small integers on the wire, and strings of 64-bit
 * integers 40 times.
 */
import { BinaryReader, WireType } from '@bufbuild/protobuf/wire';
import type { DataType } from '../../tensor/index.ts';
import type {
  ContentsField,
  InferInputTensor,
  InferParameter,
  InferTensorContents,
  ModelInferRequest,
  Parameters,
} from './messages.ts';

/** Inputs, outputs, parameters and dimensions of one request. Each takes a few bytes on the wire, and an object here. */
const entriesMax = 100_000;
/** What an object for an entry takes, at least. */
export const entryBytes = 150;

/** @throws Error if the bytes are no such message, or have more entries than any request needs */
export function readInferRequest(bytes: Uint8Array): ModelInferRequest {
  return new RequestReader().request(bytes);
}

/** A message that is being filled; members that the wire lacks stay out. */
type Filled<Message> = { -readonly [Key in keyof Message]: Message[Key] };

class RequestReader {
  #entries = 0;

  request(bytes: Uint8Array): ModelInferRequest {
    const inputs: InferInputTensor[] = [];
    const outputs: ModelInferRequest['outputs'][number][] = [];
    const raw: Uint8Array[] = [];
    const request: Filled<ModelInferRequest> = { inputs, outputs, raw_input_contents: raw, wire: bytes, entries: 0 };
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, wireType] = reader.tag();
      if (wireType !== WireType.LengthDelimited || field > 7) reader.skip(wireType, field);
      else if (field === 1) request.model_name = reader.string();
      else if (field === 2) request.model_version = reader.string();
      else if (field === 3) request.id = reader.string();
      else if (field === 4) this.#parameter((request.parameters ??= noParameters()), this.#entry(reader));
      else if (field === 5) inputs.push(this.#input(this.#entry(reader)));
      else if (field === 6) outputs.push(this.#output(this.#entry(reader)));
      else raw.push(this.#entry(reader));
    }
    request.entries = this.#entries;
    return request;
  }

  #entry(reader: BinaryReader): Uint8Array {
    this.#count();
    return reader.bytes();
  }

  #count(): void {
    if (++this.#entries > entriesMax) {
      throw new Error(`it has more than ${entriesMax} inputs, outputs, parameters and dimensions`);
    }
  }

  #input(bytes: Uint8Array): InferInputTensor {
    const shape: number[] = [];
    const input: Filled<InferInputTensor> = { shape };
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, wireType] = reader.tag();
      if (field === 3) this.#dimensions(shape, reader, wireType);
      else if (wireType !== WireType.LengthDelimited || field > 5) reader.skip(wireType, field);
      else if (field === 1) input.name = reader.string();
      else if (field === 2) input.datatype = reader.string();
      else if (field === 4) this.#parameter((input.parameters ??= noParameters()), this.#entry(reader));
      else input.contents = contentsOf(this.#entry(reader), input.contents);
    }
    return input;
  }

  #dimensions(shape: number[], reader: BinaryReader, wireType: WireType): void {
    const add = (from: BinaryReader): void => {
      this.#count();
      shape.push(Number(from.int64()));
    };
    if (wireType === WireType.Varint) add(reader);
    else if (wireType === WireType.LengthDelimited) {
      const packed = new BinaryReader(reader.bytes());
      while (packed.pos < packed.len) add(packed);
    } else reader.skip(wireType, 3);
  }

  #output(bytes: Uint8Array): ModelInferRequest['outputs'][number] {
    const output: Filled<ModelInferRequest['outputs'][number]> = {};
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, wireType] = reader.tag();
      if (wireType !== WireType.LengthDelimited || field > 2) reader.skip(wireType, field);
      else if (field === 1) output.name = reader.string();
      else this.#parameter((output.parameters ??= noParameters()), this.#entry(reader));
    }
    return output;
  }

  /** An entry of a map: its name and its value, each left out where it is empty. */
  #parameter(into: Record<string, InferParameter>, bytes: Uint8Array): void {
    let [name, value]: [string, InferParameter] = ['', {}];
    const reader = new BinaryReader(bytes);
    while (reader.pos < reader.len) {
      const [field, wireType] = reader.tag();
      if (wireType !== WireType.LengthDelimited || field > 2) reader.skip(wireType, field);
      else if (field === 1) name = reader.string();
      else value = parameterOf(reader.bytes());
    }
    into[name] = value;
  }
}

/** Names are the client's: `__proto__` may be one. */
const noParameters = (): Filled<Parameters> => Object.create(null) as Filled<Parameters>;

function parameterOf(bytes: Uint8Array): InferParameter {
  let value: InferParameter = {};
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    if (field === 1 && wireType === WireType.Varint)
      value = { parameter_choice: 'bool_param', bool_param: reader.bool() };
    else if (field === 2 && wireType === WireType.Varint)
      value = { parameter_choice: 'int64_param', int64_param: String(reader.int64()) };
    else if (field === 3 && wireType === WireType.LengthDelimited)
      value = { parameter_choice: 'string_param', string_param: reader.string() };
    else if (field === 4 && wireType === WireType.Bit64)
      value = { parameter_choice: 'double_param', double_param: reader.double() };
    else if (field === 5 && wireType === WireType.Varint)
      value = { parameter_choice: 'uint64_param', uint64_param: String(reader.uint64()) };
    else reader.skip(wireType, field);
  }
  return value;
}

const fieldNumbers: Readonly<Record<ContentsField, number>> = {
  bool_contents: 1,
  int_contents: 2,
  int64_contents: 3,
  uint_contents: 4,
  uint64_contents: 5,
  fp32_contents: 6,
  fp64_contents: 7,
  bytes_contents: 8,
};
const fieldNames = Object.keys(fieldNumbers) as ContentsField[];
/** Bytes of an element on the wire; undefined: a varint. */
const fixedBytes: Partial<Record<ContentsField, number>> = { fp32_contents: 4, fp64_contents: 8 };

/** Counts the elements of a message of contents, which adds to one before it. @throws Error */
function contentsOf(bytes: Uint8Array, before: InferTensorContents | undefined): InferTensorContents {
  const counts = { ...before?.counts };
  let textBytes = before?.textBytes ?? 0;
  for (const { name, values } of lists(bytes)) {
    const width = fixedBytes[name];
    let count: number;
    if (name === 'bytes_contents') {
      count = 1;
      textBytes += values.byteLength;
    } else if (width === undefined) count = varintsIn(values);
    else {
      count = values.byteLength / width;
      if (!Number.isInteger(count)) throw new Error(`${values.byteLength} bytes of ${name} end inside an element`);
    }
    counts[name] = (counts[name] ?? 0) + count;
  }
  return { counts, textBytes, messages: [...(before?.messages ?? []), bytes] };
}

interface List {
  readonly name: ContentsField;
  /** One element, or many that are packed; of `bytes_contents` one without its length. */
  readonly values: Uint8Array;
}

function* lists(bytes: Uint8Array): Generator<List> {
  const reader = new BinaryReader(bytes);
  while (reader.pos < reader.len) {
    const [field, wireType] = reader.tag();
    const name = fieldNames[field - 1];
    const width = name === undefined ? undefined : fixedBytes[name];
    const alone = width === 4 ? WireType.Bit32 : width === 8 ? WireType.Bit64 : WireType.Varint;
    if (name !== undefined && wireType === WireType.LengthDelimited) yield { name, values: reader.bytes() };
    else if (name !== undefined && name !== 'bytes_contents' && wireType === alone) {
      yield { name, values: reader.skip(wireType, field) };
    } else reader.skip(wireType, field);
  }
}

const varintBytesMax = 10;

function varintsIn(bytes: Uint8Array): number {
  let count = 0;
  let longest = 0;
  for (let at = 0, start = 0; at < bytes.byteLength; at++) {
    if (bytes[at]! >= 0x80) continue;
    count++;
    longest = Math.max(longest, at + 1 - start);
    start = at + 1;
  }
  if (longest > varintBytesMax || (bytes.at(-1) ?? 0) >= 0x80)
    throw new Error('a number in typed contents does not end');
  return count;
}

/** How elements of a datatype travel in typed contents. */
export interface TypedForm {
  readonly field: ContentsField;
  /** Range of the datatype, if the list's type can hold more. */
  readonly range?: readonly [number, number];
  readonly write: (values: Uint8Array, into: Buffer, at: number) => number;
}

const fixed: TypedForm['write'] = (values, into, at) => {
  into.set(values, at);
  return at + values.byteLength;
};

/** @param width bytes of an element; `isTruth`: every number but 0 is 1 */
const varints =
  (width: number, isTruth = false): TypedForm['write'] =>
  (values, into, start) => {
    let at = start;
    let [low, high, shift] = [0, 0, 0];
    for (const byte of values) {
      const bits = byte & 0x7f;
      if (shift < 28) low |= bits << shift;
      else if (shift === 28) {
        low |= bits << 28;
        high |= bits >>> 4;
      } else if (shift < 63) high |= bits << (shift - 32);
      else high |= bits << 31;
      shift += 7;
      if (byte >= 0x80) continue;
      if (isTruth) into[at] = low === 0 && high === 0 ? 0 : 1;
      else if (width === 1) into[at] = low;
      else if (width === 2) into.writeUInt16LE(low & 0xffff, at);
      else {
        into.writeInt32LE(low, at);
        if (width === 8) into.writeInt32LE(high, at + 4);
      }
      at += width;
      [low, high, shift] = [0, 0, 0];
    }
    return at;
  };

const text: TypedForm['write'] = (values, into, at) => {
  into.writeUInt32LE(values.byteLength, at);
  into.set(values, at + 4);
  return at + 4 + values.byteLength;
};

/** Other datatypes travel only as raw bytes. */
export const typedForms: Partial<Readonly<Record<DataType, TypedForm>>> = {
  BOOL: { field: 'bool_contents', write: varints(1, true) },
  INT8: { field: 'int_contents', write: varints(1), range: [-128, 127] },
  INT16: { field: 'int_contents', write: varints(2), range: [-32_768, 32_767] },
  INT32: { field: 'int_contents', write: varints(4) },
  INT64: { field: 'int64_contents', write: varints(8) },
  UINT8: { field: 'uint_contents', write: varints(1), range: [0, 255] },
  UINT16: { field: 'uint_contents', write: varints(2), range: [0, 65_535] },
  UINT32: { field: 'uint_contents', write: varints(4) },
  UINT64: { field: 'uint64_contents', write: varints(8) },
  FP32: { field: 'fp32_contents', write: fixed },
  FP64: { field: 'fp64_contents', write: fixed },
  BYTES: { field: 'bytes_contents', write: text },
};

/** The first element outside of the form's range; undefined if there is none. */
export function outOfRange(
  { messages }: InferTensorContents,
  { field, range }: TypedForm,
): { readonly index: number; readonly value: number } | undefined {
  if (range === undefined) return undefined;
  const wide = Buffer.alloc(4 * stride);
  let index = 0;
  for (const message of messages) {
    for (const { name, values } of lists(message)) {
      if (name !== field) continue;
      for (const part of inParts(values)) {
        const end = varints(4)(part, wide, 0);
        for (let at = 0; at < end; at += 4, index++) {
          const value = field === 'int_contents' ? wide.readInt32LE(at) : wide.readUInt32LE(at);
          if (value < range[0] || value > range[1]) return { index, value };
        }
      }
    }
  }
  return undefined;
}

/** Most bytes of numbers that are widened at once. */
const stride = 64 * 1024;

/** Cut behind whole numbers. */
function* inParts(values: Uint8Array): Generator<Uint8Array> {
  for (let start = 0; start < values.byteLength;) {
    let end = Math.min(values.byteLength, start + stride);
    while (end < values.byteLength && values[end - 1]! >= 0x80) end--;
    yield values.subarray(start, end);
    start = end;
  }
}

/** The elements as the bytes of a tensor. @param bytes how many they are */
export function contentBytes(
  { messages }: InferTensorContents,
  { field, write }: TypedForm,
  bytes: number,
): Uint8Array {
  const into = Buffer.allocUnsafeSlow(bytes);
  let at = 0;
  for (const message of messages) {
    for (const { name, values } of lists(message)) if (name === field) at = write(values, into, at);
  }
  return into;
}
