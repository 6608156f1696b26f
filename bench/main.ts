/** `npm run bench -- NAME`: runs benchmarks, prints tables, and keeps the figures in bench/results/. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { renderTable } from '../src/cli/table.ts';
import { BenchmarkNotPossible, type BenchmarkOptions } from './benchmark.ts';
import { describeMachine } from './machine.ts';
import { benchmarkNames, loadBenchmark } from './registry.ts';
import { renderMarkdown, renderRun, type BenchmarkRun } from './report.ts';

interface MainOptions {
  readonly list?: boolean;
  readonly small: boolean;
  readonly emulated: boolean;
  readonly seed: number;
  readonly full: boolean;
  readonly json?: boolean;
  readonly out?: string;
}

const resultsDir = join(import.meta.dirname, 'results');

async function main(names: readonly string[], given: MainOptions): Promise<void> {
  const options: MainOptions = { ...given, small: given.small || given.emulated };
  const known = benchmarkNames();
  if (options.list === true || names.length === 0) {
    const loaded = await Promise.all(known.map(async (name) => await loadBenchmark(name)));
    const rows = loaded.map(({ name, description }) => [name, description]);
    console.log(
      rows.length === 0 ? 'no benchmarks' : renderTable([{ title: 'BENCHMARK' }, { title: 'QUESTION' }], rows),
    );
    return;
  }
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    console.error(`there is no benchmark '${unknown}'; there are: ${known.join(', ') || 'none'}`);
    process.exitCode = 2;
    return;
  }
  for (const name of names) {
    let run: BenchmarkRun;
    try {
      run = await runBenchmark(name, options);
    } catch (error) {
      if (!(error instanceof BenchmarkNotPossible)) throw error;
      // A machine that lacks what is measured has not failed: whoever runs all benchmarks on it gets those that it can run.
      console.error(`${name} was not run, and nothing was written: ${error.message}`);
      continue;
    }
    console.log(options.json === true ? JSON.stringify(run, null, 2) : `${renderRun(run)}\n`);
    // Small runs are tests: they must not replace figures that someone measured.
    const folder = options.out ?? (options.small ? undefined : resultsDir);
    if (folder === undefined) continue;
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `${name}.json`), `${JSON.stringify(run, null, 2)}\n`);
    writeFileSync(join(folder, `${name}.md`), renderMarkdown(run));
  }
}

async function runBenchmark(name: string, { small, seed, full }: MainOptions): Promise<BenchmarkRun> {
  const benchmark = await loadBenchmark(name);
  const startedAt = new Date().toISOString();
  const startedMs = performance.now();
  const result = await benchmark.run({ small, seed, full, progress: showProgress() });
  showProgress()('');
  return { name, small, seed, startedAt, tookMs: performance.now() - startedMs, machine: describeMachine(), ...result };
}

/** One line that is written over, on a terminal only. */
function showProgress(): BenchmarkOptions['progress'] {
  return (text) => {
    if (process.stderr.isTTY) process.stderr.write(`\r\u001B[K${text}`);
  };
}

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError('it must be a whole number');
  return Number(text);
}

await new Command('bench')
  .description('Run benchmarks by name; without a name, list them.')
  .argument('[names...]', 'benchmarks to run')
  .option('--list', 'list the benchmarks')
  .option('--small', 'a run of seconds that measures nothing worth quoting', false)
  .option('--emulated', 'as --small: what needs a GPU runs on the driver that is emulated on the CPU', false)
  .option('--full', 'full sizes where a benchmark makes its subjects smaller by default', false)
  .option('--seed <number>', 'seed of whatever the benchmark draws', wholeNumber, 1)
  .option('--json', 'print JSON')
  .option('--out <folder>', 'keep the figures there instead of bench/results/')
  .action(main)
  .parseAsync();
