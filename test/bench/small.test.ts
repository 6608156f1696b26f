/** Every benchmark runs small here, so that it cannot rot between the days on which somebody measures. */
import { describe, expect, it } from 'vitest';
import { benchmarkNames, loadBenchmark } from '../../bench/registry.ts';

const seed = 1;
/** Aims that hold however small and noisy the run: what is counted, not what is timed. */
const alwaysMet: Readonly<Record<string, boolean>> = { kill: true };

describe.each(benchmarkNames())('the benchmark %s', (name) => {
  it('runs small and gives its figures', async () => {
    const benchmark = await loadBenchmark(name);
    const result = await benchmark.run({ small: true, seed, progress: () => undefined });
    expect(result.tables.length).toBeGreaterThan(0);
    for (const table of result.tables) {
      expect(table.rows.length).toBeGreaterThan(0);
      for (const row of table.rows) expect(row).toHaveLength(table.columns.length);
    }
    for (const [figure, value] of Object.entries(result.figures)) {
      expect(value, figure).not.toBeNaN();
    }
    const missed = (result.aims ?? []).filter(({ met }) => !met);
    expect(alwaysMet[name] === true ? missed : []).toEqual([]);
    // Kernels that nobody has compiled yet for the emulated driver take half of it.
  }, 120_000);
});
