/**
 * The scheduler under generated machines, loads and faults, watched by a plain model (test/support/scheduler-model.ts).
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { nothingPlayed, play, type Played } from '../../bench/seeds/play.ts';
import {
  diskScenario,
  gpusOf,
  joinedScenario,
  scenario,
  sharedScenario,
  type Scenario,
} from '../../bench/seeds/scenario.ts';
import { draws } from '../../test/support/draws.ts';
import { Scheduler } from './index.ts';

/** So many times more scenarios are played for what is rare: a model that has seen none of it has not watched it. */
const furtherMax = 20;

/** Plays so many scenarios, and as many again with other seeds until there is enough of everything in `least`. */
function playAll(
  scenarios: fc.Arbitrary<Scenario>,
  numRuns: number,
  least: Partial<Played>,
): { readonly played: Played; readonly rare: readonly string[] } {
  const played = nothingPlayed();
  const property = fc.property(scenarios, (given) => {
    play(given, played);
  });
  for (let further = 0; ; further++) {
    fc.assert(property, { numRuns, seed: Number(process.env['TURNTABLE_SEED']) + further });
    const rare = Object.entries(least).flatMap(([name, count]) => (played[name as keyof Played] < count ? [name] : []));
    if (rare.length === 0 || further === furtherMax) return { played, rare };
  }
}

const { hostLosses: _none, companions: _alone, ...each } = nothingPlayed();
const eachOnce = Object.fromEntries(Object.keys(each).map((name) => [name, 1]));

test('memory is never exceeded, no layer in use is evicted, no bound is passed, and every arrival ends exactly once', () => {
  const { played, rare } = playAll(scenario, draws(150), eachOnce);
  expect(rare).toEqual([]);
  expect(played.companions + played.hostLosses).toBe(0);
});

test('calls that share a run end exactly once, none becomes late through sharing, and each run saves a quarter', () => {
  expect(playAll(joinedScenario, draws(150), { ...eachOnce, companions: 1 }).rare).toEqual([]);
});

test('layers that functions share are there once, stay while one of them uses them, and come with one load', () => {
  expect(playAll(sharedScenario, draws(250), { evictions: 100, gpuLosses: 10, shrinks: 10, growths: 1 }).rare).toEqual(
    [],
  );
});

test('host memory keeps what runs and loads read, and nothing waits for it for ever, whatever is lost, refused or changed', () => {
  expect(playAll(diskScenario, draws(250), { reads: 100, hostLosses: 10 }).rare).toEqual([]);
});

const otherPlace = /,"otherPlace":[^,}]*|,"otherEndMs":[^,}]*/g;
const withoutOther = (log: readonly string[]): string[] => log.map((line) => line.replaceAll(otherPlace, ''));

test('the same events give the same actions, also when decisions name no other place', () => {
  fc.assert(
    fc.property(joinedScenario, (given) => {
      const model = play(given, nothingPlayed(), { keepsLog: true });
      const { policy, cpu, workers, host } = given;
      const logOf = (explains: boolean): string[] => {
        const again = new Scheduler({ gpus: gpusOf(given), policy, cpu, workers, ...(host && { host }), explains });
        return model.told.map(({ event, nowMs }) => {
          const actions = again.handle(event, nowMs);
          return `${nowMs} ${JSON.stringify({ ...event, sheet: undefined })} => ${JSON.stringify(actions)}`;
        });
      };
      expect(logOf(true)).toEqual(model.log);
      expect(withoutOther(logOf(false))).toEqual(withoutOther(model.log));
    }),
    { numRuns: draws(30) },
  );
});
