/** The load by which a function's homes are found, under calls that come at random. */
import { describe, expect, test } from 'vitest';
import { mix32 } from '../../tools/index.ts';
import { assignHomes, LoadMeter } from '../index.ts';

const lookS = 0.5;
const callMs = 8;
/** Two cores each, so that the functions below are near what a host may be planned to have. */
const fleet = ['one', 'two', 'three'].map((id) => ({ id, capacity: 2000 }));
const rates = [120, 60, 40, 30, 20, 12, 8, 5, 3, 2];

/** Draws how many calls come within half a second, from a seed. */
function drawing(seed: number): (ratePerS: number) => number {
  const start = mix32(seed);
  let drawn = 0;
  return (ratePerS) => {
    let count = -1;
    for (let left = ratePerS * lookS; left > 0; count++) left += Math.log((mix32(start + drawn++) + 0.5) / 2 ** 32);
    return Math.max(0, count);
  };
}

const homesOf = (loads: readonly number[]): string[] =>
  assignHomes(
    fleet,
    loads.map((load, index) => ({ name: `f-${index}`, load })),
  ).map((homes) => homes.map(({ member }) => fleet[member]!.id).join());

const changes = (before: readonly string[], now: readonly string[]): number =>
  now.filter((each, index) => each !== before[index]).length;

describe('the load of a function', () => {
  test('stays constant under random calls at one rate, so homes stay; plain smoothing would move them', () => {
    let [moves, smoothedMoves] = [0, 0];
    for (let seed = 1; seed <= 20; seed++) {
      const drawn = drawing(seed);
      const meters = rates.map(() => new LoadMeter());
      const smoothed = rates.map((rate) => rate * callMs);
      let [homes, smoothedHomes]: string[][] = [[], []];
      for (let second = 0; second < 180; second += lookS) {
        for (const [index, rate] of rates.entries()) {
          const calls = drawn(rate);
          meters[index]!.calls = calls;
          meters[index]!.look(lookS, callMs);
          smoothed[index] = 0.8 * smoothed[index]! + 0.2 * (calls / lookS) * callMs;
        }
        const [now, smoothedNow] = [homesOf(meters.map(({ load }) => load)), homesOf(smoothed)];
        if (second >= 60) {
          moves += changes(homes!, now);
          smoothedMoves += changes(smoothedHomes!, smoothedNow);
        }
        [homes, smoothedHomes] = [now, smoothedNow];
      }
    }
    // 40 minutes of ten functions.
    expect(smoothedMoves).toBeGreaterThan(1000);
    expect(moves).toBeLessThan(20);
  });

  test('is reported within five seconds when it grows by more than half, and ends when the calls end', () => {
    for (const rate of [20, 60]) {
      const meter = new LoadMeter();
      const drawn = drawing(7);
      const after = (seconds: number, ratePerS: number): void => {
        for (let second = 0; second < seconds; second += lookS) {
          meter.calls = drawn(ratePerS);
          meter.look(lookS, callMs);
        }
      };
      after(60, rate);
      const before = meter.load;
      expect(Math.abs(before / callMs / rate - 1)).toBeLessThan(0.45);
      after(5, 2.5 * rate);
      expect(meter.load).toBeGreaterThan(before * 1.4);
      after(60, 2.5 * rate);
      expect(Math.abs(meter.load / callMs / rate / 2.5 - 1)).toBeLessThan(0.45);
      after(60, 0);
      expect(meter.load).toBeLessThan(before * 0.3);
    }
  });

  test('of a function that is called for the first time is what its first calls make', () => {
    const meter = new LoadMeter();
    expect(meter.load).toBe(0);
    meter.calls = 30;
    meter.look(lookS, callMs);
    expect(meter.load).toBe((30 / lookS) * callMs);
  });
});
