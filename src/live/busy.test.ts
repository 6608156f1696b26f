import { expect, test } from 'vitest';
import { BusyShare, busyWindowMs } from './busy.ts';

test('a lane that was busy for a tenth of the window has that share', () => {
  const busy = new BusyShare();
  busy.add(60_000, busyWindowMs / 10);
  expect(busy.share(60_000)).toBeCloseTo(0.1);
});

test('work is forgotten when the window has passed it', () => {
  const busy = new BusyShare();
  busy.add(60_000, 1000);
  expect(busy.share(60_000 + busyWindowMs / 2)).toBeCloseTo(0.1);
  expect(busy.share(60_000 + busyWindowMs)).toBe(0);
  expect(busy.share(10 * 60_000)).toBe(0);
});

test('work longer than the window fills it, and no more', () => {
  const busy = new BusyShare();
  busy.add(100_000, 5 * busyWindowMs);
  expect(busy.share(100_000)).toBeGreaterThan(0.9);
  busy.add(100_000, busyWindowMs);
  expect(busy.share(100_000)).toBe(1);
});

test('a lane that did nothing was not busy', () => {
  expect(new BusyShare().share(12_345)).toBe(0);
});
