/** What the scheduler relies on at each kind of place (place.ts), tried where no other place can run the function. */
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
