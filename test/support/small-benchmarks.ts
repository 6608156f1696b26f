/** Runs benchmarks small, as tests. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { BenchmarkNotPossible, type BenchmarkResult } from '../../bench/benchmark.ts';
import { benchmarkNames, loadBenchmark } from '../../bench/registry.ts';
import { environmentNow } from './environment.ts';

const seed = 1;

/**
 * The benchmark `gpu-day` runs it from the command line. What it kept is looked at, and it is not run again. Other
 * benchmarks are parts of gpu-day as well, by the same command with their name: they run by themselves here, without a
 * process that compiles all of src/ first. So do the tests that are a part of it.
 */
const partOfGpuDay = 'gpu';
const rowsOf: Readonly<Record<string, readonly string[]>> = {
  'gpu-day': ['self-test', partOfGpuDay],
  // Whether the kernel kills in a small control group also depends on when this machine writes its pages to disk.
  chaos: ['faults', 'steady'],
};

/**
 * Files of tests that run at the same time: whole fleets wait for their processes most of the time, replays have a core.
 * `others` is what no list names.
 */
const files = {
  fleets: ['chaos', 'fleet', 'overload', 'upgrade'],
  replays: ['density', 'fleet-replay', 'hours', 'one-process', 'papers', 'planners', 'replay', 'scenes', 'seeds'],
} as const;

function namesIn(file: keyof typeof files | 'others'): readonly string[] {
  if (file !== 'others') return files[file];
  const named = new Set<string>([partOfGpuDay, ...Object.values(files).flat()]);
  return benchmarkNames().filter((name) => !named.has(name));
}

/** Declares a test for each benchmark of a file. */
export function testSmall(file: keyof typeof files | 'others'): void {
  // A benchmark sets the driver that its processes load, and is a program that ends with them: the hosts of the next one
  // must not find these GPUs.
  afterEach(environmentNow());
  test.for(namesIn(file))('the benchmark %s runs small and gives its figures', async (name, { skip }) => {
    const benchmark = await loadBenchmark(name);
    const running = benchmark.run({
      small: true,
      seed,
      progress: () => undefined,
      ...(rowsOf[name] && { rows: rowsOf[name] }),
    });
    const result = await running.catch((error: unknown) => {
      if (error instanceof BenchmarkNotPossible) return skip(error.message);
      throw error;
    });
    mustHaveFigures(result);
    const missed = (result.aims ?? []).filter(({ met, isOfSpeed }) => !met && isOfSpeed !== true);
    expect(benchmark.mustMeetAims === true ? missed : []).toEqual([]);
    if (name !== 'gpu-day') return;
    const path = join(String(result.settings['folder']), `${partOfGpuDay}.json`);
    const kept: unknown = JSON.parse(readFileSync(path, 'utf8'));
    expect(kept).toMatchObject({ name: partOfGpuDay, small: true, seed });
    mustHaveFigures(kept as BenchmarkResult);
  });
}

function mustHaveFigures({ tables, figures }: BenchmarkResult): void {
  expect(tables.length).toBeGreaterThan(0);
  for (const { rows, columns } of tables) {
    expect(rows.length).toBeGreaterThan(0);
    for (const row of rows) expect(row).toHaveLength(columns.length);
  }
  // A NaN comes back from JSON as null.
  for (const [figure, value] of Object.entries(figures)) expect(Number.isNaN(value ?? NaN), figure).toBe(false);
}
