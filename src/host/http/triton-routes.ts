/** Triton's extensions about the server itself: its log, its traces, memory shared by client and server. */
import { HostError } from '../errors.ts';
import { parseJsonObject } from '../infer/json-body.ts';
import type { Exchange } from './exchange.ts';
import { versionAsked, type HostContext } from './host-context.ts';

const bodyBytesMax = 64 * 1024;

/** `GET /v2/logging` */
export const logSettings = ({ logging }: HostContext): object => logging.settings();

/** `POST /v2/logging`: what the body names changes at once, until the host ends. */
export async function changeLogSettings(context: HostContext, exchange: Exchange): Promise<object> {
  const body = await context.bodies.read(exchange, bodyBytesMax);
  context.logging.change(parseJsonObject(body, 'the body'));
  return context.logging.settings();
}

/** This host keeps no traces: clients send a `traceparent`, which appears in the log and in the reply. */
const traceOff = {
  trace_level: ['OFF'],
  trace_rate: '1000',
  trace_count: '-1',
  log_frequency: '0',
  trace_file: '',
  trace_mode: 'triton',
};

/** `GET /v2/trace/setting`, and of one model. */
export function traceSettings(context: HostContext, exchange: Exchange): object {
  if (exchange.param('name') !== undefined) versionAsked(context, exchange);
  return traceOff;
}

/** `POST` of the same: only what is so already. */
export async function changeTraceSettings(context: HostContext, exchange: Exchange): Promise<object> {
  if (exchange.param('name') !== undefined) versionAsked(context, exchange);
  const body = parseJsonObject(await context.bodies.read(exchange, bodyBytesMax), 'the body');
  refuseTraceChange(body['trace_level']);
  return traceOff;
}

/** @throws HostError 'bad-request' unless the requested level, one or a list, is OFF or empty */
function refuseTraceChange(level: unknown): void {
  const levels: unknown[] = Array.isArray(level) ? level : level === undefined ? [] : [level];
  if (levels.every((each) => each === 'OFF')) return;
  throw new HostError(
    'bad-request',
    "'trace_level' can only be OFF: this host records no traces; send a traceparent header and read the log",
  );
}

/** `GET /v2/systemsharedmemory/status` and the like: there are no regions. */
export const sharedMemoryStatus = (): object => [];

/** Giving regions up, of which there are none: Triton's clients do so before they begin. */
export const forgetSharedMemory = (): object => ({});

/** @throws HostError 'bad-request', always */
export function registerSharedMemory(_context: HostContext, exchange: Exchange): never {
  const region = exchange.param('region') ?? '';
  throw new HostError(
    'bad-request',
    `this host does not offer shared memory (region '${region.slice(0, 80)}'); send tensors in the request, as ` +
      'binary data',
  );
}
