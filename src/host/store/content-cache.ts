/**
 * The files of published functions on this host's disk, a cache of a store on another machine: they are fetched when the
 * first call wants them, a few at a time, and over the budget those that were used longest ago are dropped.
 */
import { fetchContent, type Store } from '../../store/index.ts';
import type { Log } from '../../tools/index.ts';
import type { FetchFile } from './version-files.ts';
import type { StoredFile, VersionRecord } from './version-record.ts';

const fetchesAtOnce = 2;
/** The first pause after a failed fetch, and the longest; each is twice as long as the one before. */
const [retryMs, retryMsMax] = [500, 30_000];
/** A version called more recently than this stays, whatever the budget. */
const usedForMs = 60_000;
/** Changes are handled together; if too little could be dropped, it is tried again later. */
const [lookMs, lookAgainMs] = [200, 5000];

interface Wanted {
  /** As it is published now: the same version may come again with other files. */
  record: VersionRecord;
  failures: number;
  /** Not before (performance.now()). */
  atMs: number;
}

export interface ContentCacheOptions {
  readonly store: Store;
  /** Undefined: nothing is dropped. */
  readonly bytesMax: number | undefined;
  /** Time since the latest call of a version here; Infinity if there was none. */
  readonly idleMs: (key: string) => number;
  /** Versions whose files are here. */
  readonly held: () => readonly VersionRecord[];
  /** Whether a version is published, and its files are not here. */
  readonly isMissing: (record: VersionRecord) => boolean;
  /** Brings the files of a version here. */
  readonly hold: (record: VersionRecord, fetch: FetchFile) => Promise<void>;
  readonly drop: (record: VersionRecord) => Promise<void>;
  readonly log: Log;
}

export class ContentCache {
  readonly #options: ContentCacheOptions;
  readonly #wanted = new Map<string, Wanted>();
  readonly #stopped = new AbortController();
  readonly #fetching = new Set<Promise<void>>();
  #fetchTimer: NodeJS.Timeout | undefined;
  #shrinkTimer: NodeJS.Timeout | undefined;
  #shrinking: Promise<void> | undefined;
  #isTight = false;
  /** Bytes on the disk, as last counted. */
  bytes = 0;
  /** Versions that were dropped. */
  dropped = 0;

  constructor(options: ContentCacheOptions) {
    this.#options = options;
  }

  /** Resolves when nothing is fetched or dropped any more. */
  async close(): Promise<void> {
    this.#stopped.abort();
    clearTimeout(this.#fetchTimer);
    clearTimeout(this.#shrinkTimer);
    await Promise.all([...this.#fetching, this.#shrinking]);
  }

  /** A caller waits for this version. @param isAhead none does yet: it is fetched only if there is room */
  want(record: VersionRecord, isAhead = false): void {
    const key = keyOf(record);
    const { bytesMax } = this.#options;
    if (isAhead && bytesMax !== undefined && this.bytes + bytesOf([...this.#coming(), record]) > bytesMax) return;
    const known = this.#wanted.get(key);
    if (known === undefined) this.#wanted.set(key, { record, failures: 0, atMs: 0 });
    else {
      known.record = record;
      known.atMs = Math.min(known.atMs, performance.now() + retryMs);
    }
    this.#work();
  }

  #coming(): VersionRecord[] {
    return Array.from(this.#wanted.values(), ({ record }) => record);
  }

  /** What is here has changed. */
  changed(): void {
    this.#shrinkIn(lookMs);
  }

  /** Drops versions that are idle and in the store, until the budget is met. */
  async shrink(): Promise<void> {
    const { bytesMax, held, idleMs, drop, log } = this.#options;
    this.bytes = bytesOf(held());
    if (bytesMax === undefined || this.bytes <= bytesMax) {
      this.#isTight = false;
      return;
    }
    const idle = held().map((record) => ({ record, idleMs: idleMs(keyOf(record)) }));
    for (const { record } of oldestFirst(idle)) {
      if (this.#stopped.signal.aborted || this.bytes <= bytesMax) return;
      if (!(await this.#isStored(record.files))) continue;
      await drop(record);
      this.dropped++;
      this.bytes = bytesOf(held());
      log.info({ function: keyOf(record) }, 'content was dropped for room; the store has it');
    }
    if (this.bytes <= bytesMax) return;
    const { bytes } = this;
    if (!this.#isTight) log.warn({ bytes, bytesMax }, 'content takes more than "store.cache", and none of it may go');
    this.#isTight = true;
    this.#shrinkIn(lookAgainMs);
  }

  async #isStored(files: readonly StoredFile[]): Promise<boolean> {
    const { store } = this.#options;
    const there = files.map(async (file) => await store.has(file, this.#stopped.signal));
    return (await Promise.all(there).catch(() => [false])).every(Boolean);
  }

  #shrinkIn(ms: number): void {
    if (this.#stopped.signal.aborted || this.#shrinkTimer !== undefined) return;
    this.#shrinkTimer = setTimeout(() => {
      this.#shrinkTimer = undefined;
      this.#shrinking ??= this.shrink()
        .catch((error: unknown) => {
          this.#options.log.warn({ reason: (error as Error).message }, 'content could not be dropped');
        })
        .finally(() => {
          this.#shrinking = undefined;
        });
    }, ms).unref();
  }

  #work(): void {
    clearTimeout(this.#fetchTimer);
    const nowMs = performance.now();
    let nextMs = Infinity;
    for (const [key, wanted] of this.#wanted) {
      if (this.#fetching.size >= fetchesAtOnce || this.#stopped.signal.aborted) return;
      if (wanted.atMs > nowMs) nextMs = Math.min(nextMs, wanted.atMs);
      else this.#begin(key, wanted);
    }
    if (nextMs < Infinity) this.#fetchTimer = setTimeout(() => this.#work(), nextMs - nowMs).unref();
  }

  #begin(key: string, wanted: Wanted): void {
    wanted.atMs = Infinity;
    const fetching = this.#fetch(key, wanted).finally(() => {
      this.#fetching.delete(fetching);
      this.#work();
    });
    this.#fetching.add(fetching);
  }

  async #fetch(key: string, wanted: Wanted): Promise<void> {
    const { store, hold, isMissing, log } = this.#options;
    const source = store.source(this.#stopped.signal);
    const { record } = wanted;
    const isOver = (): void => {
      if (wanted.record === record) this.#wanted.delete(key);
      else wanted.atMs = 0;
    };
    try {
      await hold(record, async (file, path) => await fetchContent(source, file, path));
      isOver();
    } catch (error) {
      if (!isMissing(record)) isOver();
      else {
        wanted.atMs = performance.now() + Math.min(retryMsMax, retryMs * 2 ** wanted.failures++);
        log.warn({ function: key, reason: (error as Error).message }, 'a function could not be fetched from the store');
      }
    }
  }
}

/** Versions that may be dropped, the least recently used first. */
export function oldestFirst<Held extends { readonly record: VersionRecord; readonly idleMs: number }>(
  all: readonly Held[],
): readonly Held[] {
  const idle = all.filter(({ idleMs }) => idleMs >= usedForMs);
  // Among those without calls, the one published first.
  return idle.toSorted((a, b) =>
    a.idleMs === b.idleMs ? a.record.publishedAtMs - b.record.publishedAtMs : b.idleMs - a.idleMs,
  );
}

/** A file shared by several versions counts once. */
function bytesOf(records: readonly VersionRecord[]): number {
  const files = new Map(records.flatMap((record) => record.files.map((file) => [file.sha256, file.bytes])));
  return [...files.values()].reduce((sum, bytes) => sum + bytes, 0);
}

const keyOf = ({ name, version }: VersionRecord): string => `${name}@${version}`;
