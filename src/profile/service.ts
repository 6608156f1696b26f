import { profileCheck, ProfileError } from './profile-error.ts';

/** One way to run a service (SERF, IV-B): how many requests at once, on how many threads of how many machines each. */
export interface ServiceConfiguration {
  /** Most requests that run at the same time: the paper's service parallelism, c. */
  readonly concurrency: number;
  /** Threads that work on one request on each machine: intra-node parallelism. */
  readonly threads: number;
  /** Machines that work on one request together: inter-node parallelism; default: 1. */
  readonly nodes?: number;
  /** Milliseconds of one request, without waiting, while 1, 2, ... `concurrency` requests run. */
  readonly serviceTime: readonly number[];
}

/** The same form in files (`wrangler-free-config/profiles/service.schema.json`) and in memory. */
export interface ServiceProfile {
  readonly unit: 'ms';
  readonly configurations: readonly ServiceConfiguration[];
}

const check = profileCheck('service', 'service profile');

/** Checks the contents of a file. @throws ProfileError with a sentence that names the field */
export function parseServiceProfile(json: unknown): ServiceProfile {
  check(json);
  const profile = json as ServiceProfile;
  const seen = new Map<string, number>();
  for (const [index, { concurrency, threads, nodes = 1, serviceTime }] of profile.configurations.entries()) {
    const field = `configurations[${index}]`;
    if (serviceTime.length !== concurrency) {
      throw new ProfileError(
        `field '${field}.serviceTime' of the service profile has ${serviceTime.length} entries, but concurrency ` +
          `is ${concurrency}: there must be one for each number of running requests from 1 to ${concurrency}`,
      );
    }
    const key = `${concurrency} ${threads} ${nodes}`;
    const earlier = seen.get(key);
    if (earlier !== undefined) {
      throw new ProfileError(
        `field '${field}' of the service profile has the concurrency, threads and nodes of configurations[${earlier}]`,
      );
    }
    seen.set(key, index);
  }
  return profile;
}
