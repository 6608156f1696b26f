/** Invocations and their answers as one binary value each, in the wire codec: tensors go as their raw bytes. */
import {
  bodyIn,
  bodyTensor,
  CpuError,
  type CpuErrorCode,
  type HandlerRequest,
  type HandlerResponse,
  type PoolInput,
  type PoolResult,
} from '../cpu/index.ts';
import { decodeMessage, encodeMessage, type Message, type Tensor } from '../tensor/index.ts';
import { given } from '../tools/index.ts';

export type InputHeader =
  | { readonly kind: 'tensors'; readonly outputs?: readonly string[] }
  | ({ readonly kind: 'request' } & Omit<HandlerRequest, 'body'>);

export function inputMessage(input: PoolInput): Message<InputHeader> {
  if (input.kind === 'tensors') {
    const { tensors, outputs } = input;
    return { header: outputs === undefined ? { kind: 'tensors' } : { kind: 'tensors', outputs }, tensors };
  }
  const { method, url, headers, body } = input.request;
  return { header: { kind: 'request', method, url, headers }, tensors: [bodyTensor(body)] };
}

/** The bytes of an invocation's input. */
export function encodeInput(input: PoolInput): Buffer {
  const { header, tensors } = inputMessage(input);
  return joined(header, tensors);
}

/** Size of the result of {@link encodeInput}, except some hundred bytes of header. */
export function inputBytes(input: PoolInput): number {
  if (input.kind === 'request') return input.request.body.byteLength;
  return input.tensors.reduce((sum, { data }) => sum + data.byteLength, 0);
}

export function inputOf({ header, tensors }: Message<InputHeader>): PoolInput {
  if (header.kind === 'tensors') {
    const { outputs } = header;
    return outputs === undefined ? { kind: 'tensors', tensors } : { kind: 'tensors', tensors, outputs };
  }
  const { method, url, headers } = header;
  return { kind: 'request', request: { method, url, headers, body: bodyIn(tensors) } };
}

/** @throws TensorError where the bytes are not an input */
export function decodeInput(bytes: Uint8Array): PoolInput {
  return inputOf(decodeMessage<InputHeader>(bytes));
}

/** How an invocation ended at a worker. */
export type Answer =
  | { readonly kind: 'result'; readonly result: PoolResult }
  | { readonly kind: 'error'; readonly error: CpuError }
  /** The worker could not even begin, so another place may run it. */
  | { readonly kind: 'refused'; readonly reason: string };

export type ResultHeader = Omit<PoolResult, 'output' | 'modelElsewhere'> &
  ({ readonly kind: 'tensors' } | ({ readonly kind: 'response' } & Omit<HandlerResponse, 'body'>));

type AnswerHeader = { readonly id: string; readonly worker: string } & (
  | ResultHeader
  | { readonly kind: 'error'; readonly code: CpuErrorCode; readonly message: string; readonly status?: number }
  | { readonly kind: 'refused'; readonly reason: string }
);

export function resultMessage(result: PoolResult): Message<ResultHeader> {
  const { output, timings, coldStart, batchSize, batchRows, instancePid } = result;
  const run = { timings, coldStart, batchSize, batchRows, instancePid };
  if (output.kind === 'tensors') return { header: { ...run, kind: 'tensors' }, tensors: output.tensors };
  const { status, headers, body } = output.response;
  return { header: { ...run, kind: 'response', status, headers }, tensors: [bodyTensor(body)] };
}

export function resultOf({ header, tensors }: Message<ResultHeader>): PoolResult {
  const { timings, coldStart, batchSize, batchRows, instancePid } = header;
  const run = { timings, coldStart, batchSize, batchRows, instancePid };
  if (header.kind === 'tensors') return { ...run, output: { kind: 'tensors', tensors } };
  const { status, headers } = header;
  return { ...run, output: { kind: 'response', response: { status, headers, body: bodyIn(tensors) } } };
}

export interface AddressedAnswer {
  /** Names the invocation. */
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
      const { header, tensors } = resultMessage(answer.result);
      return joined({ id, worker, ...header } satisfies AnswerHeader, tensors);
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
    case 'tensors':
    case 'response':
      return { id, worker, answer: { kind: 'result', result: resultOf({ header, tensors }) } };
  }
}

export function joined(header: object, tensors: readonly Tensor[]): Buffer {
  return Buffer.concat(encodeMessage({ header, tensors }));
}
