/** When the next run is ordered, with a clock moved by hand. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { RunEnds, type LatestMs } from './run-ends.ts';
import type { StartKind } from '../types.ts';

const pass = (ms: number): Promise<unknown> => vi.advanceTimersByTimeAsync(ms);

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** A GPU that executes what it is given in order. */
class Gpu {
  readonly told: string[] = [];
  readonly latestMs: LatestMs = {};
  readonly #ends = new RunEnds();
  #freeMs = 0;

  submit(name: string, ms: number, start: StartKind = 'warm', fails = false): void {
    this.#freeMs = Math.max(this.#freeMs, performance.now()) + ms;
    const leftMs = this.#freeMs - performance.now();
    const done = new Promise((resolve, reject) => {
      setTimeout(() => (fails ? reject(new Error('failed')) : resolve(undefined)), leftMs);
    });
    const began = performance.now();
    void this.#ends.follow(done, start, this.latestMs, () =>
      this.told.push(`${name} after ${Math.round(performance.now() - began)} ms`),
    );
  }
}

test('the first run of a program is told of at its end, later ones a millisecond before', async () => {
  const gpu = new Gpu();
  for (const name of ['first', 'second', 'third']) {
    gpu.submit(name, 10);
    await pass(20);
  }
  expect(gpu.told).toEqual(['first after 10 ms', 'second after 9 ms', 'third after 9 ms']);
});

test('a run of under two milliseconds is told of at once', async () => {
  const gpu = new Gpu();
  for (const name of ['first', 'second']) {
    gpu.submit(name, 1);
    await pass(20);
  }
  expect(gpu.told).toEqual(['first after 1 ms', 'second after 0 ms']);
});

test('a run behind another one is told of by its own time, from the end of the other', async () => {
  const gpu = new Gpu();
  gpu.submit('first', 10);
  await pass(20);
  gpu.submit('ahead', 10);
  gpu.submit('behind', 10);
  await pass(40);
  expect(gpu.told.slice(1)).toEqual(['ahead after 9 ms', 'behind after 19 ms']);
});

test('runs that take longer than expected are not told of before the one ahead has ended', async () => {
  const gpu = new Gpu();
  gpu.submit('first', 1);
  await pass(20);
  for (const name of ['a', 'b', 'c']) gpu.submit(name, 100);
  await pass(400);
  expect(gpu.told.slice(1)).toEqual(['a after 0 ms', 'b after 199 ms', 'c after 299 ms']);
});

test('cold starts have their own time, and partial ones are told of at their end', async () => {
  const gpu = new Gpu();
  for (const [name, ms, start] of [
    ['cold', 30, 'cold'],
    ['warm', 10, 'warm'],
    ['cold again', 30, 'cold'],
    ['partial', 20, 'partial'],
    ['partial again', 20, 'partial'],
  ] as const) {
    gpu.submit(name, ms, start);
    await pass(50);
  }
  expect(gpu.told).toEqual([
    'cold after 30 ms',
    'warm after 10 ms',
    'cold again after 29 ms',
    'partial after 20 ms',
    'partial again after 20 ms',
  ]);
});

test('a run that fails is not told of, and the next one is', async () => {
  const gpu = new Gpu();
  gpu.submit('failed', 10, 'warm', true);
  await pass(20);
  gpu.submit('next', 10);
  await pass(20);
  expect(gpu.told).toEqual(['next after 10 ms']);
});
