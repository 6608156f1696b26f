/** Routes that run functions: `infer` of the Open Inference Protocol, and plain function calls. */
import type { PoolInput } from '../../cpu/index.ts';
import { HostError } from '../errors.ts';
import type { FunctionVersion } from '../types.ts';
import { acceptsCalls, callLater, prefersAsync } from './async-routes.ts';
import { clientSignal } from './client-signal.ts';
import type { Exchange, HeaderList } from './exchange.ts';
import { answerCall, pushInvocationHeaders, specOf } from './function-call.ts';
import { admitted, versionAsked, type HostContext } from './host-context.ts';
import { plainHeaders, sloAsked } from './request-headers.ts';
import { decodeInfer, encodeInfer, headerLengthName, parseHeaderLength } from './oip.ts';

/** `POST /v2/models/{name}[/versions/{version}]/infer` */
export async function infer(context: HostContext, exchange: Exchange): Promise<void> {
  exchange.functionName = versionAsked(context, exchange).name;
  await admitted(context, async () => {
    const sloMs = sloAsked(exchange.header('x-turntable-slo'));
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
  // A preference is no demand: without a queue, or where it does not answer, the call is answered here and now.
  if (prefersAsync(exchange) && acceptsCalls(context)) {
    await callLater(context, exchange);
    return;
  }
  exchange.functionName = versionAsked(context, exchange).name;
  await admitted(context, async () => {
    const sloMs = sloAsked(exchange.header('x-turntable-slo'));
    const body = await context.bodies.read(exchange, context.config.limits.bodyBytesMax);
    const version = await readyVersion(context, exchange);
    const { method, url, arrivalMs } = exchange;
    const headers = plainHeaders(exchange);
    const signal = clientSignal(exchange.incoming.socket);
    const reply = await answerCall(context, version, { method, url, headers, body, arrivalMs, sloMs, signal });
    exchange.send(reply.status, reply.headers, reply.parts);
  });
}

/** Looked up again after the body arrived: a publish or removal may have happened meanwhile. */
function readyVersion(context: HostContext, exchange: Exchange): FunctionVersion | Promise<FunctionVersion> {
  const version = versionAsked(context, exchange);
  if (version.state.status === 'ready') return version;
  return context.invoker.ready(version, clientSignal(exchange.incoming.socket));
}
