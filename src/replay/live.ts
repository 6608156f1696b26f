/**
 * Live replay: sends a trace's requests to a running host. Open loop: a request is sent when it is due, whether or not
 * earlier ones have been answered, and its latency counts from when it was due. So a host that falls behind cannot slow
 * down the load that measures it.
 */
import type { Given, FunctionId } from '../schedule/index.ts';
import { Agent, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { Sketch } from './tally/sketch.ts';
import type { LiveRequest } from './live-inputs.ts';
import type { Outcome, OutcomePlacement, ReplayObserver, Trace } from './types.ts';

export interface LiveOptions {
  /** `http://127.0.0.1:8000`, without a path. */
  readonly url: string;
  readonly requestOf: (functionIndex: Given<FunctionId>) => LiveRequest;
  readonly sloMsOf: (functionIndex: Given<FunctionId>) => number;
  readonly observer: ReplayObserver;
  /** A request without an answer after this long has failed. */
  readonly timeoutMs?: number;
  /** 2: twice as fast as the trace. The observer gets instants of the replay. */
  readonly speed?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** Called for each invocation beside the observer, to show where its time went. */
  readonly onAnswer?: (answer: LiveAnswer) => void;
  readonly onProgress?: (sent: number, answered: number) => void;
  /** Stops the sending; requests under way are waited for. */
  readonly signal?: AbortSignal;
}

/** How one invocation went, from the client's view and the reply's headers. */
export interface LiveAnswer {
  readonly outcome: Outcome;
  /** When it was sent, milliseconds from the start of the replay. */
  readonly sentMs: number;
  /** The host's figures: waiting for weights, executing, and everything from the request's headers to the reply's. */
  readonly loadMs: number;
  readonly inferenceMs: number;
  readonly hostMs: number;
}

export interface LiveRun {
  readonly sent: number;
  /** How late requests were sent, milliseconds: large values mean a busy client, not a slow host. */
  readonly sendDelayMs: Sketch;
}

const timeoutMsDefault = 60_000;
/** How much of an error reply is read for its reason. */
const errorBytesMax = 4096;

/** Replays the trace. Resolves when every request has been answered or has failed. */
export async function runLive(trace: Trace, options: LiveOptions): Promise<LiveRun> {
  const { observer, sloMsOf, speed = 1, signal, onAnswer, onProgress } = options;
  const client = openClient(options);
  const sendDelayMs = new Sketch({ exactMax: 2 ** 14, precisionBits: 9 });
  let sent = 0;
  let answered = 0;
  let under = 0;
  let allDone: (() => void) | undefined;
  // A little ahead, so that preparing the first request does not make it late.
  const startMs = performance.now() + 20;
  for (const { arrivalMs: traceMs, functionIndex, sloMs: ownSloMs } of trace.invocations()) {
    const arrivalMs = traceMs / speed;
    const dueMs = startMs + arrivalMs;
    await until(dueMs, signal);
    if (signal?.aborted === true) break;
    const sequence = sent++;
    const sentMs = Math.max(arrivalMs, performance.now() - startMs);
    sendDelayMs.record(sentMs - arrivalMs);
    under++;
    client.send(functionIndex, ownSloMs, ({ placement, queueMs, inferenceMs, ...parts }) => {
      const endMs = performance.now() - startMs;
      const sloMs = ownSloMs ?? sloMsOf(functionIndex);
      const outcome: Outcome = { sequence, functionIndex, arrivalMs, endMs, queueMs, sloMs, placement };
      observer.outcome(outcome);
      onAnswer?.({ outcome, sentMs, inferenceMs, ...parts });
      if (placement.kind === 'gpu' && inferenceMs > 0) {
        observer.busy(placement.gpu, Math.max(0, endMs - inferenceMs), endMs);
      }
      answered++;
      under--;
      onProgress?.(sent, answered);
      if (under === 0) allDone?.();
    });
    onProgress?.(sent, answered);
  }
  if (under > 0) {
    await new Promise<void>((resolve) => {
      allDone = resolve;
    });
  }
  client.close();
  return { sent, sendDelayMs };
}

/** Timers are late by up to a millisecond or two: the last part of the wait polls in turns of the event loop. */
async function until(dueMs: number, signal: AbortSignal | undefined): Promise<void> {
  for (;;) {
    const waitMs = dueMs - performance.now();
    if (waitMs <= 0 || signal?.aborted === true) return;
    if (waitMs > 2) await sleep(waitMs - 1.5, undefined, signal === undefined ? {} : { signal }).catch(() => undefined);
    else await turn();
  }
}

/** Milliseconds are 0 if the host did not report them. */
interface LiveReply extends Pick<LiveAnswer, 'loadMs' | 'inferenceMs' | 'hostMs'> {
  readonly placement: OutcomePlacement;
  readonly queueMs: number;
}

const unanswered = { queueMs: 0, loadMs: 0, inferenceMs: 0, hostMs: 0 } as const;

interface LiveClient {
  /** `sloMs`: its own SLO; the host schedules and counts goodput by the same. */
  readonly send: (
    functionIndex: Given<FunctionId>,
    sloMs: number | undefined,
    done: (reply: LiveReply) => void,
  ) => void;
  readonly close: () => void;
}

function openClient({ url, requestOf, headers: common, timeoutMs = timeoutMsDefault }: LiveOptions): LiveClient {
  const { protocol, hostname, port, pathname } = new URL(url);
  const isTls = protocol === 'https:';
  const agent = new (isTls ? HttpsAgent : Agent)({ keepAlive: true, maxSockets: Infinity, maxFreeSockets: 4096 });
  const send: LiveClient['send'] = (functionIndex, sloMs, done) => {
    const { path, headers, body } = requestOf(functionIndex);
    let over = false;
    const finish = (reply: LiveReply): void => {
      if (over) return;
      over = true;
      clearTimeout(timer);
      done(reply);
    };
    const fail = (reason: string): void => finish({ placement: { kind: 'failed', reason }, ...unanswered });
    const outgoing: ClientRequest = (isTls ? httpsRequest : httpRequest)(
      {
        protocol,
        // WHATWG writes IPv6 addresses in brackets, which sockets do not take.
        hostname: hostname.replace(/^\[|\]$/g, ''),
        port,
        path: pathname.replace(/\/$/, '') + path,
        method: 'POST',
        agent,
        headers: {
          ...common,
          ...headers,
          ...(sloMs === undefined ? undefined : { 'x-turntable-slo': `${sloMs}ms` }),
          'content-length': body.byteLength,
        },
      },
      (reply) => readReply(reply, finish, fail),
    );
    const timer = setTimeout(() => {
      fail(`no answer within ${timeoutMs / 1000} s`);
      outgoing.destroy();
    }, timeoutMs);
    outgoing.on('error', (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
    outgoing.end(body);
  };
  return { send, close: () => agent.destroy() };
}

function readReply(reply: IncomingMessage, finish: (reply: LiveReply) => void, fail: (reason: string) => void): void {
  const status = reply.statusCode ?? 0;
  let errorText = '';
  reply.on('data', (chunk: Buffer) => {
    if (status !== 200 && errorText.length < errorBytesMax) errorText += chunk.toString('utf8');
  });
  reply.on('error', (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
  reply.on('aborted', () => fail('the connection ended in the middle of the answer'));
  reply.on('end', () => {
    const { headers } = reply;
    if (status === 200) {
      const placed = headerText(headers['x-turntable-placement']);
      finish({
        placement: placementOf(placed, headerText(headers['x-model-cold-start'])),
        queueMs: headerNumber(headers['x-queue-time']),
        loadMs: 1000 * headerNumber(headers['x-model-load-time']),
        inferenceMs: headerNumber(headers['x-inference-time']),
        hostMs: headerNumber(headers['x-total-time']),
      });
    } else if (status === 429 || status === 503 || status === 504) {
      finish({ placement: { kind: 'shed' }, ...unanswered });
    } else {
      fail(`HTTP ${status}${reasonOf(errorText)}`);
    }
  });
}

/**
 * Parses `X-Turntable-Placement`: "gpu0 warm", "gpu1 cold pt+dha", "gpu2 partial ...", "gpu0 from disk ...", "cpu pool warm". A missing
 * header counts as a CPU pool.
 */
export function placementOf(text: string, coldStart: string): OutcomePlacement {
  const [, gpu, start] = /^gpu(\d+) (warm|partial|cold|from disk)\b/.exec(text) ?? [];
  if (gpu !== undefined) {
    const residency = start === 'from disk' ? 'disk' : (start as 'warm' | 'partial' | 'cold');
    return { kind: 'gpu', gpu: Number(gpu), residency };
  }
  return { kind: 'cpu', coldStart: coldStart === 'true' || / cold\b/.test(text) };
}

function reasonOf(text: string): string {
  try {
    const { error } = JSON.parse(text) as { error?: unknown };
    if (typeof error === 'string') return `: ${error.slice(0, 200)}`;
  } catch {
    // Not JSON: only the status is known.
  }
  return '';
}

function headerText(value: string | string[] | undefined): string {
  return typeof value === 'string' ? value : (value?.[0] ?? '');
}

function headerNumber(value: string | string[] | undefined): number {
  const number = Number(headerText(value));
  return Number.isFinite(number) && number >= 0 ? number : 0;
}
