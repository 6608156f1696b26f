/**
 * Reads a model without its weights. Large `raw_data` of initializers is skipped, and a source reads it later from the
 * file. The rest is a small message in the same form, for the usual reader.
 */
import { closeSync, fstatSync, openSync } from 'node:fs';
import { OnnxError } from './error.ts';
import { readAt } from './external-data.ts';
import { explained, signatureBytes } from './other-formats.ts';
import { graphField, initializerField, lengthPrefix, rawDataField } from './protobuf.ts';
import { wireFixed32, wireFixed64, wireText, wireVarint } from './wire.ts';

/** Smaller weights are read with the rest, unless a reader wants the place of each. */
const skippedBytesUsual = 16 * 1024;
const windowBytes = 256 * 1024;
/** Limit for everything except weights: no real graph is larger. */
const structureBytesMax = 512 * 1024 * 1024;

export interface SkippedWeight {
  /** Index in `graph.initializer`. */
  readonly initializer: number;
  readonly offset: number;
  readonly byteLength: number;
}

export interface ModelStructure {
  /** The model without the skipped weights. */
  readonly bytes: Uint8Array;
  readonly skipped: readonly SkippedWeight[];
}

/** A position in a file, read through a window. */
class Cursor {
  readonly size: number;
  at = 0;
  readonly #descriptor: number;
  #window: Uint8Array = new Uint8Array(0);
  #windowStart = 0;

  constructor(descriptor: number, size: number) {
    this.#descriptor = descriptor;
    this.size = size;
  }

  truncated(): OnnxError {
    return new OnnxError('truncated', `the model is damaged at byte ${this.at}: the file ends there, inside a field`);
  }

  byte(): number {
    if (this.at < this.#windowStart || this.at >= this.#windowStart + this.#window.byteLength) {
      this.#window = readAt(this.#descriptor, this.at, Math.min(windowBytes, this.size - this.at));
      this.#windowStart = this.at;
    }
    const byte = this.#window[this.at - this.#windowStart];
    if (byte === undefined) throw this.truncated();
    this.at++;
    return byte;
  }

  varint(): number {
    let value = 0;
    let scale = 1;
    for (let count = 0; count < 10; count++) {
      const byte = this.byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
    throw new OnnxError('not-onnx', `the model is damaged at byte ${this.at}: a number has more than 10 bytes`);
  }

  copy(from: number, to: number): Uint8Array {
    if (to > this.size) throw this.truncated();
    const end = this.#windowStart + this.#window.byteLength;
    if (from >= this.#windowStart && to <= end) {
      return this.#window.slice(from - this.#windowStart, to - this.#windowStart);
    }
    return readAt(this.#descriptor, from, to - from);
  }
}

interface Field {
  readonly number: number;
  readonly lengthDelimited: boolean;
  /** Offsets of its tag, and of the start and end of its content. */
  readonly start: number;
  readonly content: number;
  readonly end: number;
}

/** The next field of a message that ends at `end`; moves the cursor past it. */
function nextField(cursor: Cursor, end: number): Field {
  const start = cursor.at;
  const tag = cursor.varint();
  const number = Math.floor(tag / 8);
  const wireType = tag % 8;
  let content = cursor.at;
  if (wireType === wireVarint) cursor.varint();
  else if (wireType === wireFixed64) cursor.at += 8;
  else if (wireType === wireFixed32) cursor.at += 4;
  else if (wireType === wireText) {
    const size = cursor.varint();
    content = cursor.at;
    cursor.at += size;
  } else {
    // No ONNX file has groups.
    throw new OnnxError('not-onnx', `the model is damaged at byte ${start}: a field has the wire type ${wireType}`);
  }
  if (cursor.at > end) {
    const problem = `field ${number} takes ${cursor.at - content} bytes, but only ${end - content} are left`;
    const code = cursor.at > cursor.size ? 'truncated' : 'not-onnx';
    throw new OnnxError(code, `the model is damaged at byte ${start}: ${problem}`);
  }
  return { number, lengthDelimited: wireType === wireText, start, content, end: cursor.at };
}

/** Collects bytes up to a limit. */
class Collected {
  readonly parts: Uint8Array[] = [];
  byteLength = 0;

  add(part: Uint8Array): void {
    this.byteLength += part.byteLength;
    if (this.byteLength > structureBytesMax) {
      throw new OnnxError('too-large', `the model holds more than ${structureBytesMax} bytes besides its weights`);
    }
    this.parts.push(part);
  }

  /** Adds bytes `from` to `to` of the file. */
  copy(cursor: Cursor, from: number, to: number): void {
    if (this.byteLength + (to - from) > structureBytesMax) this.add(new Uint8Array(structureBytesMax));
    this.add(cursor.copy(from, to));
  }

  message(field: number, message: Collected): void {
    this.add(lengthPrefix(field, message.byteLength));
    for (const part of message.parts) this.add(part);
  }
}

function readTensor(
  cursor: Cursor,
  { content, end }: Field,
  skippedBytesMin: number,
): { tensor: Collected; raw: Field | undefined } {
  const tensor = new Collected();
  let raw: Field | undefined;
  cursor.at = content;
  while (cursor.at < end) {
    const field = nextField(cursor, end);
    const after = cursor.at;
    if (field.number === rawDataField && field.lengthDelimited && field.end - field.content >= skippedBytesMin) {
      raw = field;
    } else {
      tensor.copy(cursor, field.start, field.end);
    }
    cursor.at = after;
  }
  return { tensor, raw };
}

interface Skipping {
  readonly bytesMin: number;
  readonly skipped: SkippedWeight[];
}

function readGraph(
  cursor: Cursor,
  { content, end }: Field,
  into: Collected,
  { skipped, bytesMin }: Skipping,
  count: number,
): number {
  let initializer = count;
  cursor.at = content;
  while (cursor.at < end) {
    const field = nextField(cursor, end);
    if (field.number !== initializerField || !field.lengthDelimited) {
      into.copy(cursor, field.start, field.end);
    } else {
      if (field.end - field.content < bytesMin) {
        into.copy(cursor, field.start, field.end);
      } else {
        const { tensor, raw } = readTensor(cursor, field, bytesMin);
        into.message(initializerField, tensor);
        if (raw !== undefined) {
          skipped.push({ initializer, offset: raw.content, byteLength: raw.end - raw.content });
        }
      }
      initializer++;
    }
    cursor.at = field.end;
  }
  return initializer;
}

function readFields(cursor: Cursor, bytesMin: number): ModelStructure {
  const model = new Collected();
  const graph = new Collected();
  const skipped: SkippedWeight[] = [];
  let graphs = 0;
  let initializers = 0;
  while (cursor.at < cursor.size) {
    const field = nextField(cursor, cursor.size);
    if (field.number === graphField && field.lengthDelimited) {
      graphs++;
      initializers = readGraph(cursor, field, graph, { skipped, bytesMin }, initializers);
    } else {
      model.copy(cursor, field.start, field.end);
    }
    cursor.at = field.end;
  }
  // protobuf merges a message that occurs in several parts; concatenating their fields does the same.
  if (graphs > 0) model.message(graphField, graph);
  const bytes = new Uint8Array(model.byteLength);
  let at = 0;
  for (const part of model.parts) {
    bytes.set(part, at);
    at += part.byteLength;
  }
  return { bytes, skipped };
}

/**
 * Reads everything of a model file except the raw data of its main graph's initializers from so many bytes on.
 * @throws OnnxError `not-found`, `not-onnx`, `truncated` or `too-large`
 */
export function readStructure(path: string, skippedBytesMin = skippedBytesUsual): ModelStructure {
  let descriptor: number;
  try {
    descriptor = openSync(path, 'r');
  } catch (error) {
    throw new OnnxError('not-found', `the model file ${path} cannot be opened: ${(error as Error).message}`, {
      cause: error,
    });
  }
  try {
    const status = fstatSync(descriptor);
    if (!status.isFile()) throw new OnnxError('not-found', `the model ${path} is not a file`);
    try {
      return readFields(new Cursor(descriptor, status.size), skippedBytesMin);
    } catch (error) {
      throw explained(error, readAt(descriptor, 0, Math.min(signatureBytes, status.size)));
    }
  } finally {
    closeSync(descriptor);
  }
}
