/**
 * The scheduler under generated machines, loads and faults, watched by a plain model (test/support/scheduler-model.ts).
 */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { nothingPlayed, play } from '../../bench/seeds/play.ts';
import { diskScenario, gpusOf, joinedScenario, scenario, sharedScenario } from '../../bench/seeds/scenario.ts';
import { draws } from '../../test/support/draws.ts';
import { Scheduler } from './index.ts';

test('memory is never exceeded, no layer in use is evicted, no bound is passed, and every arrival ends exactly once', () => {
  const played = nothingPlayed();
  fc.assert(
    fc.property(scenario, (given) => {
      play(given, played);
    }),
    { numRuns: draws(150) },
  );
  // Otherwise the model has watched nothing.
  const { companions, hostLosses, ...counts } = played;
  for (const count of Object.values(counts)) expect(count).toBeGreaterThan(0);
  expect(companions + hostLosses).toBe(0);
});

test('calls that share a run end exactly once, none becomes late through sharing, and each run saves a quarter', () => {
  const played = nothingPlayed();
  fc.assert(
    fc.property(joinedScenario, (given) => {
      play(given, played);
    }),
    { numRuns: draws(150) },
  );
  const { hostLosses: _, ...counts } = played;
  for (const count of Object.values(counts)) expect(count).toBeGreaterThan(0);
});

test('layers that functions share are there once, stay while one of them uses them, and come with one load', () => {
  const played = nothingPlayed();
  fc.assert(
    fc.property(sharedScenario, (given) => {
      play(given, played);
    }),
    { numRuns: draws(250) },
  );
  expect(played.evictions).toBeGreaterThan(100);
  expect(played.gpuLosses).toBeGreaterThan(10);
  expect(played.shrinks).toBeGreaterThan(10);
  expect(played.growths).toBeGreaterThan(0);
});

test('host memory keeps what runs and loads read, and nothing waits for it for ever, whatever is lost, refused or changed', () => {
  const played = nothingPlayed();
  fc.assert(
    fc.property(diskScenario, (given) => {
      play(given, played);
    }),
    { numRuns: draws(250) },
  );
  expect(played.reads).toBeGreaterThan(100);
  expect(played.hostLosses).toBeGreaterThan(10);
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
