/** The binary form of the Open Inference Protocol: JSON, then the bytes of each tensor in turn. */
import { bytesOf, tensorFrom, type ClientTensor, type Datatype } from './tensors.ts';

export interface InferRequest {
  readonly inputs: readonly ClientTensor[];
  /** Names, in the wanted order; default: all outputs of the model. */
  readonly outputs?: readonly string[] | undefined;
  readonly id?: string | undefined;
  /** 1 is the highest. */
  readonly priority?: number | undefined;
  /** The call leaves the queue after this long. */
  readonly timeoutMs?: number | undefined;
}

interface TensorHeader {
  readonly name: string;
  readonly datatype: Datatype;
  readonly shape: readonly number[];
  readonly parameters?: { readonly binary_data_size?: number };
}

const encoder = new TextEncoder();

export function encodeInfer(request: InferRequest): { readonly body: Uint8Array; readonly headerLength: number } {
  const { inputs, outputs, id, priority, timeoutMs } = request;
  const payload = inputs.map(bytesOf);
  const header = encoder.encode(
    JSON.stringify({
      ...(id === undefined ? {} : { id }),
      parameters: {
        binary_data_output: true,
        ...(priority === undefined ? {} : { priority }),
        ...(timeoutMs === undefined ? {} : { timeout: Math.round(timeoutMs * 1000) }),
      },
      inputs: inputs.map(({ name, datatype, shape }, index) => ({
        name,
        datatype,
        shape,
        parameters: { binary_data_size: payload[index]?.byteLength },
      })),
      ...(outputs === undefined ? {} : { outputs: outputs.map((name) => ({ name })) }),
    }),
  );
  const body = new Uint8Array(payload.reduce((sum, { byteLength }) => sum + byteLength, header.byteLength));
  body.set(header);
  let at = header.byteLength;
  for (const part of payload) {
    body.set(part, at);
    at += part.byteLength;
  }
  return { body, headerLength: header.byteLength };
}

/** @param headerLength of the JSON, in bytes; undefined: the whole body is JSON, so no output is in binary form */
export function decodeInfer(body: Uint8Array, headerLength: number | undefined) {
  const json = new TextDecoder().decode(headerLength === undefined ? body : body.subarray(0, headerLength));
  const { id, model_name, model_version, outputs } = JSON.parse(json) as {
    id?: string;
    model_name: string;
    model_version: string;
    outputs: TensorHeader[];
  };
  let at = headerLength ?? body.byteLength;
  const tensors = outputs.map(({ name, datatype, shape, parameters }) => {
    const size = parameters?.binary_data_size ?? 0;
    const read = tensorFrom(name, datatype, shape, body.subarray(at, at + size));
    at += size;
    return read;
  });
  return {
    id,
    model: model_name,
    version: model_version,
    /** In the order of the reply. */
    outputs: tensors,
  };
}
