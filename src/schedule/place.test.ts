/** What the scheduler relies on at each kind of place (place.ts), tried where no other place can run the function. */
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

/** A run takes 10 ms at each place, once what it needs is there. */
interface Kind {
  readonly id: Given<GpuId> | SideId;
  readonly options: () => Omit<SchedulerOptions, 'policy'>;
  readonly shape: OfferShape;
  readonly sheet: Partial<OfferSheet>;
  /** How the place goes, and how it is back. */
  readonly goes: SchedulerEvent;
  readonly isBack: SchedulerEvent;
}

const cpu = { cores: 1, memoryBytes: 100 };
const workers = { slots: 1, roundTripMs: 4 };
const npu = { switchMs: 5 };

const kinds: readonly Kind[] = [
  {
    id: 0,
    options: () => ({ gpus: smallGpus(1, 100), cpu: null }),
    shape: { layers: [1], warmMs: 10 },
    sheet: {},
    goes: { kind: 'gpu-lost', gpu: 0 },
    isBack: { kind: 'gpu-back', gpu: 0 },
  },
  {
    id: 'cpu',
    options: () => ({ gpus: [], cpu }),
    shape: { layers: [] },
    sheet: { cpu: { latencyMs: 10, cores: 1, loadMs: 0, bytes: 10 } },
    goes: { kind: 'place-changed', place: 'cpu', to: null },
    isBack: { kind: 'place-changed', place: 'cpu', to: cpu },
  },
  {
    id: 'workers',
    options: () => ({ gpus: [], cpu: null, workers }),
    shape: { layers: [] },
    sheet: { others: { workers: { latencyMs: 6 } } },
    goes: { kind: 'place-changed', place: 'workers', to: null },
    isBack: { kind: 'place-changed', place: 'workers', to: workers },
  },
  {
    // Of docs/extend.md.
    id: 'npu',
    options: () => ({ gpus: [], cpu: null, others: [new NpuLane(npu)] }),
    shape: { layers: [] },
    sheet: { others: { npu: { latencyMs: 10 } } },
    goes: { kind: 'place-changed', place: 'npu', to: null },
    isBack: { kind: 'place-changed', place: 'npu', to: npu },
  },
];

class Bench {
  readonly kind: Kind;
  readonly scheduler: Scheduler;
  readonly #sheet: OfferSheet;
  nowMs = 0;

  constructor(kind: Kind, policy: Partial<Policy> = {}) {
    this.kind = kind;
    const options = kind.options();
    this.scheduler = new Scheduler({ ...options, policy: { ...policies.best, ...policy } });
    this.#sheet = { ...offerSheet(options.gpus.length, kind.shape, kind.sheet), sloMs: 25 };
    this.add(0);
    // What it needs is there from here on.
    this.tell({ kind: 'arrival', invocation: 9, functionIndex: 0 });
    for (let at = 0; at < this.done.length; at++) {
      const action = this.done[at]!;
      if (action.kind === 'load') this.tell({ kind: 'loaded', gpu: 0, functionIndex: 0 });
    }
    this.nowMs = 50;
    this.tell({ kind: 'finished', invocation: 9 });
    this.done.length = 0;
    this.nowMs = 100;
  }

  /** All that was ordered. */
  readonly done: Action[] = [];

  add(functionIndex: number): void {
    this.tell({ kind: 'function-added', functionIndex, sheet: this.#sheet });
  }

  tell(event: SchedulerEvent): void {
    this.done.push(...this.scheduler.handle(event, this.nowMs));
  }

  arrive(...invocations: readonly number[]): void {
    for (const invocation of invocations) this.tell({ kind: 'arrival', invocation, functionIndex: 0 });
  }

  /** One that has as much time as it takes. */
  arriveWith(invocation: number, priority: number, sloMs = 1e6): void {
    this.tell({ kind: 'arrival', invocation, functionIndex: 0, priority, sloMs });
  }

  finish(invocation: number, afterMs = 10): void {
    this.nowMs += afterMs;
    this.tell({ kind: 'finished', invocation });
  }

  /** Invocations whose runs were ordered, in order. */
  get runs(): number[] {
    return this.done.flatMap((action) =>
      action.kind === 'run' || action.kind === 'run-beside' ? [action.invocation] : [],
    );
  }

  predictMs(): number {
    return this.scheduler.predictEnd(0, this.kind.id, this.nowMs) - this.nowMs;
  }
}

describe.each(kinds)('the place $id', (kind) => {
  test('starts a call at once where nothing runs, and one after the other then', () => {
    const bench = new Bench(kind);
    bench.arrive(0, 1);
    expect(bench.runs).toEqual([0]);
    expect(bench.scheduler.waitingCount(kind.id)).toBe(1);
    expect(bench.done).toContainEqual(expect.objectContaining({ kind: 'wait', invocation: 1, place: kind.id }));
    bench.finish(0);
    expect(bench.runs).toEqual([0, 1]);
    expect(bench.scheduler.waitingCount(kind.id)).toBe(0);
  });

  test('predicts the end of a call behind those that run and wait', () => {
    const bench = new Bench(kind);
    expect(bench.predictMs()).toBeCloseTo(10);
    bench.arrive(0, 1);
    expect(bench.predictMs()).toBeCloseTo(30);
    bench.finish(0);
    expect(bench.predictMs()).toBeCloseTo(20);
  });

  test('starts calls by priority, and those of one priority in their order', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: -2, max: 1 }), { minLength: 1, maxLength: 12 }), (priorities) => {
        const bench = new Bench(kind);
        bench.arrive(0);
        for (const [at, priority] of priorities.entries()) bench.arriveWith(at + 1, priority);
        for (let at = 0; at <= priorities.length; at++) bench.finish(bench.runs[at]!);
        const expected = priorities.map((priority, at) => ({ priority, invocation: at + 1 }));
        expected.sort((one, other) => other.priority - one.priority);
        expect(bench.runs).toEqual([0, ...expected.map(({ invocation }) => invocation)]);
      }),
    );
  });

  test.each([50, 1e6])('gives a call of %d ms its turn behind calls of a higher priority without end', (sloMs) => {
    const bench = new Bench(kind, { waitBoundMs: 50 });
    bench.arriveWith(1, 1);
    bench.arriveWith(0, 0, sloMs);
    for (let next = 2; bench.runs.at(-1) !== 0 && next < 100; next++) {
      bench.arriveWith(next, 1);
      bench.finish(bench.runs.at(-1)!);
    }
    // It has waited for as long as the bound after five runs; from then on it gets one turn in `overdueShare`.
    expect(bench.runs.at(-1)).toBe(0);
    expect(bench.runs.length).toBeLessThanOrEqual(6 + 2 * tuning.queues.overdueShare);
  });

  test('does not start a call whose caller has gone, and starts the one behind it', () => {
    const bench = new Bench(kind);
    bench.arrive(0, 1, 2);
    bench.tell({ kind: 'departed', invocation: 1 });
    bench.finish(0);
    expect(bench.runs).toEqual([0, 2]);
  });

  test('frees what a refused run took: the next call starts, and the refused one has no place', () => {
    const bench = new Bench(kind);
    bench.arrive(0, 1);
    bench.tell({ kind: 'refused', invocation: 0 });
    expect(bench.done).toContainEqual({ kind: 'fail', invocation: 0, reason: 'nowhere' });
    expect(bench.runs).toEqual([0, 1]);
  });

  test('refuses at once what would be late, where calls are shed', () => {
    const bench = new Bench(kind, { admission: 'shed' });
    bench.arrive(0, 1, 2);
    expect(bench.done).toContainEqual(expect.objectContaining({ kind: 'shed', invocation: 2 }));
    bench.finish(0);
    expect(bench.runs).toEqual([0, 1]);
  });

  test('fails the waiting calls of a removed function, and runs those of another one', () => {
    const bench = new Bench(kind);
    bench.add(1);
    bench.arrive(0, 1);
    bench.tell({ kind: 'arrival', invocation: 2, functionIndex: 1 });
    bench.tell({ kind: 'function-removed', functionIndex: 0 });
    expect(bench.done).toContainEqual({ kind: 'fail', invocation: 1, reason: 'removed' });
    expect(() => bench.predictMs()).toThrow('there is no function 0');
    bench.finish(0);
    for (const action of bench.done) if (action.kind === 'load') bench.tell({ ...action, kind: 'loaded' });
    expect(bench.runs).toContain(2);
  });

  test('takes no call while it is gone, and takes them again when it is back', () => {
    const bench = new Bench(kind);
    bench.tell(kind.goes);
    expect(bench.predictMs()).toBe(Infinity);
    bench.arrive(0);
    expect(bench.done).toContainEqual({ kind: 'fail', invocation: 0, reason: 'nowhere' });
    bench.tell(kind.isBack);
    bench.arrive(1);
    expect(bench.done.at(-1)).toMatchObject({ invocation: 1 });
    expect(bench.predictMs()).toBeLessThan(Infinity);
  });

  test('ends only a run that is under way, and only once', () => {
    const bench = new Bench(kind);
    bench.arrive(0, 1);
    expect(() => bench.tell({ kind: 'finished', invocation: 1 })).toThrow('invocation 1 does not run');
    expect(() => bench.tell({ kind: 'departed', invocation: 0 })).toThrow('invocation 0 does not wait');
    bench.finish(0);
    expect(() => bench.tell({ kind: 'finished', invocation: 0 })).toThrow('invocation 0 does not run');
  });
});
