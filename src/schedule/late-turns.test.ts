import { describe, expect, test } from 'vitest';
import { offerSheet, smallGpus, type OfferShape } from '../../test/support/offers.ts';
import { policies, Scheduler, type Action, type Policy, type SchedulerEvent } from './index.ts';
import { tuning } from './tuning.ts';

const { overdueShare } = tuning.queues;

/** One GPU with the given functions; each that should be resident has run once. Numbers are their places. */
function gpuWith(
  capacityBytes: number,
  functions: readonly { readonly shape: OfferShape; readonly sloMs: number; readonly isThere: boolean }[],
  policy: Policy = policies.best,
): (nowMs: number, event: SchedulerEvent) => readonly Action[] {
  const scheduler = new Scheduler({ gpus: smallGpus(1, capacityBytes), policy, cpu: null });
  for (const [functionIndex, { shape, sloMs, isThere }] of functions.entries()) {
    scheduler.handle({ kind: 'function-added', functionIndex, sheet: offerSheet(1, shape, { sloMs }) }, 0);
    if (!isThere) continue;
    scheduler.handle({ kind: 'arrival', invocation: 0, functionIndex, sloMs: 1e6 }, 0);
    scheduler.handle({ kind: 'loaded', gpu: 0, functionIndex }, 0);
    scheduler.handle({ kind: 'finished', invocation: 0 }, 0);
  }
  return (nowMs, event) => scheduler.handle(event, nowMs);
}

const arrival = (
  invocation: number,
  functionIndex: number,
  own: { readonly priority?: number; readonly sloMs?: number } = {},
): SchedulerEvent => ({ kind: 'arrival', invocation, functionIndex, ...own });

describe('what can no longer meet its SLO', () => {
  test('gets the lane until a load ends, for the late call whose run is short enough, though another waits longer', () => {
    const [blocking, long, short, loading] = [0, 1, 2, 3];
    const at = gpuWith(100, [
      { shape: { layers: [10], warmMs: 100 }, sloMs: 1000, isThere: true },
      { shape: { layers: [10], warmMs: 40 }, sloMs: 30, isThere: true },
      { shape: { layers: [10], warmMs: 5 }, sloMs: 30, isThere: true },
      { shape: { layers: [20], warmMs: 10 }, sloMs: 40, isThere: false },
    ]);
    at(200, arrival(0, blocking));
    at(200, arrival(1, long));
    at(200, arrival(2, short));
    // Its load ends at 311, and its run has to begin by 320: 40 ms from 300 on would be too long, 5 are not.
    expect(at(290, arrival(3, loading))).toMatchObject([{ kind: 'load', invocation: 3 }, { kind: 'wait' }]);
    expect(at(300, { kind: 'finished', invocation: 0 })).toContainEqual(
      expect.objectContaining({ kind: 'run', invocation: 2 }),
    );
  });

  test('gives the room that was taken for it to a call on time that waits beyond the bound', () => {
    const [blocking, late, onTime] = [0, 1, 2];
    const functions = [
      { shape: { layers: [5], warmMs: 50 }, sloMs: 1000, isThere: true },
      { shape: { layers: [20] }, sloMs: 15, isThere: false },
      { shape: { layers: [20] }, sloMs: 200, isThere: false },
    ];
    const at = gpuWith(30, functions, { ...policies.best, waitBoundMs: 0 });
    at(100, arrival(0, blocking));
    expect(at(101, arrival(1, late))).toMatchObject([{ kind: 'load', invocation: 1 }, { kind: 'wait' }]);
    at(122, { kind: 'loaded', gpu: 0, functionIndex: late });
    expect(at(123, arrival(2, onTime))).toMatchObject([
      { kind: 'evict', functionIndex: late },
      { kind: 'load', invocation: 2 },
      { kind: 'wait' },
    ]);
  });

  test('is on time again when the load that made it late ends sooner', () => {
    const [other, loading] = [0, 1];
    const at = gpuWith(100, [
      { shape: { layers: [10], warmMs: 10 }, sloMs: 1000, isThere: true },
      { shape: { layers: [20], warmMs: 2 }, sloMs: 20, isThere: false },
    ]);
    at(99, arrival(0, other));
    // Its load is predicted to end too late: the call would end at 121.
    expect(at(100, arrival(1, loading))).toMatchObject([{ kind: 'load', invocation: 1 }, { kind: 'wait' }]);
    at(104, arrival(2, other));
    at(105, { kind: 'loaded', gpu: 0, functionIndex: loading });
    expect(at(109, { kind: 'finished', invocation: 0 })).toMatchObject([{ kind: 'run', invocation: 1 }]);
  });

  test('is loaded again when the GPU whose link its load borrows is lost', () => {
    const scheduler = new Scheduler({ gpus: smallGpus(2, 100), policy: policies.best, cpu: null });
    const add = (functionIndex: number, shape: OfferShape, sloMs: number): readonly Action[] =>
      scheduler.handle({ kind: 'function-added', functionIndex, sheet: offerSheet(2, shape, { sloMs }) }, 0);
    const [lent, blocking] = [0, 1];
    add(lent, { layers: [40], warmMs: 10, lenders: (gpu) => [1 - gpu] }, 5);
    add(blocking, { layers: [], warmMs: 50 }, 1000);
    for (const invocation of [0, 1]) scheduler.handle(arrival(invocation, blocking), 0);
    const [load] = scheduler.handle(arrival(2, lent), 0);
    if (load?.kind !== 'load') throw new Error(`expected a load, got ${load?.kind}`);
    expect(load.load.way.mode).toBe('pt+dha');
    const lost = scheduler.handle({ kind: 'gpu-lost', gpu: 1 - load.gpu }, 10);
    expect(lost).toContainEqual(expect.objectContaining({ kind: 'abandon', functionIndex: lent, gpu: load.gpu }));
    expect(lost).toContainEqual(expect.objectContaining({ kind: 'load', invocation: 2, gpu: load.gpu }));
  });

  test.each([
    ['of the same function, late', policies.best, 0, 50],
    ['of another one that is there, late', policies.best, 1, 50],
    ['of another one that is there, on time', policies.best, 1, 60_000],
    ['of one that is to be loaded, on time', policies.best, 2, 60_000],
    ['of one that is to be loaded, where nothing is loaded ahead', { ...policies.best, loadAhead: false }, 2, 50],
    ['of such a one, on time', { ...policies.best, loadAhead: false }, 2, 60_000],
  ] as const)('has its turn behind calls of a higher priority without end: %s', (_, policy, starved, sloMs) => {
    const functions = [
      { shape: { layers: [10], warmMs: 10 }, sloMs: 1000, isThere: true },
      { shape: { layers: [10], warmMs: 10 }, sloMs: 50, isThere: true },
      { shape: { layers: [10], warmMs: 10 }, sloMs: 50, isThere: false },
    ];
    const at = gpuWith(100, functions, { ...policy, waitBoundMs: 50 });
    const urgent = (invocation: number): SchedulerEvent => arrival(invocation, 0, { priority: 1 });
    const ran: number[] = [];
    const step = (nowMs: number, event: SchedulerEvent): void => {
      for (const action of at(nowMs, event)) {
        if (action.kind === 'run') ran.push(action.invocation);
        else if (action.kind === 'load')
          step(nowMs, { kind: 'loaded', gpu: action.gpu, functionIndex: action.functionIndex });
      }
    };
    step(100, urgent(1));
    step(100, arrival(0, starved, { sloMs }));
    let next = 2;
    for (let nowMs = 110; ran.at(-1) !== 0 && next < 100; nowMs += 10) {
      step(nowMs - 5, urgent(next++));
      step(nowMs, { kind: 'finished', invocation: ran.at(-1)! });
    }
    expect(ran.at(-1)).toBe(0);
    // At 150 it has waited for as long as the bound; from then on it gets one turn in `overdueShare`.
    expect(ran.length).toBeLessThanOrEqual(5 + 2 * overdueShare);
  });
});
