/** Replies of the Open Inference Protocol's `infer`, in JSON or with Triton's binary tensor data extension. */
import { TextParts, writeTensor, type Steps, type Tensor } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import type { InferCall } from './oip.ts';

/** A reply ready to be sent. */
export interface InferReply {
  /** Bytes of JSON at the start when raw tensor data follows, else undefined: the whole body is JSON. */
  readonly headerLength: number | undefined;
  /**
   * The body's parts, in order. Short JSON stays a string, which Node writes together with the HTTP headers; copying
   * the tensors behind it would cost 2 µs for 4 KiB.
   */
  readonly parts: readonly [json: string | Uint8Array, ...rest: Uint8Array[]];
}

/**
 * Encodes the outputs of a run.
 *
 * @param bytesMax of JSON
 * @throws HostError 'reply-too-large', TensorError where an output has no JSON form
 */
export function* encodeInfer(
  model: { readonly name: string; readonly version: string },
  call: Pick<InferCall, 'id' | 'binary'>,
  tensors: readonly Tensor[],
  bytesMax = Infinity,
): Steps<InferReply> {
  const json = replyText(bytesMax);
  const payload: Uint8Array[] = [];
  const { id, binary } = call;
  json.add(JSON.stringify({ id, model_name: model.name, model_version: model.version }).slice(0, -1));
  json.add(',"outputs":[');
  for (const [index, tensor] of tensors.entries()) {
    const { name, datatype, shape, data } = tensor;
    const isBinary = binary.byName?.get(name) ?? binary.byDefault;
    const parameters = isBinary ? { binary_data_size: data.byteLength } : undefined;
    const described = JSON.stringify({ name, datatype, shape, parameters });
    json.add(index === 0 ? '' : ',');
    if (isBinary) {
      payload.push(data);
      json.add(described);
      continue;
    }
    json.add(`${described.slice(0, -1)},"data":`);
    yield* writeTensor(json, tensor, false);
    json.add('}');
  }
  json.add(']}');
  const parts = json.parts();
  return { headerLength: payload.length === 0 ? undefined : bytesOf(parts), parts: [...parts, ...payload] };
}

/** JSON of a reply, within its limit. */
export function replyText(bytesMax: number): TextParts {
  return new TextParts(
    bytesMax,
    () =>
      new HostError(
        'reply-too-large',
        `the reply is over the limit of ${bytesMax} bytes of JSON; ask for fewer outputs, or for binary data`,
      ),
  );
}

export function bytesOf(parts: readonly (string | Uint8Array)[]): number {
  let bytes = 0;
  for (const part of parts) bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.byteLength;
  return bytes;
}
