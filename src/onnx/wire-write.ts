/** Writes protobuf messages by the schema. */
import { OnnxError } from './error.ts';
import { isExternal } from './external-data.ts';
import { schemaOf, wireOf, type FieldSchema, type MessageName, type MessageSchema } from './schema.ts';
import { tensorBytes, withoutData } from './tensor-data.ts';
import type { Message, PlainOf, TensorProto } from './types.ts';

class Output {
  #bytes = Buffer.allocUnsafe(1024);
  #end = 0;

  /** The place of the next `size` bytes. */
  #reserve(size: number): number {
    const start = this.#end;
    this.#end += size;
    if (this.#end > this.#bytes.byteLength) {
      const larger = Buffer.allocUnsafe(Math.max(this.#end, 2 * this.#bytes.byteLength));
      this.#bytes.copy(larger, 0, 0, start);
      this.#bytes = larger;
    }
    return start;
  }

  /** A number of at least 0, exact up to 2^53. */
  varint(value: number): void {
    let rest = value;
    for (; rest >= 128; rest = Math.floor(rest / 128)) this.#byte((rest % 128) + 128);
    this.#byte(rest);
  }

  #byte(value: number): void {
    const at = this.#reserve(1);
    this.#bytes[at] = value;
  }

  tag(number: number, wireType: number): void {
    this.varint(number * 8 + wireType);
  }

  bytes(bytes: Uint8Array): void {
    const at = this.#reserve(bytes.byteLength);
    this.#bytes.set(bytes, at);
  }

  /** What `write` writes, behind its length. */
  sized(write: () => void): void {
    const start = this.#reserve(1);
    write();
    const size = this.#end - start - 1;
    const further = bytesOfVarint(size) - 1;
    if (further > 0) {
      this.#reserve(further);
      this.#bytes.copyWithin(start + 1 + further, start + 1, start + 1 + size);
    }
    const end = this.#end;
    this.#end = start;
    this.varint(size);
    this.#end = end;
  }

  /** @throws RangeError, SyntaxError or TypeError for a value that is none of the field's type */
  scalar({ type }: FieldSchema, value: unknown): void {
    switch (type!) {
      case 'int32':
        return this.#integer(BigInt((value as number) | 0), BigInt(value as number));
      case 'int64':
        return this.#integer(BigInt.asIntN(64, value as bigint), value as bigint);
      case 'uint64':
        return this.#integer(BigInt.asUintN(64, value as bigint), value as bigint);
      case 'float':
        return this.bytes(new Uint8Array(Float32Array.of(asNumber(value)).buffer));
      case 'double':
        return this.bytes(new Uint8Array(Float64Array.of(asNumber(value)).buffer));
      case 'bytes':
        this.varint((value as Uint8Array).byteLength);
        return this.bytes(value as Uint8Array);
      case 'string':
        return this.#text(value as string);
    }
  }

  #text(text: string): void {
    const size = Buffer.byteLength(text);
    this.varint(size);
    const at = this.#reserve(size);
    this.#bytes.write(text, at, size);
  }

  /** Negative ones are written in 64 bits. `fitting` is what the field's type holds of the value. */
  #integer(fitting: bigint, value: bigint): void {
    if (fitting !== value) throw new RangeError(`${value} is out of range`);
    let rest = BigInt.asUintN(64, value);
    for (; rest > Number.MAX_SAFE_INTEGER; rest >>= 7n) this.#byte(Number(rest & 0x7fn) + 128);
    this.varint(Number(rest));
  }

  finish(): Uint8Array {
    return new Uint8Array(this.#bytes.buffer, this.#bytes.byteOffset, this.#end);
  }
}

function asNumber(value: unknown): number {
  if (typeof value === 'number') return value;
  throw new TypeError(`it is ${typeof value}, not a number`);
}

function bytesOfVarint(value: number): number {
  let bytes = 1;
  for (let rest = value; rest >= 128; rest /= 128) bytes++;
  return bytes;
}

/** Bytes of the tag and length of a field of `size` bytes; all tags of ONNX that need them take one. */
export const prefixBytes = (size: number): number => 1 + bytesOfVarint(size);

/** Tag and length of a length-delimited field. */
export function lengthPrefix(field: number, bytes: number): Uint8Array {
  const output = new Output();
  output.tag(field, wireOf.sized);
  output.varint(bytes);
  return output.finish();
}

type Fields = Message & Readonly<Record<string, unknown>>;

/** The fields of a message, of a tensor with its bytes. */
function fieldsOf({ name }: MessageSchema, given: Fields, keepExternal: boolean): Fields {
  const tensor = given as unknown as TensorProto;
  if (name !== 'TensorProto' || tensor.source === undefined || (keepExternal && isExternal(tensor))) return given;
  return { ...withoutData(tensor), rawData: tensorBytes(tensor) };
}

/** @throws OnnxError naming the field */
function writeScalar(output: Output, schema: MessageSchema, field: FieldSchema, value: unknown): void {
  try {
    output.scalar(field, value);
  } catch (error) {
    const problem = `the field ${schema.name}.${field.protoName} cannot be encoded: ${(error as Error).message}`;
    throw new OnnxError('bad-model', problem, { cause: error });
  }
}

function write(output: Output, schema: MessageSchema, given: Fields, keepExternal: boolean): void {
  const plain = fieldsOf(schema, given, keepExternal);
  for (const field of schema.fields) {
    const { number, wire, message, repeated, presence } = field;
    const value = plain[field.name];
    if (value === undefined || value === field.zero) continue;
    const values = repeated ? (value as readonly unknown[]) : [value];
    if (presence === 'packed') {
      if (values.length === 0) continue;
      output.tag(number, wireOf.sized);
      output.sized(() => {
        for (const each of values) writeScalar(output, schema, field, each);
      });
      continue;
    }
    for (const each of values) {
      output.tag(number, wireOf[wire]);
      if (message === undefined) writeScalar(output, schema, field, each);
      else output.sized(() => write(output, message, each as Fields, keepExternal));
    }
  }
  for (const { no, wireType, data } of plain.unknownFields ?? []) {
    output.tag(no, wireType);
    output.bytes(data);
  }
}

/**
 * Writes one message. Tensors with a source are written with their bytes, unless `keepExternal` is set and they are in
 * a file.
 * @throws OnnxError naming a field whose value does not fit its type
 */
export function encode<Name extends MessageName>(name: Name, plain: PlainOf[Name], keepExternal = false): Uint8Array {
  const output = new Output();
  write(output, schemaOf(name), plain as unknown as Fields, keepExternal);
  return output.finish();
}
