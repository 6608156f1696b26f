/** Changes of a function: one at a time here, and in a fleet against what its other hosts change. */
import { ChangedElsewhere } from '../../fleet/index.ts';
import type { KeyedMutex } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import type { FleetStore } from './fleet-content.ts';

/** Of a function that other hosts change at the same time, how often a change is made anew. */
const triesMax = 8;

export class Changes {
  readonly fleet: FleetStore | undefined;
  readonly #mutex: KeyedMutex;

  /** @param mutex by function name */
  constructor(fleet: FleetStore | undefined, mutex: KeyedMutex) {
    this.fleet = fleet;
    this.#mutex = mutex;
  }

  /**
   * A change under the function's lock; once more, on what the function is by then, where another host changed it in between.
   *
   * @throws HostError 'fleet-unavailable', and what `work` throws
   */
  async run<T>(name: string, work: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      await this.fleet?.ready();
      try {
        return await this.#mutex.run(name, work);
      } catch (error) {
        if (!(error instanceof ChangedElsewhere)) throw error;
        const often = `${error.message}, ${tries} times in a row`;
        if (tries === triesMax) throw new HostError('publish-in-progress', often, { cause: error });
      }
      await this.fleet?.sync();
    }
  }
}
