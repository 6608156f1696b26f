/** What of a series a plot has to be told apart from its line. */

/** Indices of values without a neighbour, which a line alone would not show; null where there are none. */
export function alone(values: readonly (number | null)[]): number[] | null {
  const found = values.flatMap((value, index) => {
    const isAlone = value !== null && (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null;
    return isAlone ? [index] : [];
  });
  return found.length === 0 ? null : found;
}

/** The last value that there is. */
export const latestOf = (values: readonly (number | null)[]): number | null =>
  values.findLast((value) => value !== null) ?? null;
