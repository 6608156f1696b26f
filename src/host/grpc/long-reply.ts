/**
 * A long reply to one call, in the pieces that it is made of: the bytes of its outputs are written from where they are.
 * protobufjs and grpc-js would each make a copy of all of it.
 */
import type { ModelInferResponse } from './messages.ts';

/** Shorter replies are copied: it costs less than a write for each part. */
const longBytesMin = 64 * 1024;
/** Before each message: a flag and its length. */
export const headBytes = 5;
/** `raw_output_contents` of inference.proto. */
const rawOutputTag = 6 * 8 + 2;

/** What grpc-js takes for the bytes of a message with its head: it only asks for the length. */
export class LongReply {
  readonly parts: readonly Uint8Array[];
  readonly length: number;

  constructor(parts: readonly Uint8Array[]) {
    this.parts = parts;
    this.length = bytesOf(parts);
  }

  /** Its bytes in order, in pieces of at most so many. */
  *pieces(bytesMax: number): Generator<Uint8Array> {
    let gathered: Uint8Array[] = [];
    let bytes = 0;
    for (const part of this.parts) {
      for (let at = 0; at < part.byteLength;) {
        const piece = part.subarray(at, at + bytesMax - bytes);
        at += piece.byteLength;
        bytes += piece.byteLength;
        gathered.push(piece);
        if (bytes < bytesMax) continue;
        yield joined(gathered);
        [gathered, bytes] = [[], 0];
      }
    }
    if (bytes > 0) yield joined(gathered);
  }
}

const joined = (pieces: readonly Uint8Array[]): Uint8Array =>
  pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);

/**
 * Undefined if it is no long reply of ModelInfer.
 *
 * @param serialize the message of its fields but the outputs' bytes
 */
export function longReplyOf(value: unknown, serialize: (value: unknown) => Uint8Array): LongReply | undefined {
  const { raw_output_contents: outputs = [], ...rest } = value as Partial<ModelInferResponse>;
  if (bytesOf(outputs) < longBytesMin) return undefined;
  const message = [serialize(rest), ...outputs.flatMap((bytes) => [fieldHead(bytes.byteLength), bytes])];
  const head = Buffer.alloc(headBytes);
  head.writeUInt32BE(bytesOf(message), 1);
  return new LongReply([head, ...message]);
}

const bytesOf = (parts: readonly Uint8Array[]): number => parts.reduce((sum, { byteLength }) => sum + byteLength, 0);

/** Tag and length, a varint, of the bytes that follow. */
function fieldHead(length: number): Uint8Array {
  const bytes = [rawOutputTag];
  let left = length;
  for (; left >= 0x80; left = Math.floor(left / 0x80)) bytes.push((left % 0x80) | 0x80);
  bytes.push(left);
  return Uint8Array.from(bytes);
}
