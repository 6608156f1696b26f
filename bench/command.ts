/** The command of `npm run bench -- NAME`: runs benchmarks, prints tables, and keeps the figures in bench/results/. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { renderTable } from '../src/cli/table.ts';
import { BenchmarkNotPossible, type BenchmarkResult } from './benchmark.ts';
import { describeMachine } from './machine.ts';
import { showProgress } from './progress.ts';
import { benchmarkNames, loadBenchmark } from './registry.ts';
import { renderMarkdown, renderRun, type BenchmarkRun } from './report.ts';

interface MainOptions {
  readonly list?: boolean;
  readonly small: boolean;
  readonly emulated: boolean;
  readonly seed: number;
  readonly full: boolean;
  readonly minutes?: number;
  readonly json?: boolean;
  readonly out?: string;
  readonly append: boolean;
  readonly row?: readonly string[];
}

const resultsDir = join(import.meta.dirname, 'results');

async function main(names: readonly string[], given: MainOptions): Promise<void> {
  const options: MainOptions = { ...given, small: given.small || given.emulated };
  const known = benchmarkNames();
  if (options.list === true || names.length === 0) {
    const loaded = await Promise.all(known.map(async (name) => await loadBenchmark(name)));
    const rows = loaded.map(({ name, description }) => [name, description]);
    console.log(rows.length === 0 ? 'no benchmarks' : renderTable(['BENCHMARK', 'QUESTION'], rows));
    return;
  }
  const unknown = names.find((name) => !known.includes(name));
  if (unknown !== undefined) {
    console.error(`there is no benchmark '${unknown}'; there are: ${known.join(', ') || 'none'}`);
    process.exitCode = 2;
    return;
  }
  // Small runs are tests and single rows are parts: they must not replace figures of a whole run. What they are added
  // to stays.
  const isPart = options.small || (options.row !== undefined && !options.append);
  const folder = options.out ?? (isPart ? undefined : resultsDir);
  for (const name of names) {
    const problem = (await findNoSum(name, options.append)) ?? (await findUnknownRow(name, options.row));
    if (problem !== undefined) {
      console.error(problem);
      process.exitCode = 2;
      return;
    }
    let run: BenchmarkRun;
    try {
      run = await runBenchmark(name, folder, options, options.append ? keptPieces(name, options.out) : []);
    } catch (error) {
      if (!(error instanceof BenchmarkNotPossible)) throw error;
      // A machine that lacks what is measured has not failed: whoever runs all benchmarks on it gets those that it can
      // run.
      console.error(`${name} was not run, and nothing was written: ${error.message}`);
      continue;
    }
    console.log(options.json === true ? JSON.stringify(run, null, 2) : `${renderRun(run)}\n`);
    if (folder === undefined) continue;
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `${name}.json`), `${JSON.stringify(run, null, 2)}\n`);
    writeFileSync(join(folder, `${name}.md`), renderMarkdown(run));
    if (folder === resultsDir) await updateDocs();
  }
}

/** Some pages of docs/ quote results: new results beside pages of old ones would be two answers to one question. */
async function updateDocs(): Promise<void> {
  // Only here: making pages loads a formatter, and most runs write no results.
  const { updatePages } = await import('../scripts/docs.ts');
  for (const path of await updatePages({ write: true })) console.error(`${path} follows the new results`);
}

/** @param before pieces of earlier runs, to which this one is added */
async function runBenchmark(
  name: string,
  folder: string | undefined,
  { small, seed, full, minutes, row }: MainOptions,
  before: readonly object[],
): Promise<BenchmarkRun> {
  const benchmark = await loadBenchmark(name);
  const startedAt = new Date().toISOString();
  const startedMs = performance.now();
  const { say, end } = showProgress();
  let own: BenchmarkResult;
  try {
    own = await benchmark.run({
      small,
      seed,
      full,
      ...(minutes === undefined ? {} : { minutes }),
      ...(row === undefined ? {} : { rows: row }),
      ...(folder === undefined ? {} : { out: folder }),
      progress: say,
    });
  } finally {
    end();
  }
  const result = before.length === 0 ? own : benchmark.sum!([...before, ...(own.pieces ?? [])]);
  if (benchmark.mustMeetAims === true && (result.aims ?? []).some(({ met, isOfSpeed }) => !met && isOfSpeed !== true))
    process.exitCode = 1;
  return { name, small, seed, startedAt, tookMs: performance.now() - startedMs, machine: describeMachine(), ...result };
}

/** Of the runs that were kept under this name; none where nothing was. */
function keptPieces(name: string, folder = resultsDir): readonly object[] {
  const file = join(folder, `${name}.json`);
  return existsSync(file) ? ((JSON.parse(readFileSync(file, 'utf8')) as BenchmarkRun).pieces ?? []) : [];
}

/** A sentence where runs are to be added up that do not add up. */
async function findNoSum(name: string, append: boolean): Promise<string | undefined> {
  if (!append || (await loadBenchmark(name)).sum !== undefined) return undefined;
  return `runs of the benchmark '${name}' do not add up: leave --append out`;
}

/** A sentence about a row that the benchmark does not have; undefined where all are known. */
async function findUnknownRow(name: string, rows: readonly string[] | undefined): Promise<string | undefined> {
  if (rows === undefined) return undefined;
  const known = (await loadBenchmark(name)).rowNames?.() ?? [];
  const unknown = rows.find((row) => !known.includes(row));
  if (unknown === undefined) return undefined;
  return `the benchmark '${name}' has no row '${unknown}'; it has: ${known.join(', ') || 'none'}`;
}

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError('it must be a whole number');
  return Number(text);
}

function positiveNumber(text: string): number {
  const number = Number(text);
  if (!(number > 0 && number < Infinity)) throw new InvalidArgumentError('it must be a number above 0');
  return number;
}

/** @param words as on the command line. What went wrong is the process's exit code. */
export const runBenchCommand = async (words: readonly string[]): Promise<void> => {
  await new Command('bench')
    .description('Run benchmarks by name; without a name, list them.')
    .argument('[names...]', 'benchmarks to run')
    .option('--list', 'list the benchmarks')
    .option('--small', 'a run of seconds that measures nothing worth quoting', false)
    .option('--emulated', 'as --small: what needs a GPU runs on the driver that is emulated on the CPU', false)
    .option('--full', 'full sizes where a benchmark makes its subjects smaller by default', false)
    .option(
      '--minutes <number>',
      'how long chaos and fuzz go on, and what gpu, serve, chrion and gpu-day have to fit into',
      positiveNumber,
    )
    .option('--row <names>', 'only these rows of the table, by name, with commas', (text) => text.split(','))
    .option('--seed <number>', 'seed of whatever the benchmark draws', wholeNumber, 1)
    .option('--json', 'print JSON')
    .option('--append', 'add the run to those that were kept, where runs of the benchmark add up', false)
    .option('--out <folder>', 'keep the figures there instead of bench/results/')
    .action(main)
    .parseAsync([...words], { from: 'user' });
};
