/**
 * Hears what others change in the store: at once where Redis carries the word, else within two seconds by the store's
 * marker, and within a minute by its list in any case.
 */
import { LRUCache } from 'lru-cache';
import { StoreAway, type Store } from '../../store/index.ts';
import { getOrMake, type Log } from '../../tools/index.ts';
import type { Entries } from './entries.ts';

const lookMs = 2000;
const listMs = 60_000;
/** So many unknown names are looked up at once; further ones count as unknown. */
const lookUpsMax = 16;
/** For so long a version that was looked up is not looked up again. */
const unknownMs = 2000;

/** Carries the names of changed functions between hosts. */
export interface StoreBroadcast {
  tell(name: string): void;
  /** @returns ends it */
  follow(listener: (name: string) => void): () => void;
}

export interface StoreWatchOptions {
  readonly store: Store;
  readonly entries: Entries;
  /** Reads a function's entry, and takes what has changed. */
  readonly adopt: (name: string) => Promise<void>;
  readonly broadcast: StoreBroadcast | undefined;
  readonly log: Log;
}

/** Why the store does not answer, and since when (Date.now()). */
export interface StoreTrouble {
  readonly reason: string;
  readonly sinceMs: number;
}

export class StoreWatch {
  readonly #options: StoreWatchOptions;
  readonly #lookingUp = new Map<string, Promise<boolean>>();
  /** `name@version`, or `name@` for a name alone. */
  readonly #lookedUp = new LRUCache<string, true>({ max: 10_000, ttl: unknownMs });
  #timer: NodeJS.Timeout | undefined;
  #endFollowing: (() => void) | undefined;
  #looking: Promise<void> | undefined;
  #marker: string | undefined;
  #nextListMs = -Infinity;
  #trouble: StoreTrouble | undefined;
  #isClosed = false;

  constructor(options: StoreWatchOptions) {
    this.#options = options;
  }

  /** Undefined: the store answered when it was last asked. */
  get trouble(): StoreTrouble | undefined {
    return this.#trouble;
  }

  start(): void {
    const { broadcast } = this.#options;
    this.#endFollowing = broadcast?.follow((name) => void this.#heard(name));
    this.#timer = setInterval(() => void this.look(), lookMs);
    this.#timer.unref();
  }

  /** Resolves when no change is being taken any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    this.#endFollowing?.();
    await Promise.all([this.#looking, ...this.#lookingUp.values()]);
  }

  /** Looks for changes now; calls that come meanwhile share it. */
  async look(): Promise<void> {
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
    await this.#looking;
  }

  /** Looks up what this host does not know; undefined: it was, a moment ago. @param version undefined: any */
  lookUp(name: string, version: string | undefined): Promise<unknown> | undefined {
    const asked = `${name}@${version ?? ''}`;
    if (this.#isClosed || this.#lookedUp.has(asked)) return undefined;
    if (!this.#lookingUp.has(name) && this.#lookingUp.size >= lookUpsMax) return undefined;
    return getOrMake(this.#lookingUp, name, () =>
      this.#adopt(name).finally(() => {
        this.#lookingUp.delete(name);
        this.#lookedUp.set(asked, true);
      }),
    );
  }

  async #heard(name: string): Promise<void> {
    this.#lookedUp.delete(`${name}@`);
    if (!this.#isClosed) await this.#adopt(name);
  }

  async #look(): Promise<void> {
    const { store, entries } = this.#options;
    try {
      const marker = await store.marker();
      const nowMs = performance.now();
      if (marker === this.#marker && nowMs < this.#nextListMs) return this.#answered();
      const tags = await store.list();
      if (tags.size === 0 && entries.names().length > 0) {
        throw new StoreAway(`${store.place} is empty, though this host has read functions there`);
      }
      let isTaken = true;
      for (const [name, tag] of tags) {
        if (this.#isClosed) return;
        if (tag !== entries.tagOf(name)) isTaken = (await this.#adopt(name)) && isTaken;
      }
      if (!isTaken) return;
      this.#answered();
      this.#marker = marker;
      this.#nextListMs = nowMs + listMs;
    } catch (error) {
      this.#failed(error);
    }
  }

  async #adopt(name: string): Promise<boolean> {
    try {
      await this.#options.adopt(name);
      return true;
    } catch (error) {
      this.#failed(error, name);
      return false;
    }
  }

  #answered(): void {
    if (this.#trouble === undefined) return;
    this.#trouble = undefined;
    this.#options.log.info({}, 'the store answers again');
  }

  #failed(error: unknown, name?: string): void {
    const { message } = error as Error;
    const isNew = this.#trouble?.reason !== message;
    this.#trouble = { reason: message, sinceMs: this.#trouble?.sinceMs ?? Date.now() };
    if (!isNew) return;
    const words = error instanceof StoreAway ? 'the store is away' : 'a change in the store could not be taken';
    this.#options.log.warn({ reason: message, ...(name === undefined ? {} : { function: name }) }, words);
  }
}
