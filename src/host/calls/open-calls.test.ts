import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { CallStage, PoolTimings } from '../../cpu/index.ts';
import type { Miss } from './miss-causes.ts';
import { missOf, OpenCall, OpenCalls, type BeforeCall, type MachineBusy } from './open-calls.ts';

const idle = (): MachineBusy => ({ isFull: false, loopDelayMs: 0 });
const busy = (): MachineBusy => ({ isFull: true, loopDelayMs: 0 });
const noTimes: PoolTimings = { queueMs: 0, loadMs: 0, preprocessMs: 0, inferMs: 0, postprocessMs: 0 };

/** A call that arrived at 0, was decoded at `bodyMs`, and spent so long in each stage. */
function spent(bodyMs: number, stages: readonly (readonly [CallStage, number])[], before?: BeforeCall): OpenCall {
  const call = new OpenCall('f', 0, 100, bodyMs, before);
  let nowMs = bodyMs;
  for (const [stage, ms] of stages) {
    call.enter(stage, nowMs);
    nowMs += ms;
  }
  call.enter('turn', nowMs);
  // What comes after them belongs to no stage of the test.
  call.times = (
    (times) => () =>
      times
  )(call.times(nowMs));
  return call;
}

/** The cause of a call that ran for 30 ms, after so long before its invocation. */
const lateBefore = (bodyMs: number, before: BeforeCall, machine = idle()): unknown => {
  const timings = { ...noTimes, inferMs: 30 };
  return missOf('late', spent(bodyMs, [['model', 30]], before), bodyMs + 30, timings, () => machine)?.cause;
};

/** A call whose answer comes from another machine after so long. */
function stillAway(awayMs: number): OpenCall {
  const call = new OpenCall('f', 0, 100, 1);
  call.enter('away', 1);
  const times = call.times(awayMs + 1);
  call.times = () => times;
  return call;
}

/** A call whose handler and model took 300 ms, this long of which others had the cores. */
const waitedForCore = (coreWaitMs: number): Miss | undefined => {
  const timings = { ...noTimes, queueMs: 100, inferMs: 200, preprocessMs: 100, coreWaitMs };
  return missOf('late', spent(1, []), 401, timings, idle);
};

describe('the cause of a late call', () => {
  test('is the stage that took the most of its time, also if its client left', () => {
    for (const [stage, cause] of [
      ['turn', 'queue'],
      ['load', 'load'],
      ['handler', 'handler'],
      ['model', 'model'],
      ['away', 'away'],
    ] as const) {
      const call = spent(1, [
        ['turn', 20],
        [stage, 500],
        ['model', 30],
      ]);
      expect(missOf('late', call, 552, undefined, idle)?.cause).toBe(cause);
    }
  });

  test('comes from the times of its answer where there is one', () => {
    const call = spent(1, [['turn', 20]]);
    const late = (timings: Partial<PoolTimings>): unknown =>
      missOf('late', call, 200, { ...noTimes, ...timings }, idle)?.cause;
    expect(late({ queueMs: 120, inferMs: 50 })).toBe('queue');
    expect(late({ loadMs: 150, queueMs: 10, inferMs: 30 })).toBe('load');
    expect(late({ preprocessMs: 60, inferMs: 80, postprocessMs: 40 })).toBe('handler');
    expect(late({ preprocessMs: 40, inferMs: 100, postprocessMs: 40 })).toBe('model');
  });

  test('is its body only by the time that decoding took, and else what keeps the host busy, or unexplained', () => {
    const late = (decodeMs: number, isBusy: boolean): unknown => {
      const call = spent(150, [['model', 30]], { decodeMs });
      return missOf('late', call, 180, { ...noTimes, inferMs: 30 }, isBusy ? busy : idle)?.cause;
    };
    expect([late(100, true), late(100, false)]).toEqual(['body', 'body']);
    // A large body whose bytes came late, or whose host got no core, took no time to decode.
    expect([late(10, true), late(10, false)]).toEqual(['busy', 'unexplained']);
    expect(missOf('late', spent(1, []), 400, { ...noTimes, inferMs: 30, queueMs: 20 }, idle)?.cause).toBe(
      'unexplained',
    );
  });

  test('is the cores that others had as far as its handler and model waited for them, whatever the cores look like', () => {
    expect([0, 90, 260, 9000].map(waitedForCore).map((miss) => miss?.cause)).toEqual([
      'model',
      'model',
      'busy',
      'busy',
    ]);
    expect(waitedForCore(9000)).toMatchObject({ lateMs: 301, unexplainedMs: 1 });
  });

  test('is what came before its invocation: a slow client, a version not yet ready, or others before it', () => {
    expect(lateBefore(200, { receiveMs: 190 })).toBe('upload');
    expect(lateBefore(200, { receiveMs: 190 }, { isFull: true, loopDelayMs: 20 })).toBe('upload');
    // The event loop may have been what kept the body waiting.
    expect(lateBefore(200, { receiveMs: 190 }, { isFull: false, loopDelayMs: 180 })).toBe('busy');
    expect(lateBefore(200, { receiveMs: 5, readyMs: 180 })).toBe('load');
    expect(lateBefore(200, { receiveMs: 5 })).toBe('busy');
    expect(lateBefore(200, { receiveMs: 5, decodeMs: 180 })).toBe('body');
  });

  test('is the way to a worker or another host, or the wait there, beyond the times that its answer has', () => {
    const there = { ...noTimes, queueMs: 20, inferMs: 60 };
    expect(missOf('late', stillAway(400), 401, there, idle)).toMatchObject({ cause: 'away', unexplainedMs: 1 });
    expect(missOf('late', stillAway(130), 131, there, idle)).toMatchObject({ cause: 'model', unexplainedMs: 1 });
    // It was lost there, and came back.
    const back = spent(1, [
      ['away', 300],
      ['model', 60],
    ]);
    expect(missOf('late', back, 361, { ...noTimes, inferMs: 60 }, idle)?.cause).toBe('away');
    // The place that ran it counts from the call's arrival.
    expect(missOf('late', back, 361, { ...noTimes, queueMs: 301, inferMs: 60 }, idle)?.cause).toBe('away');
  });

  test('is the wait in the scheduler too, of which the pool that answered knows nothing', () => {
    const call = spent(1, [
      ['load', 900],
      ['model', 30],
    ]);
    expect(missOf('late', call, 931, { ...noTimes, inferMs: 30 }, busy)?.cause).toBe('load');
  });

  test('is how it ended where it was shed or failed, and none where it met its SLO or was not judged', () => {
    const call = spent(0, [['load', 900]]);
    expect(missOf('shed', call, 900, undefined, idle)).toEqual({ cause: 'shed', lateMs: 800, unexplainedMs: 0 });
    expect(missOf('failed', call, 20, undefined, idle)).toEqual({ cause: 'failed', lateMs: 0, unexplainedMs: 0 });
    expect(missOf('in_slo', call, 900, undefined, idle)).toBeUndefined();
    expect(missOf(undefined, call, 900, undefined, idle)).toBeUndefined();
  });
});

/** Of a call with an SLO of 100 ms. */
const lateBy = (queueMs: number, inferMs: number, restMs: number, isBusy = false): Miss | undefined => {
  const timings = { ...noTimes, queueMs, inferMs };
  return missOf('late', spent(0, []), queueMs + inferMs + restMs, timings, isBusy ? busy : idle);
};

describe('the time beyond the SLO', () => {
  test('is unexplained as far as no part of the call accounts for it', () => {
    expect(lateBy(300, 50, 20)).toEqual({ cause: 'queue', lateMs: 270, unexplainedMs: 20 });
    expect(lateBy(10, 50, 60)).toEqual({ cause: 'unexplained', lateMs: 20, unexplainedMs: 20 });
    expect(lateBy(10, 50, 400)).toEqual({ cause: 'unexplained', lateMs: 360, unexplainedMs: 360 });
    expect(lateBy(10, 50, 400, true)).toEqual({ cause: 'busy', lateMs: 360, unexplainedMs: 0 });
  });

  test('is never less than what is unexplained of it', () => {
    const ms = fc.nat(1000);
    fc.assert(
      fc.property(ms, ms, ms, fc.boolean(), (queueMs, inferMs, restMs, isBusy) => {
        fc.pre(queueMs + inferMs + restMs > 100);
        const miss = lateBy(queueMs, inferMs, restMs, isBusy)!;
        expect(miss.lateMs).toBeCloseTo(queueMs + inferMs + restMs - 100);
        expect(miss.unexplainedMs).toBeLessThanOrEqual(miss.lateMs);
        // What the parts alone make late is explained.
        expect(miss.lateMs - miss.unexplainedMs).toBeGreaterThanOrEqual(queueMs + inferMs - 100 - 1e-6);
      }),
    );
  });
});

test('all stages together last as long as the call, whatever their order', () => {
  const stage = fc.constantFrom<CallStage>('turn', 'load', 'handler', 'model', 'away');
  fc.assert(
    fc.property(fc.array(fc.tuple(stage, fc.nat(1000))), fc.nat(100), fc.nat(1000), (steps, bodyMs, lastMs) => {
      const call = new OpenCall('f', 0, 100, bodyMs);
      let nowMs = bodyMs;
      for (const [next, ms] of steps) {
        nowMs += ms;
        call.enter(next, nowMs);
      }
      nowMs += lastMs;
      expect(Object.values(call.times(nowMs)).reduce((sum, ms) => sum + ms, 0)).toBe(nowMs);
    }),
  );
});

test('open calls are overdue once they have passed their SLO, and no longer when they end', () => {
  const open = new OpenCalls();
  const nowMs = performance.now();
  const calls = [50, 200, 5000].map((ageMs) => open.begin('f', nowMs - ageMs, 100));
  open.begin('g', nowMs - 50, 100);
  calls[2]!.enter('load', nowMs + 1000);
  expect([...open.overdue(nowMs)]).toMatchObject([['f', { calls: 2, stages: { turn: 1, load: 1 } }]]);
  expect(open.overdue(nowMs + 4000).get('f')?.longestMs.load).toBeCloseTo(3000);
  expect(open.oldestMs(nowMs)).toBeCloseTo(5000);
  for (const call of calls) open.end(call);
  expect(open.overdue(nowMs).size).toBe(0);
  expect(open.oldestMs(nowMs)).toBeCloseTo(50);
});

test('an observer is told when each call begins and ends, wherever it runs', () => {
  let inFlight = 0;
  const calls = new OpenCalls({ arrived: () => inFlight++, ended: () => inFlight-- });
  const [first, second] = [calls.begin('f', 0, 100), calls.begin('g', 0, 100)];
  expect(inFlight).toBe(2);
  calls.end(first);
  calls.end(second);
  expect(inFlight).toBe(0);
});
