/** Changes of a function: one at a time here, and in a fleet against what its other hosts change. */
import { ChangedElsewhere } from '../../fleet/index.ts';
import type { KeyedMutex } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import type { FleetFunction, FleetStore } from './fleet-store.ts';

/** Of a function that other hosts change at the same time, how often a change is made anew. */
const triesMax = 8;

export interface ChangesOptions {
  readonly fleet: FleetStore | undefined;
  /** By function name. */
  readonly mutex: KeyedMutex;
  /** Makes the store's versions of a function those that the fleet has. Under its lock. */
  readonly take: (name: string, wanted: FleetFunction | undefined) => Promise<void>;
}

export class Changes {
  readonly fleet: FleetStore | undefined;
  readonly #options: ChangesOptions;
  /** What the fleet had of each function when the store took that over. */
  readonly #taken = new Map<string, FleetFunction>();

  constructor(options: ChangesOptions) {
    this.fleet = options.fleet;
    this.#options = options;
  }

  /** Under the function's lock: until its first wait, `work` finds in the store what is known of the fleet's. */
  async onLatest<T>(name: string, work: () => T | Promise<T>): Promise<T> {
    for (;;) {
      const wanted = this.fleet?.get(name);
      if (wanted === this.#taken.get(name)) return await work();
      await this.#options.take(name, wanted);
      if (wanted === undefined) this.#taken.delete(name);
      else this.#taken.set(name, wanted);
    }
  }

  /**
   * A change under the function's lock; once more, on what the function is by then, where another host changed it in
   * between.
   *
   * @throws HostError 'fleet-unavailable', and what `work` throws
   */
  async run<T>(name: string, work: () => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      await this.fleet?.ready();
      try {
        return await this.#options.mutex.run(name, async () => await this.onLatest(name, work));
      } catch (error) {
        if (!(error instanceof ChangedElsewhere)) throw error;
        const often = `${error.message}, ${tries} times in a row`;
        if (tries === triesMax) throw new HostError('publish-in-progress', often, { cause: error });
      }
      await this.fleet?.sync();
    }
  }
}
