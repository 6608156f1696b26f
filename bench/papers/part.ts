/** The result of one paper's part of the `papers` benchmark. */
import type { BenchmarkResult, BenchmarkTable } from '../benchmark.ts';
import type { Cell } from './cells.ts';

export interface PaperPart {
  /** Of every table and figure of the paper. */
  readonly cells: readonly Cell[];
  readonly tables: readonly BenchmarkTable[];
  readonly aims: NonNullable<BenchmarkResult['aims']>;
  readonly figures: Readonly<Record<string, number>>;
  /** What the figures do not show. */
  readonly limits: readonly string[];
}

/** Difference of `ours` from `paper`, with its sign: "+1.2%". */
export function difference(ours: number, paper: number): string {
  const percent = (ours / paper - 1) * 100;
  // A printed zero gets no sign.
  return `${percent >= 0.05 ? '+' : ''}${Math.abs(percent) < 0.05 ? '0.0' : percent.toFixed(1)}%`;
}
