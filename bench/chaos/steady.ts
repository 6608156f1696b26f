/** Publishes, calls, deletes, loads and unloads again and again: afterwards a host must hold what it held before. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { waitLimitMs } from '../../test/time-limits.ts';
import { tableOf, type BenchmarkOptions, type BenchmarkResult } from '../benchmark.ts';
import { descendants, memoryOf, Servers, type StartedServer } from '../servers.ts';
import { mustSend } from '../shared/requests.ts';
import { sum } from '../shared/statistics.ts';
import { openInference } from './answers.ts';
import { sumGraph, sumModel, valuesMax } from './models.ts';

const cyclesSmall = 4;
/**
 * Times of the measurements, as shares of the run. The first part warms up caches: modules, compiled code, connections.
 */
const looksAt = [0.25, 0.5, 1];
/** In parallel: while one opens a model, others call, remove and load. */
const publishers = 3;
const cyclesEach = 4;
/** Beside them, each with its own function and so many loads for each cycle. */
const loaders = 2;
const loadsPerCycle = 5;
const mebibyte = 2 ** 20;
/** In which a host collects its garbage. */
const collectMs = 2000;
/** What is kept varies by less; a leak of a few kilobytes a cycle exceeds it in a run of thousands of cycles. */
const memoryGrowthMax = 32 * mebibyte;

interface Sizes {
  /** Of the host and all its processes. */
  readonly memoryBytes: number;
  readonly hostMemoryBytes: number;
  readonly descriptors: number;
  readonly processes: number;
  readonly temporaryFiles: number;
  readonly dataFiles: number;
}

/** What one run adds to the others; stored as JSON with their result. */
export interface SteadyPiece {
  readonly scene: 'steady';
  readonly cycles: number;
  readonly loads: number;
  readonly seconds: number;
  /** After the shares in {@link looksAt}. */
  readonly sizes: readonly Sizes[];
}

export async function runSteady({ small, minutes = 5, progress }: BenchmarkOptions): Promise<SteadyPiece> {
  await using servers = await Servers.create();
  const [side, each, besides] = small ? [1, 1, 1] : [publishers, cyclesEach, loaders];
  const kept = Array.from({ length: besides }, (_, index) => `kept-${index}`);
  for (const name of kept) await servers.addFunction(name, sumGraph(0), { slo: '5s' });
  const temporary = await servers.makeFolder('tmp');
  const flags = ['--cpu-cores', '1', '--gpu-use', 'off', '--cpu-profiling', 'off'];
  const collecting = pathToFileURL(join(import.meta.dirname, 'collect.mjs')).href;
  const host = await servers.startHost(flags, { TMPDIR: temporary, NODE_OPTIONS: `--import=${collecting}` });
  const sizes: Sizes[] = [];
  const startMs = performance.now();
  const elapsedMs = (): number => performance.now() - startMs;
  let [cycles, loads] = [0, 0];
  while (sizes.length < looksAt.length) {
    const atWork = { publishers: side };
    const publishing = Promise.all(
      Array.from({ length: side }, async (_, publisher) => {
        try {
          for (let left = each; left > 0; left--) await runCycle(host.url, `cycle-${publisher}`, ++cycles);
        } finally {
          atWork.publishers--;
        }
      }),
    );
    const loading = kept.map(async (name) => {
      do await reload(host.url, name, ++loads % valuesMax);
      while (atWork.publishers > 0 && loads < loadsPerCycle * cycles);
    });
    // Measure while nothing is in progress.
    await Promise.all([publishing, ...loading]);
    progress(`${cycles} cycles, ${loads} loads`);
    const share = small ? cycles / cyclesSmall : elapsedMs() / (minutes * 60_000);
    if (share >= looksAt[sizes.length]!) sizes.push(await sizesOf(host, servers.folder, temporary));
  }
  const seconds = elapsedMs() / 1000;
  // A busy machine takes seconds to remove what it was told to, or to start a process for later loads: none of that stays.
  const lateMs = performance.now() + waitLimitMs;
  while (!isFlat(sizes[0]!, sizes.at(-1)!) && performance.now() < lateMs) {
    sizes[sizes.length - 1] = await sizesOf(host, servers.folder, temporary);
  }
  return { scene: 'steady', cycles, loads, seconds, sizes };
}

async function runCycle(url: string, name: string, bias: number): Promise<void> {
  await mustSend(`${url}/functions/${name}`, { method: 'PUT', body: sumModel(bias) });
  await mustAdd(url, name, bias);
  await mustSend(`${url}/functions/${name}`, { method: 'DELETE' });
}

async function reload(url: string, name: string, value: number): Promise<void> {
  const path = `${url}/v2/repository/models/${name}`;
  await mustSend(`${path}/unload`, { method: 'POST' });
  await mustSend(`${path}/load`, { method: 'POST' });
  await mustAdd(url, name, 0, value);
}

async function mustAdd(url: string, name: string, bias: number, value = 1): Promise<void> {
  const outcome = await openInference(url, name)(value, String(bias));
  if (outcome.kind !== 'answer' || outcome.value !== value + bias) {
    throw new Error(`${name} of ${value} was answered with ${JSON.stringify(outcome)} instead of ${value + bias}`);
  }
}

async function sizesOf({ process: host }: StartedServer, folder: string, temporary: string): Promise<Sizes> {
  // Node lets garbage of some 256 MB gather: what a host held at any moment said nothing about what it keeps.
  host.kill('SIGUSR2');
  await delay(collectMs);
  const tree = [host.pid!, ...(await descendants(host.pid!))];
  const memory = await Promise.all(tree.map((pid) => memoryOf(pid, 'RssAnon')));
  const descriptors = await Promise.all(tree.map(async (pid) => (await namesIn(`/proc/${pid}/fd`)).length));
  return {
    memoryBytes: sum(memory),
    hostMemoryBytes: memory[0]!,
    descriptors: sum(descriptors),
    processes: tree.length,
    temporaryFiles: (await namesIn(temporary)).length,
    dataFiles: (await readdir(join(folder, 'data'), { recursive: true })).length,
  };
}

const namesIn = async (folder: string): Promise<string[]> => await readdir(folder).catch(() => []);

const eachOther = ({ memoryBytes, hostMemoryBytes, processes }: Sizes): number =>
  (memoryBytes - hostMemoryBytes) / Math.max(1, processes - 1);

const inMebibytes = (bytes: number): number => Math.round(bytes / mebibyte);

/** What must not grow by more than this from the first measurement to the last. */
const flats: readonly (readonly [what: string, sizeOf: (sizes: Sizes) => number, growthMax: number])[] = [
  ['MiB of the host', ({ hostMemoryBytes }) => inMebibytes(hostMemoryBytes), inMebibytes(memoryGrowthMax)],
  // The number of processes is a separate aim: one more process has as much memory as the others from its start.
  ['MiB of each other process', (sizes) => inMebibytes(eachOther(sizes)), inMebibytes(memoryGrowthMax / 4)],
  // At any moment a connection or a blank process may be starting or ending.
  ['descriptors', ({ descriptors }) => descriptors, 40],
  ['processes', ({ processes }) => processes, 1],
  ['temporary files', ({ temporaryFiles }) => temporaryFiles, 2],
  ['files of the data folder', ({ dataFiles }) => dataFiles, 6],
];

const isFlat = (first: Sizes, last: Sizes): boolean =>
  flats.every(([, sizeOf, growthMax]) => sizeOf(last) <= sizeOf(first) + growthMax);

/** The result of these runs together, each with its own host. @param pieces at least one */
export function reportSteady(pieces: readonly SteadyPiece[]): BenchmarkResult {
  const [cycles, loads, seconds] = (['cycles', 'loads', 'seconds'] as const).map((of) =>
    sum(pieces.map((piece) => piece[of])),
  ) as [number, number, number];
  const ends = pieces.map(({ sizes }) => [sizes[0]!, sizes.at(-1)!] as const);
  const flat = ([what, sizeOf, growthMax]: (typeof flats)[number]) => {
    const [before, after] = ends
      .map(([first, last]) => [sizeOf(first), sizeOf(last)] as const)
      .reduce((worst, pair) => (pair[1] - pair[0] > worst[1] - worst[0] ? pair : worst));
    return {
      aim: `${what} stay flat`,
      met: after <= before + growthMax,
      reached: `${before} after a quarter, ${after} at the end${pieces.length === 1 ? '' : ', in the run where it grew most'}`,
    };
  };
  const growths = ends.map(([first, last]) => last.memoryBytes - first.memoryBytes);
  return {
    settings: { cycles, loads, steadySeconds: Math.round(seconds) },
    tables: [
      tableOf(
        `a host over ${cycles} publications and removals, and ${loads} loads`,
        pieces.flatMap((piece) =>
          piece.sizes.map((each, index) => ({ ...each, piece, after: ['a quarter', 'a half', 'all'][index]! })),
        ),
        [
          ['>CYCLES', ({ piece }) => String(piece.cycles)],
          ['>LOADS', ({ piece }) => String(piece.loads)],
          ['>AFTER', ({ after }) => after],
          ['>MIB', ({ memoryBytes }) => String(inMebibytes(memoryBytes))],
          ['>OF THE HOST', ({ hostMemoryBytes }) => String(inMebibytes(hostMemoryBytes))],
          ['>DESCRIPTORS', ({ descriptors }) => String(descriptors)],
          ['>PROCESSES', ({ processes }) => String(processes)],
          ['>TEMPORARY FILES', ({ temporaryFiles }) => String(temporaryFiles)],
          ['>DATA FILES', ({ dataFiles }) => String(dataFiles)],
        ],
      ),
    ],
    figures: { cycles, loads, cyclesPerSecond: cycles / seconds, memoryBytesGrown: Math.max(...growths) },
    aims: flats.map(flat),
    limits: ['leaks of less than a kilobyte in a publication'],
  };
}
