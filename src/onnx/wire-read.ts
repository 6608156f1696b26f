/**
 * Reads protobuf messages by the schema, strictly: a general library is too lenient for a host. It accepts a field of
 * the wrong wire type, and a message that runs past its parent. It also refuses a file that would take far more memory
 * than its size.
 */
import { OnnxError } from './error.ts';
import { readAt } from './external-data.ts';
import {
  schemaOf,
  wireOf,
  type FieldSchema,
  type MessageName,
  type MessageSchema,
  type Scalar,
  type WireKind,
} from './schema.ts';
import type { PlainOf, TensorProto, UnknownField } from './types.ts';

/** Depth of nested messages; protobuf's own default, at which ONNX Runtime stops as well. */
const depthMax = 100;
/** A message takes two bytes in a file and about a hundred in memory. */
const messagesMax = 8_000_000;
/** Elements in typed fields and lists (not raw bytes) become JavaScript numbers, one by one. */
const elementsMax = 64_000_000;
const windowBytes = 256 * 1024;
/** Limit for texts and bytes of a file that are not skipped: no real graph has more. */
const structureBytesMax = 512 * 1024 * 1024;

const wireGroup = 3;
const wireGroupEnd = 4;
const widthOf = { fixed32: 4, fixed64: 8, sized: 1 } as const;

/** Bytes that are read from front to back: those in memory, or those of a file through a window. */
export class WireSource {
  readonly size: number;
  at = 0;
  /** The bytes in memory. They are the file's from `#start` to `#end`. */
  window: Uint8Array;
  #start = 0;
  #end: number;
  readonly #descriptor: number | undefined;
  #takenBytes = 0;

  private constructor(window: Uint8Array, size: number, descriptor?: number) {
    this.window = window;
    this.size = size;
    this.#end = window.byteLength;
    this.#descriptor = descriptor;
  }

  static ofBytes(bytes: Uint8Array): WireSource {
    return new WireSource(bytes, bytes.byteLength);
  }

  static ofFile(descriptor: number, size: number): WireSource {
    return new WireSource(new Uint8Array(0), size, descriptor);
  }

  /** The index in {@link window} of the next `size` bytes, which it holds from now on. */
  next(size: number): number {
    if (this.at + size > this.#end || this.at < this.#start) {
      if (this.#descriptor !== undefined) {
        this.window = readAt(this.#descriptor, this.at, Math.min(Math.max(size, windowBytes), this.size - this.at));
        this.#start = this.at;
        this.#end = this.at + this.window.byteLength;
      }
      if (this.at + size > this.#end) {
        throw new OnnxError(
          'truncated',
          `the model is damaged at byte ${this.at}: the file ends there, inside a field`,
        );
      }
    }
    return this.at - this.#start;
  }

  byte(): number {
    const index = this.next(1);
    this.at++;
    return this.window[index]!;
  }

  /** The next `size` bytes: a view of those in memory, a copy of those in a file. */
  take(size: number): Uint8Array {
    const from = this.#taken(size);
    return this.#descriptor === undefined
      ? this.window.subarray(from, from + size)
      : this.window.slice(from, from + size);
  }

  /** The next `size` bytes as text in UTF-8. */
  text(size: number): string {
    const from = this.#taken(size);
    const { buffer, byteOffset } = this.window;
    return Buffer.from(buffer, byteOffset + from, size).toString();
  }

  /** The index in {@link window} of the next `size` bytes, which it moves past. */
  #taken(size: number): number {
    if (this.#descriptor !== undefined && (this.#takenBytes += size) > structureBytesMax) {
      throw new OnnxError('too-large', `the model holds more than ${structureBytesMax} bytes besides its weights`);
    }
    const from = this.next(size);
    this.at += size;
    return from;
  }
}

/** Where the raw data of an initializer of the main graph is in its file. */
export interface SkippedData {
  readonly offset: number;
  readonly byteLength: number;
}

type Plain = { unknownFields?: UnknownField[] } & Record<string, unknown>;

/** The elements of a field so far. A list without elements is left out, so none is made before the first. */
const listOf = (plain: Plain, { name }: FieldSchema): unknown[] => (plain[name] ??= []) as unknown[];

/** A message without fields. */
function blank(schema: MessageSchema): Plain {
  const plain: Plain = {};
  for (const { name, presence, zero } of schema.fields) {
    if (presence === 'list') plain[name] = [];
    else if (presence === 'always') plain[name] = zero;
  }
  return plain;
}

class Decoder {
  readonly skipped = new Map<TensorProto, SkippedData>();
  readonly #source: WireSource;
  readonly #skippedBytesMin: number;
  /** Names of the messages around the current position, outermost first. */
  readonly #path: string[] = [];
  #messageCount = 0;
  #elementCount = 0;
  /** The lower 49 bits of the last varint, and the bits above them. */
  #low = 0;
  #high = 0;

  constructor(source: WireSource, skippedBytesMin: number) {
    this.#source = source;
    this.#skippedBytesMin = skippedBytesMin;
  }

  #fail(code: 'not-onnx' | 'truncated', field: string, problem: string): OnnxError {
    const where = [...this.#path, field].join('.');
    return new OnnxError(code, `the model is damaged at byte ${this.#source.at}: ${where} ${problem}`);
  }

  /** Reads a varint as a number; exact up to 2^53, which is beyond any length or tag. */
  #varint(end: number, field: string): number {
    const source = this.#source;
    let low = 0;
    let high = 0;
    let scale = 1;
    for (let count = 0; count < 10; count++) {
      if (source.at >= end) {
        throw this.#fail(end === source.size ? 'truncated' : 'not-onnx', field, 'ends inside a number');
      }
      const byte = source.byte();
      if (count < 7) low += (byte & 0x7f) * scale;
      else high += (byte & 0x7f) * scale;
      if (byte < 0x80) {
        this.#low = low;
        this.#high = high;
        return low + high * 2 ** 49;
      }
      scale = count === 6 ? 1 : scale * 128;
    }
    throw this.#fail('not-onnx', field, 'holds a number of more than 10 bytes');
  }

  /** The end of the next `size` bytes, which must be before `end`. */
  #endOf(size: number, end: number, field: string): number {
    const { at, size: whole } = this.#source;
    if (size <= end - at) return at + size;
    const code = size > whole - at ? 'truncated' : 'not-onnx';
    throw this.#fail(code, field, `takes ${size} bytes, but only ${end - at} are left`);
  }

  /** Moves past one field without parsing its content. */
  #pass(wireType: number, fieldNumber: number, end: number, field: string, depth: number): void {
    if (wireType === wireOf.varint) this.#varint(end, field);
    else if (wireType === wireOf.fixed64) this.#source.at = this.#endOf(8, end, field);
    else if (wireType === wireOf.fixed32) this.#source.at = this.#endOf(4, end, field);
    else if (wireType === wireOf.sized) this.#source.at = this.#endOf(this.#varint(end, field), end, field);
    else if (wireType === wireGroup) this.#passGroup(fieldNumber, end, field, depth + 1);
    else throw this.#fail('not-onnx', field, `has the wire type ${wireType}, which cannot stand here`);
  }

  #passGroup(fieldNumber: number, end: number, field: string, depth: number): void {
    if (depth > depthMax) throw this.#tooDeep();
    for (;;) {
      const tag = this.#varint(end, field);
      const inner = Math.floor(tag / 8);
      if (tag % 8 === wireGroupEnd) {
        if (inner !== fieldNumber) throw this.#fail('not-onnx', field, 'closes a group that it did not open');
        return;
      }
      this.#pass(tag % 8, inner, end, field, depth);
    }
  }

  #tooDeep(): OnnxError {
    return new OnnxError('too-deep', `the model nests messages more than ${depthMax} deep, at byte ${this.#source.at}`);
  }

  #countElements(count: number, field: string): void {
    this.#elementCount += count;
    if (this.#elementCount > elementsMax) {
      const where = [...this.#path, field].join('.');
      throw new OnnxError(
        'too-large',
        `the model holds more than ${elementsMax} elements outside raw data, at ${where}`,
      );
    }
  }

  /** The next `size` bytes as numbers. */
  #floats(wire: WireKind, size: number): Float32Array | Float64Array {
    const { buffer } = new Uint8Array(this.#source.take(size));
    return wire === 'fixed32' ? new Float32Array(buffer) : new Float64Array(buffer);
  }

  /** All 64 bits of a varint. */
  #bits(end: number, field: string): bigint {
    this.#varint(end, field);
    return this.#high === 0 ? BigInt(this.#low) : (BigInt(this.#high) << 49n) + BigInt(this.#low);
  }

  /** Reads an element other than a float. Text and bytes reach until `end`. */
  #element(type: Scalar | undefined, end: number, field: string): number | bigint | string | Uint8Array {
    const source = this.#source;
    if (type === 'int32') {
      const value = this.#varint(end, field);
      return value < 2 ** 31 ? value : this.#low | 0;
    }
    if (type === 'int64') return BigInt.asIntN(64, this.#bits(end, field));
    if (type === 'uint64') return BigInt.asUintN(64, this.#bits(end, field));
    const size = end - source.at;
    return type === 'bytes' ? source.take(size) : source.text(size);
  }

  /** A run of elements, counted before they are made. */
  #packed(field: FieldSchema, plain: Plain, size: number): void {
    const { wire, protoName, type } = field;
    const source = this.#source;
    const end = source.at + size;
    if (wire !== 'varint') {
      const width = widthOf[wire];
      if (size % width !== 0) {
        throw this.#fail('not-onnx', protoName, `has ${size} bytes, which is not a multiple of ${width}`);
      }
      this.#countElements(size / width, protoName);
      for (const element of this.#floats(wire, size)) listOf(plain, field).push(element);
      return;
    }
    const from = source.next(size);
    let count = 0;
    for (let at = from; at < from + size; at++) if (source.window[at]! < 0x80) count++;
    this.#countElements(count, protoName);
    while (source.at < end) listOf(plain, field).push(this.#element(type, end, protoName));
  }

  /** Whether these bytes are left in the file. */
  #isSkipped({ protoName }: FieldSchema, size: number): boolean {
    return protoName === 'raw_data' && size >= this.#skippedBytesMin && this.#path.join('.') === 'graph.initializer';
  }

  /** Counts the messages up to `end` before any is made. */
  count(schema: MessageSchema, end: number, depth: number): void {
    const source = this.#source;
    if (depth > depthMax) throw this.#tooDeep();
    if (++this.#messageCount > messagesMax) {
      throw new OnnxError('too-large', `the model holds more than ${messagesMax} messages (nodes, attributes, types)`);
    }
    while (source.at < end) {
      const tag = this.#varint(end, schema.name);
      const number = Math.floor(tag / 8);
      const { protoName, message } = schema.byNumber.get(number) ?? {};
      if (message === undefined || protoName === undefined || tag % 8 !== wireOf.sized) {
        this.#pass(tag % 8, number, end, protoName ?? `field ${number}`, depth);
      } else {
        const last = this.#endOf(this.#varint(end, protoName), end, protoName);
        this.#path.push(protoName);
        this.count(message, last, depth + 1);
        this.#path.pop();
      }
    }
  }

  /** Reads the fields up to `end` into `plain`: as in protobuf, a message in several parts is one. */
  message(schema: MessageSchema, plain: Plain, end: number): Plain {
    const source = this.#source;
    while (source.at < end) {
      const tag = this.#varint(end, schema.name);
      const wireType = tag % 8;
      const number = Math.floor(tag / 8);
      if (number === 0 || number > 2 ** 29 - 1) {
        throw this.#fail('not-onnx', schema.name, `has a field of the number ${number}`);
      }
      const field = schema.byNumber.get(number);
      if (field === undefined) this.#unknown(plain, wireType, number, end);
      else this.#field(field, plain, wireType, end);
    }
    return plain;
  }

  #unknown(plain: Plain, wireType: number, number: number, end: number): void {
    const source = this.#source;
    const start = source.at;
    this.#countElements(1, `field ${number}`);
    this.#pass(wireType, number, end, `field ${number}`, 1);
    const size = source.at - start;
    source.at = start;
    (plain.unknownFields ??= []).push({ no: number, wireType, data: source.take(size) });
  }

  #field(field: FieldSchema, plain: Plain, wireType: number, end: number): void {
    const source = this.#source;
    const { name, protoName, type, wire, repeated, message } = field;
    const isPacked = repeated && wireType === wireOf.sized && wire !== 'sized';
    if (!isPacked && wireType !== wireOf[wire]) {
      throw this.#fail('not-onnx', protoName, `has the wire type ${wireType} instead of ${wireOf[wire]}`);
    }
    const last = wireType === wireOf.sized ? this.#endOf(this.#varint(end, protoName), end, protoName) : end;
    if (isPacked) {
      this.#packed(field, plain, last - source.at);
      return;
    }
    if (message !== undefined) {
      const earlierPart = repeated ? undefined : (plain[name] as Plain | undefined);
      this.#path.push(protoName);
      const inner = this.message(message, earlierPart ?? blank(message), last);
      this.#path.pop();
      if (repeated) listOf(plain, field).push(inner);
      else plain[name] = inner;
      return;
    }
    if (this.#isSkipped(field, last - source.at)) {
      this.skipped.set(plain as unknown as TensorProto, { offset: source.at, byteLength: last - source.at });
      delete plain[name];
      source.at = last;
      return;
    }
    if (repeated) this.#countElements(1, protoName);
    const value =
      wire === 'fixed32' || wire === 'fixed64'
        ? this.#floats(wire, this.#endOf(widthOf[wire], last, protoName) - source.at)[0]
        : this.#element(type, last, protoName);
    if (repeated) listOf(plain, field).push(value);
    else plain[name] = value;
    if (protoName === 'raw_data') this.skipped.delete(plain as unknown as TensorProto);
  }
}

/**
 * Reads one message. Byte fields (`rawData` among them) are views on bytes in memory, not copies.
 *
 * @param skippedBytesMin raw data of this size and more, in initializers of a model's main graph, stays in the file
 * @throws OnnxError `truncated` for a length past the end, `not-onnx` for any other invalid message, `too-deep` and
 * `too-large` for what no runtime would load
 */
export function decode<Name extends MessageName>(
  name: Name,
  source: WireSource,
  skippedBytesMin = Infinity,
): { readonly message: PlainOf[Name]; readonly skipped: ReadonlyMap<TensorProto, SkippedData> } {
  const schema = schemaOf(name);
  const decoder = new Decoder(source, skippedBytesMin);
  decoder.count(schema, source.size, 1);
  source.at = 0;
  const message = decoder.message(schema, blank(schema), source.size) as unknown as PlainOf[Name];
  return { message, skipped: decoder.skipped };
}
