/** The time axis of a value, and how it is cut. */

/** Time runs along `axis`: each of the `steps` takes `rows` places there (more than one after axes were merged). */
export interface TimeAxis {
  readonly steps: number;
  readonly axis: number;
  readonly rows: number;
}

/** A run of steps. */
export interface Chunk {
  readonly first: number;
  readonly steps: number;
}

export const sameTime = (a: TimeAxis | undefined, b: TimeAxis | undefined): boolean =>
  a !== undefined && b !== undefined && a.steps === b.steps && a.axis === b.axis && a.rows === b.rows;

/** Chunks of `stepsMax` steps each; the last one has the rest. */
export function chunksOf(steps: number, stepsMax: number): readonly Chunk[] {
  return Array.from({ length: Math.ceil(steps / stepsMax) }, (_, index) => ({
    first: index * stepsMax,
    steps: Math.min(stepsMax, steps - index * stepsMax),
  }));
}

/** 'step8-15': the last part of names that belong to a chunk. */
export const chunkName = ({ first, steps }: Chunk): string => `step${first}-${first + steps - 1}`;
