/**
 * The search through seeds finds faults that are planted in the scheduler, and shrinks them. That the real one passes is
 * the benchmark `seeds`, small (small-replays.test.ts).
 */
import { expect, test } from 'vitest';
import { nothingPlayed, play } from '../../bench/seeds/play.ts';
import type { Scenario } from '../../bench/seeds/scenario.ts';
import { searchSeeds } from '../../bench/seeds/search.ts';
import {
  policies,
  Scheduler,
  type Action,
  type SchedulerEvent,
  type SchedulerOptions,
} from '../../src/schedule/index.ts';

const scenarios = 1500;

/** A scheduler whose actions or events pass through `spoil`. */
function planted(
  spoil: (actions: readonly Action[], event: SchedulerEvent) => readonly Action[],
): (options: SchedulerOptions) => Scheduler {
  return (options) => {
    const scheduler = new Scheduler(options);
    const handle = scheduler.handle.bind(scheduler);
    scheduler.handle = (event, nowMs) => spoil(handle(event, nowMs), event);
    return scheduler;
  };
}

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
])('finds %s, and shrinks the events that show it', (_fault, message, spoil) => {
  const { broken } = searchSeeds({ scenarios, seed: 7 }, undefined, planted(spoil));
  expect(broken?.message).toMatch(message);
  expect(broken?.scenario.operations.length).toBeLessThanOrEqual(10);
  expect(broken?.events.length).toBeLessThanOrEqual(30);
});

test('the seed that a search tells finds the same fault again, and shrinks it to the same events', () => {
  const twice = planted((actions) =>
    actions.flatMap((action): Action[] => (action.kind === 'shed' ? [action, action] : [action])),
  );
  const { broken } = searchSeeds({ scenarios, seed: 7 }, undefined, twice);
  const again = searchSeeds({ scenarios: 500, seed: broken!.seed }, undefined, twice);
  expect(again.broken).toEqual(broken);
});

type Shape = Scenario['shapes'][number];

const shape = (layers: number[], own: Pick<Shape, 'msPerByte' | 'extraHostBytes'> & Partial<Shape>): Shape => ({
  layers,
  warmMs: 1,
  hiding: 0,
  lends: false,
  onGpu: true,
  cpu: null,
  workers: null,
  sloMs: 5,
  priority: 0,
  pinned: false,
  variants: [],
  ...own,
});

test('in order of arrival, the next invocation keeps its place in host memory before those behind it', () => {
  const scenario: Scenario = {
    gpuBytes: [50],
    cpu: null,
    workers: null,
    host: { capacityBytes: 89, diskGBps: 1e-7 },
    policy: { ...policies.artifact, waitBoundMs: 5, loadAhead: true },
    shapes: [
      shape([26, 7], { msPerByte: 0.1, extraHostBytes: 12 }),
      shape([8, 1, 10, 25], { msPerByte: 0.5, extraHostBytes: 0 }),
      shape([18, 21], { msPerByte: 0.1, extraHostBytes: 6 }),
    ],
    operations: [2, 1, 0].map((functionIndex) => ({ kind: 'arrive', functionIndex })),
    stretches: [0.5],
  };
  expect(() => play(scenario, nothingPlayed())).not.toThrow();
});
