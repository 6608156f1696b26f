/** Samples of a time. */

/** The middle value; for an even count the mean of the two in the middle. NaN of none. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** A time beyond so many medians is a glitch of the machine: one in a hundred would raise a mean by a third. */
const mishapFactor = 3;

/** The mean without glitches; a queue's latency follows means, not medians. NaN of none. */
export function steadyMean(values: readonly number[]): number {
  return mean(withoutMishaps(values));
}

/**
 * Variance over squared mean without glitches: 0 for times that are all the same, 1 for exponential ones. 0 of none.
 */
export function steadyVariation(values: readonly number[]): number {
  const steady = withoutMishaps(values);
  const center = mean(steady);
  return steady.length === 0 ? 0 : mean(steady.map((value) => (value / center - 1) ** 2));
}

function withoutMishaps(values: readonly number[]): number[] {
  const most = mishapFactor * median(values);
  return values.filter((value) => value <= most);
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Half the distance of the quartiles over the median: how far the middle half of the samples lies apart. */
export function relativeSpread(values: readonly number[]): number {
  if (values.length < 2) return 0;
  return (quantile(values, 0.75) - quantile(values, 0.25)) / 2 / median(values);
}

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (sorted.length - 1) * share;
  const low = sorted[Math.floor(at)] ?? Number.NaN;
  const high = sorted[Math.ceil(at)] ?? Number.NaN;
  return low + (high - low) * (at - Math.floor(at));
}

/** The value at `at`, or on the straight line between the nearest ones around it. */
export function between(known: ReadonlyMap<number, number>, at: number): number {
  const exact = known.get(at);
  if (exact !== undefined) return exact;
  const below = Math.max(...[...known.keys()].filter((key) => key < at));
  const above = Math.min(...[...known.keys()].filter((key) => key > at));
  const low = known.get(below) ?? Number.NaN;
  const high = known.get(above) ?? low;
  return low + ((high - low) * (at - below)) / (above - below);
}

/** Share of the turns in which the first was done before the second. */
export function aheadShare(one: readonly number[], other: readonly number[]): number {
  return one.filter((ms, turn) => ms < (other[turn] ?? Infinity)).length / one.length;
}
