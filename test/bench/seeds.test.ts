/** The search through seeds finds faults that are planted in the scheduler, and makes what it finds small. */
import { expect, test } from 'vitest';
import { searchSeeds } from '../../bench/seeds/search.ts';
import { Scheduler, type Action, type SchedulerEvent, type SchedulerOptions } from '../../src/schedule/index.ts';

const scenarios = 1500;

/** A scheduler whose actions or events go through something that spoils them. */
function planted(
  spoil: (actions: readonly Action[], event: SchedulerEvent) => readonly Action[],
): (options: SchedulerOptions) => Scheduler {
  return (options) => {
    const scheduler = new Scheduler(options);
    const handle = scheduler.handle.bind(scheduler);
    scheduler.handle = (event, nowMs, into) => spoil(handle(event, nowMs, into), event);
    return scheduler;
  };
}

test('the real scheduler passes', () => {
  const { broken, played } = searchSeeds({ scenarios: 200, seed: 3 });
  expect(broken).toBeUndefined();
  expect(played.arrivals).toBeGreaterThan(1000);
});

test.each<[string, RegExp, (actions: readonly Action[], event: SchedulerEvent) => readonly Action[]]>([
  [
    'evictions that are counted but not ordered',
    /holds|there$|layers there/,
    (actions) => actions.filter(({ kind }) => kind !== 'evict'),
  ],
  [
    'an invocation that is forgotten when its GPU is lost',
    /never ended|nothing was decided|idles/,
    (actions, { kind }) => (kind === 'gpu-lost' ? actions.filter((action) => action.kind !== 'wait') : actions),
  ],
  [
    'a GPU that is not turned to when its run has ended',
    /never ended|idles/,
    (actions, { kind }) => (kind === 'finished' ? actions.filter((action) => action.kind !== 'run') : actions),
  ],
  [
    'an invocation that is shed twice',
    /cannot end twice/,
    (actions) => actions.flatMap((action): Action[] => (action.kind === 'shed' ? [action, action] : [action])),
  ],
])(
  'finds %s, and shrinks the events that show it',
  (_fault, message, spoil) => {
    const { broken } = searchSeeds({ scenarios, seed: 1 }, undefined, planted(spoil));
    expect(broken?.message).toMatch(message);
    expect(broken?.scenario.operations.length).toBeLessThanOrEqual(10);
    expect(broken?.events.length).toBeLessThanOrEqual(30);
    // The seed alone finds it again.
    const again = searchSeeds({ scenarios: 500, seed: broken?.seed ?? 0 }, undefined, planted(spoil));
    expect(again.broken?.message).toBe(broken?.message);
  },
  240_000,
);
