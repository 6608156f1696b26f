import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { offerSheet, smallGpus } from '../support/offers.ts';
import { policies, type OfferSheet, type PolicyName } from '../../src/schedule/index.ts';
import { poissonTrace, type LiveAnswer, type Outcome } from '../../src/replay/index.ts';
import { besideSimulator, type BesideSimulator } from '../../bench/simulated/compare-simulated.ts';
import { differencesOf } from '../../bench/simulated/differences.ts';
import {
  parseHostScheduler,
  parseOfferedFunction,
  type HostScheduler,
  type OfferedFunction,
} from '../../bench/simulated/host-scheduler.ts';
import { simulateHost, type SimulatedHost } from '../../bench/simulated/simulation.ts';

const gpuCount = 2;
const functionNames = ['a', 'b', 'c', 'd', 'e'];
const nameOf = (index: number): string => functionNames[index]!;
/** Two of five fit on each GPU; a cold start takes 41 ms, a warm one 10. */
const sheet: OfferSheet = offerSheet(gpuCount, { layers: [20, 20] }, { cpu: { latencyMs: 60, cores: 1 } });

function hostOf(policyName: PolicyName, own: Partial<OfferedFunction> = {}): SimulatedHost {
  const scheduler: HostScheduler = {
    status: 'up',
    reason: undefined,
    isEmulated: true,
    mode: 'dha',
    policyName,
    policy: policies[policyName],
    cpuCores: 2,
    gpus: smallGpus(gpuCount, 90),
    functions: [],
  };
  const functions = new Map(
    // As a host's scheduler may have numbered them.
    functionNames.map((name, index) => [name, { name, index: 7 - index, residents: [], idleMs: null, sheet, ...own }]),
  );
  return { scheduler, functions, nameOf };
}

/** A host that is the simulator itself: its answers are the simulated ones, except for the test's additions. */
async function answersOf(
  host: SimulatedHost,
  requests: number,
  seed: number,
  added: { readonly lateMs?: number; readonly transportMs?: number; readonly hostMs?: number } = {},
): Promise<LiveAnswer[]> {
  const { lateMs = 0, transportMs = 0, hostMs = 0 } = added;
  const trace = poissonTrace({ functionNames, ratePerS: 60, requests, seed });
  const asked = [...trace.invocations()].map(({ arrivalMs, functionIndex }, sequence): LiveAnswer => {
    const outcome: Outcome = {
      sequence,
      functionIndex,
      arrivalMs,
      endMs: arrivalMs,
      queueMs: 0,
      sloMs: 100,
      placement: { kind: 'cpu' },
    };
    return { outcome, sentMs: arrivalMs + lateMs, loadMs: 0, inferenceMs: 0, hostMs: 0 };
  });
  const answers: LiveAnswer[] = [];
  const observer = {
    outcome: (outcome: Outcome): void => {
      const servedMs = outcome.endMs - outcome.arrivalMs - outcome.queueMs;
      answers[outcome.sequence] = {
        outcome: { ...outcome, endMs: outcome.endMs + lateMs + transportMs + hostMs },
        sentMs: outcome.arrivalMs + lateMs,
        loadMs: servedMs / 4,
        inferenceMs: (3 * servedMs) / 4,
        hostMs: outcome.queueMs + servedMs + hostMs,
      };
    },
    eviction: () => undefined,
    busy: () => undefined,
  };
  simulateHost(asked, host, observer);
  return answers;
}

function beside(host: SimulatedHost, answers: readonly LiveAnswer[], warmupRequests = 0): BesideSimulator {
  const context = { machine: 'the test', seed: 1, settings: {}, functionNames };
  return besideSimulator(answers, { host, warmupRequests, context });
}

describe('a host that does as the simulator says', () => {
  it.each(['best', 'artifact'] as const)('differs in nothing, under the policy %s', async (policyName) => {
    const host = hostOf(policyName);
    const answers = await answersOf(host, 400, 3);

    const { differences, simulated } = beside(host, answers);

    expect(differences).toMatchObject({ requests: 400, placed_differently: 0 });
    expect(new Set(answers.map(({ outcome: { placement } }) => placement.kind))).toContain('gpu');
    expect(simulated).toMatchObject({ simulated: true, requests: 400, evictions: expect.any(Number) as number });
    expect(simulated.evictions).toBeGreaterThan(20);
    for (const { ratio } of differences.service) expect(ratio ?? 1).toBeCloseTo(1, 6);
    for (const partMs of Object.values(differences.latency.difference)) expect(partMs).toBeCloseTo(0, 6);
  });

  it('is detected to have slower service, network time and a late client', async () => {
    const host = hostOf('best');
    const slow = new Map(
      Array.from(host.functions, ([name, fn]) => [
        name,
        {
          ...fn,
          sheet: offerSheet(
            gpuCount,
            { layers: [20, 20], warmMs: 20, msPerByte: 2 },
            { cpu: { latencyMs: 120, cores: 1 } },
          ),
        },
      ]),
    );
    const answers = await answersOf({ ...host, functions: slow }, 300, 5, { lateMs: 2, transportMs: 3, hostMs: 4 });

    const { differences } = beside(host, answers);

    expect(differences.service.find(({ start }) => start === 'warm')?.ratio).toBeCloseTo(2, 1);
    expect(differences.placed_differently).toBeGreaterThan(0);
    const { difference, measured_mean_ms: measured, simulated_mean_ms: simulated } = differences.latency;
    expect(difference).toMatchObject({ sent_late_ms: 2 });
    expect(difference.transport_ms).toBeCloseTo(3, 6);
    expect(difference.host_ms).toBeCloseTo(4, 6);
    const sum = Object.values(difference).reduce((total: number, part) => total + (part ?? 0), 0);
    expect(sum).toBeCloseTo(measured! - simulated!, 3);
  });

  it('leaves the warm-up out on both sides', async () => {
    const host = hostOf('best');
    const answers = await answersOf(host, 100, 7);

    const { differences, simulated } = beside(host, answers, 40);

    expect(differences.requests).toBe(60);
    expect(simulated).toMatchObject({ requests: 60, warmup_requests: 40 });
  });

  it('begins with the resident functions, without reporting how they got there', async () => {
    const cold = hostOf('best');
    const warm = hostOf('best', { residents: [{ gpu: 0 }], idleMs: 5 });
    const answers = (await answersOf(cold, 400, 3)).slice(0, 1);

    const [fromNothing, fromThere] = [beside(cold, answers), beside(warm, answers)];

    expect(fromNothing.simulated).toMatchObject({ requests: 1, cold_starts: 1, evictions: 0 });
    expect(fromThere.simulated).toMatchObject({ requests: 1, evictions: 0 });
    expect(fromThere.simulated.cold_starts).toBeLessThan(1);
  });
});

const sum = (numbers: readonly number[]): number => numbers.reduce((total, each) => total + each, 0);

describe('differences', () => {
  const outcome = fc
    .record({
      functionIndex: fc.nat(functionNames.length - 1),
      queueMs: fc.nat(50),
      servedMs: fc.nat(50),
      placement: fc.oneof(
        fc.record({
          kind: fc.constant('gpu' as const),
          gpu: fc.nat(gpuCount - 1),
          residency: fc.constantFrom('warm' as const, 'partial' as const, 'cold' as const),
        }),
        fc.constant({ kind: 'cpu' as const }),
        fc.constant({ kind: 'shed' as const }),
        fc.constant({ kind: 'failed' as const, reason: 'HTTP 500' }),
      ),
    })
    .map(({ functionIndex, queueMs, servedMs, placement }) => ({
      sequence: 0,
      functionIndex,
      arrivalMs: 0,
      endMs: queueMs + servedMs,
      queueMs,
      sloMs: 60,
      placement,
    }));

  it('count every request once, and their parts add up', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(outcome, outcome), { minLength: 1, maxLength: 60 }), (pairs) => {
        const answers = pairs.map(([one], sequence): LiveAnswer => ({
          outcome: { ...one, sequence, endMs: one.endMs + 7 },
          sentMs: 1,
          loadMs: (one.endMs - one.queueMs) / 2,
          inferenceMs: (one.endMs - one.queueMs) / 2,
          hostMs: one.endMs + 2,
        }));
        const simulated = new Map(
          pairs.map(([{ functionIndex }, other], sequence) => [sequence, { ...other, sequence, functionIndex }]),
        );

        const found = differencesOf(answers, simulated);

        const isAlike = ([one, other]: (typeof pairs)[number]): boolean =>
          one.placement.kind === 'gpu' && other.placement.kind === 'gpu'
            ? one.placement.gpu === other.placement.gpu && one.placement.residency === other.placement.residency
            : one.placement.kind === other.placement.kind;
        expect(found.requests).toBe(pairs.length);
        expect(found.placed_differently).toBe(pairs.filter((pair) => !isAlike(pair)).length);
        expect(found.on_another_gpu + found.with_another_start + found.on_another_processor).toBe(
          found.placed_differently,
        );
        const { requests, measured_mean_ms: measured, simulated_mean_ms: simulatedMs, difference } = found.latency;
        const parts = sum(Object.values(difference).map((part) => part ?? NaN));
        expect(requests === 0 || Math.abs(parts - (measured! - simulatedMs!)) < 0.001).toBe(true);
      }),
    );
  });
});

describe('what a host says of its scheduler', () => {
  const { waitBoundMs: _wait, ...policy } = policies.artifact;
  const scheduler = {
    status: 'up',
    reason: null,
    isEmulated: false,
    mode: 'dha',
    // JSON has no infinity.
    policy: { name: 'artifact', ...policy, waitBoundMs: null },
    cpuCores: 2,
    gpus: smallGpus(gpuCount, 90),
    functions: [{ name: 'a', version: '1', index: 3, residents: [{ gpu: 1, prefix: 1 }], idleMs: null }],
  };
  const offered = { name: 'a', version: '1', index: null, residents: [], idleMs: 12, sheet };

  it('is read back unchanged', () => {
    expect(parseHostScheduler(JSON.parse(JSON.stringify(scheduler)))).toMatchObject({
      status: 'up',
      policyName: 'artifact',
      policy: policies.artifact,
      gpus: scheduler.gpus,
      functions: [{ name: 'a', index: 3, residents: [{ gpu: 1 }] }],
    });
    const read = parseOfferedFunction(JSON.parse(JSON.stringify(offered)), gpuCount);
    expect(read.sheet).toEqual(sheet);
    expect(read).toMatchObject({ index: null, idleMs: 12 });
  });

  it.each([
    ['nothing', null, /^the host's scheduler is null, but must be an object with status/],
    ['a page', 'hello', /^the host's scheduler is "hello", but must be an object/],
    ['no GPUs', { ...scheduler, gpus: undefined }, /^the host's scheduler has no field 'gpus'/],
    ['a policy of tomorrow', { ...scheduler, policy: { ...scheduler.policy, eviction: 'oracle' } }, /oracle/],
    [
      'a capacity in words',
      { ...scheduler, gpus: [{ ...smallGpus(1, 90)[0], capacityBytes: 'much' }] },
      /^field 'gpus\[0\].capacityBytes' of the host's scheduler is "much", but must be a number of 0 or more/,
    ],
  ])('is refused when it is %s', (_, json, message) => {
    expect(() => parseHostScheduler(json)).toThrow(message);
  });

  it.each([
    ['for another number of GPUs', { ...sheet, gpus: sheet.gpus.slice(1) }, /has 2 GPUs, but 'a' offers for 1/],
    [
      'without a way',
      { ...sheet, gpus: [{ ...sheet.gpus[0], ways: [] }, null] },
      /field 'sheet.gpus\[0\].ways' .* is a list of 0, but must be a list of 1 or more/,
    ],
    [
      'with half variants',
      { ...sheet, gpus: [{ ...sheet.gpus[0], smaller: { warmMs: 1 } }, null] },
      /has no field 'sheet.gpus\[0\].smaller.prefixBytes'/,
    ],
    ['with a table cut short', { ...sheet, gpus: [{ ...sheet.gpus[0], prefixBytes: [0, 20] }, null] }, /entries/],
  ])('is refused when an offer is %s', (_, own, message) => {
    expect(() => parseOfferedFunction({ ...offered, sheet: own }, gpuCount)).toThrow(message);
  });
});
