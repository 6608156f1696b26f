/**
 * Checks protobuf bytes strictly before anything is built from them. The protobuf library is too lenient for a host: it
 * accepts a field of the wrong wire type, and a message that runs past its parent. These checks also refuse a file that
 * would take far more memory than its size.
 */
import { OnnxError } from './error.ts';
import type { FieldSchema, MessageSchema } from './schema.ts';

/** Depth of nested messages; protobuf's own default, at which ONNX Runtime stops as well. */
export const depthMax = 100;
/** A message takes two bytes in a file and about a hundred in memory. */
const messagesMax = 8_000_000;
/** Elements in typed fields and lists (not raw bytes) become JavaScript numbers, one by one. */
const elementsMax = 64_000_000;

/** protobuf's wire types. */
export const wireVarint = 0;
export const wireFixed64 = 1;
export const wireText = 2;
const wireGroup = 3;
const wireGroupEnd = 4;
export const wireFixed32 = 5;

const wireTypeOf = {
  varint: wireVarint,
  fixed32: wireFixed32,
  fixed64: wireFixed64,
  text: wireText,
  message: wireText,
} as const;

/** State of a scan: the bytes, the position and the counts so far. */
class Scan {
  readonly bytes: Uint8Array;
  /** Names of the messages around the current position, outermost first. */
  readonly path: string[] = [];
  at = 0;
  messageCount = 0;
  elementCount = 0;

  constructor(bytes: Uint8Array) {
    this.bytes = bytes;
  }

  fail(code: 'not-onnx' | 'truncated', field: string, problem: string): OnnxError {
    const where = [...this.path, field].join('.');
    return new OnnxError(code, `the model is damaged at byte ${this.at}: ${where} ${problem}`);
  }

  /** Reads a varint as a number; exact up to 2^53, which is beyond any length or tag. */
  varint(end: number, field: string): number {
    const { bytes } = this;
    let value = 0;
    let scale = 1;
    for (let count = 0; count < 10; count++) {
      if (this.at >= end) {
        const code = end === bytes.byteLength ? 'truncated' : 'not-onnx';
        throw this.fail(code, field, 'ends inside a number');
      }
      const byte = bytes[this.at++]!;
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
      scale *= 128;
    }
    throw this.fail('not-onnx', field, 'holds a number of more than 10 bytes');
  }

  /** Skips `size` bytes, which must be before `end`. */
  skip(size: number, end: number, field: string): void {
    if (size > end - this.at) {
      const code = size > this.bytes.byteLength - this.at ? 'truncated' : 'not-onnx';
      throw this.fail(code, field, `takes ${size} bytes, but only ${end - this.at} are left`);
    }
    this.at += size;
  }

  /** Skips one field without parsing its content. */
  skipField(wireType: number, fieldNumber: number, end: number, field: string, depth: number): void {
    if (wireType === wireVarint) this.varint(end, field);
    else if (wireType === wireFixed64) this.skip(8, end, field);
    else if (wireType === wireFixed32) this.skip(4, end, field);
    else if (wireType === wireText) this.skip(this.varint(end, field), end, field);
    else if (wireType === wireGroup) this.skipGroup(fieldNumber, end, field, depth + 1);
    else throw this.fail('not-onnx', field, `has the wire type ${wireType}, which cannot stand here`);
  }

  private skipGroup(fieldNumber: number, end: number, field: string, depth: number): void {
    if (depth > depthMax) throw this.tooDeep();
    for (;;) {
      const tag = this.varint(end, field);
      const inner = Math.floor(tag / 8);
      if (tag % 8 === wireGroupEnd) {
        if (inner !== fieldNumber) throw this.fail('not-onnx', field, 'closes a group that it did not open');
        return;
      }
      this.skipField(tag % 8, inner, end, field, depth);
    }
  }

  tooDeep(): OnnxError {
    return new OnnxError('too-deep', `the model nests messages more than ${depthMax} deep, at byte ${this.at}`);
  }

  countElements(count: number, field: string): void {
    this.elementCount += count;
    if (this.elementCount > elementsMax) {
      throw new OnnxError(
        'too-large',
        `the model holds more than ${elementsMax} elements outside raw data, at ${[...this.path, field].join('.')}`,
      );
    }
  }
}

/** The elements of a packed run: each must end inside it. */
function scanPacked(scan: Scan, field: FieldSchema, size: number): void {
  const { bytes } = scan;
  const start = scan.at;
  const end = start + size;
  if (field.wire === 'varint') {
    let count = 0;
    let length = 0;
    for (let at = start; at < end; at++) {
      if (bytes[at]! >= 0x80) {
        if (++length > 9) {
          throw scan.fail('not-onnx', field.protoName, 'holds a number of more than 10 bytes');
        }
      } else {
        count++;
        length = 0;
      }
    }
    if (length > 0) throw scan.fail('not-onnx', field.protoName, 'ends inside a number');
    scan.countElements(count, field.protoName);
  } else {
    const width = field.wire === 'fixed32' ? 4 : 8;
    if (size % width !== 0) {
      throw scan.fail('not-onnx', field.protoName, `has ${size} bytes, which is not a multiple of ${width}`);
    }
    scan.countElements(size / width, field.protoName);
  }
  scan.at = end;
}

function scanMessage(scan: Scan, schema: MessageSchema, end: number, depth: number): void {
  if (depth > depthMax) throw scan.tooDeep();
  if (++scan.messageCount > messagesMax) {
    throw new OnnxError('too-large', `the model holds more than ${messagesMax} messages (nodes, attributes, types)`);
  }
  while (scan.at < end) {
    const tag = scan.varint(end, schema.name);
    const wireType = tag % 8;
    const number = Math.floor(tag / 8);
    if (number === 0 || number > 2 ** 29 - 1) {
      throw scan.fail('not-onnx', schema.name, `has a field of the number ${number}`);
    }
    const field = schema.byNumber.get(number);
    if (field === undefined) {
      scan.skipField(wireType, number, end, `field ${number}`, depth);
      continue;
    }
    const packed = field.repeated && wireType === wireText && field.wire !== 'text' && field.wire !== 'message';
    if (!packed && wireType !== wireTypeOf[field.wire]) {
      throw scan.fail(
        'not-onnx',
        field.protoName,
        `has the wire type ${wireType} instead of ${wireTypeOf[field.wire]}`,
      );
    }
    if (wireType !== wireText) {
      if (field.repeated) scan.countElements(1, field.protoName);
      scan.skipField(wireType, number, end, field.protoName, depth);
      continue;
    }
    const size = scan.varint(end, field.protoName);
    const start = scan.at;
    scan.skip(size, end, field.protoName);
    if (packed) {
      scan.at = start;
      scanPacked(scan, field, size);
    } else if (field.message !== undefined) {
      scan.at = start;
      scan.path.push(field.protoName);
      scanMessage(scan, field.message, start + size, depth + 1);
      scan.path.pop();
    } else if (field.repeated) {
      scan.countElements(1, field.protoName);
    }
  }
}

/**
 * Checks that `bytes` are exactly one message of this schema. Takes one pass over everything except raw data.
 * @throws OnnxError `truncated` for a length past the end, `not-onnx` for any other invalid message, `too-deep` and
 * `too-large` for what no runtime would load
 */
export function verifyWire(schema: MessageSchema, bytes: Uint8Array): void {
  scanMessage(new Scan(bytes), schema, bytes.byteLength, 1);
}
