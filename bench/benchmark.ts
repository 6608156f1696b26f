/**
 * The interface of benchmarks. Each also runs small, as a test with a fixed seed, so that its meaning cannot drift
 * unnoticed.
 */
import { buildEmulatedDriver, type EmulatedDriver } from '../test/emulated-driver/build.ts';

export interface BenchmarkOptions {
  /** A run of a few seconds that exercises everything and measures nothing worth quoting. */
  readonly small: boolean;
  readonly seed: number;
  /** Runs reduced parts at full size, however long that takes. */
  readonly full?: boolean;
  /** Duration of benchmarks without a fixed end, and limit for those that measure less when there is less time. */
  readonly minutes?: number;
  /** Folder in which a benchmark of several parts writes each part when it is done; default: a temporary folder. */
  readonly out?: string;
  /** Runs only these rows of the table, by name, if the benchmark has rows that can run alone. */
  readonly rows?: readonly string[];
  /** Shows the current step. */
  readonly progress: (text: string) => void;
}

/** Where a figure comes from; a reader must never have to guess. */
export type Provenance =
  | { readonly kind: 'measured' }
  /** With this machine preset. */
  | { readonly kind: 'simulated'; readonly preset: string }
  | { readonly kind: 'estimated'; readonly from: string };

/** Of a small run of what needs a GPU. */
export const emulatedOnly: Provenance = {
  kind: 'estimated',
  from: 'nothing: the driver is the emulated one, and its times mean nothing',
};

export interface BenchmarkTable {
  readonly title: string;
  readonly provenance: Provenance;
  /** Titles; one that begins with '>' is of numbers, which stand on the right, as in the command's tables. */
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** A table with a line for each of `rows`, and for each column its title and the text of its cell in a row. */
export function tableOf<Row>(
  title: string,
  rows: readonly Row[],
  columns: readonly (readonly [title: string, cell: (row: Row, index: number) => string])[],
  provenance: Provenance = { kind: 'measured' },
): BenchmarkTable {
  return {
    title,
    provenance,
    columns: columns.map(([heading]) => heading),
    rows: rows.map((row, index) => columns.map(([, cell]) => cell(row, index))),
  };
}

export interface BenchmarkResult {
  /** Settings of the run: counts, sizes, durations, with units in the names. */
  readonly settings: Readonly<Record<string, string | number | boolean>>;
  readonly tables: readonly BenchmarkTable[];
  /** The figures, with units in their names, for comparing runs. */
  readonly figures: Readonly<Record<string, number>>;
  /** The aims, and whether this run met them. */
  readonly aims?: readonly {
    readonly aim: string;
    readonly met: boolean;
    readonly reached: string;
    /** A slow machine misses it: it never fails the command. */
    readonly isOfSpeed?: boolean;
  }[];
  /** What the figures do not show. */
  readonly limits: readonly string[];
  /** One piece for each run, as JSON; {@link Benchmark.sum} makes a result of them. */
  readonly pieces?: readonly object[];
}

export interface Benchmark {
  readonly name: string;
  readonly description: string;
  /** Its aims hold for small runs and slow machines too. If one is missed, the command and its test fail. */
  readonly mustMeetAims?: boolean;
  /** Names for `rows`, if the benchmark takes them. */
  readonly rowNames?: () => readonly string[];
  run(options: BenchmarkOptions): Promise<BenchmarkResult>;
  /**
   * The result of several runs together, for benchmarks whose runs add up: `--append` adds a run to the stored ones.
   */
  readonly sum?: (pieces: readonly object[]) => BenchmarkResult;
}

/** Thrown by a benchmark on a machine that lacks what it measures: the command prints the reason and writes nothing. */
export class BenchmarkNotPossible extends Error {
  override readonly name = 'BenchmarkNotPossible';
}

/** @throws BenchmarkNotPossible where the emulated driver cannot be built */
export async function mustBuildDriver(): Promise<EmulatedDriver> {
  const driver = await buildEmulatedDriver();
  if (driver === undefined) throw new BenchmarkNotPossible('the emulated driver needs g++');
  return driver;
}
