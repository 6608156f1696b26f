/** Records every event that a scheduler gets and every action that it orders, so that another one can get the same. */
import { vi } from 'vitest';
import { Scheduler, type Action, type SchedulerEvent, type SchedulerOptions } from '../../src/schedule/index.ts';

export interface RecordedStep {
  readonly event: SchedulerEvent;
  readonly atMs: number;
  /** As text: the scheduler reuses its decision objects when an invocation number is used again. */
  readonly actions: readonly string[];
}

export interface SchedulerRecording extends Disposable {
  /** Of the scheduler that got the latest event. */
  readonly steps: readonly RecordedStep[];
}

/** From now on, until it is disposed of. */
export function recordSchedulers(): SchedulerRecording {
  const steps = new WeakMap<Scheduler, RecordedStep[]>();
  let latest: RecordedStep[] = [];
  // oxlint-disable-next-line typescript/unbound-method -- called with its scheduler below
  const { handle } = Scheduler.prototype;
  const spy = vi.spyOn(Scheduler.prototype, 'handle').mockImplementation(function (this: Scheduler, event, atMs) {
    const actions = handle.call(this, event, atMs);
    const own = steps.get(this);
    latest = own ?? [];
    if (own === undefined) steps.set(this, latest);
    latest.push({ event, atMs, actions: actions.map(textOf) });
    return actions;
  });
  return {
    get steps() {
      return latest;
    },
    [Symbol.dispose]: () => spy.mockRestore(),
  };
}

/** Gives a new scheduler the same events at the same instants. */
export function replaySteps(
  steps: readonly RecordedStep[],
  options: SchedulerOptions,
): { readonly scheduler: Scheduler; readonly actions: readonly (readonly string[])[] } {
  const scheduler = new Scheduler(options);
  const actions = steps.map(({ event, atMs }) => scheduler.handle(event, atMs).map(textOf));
  return { scheduler, actions };
}

const textOf = (action: Action): string => JSON.stringify(action);
