/** What a benchmark is. Each also runs small, as a test, with a fixed seed: its meaning must not drift unseen. */

export interface BenchmarkOptions {
  /** A run of a few seconds that exercises everything and measures nothing worth quoting. */
  readonly small: boolean;
  readonly seed: number;
  /** What is made smaller by default is run at its full size, however long that takes. */
  readonly full?: boolean;
  /** How long to go on, where a benchmark takes as long as it is given. */
  readonly minutes?: number;
  /** Where a benchmark of several parts writes each as soon as it is done; a temporary folder unless given. */
  readonly out?: string;
  /** Only these rows of the table, by name, where the benchmark has rows that can be run alone. */
  readonly rows?: readonly string[];
  /** Tells a person what is under way; nothing where there is no terminal. */
  readonly progress: (text: string) => void;
}

export interface BenchmarkColumn {
  readonly title: string;
  readonly align?: 'left' | 'right';
}

/** How a figure came about; a reader must never have to guess. */
export type Provenance =
  | { readonly kind: 'measured' }
  /** With which machine preset. */
  | { readonly kind: 'simulated'; readonly preset: string }
  | { readonly kind: 'estimated'; readonly from: string };

export interface BenchmarkTable {
  readonly title: string;
  readonly provenance: Provenance;
  readonly columns: readonly BenchmarkColumn[];
  readonly rows: readonly (readonly string[])[];
}

export interface BenchmarkResult {
  /** What was chosen for the run: counts, sizes, durations, with units in the names. */
  readonly settings: Readonly<Record<string, string | number | boolean>>;
  readonly tables: readonly BenchmarkTable[];
  /** The figures themselves, units in their names, for comparing runs. */
  readonly figures: Readonly<Record<string, number>>;
  /** What was aimed at, and whether this run met it. */
  readonly aims?: readonly { readonly aim: string; readonly met: boolean; readonly reached: string }[];
  /** What the figures do not show. */
  readonly limits: readonly string[];
  /** What {@link Benchmark.sum} makes this result of, as JSON: a piece for each run. */
  readonly pieces?: readonly object[];
}

export interface Benchmark {
  readonly name: string;
  readonly description: string;
  /**
   * Its aims hold however small the run and slow the machine. Where one is missed, the command fails, and so does its
   * test.
   */
  readonly mustMeetAims?: boolean;
  /** Names for `rows`, where the benchmark takes them. */
  readonly rowNames?: () => readonly string[];
  run(options: BenchmarkOptions): Promise<BenchmarkResult>;
  /** The result of several runs together, where they add up: `--append` adds a run to those that were kept. */
  readonly sum?: (pieces: readonly object[]) => BenchmarkResult;
}

/** Thrown by a benchmark whose machine lacks what it measures: it is said, and nothing is written. */
export class BenchmarkNotPossible extends Error {
  override readonly name = 'BenchmarkNotPossible';
}
