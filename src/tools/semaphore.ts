/** A semaphore (a mutex with one permit), and a mutex for each key. Callers are served in order of arrival. */
import { getOrMake } from './maps.ts';
import { once } from './once.ts';

export class Semaphore {
  readonly #permits: number;
  readonly #aborted: (signal: AbortSignal) => unknown;
  readonly #waiting: (() => void)[] = [];
  readonly #exclusiveWaiting: (() => void)[] = [];
  #held = 0;
  #isExclusive = false;

  /** @param aborted makes the error for a caller whose signal aborts while it waits; default: the signal's reason */
  constructor(permits = 1, aborted: (signal: AbortSignal) => unknown = (signal) => signal.reason) {
    this.#permits = permits;
    this.#aborted = aborted;
  }

  /** Whether a caller would have to wait now. */
  get isTaken(): boolean {
    return !this.#mayStart(false);
  }

  /** Resolves with a lease when it is the caller's turn; disposing of the lease returns the permit. */
  async lock(signal?: AbortSignal, isExclusive = false): Promise<Disposable> {
    if (signal?.aborted === true) throw this.#aborted(signal);
    if (this.#mayStart(isExclusive)) this.#acquire(isExclusive);
    else await this.#turn(isExclusive ? this.#exclusiveWaiting : this.#waiting, signal);
    const release = once(() => {
      this.#held--;
      this.#isExclusive = false;
      this.#next();
    });
    return { [Symbol.dispose]: release };
  }

  /** Settles as the work does. Exclusive work runs alone, after all other waiting work. */
  async use<T>(work: () => Promise<T>, isExclusive = false): Promise<T> {
    using _lease = await this.lock(undefined, isExclusive);
    return await work();
  }

  #mayStart(isExclusive: boolean): boolean {
    if (isExclusive) return this.#held === 0 && this.#waiting.length === 0;
    return !this.#isExclusive && this.#held < this.#permits;
  }

  #acquire(isExclusive: boolean): void {
    this.#held++;
    this.#isExclusive = isExclusive;
  }

  #turn(line: (() => void)[], signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const enter = (): void => {
        signal?.removeEventListener('abort', leave);
        resolve();
      };
      const leave = (): void => {
        line.splice(line.indexOf(enter), 1);
        reject(this.#aborted(signal!));
      };
      line.push(enter);
      signal?.addEventListener('abort', leave, { once: true });
    });
  }

  /** The next caller gets the permit at once, before a new caller can ask. */
  #next(): void {
    while (this.#waiting.length > 0 && this.#mayStart(false)) {
      this.#acquire(false);
      this.#waiting.shift()!();
    }
    if (this.#exclusiveWaiting.length > 0 && this.#mayStart(true)) {
      this.#acquire(true);
      this.#exclusiveWaiting.shift()!();
    }
  }
}

/** Runs work under one key one at a time, in order of arrival; different keys run in parallel. */
export class KeyedMutex {
  readonly #mutexes = new Map<string, Semaphore>();

  /** @param signal of a caller who may leave while it waits: rejects with its reason then */
  async run<T>(key: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const mutex = getOrMake(this.#mutexes, key, () => new Semaphore());
    try {
      using _lease = await mutex.lock(signal);
      return await work();
    } finally {
      // Another run may have ended meanwhile and removed it: then a later one has made its own.
      if (!mutex.isTaken && this.#mutexes.get(key) === mutex) this.#mutexes.delete(key);
    }
  }
}
