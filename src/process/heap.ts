/**
 * How much freed memory glibc keeps in a process. Each page that it takes from the system again is a page fault, some
 * 20 us in a virtual machine without nested paging. Does nothing with another C library.
 */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { statusBytes } from '../tools/index.ts';
import { libcFunction } from './libc.ts';

/** An option of `mallopt` (malloc.h), and how an operator sets it for a process. */
const trimThreshold = { option: -1, variable: 'MALLOC_TRIM_THRESHOLD_', tunable: 'glibc.malloc.trim_threshold' };
const mmapThreshold = { option: -3, variable: 'MALLOC_MMAP_THRESHOLD_', tunable: 'glibc.malloc.mmap_threshold' };

interface Kept {
  /** A block of so many bytes is mapped by itself if no free one fits, and unmapped when it is freed. */
  readonly mappedBytesMin: number;
  /** At the end of the heap, more free bytes than this go back to the system. */
  readonly endBytesMax: number;
}

/**
 * A load frees a copy of each weight and allocates the next. Mapped one by one, ResNet-50's 102 MB took 210,000 page
 * faults; kept in the heap, they take 75,000.
 */
const loading: Kept = { mappedBytesMin: 2 ** 30, endBytesMax: 2 ** 31 - 1 };
/**
 * Blocks that a run frees serve the next run, of any session in the process. These are the highest values that glibc
 * adapts to by itself. Fixed, so that a load does not leave its own behind.
 */
const serving: Kept = { mappedBytesMin: 32 * 2 ** 20, endBytesMax: 64 * 2 ** 20 };

/**
 * Answers are new memory until they are sent, and garbage until V8 frees many at once. If that memory went back to the
 * system, the next ones would pay for each page again: receiving 1.2 MB took the host 1 ms of CPU, and takes 0.4. Longer
 * ones do go back: beside their own work the pages cost little, and a hundred of them are what an attack consists of.
 */
const answering: Kept = { mappedBytesMin: 8 * 2 ** 20, endBytesMax: 64 * 2 ** 20 };

/** No call for this long: what the runs have freed goes back to the system. */
const idleMs = 30_000;

/** What a holder of much memory does about it. */
export type ProcessMemory = Pick<Heap, 'collect' | 'trim' | 'residentBytes'>;
export type OwnMemory = Pick<Heap, 'collect' | 'trim' | 'ownBytes'>;

export class Heap {
  readonly #function: typeof libcFunction;
  #collectGarbage: (() => void) | undefined;
  #idleTimer: NodeJS.Timeout | undefined;
  #hasRunSince = false;

  /** @param find looks up functions of the C library */
  constructor(find = libcFunction) {
    this.#function = find;
  }

  /** For the start of a process that runs models. */
  keepForRuns(): void {
    this.#keep(serving);
  }

  /** For the start of a process that passes answers on. */
  keepForAnswers(): void {
    this.#keep(answering);
  }

  /**
   * Frees buffers that nothing refers to any more. V8 does so by itself once there are many, and not at all in a process
   * that does nothing. It takes 10 ms and more.
   */
  collect(): void {
    if (this.#collectGarbage === undefined) {
      setFlagsFromString('--expose-gc');
      this.#collectGarbage = runInNewContext('gc') as () => void;
    }
    this.#collectGarbage();
  }

  /** Afterwards all that the load has freed is back with the system: half as much again as a small model. */
  async forLoad<Result>(load: () => Promise<Result>): Promise<Result> {
    this.#keep(loading);
    try {
      return await load();
    } finally {
      this.#keep(serving);
      this.trim();
    }
  }

  /** Returns all free pages to the system, in 20 ms for 200 MB. */
  trim(): void {
    this.#function('int malloc_trim(size_t)')?.(0);
  }

  /** What the process holds, with the pages of files that it maps. */
  residentBytes(): number {
    return process.memoryUsage.rss();
  }

  /** The same without files that it maps and without the memory that it shares with its children. */
  ownBytes(): number {
    return statusBytes('RssAnon') ?? this.residentBytes();
  }

  /** After each run or answer: the heap is trimmed once no more come. A timer of its own for each would cost more. */
  trimWhenIdle(): void {
    this.#hasRunSince = true;
    if (this.#idleTimer === undefined) this.#watch();
  }

  #watch(): void {
    this.#hasRunSince = false;
    this.#idleTimer = setTimeout(() => {
      this.#idleTimer = undefined;
      if (this.#hasRunSince) this.#watch();
      else this.trim();
    }, idleMs);
    this.#idleTimer.unref();
  }

  #keep({ mappedBytesMin, endBytesMax }: Kept): void {
    const set = this.#function('int mallopt(int option, int value)');
    if (!isGiven(mmapThreshold)) set?.(mmapThreshold.option, mappedBytesMin);
    if (!isGiven(trimThreshold)) set?.(trimThreshold.option, endBytesMax);
  }
}

/** That of this process. */
export const heap = new Heap();

/** An operator's own setting stays. */
function isGiven({ variable, tunable }: typeof trimThreshold): boolean {
  const { GLIBC_TUNABLES: tunables = '' } = process.env;
  return process.env[variable] !== undefined || tunables.includes(tunable);
}
