/** Metrics of overflow, workers and asynchronous calls. Absent where the host has no Redis: there is nothing to count. */
import type { Placer, Queueing } from './queueing/index.ts';
import type { Statistics } from './statistics.ts';

type AddSample = (labels: Record<string, string | number>, value: number) => void;
type Register = (name: string, help: string, labelNames: string[], read: (add: AddSample) => void) => void;

export interface QueueMetricsOptions {
  readonly counter: Register;
  readonly gauge: Register;
  readonly queueing: Queueing;
  readonly placer: Placer | undefined;
  readonly statistics: Statistics;
}

export function addQueueMetrics({ counter, gauge, queueing, placer, statistics }: QueueMetricsOptions): void {
  const { overflow, calls, health } = queueing;
  gauge('turntable_redis_up', 'Whether Redis answers', [], (set) => set({}, health()?.status === 'up' ? 1 : 0));
  counter('turntable_overflow_total', 'Invocations that workers answered', ['function'], (add) => {
    const sums = new Map<string, number>();
    for (const { name, overflowed } of statistics.versions()) sums.set(name, (sums.get(name) ?? 0) + overflowed);
    for (const [name, sum] of sums) add({ function: name }, sum);
  });
  counter('turntable_worker_answers_total', 'Answers of each worker, failures included', ['worker'], (add) => {
    for (const [worker, count] of Object.entries(overflow.state().answered)) add({ worker }, count);
  });
  counter(
    'turntable_overflow_moved_total',
    'Invocations that went to another worker, the first being gone',
    [],
    (add) => add({}, overflow.state().movedElsewhere),
  );
  counter('turntable_overflow_came_back_total', 'Invocations that ran here after a worker or Redis failed', [], (add) =>
    add({}, placer?.cameBack ?? 0),
  );
  counter('turntable_overflow_late_answers_total', 'Answers that came after another and were dropped', [], (add) =>
    add({}, overflow.state().lateAnswers),
  );
  gauge('turntable_overflow_outstanding', 'Invocations that are with workers', [], (set) =>
    set({}, overflow.state().outstanding),
  );
  gauge('turntable_worker_cores', 'Cores of each worker that is there', ['worker'], (set) => {
    for (const { name, cores } of overflow.workers()) set({ worker: name }, cores);
  });
  gauge('turntable_worker_backlog_seconds', 'Work that each worker has, in seconds', ['worker'], (set) => {
    for (const { name, backlogMs } of overflow.workers()) set({ worker: name }, backlogMs / 1000);
  });
  if (calls === undefined) return;
  counter('turntable_async_calls_total', 'Asynchronous calls by what became of them', ['outcome'], (add) => {
    const { accepted, finished, cancelled, dropped } = calls.counts;
    for (const [outcome, count] of Object.entries({ accepted, finished, cancelled, dropped })) add({ outcome }, count);
  });
  counter('turntable_callbacks_total', 'Callbacks by what became of them', ['outcome'], (add) => {
    add({ outcome: 'delivered' }, calls.counts.callbacksDelivered);
    add({ outcome: 'given-up' }, calls.counts.callbacksGivenUp);
  });
}
