/** What one paper's part of the `papers` benchmark gives. */
import type { BenchmarkResult, BenchmarkTable } from '../benchmark.ts';

export interface PaperPart {
  readonly tables: readonly BenchmarkTable[];
  readonly aims: NonNullable<BenchmarkResult['aims']>;
  readonly figures: Readonly<Record<string, number>>;
  /** What the figures do not show. */
  readonly limits: readonly string[];
}

/** How far `ours` is from `paper`, with its sign: "+1.2%". */
export function difference(ours: number, paper: number): string {
  const percent = (ours / paper - 1) * 100;
  // What is printed as zero has no sign worth showing.
  return `${percent >= 0.05 ? '+' : ''}${Math.abs(percent) < 0.05 ? '0.0' : percent.toFixed(1)}%`;
}
