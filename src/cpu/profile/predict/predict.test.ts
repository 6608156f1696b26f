import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { aloneMs, fourCoreProfile } from '../../../../test/support/cpu-profile.ts';
import { simulateService } from '../../../../test/support/serf-simulation.ts';
import { predictService } from '../../../plan/index.ts';
import { ProfileError } from '../../../profile/index.ts';
import { coresIn } from '../../../schedule/index.ts';
import { mix32 } from '../../../tools/index.ts';
import {
  candidatesOf,
  idleExtraMs,
  instanceMs,
  listsToMeasure,
  LivePrediction,
  parseCpuProfile,
  PoolTable,
  simulateBatches,
  Slowdowns,
  type BatchedCandidate,
  type Candidate,
  type CpuProfile,
  type MeasuredList,
  type PoolPrediction,
  type UnbatchedCandidate,
} from './index.ts';

const alone = aloneMs;
const { threads } = fourCoreProfile.pool;
/** With both kinds of service, and with lists of a smaller batch. */
const profile: CpuProfile = {
  ...fourCoreProfile,
  service: {
    unit: 'ms',
    configurations: [
      ...fourCoreProfile.service.configurations,
      { concurrency: 2, threads: 2, serviceTime: [alone(2, 1), alone(2, 1) * 1.1] },
    ],
  },
  lists: [
    { batch: 8, groups: [{ instances: 4, threads: 1, batch: 2 }], latencyMs: 17, expectedMs: 16, aheadShare: 1 },
    { batch: 8, groups: [{ instances: 1, threads: 4, batch: 8 }], latencyMs: 19.7, expectedMs: 19.7, aheadShare: 1 },
    { batch: 16, groups: [{ instances: 4, threads: 1, batch: 4 }], latencyMs: 30, expectedMs: 28, aheadShare: 1 },
  ],
};
const options = { cores: 4, batchMax: 16, batchTimeoutMs: 5 };
/** In the queue of a function that has these costs of idle instances. */
const queued = (candidate: UnbatchedCandidate, rate: number, idle: CpuProfile['idle'] = []): PoolPrediction =>
  new PoolTable({ ...profile, idle }, options).service(candidate, rate, new Slowdowns(1));
const table = (): PoolTable => new PoolTable(profile, options);

function mustBeStable(prediction: PoolPrediction | undefined): Stable {
  if (prediction?.state !== 'stable') throw new Error('overloaded');
  return prediction;
}

type Stable = Extract<PoolPrediction, { state: 'stable' }>;
const waitMsOf = ({ latencyMs, serviceMs }: Stable): number => latencyMs - serviceMs;

function found(groups: [number, number, number]): Candidate {
  const [instances, each, batch] = groups;
  const candidate = table().find([{ instances, threads: each, batch }]);
  if (candidate === undefined) throw new Error(`no ${groups.join()}`);
  return candidate;
}

function list(index: number): BatchedCandidate {
  const lists = candidatesOf(profile, 4, 16).filter((each) => each.kind === 'batched');
  return lists[index] as BatchedCandidate;
}

describe('one instance', () => {
  test('is interpolated between two profiled batches, and runs several times beyond the last', () => {
    expect(instanceMs(profile.pool, 1, 4)).toBe(28);
    expect(instanceMs(profile.pool, 1, 3)).toBeCloseTo(22, 9);
    expect(instanceMs(profile.pool, 1, 32)).toBeCloseTo(200, 9);
    expect(instanceMs(profile.pool, 3, 1)).toBeUndefined();
  });

  test('of a model with a fixed batch is known for that batch only', () => {
    const fixed = { unit: 'ms', threads: [1], batches: [4], latency: [[7]] } as const;
    expect([1, 3, 4].map((rows) => instanceMs(fixed, 1, rows))).toEqual([undefined, undefined, 7]);
  });

  test('takes no less for more rows where the profile says so', () => {
    fc.assert(
      fc.property(fc.constantFrom(...threads), fc.integer({ min: 1, max: 40 }), (t, rows) => {
        expect(instanceMs(profile.pool, t, rows + 1)).toBeGreaterThan(instanceMs(profile.pool, t, rows) ?? Infinity);
      }),
    );
  });
});

describe('the simulation of batches', () => {
  test('of one row at a time without a timeout is the queue M/D/1', () => {
    const single: BatchedCandidate = {
      kind: 'batched',
      groups: [{ instances: 1, threads: 1, batch: 1 }],
      cores: 1,
      batch: 1,
      latencyMs: 10,
      interference: 1,
    };
    // A fuller queue has a longer memory, so a mean needs more requests.
    for (const [ratePerSecond, requests] of [
      [10, 20_000],
      [50, 100_000],
      [80, 400_000],
    ] as const) {
      const run = { ratePerSecond, timeoutMs: 0, requests, seed: 3 };
      const simulated = simulateBatches(profile.pool, single, run);
      const formula = predictService([10], ratePerSecond);
      expect(mustBeStable(simulated).latencyMs / mustBeStable(formula).latencyMs).toBeCloseTo(1, 1.5);
    }
  });

  test('of rare requests is the timeout and a run of one row', () => {
    const run = { ratePerSecond: 0.01, timeoutMs: 25, requests: 500, seed: 1 };
    const simulated = mustBeStable(simulateBatches(profile.pool, list(0), run));
    expect(waitMsOf(simulated)).toBeCloseTo(25, 0);
    expect(simulated.latencyMs).toBeCloseTo(35, 0);
  });

  test('of requests in floods waits only for the batch to run', () => {
    // 8 rows come within 4 ms on average, and the pool takes 17 ms for them: it is overloaded long before.
    const run = { ratePerSecond: 2000, timeoutMs: 100, requests: 500, seed: 1 };
    expect(simulateBatches(profile.pool, list(0), run)).toMatchObject({ state: 'overloaded' });
  });

  test('is no faster than a run of one row, and no request waits for less than nothing', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(0, 1, 2),
        fc.double({ min: 0.01, max: 0.9, noNaN: true }),
        fc.double({ min: 0, max: 50, noNaN: true }),
        (index, load, timeoutMs) => {
          const candidate = list(index);
          const ratePerSecond = load * (candidate.batch / candidate.latencyMs) * 1000;
          const result = simulateBatches(profile.pool, candidate, { ratePerSecond, timeoutMs, requests: 400, seed: 9 });
          expect(waitMsOf(mustBeStable(result))).toBeGreaterThanOrEqual(0);
          expect(mustBeStable(result).serviceMs).toBeGreaterThanOrEqual(
            alone(candidate.groups[0]?.threads ?? 1, 1) - 1e-9,
          );
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe('the table', () => {
  test('runs one request at a time on all cores at low load, and concurrent requests or batches at high load', () => {
    const latency = { kind: 'latency' } as const;
    expect(table().best(5, latency)?.candidate.groups).toEqual([{ instances: 1, threads: 4, batch: 1 }]);
    // 480 a second is beyond every unbatched configuration.
    expect(table().best(480, latency)?.candidate.kind).toBe('batched');
    expect(table().best(5000, latency)).toBeUndefined();
  });

  test('takes the fewest cores that keep the SLO, and the fastest where none do', () => {
    const few = table().best(5, { kind: 'cores', sloMs: 100 });
    expect(few?.candidate.cores).toBe(1);
    expect(table().best(5, { kind: 'cores', sloMs: 1 })?.candidate.groups).toEqual([
      { instances: 1, threads: 4, batch: 1 },
    ]);
  });

  test('keeps to the cores and rows that it is given', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 4 }), fc.constantFrom(1, 8, 16), (cores, batchMax) => {
        for (const candidate of candidatesOf(profile, cores, batchMax)) {
          expect(coresIn(candidate)).toBeLessThanOrEqual(cores);
          expect(candidate.batch).toBeLessThanOrEqual(batchMax);
        }
      }),
    );
  });

  test('predicts no less latency for the best at more load, within the noise of a simulation', () => {
    const one = table();
    const latencies = [1, 5, 20, 50, 100, 200, 300].map(
      (rate) => mustBeStable(one.best(rate, { kind: 'latency' })?.prediction).latencyMs,
    );
    for (const [index, latencyMs] of latencies.entries()) {
      expect(latencyMs).toBeGreaterThan((latencies[index - 1] ?? 0) * 0.95);
    }
  });

  test('the best candidate for a batch that comes at once is the one that is done first', () => {
    const best = table().fastestForBatch(8, { kind: 'latency' });
    expect(best).toMatchObject({ latencyMs: 17, candidate: { groups: [{ instances: 4, threads: 1, batch: 2 }] } });
    expect(table().fastestForBatch(4, { kind: 'latency' })).toMatchObject({
      candidate: { groups: [{ instances: 4, threads: 1, batch: 1 }] },
    });
  });
});

const chosenOf = (lists: readonly MeasuredList[]): PoolTable => new PoolTable({ ...profile, lists }, options);

describe('the choice for a batch', () => {
  const fat: MeasuredList = {
    batch: 8,
    groups: [{ instances: 1, threads: 4, batch: 8 }],
    latencyMs: 20,
    expectedMs: 20,
    aheadShare: 1,
  };
  const thin: MeasuredList = { ...fat, groups: [{ instances: 4, threads: 1, batch: 2 }] };

  test('is the fat instance unless another is clearly faster', () => {
    const cases = [
      [{ latencyMs: 17, aheadShare: 1 }, thin],
      [{ latencyMs: 19, aheadShare: 1 }, fat],
      [{ latencyMs: 17, aheadShare: 0.7 }, fat],
      [{ latencyMs: 25, aheadShare: 0.1 }, fat],
    ] as const;
    for (const [measured, expected] of cases) {
      const best = chosenOf([{ ...thin, ...measured }, fat]).fastestForBatch(8, { kind: 'latency' });
      expect(best?.candidate.groups).toEqual(expected.groups);
    }
  });

  test('is never predicted to take longer than the fat one', () => {
    const list = fc.record({
      shape: fc.constantFrom([4, 1, 2] as const, [2, 2, 4] as const, [2, 1, 4] as const),
      latencyMs: fc.double({ min: 1, max: 100, noNaN: true }),
      aheadShare: fc.double({ min: 0, max: 1, noNaN: true }),
    });
    fc.assert(
      fc.property(fc.array(list, { maxLength: 4 }), (others) => {
        const lists = others.map(({ shape: [instances, each, batch], latencyMs, aheadShare }): MeasuredList => ({
          batch: 8,
          groups: [{ instances, threads: each, batch }],
          latencyMs,
          expectedMs: latencyMs,
          aheadShare,
        }));
        const best = chosenOf([...lists, fat]).fastestForBatch(8, { kind: 'latency' });
        expect(best?.latencyMs).toBeLessThanOrEqual(fat.latencyMs);
      }),
    );
  });

  test('is among the lists that were measured for it, whatever rounds of others promise', () => {
    const rounds: MeasuredList = { ...fat, batch: 4, groups: [{ instances: 1, threads: 4, batch: 4 }], latencyMs: 1 };
    expect(chosenOf([rounds, fat]).fastestForBatch(8, { kind: 'latency' })?.candidate.groups).toEqual(fat.groups);
    expect(chosenOf([rounds]).fastestForBatch(8, { kind: 'latency' })?.candidate.groups).toEqual(rounds.groups);
  });

  test('of a single row is among its own lists too', () => {
    const one: MeasuredList = { ...fat, batch: 1, groups: [{ instances: 1, threads: 1, batch: 1 }], latencyMs: 10 };
    const all: MeasuredList = { ...one, groups: [{ instances: 1, threads: 4, batch: 1 }], latencyMs: 9.8 };
    expect(chosenOf([one, all]).fastestForBatch(1, { kind: 'latency' })?.candidate.groups).toEqual(all.groups);
    const quick = { ...one, latencyMs: 5 };
    expect(chosenOf([quick, all]).fastestForBatch(1, { kind: 'latency' })?.candidate.groups).toEqual(one.groups);
  });
});

describe('instances that were idle', () => {
  const costs = [
    { threads: 1, gapMs: 20, extraMs: 2 },
    { threads: 1, gapMs: 80, extraMs: 3 },
    { threads: 4, gapMs: 20, extraMs: 9 },
  ];

  test('cost more the longer they were idle, up to the longest measured gap', () => {
    expect([0, 10, 20, 50, 80, 1000].map((gapMs) => idleExtraMs(costs, 1, gapMs))).toEqual([0, 1, 2, 2.5, 3, 3]);
    expect(idleExtraMs(costs, 2, 50)).toBe(0);
  });

  test('make a request slower by no more than that, and less the higher the load', () => {
    const candidate = found([4, 1, 1]);
    if (candidate.kind !== 'unbatched') throw new Error('batched');
    fc.assert(
      fc.property(fc.double({ min: 0.001, max: 0.95, noNaN: true }), (load) => {
        const rate = (load * 4000) / 12;
        const plain = mustBeStable(queued(candidate, rate));
        const slowed = mustBeStable(queued(candidate, rate, costs));
        expect(slowed.latencyMs).toBeGreaterThanOrEqual(plain.latencyMs);
        expect(slowed.serviceMs - plain.serviceMs).toBeLessThanOrEqual(3.6);
      }),
    );
    const extra = (rate: number): number =>
      mustBeStable(queued(candidate, rate, costs)).latencyMs - mustBeStable(queued(candidate, rate)).latencyMs;
    expect(extra(1)).toBeCloseTo(3, 1);
    expect(extra(330)).toBeLessThan(0.5);
  });
});

describe('requests that do not all take the same', () => {
  test('wait longer: with the variation of exponential times it is the queue M/M/1', () => {
    const candidate: UnbatchedCandidate = {
      kind: 'unbatched',
      groups: [{ instances: 1, threads: 1, batch: 1 }],
      cores: 1,
      batch: 1,
      serviceTimeMs: [10],
      variation: 1,
    };
    fc.assert(
      fc.property(fc.double({ min: 0.01, max: 0.95, noNaN: true }), (load) => {
        const predicted = mustBeStable(queued(candidate, load * 100));
        expect(waitMsOf(predicted)).toBeCloseTo((10 * load) / (1 - load), 6);
        expect(predicted.serviceMs).toBeCloseTo(10, 9);
      }),
    );
  });

  test('wait for the dispatch, whatever the load', () => {
    const slow = new PoolTable({ ...profile, dispatchMs: 0.5 }, options);
    for (const candidate of slow.candidates) {
      for (const rate of [1, 50]) {
        const plain = mustBeStable(table().predict(candidate, rate));
        const { latencyMs, serviceMs } = mustBeStable(slow.predict(candidate, rate));
        expect([latencyMs - plain.latencyMs, serviceMs - plain.serviceMs]).toEqual([expect.closeTo(0.5, 9), 0]);
      }
    }
  });
});

describe('lists worth measuring', () => {
  test("are the planner's, the fat one and the thin ones, each once", () => {
    const lists = listsToMeasure(profile, { cores: 4, sockets: [4], batch: 8 }).map(({ groups }) => groups);
    expect(lists).toContainEqual([{ instances: 1, threads: 4, batch: 8 }]);
    expect(lists).toContainEqual([{ instances: 4, threads: 1, batch: 2 }]);
    expect(new Set(lists.map((groups) => JSON.stringify(groups))).size).toBe(lists.length);
  });

  test('never give an instance cores of two sockets', () => {
    for (const { groups } of listsToMeasure(profile, { cores: 4, sockets: [2, 2], batch: 8 })) {
      for (const group of groups) expect(group.threads).toBeLessThanOrEqual(2);
    }
  });
});

const idle = {
  configuration: { groups: [{ instances: 4, threads: 1, batch: 1 }] },
  queueLength: 0,
  inFlight: 0,
  arrivalsPerSecond: 10,
} as const;

const live = (): LivePrediction => new LivePrediction(table(), 0);

describe('the service of an arrival', () => {
  test('is a run alone on an idle pool, and slower beside those at work on another', () => {
    expect(live().arrival(idle)).toEqual({ serviceMs: 10, cores: 1 });
    expect(live().arrival({ ...idle, inFlight: 3 })?.serviceMs).toBe(12);
  });

  test('behind a queue is that of a pool with all instances at work', () => {
    for (const queueLength of [0, 1, 50])
      expect(live().arrival({ ...idle, inFlight: 4, queueLength })?.serviceMs).toBe(12);
    expect(live().arrival({ ...idle, inFlight: 1, queueLength: 1 })?.serviceMs).toBe(12);
  });

  test('includes the extra time of an instance that was idle, unless requests wait', () => {
    const one = new LivePrediction(
      new PoolTable({ ...profile, idle: [{ threads: 1, gapMs: 20, extraMs: 2 }] }, options),
      0,
    );
    expect(one.arrival(idle)?.serviceMs).toBe(12);
    expect(one.arrival({ ...idle, inFlight: 4, queueLength: 1 })?.serviceMs).toBe(12);
  });

  test('on demand is that of instances of one core', () => {
    expect(live().arrival({ ...idle, configuration: undefined, inFlight: 1 })).toEqual({ serviceMs: 10.5, cores: 1 });
  });

  test('is not known for a configuration that was never measured', () => {
    expect(
      live().arrival({ ...idle, configuration: { groups: [{ instances: 3, threads: 1, batch: 1 }] } }),
    ).toBeUndefined();
  });

  test('of a batched pool is that of the mean request at the rate, and of a full batch under more than it can do', () => {
    const groups = [{ instances: 4, threads: 1, batch: 2 }];
    const mean = mustBeStable(table().predict(found([4, 1, 2]), idle.arrivalsPerSecond));
    expect(live().arrival({ ...idle, configuration: { groups } })?.serviceMs).toBe(mean.serviceMs);
    expect(live().arrival({ ...idle, configuration: { groups }, arrivalsPerSecond: 5000 })?.serviceMs).toBe(17);
  });
});

describe('correction by observation', () => {
  const candidate = found([4, 1, 1]);

  /** A window of ten seconds with 50 answers, of which so many run at once. */
  function window(
    one: LivePrediction,
    fromMs: number,
    latencyMs: number,
    serviceMs = latencyMs,
    atOnce = 1,
  ): ReturnType<LivePrediction['check']> {
    one.restart(fromMs);
    for (let answer = 0; answer < 50; answer++) {
      const turn = Math.floor(answer / atOnce) * 2 * serviceMs;
      one.answered(latencyMs, serviceMs, fromMs + turn + serviceMs + answer * 1e-6);
    }
    return one.check(candidate, fromMs + 10_000);
  }

  test('brings predictions to what is observed', () => {
    const one = live();
    const first = window(one, 0, 20);
    expect(first?.observedMs).toBe(20);
    expect(first?.errorRatio).toBeGreaterThan(0.4);
    let last = first;
    for (let round = 1; round < 30; round++) last = window(one, round * 10_000, 20);
    expect(last?.errorRatio).toBeLessThan(0.01);
    expect(mustBeStable(one.predict(candidate, 5)).latencyMs / 20).toBeCloseTo(1, 1.5);
  });

  test('is of the service time: a machine half as fast has the waits of twice the load, on a clock half as fast', () => {
    const one = live();
    for (let round = 0; round < 60; round++) {
      const atOnce = (round % 4) + 1;
      const serviceMs = 2 * [10, 10.5, 11, 12][atOnce - 1]!;
      window(one, round * 10_000, serviceMs + 100, serviceMs, atOnce);
    }
    for (const running of [1, 2, 3, 4]) expect(one.slowdowns.at(running)).toBeCloseTo(2, 1);
    for (const rate of [10, 50, 100]) {
      const slow = mustBeStable(one.predict(candidate, rate));
      const plain = mustBeStable(table().predict(candidate, 2 * rate));
      expect(waitMsOf(slow) / waitMsOf(plain)).toBeCloseTo(2, 0.5);
    }
    // Four instances of 12 ms can do 333 a second.
    expect(one.predict(candidate, 200)).toMatchObject({ state: 'overloaded' });
  });

  test('recovers from an overload that was predicted and did not come', () => {
    const one = live();
    for (let round = 0; round < 20; round++) window(one, round * 10_000, 40, 40, 4);
    expect(one.predict(candidate, 110)).toMatchObject({ state: 'overloaded' });
    for (let round = 20; round < 40; round++) window(one, round * 10_000, 10, 10, 4);
    expect(mustBeStable(one.predict(candidate, 100)).latencyMs).toBeLessThan(12);
  });

  test('keeps what a light load shows apart from what a busy pool shows', () => {
    const one = live();
    for (let round = 0; round < 30; round++) window(one, round * 10_000, 20);
    // As profiled where all four run, though twice as slow alone.
    for (let round = 30; round < 60; round++) window(one, round * 10_000, 12, 12, 4);
    expect(one.slowdowns.at(1)).toBeGreaterThan(1.1);
    expect(one.slowdowns.at(4)).toBeCloseTo(1, 1);
    const busy = mustBeStable(one.predict(candidate, 280));
    expect(busy.serviceMs / mustBeStable(table().predict(candidate, 280)).serviceMs).toBeLessThan(1.1);
  });

  test('finds the service time of each number at once of a service that slows down as others run beside', () => {
    const one = live();
    const serviceTimeMs = [11, 15, 19, 24];
    const run = (ratePerSecond: number, requests: number, seed: number) =>
      simulateService({
        serviceTimeMs,
        ratePerSecond,
        requests,
        seed,
        interference: 'fluid',
        onDone: (latencyMs, serviceMs, nowMs) => one.answered(latencyMs, serviceMs, nowMs),
      });
    for (let round = 0; round < 20; round++) {
      one.restart(0);
      run(60, 600, round + 1);
      one.check(candidate, 10_000);
    }
    // Of how many ran as a request began, that of two at once would be some 17 ms: others come, and it goes on with them.
    const found = serviceTimeMs.map((_, index) => one.slowdowns.at(index + 1) * [10, 10.5, 11, 12][index]!);
    for (const [index, timeMs] of found.entries()) expect(timeMs / serviceTimeMs[index]!).toBeCloseTo(1, 1.3);
    // At twice the load, which was never seen.
    const observed = run(120, 200_000, 7);
    expect(mustBeStable(one.predict(candidate, 120)).latencyMs / observed.latencyMs).toBeCloseTo(1, 1.3);
    expect(mustBeStable(table().predict(candidate, 120)).latencyMs / observed.latencyMs).toBeLessThan(0.7);
  });

  test('predicts loads before they come on a machine whose speed drifts', () => {
    const one = live();
    let logarithm = 0;
    const errors: number[] = [];
    const profileErrors: number[] = [];
    // Windows of four times two seconds; by each of these the speed has changed by 2% (a standard deviation).
    for (let window = 0; window < 100; window++) {
      const rate = [50, 90, 130, 170][window % 4]!;
      const predicted = [one.predict(candidate, rate), table().predict(candidate, rate)].map(mustBeStable);
      one.restart(0);
      let sumMs = 0;
      for (let piece = 0; piece < 4; piece++) {
        logarithm = 0.98 * logarithm + 0.02 * Math.sqrt(12) * (mix32(4 * window + piece + 1) / 2 ** 32 - 0.5);
        const serviceTimeMs = [10, 10.5, 11, 12].map((ms) => 1.2 * ms * Math.exp(logarithm));
        const { latencyMs } = simulateService({
          serviceTimeMs,
          ratePerSecond: rate,
          requests: 2 * rate,
          seed: 4 * window + piece,
          interference: 'fluid',
          onDone: (latency, service, nowMs) => one.answered(latency, service, 2000 * piece + nowMs),
        });
        sumMs += latencyMs;
      }
      one.check(candidate, 8000);
      if (window < 4) continue;
      const [error, profileError] = predicted.map(({ latencyMs }) => Math.abs((4 * latencyMs) / sumMs - 1));
      errors.push(error!);
      profileErrors.push(profileError!);
    }
    const [mean, profileMean] = [errors, profileErrors].map(
      (of) => of.reduce((sum, each) => sum + each, 0) / of.length,
    );
    expect(profileMean).toBeGreaterThan(0.15);
    expect(mean).toBeLessThan(0.045);
    expect(errors.toSorted((a, b) => a - b)[Math.floor(0.9 * errors.length)]).toBeLessThan(0.1);
  });

  test('of a number at once that was not seen follows the machine, and the more so the nearer it is to one that was', () => {
    const slowdowns = new Slowdowns(8);
    expect(slowdowns.at(3)).toBe(1);
    const observe = (running: number, ratio: number): void => {
      slowdowns.pass(10);
      const beyondProfile = Math.log(ratio);
      const shares = Array.from({ length: running }, (_, index) => Number(index === running - 1));
      const beyond = beyondProfile - Math.log(slowdowns.at(running));
      slowdowns.observe({ beyond, beyondProfile, shares, idleShare: 0, answers: 100 });
    };
    for (let window = 0; window < 30; window++) observe(1, 1.5);
    const factors = (): number[] => [1, 2, 4, 8].map((running) => slowdowns.at(running));
    const [alone, two, four, eight] = factors() as [number, number, number, number];
    expect(alone).toBeCloseTo(1.5, 2);
    expect([two < alone, four < two, eight < four, eight > 1.1]).toEqual([true, true, true, true]);
    for (let window = 0; window < 30; window++) observe(8, 1.1);
    expect(slowdowns.at(8)).toBeCloseTo(1.1, 2);
    expect(slowdowns.at(1)).toBeGreaterThan(1.3);
    // More than there are instances are as many as there are.
    expect(slowdowns.at(100)).toBe(slowdowns.at(8));
    // Other work takes the cores: seen of one at once alone, it holds for eight as well, and is soon forgotten.
    const before = factors();
    for (let window = 0; window < 3; window++) observe(1, slowdowns.at(1) * 1.1);
    expect(slowdowns.at(8) / before[3]!).toBeGreaterThan(1.08);
    slowdowns.pass(600);
    expect(slowdowns.at(8) / before[3]!).toBeLessThan(1.08);
  });

  test('of a list that gathers batches is of its instances together', () => {
    const one = live();
    const list = found([4, 1, 2]);
    const { serviceMs } = mustBeStable(table().predict(list, 50));
    for (let round = 0; round < 30; round++) {
      one.restart(round * 1000);
      for (let answer = 0; answer < 50; answer++) one.answered(50, 1.5 * serviceMs, round * 1000 + answer * 20);
      one.check(list, (round + 1) * 1000);
    }
    expect(one.slowdowns.at(4)).toBeGreaterThan(1.3);
    expect(one.slowdowns.at(4)).toBeLessThan(1.6);
  });

  test('is never further than four times off, and needs twenty answers', () => {
    const one = live();
    for (let round = 0; round < 100; round++) window(one, round * 10_000, 1e6);
    expect(one.slowdowns.at(1)).toBeLessThanOrEqual(4);
    expect(one.slowdowns.at(1)).toBeGreaterThan(3.9);
    one.restart(0);
    one.answered(1, 1, 1);
    expect(one.check(candidate, 1000)).toBeUndefined();
  });
});

test('a profile from a file is checked', () => {
  const json: unknown = JSON.parse(JSON.stringify(profile));
  expect(parseCpuProfile(json)).toEqual(profile);
  expect(() => parseCpuProfile({ ...profile, format: 1 })).toThrow(
    "field 'format' of the CPU profile is 1, but must be 3",
  );
  expect(() => parseCpuProfile({ ...profile, startMs: 'soon' })).toThrow("'startMs'");
  expect(() => parseCpuProfile({ ...profile, pool: { ...profile.pool, latency: [] } })).toThrow("'latency'");
  expect(() => parseCpuProfile(null)).toThrow('CPU profile');
});

test('a profile with instances that no pool can have is refused by the name of the field', () => {
  const [group] = profile.lists[0]!.groups;
  for (const [field, values] of [
    ['instances', [0, 0.5, 1025]],
    ['threads', [0, 1.5, 1025]],
    ['batch', [0, 2.5, 65_537]],
  ] as const) {
    for (const value of values) {
      const lists = [{ ...profile.lists[0], groups: [{ ...group, [field]: value }] }];
      expect(() => parseCpuProfile({ ...profile, lists })).toThrow(`'lists[0].groups[0].${field}'`);
    }
  }
});

test('a profile with any entry corrupted or missing is refused before a pool uses it', () => {
  const whole: CpuProfile = {
    ...profile,
    dimensions: { sequence: 128 },
    variation: [{ concurrency: 1, threads: 1, squared: 0.1 }],
    idle: [{ threads: 1, gapMs: 20, extraMs: 1 }],
  };
  // Objects are checked by their contents. The machine of the figures is left out: no pool is run by it.
  const paths = pathsOf(whole).filter((path) => path.at(-1) !== 'provenance');
  expect(paths.length).toBeGreaterThan(100);
  for (const path of paths) {
    for (const spoiled of [{}, 'text', -1, undefined]) {
      const wasText = typeof at(whole, path) === 'string';
      if ((wasText && spoiled === 'text') || (path.at(-1) === 'dimensions' && JSON.stringify(spoiled) === '{}'))
        continue;
      // JSON omits undefined, and in a list writes null, which there means "not measured".
      if (spoiled === undefined && typeof path.at(-1) === 'number' && ['latency', 'spread'].includes(String(path.at(-3)))) continue; // prettier-ignore
      if (spoiled === undefined && path.join('.') === 'dimensions.sequence') continue;
      const json = structuredClone(whole) as unknown as Record<string, unknown>;
      const parent = at(json, path.slice(0, -1)) as Record<string | number, unknown>;
      parent[path.at(-1) ?? ''] = spoiled;
      const where = `${path.join('.')} = ${JSON.stringify(spoiled)}`;
      expect(() => parseCpuProfile(JSON.parse(JSON.stringify(json))), where).toThrow(ProfileError);
    }
  }
});

function at(value: unknown, path: readonly (string | number)[]): unknown {
  return path.reduce((inner, key) => (inner as Record<string | number, unknown>)[key], value);
}

/** Paths of every entry, including objects and lists. */
function pathsOf(value: unknown, prefix: readonly (string | number)[] = []): (readonly (string | number)[])[] {
  if (typeof value !== 'object' || value === null) return [];
  const paths: (readonly (string | number)[])[] = [];
  for (const [name, inner] of Object.entries(value)) {
    const path = prefix.concat(Array.isArray(value) ? Number(name) : name);
    paths.push(path, ...pathsOf(inner, path));
  }
  return paths;
}
