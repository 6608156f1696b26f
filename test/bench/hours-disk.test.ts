/** The bound that rows with a disk are measured against. */
import { expect, test } from 'vitest';
import { cubeShares, diskBound, diskTrace, rotated, type DiskScene } from '../../bench/hours/disk.ts';

const scene: DiskScene = {
  functionNames: ['a', 'b', 'c', 'd'],
  ratePerS: 100,
  requests: 1000,
  shares: [[0.4, 0.3, 0.2, 0.1]],
  phaseMs: Infinity,
  bytes: 1e9,
  hostBytes: 2e9,
  gpuBytes: 0,
  // A function in 5 s, half of the load's length.
  diskGBps: 0.2,
  sloMs: 0,
  isFilled: true,
};

test('a host memory that the disk adds nothing worth to is bound by the calls of what it holds', () => {
  expect(diskBound(scene)).toBeCloseTo(0.7);
});

test('each function counts from the end of its read, and the most called one is read first', () => {
  expect(diskBound({ ...scene, isFilled: false })).toBeCloseTo((0.4 * 5) / 10);
  expect(diskBound({ ...scene, isFilled: false, diskGBps: 0.4 })).toBeCloseTo((0.4 * 2.5 + 0.7 * 5) / 10);
});

test('what a GPU alone holds is one more place, and a call that waits less than the SLO for a read is in time', () => {
  expect(diskBound({ ...scene, gpuBytes: 1e9 })).toBeCloseTo((0.7 * 5 + 0.9 * 5) / 10);
  expect(diskBound({ ...scene, gpuBytes: 1e9, sloMs: 1000 })).toBeCloseTo((0.7 * 5 + 0.2 + 0.9 * 5) / 10);
});

test('when other functions become popular, the least called one goes for the most called one', () => {
  const shares = [[0.4, 0.3, 0.2, 0.1], rotated([0.4, 0.3, 0.2, 0.1], 2)];
  expect(shares[1]).toEqual([0.2, 0.1, 0.4, 0.3]);
  expect(diskBound({ ...scene, shares, phaseMs: 5000, diskGBps: 0.4 })).toBeCloseTo(
    (0.7 * 5 + 0.3 * 2.5 + 0.6 * 2.5) / 10,
  );
});

test('a trace calls functions by their shares, which change from phase to phase', () => {
  const shares = [cubeShares(4), rotated(cubeShares(4), 2)];
  const counts = [
    [0, 0, 0, 0],
    [0, 0, 0, 0],
  ];
  for (const { arrivalMs, functionIndex } of diskTrace({ ...scene, requests: 4000, shares, phaseMs: 20_000 })(
    1,
  ).invocations())
    counts[Math.floor(arrivalMs / 20_000) % 2]![functionIndex]!++;
  for (const [phase, of] of shares.entries()) {
    const all = counts[phase]!.reduce((sum, each) => sum + each, 0);
    for (const [index, share] of of.entries()) expect(counts[phase]![index]! / all).toBeCloseTo(share, 1);
  }
});
