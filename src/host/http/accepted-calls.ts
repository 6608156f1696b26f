/** Runs asynchronous calls that were accepted, whether by this host or by another one with the same queue. */
import {
  CallAgain,
  clientId,
  errorReply,
  type AcceptedCall,
  type CallReply,
  type CallRunner,
} from '../../queue/index.ts';
import { bytesToKeep } from '../../tensor/index.ts';
import { HostError, toHostError, type ErrorCode } from '../errors.ts';
import { answerCall } from './call-routes.ts';
import { sloAsked } from './exchange.ts';
import type { HostContext } from './host-context.ts';

/** Lower than any function's priority: no client waits for these. */
const lowestPriority = 2 ** 31;
/** Errors that say nothing about the call, so that a later try may succeed. */
const passing: ReadonlySet<ErrorCode> = new Set([
  'queue-full',
  'not-ready',
  'draining',
  'too-many-requests',
  'machine-short',
  'client-gone',
  'queue-unavailable',
]);

/** Runs accepted calls as {@link answerCall} runs synchronous ones; failures are replies too. */
export function callRunner(context: HostContext): CallRunner {
  return async (call, signal) => {
    try {
      return await runCall(context, call, signal);
    } catch (error) {
      const failure = toHostError(error);
      if (failure.code === 'internal') {
        context.logger.error(
          { err: error, callId: clientId(call.id), function: call.functionName },
          'an asynchronous call failed',
        );
      }
      // What a client who waited would have got.
      const reply = errorReply(failure.status, failure.code, failure.message);
      if (passing.has(failure.code)) throw new CallAgain(failure.message, reply);
      return reply;
    }
  };
}

async function runCall(context: HostContext, call: AcceptedCall, signal: AbortSignal): Promise<CallReply> {
  const { functionName, version: number, method, url, headers, body } = call;
  // Chosen now, not when the call was accepted: a version that was taken out meanwhile gets none of the waiting calls.
  const asked =
    number === undefined
      ? context.store.choose(functionName, (name) => (Object.hasOwn(headers, name) ? headers[name] : undefined))
      : context.store.find(functionName, number);
  if (asked === undefined) {
    // A host that is starting has not read its functions yet.
    if (context.lifecycle.phase !== 'ready') throw new HostError('not-ready', 'the host is starting');
    throw new HostError('unknown-function', `there is no function '${functionName}' any more`);
  }
  const version = await context.invoker.ready(asked, signal);
  const reply = await answerCall(context, version, {
    method,
    url,
    headers,
    body: Buffer.from(body.buffer, body.byteOffset, body.byteLength),
    arrivalMs: performance.now(),
    sloMs: sloAsked(headers['x-turntable-slo']),
    signal,
    priority: lowestPriority,
  });
  const pairs: [string, string][] = [];
  for (let at = 0; at + 1 < reply.headers.length; at += 2) {
    pairs.push([String(reply.headers[at]), String(reply.headers[at + 1])]);
  }
  const parts = reply.parts.map((part) => (typeof part === 'string' ? Buffer.from(part) : bytesToKeep(part)));
  return { status: reply.status, headers: pairs, body: Buffer.concat(parts) };
}
