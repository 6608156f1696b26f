/** The systems compared in each row: every policy of the scheduler, and `best` with one part exchanged. */
import { planOfPolicy } from '../../src/cli/replay/system.ts';
import type { ColdStartMode } from '../../src/plan/index.ts';
import type { SimulationSettings } from '../../src/replay/index.ts';
import { policies, policyChoices, policyNames, type Policy } from '../../src/schedule/index.ts';

export interface HoursSystem {
  readonly name: string;
  readonly mode: ColdStartMode;
  readonly policy: SimulationSettings['policy'];
  /** Knows the arrivals in advance, so no policy can be expected to do as well. */
  readonly knowsFuture: boolean;
}

const ofBest = (name: string, parts: Partial<Policy>): HoursSystem => ({
  name,
  mode: planOfPolicy.best,
  policy: { ...policies.best, ...parts },
  knowsFuture: false,
});

const named: readonly HoursSystem[] = policyNames.map((name) => ({
  name,
  mode: planOfPolicy[name],
  policy: policies[name],
  knowsFuture: false,
}));

/**
 * `best` first, then the other policies, then `best` with one part exchanged, last with an eviction that knows the
 * future.
 */
export const systems: readonly HoursSystem[] = [
  ...named.filter(({ name }) => name === 'best'),
  ...named.filter(({ name }) => name !== 'best'),
  ofBest('modulo', { routing: 'modulo' }),
  ...policyChoices.eviction
    .filter((eviction) => eviction !== policies.best.eviction)
    .map((eviction) => ofBest(`best+${eviction}`, { eviction })),
  { ...ofBest('oracle', {}), policy: { ...policies.best, eviction: 'oracle' }, knowsFuture: true },
];
