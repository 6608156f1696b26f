/** Every benchmark runs small here, so that it cannot rot between the days on which somebody measures. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import type { BenchmarkResult } from '../../bench/benchmark.ts';
import { benchmarkNames, loadBenchmark } from '../../bench/registry.ts';

const seed = 1;

// A benchmark names the driver that its processes load, and is a program that ends with them.
const before = { ...process.env };
afterAll(() => {
  process.env = before;
});

/** The benchmark `gpu-day` runs these from the command line. What they kept is looked at, and they are not run again. */
const partsOfGpuDay = ['chrion', 'gpu', 'serve'];

// Kernels that nobody has compiled yet for the emulated driver take a part of it, and chaos waits for what it has ended.
// gpu-day runs several of the others. Only what hangs ends by this: beside seven other suites chaos took 217 s.
const timeoutMs = 900_000;

test.each(benchmarkNames().filter((name) => !partsOfGpuDay.includes(name)))(
  'the benchmark %s runs small and gives its figures',
  async (name) => {
    const benchmark = await loadBenchmark(name);
    const result = await benchmark.run({ small: true, seed, progress: () => undefined });
    mustHaveFigures(result);
    const missed = (result.aims ?? []).filter(({ met }) => !met);
    expect(benchmark.mustMeetAims === true ? missed : []).toEqual([]);
    if (name !== 'gpu-day') return;
    for (const part of partsOfGpuDay) {
      const kept: unknown = JSON.parse(readFileSync(join(String(result.settings['folder']), `${part}.json`), 'utf8'));
      expect(kept).toMatchObject({ name: part, small: true, seed });
      mustHaveFigures(kept as BenchmarkResult);
    }
  },
  timeoutMs,
);

function mustHaveFigures({ tables, figures }: BenchmarkResult): void {
  expect(tables.length).toBeGreaterThan(0);
  for (const { rows, columns } of tables) {
    expect(rows.length).toBeGreaterThan(0);
    for (const row of rows) expect(row).toHaveLength(columns.length);
  }
  // What is no number comes back from JSON as null.
  for (const [figure, value] of Object.entries(figures)) expect(Number.isNaN(value ?? NaN), figure).toBe(false);
}
