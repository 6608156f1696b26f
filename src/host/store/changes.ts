/** Serializes changes of a function: one at a time on this host, and in a fleet against changes by other hosts. */
import { ChangedElsewhere } from '../../store/index.ts';
import type { KeyedMutex } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import { onDisk } from './disk.ts';
import { isEmpty, type Entries } from './entries.ts';
import { asFleetFunction, type FleetFunction, type FleetStore } from './fleet-store.ts';
import type { FunctionEntry } from './version-record.ts';

/** How often a change is retried when other hosts change the same function. */
const triesMax = 8;

export interface ChangesOptions {
  readonly fleet: FleetStore | undefined;
  readonly entries: Entries;
  /** By function name. */
  readonly mutex: KeyedMutex;
  /** Makes the store's versions of a function those of the fleet. Called under its lock. */
  readonly take: (name: string, wanted: FleetFunction | undefined) => Promise<void>;
}

export class Changes {
  readonly fleet: FleetStore | undefined;
  readonly #options: ChangesOptions;
  /** The fleet's state of each function that the store has adopted last. */
  readonly #taken = new Map<string, FleetFunction>();

  constructor(options: ChangesOptions) {
    this.fleet = options.fleet;
    this.#options = options;
  }

  /** Under the function's lock: until its first await, `work` finds the fleet's latest known state in the store. */
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
   * Makes a change under the function's lock. If another host changed the function in between, the change is made again
   * on the new state.
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

  /** Makes a function's new entry known: before it nothing has changed, after it everything has. Within {@link run}. */
  async commit(name: string, next: FunctionEntry): Promise<void> {
    // The next entry was made from the one that the store has taken, and another host's may have come since.
    if (this.fleet?.get(name) !== this.#taken.get(name)) {
      throw new ChangedElsewhere(`function '${name}' was changed at another host`);
    }
    await this.fleet?.commit(name, isEmpty(next) ? undefined : asFleetFunction(next));
    await onDisk(() => this.#options.entries.write(name, next));
  }
}
