/** Invocations and their answers as one binary value each, in the wire codec: tensors go as their raw bytes. */
import { CpuError, type CpuErrorCode, type PoolInput, type PoolResult, type PoolTimings } from '../cpu/index.ts';
import { decodeMessage, encodeMessage, type Tensor } from '../tensor/index.ts';
import { given } from '../tools/index.ts';

type InputHeader =
  | { readonly kind: 'tensors'; readonly outputs?: readonly string[] }
  | {
      readonly kind: 'request';
      readonly method: string;
      readonly url: string;
      readonly headers: Readonly<Record<string, string>>;
    };

/** The bytes of an invocation's input. */
export function encodeInput(input: PoolInput): Buffer {
  if (input.kind === 'tensors') {
    const { tensors, outputs } = input;
    const header: InputHeader = outputs === undefined ? { kind: 'tensors' } : { kind: 'tensors', outputs };
    return joined(header, tensors);
  }
  const { method, url, headers, body } = input.request;
  return joined({ kind: 'request', method, url, headers } satisfies InputHeader, [bodyTensor(body)]);
}

/** Bytes that {@link encodeInput} will make, but for some hundred of the header. */
export function inputBytes(input: PoolInput): number {
  if (input.kind === 'request') return input.request.body.byteLength;
  return input.tensors.reduce((sum, { data }) => sum + data.byteLength, 0);
}

/** @throws TensorError where the bytes are not an input */
export function decodeInput(bytes: Uint8Array): PoolInput {
  const { header, tensors } = decodeMessage<InputHeader>(bytes);
  if (header.kind === 'tensors') {
    const { outputs } = header;
    return outputs === undefined ? { kind: 'tensors', tensors } : { kind: 'tensors', tensors, outputs };
  }
  const { method, url, headers } = header;
  return { kind: 'request', request: { method, url, headers, body: bodyOf(tensors) } };
}

/** How an invocation ended at a worker. */
export type Answer =
  | { readonly kind: 'result'; readonly result: PoolResult }
  | { readonly kind: 'error'; readonly error: CpuError }
  /** The worker could not even begin, so that somebody else may. */
  | { readonly kind: 'refused'; readonly reason: string };

interface RunHeader {
  readonly timings: PoolTimings;
  readonly coldStart: boolean;
  readonly batchSize: number;
  readonly instancePid: number;
}

type AnswerHeader = { readonly id: string; readonly worker: string } & (
  | ({ readonly kind: 'tensors' } & RunHeader)
  | ({
      readonly kind: 'response';
      readonly status: number;
      readonly headers: Readonly<Record<string, string>>;
    } & RunHeader)
  | { readonly kind: 'error'; readonly code: CpuErrorCode; readonly message: string; readonly status?: number }
  | { readonly kind: 'refused'; readonly reason: string }
);

export interface AddressedAnswer {
  /** Of the invocation. */
  readonly id: string;
  /** Id of the worker. */
  readonly worker: string;
  readonly answer: Answer;
}

export function encodeAnswer({ id, worker, answer }: AddressedAnswer): Buffer {
  switch (answer.kind) {
    case 'refused':
      return joined({ id, worker, kind: 'refused', reason: answer.reason } satisfies AnswerHeader, []);
    case 'error': {
      const { code, message, status } = answer.error;
      const header: AnswerHeader = {
        id,
        worker,
        kind: 'error',
        code,
        message,
        ...given({ status }),
      };
      return joined(header, []);
    }
    case 'result': {
      const { output, timings, coldStart, batchSize, instancePid } = answer.result;
      const run = { id, worker, timings, coldStart, batchSize, instancePid };
      if (output.kind === 'tensors') return joined({ ...run, kind: 'tensors' } satisfies AnswerHeader, output.tensors);
      const { status, headers, body } = output.response;
      return joined({ ...run, kind: 'response', status, headers } satisfies AnswerHeader, [bodyTensor(body)]);
    }
  }
}

/** @throws TensorError where the bytes are not an answer */
export function decodeAnswer(bytes: Uint8Array): AddressedAnswer {
  const { header, tensors } = decodeMessage<AnswerHeader>(bytes);
  const { id, worker } = header;
  switch (header.kind) {
    case 'refused':
      return { id, worker, answer: { kind: 'refused', reason: header.reason } };
    case 'error':
      return { id, worker, answer: { kind: 'error', error: new CpuError(header.code, header.message, header.status) } };
    case 'tensors': {
      const { timings, coldStart, batchSize, instancePid } = header;
      const run = { timings, coldStart, batchSize, instancePid };
      return { id, worker, answer: { kind: 'result', result: { ...run, output: { kind: 'tensors', tensors } } } };
    }
    case 'response': {
      const { timings, coldStart, batchSize, instancePid, status, headers } = header;
      const run = { timings, coldStart, batchSize, instancePid };
      const response = { status, headers, body: bodyOf(tensors) };
      return { id, worker, answer: { kind: 'result', result: { ...run, output: { kind: 'response', response } } } };
    }
  }
}

export function joined(header: object, tensors: readonly Tensor[]): Buffer {
  return Buffer.concat(encodeMessage({ header, tensors }));
}

export function bodyTensor(body: Uint8Array): Tensor {
  return { name: 'body', datatype: 'UINT8', shape: [body.byteLength], data: body };
}

export function bodyOf(tensors: readonly Tensor[]): Uint8Array {
  return tensors[0]?.data ?? new Uint8Array();
}
