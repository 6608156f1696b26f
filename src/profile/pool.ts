import { profileCheck, ProfileError } from './profile-error.ts';

/**
 * The latency of one instance of a function on CPU cores, measured while it runs alone (Packrat, 3.2). The same form in
 * files (`wrangler-free-config/profiles/pool.schema.json`) and in memory.
 */
export interface PoolProfile {
  readonly unit: 'ms';
  /** Intra-op threads, increasing; one for each row of `latency`. */
  readonly threads: readonly number[];
  /** Batch sizes, increasing; one for each column of `latency`. */
  readonly batches: readonly number[];
  /** Milliseconds of one run, `latency[i][j]` with `threads[i]` and `batches[j]`; null if unknown. */
  readonly latency: readonly (readonly (number | null)[])[];
}

const check = profileCheck('pool', 'pool profile');

/** Checks the contents of a file. @throws ProfileError with a sentence that names the field */
export function parsePoolProfile(json: unknown): PoolProfile {
  check(json);
  const profile = json as PoolProfile;
  const { threads, batches, latency } = profile;
  mustIncrease('threads', threads);
  mustIncrease('batches', batches);
  if (latency.length !== threads.length) {
    throw new ProfileError(
      `field 'latency' of the pool profile has ${latency.length} rows, but 'threads' has ${threads.length} ` +
        'entries: there must be a row for each',
    );
  }
  for (const [index, row] of latency.entries()) {
    if (row.length !== batches.length) {
      throw new ProfileError(
        `field 'latency[${index}]' of the pool profile has ${row.length} entries, but 'batches' has ` +
          `${batches.length}: there must be an entry for each`,
      );
    }
  }
  return profile;
}

function mustIncrease(field: string, values: readonly number[]): void {
  const index = values.findIndex((value, at) => at > 0 && value <= (values[at - 1] ?? 0));
  if (index < 0) return;
  throw new ProfileError(
    `field '${field}[${index}]' of the pool profile is ${values[index]} after ${values[index - 1]}, but ` +
      `'${field}' must increase`,
  );
}
