/** Metrics of overflow, workers and asynchronous calls. Absent if the host has no Redis. */
import type { Exposition } from './exposition.ts';
import type { Queueing } from '../queueing/index.ts';

export function addQueueMetrics({ counter, gauge }: Exposition, { overflow, workers, calls, link }: Queueing): void {
  gauge('turntable_redis_evicted_keys', 'Keys that Redis has evicted since its start', (set) => {
    const keys = link.facts?.evictedKeys;
    if (keys !== undefined) set({}, keys);
  });
  counter('turntable_worker_answers_total', 'Answers of each worker, failures included', (add) => {
    for (const [worker, count] of Object.entries(overflow.state().answered)) add({ worker }, count);
  });
  counter(
    'turntable_overflow_moved_total',
    'Invocations that went to another worker, the first being gone',
    () => overflow.state().movedElsewhere,
  );
  counter(
    'turntable_overflow_came_back_total',
    'Invocations that ran here after a worker or Redis failed',
    () => workers.cameBack,
  );
  counter(
    'turntable_overflow_taken_back_total',
    'Invocations that ran here in time because a worker had not answered',
    () => overflow.state().takenBack,
  );
  counter(
    'turntable_overflow_double_runs_total',
    'Of those taken back, invocations that a worker had begun',
    () => overflow.state().doubleRuns,
  );
  counter(
    'turntable_overflow_late_answers_total',
    'Answers that came after another and were dropped',
    () => overflow.state().lateAnswers,
  );
  gauge('turntable_overflow_outstanding', 'Invocations that are with workers', () => overflow.state().outstanding);
  gauge('turntable_worker_cores', 'Cores of each worker that is there', (set) => {
    for (const { title, cores } of overflow.workers()) set({ worker: title }, cores);
  });
  gauge('turntable_worker_backlog_seconds', 'Work that each worker has, in seconds', (set) => {
    for (const { title, backlogMs } of overflow.workers()) set({ worker: title }, backlogMs / 1000);
  });
  counter('turntable_async_calls_total', 'Asynchronous calls by what became of them', (add) => {
    const { accepted, finished, cancelled, dropped } = calls.counts;
    for (const [outcome, count] of Object.entries({ accepted, finished, cancelled, dropped })) add({ outcome }, count);
  });
  counter('turntable_callbacks_total', 'Callbacks by what became of them', (add) => {
    add({ outcome: 'delivered' }, calls.counts.callbacksDelivered);
    add({ outcome: 'given-up' }, calls.counts.callbacksGivenUp);
  });
}
