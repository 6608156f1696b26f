/** A replay can know the future, and evicting by it beats every order that cannot. */
import { expect, test } from 'vitest';
import { loadMachine } from '../hardware/index.ts';
import { policies, policyChoices } from '../schedule/index.ts';
import { TraceForesight } from './foresight.ts';
import { poissonTrace } from './generate/arrivals.ts';
import { OfferCache } from './offer-cache.ts';
import { ReportBuilder } from './tally/builder.ts';
import { simulate, type SimulationSettings } from './simulate.ts';

test('the next use is that of the invocations that have not arrived', () => {
  const arrivals = [0, 1, 0, 2, 0].map((functionIndex, index) => ({ arrivalMs: index * 10, functionIndex }));
  const foresight = new TraceForesight({ functionNames: ['a', 'b', 'c', 'd'], invocations: () => arrivals });
  expect([0, 1, 2, 3].map(foresight.nextUseMs)).toEqual([0, 10, 30, Infinity]);
  foresight.arrived(0);
  foresight.arrived(1);
  expect([0, 1, 2, 3].map(foresight.nextUseMs)).toEqual([20, Infinity, 30, Infinity]);
  foresight.arrived(0);
  foresight.arrived(0);
  foresight.arrived(0);
  expect(foresight.nextUseMs(0)).toBe(Infinity);
});

function coldStarts(eviction: SimulationSettings['policy']['eviction']): number {
  const machine = loadMachine('p3.8xlarge');
  const offers = new OfferCache(machine, 'pipeswitch');
  const functionNames = Array.from({ length: 160 }, (_, index) => `bert-base/${index}`);
  const popularity = { kind: 'zipf', exponent: 0.8 } as const;
  const trace = poissonTrace({ functionNames, ratePerS: 40, requests: 4000, seed: 5, popularity });
  const builder = new ReportBuilder();
  // Each function has one GPU, so that only the order of eviction makes a difference.
  const policy = { ...policies.artifact, eviction };
  const sheet = offers.sheet('bert-base', { sloMs: 100 });
  simulate(trace, { machine, policy, sheetOf: () => sheet }, builder);
  const report = builder.finish({ kind: 'simulated', machine: machine.name, seed: 5, settings: {}, functionNames });
  return report.cold_starts + report.partial_starts;
}

test('evicting by furthest future use loads less often than any order that does not know the future', () => {
  const oracle = coldStarts('oracle');
  expect(oracle).toBeGreaterThan(0);
  expect(oracle).toBeLessThan(0.8 * coldStarts('lru'));
  expect(oracle).toBeLessThan(0.9 * coldStarts('gdsf'));
});

test('the oracle is no eviction setting of a host', () => {
  expect(policyChoices.eviction).not.toContain('oracle');
});
