/** What a process asks of the C library, and when. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Heap } from './heap.ts';

const asked: string[] = [];
/** Notes calls of functions by their names and values. */
const noted = (): Heap =>
  new Heap((prototype) => {
    const name = /(\w+)\(/.exec(prototype)?.[1] ?? '';
    return (...values) => asked.push(`${name} ${values.join(' ')}`);
  });

const mebibyte = 2 ** 20;
const keptForRuns = [`mallopt -3 ${32 * mebibyte}`, `mallopt -1 ${64 * mebibyte}`];
const trim = 'malloc_trim 0';

beforeEach(() => {
  for (const name of ['MALLOC_MMAP_THRESHOLD_', 'MALLOC_TRIM_THRESHOLD_', 'GLIBC_TUNABLES'])
    vi.stubEnv(name, undefined);
  vi.useFakeTimers();
  asked.length = 0;
});
afterEach(() => {
  vi.runAllTimers();
  vi.useRealTimers();
  vi.unstubAllEnvs();
});

test('a load keeps freed blocks, and afterwards the heap is trimmed and keeps what runs may keep', async () => {
  await noted().forLoad(() => Promise.resolve(asked.push('load')));
  expect(asked).toEqual([`mallopt -3 ${2 ** 30}`, `mallopt -1 ${2 ** 31 - 1}`, 'load', ...keptForRuns, trim]);
});

test('in a process that passes answers on, large blocks go back at once', () => {
  noted().keepForAnswers();
  expect(asked).toEqual([`mallopt -3 ${8 * mebibyte}`, keptForRuns[1]]);
});

test('a buffer that nothing refers to is freed by collecting', async () => {
  let kept: Buffer | undefined = Buffer.allocUnsafeSlow(64 * mebibyte);
  const beside = new WeakRef(kept.buffer);
  new Heap().collect();
  expect(beside.deref()?.byteLength).toBe(kept.byteLength);
  kept = undefined;
  // What a WeakRef was made of stays until the end of the turn.
  await nextTurn();
  new Heap().collect();
  expect(beside.deref()).toBeUndefined();
});

test('a load that fails leaves no other sizes behind', async () => {
  await expect(noted().forLoad(() => Promise.reject(new Error('no model')))).rejects.toThrow('no model');
  expect(asked.slice(-3)).toEqual([...keptForRuns, trim]);
});

test('the heap is trimmed once when runs have ceased for half a minute', () => {
  const heap = noted();
  heap.trimWhenIdle();
  vi.advanceTimersByTime(20_000);
  heap.trimWhenIdle();
  vi.advanceTimersByTime(20_000);
  expect(asked).toEqual([]);
  vi.advanceTimersByTime(20_000);
  expect(asked).toEqual([trim]);
  vi.advanceTimersByTime(3_600_000);
  expect(asked).toEqual([trim]);
  heap.trimWhenIdle();
  vi.advanceTimersByTime(30_000);
  expect(asked).toEqual([trim, trim]);
});

test.each([
  ['MALLOC_MMAP_THRESHOLD_', '1048576', [keptForRuns[1]]],
  ['MALLOC_TRIM_THRESHOLD_', '4194304', [keptForRuns[0]]],
  ['GLIBC_TUNABLES', 'glibc.malloc.mmap_threshold=1048576:glibc.malloc.trim_threshold=4194304', []],
  ['GLIBC_TUNABLES', 'glibc.malloc.hugetlb=1', keptForRuns],
])('the setting %s=%s of an operator stays', (name, value, kept) => {
  vi.stubEnv(name, value);
  noted().keepForRuns();
  expect(asked).toEqual(kept);
});

test('a load needs none of these functions', async () => {
  const heap = new Heap(() => undefined);
  heap.keepForRuns();
  expect(await heap.forLoad(() => Promise.resolve('loaded'))).toBe('loaded');
  expect(() => heap.trim()).not.toThrow();
});
