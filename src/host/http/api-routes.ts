/** `/api`: the dashboard's data, for everybody. Reading it needs no key, like `/metrics`, and is never a use. */
import { missingUnit, parseDurationMs } from '../../tools/index.ts';
import {
  anatomyAnswer,
  anatomyChoices,
  errorsAnswer,
  functionAnswer,
  functionsAnswer,
  eventAnswer,
  historyAnswer,
  machineAnswer,
  memoryAnswer,
  recordedAnatomy,
  recordedColdStarts,
  troubleAnswer,
  troubleOf,
  type FunctionAnswer,
} from '../dashboard/index.ts';
import { HostError } from '../errors.ts';
import type { Exchange } from './exchange.ts';
import { versionAsked, wholeAsked, type HostContext } from './host-context.ts';
import { baseUrlOf } from './base-url.ts';

const rangeMsMin = 60_000;
const rangeMsMax = 86_400_000;

/** `GET /api/history?range=15m[&function=name]` */
export function history(context: HostContext, exchange: Exchange): object {
  const rangeMs = rangeAsked(exchange);
  const name = exchange.query().get('function') ?? undefined;
  if (name !== undefined && context.store.find(name) === undefined) {
    throw new HostError('unknown-function', `there is no function '${name.slice(0, 80)}'`);
  }
  return historyAnswer(context.views, rangeMs, Date.now(), name);
}

/** `GET /api/functions?range=15m` */
export async function apiFunctions(context: HostContext, exchange: Exchange): Promise<void> {
  await context.views.gpus?.refresh();
  const rangeMs = rangeAsked(exchange);
  await exchange.list(async () => await functionsAnswer(context.views, rangeMs, Date.now()));
}

/** `GET /api/functions/{name}?range=1h` */
export async function apiFunction(context: HostContext, exchange: Exchange): Promise<object> {
  await context.views.gpus?.refresh();
  const version = versionAsked(context, exchange);
  const rangeMs = rangeAsked(exchange);
  const nowMs = Date.now();
  return {
    ...functionAnswer(context.views, version, rangeMs, nowMs, baseUrlOf(exchange)),
    trouble: troubleOf(context.views, version, rangeMs, nowMs),
  } satisfies FunctionAnswer;
}

/** `GET /api/trouble?range=15m` */
export const trouble = async (context: HostContext, exchange: Exchange): Promise<object> =>
  await troubleAnswer(context.views, rangeAsked(exchange), Date.now());

/** `GET /api/errors?range=15m` */
export const errors = (context: HostContext, exchange: Exchange): object =>
  errorsAnswer(context.views, rangeAsked(exchange), Date.now());

/** `GET /api/memory` */
export async function memory(context: HostContext, exchange: Exchange): Promise<void> {
  await context.views.gpus?.refresh();
  await exchange.list(async () => await memoryAnswer(context.views));
}

/** `GET /api/machine`: cores, GPUs, queues and workers, now and over the last hour. */
export async function machine(context: HostContext): Promise<object> {
  await context.views.gpus?.refresh();
  return machineAnswer(context.views, Date.now());
}

/** `GET /api/scheduler`: what the scheduler has to go by, and what is where. */
export const scheduler = (context: HostContext): object => context.scheduler.whole();

/** `GET /api/scheduler/{name}`: one function, with its offer sheet. */
export const schedulerSheet = (context: HostContext, exchange: Exchange): object =>
  context.scheduler.sheet(versionAsked(context, exchange));

/** `GET /api/event-log`: the newest last. */
export const eventLog = (context: HostContext): object => ({
  events: context.views.history.eventLog.all().map(eventAnswer),
});

/** `GET /api/anatomy?model=bert-base&machine=p3.8xlarge[&gpu=0]`: a cold start by layers, in every mode; simulated. */
export async function anatomy(_context: HostContext, exchange: Exchange): Promise<object> {
  const query = exchange.query();
  const model = query.get('model');
  if (model === null) return await anatomyChoices();
  return await anatomyAnswer(model, query.get('machine') ?? 'p3.8xlarge', wholeAsked(exchange, 'gpu', 0));
}

/** `GET /api/anatomy/recorded`: cold starts of this host's own GPUs. */
export const recorded = (context: HostContext): object => recordedColdStarts(context.views);

/** `GET /api/anatomy/recorded/{id}` */
export function recordedOne(context: HostContext, exchange: Exchange): object {
  const id = exchange.pathParam('id');
  const anatomy = recordedAnatomy(context.views, Number(id));
  if (anatomy === undefined) {
    throw new HostError('unknown-path', `cold start '${id.slice(0, 20)}' is not among those that are kept`);
  }
  return anatomy;
}

/** `GET /api/events`: current events, as server-sent events. */
export function events(context: HostContext, exchange: Exchange): void {
  if (exchange.method === 'HEAD') {
    exchange.send(200, ['Content-Type', 'text/event-stream'], []);
    return;
  }
  if (context.lifecycle.phase === 'draining') throw new HostError('draining', 'the host is shutting down');
  context.events.add(exchange);
}

function rangeAsked(exchange: Exchange): number {
  const asked = exchange.query().get('range') ?? '15m';
  const rangeMs = parseDurationMs(asked);
  if (rangeMs === undefined || rangeMs < rangeMsMin || rangeMs > rangeMsMax) {
    throw new HostError(
      'bad-request',
      `range '${asked.slice(0, 40)}' is not a duration from 1m to 24h${missingUnit(asked) === undefined ? '' : `; ${missingUnit(asked)}`}`,
    );
  }
  return rangeMs;
}
