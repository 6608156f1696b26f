import { describe, expect, test } from 'vitest';
import { loadMachine } from '../../hardware/index.ts';
import type { FleetRow } from '../../report/index.ts';
import { policies } from '../../schedule/index.ts';
import { azureLikeTrace } from '../generate/azure-like.ts';
import { Xoshiro } from '../generate/random.ts';
import { OfferCache } from '../offer-cache.ts';
import { ReportBuilder } from '../tally/builder.ts';
import { simulate, type SimulationSettings } from '../simulate.ts';
import { limitTrace } from '../traces/transform.ts';
import type { Outcome, ReplayObserver, Trace, TraceInvocation } from '../types.ts';
import { simulateFleet } from './simulate-fleet.ts';
import { fleetRouters, type FleetSettings } from './types.ts';

const machine = loadMachine('p3.8xlarge');
const offers = new OfferCache(machine, 'interleave');
const settings: SimulationSettings = {
  machine,
  policy: policies.best,
  sheetOf: () => offers.sheet('bert-base', { sloMs: 100 }),
};
const functionNames = Array.from({ length: 400 }, (_, index) => `bert-base/${index}`);
/** Functions are numbered in order of appearance, as on a host of a fleet: numbers break ties between GPUs. */
const invocations = (() => {
  const numbers = new Map<number, number>();
  const drawn = limitTrace(azureLikeTrace({ functionNames, ratePerS: 300, minutes: 2, seed: 3 }), 6000);
  return Array.from(drawn.invocations(), ({ arrivalMs, functionIndex: drawnIndex }): TraceInvocation => {
    const functionIndex = numbers.get(drawnIndex) ?? numbers.size;
    numbers.set(drawnIndex, functionIndex);
    return { arrivalMs, functionIndex };
  });
})();
const trace: Trace = { functionNames, invocations: () => invocations };
const fleet: FleetSettings = {
  router: 'homes',
  failures: [],
  roundTripMs: 1,
  networkGBps: 3.125,
  callBytes: 1000,
  contentBytes: () => 440e6,
  seed: 5,
};

function observed(): ReplayObserver & { readonly outcomes: Outcome[] } {
  const outcomes: Outcome[] = [];
  return {
    outcomes,
    outcome: (outcome) => void outcomes.push({ ...outcome }),
    eviction: () => undefined,
    busy: () => undefined,
  };
}

const hostsOf = (count: number): SimulationSettings[] => Array.from({ length: count }, () => settings);

async function play(
  changes: Partial<FleetSettings>,
  hosts = hostsOf(4),
): Promise<{ row: FleetRow; outcomes: readonly Outcome[] }> {
  const observer = observed();
  const row = simulateFleet(trace, hosts, { ...fleet, ...changes }, observer);
  return { row, outcomes: observer.outcomes.toSorted((a, b) => a.sequence - b.sequence) };
}

/** Of a fleet whose hosts have 4 GPUs, 8 and 4. */
const hostOfGpu = (gpu: number): number => (gpu < 4 ? 0 : gpu < 12 ? 1 : 2);

const inSlo = (outcomes: readonly Outcome[]): number =>
  outcomes.filter(({ placement, arrivalMs, endMs, sloMs }) => placement.kind === 'gpu' && endMs - arrivalMs <= sloMs)
    .length / outcomes.length;

/** At whatever place. */
const inTime = (outcomes: readonly Outcome[]): number =>
  outcomes.filter(({ arrivalMs, endMs, sloMs }) => endMs - arrivalMs <= sloMs).length / outcomes.length;

const meanMs = (outcomes: readonly Outcome[]): number =>
  outcomes.reduce((sum, { arrivalMs, endMs }) => sum + endMs - arrivalMs, 0) / outcomes.length;

describe('a simulated fleet', () => {
  test.each(['homes', 'random', 'least-loaded', 'one'] as const)(
    'of one host under %s is the machine itself, call by call',
    async (router) => {
      const alone = observed();
      simulate(trace, settings, alone);
      const { row, outcomes } = await play({ router }, hostsOf(1));
      expect(outcomes).toEqual(alone.outcomes.toSorted((a, b) => a.sequence - b.sequence));
      expect(row).toMatchObject({ passed: 0, call_bytes: 0, content_bytes: 0 });
    },
  );

  test.each(fleetRouters)(
    'under %s ends every call once, also when hosts are lost, and again the same way',
    async (router) => {
      const failures = [
        { host: 1, atMs: 8000, backMs: 14_000 },
        { host: 3, atMs: 9000, backMs: Infinity },
      ];
      const { row, outcomes } = await play({ router, failures });
      expect(outcomes.map(({ sequence }) => sequence)).toEqual(Array.from({ length: 6000 }, (_, index) => index));
      for (const { placement, arrivalMs } of outcomes) {
        const isLost3 = placement.kind === 'gpu' && placement.gpu >= 12 && arrivalMs > 9000;
        expect(isLost3).toBe(false);
      }
      const failed = outcomes.filter(({ placement }) => placement.kind === 'failed').length;
      expect(failed).toBe(row.failures.reduce((sum, { lost }) => sum + lost, 0));
      expect(await play({ router, failures })).toEqual({ row, outcomes });
    },
  );

  test('passed calls have the way there and back in their time, and their bytes are counted', async () => {
    const near = await play({ roundTripMs: 0 });
    const far = await play({ roundTripMs: 40 });
    const passed = Math.round(far.row.passed * 6000);
    expect(far.row.call_bytes).toBe(passed * 1000);
    // Three of four arrive at a host that is not their home.
    expect(far.row.passed).toBeGreaterThan(0.6);
    expect(meanMs(far.outcomes) - meanMs(near.outcomes)).toBeGreaterThan(40 * far.row.passed * 0.8);
  });

  test('a simulated fleet with homes meets more SLOs than one without, and nearly as many as a single scheduler', async () => {
    const [homes, random, one] = await Promise.all(
      (['homes', 'random', 'one'] as const).map(async (router) => await play({ router })),
    );
    expect(inSlo(homes!.outcomes)).toBeGreaterThan(inSlo(random!.outcomes) + 0.05);
    expect(inSlo(homes!.outcomes)).toBeGreaterThan(inSlo(one!.outcomes) - 0.01);
    expect(homes!.row.content_bytes).toBeLessThan(random!.row.content_bytes);
  });

  test('a simulated fleet that loses a host runs its passed calls elsewhere, and its functions get other homes', async () => {
    // Long calls, so that some are under way.
    const slow: FleetSettings = { ...fleet, failures: [{ host: 2, atMs: 10_000, backMs: Infinity }], roundTripMs: 60 };
    const { row, outcomes } = await play(slow);
    expect(row.failures).toMatchObject([{ host: 2, at_s: 10, back_s: null }]);
    expect(row.failures[0]!.rerun).toBeGreaterThan(0);
    expect(row.moves).toBeGreaterThan(50);
    const late = outcomes.filter(({ arrivalMs }) => arrivalMs > 12_000);
    expect(inSlo(late)).toBeGreaterThan(0.9);
    expect(late.some(({ placement }) => placement.kind === 'gpu' && placement.gpu >= 8 && placement.gpu < 12)).toBe(
      false,
    );
  });

  test.each([2, 4])(
    'a simulated fleet of %i hosts spreads one hot function over them, once they have its content',
    async (hosts) => {
      const calls = 1000 * hosts;
      // At half of what the GPUs of the hosts execute.
      const random = new Xoshiro(1);
      let arrivalMs = 0;
      const hot: Trace = {
        functionNames: ['bert-base/0'],
        *invocations() {
          for (let call = 0; call < calls; call++) {
            arrivalMs += random.exponential(200 * hosts) * 1000;
            yield { arrivalMs, functionIndex: 0 };
          }
        },
      };
      const observer = observed();
      simulateFleet(hot, hostsOf(hosts), fleet, observer);
      expect(inSlo(observer.outcomes.filter(({ sequence }) => sequence >= calls / 4))).toBeGreaterThan(0.95);
    },
  );

  test.each(fleetRouters)(
    'under %s counts only what arrives behind the warm-up, each call at one host',
    async (router) => {
      const builder = new ReportBuilder();
      const warmup = 2000;
      const measured: Trace = { functionNames, invocations: () => builder.measured(invocations, warmup) };
      const row = simulateFleet(measured, hostsOf(4), { ...fleet, router }, builder);
      const requests = row.per_host.reduce((sum, host) => sum + host.requests, 0);
      expect(requests).toBe(router === 'one' ? 0 : invocations.length - warmup);
      const spanS = (invocations.at(-1)!.arrivalMs - invocations[warmup]!.arrivalMs) / 1000;
      for (const host of row.per_host) expect(host.busy_s).toBeLessThan(4 * (spanS + 1));
      const passed = Object.values(row.reasons).reduce((sum, count) => sum + count, 0);
      expect(passed).toBe(router === 'homes' ? invocations.length - warmup : 0);
    },
  );

  describe('of different machines', () => {
    const large = loadMachine('h100x8');
    const ofLarge = new OfferCache(large, 'interleave');
    const largeSettings: SimulationSettings = {
      machine: large,
      policy: policies.best,
      sheetOf: () => ofLarge.sheet('bert-base', { sloMs: 100 }),
    };
    const unequal = [settings, largeSettings, settings];

    test.each(fleetRouters)('under %s gives each host what its own GPUs take', async (router) => {
      // Without homes most calls would wait for content, which says nothing about GPUs.
      const { row, outcomes } = await play({ router, contentBytes: () => 0 }, unequal);
      expect(row.hosts).toBe(3);
      expect(inSlo(outcomes)).toBeGreaterThan(0.9);
      const requests = [0, 0, 0];
      for (const { placement, arrivalMs, endMs } of outcomes) {
        if (placement.kind !== 'gpu') continue;
        const host = hostOfGpu(placement.gpu);
        requests[host]!++;
        // A warm run takes 2.5 ms on an H100, and 9.5 ms on a V100.
        const { warmMs } = unequal[host]!.sheetOf(0, '').gpus[0]!;
        expect(endMs - arrivalMs).toBeGreaterThanOrEqual(warmMs - 1e-6);
      }
      // One scheduler over all of them needs no more than the GPUs that are faster.
      if (router === 'one') return;
      expect(requests.every((count) => count > 0)).toBe(true);
      expect(row.per_host).toMatchObject([
        { host: 0, machine: 'p3.8xlarge', gpus: 4, requests: requests[0] },
        { host: 1, machine: 'h100x8', gpus: 8, requests: requests[1] },
        { host: 2, machine: 'p3.8xlarge', gpus: 4, requests: requests[2] },
      ]);
    });

    test('with homes gives a host without GPUs as many functions as its cores can serve', async () => {
      const cpuMachine = loadMachine('cpu-16');
      const onCpu = new OfferCache(cpuMachine, 'interleave');
      const cpuSettings: SimulationSettings = {
        machine: cpuMachine,
        policy: policies.best,
        sheetOf: () => onCpu.sheet('bert-base', { sloMs: 100, cpu: { latencyMs: 60, cores: 8 } }),
      };
      const changes = { contentBytes: () => 0, roundTripMs: 1 };
      const { row, outcomes } = await play({ ...changes, router: 'homes' }, [cpuSettings, settings, settings]);
      const random = await play({ ...changes, router: 'random' }, [cpuSettings, settings, settings]);
      // Two calls at once of 60 ms each are 33 a second; a third of 300 a second arrives there.
      expect(inTime(outcomes)).toBeGreaterThan(inTime(random.outcomes) + 0.1);
      expect(row.per_host[0]!.requests).toBeGreaterThan(0);
      expect(row.per_host[0]!.requests).toBeLessThan(outcomes.length / 10);
    });

    test('that loses its large host runs calls on the others alone', async () => {
      const { outcomes } = await play({ failures: [{ host: 1, atMs: 5000, backMs: Infinity }] }, unequal);
      const late = outcomes.filter(({ arrivalMs }) => arrivalMs > 6000);
      expect(late.length).toBeGreaterThan(0);
      for (const { placement } of late) expect(placement.kind === 'gpu' && hostOfGpu(placement.gpu)).not.toBe(1);
    });
  });

  test('a simulated fleet refuses a failure of a host that it does not have', async () => {
    await expect(play({ failures: [{ host: 4, atMs: 0, backMs: Infinity }] })).rejects.toThrow(
      'there is no host 4 to fail; there are 4, from 0 on',
    );
  });
});
