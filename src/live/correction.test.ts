import { expect, test } from 'vitest';
import type { GpuOffer } from '../schedule/index.ts';
import { Correction } from './correction.ts';

const offer: GpuOffer = {
  warmMs: 2,
  prefixBytes: [0, 10],
  overlapPrefix: 1,
  ways: [{ mode: 'dha', coldMs: [10, 2], transfers: [{ link: 0, bytes: [10, 0], ms: [8, 0], tailMs: [1, 1] }] }],
};

test('after runs that take twice as long, predictions double', () => {
  const correction = new Correction();
  let told = false;
  for (let run = 0; run < 40; run++) told = correction.observe('warm', 4, 2) || told;
  for (let run = 0; run < 40; run++) correction.observe('cold', 15, 10);
  expect(told).toBe(true);
  const [corrected] = correction.offers([offer, null]);
  expect(corrected?.warmMs).toBeCloseTo(4, 2);
  expect(corrected?.ways[0].coldMs[0]).toBeCloseTo(15, 2);
  expect(corrected?.ways[0].coldMs[1]).toBeCloseTo(4, 2);
  expect(corrected?.ways[0].transfers[0].ms[0]).toBeCloseTo(12, 2);
  expect(corrected?.prefixBytes).toBe(offer.prefixBytes);
});

test('runs as profiled change nothing, and one stray run little', () => {
  const correction = new Correction();
  expect(correction.observe('warm', 2.1, 2)).toBe(false);
  correction.observe('warm', 1e9, 2);
  const [corrected] = correction.offers([offer]);
  expect(corrected!.warmMs).toBeLessThanOrEqual(2 * (1 + 0.2 * 3.1));
});

test('a correction is bounded', () => {
  const correction = new Correction();
  for (let run = 0; run < 200; run++) correction.observe('warm', 1e6, 2);
  expect(correction.offers([offer])[0]!.warmMs).toBeLessThanOrEqual(8);
  for (let run = 0; run < 200; run++) correction.observe('warm', 0, 2);
  expect(correction.offers([offer])[0]!.warmMs).toBeGreaterThanOrEqual(0.5);
});

test('a joined run takes the same way to the GPU process and back as a single one', () => {
  const correction = new Correction();
  for (let run = 0; run < 40; run++) correction.observe('warm', 4, 2);
  for (let run = 0; run < 40; run++) correction.observeOverhead(3, 2);
  const [corrected] = correction.offers([{ ...offer, batches: [{ rows: 4, ms: 5 }] }]);
  expect(corrected!.warmMs).toBeCloseTo(4 + 3, 2);
  expect(corrected!.batches).toEqual([{ rows: 4, ms: expect.closeTo(10 + 3, 2) as number }]);
});

test('a long way to the GPU process is forgotten while invocations come and none runs, not in a pause', () => {
  const correction = new Correction();
  const warmMs = (): number => correction.offers([offer])[0]!.warmMs;
  for (let run = 0; run < 40; run++) correction.observeOverhead(40, 2);
  expect(warmMs()).toBeCloseTo(42, 1);
  // The first burst after a minute is predicted by what the last one saw.
  for (const nowMs of [60_000, 60_001, 60_999]) expect(correction.called(nowMs)).toBe(false);
  expect(warmMs()).toBeCloseTo(42, 1);
  expect(correction.called(62_000)).toBe(true);
  expect(warmMs()).toBeCloseTo(12, 1);
  expect(correction.called(62_500)).toBe(false);
  correction.observeOverhead(10, 2);
  expect(correction.called(100_000)).toBe(false);
  expect(correction.called(111_000)).toBe(true);
  expect(warmMs()).toBe(2);
});
