/** What each kind of place must do for the scheduler (place.ts). In each test the place alone can run the function. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { NpuLane } from '../../test/support/npu-lane.ts';
import { offerSheet, smallGpus, type OfferShape } from '../../test/support/offers.ts';
import {
  policies,
  Scheduler,
  type Action,
  type Given,
  type GpuId,
  type OfferSheet,
  type Policy,
  type SchedulerEvent,
  type SchedulerOptions,
  type SideId,
} from './index.ts';
import { tuning } from './tuning.ts';

/** A kind of place. A run takes 10 ms there, once its weights or its session are loaded. */
interface PlaceKind {
  readonly id: Given<GpuId> | SideId;
  readonly options: () => Omit<SchedulerOptions, 'policy'>;
  readonly shape: OfferShape;
  readonly sheet: Partial<OfferSheet>;
  /** The events by which the scheduler loses the place, and gets it back. */
  readonly lost: SchedulerEvent;
  readonly back: SchedulerEvent;
}

const cpu = { cores: 1, memoryBytes: 100 };
const workers = { slots: 1, roundTripMs: 4 };
const npu = { switchMs: 5 };

const kinds: readonly PlaceKind[] = [
  {
    id: 0,
    options: () => ({ gpus: smallGpus(1, 100), cpu: null }),
    shape: { layers: [1], warmMs: 10 },
    sheet: {},
    lost: { kind: 'gpu-lost', gpu: 0 },
    back: { kind: 'gpu-back', gpu: 0 },
  },
  {
    id: 'cpu',
    options: () => ({ gpus: [], cpu }),
    shape: { layers: [] },
    sheet: { cpu: { latencyMs: 10, cores: 1, loadMs: 0, bytes: 10 } },
    lost: { kind: 'place-changed', place: 'cpu', to: null },
    back: { kind: 'place-changed', place: 'cpu', to: cpu },
  },
  {
    id: 'workers',
    options: () => ({ gpus: [], cpu: null, workers }),
    shape: { layers: [] },
    sheet: { others: { workers: { latencyMs: 6 } } },
    lost: { kind: 'place-changed', place: 'workers', to: null },
    back: { kind: 'place-changed', place: 'workers', to: workers },
  },
  {
    // The example of docs/extend.md.
    id: 'npu',
    options: () => ({ gpus: [], cpu: null, others: [new NpuLane(npu)] }),
    shape: { layers: [] },
    sheet: { others: { npu: { latencyMs: 10 } } },
    lost: { kind: 'place-changed', place: 'npu', to: null },
    back: { kind: 'place-changed', place: 'npu', to: npu },
  },
];

/** A scheduler with one place and one warm function, whose clock the test moves. */
class PlaceHarness {
  readonly kind: PlaceKind;
  readonly scheduler: Scheduler;
  readonly #sheet: OfferSheet;
  nowMs = 0;

  constructor(kind: PlaceKind, policy: Partial<Policy> = {}) {
    this.kind = kind;
    const options = kind.options();
    this.scheduler = new Scheduler({ ...options, policy: { ...policies.best, ...policy } });
    this.#sheet = { ...offerSheet(options.gpus.length, kind.shape, kind.sheet), sloMs: 25 };
    this.add(0);
    // A first call loads what the function needs.
    this.handle({ kind: 'arrival', invocation: 9, functionIndex: 0 });
    for (let at = 0; at < this.actions.length; at++) {
      const action = this.actions[at]!;
      if (action.kind === 'load') this.handle({ kind: 'loaded', gpu: 0, functionIndex: 0 });
    }
    this.nowMs = 50;
    this.handle({ kind: 'finished', invocation: 9 });
    this.actions.length = 0;
    this.nowMs = 100;
  }

  /** The scheduler's actions since the first call. */
  readonly actions: Action[] = [];

  add(functionIndex: number): void {
    this.handle({ kind: 'function-added', functionIndex, sheet: this.#sheet });
  }

  handle(event: SchedulerEvent): void {
    this.actions.push(...this.scheduler.handle(event, this.nowMs));
  }

  arrive(...invocations: readonly number[]): void {
    for (const invocation of invocations) this.handle({ kind: 'arrival', invocation, functionIndex: 0 });
  }

  /** A call with a deadline that it meets at any place in any queue, unless `sloMs` says otherwise. */
  arriveWith(invocation: number, priority: number, sloMs = 1e6): void {
    this.handle({ kind: 'arrival', invocation, functionIndex: 0, priority, sloMs });
  }

  finish(invocation: number, afterMs = 10): void {
    this.nowMs += afterMs;
    this.handle({ kind: 'finished', invocation });
  }

  /** The invocations whose runs the scheduler ordered, in that order. */
  get runs(): number[] {
    return this.actions.flatMap((action) =>
      action.kind === 'run' || action.kind === 'run-beside' ? [action.invocation] : [],
    );
  }

  predictMs(): number {
    return this.scheduler.predictEnd(0, this.kind.id, this.nowMs) - this.nowMs;
  }
}

describe.each(kinds)('the place $id', (kind) => {
  test('starts a call at once where nothing runs, and the next call when that one has finished', () => {
    const harness = new PlaceHarness(kind);
    harness.arrive(0, 1);
    expect(harness.runs).toEqual([0]);
    expect(harness.scheduler.waitingCount(kind.id)).toBe(1);
    expect(harness.actions).toContainEqual(expect.objectContaining({ kind: 'wait', invocation: 1, place: kind.id }));
    harness.finish(0);
    expect(harness.runs).toEqual([0, 1]);
    expect(harness.scheduler.waitingCount(kind.id)).toBe(0);
  });

  test('predicts the end of a call behind those that run and wait', () => {
    const harness = new PlaceHarness(kind);
    expect(harness.predictMs()).toBeCloseTo(10);
    harness.arrive(0, 1);
    expect(harness.predictMs()).toBeCloseTo(30);
    harness.finish(0);
    expect(harness.predictMs()).toBeCloseTo(20);
  });

  test('starts calls by priority, and those of one priority in their order', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -2, max: 1 }), { minLength: 1, maxLength: 12 }), (priorities) => {
        const harness = new PlaceHarness(kind);
        harness.arrive(0);
        for (const [at, priority] of priorities.entries()) harness.arriveWith(at + 1, priority);
        for (let at = 0; at <= priorities.length; at++) harness.finish(harness.runs[at]!);
        const expected = priorities.map((priority, at) => ({ priority, invocation: at + 1 }));
        expected.sort((one, other) => other.priority - one.priority);
        expect(harness.runs).toEqual([0, ...expected.map(({ invocation }) => invocation)]);
      }),
    );
  });

  test.each([50, 1e6])('a call with an SLO of %d ms gets a turn among endless calls of a higher priority', (sloMs) => {
    const harness = new PlaceHarness(kind, { waitBoundMs: 50 });
    harness.arriveWith(1, 1);
    harness.arriveWith(0, 0, sloMs);
    for (let next = 2; harness.runs.at(-1) !== 0 && next < 100; next++) {
      harness.arriveWith(next, 1);
      harness.finish(harness.runs.at(-1)!);
    }
    // After five runs call 0 has waited as long as the bound. From then on overdue calls get one turn in
    // `overdueShare`.
    expect(harness.runs.at(-1)).toBe(0);
    expect(harness.runs.length).toBeLessThanOrEqual(6 + 2 * tuning.queues.overdueShare);
  });

  test('does not start a call whose caller has gone, and starts the one behind it', () => {
    const harness = new PlaceHarness(kind);
    harness.arrive(0, 1, 2);
    harness.handle({ kind: 'departed', invocation: 1 });
    harness.finish(0);
    expect(harness.runs).toEqual([0, 2]);
  });

  test('a run that the place refuses fails, since no other place can run it, and the next call starts', () => {
    const harness = new PlaceHarness(kind);
    harness.arrive(0, 1);
    harness.handle({ kind: 'refused', invocation: 0 });
    expect(harness.actions).toContainEqual({ kind: 'fail', invocation: 0, reason: 'nowhere' });
    expect(harness.runs).toEqual([0, 1]);
  });

  test('sheds a call at once if it would be late, under a policy that sheds', () => {
    const harness = new PlaceHarness(kind, { admission: 'shed' });
    harness.arrive(0, 1, 2);
    expect(harness.actions).toContainEqual(expect.objectContaining({ kind: 'shed', invocation: 2 }));
    harness.finish(0);
    expect(harness.runs).toEqual([0, 1]);
  });

  test('fails the waiting calls of a removed function, and runs those of another one', () => {
    const harness = new PlaceHarness(kind);
    harness.add(1);
    harness.arrive(0, 1);
    harness.handle({ kind: 'arrival', invocation: 2, functionIndex: 1 });
    harness.handle({ kind: 'function-removed', functionIndex: 0 });
    expect(harness.actions).toContainEqual({ kind: 'fail', invocation: 1, reason: 'removed' });
    expect(() => harness.predictMs()).toThrow('there is no function 0');
    harness.finish(0);
    for (const action of harness.actions) if (action.kind === 'load') harness.handle({ ...action, kind: 'loaded' });
    expect(harness.runs).toContain(2);
  });

  test('takes no call while it is gone, and takes them again when it is back', () => {
    const harness = new PlaceHarness(kind);
    harness.handle(kind.lost);
    expect(harness.predictMs()).toBe(Infinity);
    harness.arrive(0);
    expect(harness.actions).toContainEqual({ kind: 'fail', invocation: 0, reason: 'nowhere' });
    harness.handle(kind.back);
    harness.arrive(1);
    expect(harness.actions.at(-1)).toMatchObject({ invocation: 1 });
    expect(harness.predictMs()).toBeLessThan(Infinity);
  });

  test('ends only a run that is under way, and only once', () => {
    const harness = new PlaceHarness(kind);
    harness.arrive(0, 1);
    expect(() => harness.handle({ kind: 'finished', invocation: 1 })).toThrow('invocation 1 does not run');
    expect(() => harness.handle({ kind: 'departed', invocation: 0 })).toThrow('invocation 0 does not wait');
    harness.finish(0);
    expect(() => harness.handle({ kind: 'finished', invocation: 0 })).toThrow('invocation 0 does not run');
  });
});
