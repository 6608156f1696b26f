/**
 * Counts what keeps the scheduler's room hard to change: `npx tsx scripts/count-reaches.ts`, with the name of a commit as
 * it was then. `test/project/reaches.test.ts` holds the numbers.
 */
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { packageRoot } from '../src/host/config/options.ts';

export interface Source {
  /** From the folder of the package. */
  readonly path: string;
  readonly text: string;
}

interface Measure {
  readonly what: string;
  /** Files that are looked at. */
  readonly where: RegExp;
  readonly sign: RegExp;
}

/** Lines by which an object of the scheduler reaches into what another one owns. */
const reaches: Measure = {
  what: "lines that reach into the scheduler's shared state, outside of state.ts",
  where: /^src\/schedule\/(?!state\.ts)/,
  sign: /this\.#(?:state|shared|facts)\b(?! =)/,
};

/** As they were called when 24 files named one, and as they are called now. */
const kinds: Measure = {
  what: 'files that name a kind of place',
  where: /^src\//,
  sign: /\b(?:gpuWarm|cpuPlace|cpuPlacement)\b|'(?:remote|cpu-pool|remote-worker|run-cpu|run-worker)'/,
};

/** Also where a kind is compared or given, as 'cpu', 'worker' or 'workers'. */
const compared: Measure = {
  what: 'files that name, compare or give a kind of place beside the GPUs',
  where: /^src\/(?:schedule|live|host|replay)\//,
  sign: new RegExp(
    [
      kinds.sign.source,
      String.raw`\b(?:place|kind|id|each|where|otherPlace|to|from|chosen)(?: ?[!=]==|:| =) '(?:cpu|workers?)'`,
      String.raw`case '(?:cpu|workers?)':|'cpu' \| 'worker`,
      String.raw`new (?:CpuLanes|WorkerSlots)|workerPlacement|#(?:cpu|workers)Side\b`,
    ].join('|'),
  ),
};

const lookedAt = ({ where }: Measure, sources: readonly Source[]): Source[] =>
  sources.filter(({ path }) => where.test(path) && /\.tsx?$/.test(path) && !/\.test\.tsx?$/.test(path));

/** By file, the lines that reach. */
export function reachesIn(sources: readonly Source[]): Map<string, number> {
  const counts = lookedAt(reaches, sources).map(({ path, text }): [string, number] => [
    path,
    text.split('\n').filter((line) => reaches.sign.test(line)).length,
  ]);
  return new Map(counts.filter(([, lines]) => lines > 0));
}

/** The files that name a kind of place. @param isCompared also where one is compared or given */
export const kindFilesIn = (sources: readonly Source[], isCompared = false): string[] => {
  const measure = isCompared ? compared : kinds;
  return lookedAt(measure, sources).flatMap(({ path, text }) => (measure.sign.test(text) ? [path] : []));
};

export const sourcesHere = (): Source[] =>
  readdirSync(join(packageRoot, 'src'), { recursive: true, encoding: 'utf8' })
    .map((name) => `src/${name}`)
    .filter((path) => /\.tsx?$/.test(path))
    .map((path) => ({ path, text: readFileSync(join(packageRoot, path), 'utf8') }));

const git = (...args: string[]): string =>
  execFileSync('git', args, { cwd: packageRoot, encoding: 'utf8', maxBuffer: 2 ** 28 });

function sourcesAt(commit: string): Source[] {
  const paths = git('ls-tree', '-r', '--name-only', commit, 'src').split('\n');
  return paths.filter((path) => /\.tsx?$/.test(path)).map((path) => ({ path, text: git('show', `${commit}:${path}`) }));
}

if (process.argv[1] === import.meta.filename) {
  const [commit] = process.argv.slice(2);
  const sources = commit === undefined ? sourcesHere() : sourcesAt(commit);
  const lines = [...reachesIn(sources).values()].reduce((sum, each) => sum + each, 0);
  const rows: [number, string][] = [
    [lines, reaches.what],
    [kindFilesIn(sources).length, kinds.what],
    [kindFilesIn(sources, true).length, compared.what],
  ];
  for (const [count, what] of rows) process.stdout.write(`${String(count).padStart(5)}  ${what}\n`);
}
