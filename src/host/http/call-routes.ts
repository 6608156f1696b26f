/** Routes that run functions: `infer` of the Open Inference Protocol, and plain function calls. */
import { HostError } from '../errors.ts';
import type { FunctionVersion } from '../types.ts';
import { acceptsCalls, callLater } from './async-routes.ts';
import { type Exchange, clientSignal, plainHeaders, sloAsked } from './exchange.ts';
import { answerCall, answerInfer, type ArrivedCall, type FunctionReply } from './function-call.ts';
import { admit, beginCall, pathParam, versionCalled, type HostContext } from './host-context.ts';
import { headerLengthName, parseHeaderLength } from '../infer/oip.ts';

/** `POST /v2/models/{name}[/versions/{version}]/infer` */
export function infer(context: HostContext, exchange: Exchange): Promise<void> {
  return answer(context, exchange, (version, arrived) => {
    const headerLength = parseHeaderLength(exchange.incoming.headers[headerLengthName]);
    return answerInfer(context, version, arrived, headerLength, (bytes) => exchange.held.grow(bytes));
  });
}

/** `GET` and `HEAD`: only a handler can use a call without a body. */
export async function callWithoutBody(context: HostContext, exchange: Exchange): Promise<void> {
  await context.store.learn(pathParam(exchange, 'name'), exchange.param('version'));
  const { name, handlerPath } = beginCall(context, exchange, versionCalled(context, exchange));
  if (handlerPath === undefined) {
    throw new HostError('method-not-allowed', `function '${name}' has no handler, so that it is called with POST`);
  }
  await call(context, exchange);
}

/** `POST /function/{name}[/versions/{version}]` */
export async function call(context: HostContext, exchange: Exchange): Promise<void> {
  const { method, url } = exchange;
  await answer(context, exchange, (version, arrived) =>
    answerCall(context, version, { ...arrived, method, url, headers: plainHeaders(exchange) }),
  );
}

type Run = (version: FunctionVersion, arrived: ArrivedCall) => Promise<FunctionReply>;

function answer(context: HostContext, exchange: Exchange, run: Run): Promise<void> {
  // Only another host of a fleet can have published what this one does not know.
  const learning = context.fleet && context.store.learn(pathParam(exchange, 'name'), exchange.param('version'));
  if (learning === undefined) return answerKnown(context, exchange, run);
  return learning.then(() => answerKnown(context, exchange, run));
}

async function answerKnown(context: HostContext, exchange: Exchange, run: Run): Promise<void> {
  // A preference is not binding: without a queue, or if it does not answer, the call is answered here and now.
  if (exchange.prefersAsync && acceptsCalls(context)) {
    await callLater(context, exchange);
    return;
  }
  const { name } = beginCall(context, exchange, versionCalled(context, exchange));
  admit(context, name);
  try {
    const sloMs = sloAsked(exchange.header('x-turntable-slo'));
    const body = await context.bodies.read(exchange, context.config.limits.bodyBytesMax);
    const ready = readyVersion(context, exchange);
    // For a ready version an extra microtask turn would add one more to the many on this path.
    const version = ready instanceof Promise ? await ready : ready;
    const signal = clientSignal(exchange.incoming.socket);
    const reply = await run(version, {
      body,
      arrivalMs: exchange.arrivalMs,
      sloMs,
      signal,
      traced: exchange.traceparent !== undefined,
    });
    if (reply.isText) exchange.sendText(reply.status, reply.headers, reply.parts);
    else exchange.send(reply.status, reply.headers, reply.parts);
  } finally {
    context.statistics.end(name);
  }
}

/** Looked up again after the body arrived: a publish or removal may have happened meanwhile. */
function readyVersion(context: HostContext, exchange: Exchange): FunctionVersion | Promise<FunctionVersion> {
  const version = versionCalled(context, exchange);
  if (version.state.status === 'ready') return version;
  return context.invoker.ready(version, clientSignal(exchange.incoming.socket));
}
