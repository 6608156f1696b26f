import { expect, test } from 'vitest';
import { bytesBetween, memoryUse, ownBytes } from './process-memory.ts';

const mebibyte = 2 ** 20;
const before = { peakBytes: 60 * mebibyte, pages: 1000, sharedBytes: 20 * mebibyte };

test('a run has taken what its process grew by, or the pages that it was given and has returned', () => {
  expect(bytesBetween(before, { ...before, peakBytes: 80 * mebibyte })).toBe(20 * mebibyte);
  expect(bytesBetween(before, { ...before, pages: 1000 + 2560 })).toBe(10 * mebibyte);
});

test('weights that the first run brings into memory are not what the run took: the session counts with them', () => {
  const after = { peakBytes: 180 * mebibyte, pages: 6000, sharedBytes: 122 * mebibyte };
  expect(bytesBetween(before, after)).toBe(18 * mebibyte);
  // Several pages come with one fault.
  expect(bytesBetween(before, { ...after, peakBytes: before.peakBytes })).toBe(0);
});

test.skipIf(process.platform !== 'linux')(
  'the memory of a process is its own or shared, and both within its peak',
  () => {
    const { peakBytes, sharedBytes } = memoryUse();
    expect(sharedBytes).toBeGreaterThan(0);
    expect(ownBytes()).toBeGreaterThan(0);
    expect(ownBytes() + sharedBytes).toBeLessThanOrEqual(peakBytes + mebibyte);
  },
);
