/**
 * Routes that run functions: `infer` of the Open Inference Protocol, and plain function calls. Each call from its
 * version and its body to the reply.
 */
import { validateHeaderName, validateHeaderValue } from 'node:http';
import type { HandlerResponse } from '../../cpu/index.ts';
import { longWorkMs, runInSlices, SpentBuffers, type Tensor } from '../../tensor/index.ts';
import { checkRoom, takePlace } from '../access/access.ts';
import { HostError } from '../errors.ts';
import { pushInvocationHeaders, pushServerTiming, runInfer, type HeaderList } from '../calls/infer.ts';
import { bytesIn, encodeInfer, type InferReply, type ReplyPart } from '../infer/answer.ts';
import { specOf } from '../infer/model-spec.ts';
import { decodeInfer, headerLengthName, parseHeaderLength } from '../infer/oip.ts';
import { decodePlain, encodePlain } from '../infer/plain.ts';
import type { BeforeCall } from '../calls/open-calls.ts';
import type { Ran } from '../calls/placement.ts';
import type { HeaderOf } from '../rollout/traffic.ts';
import type { FunctionVersion } from '../types.ts';
import { sandboxHeaders } from './active-content.ts';
import { acceptsCalls, callLater } from './async-routes.ts';
import { clientSignal, plainHeaders, sloAsked, type Exchange } from './exchange.ts';
import { versionAsked, versionNamed, type HostContext } from './host-context.ts';

/** `POST /v2/models/{name}[/versions/{version}]/infer` */
export function infer(context: HostContext, exchange: Exchange): Promise<void> {
  return answer(context, exchange, (version, arrived) => {
    const headerLength = parseHeaderLength(exchange.incoming.headers[headerLengthName]);
    return answerInfer(context, version, arrived, headerLength);
  });
}

/** Methods besides `POST`: only a handler knows what they ask for. */
export async function callHandler(context: HostContext, exchange: Exchange): Promise<void> {
  await context.store.learn(exchange.pathParam('name'), exchange.param('version'));
  const { name, handlerPath } = exchange.begin(versionCalled(context, exchange), context.statistics);
  if (handlerPath === undefined) {
    throw new HostError('method-not-allowed', `function '${name}' has no handler, so that it is called with POST`);
  }
  await call(context, exchange);
}

/** `POST /function/{name}[/versions/{version}][/{path}]`: a handler sees the path, a plain model ignores it. */
export async function call(context: HostContext, exchange: Exchange): Promise<void> {
  const { method, url } = exchange;
  await answer(context, exchange, (version, arrived) =>
    answerCall(context, version, { ...arrived, method, url, headers: plainHeaders(exchange) }),
  );
}

type Run = (version: FunctionVersion, arrived: ArrivedCall) => Promise<FunctionReply>;

function answer(context: HostContext, exchange: Exchange, run: Run): Promise<void> {
  const learning = context.store.learn(exchange.pathParam('name'), exchange.param('version'));
  if (learning === undefined) return answerKnown(context, exchange, run);
  return learning.then(() => answerKnown(context, exchange, run));
}

async function answerKnown(context: HostContext, exchange: Exchange, run: Run): Promise<void> {
  // A preference is not binding: without a queue, or if it does not answer, the call is answered here and now.
  if (exchange.prefersAsync && acceptsCalls(context)) {
    await callLater(context, exchange);
    return;
  }
  const { name } = exchange.begin(versionCalled(context, exchange), context.statistics);
  checkRoom(context, name);
  const sloMs = sloAsked(exchange.header('x-turntable-slo'));
  const { arrivalMs } = exchange;
  const before: BeforeCall = {};
  let hasPlace = false;
  const beganMs = performance.now();
  try {
    const body = await context.bodies.read(exchange, context.config.limits.bodyBytesMax);
    const receivedMs = performance.now();
    before.receiveMs = receivedMs - beganMs;
    takePlace(context, name);
    hasPlace = true;
    const ready = readyVersion(context, exchange);
    // For a ready version an extra microtask turn would add one more to the many on this path.
    const version = ready instanceof Promise ? await ready : ready;
    before.readyMs = ready instanceof Promise ? performance.now() - receivedMs : 0;
    const arrived = {
      before,
      body,
      arrivalMs,
      sloMs,
      signal: clientSignal(exchange.incoming.socket),
      traced: exchange.traceparent !== undefined,
      memory: exchange,
    };
    const reply = await unlessRemoved(
      version,
      () => readyVersion(context, exchange),
      (serving) => run(serving, arrived),
    );
    if (reply.spent?.isEmpty === false) exchange.freeOnceSent(reply.spent);
    if (reply.isText) exchange.sendText(reply.status, reply.headers, reply.parts);
    else exchange.send(reply.status, reply.headers, reply.parts);
  } catch (error) {
    before.receiveMs ??= performance.now() - beganMs;
    throw context.invoker.failedAround(exchange.called!, { arrivalMs, sloMs, before }, error);
  } finally {
    if (hasPlace) context.statistics.end(name);
  }
}

/** More removals than this do not overtake one call, unless somebody publishes and removes without end. */
const removalsMax = 3;

/**
 * Runs a call. If the version was removed before a place had begun to run it, the call runs on the one that serves by
 * then; without one it fails with what `run` said.
 *
 * @param choose the version that serves now
 */
export async function unlessRemoved<Reply>(
  chosen: FunctionVersion,
  choose: () => FunctionVersion | Promise<FunctionVersion>,
  run: (version: FunctionVersion) => Promise<Reply>,
): Promise<Reply> {
  let version = chosen;
  for (let removals = 0; ; removals++) {
    try {
      return await run(version);
    } catch (error) {
      const isRemoved = error instanceof HostError && error.code === 'unknown-version' && removals < removalsMax;
      const next = isRemoved ? await servingNow(choose) : undefined;
      if (next === undefined || next === version) throw error;
      version = next;
    }
  }
}

async function servingNow(
  choose: () => FunctionVersion | Promise<FunctionVersion>,
): Promise<FunctionVersion | undefined> {
  try {
    return await choose();
  } catch {
    return undefined;
  }
}

/** Looked up again after the body arrived: a publish or removal may have happened meanwhile. */
function readyVersion(context: HostContext, exchange: Exchange): FunctionVersion | Promise<FunctionVersion> {
  const version = versionCalled(context, exchange);
  if (version.state.status === 'ready') return version;
  return context.invoker.ready(version, clientSignal(exchange.incoming.socket));
}

/**
 * The version for a call: the one in the path, else one by the function's traffic, chosen once per exchange. Looked up
 * again when the body has arrived: if the version is gone by then, another gets the call.
 *
 * @throws as {@link versionAsked}
 */
function versionCalled(context: HostContext, exchange: Exchange): FunctionVersion {
  if (exchange.param('version') !== undefined) return versionAsked(context, exchange);
  const name = exchange.pathParam('name');
  const { called } = exchange;
  const again = called === undefined ? undefined : context.store.find(name, called.version);
  const { headers } = exchange.incoming;
  // Every object has members that no client sent, such as `constructor`.
  const headerOf: HeaderOf = (header) => (Object.hasOwn(headers, header) ? exchange.header(header) : undefined);
  return again ?? versionChosen(context, name, headerOf);
}

/** {@link versionCalled} without a version in the path, for a name from any source. */
export function versionChosen(
  context: Pick<HostContext, 'store' | 'lifecycle'>,
  name: string,
  headerOf: HeaderOf,
): FunctionVersion {
  return context.store.choose(name, headerOf) ?? versionNamed(context, name, undefined);
}

/** A call whose body has arrived. */
interface ArrivedCall {
  readonly body: Buffer;
  /** Instant (performance.now()) from which its latency counts. */
  readonly arrivalMs: number;
  readonly sloMs: number | undefined;
  readonly signal: AbortSignal;
  readonly before?: BeforeCall;
  /** The client sent a `traceparent`, and gets the timings. */
  readonly traced?: boolean;
  /** 1 is the highest; undefined: the function's. */
  readonly priority?: number;
  /** Counts the memory that it takes beside the body. */
  readonly memory?: Pick<Exchange, 'growRequest' | 'growReply'>;
}

interface FunctionCall extends ArrivedCall {
  readonly method: string;
  /** Path and query as sent. */
  readonly url: string;
  /** Lower-case names; no Content-Encoding, since the body is decompressed. */
  readonly headers: Readonly<Record<string, string>>;
}

interface FunctionReply {
  readonly status: number;
  readonly headers: HeaderList;
  readonly parts: readonly ReplyPart[];
  /** Whether it is the host's own JSON, which may be compressed; a handler's reply is sent unchanged. */
  readonly isText: boolean;
  /** Freed once it is sent. */
  readonly spent?: SpentBuffers;
}

/**
 * Runs an `infer` of the Open Inference Protocol.
 *
 * @param headerLength from {@link parseHeaderLength}
 * @throws HostError, or TensorError naming the input
 */
async function answerInfer(
  context: HostContext,
  version: FunctionVersion,
  arrived: ArrivedCall,
  headerLength: number | undefined,
): Promise<FunctionReply> {
  const beforeMs = longWorkMs();
  const { memory } = arrived;
  const decoded = runInSlices(decodeInfer(arrived.body, headerLength, specOf(version), memory?.growRequest));
  // A promise for what is small would cost more than decoding it.
  const call = decoded instanceof Promise ? await decoded : decoded;
  const { priority, arrivalMs, sloMs, signal, before } = arrived;
  if (before !== undefined) before.decodeMs = longWorkMs() - beforeMs;
  const options = { arrivalMs, sloMs, signal, before };
  const asked = priority === undefined ? call : { ...call, priority };
  const { ran, outputs } = await runInfer(context.invoker, version, asked, options);
  memory?.growReply(bytesIn(outputs));
  const { replyBytesMax } = context.config.limits;
  const encoding = runInSlices(encodeInfer(version, call, outputs, replyBytesMax, memory?.growReply));
  const encoded = encoding instanceof Promise ? await encoding : encoding;
  return invocationReply(version, ran, encoded, arrived, call.tensors);
}

/** @param inputs that were decoded from its body */
function invocationReply(
  version: FunctionVersion,
  ran: Ran,
  { headerLength, parts }: Pick<InferReply, 'headerLength'> & Pick<FunctionReply, 'parts'>,
  { body, arrivalMs, traced }: ArrivedCall,
  inputs: readonly Tensor[],
): FunctionReply {
  const isText = headerLength === undefined;
  const headers: HeaderList = isText
    ? ['Content-Type', 'application/json']
    : ['Content-Type', 'application/octet-stream', 'Inference-Header-Content-Length', String(headerLength)];
  pushInvocationHeaders(headers, version, ran, arrivalMs);
  if (traced === true) pushServerTiming(headers, ran, arrivalMs);
  const spent = spentBy(ran, body, inputs);
  if (isText) for (const part of parts) if (part instanceof Uint8Array) spent.addOwn(part);
  return { status: 200, headers, parts, isText, spent };
}

function spentBy({ result: { output }, inputsAreSpent }: Ran, body: Buffer, inputs: readonly Tensor[]): SpentBuffers {
  const spent = new SpentBuffers();
  if (inputsAreSpent === true) spent.addOwn(body, ...inputs.map(({ data }) => data));
  if (output.kind === 'tensors') spent.addTensors(output.tensors);
  else spent.addWhole([output.response.body]);
  return spent;
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
  const { method, url, headers, body, arrivalMs, sloMs, signal, priority, before, traced, memory } = call;
  if (url.startsWith('/v2/'))
    return await answerInfer(context, version, call, parseHeaderLength(headers[headerLengthName]));
  const options = { arrivalMs, sloMs, signal, priority, before };
  if (version.handlerPath !== undefined) {
    const request = { method, url, headers, body };
    const ran = await context.invoker.invoke(version, { kind: 'request', request }, { ...options, rows: 1 });
    const { output } = ran.result;
    if (output.kind !== 'response') throw new HostError('internal', 'the pool answered a request with tensors');
    memory?.growReply(output.response.body.byteLength);
    const replied = handledReply(version, ran, output.response, arrivalMs);
    if (traced === true) pushServerTiming(replied.headers, ran, arrivalMs);
    return { ...replied, spent: spentBy(ran, body, []) };
  }
  const beforeMs = longWorkMs();
  const { tensors, form, rows } = await runInSlices(decodePlain(body, specOf(version), memory?.growRequest));
  if (before !== undefined) before.decodeMs = longWorkMs() - beforeMs;
  const timed = { arrivalMs, sloMs, signal, before };
  const inferred = { tensors, outputs: undefined, timeoutMs: undefined, priority, rows, classes: undefined };
  const { ran, outputs } = await runInfer(context.invoker, version, inferred, timed);
  memory?.growReply(bytesIn(outputs));
  const { replyBytesMax } = context.config.limits;
  const parts = await runInSlices(encodePlain(form, outputs, replyBytesMax, memory?.growReply));
  return invocationReply(version, ran, { headerLength: undefined, parts }, call, tensors);
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

function handledReply(version: FunctionVersion, ran: Ran, response: HandlerResponse, arrivalMs: number): FunctionReply {
  const { status, body } = response;
  if (!Number.isInteger(status) || status < 200 || status > 599) {
    throw new HostError('handler-failed', `the handler of '${version.name}' answered with the status ${status}`);
  }
  const headers: HeaderList = [];
  let contentType: string | undefined;
  for (const [name, value] of Object.entries(response.headers)) {
    if (reserved.has(name.toLowerCase())) continue;
    checkHeader(version, name, value);
    if (name.toLowerCase() === 'content-type') contentType = value;
    headers.push(name, value);
  }
  headers.push(...sandboxHeaders(contentType));
  pushInvocationHeaders(headers, version, ran, arrivalMs);
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
