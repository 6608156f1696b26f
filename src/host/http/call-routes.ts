/** Routes that run functions: `infer` of the Open Inference Protocol, and plain function calls. */
import type { PoolInput } from '../../cpu/index.ts';
import type { HandlerResponse } from '../../cpu/index.ts';
import { parseDurationMs } from '../config-units.ts';
import { HostError, toHostError } from '../errors.ts';
import { placementText, type Invocation } from '../invoke.ts';
import type { FunctionVersion } from '../types.ts';
import { clientSignal } from './client-signal.ts';
import type { Exchange, HeaderList } from './exchange.ts';
import { admitted, versionAsked, type HostContext } from './host-context.ts';
import { modelSpec, type ModelSpec } from './model-spec.ts';
import { decodeInfer, encodeInfer, headerLengthName, parseHeaderLength } from './oip.ts';
import { decodePlain, encodePlain } from './plain.ts';

/** `POST /v2/models/{name}[/versions/{version}]/infer` */
export async function infer(context: HostContext, exchange: Exchange): Promise<void> {
  exchange.functionName = versionAsked(context, exchange).name;
  await admitted(context, async () => {
    const sloMs = sloAsked(exchange);
    const headerLength = parseHeaderLength(exchange.incoming.headers[headerLengthName]);
    const body = await context.bodies.read(exchange, context.config.limits.bodyBytesMax);
    const version = await readyVersion(context, exchange);
    const call = decodeInfer(body, headerLength, specOf(version));
    const { tensors, outputs, timeoutMs, priority, rows } = call;
    const input: PoolInput =
      outputs === undefined ? { kind: 'tensors', tensors } : { kind: 'tensors', tensors, outputs };
    const { arrivalMs } = exchange;
    const deadlineMs = timeoutMs === undefined ? undefined : arrivalMs + timeoutMs;
    const signal = clientSignal(exchange.incoming.socket);
    const result = await context.invoker.invoke(version, input, {
      arrivalMs,
      sloMs,
      deadlineMs,
      priority,
      signal,
      rows,
    });
    if (result.output.kind !== 'tensors') throw new HostError('internal', 'the pool answered tensors with a response');
    const reply = encodeInfer(version, call, result.output.tensors);
    const headers: HeaderList =
      reply.headerLength === undefined
        ? ['Content-Type', 'application/json']
        : ['Content-Type', 'application/octet-stream', 'Inference-Header-Content-Length', reply.headerLength];
    pushInvocationHeaders(headers, version, result, exchange.arrivalMs);
    exchange.send(200, headers, reply.parts);
  });
}

/** `POST /function/{name}[/versions/{version}]` */
export async function call(context: HostContext, exchange: Exchange): Promise<void> {
  exchange.functionName = versionAsked(context, exchange).name;
  await admitted(context, async () => {
    const sloMs = sloAsked(exchange);
    const body = await context.bodies.read(exchange, context.config.limits.bodyBytesMax);
    const version = await readyVersion(context, exchange);
    const { arrivalMs } = exchange;
    const options = { arrivalMs, sloMs, signal: clientSignal(exchange.incoming.socket) };
    if (version.handlerPath !== undefined) {
      const request = { method: exchange.method, url: exchange.url, headers: plainHeaders(exchange), body };
      const result = await context.invoker.invoke(version, { kind: 'request', request }, { ...options, rows: 1 });
      if (result.output.kind !== 'response')
        throw new HostError('internal', 'the pool answered a request with tensors');
      sendHandled(exchange, version, result, result.output.response);
      return;
    }
    const { tensors, form, rows } = decodePlain(body, specOf(version));
    const result = await context.invoker.invoke(version, { kind: 'tensors', tensors }, { ...options, rows });
    if (result.output.kind !== 'tensors') throw new HostError('internal', 'the pool answered tensors with a response');
    const headers: HeaderList = ['Content-Type', 'application/json'];
    pushInvocationHeaders(headers, version, result, exchange.arrivalMs);
    exchange.send(200, headers, [`${encodePlain(form, result.output.tensors)}\n`]);
  });
}

/** `POST /async-function/{name}[/versions/{version}]`: unknown functions are told before the missing queue is. */
export function callLater(context: HostContext, exchange: Exchange): void {
  exchange.functionName = versionAsked(context, exchange).name;
  throw noQueue();
}

/** `GET` and `DELETE /async-function/{call-id}` */
export function asynchronousStatus(): void {
  throw noQueue();
}

function noQueue(): HostError {
  return new HostError('no-queue', 'asynchronous invocations need a queue in Redis, and this host runs without one');
}

/** Looked up again after the body arrived: a publish or removal may have happened meanwhile. */
function readyVersion(context: HostContext, exchange: Exchange): FunctionVersion | Promise<FunctionVersion> {
  const version = versionAsked(context, exchange);
  if (version.state.status === 'ready') return version;
  return context.invoker.ready(version, clientSignal(exchange.incoming.socket));
}

function specOf(version: FunctionVersion): ModelSpec {
  if (version.metadata === undefined) {
    throw new HostError(
      'not-ready',
      `function '${version.name}' version ${version.version} has not been validated yet`,
    );
  }
  return modelSpec(version.metadata);
}

function sloAsked(exchange: Exchange): number | undefined {
  const header = exchange.header('x-turntable-slo');
  if (header === undefined) return undefined;
  const sloMs = parseDurationMs(header);
  if (sloMs === undefined || sloMs <= 0) {
    throw new HostError('bad-request', "the header X-Turntable-SLO is not a duration such as '100ms' or '1.5s'");
  }
  return sloMs;
}

function pushInvocationHeaders(
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
    placement.coldStart ? 'true' : 'false',
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
    'cpu',
    'X-Turntable-Placement',
    placementText(placement),
  );
}

function rounded(value: number, perUnit: number): number {
  return Math.round(value * perUnit) / perUnit;
}

function plainHeaders(exchange: Exchange): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of Object.keys(exchange.incoming.headers)) headers[name] = exchange.header(name) ?? '';
  // The body that goes along is decompressed already.
  delete headers['content-encoding'];
  return headers;
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
]);

function sendHandled(
  exchange: Exchange,
  version: FunctionVersion,
  result: Invocation,
  response: HandlerResponse,
): void {
  const { status, body } = response;
  if (!Number.isInteger(status) || status < 200 || status > 599) {
    throw new HostError('handler-failed', `the handler of '${version.name}' answered with the status ${status}`);
  }
  const headers: HeaderList = [];
  for (const [name, value] of Object.entries(response.headers)) {
    if (!reserved.has(name.toLowerCase())) headers.push(name, value);
  }
  pushInvocationHeaders(headers, version, result, exchange.arrivalMs);
  try {
    exchange.send(status, headers, status === 204 || status === 304 ? [] : [body]);
  } catch (error) {
    // Node refuses header names and values with characters that HTTP does not allow.
    if (!(error instanceof TypeError)) throw toHostError(error);
    throw new HostError('handler-failed', `the handler of '${version.name}' answered with a header that HTTP forbids`, {
      cause: error,
    });
  }
}
