import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { RunResult } from '../../gpu/index.ts';
import { runLimits } from './run-limits.ts';
import type { GpuRunner } from '../../live/index.ts';

const over: string[] = [];
let ends: Map<string, () => void>;
let runner: GpuRunner;

const never = (): never => expect.fail('only runs are limited');
const options = (gpu: number): Parameters<GpuRunner['run']>[2] => ({
  gpu,
  plan: { mode: 'dha', primary: gpu, secondaries: [], bytesGpu: 0, layers: [] },
});

beforeEach(() => {
  vi.useFakeTimers();
  over.length = 0;
  ends = new Map();
  const limited = runLimits({
    limitMs: (key) => (key === 'endless' ? undefined : 1000),
    onOver: (key, limitMs) => over.push(`${key} after ${limitMs} ms`),
  });
  runner = limited({
    run: (key) => new Promise((resolve) => ends.set(key, () => resolve({} as RunResult))),
    load: never,
    trim: never,
    release: never,
    keep: never,
  });
});
afterEach(() => {
  vi.useRealTimers();
});

test('a run that does not end is reported once, after its limit', async () => {
  void runner.run('a', [], options(0));
  await vi.advanceTimersByTimeAsync(999);
  expect(over).toEqual([]);
  await vi.advanceTimersByTimeAsync(60_000);
  expect(over).toEqual(['a after 1000 ms']);
});

test('a run that ends in time is not reported, nor one of a function without a limit', async () => {
  void runner.run('endless', [], options(1));
  const run = runner.run('a', [], options(0));
  await vi.advanceTimersByTimeAsync(900);
  ends.get('a')!();
  await run;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(over).toEqual([]);
});

test('the time that a run waits behind another one on its GPU does not count', async () => {
  const first = runner.run('a', [], options(0));
  const second = runner.run('b', [], options(0));
  await vi.advanceTimersByTimeAsync(900);
  ends.get('a')!();
  await first;
  await vi.advanceTimersByTimeAsync(900);
  ends.get('b')!();
  await second;
  await vi.advanceTimersByTimeAsync(60_000);
  expect(over).toEqual([]);
});

test('an answer that came while the host was busy is read before the run counts as hanging', async () => {
  const run = runner.run('a', [], options(0));
  setTimeout(() => ends.get('a')!(), 1000);
  await vi.advanceTimersByTimeAsync(60_000);
  await run;
  expect(over).toEqual([]);
});
