/** Replies of the Open Inference Protocol's `infer`, in JSON or with Triton's binary tensor data extension. */
import {
  bytesToSend,
  dataBytes,
  tensorHeaderText,
  TextParts,
  writeTensor,
  type Grow,
  type Lent,
  type Steps,
  type Tensor,
} from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { InferCall } from './oip.ts';

/** A string, or bytes; those of a tensor may be lent. */
export type ReplyPart = string | Uint8Array | Lent;

/** A reply ready to be sent. */
export interface InferReply {
  /** Bytes of JSON at the start if raw tensor data follows; undefined: the whole body is JSON. */
  readonly headerLength: number | undefined;
  /**
   * The body's parts, in order. Short JSON stays a string, which Node writes together with the HTTP headers; copying
   * the tensors after it would cost 2 µs for 4 KiB.
   */
  readonly parts: readonly [json: string | Uint8Array, ...rest: (Uint8Array | Lent)[]];
}

/**
 * Encodes the outputs of a run.
 * @param bytesMax limit of the JSON part
 * @param grow is told the bytes of the JSON as it is written; what it throws is thrown
 * @throws HostError 'reply-too-large', TensorError for an output without a JSON form
 */
export function* encodeInfer(
  model: { readonly name: string; readonly version: string },
  call: Pick<InferCall, 'id' | 'binary'>,
  tensors: readonly Tensor[],
  bytesMax = Infinity,
  grow?: Grow,
): Steps<InferReply> {
  const json = replyText(bytesMax, grow);
  const payload: (Uint8Array | Lent)[] = [];
  const { id, binary } = call;
  // Written by hand: JSON.stringify takes a microsecond for each of these objects.
  const idText = id === undefined ? '' : `"id":${JSON.stringify(id)},`;
  json.add(`{${idText}"model_name":${JSON.stringify(model.name)},"model_version":${JSON.stringify(model.version)}`);
  json.add(',"outputs":[');
  let comma = '';
  for (const tensor of tensors) {
    const { name, datatype, shape } = tensor;
    const before = comma;
    comma = ',';
    if (binary.byName?.get(name) ?? binary.byDefault) {
      payload.push(bytesToSend(tensor));
      json.add(before + tensorHeaderText(tensor));
      continue;
    }
    json.add(`${before}{"name":${JSON.stringify(name)},"datatype":"${datatype}","shape":[${shape.join(',')}],"data":`);
    yield* writeTensor(json, tensor, false);
    json.add('}');
  }
  json.add(']}');
  const parts = json.parts();
  return { headerLength: payload.length === 0 ? undefined : bytesOf(parts), parts: [...parts, ...payload] };
}

/** Collects the JSON of a reply, within its limit. */
export function replyText(bytesMax: number, grow?: Grow): TextParts {
  return new TextParts(
    bytesMax,
    () =>
      new HostError(
        'reply-too-large',
        `the reply is over the limit of ${bytesMax} bytes of JSON; ask for fewer outputs, or for binary data`,
      ),
    grow,
  );
}

export function bytesOf(parts: readonly ReplyPart[]): number {
  let bytes = 0;
  for (const part of parts) bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.byteLength;
  return bytes;
}

export const bytesIn = (tensors: readonly Tensor[]): number =>
  tensors.reduce((sum, tensor) => sum + dataBytes(tensor), 0);
