/** Sums, medians and quantiles of what benchmarks measure. Pure. */

export function sum(values: Iterable<number>): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

/** NaN of nothing. */
export const mean = (values: readonly number[]): number => sum(values) / values.length;

/** Between two values that are in the middle, their mean; NaN of nothing. */
export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? Number.NaN;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? Number.NaN)) / 2;
}

/** One of the values: 0.99 of them are below the one for a share of 0.99. NaN of nothing. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

/** Of latencies, or other milliseconds. */
export const percentiles = (ms: readonly number[]): { readonly p50Ms: number; readonly p99Ms: number } => ({
  p50Ms: quantile(ms, 0.5),
  p99Ms: quantile(ms, 0.99),
});

/** Of each figure the median over the rounds, of which there is at least one. */
export function mediansOf<Figures extends Readonly<Record<keyof Figures, number>>>(
  rounds: readonly Figures[],
): Figures {
  const names = Object.keys(rounds[0]!) as (keyof Figures)[];
  return Object.fromEntries(names.map((name) => [name, median(rounds.map((round) => round[name]))])) as Figures;
}

/** 0.5 as `50.0%`. */
export const percent = (share: number, digits = 1): string => `${(100 * share).toFixed(digits)}%`;
