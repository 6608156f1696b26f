/** A moving mean in which the new value has this weight; the first value is the mean. */
export function smoothed(mean: number | undefined, value: number, weight = 0.2): number {
  return mean === undefined ? value : mean + weight * (value - mean);
}
