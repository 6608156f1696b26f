/** Poisson arrivals over many functions, some more popular than others. */

export interface Arrival {
  readonly atMs: number;
  readonly index: number;
}

export type Popularity = 'uniform' | 'zipf';

export function makeArrivals(
  popularity: Popularity,
  functions: number,
  perSecond: number,
  forMs: number,
  seed: number,
): Arrival[] {
  const random = lcg(seed);
  const weights = Array.from({ length: functions }, (_, rank) => (popularity === 'zipf' ? 1 / (rank + 1) : 1));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const bounds: number[] = [];
  let bound = 0;
  for (const weight of weights) bounds.push((bound += weight / total));
  const arrivals: Arrival[] = [];
  for (let atMs = 0; ;) {
    atMs += (-Math.log(1 - random()) / perSecond) * 1000;
    if (atMs >= forMs) return arrivals;
    arrivals.push({ atMs, index: firstAtLeast(bounds, random()) });
  }
}

function firstAtLeast(bounds: readonly number[], value: number): number {
  let [low, high] = [0, bounds.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((bounds[middle] ?? 1) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Numerical Recipes' linear congruential generator, in [0, 1). */
function lcg(seed: number): () => number {
  let state = seed >>> 0;
  return () => (state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0) / 2 ** 32;
}
