/** Goes through seeds, and shrinks the first scenario that breaks something. */
import fc from 'fast-check';
import type { ModelOptions } from '../../test/support/scheduler-model.ts';
import { nothingPlayed, play, SeedFailure, type Played } from './play.ts';
import { diskScenario, joinedScenario, type Scenario } from './scenario.ts';

/** Scenarios of one seed, which fast-check draws in sequence. */
export const scenariosPerSeed = 500;

/** One in three has a disk that matters, and a host that loses its memory. */
const anyScenario = fc.oneof({ weight: 2, arbitrary: joinedScenario }, { weight: 1, arbitrary: diskScenario });

export interface SeedSearch {
  readonly scenarios: number;
  readonly played: Played;
  /** The first scenario that broke something. */
  readonly broken?: BrokenSeed;
}

export interface BrokenSeed {
  readonly seed: number;
  readonly message: string;
  /** Shrunk. */
  readonly scenario: Scenario;
  readonly shrinks: number;
  /** Events of the shrunk scenario and actions of the scheduler, up to the failure. */
  readonly events: readonly string[];
}

export function searchSeeds(
  { scenarios, seed }: { readonly scenarios: number; readonly seed: number },
  onProgress: (done: number) => void = () => undefined,
  makeScheduler?: ModelOptions['makeScheduler'],
): SeedSearch {
  const played = nothingPlayed();
  for (let done = 0; done < scenarios; done += scenariosPerSeed) {
    onProgress(done);
    const own = seed + done / scenariosPerSeed;
    const result = fc.check(
      fc.property(anyScenario, (given) => {
        play(given, played, { ...(makeScheduler && { makeScheduler }) });
      }),
      { seed: own, numRuns: Math.min(scenariosPerSeed, scenarios - done), verbose: 0 },
    );
    if (!result.failed) continue;
    const [shrunk] = result.counterexample ?? [];
    // A property of this kind has no failure without a counterexample.
    if (shrunk === undefined) throw new Error(`seed ${own} broke off without a scenario`);
    const failure = replay(shrunk, makeScheduler);
    return {
      scenarios: done + result.numRuns,
      played,
      broken: {
        seed: own,
        message: failure.message,
        scenario: shrunk,
        shrinks: result.numShrinks,
        events: failure.events,
      },
    };
  }
  return { scenarios, played };
}

function replay(given: Scenario, makeScheduler?: ModelOptions['makeScheduler']): SeedFailure {
  try {
    play(given, nothingPlayed(), { ...(makeScheduler && { makeScheduler }), keepsLog: true });
  } catch (error) {
    if (error instanceof SeedFailure) return error;
    throw error;
  }
  throw new Error('the scenario that failed does not fail again');
}
