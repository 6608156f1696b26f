/** Serializes changes of a function: one at a time on this host, and by conditional writes among all that use the store. */
import { ChangedElsewhere, StoreAway } from '../../store/index.ts';
import type { KeyedMutex } from '../../tools/index.ts';
import { HostError } from '../errors.ts';
import { onDisk } from './disk.ts';
import type { Entries } from './entries.ts';
import type { FunctionEntry } from './version-record.ts';

/** How often a change is made again when others change the same function. */
const triesMax = 8;

export interface ChangesOptions {
  readonly entries: Entries;
  /** By function name. */
  readonly mutex: KeyedMutex;
  /** Makes the host's versions of a function those of its entry, which has just been read. Called under its lock. */
  readonly take: (name: string) => Promise<void>;
  /** Tells other hosts that a function has changed. */
  readonly tell?: ((name: string) => void) | undefined;
}

export class Changes {
  readonly #options: ChangesOptions;

  constructor(options: ChangesOptions) {
    this.#options = options;
  }

  /** Reads a function's entry, and takes what others have changed. @throws StoreAway */
  async adopt(name: string): Promise<void> {
    const { entries, mutex, take } = this.#options;
    await mutex.run(name, async () => {
      if (await entries.read(name)) await take(name);
    });
  }

  /**
   * Makes a change under the function's lock. If somebody else changed the function in between, the change is made again
   * on the new state.
   *
   * @throws HostError 'store-unavailable', and what `work` throws
   */
  async run<T>(name: string, work: () => Promise<T>): Promise<T> {
    try {
      for (let tries = 1; ; tries++) {
        try {
          return await this.#options.mutex.run(name, work);
        } catch (error) {
          if (!(error instanceof ChangedElsewhere)) throw error;
          const often = `${error.message}, ${tries} times in a row`;
          if (tries === triesMax) throw new HostError('publish-in-progress', often, { cause: error });
        }
        await this.adopt(name);
      }
    } catch (error) {
      throw error instanceof StoreAway ? storeUnavailable(error) : error;
    }
  }

  /** Makes a function's new entry known: before it nothing has changed, after it everything has. Within {@link run}. */
  async commit(name: string, next: FunctionEntry): Promise<void> {
    const { entries, tell } = this.#options;
    await onDisk(() => entries.write(name, next));
    tell?.(name);
  }
}

export function storeUnavailable(error: Error): HostError {
  return new HostError(
    'store-unavailable',
    `${error.message}: nothing can be published or changed until it answers; what is published goes on serving`,
    { cause: error },
  );
}
