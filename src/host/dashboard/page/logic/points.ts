/** Values of a series that a plot shows beside its line. */

/** Indices of values without a neighbour, which a line would not show; null if there are none. */
export function alone(values: readonly (number | null)[]): number[] | null {
  const found = values.flatMap((value, index) => {
    const isAlone = value !== null && (values[index - 1] ?? null) === null && (values[index + 1] ?? null) === null;
    return isAlone ? [index] : [];
  });
  return found.length === 0 ? null : found;
}

/** The last value that is not null. */
export const latestOf = (values: readonly (number | null)[]): number | null =>
  values.findLast((value) => value !== null) ?? null;
