/** One call of a function, from its body to the reply; who called, and whether anybody waits, does not matter here. */
import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { HandlerResponse } from '../../cpu/index.ts';
import { HostError } from '../errors.ts';
import { isColdStart, placementText, type Invocation } from '../invoke.ts';
import type { FunctionVersion } from '../types.ts';
import type { HeaderList } from './exchange.ts';
import type { HostContext } from './host-context.ts';
import { modelSpec, type ModelSpec } from './model-spec.ts';
import { decodePlain, encodePlain } from './plain.ts';

/** A call whose body has arrived. */
export interface FunctionCall {
  readonly method: string;
  /** Path and query as sent. */
  readonly url: string;
  /** Lower-case names; no Content-Encoding, since the body is decompressed. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Buffer;
  /** Instant (performance.now()) from which its latency counts. */
  readonly arrivalMs: number;
  readonly sloMs: number | undefined;
  readonly signal: AbortSignal;
  /** 1 is the highest; undefined: the function's. */
  readonly priority?: number;
}

export interface FunctionReply {
  readonly status: number;
  readonly headers: HeaderList;
  readonly parts: readonly (string | Uint8Array)[];
}

/**
 * Runs the call: through the function's handler, or as plain JSON.
 *
 * @throws HostError, or TensorError naming the input
 */
export async function answerCall(
  context: HostContext,
  version: FunctionVersion,
  call: FunctionCall,
): Promise<FunctionReply> {
  const { method, url, headers, body, arrivalMs, sloMs, signal, priority } = call;
  const options = { arrivalMs, sloMs, signal, priority };
  if (version.handlerPath !== undefined) {
    const request = { method, url, headers, body };
    const result = await context.invoker.invoke(version, { kind: 'request', request }, { ...options, rows: 1 });
    if (result.output.kind !== 'response') throw new HostError('internal', 'the pool answered a request with tensors');
    return handledReply(version, result, result.output.response, arrivalMs);
  }
  const { tensors, form, rows } = decodePlain(body, specOf(version));
  const result = await context.invoker.invoke(version, { kind: 'tensors', tensors }, { ...options, rows });
  if (result.output.kind !== 'tensors') throw new HostError('internal', 'the pool answered tensors with a response');
  const reply: HeaderList = ['Content-Type', 'application/json'];
  pushInvocationHeaders(reply, version, result, arrivalMs);
  return { status: 200, headers: reply, parts: [`${encodePlain(form, result.output.tensors)}\n`] };
}

/** @throws HostError 'not-ready' */
export function specOf(version: FunctionVersion): ModelSpec {
  if (version.metadata === undefined) {
    throw new HostError(
      'not-ready',
      `function '${version.name}' version ${version.version} has not been validated yet`,
    );
  }
  return modelSpec(version.metadata);
}

export function pushInvocationHeaders(
  headers: HeaderList,
  version: FunctionVersion,
  { timings, placement }: Invocation,
  arrivalMs: number,
): void {
  const totalMs = performance.now() - arrivalMs;
  headers.push(
    'X-Model-Id',
    version.key,
    'X-Model-Cold-Start',
    isColdStart(placement) ? 'true' : 'false',
    'X-Model-Load-Time',
    rounded(timings.loadMs / 1000, 1e6),
    'X-Duration-Seconds',
    rounded(totalMs / 1000, 1e6),
    'x-queue-time',
    rounded(timings.queueMs, 1e3),
    'x-inference-time',
    rounded(timings.inferMs, 1e3),
    'x-total-time',
    rounded(totalMs, 1e3),
    'x-compute-type',
    placement.kind === 'gpu' ? 'gpu' : 'cpu',
    'X-Turntable-Placement',
    placementText(placement),
  );
  if (placement.kind === 'gpu' && placement.rung !== undefined) headers.push('X-Turntable-Plan', placement.rung);
}

function rounded(value: number, perUnit: number): number {
  return Math.round(value * perUnit) / perUnit;
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
  return { status, headers, parts: status === 204 || status === 304 ? [] : [body] };
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
