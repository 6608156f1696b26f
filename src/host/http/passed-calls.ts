/** Requests of other members of the fleet: calls that they pass to this host, and drains that they were asked for. */
import type { Asked, Serve } from '../../fleet/index.ts';
import type { Message } from '../../tensor/index.ts';
import { admitted } from '../access/access.ts';
import { HostError, toHostError } from '../errors.ts';
import { answerFrame, callIn, failureFrame, isHere, type PassedCall } from '../fleet-member/index.ts';
import type { Ran } from '../calls/placement.ts';
import { logFailure } from '../replied.ts';
import { versionNamed, type HostContext } from './host-context.ts';

/** How much a body of `[0,0,...]` grows as 8-byte elements. */
const widened = 4;

/** Runs a call that another host passes on: here or not at all. @throws HostError */
async function run(context: HostContext, call: PassedCall, arrivalMs: number, signal: AbortSignal): Promise<Ran> {
  const version = versionNamed(context, call.name, call.version);
  return await admitted(context, version.name, async () => {
    if (!isHere(call, version)) {
      throw new HostError('not-ready', `this host does not have '${version.key}' as the one that asks`);
    }
    if (context.fleet?.routing !== undefined) context.fleet.routing.taken++;
    const { sloMs, leftMs, priority } = call.terms;
    const deadlineMs = leftMs === undefined ? undefined : arrivalMs + leftMs;
    const options = { arrivalMs, sloMs, deadlineMs, priority, signal, rows: 1 };
    return await context.invoker.runPassed(version, call.input, options);
  });
}

export function serveMembers(context: HostContext): Serve {
  return async (request, from, signal) => {
    try {
      const asked = request.header as Partial<Asked>;
      if (asked.ask === 'call') return await answerCall(context, request, signal);
      if (asked.ask === 'drain') await context.fleet?.fleet.drain(asked.draining === true);
      else if (asked.ask !== 'ping') throw new HostError('bad-request', 'the frame of another host asks for nothing');
      return { header: {}, tensors: [] };
    } catch (error) {
      const failure = toHostError(error);
      context.statistics.failed(failure);
      logFailure(context.logger, failure, { host: from }, 'a passed call failed');
      return failureFrame(failure);
    }
  };
}

async function answerCall(
  context: HostContext,
  message: Message<object>,
  signal: AbortSignal,
): Promise<Message<object>> {
  const { exchangeMeans, config } = context;
  const arrivalMs = performance.now();
  const bytes = message.tensors.reduce((sum, { data }) => sum + data.byteLength, 0);
  const bytesMax = widened * config.limits.bodyBytesMax;
  if (bytes > bytesMax) throw new HostError('body-too-large', `a call of ${bytes} bytes is over ${bytesMax}`);
  let release: (() => void) | undefined;
  try {
    exchangeMeans.inFlight.held((whenOver) => (release = whenOver)).grow(bytes);
    return answerFrame(await run(context, callIn(message), arrivalMs, signal));
  } finally {
    release?.();
  }
}
