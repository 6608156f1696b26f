/** One call of a function, from its body to the reply, synchronous or not, from any caller. */
import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { HandlerResponse } from '../../cpu/index.ts';
import { HostError } from '../errors.ts';
import type { Invocation } from '../invoke.ts';
import type { FunctionVersion } from '../types.ts';
import {
  encodeInfer,
  pushInvocationHeaders,
  pushServerTiming,
  runInfer,
  type HeaderList,
  type InferReply,
} from '../infer/answer.ts';
import { specOf } from '../infer/model-spec.ts';
import type { HostContext } from './host-context.ts';
import { decodeInfer, headerLengthName, parseHeaderLength } from '../infer/oip.ts';
import { decodePlain, encodePlain } from '../infer/plain.ts';
import { runInSlices } from '../../tensor/index.ts';

/** A call whose body has arrived. */
export interface ArrivedCall {
  readonly body: Buffer;
  /** Instant (performance.now()) from which its latency counts. */
  readonly arrivalMs: number;
  readonly sloMs: number | undefined;
  readonly signal: AbortSignal;
  /** The client sent a `traceparent`, and gets the timings. */
  readonly traced?: boolean;
  /** 1 is the highest; undefined: the function's. */
  readonly priority?: number;
}

export interface FunctionCall extends ArrivedCall {
  readonly method: string;
  /** Path and query as sent. */
  readonly url: string;
  /** Lower-case names; no Content-Encoding, since the body is decompressed. */
  readonly headers: Readonly<Record<string, string>>;
}

export interface FunctionReply {
  readonly status: number;
  readonly headers: HeaderList;
  readonly parts: readonly (string | Uint8Array)[];
  /** Whether it is the host's own JSON, which may be compressed; a handler's reply is sent unchanged. */
  readonly isText: boolean;
}

/**
 * Runs an `infer` of the Open Inference Protocol.
 *
 * @param headerLength from {@link parseHeaderLength}
 * @param onDecoded is told the bytes of large requests' tensors, which are in memory beside the body
 * @throws HostError, or TensorError naming the input
 */
export async function answerInfer(
  context: HostContext,
  version: FunctionVersion,
  arrived: ArrivedCall,
  headerLength: number | undefined,
  onDecoded?: (bytes: number) => void,
): Promise<FunctionReply> {
  const decoded = runInSlices(decodeInfer(arrived.body, headerLength, specOf(version)));
  // A promise for what is small would cost more than decoding it.
  const call = decoded instanceof Promise ? await decoded : decoded;
  if (decoded instanceof Promise) onDecoded?.(call.tensors.reduce((bytes, { data }) => bytes + data.byteLength, 0));
  const { priority } = arrived;
  const asked = priority === undefined ? call : { ...call, priority };
  const { invocation, outputs } = await runInfer(context.invoker, version, asked, arrived);
  const encoded = runInSlices(encodeInfer(version, call, outputs, context.config.limits.replyBytesMax));
  return invocationReply(version, invocation, encoded instanceof Promise ? await encoded : encoded, arrived);
}

function invocationReply(
  version: FunctionVersion,
  invocation: Invocation,
  { headerLength, parts }: Pick<InferReply, 'headerLength'> & Pick<FunctionReply, 'parts'>,
  { arrivalMs, traced }: ArrivedCall,
): FunctionReply {
  const isText = headerLength === undefined;
  const headers: HeaderList = isText
    ? ['Content-Type', 'application/json']
    : ['Content-Type', 'application/octet-stream', 'Inference-Header-Content-Length', String(headerLength)];
  pushInvocationHeaders(headers, version, invocation, arrivalMs);
  if (traced === true) pushServerTiming(headers, invocation, arrivalMs);
  return { status: 200, headers, parts, isText };
}

/**
 * Runs the call through the function's handler, or as plain JSON; an `infer` that was accepted asynchronously runs as
 * `infer`.
 *
 * @throws HostError, or TensorError naming the input
 */
export async function answerCall(
  context: HostContext,
  version: FunctionVersion,
  call: FunctionCall,
): Promise<FunctionReply> {
  const { method, url, headers, body, arrivalMs, sloMs, signal, priority, traced } = call;
  if (url.startsWith('/v2/'))
    return await answerInfer(context, version, call, parseHeaderLength(headers[headerLengthName]));
  const options = { arrivalMs, sloMs, signal, priority };
  if (version.handlerPath !== undefined) {
    const request = { method, url, headers, body };
    const result = await context.invoker.invoke(version, { kind: 'request', request }, { ...options, rows: 1 });
    if (result.output.kind !== 'response') throw new HostError('internal', 'the pool answered a request with tensors');
    const replied = handledReply(version, result, result.output.response, arrivalMs);
    if (traced === true) pushServerTiming(replied.headers, result, arrivalMs);
    return replied;
  }
  const { tensors, form, rows } = await runInSlices(decodePlain(body, specOf(version)));
  const inferred = { tensors, outputs: undefined, timeoutMs: undefined, priority, rows, classes: undefined };
  const { invocation, outputs } = await runInfer(context.invoker, version, inferred, { arrivalMs, sloMs, signal });
  const parts = await runInSlices(encodePlain(form, outputs, context.config.limits.replyBytesMax));
  return invocationReply(version, invocation, { headerLength: undefined, parts }, call);
}

/** Headers of the connection, or the host's own: a handler's are left out. */
const reserved = new Set([
  'connection',
  'content-length',
  'date',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'x-request-id',
  'x-call-id',
  'traceparent',
  'x-model-id',
  'x-model-cold-start',
  'x-model-load-time',
  'x-duration-seconds',
  'x-queue-time',
  'x-inference-time',
  'x-total-time',
  'x-compute-type',
  'x-turntable-placement',
  'x-turntable-plan',
  'x-turntable-predicted-time',
  'x-turntable-cold-cause',
]);

function handledReply(
  version: FunctionVersion,
  result: Invocation,
  response: HandlerResponse,
  arrivalMs: number,
): FunctionReply {
  const { status, body } = response;
  if (!Number.isInteger(status) || status < 200 || status > 599) {
    throw new HostError('handler-failed', `the handler of '${version.name}' answered with the status ${status}`);
  }
  const headers: HeaderList = [];
  for (const [name, value] of Object.entries(response.headers)) {
    if (reserved.has(name.toLowerCase())) continue;
    checkHeader(version, name, value);
    headers.push(name, value);
  }
  pushInvocationHeaders(headers, version, result, arrivalMs);
  return { status, headers, parts: status === 204 || status === 304 ? [] : [body], isText: false };
}

function checkHeader(version: FunctionVersion, name: string, value: string): void {
  try {
    validateHeaderName(name);
    validateHeaderValue(name, value);
  } catch (error) {
    throw new HostError('handler-failed', `the handler of '${version.name}' answered with a header that HTTP forbids`, {
      cause: error,
    });
  }
}
