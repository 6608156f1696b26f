import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import cases from '../../../test/reference/serf.json' with { type: 'json' };
import kinds from '../../../test/reference/serf-simulated-kinds.json' with { type: 'json' };
import type { ServiceProfile } from '../../profile/index.ts';
import {
  capacityPerSecond,
  evenLoadLevels,
  leastResources,
  predictService,
  serfTable,
  type ServicePrediction,
} from './index.ts';
import { simulateService } from '../../../test/support/serf-simulation.ts';

function mustBeStable(prediction: ServicePrediction): Extract<ServicePrediction, { state: 'stable' }> {
  if (prediction.state !== 'stable') throw new Error(`overloaded at ${prediction.utilisation}`);
  return prediction;
}

const relative = (ours: number, theirs: number): number => Math.abs(ours / theirs - 1);

describe('Equation 12 on the reference values', () => {
  test.each(cases)('gives the latency of $kind at $rate per second', (reference) => {
    const prediction = mustBeStable(
      predictService(
        reference.serviceRate.map((perSecond) => 1000 / perSecond),
        reference.rate,
      ),
    );
    for (const [ours, theirs] of [
      [prediction.latencyMs, reference.latencySeconds],
      [prediction.serviceMs, reference.serviceSeconds],
      [prediction.waitMs, reference.waitSeconds],
    ] as const) {
      // 1e-6 of the value, plus the rounding of the reference, printed with six decimals of a second.
      expect(Math.abs(ours / 1000 - theirs)).toBeLessThanOrEqual(theirs * 1e-6 + 5.01e-7);
    }
    expect(prediction.idleProbability).toBeCloseTo(reference.idleProbability, 5.9);
  });

  test.each(kinds)(
    'gives the latency of $kind at $ratePerSecond per second to the hundredth of a millisecond',
    (kind) => {
      const prediction = mustBeStable(predictService(kind.serviceTimeMs, kind.ratePerSecond));
      expect(relative(prediction.latencyMs, kind.latencyMs)).toBeLessThan(1e-4);
      expect(relative(prediction.waitMs, kind.waitMs)).toBeLessThan(2e-4);
      expect(relative(prediction.serviceMs, kind.serviceMs)).toBeLessThan(1e-4);
    },
  );

  test('is M/D/1 for one server', () => {
    const { latencyMs, waitMs } = mustBeStable(predictService([1000 / 3], 1.8));
    expect(waitMs).toBeCloseTo(250, 9);
    expect(latencyMs).toBeCloseTo(1750 / 3, 9);
  });
});

/** Service times that grow with each running request. */
const growingService = fc
  .array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: 0, maxLength: 15 })
  .map((steps) => {
    const serviceTimeMs = [100];
    for (const step of steps) serviceTimeMs.push((serviceTimeMs.at(-1) ?? 0) * (1 + step));
    return serviceTimeMs;
  });

describe('properties of the prediction', () => {
  test('the mean service time is the mean number of running requests over the rate (Little)', () => {
    fc.assert(
      fc.property(growingService, fc.double({ min: 0.01, max: 0.99, noNaN: true }), (serviceTimeMs, load) => {
        const rate = load * capacityPerSecond(serviceTimeMs);
        const { serviceMs, idleProbability } = mustBeStable(predictService(serviceTimeMs, rate));
        // The chain's own balance: p_n by Equation 1, and running = min(n, c).
        const c = serviceTimeMs.length;
        let state = idleProbability;
        let running = 0;
        let below = 0;
        for (let n = 0; n < c; n++) {
          running += n * state;
          below += state;
          state *= ((rate / 1000) * (serviceTimeMs[n] ?? 0)) / (n + 1);
        }
        running += c * (1 - below);
        expect(relative(serviceMs, (running / rate) * 1000)).toBeLessThan(1e-6);
      }),
    );
  });

  test('more load never means less latency if requests slow each other down', () => {
    fc.assert(
      fc.property(growingService, (serviceTimeMs) => {
        const capacity = capacityPerSecond(serviceTimeMs);
        const latencies = [0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99].map(
          (load) => mustBeStable(predictService(serviceTimeMs, load * capacity)).latencyMs,
        );
        expect(latencies).toEqual(latencies.toSorted((a, b) => a - b));
        expect(latencies[0]).toBe(serviceTimeMs[0]);
      }),
    );
  });

  test('load at or beyond capacity is overloaded', () => {
    expect(predictService([500, 500], 4)).toEqual({ state: 'overloaded', utilisation: 1 });
    expect(predictService([500, 500], 10)).toEqual({ state: 'overloaded', utilisation: 2.5 });
    expect(predictService([100, 400], 5)).toEqual({ state: 'overloaded', utilisation: 1 });
    expect(predictService([500, 500], 3.999999)).toMatchObject({ state: 'stable' });
  });

  test('a thousand servers do not overflow', () => {
    const { latencyMs, waitMs } = mustBeStable(
      predictService(
        Array.from({ length: 1000 }, () => 1000),
        900,
      ),
    );
    expect(latencyMs).toBeCloseTo(1000, 0);
    expect(waitMs).toBeGreaterThan(0);
  });

  test('invalid arguments are refused', () => {
    expect(() => predictService([], 1)).toThrow('no service time');
    expect(() => predictService([10, -1], 1)).toThrow('with 2 running is -1');
    expect(() => predictService([10], -1)).toThrow('the rate is -1');
    expect(() => predictService([10], Number.NaN)).toThrow('the rate is NaN');
  });
});

describe('the formula against an event simulation of the queue', () => {
  const smooth = [
    ...kinds,
    ...cases
      .filter(({ kind }) => !/late knee|thrash/.test(kind))
      .filter(
        ({ rate, concurrency }) =>
          !kinds.some((kind) => kind.ratePerSecond === rate && kind.serviceTimeMs.length === concurrency),
      )
      .map(({ kind, serviceRate, rate }) => ({
        kind,
        serviceTimeMs: serviceRate.map((perSecond) => 1000 / perSecond),
        ratePerSecond: rate,
      })),
  ];

  test.each(smooth)(
    'the latency of $kind at $ratePerSecond per second is within 4% of the simulation',
    ({ serviceTimeMs, ratePerSecond }) => {
      const { latencyMs, utilisation } = mustBeStable(predictService(serviceTimeMs, ratePerSecond));
      // A fuller queue has a longer memory, so a mean needs more requests.
      const requests = utilisation > 0.85 ? 600_000 : utilisation > 0.5 ? 200_000 : 40_000;
      for (const interference of ['start', 'fluid'] as const) {
        const simulated = simulateService({ serviceTimeMs, ratePerSecond, interference, requests, seed: 7 });
        expect(relative(latencyMs, simulated.latencyMs)).toBeLessThan(0.04);
        expect(simulated.latencyMsP99).toBeGreaterThan(simulated.latencyMs * 0.99);
      }
    },
  );

  test('the simulation has the latencies of the reference simulation, including those that the formula misses', () => {
    for (const { serviceRate, rate, simulatedStartSeconds, simulatedFluidSeconds } of cases) {
      const serviceTimeMs = serviceRate.map((perSecond) => 1000 / perSecond);
      // At a low load the mean of so many is within 0.7% already.
      const isLow = rate < 0.5 * capacityPerSecond(serviceTimeMs);
      const options = { serviceTimeMs, ratePerSecond: rate, requests: isLow ? 40_000 : 250_000, seed: 11 };
      const start = simulateService({ ...options, interference: 'start' });
      const fluid = simulateService({ ...options, interference: 'fluid' });
      expect(relative(start.latencyMs, simulatedStartSeconds * 1000)).toBeLessThan(0.025);
      expect(relative(fluid.latencyMs, simulatedFluidSeconds * 1000)).toBeLessThan(0.025);
    }
  });

  test('a seed repeats the same simulation', () => {
    const options = { serviceTimeMs: [10, 12], ratePerSecond: 100, interference: 'fluid', requests: 2000 } as const;
    expect(simulateService({ ...options, seed: 1 })).toEqual(simulateService({ ...options, seed: 1 }));
    expect(simulateService({ ...options, seed: 1 })).not.toEqual(simulateService({ ...options, seed: 2 }));
  });
});

/** One request on 8 threads, or four in parallel that slow each other down, or one on two machines. */
const profile: ServiceProfile = {
  unit: 'ms',
  configurations: [
    { concurrency: 1, threads: 8, nodes: 1, serviceTime: [100] },
    { concurrency: 4, threads: 2, serviceTime: [250, 260, 280, 300] },
    { concurrency: 1, threads: 8, nodes: 2, serviceTime: [60] },
  ],
};

describe('the table of best configurations', () => {
  test('the table of best configurations changes with the load', () => {
    const single: ServiceProfile = { unit: 'ms', configurations: profile.configurations.slice(0, 2) };
    const bests = serfTable(single, [1, 7, 9.5, 12, 14]).map(({ best }) => best?.configuration.concurrency);
    expect(bests).toEqual([1, 1, 4, 4, undefined]);
  });

  test('the table of best configurations has every configuration, overloaded ones included', () => {
    const [level] = serfTable(profile, [12]);
    expect(level?.all.map(({ prediction }) => prediction.state)).toEqual(['overloaded', 'stable', 'stable']);
    expect(level?.best?.configuration.nodes).toBe(2);
  });

  test('the table of best configurations divides a cluster into serving units', () => {
    const [level] = serfTable(profile, [9], { machines: 2 });
    expect(level?.all.map(({ units }) => units)).toEqual([2, 2, 1]);
    const alone = predictService([100], 4.5);
    expect(level?.all[0]?.prediction).toEqual(alone);
    const [tooFew] = serfTable(profile, [1], { machines: 1 });
    expect(tooFew?.all[2]).toMatchObject({ units: 0, prediction: { state: 'overloaded' } });
  });

  test('the table of best configurations picks the configuration with fewest threads if several are equally fast', () => {
    const equal: ServiceProfile = {
      unit: 'ms',
      configurations: [
        { concurrency: 1, threads: 8, serviceTime: [100] },
        { concurrency: 1, threads: 4, serviceTime: [100] },
      ],
    };
    expect(serfTable(equal, [1])[0]?.best?.configuration.threads).toBe(4);
  });

  test('the table of best configurations has default load levels', () => {
    const levels = evenLoadLevels(profile, 10);
    expect(levels).toHaveLength(10);
    expect(levels.at(-1)).toBeCloseTo(0.95 * (1000 / 60), 2);
    expect(serfTable(profile, levels).every(({ best }) => best !== undefined)).toBe(true);
  });
});

describe('least resources for an SLO', () => {
  test('least resources for an SLO are found with as few machines as possible', () => {
    const choice = leastResources(profile, { ratePerSecond: 8, sloMs: 301, machines: 10 });
    expect(choice).toMatchObject({ machines: 1, threads: 8 });
    const faster = leastResources(profile, { ratePerSecond: 8, sloMs: 90, machines: 10 });
    expect(faster).toMatchObject({ machines: 2, threads: 16, configuration: { nodes: 2 } });
  });

  test('least resources for an SLO are undefined if all machines together are not enough', () => {
    expect(leastResources(profile, { ratePerSecond: 1, sloMs: 50, machines: 10 })).toBeUndefined();
    expect(leastResources(profile, { ratePerSecond: 1000, sloMs: 1000, machines: 10 })).toBeUndefined();
  });

  test('least resources for an SLO are found among a billion machines too', () => {
    const choice = leastResources(profile, { ratePerSecond: 1e6, sloMs: 65, machines: 1e9 });
    expect(choice?.configuration.nodes).toBe(2);
    expect(choice?.machines).toBeGreaterThan(2e5);
  });

  test('least resources for an SLO are refused without an SLO or machines', () => {
    expect(() => leastResources(profile, { ratePerSecond: 1, sloMs: 0, machines: 1 })).toThrow('the SLO is 0');
    expect(() => leastResources(profile, { ratePerSecond: 1, sloMs: 9, machines: 0.5 })).toThrow('machines is 0.5');
  });

  test('least resources for an SLO meet the SLO, while one machine less does not', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 1, max: 100, noNaN: true }),
        fc.double({ min: 61, max: 1000, noNaN: true }),
        (ratePerSecond, sloMs) => {
          const choice = leastResources(profile, { ratePerSecond, sloMs, machines: 40 });
          const met = (machines: number): boolean =>
            serfTable(profile, [ratePerSecond], { machines }).some(
              ({ best }) => best?.prediction.state === 'stable' && best.prediction.latencyMs <= sloMs,
            );
          expect(met(choice?.machines ?? 40)).toBe(choice !== undefined);
          expect(choice !== undefined && choice.machines > 1 && met(choice.machines - 1)).toBe(false);
        },
      ),
    );
  });
});
