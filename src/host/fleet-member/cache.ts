/**
 * The content of published functions on this host's disk, within a budget. Over the budget, the least recently used
 * versions are dropped, and fetched again when they are needed.
 *
 * No content is lost, because a version is dropped only when
 *
 * 1. it was not called here for a minute, and
 * 2. its files are in the bucket; or this host is neither of its two keepers, and two other hosts have confirmed that
 *    they have it since this one began to ask.
 *
 * A host denies a version while it asks to drop that version itself. So two copies stay, however many hosts drop at the
 * same time: of all that drop, take the one that began last. The two hosts that it relies on were not dropping then,
 * and do not later.
 */
import type { Log } from '../../tools/index.ts';
import type { StoredFile, VersionRecord } from '../store/index.ts';

/** Other hosts that must have a version before it is dropped. */
const othersNeeded = 2;
/** Files that another host publishes stay this long: by then their version is known here. */
const publishedMs = 10_000;
/** A version called more recently than this stays, whatever the budget. */
const usedForMs = 60_000;
/** Changes are handled together; if nothing could be dropped, it is tried again later. */
const [lookMs, lookAgainMs] = [200, 5000];

export type ContentOf = Pick<VersionRecord, 'name' | 'version' | 'files'>;

export interface HeldContent {
  readonly record: VersionRecord;
  /** Since the latest call here; Infinity if there was none. */
  readonly idleMs: number;
}

export interface ContentCacheOptions {
  /** Undefined: nothing is dropped. */
  readonly bytesMax: number | undefined;
  readonly held: () => readonly HeldContent[];
  readonly holds: (content: ContentOf) => boolean;
  /** Whether this host is a keeper of a function's content. */
  readonly isKeeper: (name: string) => boolean;
  readonly isInBucket: (files: readonly StoredFile[]) => Promise<boolean>;
  /** Other hosts that may have a version, and whether one of them has it and is not about to drop it (see `has`). */
  readonly holders: (record: VersionRecord) => readonly string[];
  readonly ask: (host: string, content: ContentOf) => Promise<boolean>;
  readonly drop: (record: VersionRecord) => Promise<void>;
  readonly now?: () => number;
  readonly log: Log;
}

export class ContentCache {
  readonly #options: ContentCacheOptions;
  readonly #now: () => number;
  /** By hash: until when (see `now`) a file is kept for a host that publishes it. */
  readonly #keptFor = new Map<string, number>();
  /** Files of the version that is being dropped, by their hash. */
  #dropping: ReadonlySet<string> = new Set();
  #timer: NodeJS.Timeout | undefined;
  #shrinking: Promise<void> | undefined;
  #isClosed = false;
  #isTight = false;
  /** Bytes on the disk, as last counted. */
  bytes = 0;
  /** Versions that were dropped. */
  dropped = 0;

  constructor(options: ContentCacheOptions) {
    this.#options = options;
    this.#now = options.now ?? ((): number => performance.now());
  }

  /** Resolves when no version is being dropped any more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    await this.#shrinking;
  }

  /** The content here has changed. */
  changed(): void {
    this.#lookIn(lookMs);
  }

  /** Whether this host has a version and is not about to drop it; another host asks because it wants to. */
  has(content: ContentOf): boolean {
    return !this.#isDropping(content.files) && this.#options.holds(content);
  }

  /** Keeps files that another host publishes until their version is known here; resolves when none is being dropped. */
  async keepFor(files: readonly StoredFile[]): Promise<void> {
    for (const { sha256 } of files) this.#keptFor.set(sha256, this.#now() + publishedMs);
    while (this.#isDropping(files)) await this.#shrinking;
  }

  #isDropping(files: readonly StoredFile[]): boolean {
    return files.some(({ sha256 }) => this.#dropping.has(sha256));
  }

  /** Drops versions, as far as allowed, until the budget is met. */
  async shrink(): Promise<void> {
    const { bytesMax, held, log } = this.#options;
    for (const [sha256, untilMs] of this.#keptFor) if (untilMs <= this.#now()) this.#keptFor.delete(sha256);
    const all = held();
    this.bytes = bytesOf(all.flatMap(({ record }) => record.files));
    if (bytesMax === undefined || this.bytes <= bytesMax) {
      this.#isTight = false;
      return;
    }
    for (const { record } of oldestFirst(all)) {
      if (this.#isClosed || this.bytes <= bytesMax) return;
      if (!(await this.#tryDrop(record))) continue;
      this.dropped++;
      this.bytes = bytesOf(held().flatMap((each) => each.record.files));
      log.info({ function: keyOf(record) }, 'content was dropped for room; other places have it');
    }
    if (this.bytes <= bytesMax) return;
    const { bytes } = this;
    if (!this.#isTight) log.warn({ bytes, bytesMax }, 'content takes more than "fleet.cache", and none of it may go');
    this.#isTight = true;
    this.#lookIn(lookAgainMs * (1 + Math.random()));
  }

  #lookIn(ms: number): void {
    if (this.#isClosed || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#shrinking ??= this.shrink()
        .catch((error: unknown) => {
          this.#options.log.warn({ reason: (error as Error).message }, 'content could not be dropped');
        })
        .finally(() => {
          this.#shrinking = undefined;
        });
    }, ms).unref();
  }

  async #tryDrop(record: VersionRecord): Promise<boolean> {
    const { isInBucket, isKeeper, drop } = this.#options;
    const isThere = await isInBucket(record.files);
    if (!isThere && isKeeper(record.name)) return false;
    if (record.files.some(({ sha256 }) => (this.#keptFor.get(sha256) ?? -Infinity) > this.#now())) return false;
    this.#dropping = new Set(record.files.map(({ sha256 }) => sha256));
    try {
      if (!isThere && !(await this.#isElsewhere(record))) return false;
      await drop(record);
      return true;
    } finally {
      this.#dropping = new Set();
    }
  }

  async #isElsewhere(record: VersionRecord): Promise<boolean> {
    const { holders, ask } = this.#options;
    let others = 0;
    for (const host of holders(record)) {
      if (await ask(host, record)) others++;
      if (others === othersNeeded) return true;
    }
    return false;
  }
}

/** Versions that may be dropped, the least recently used first. */
export function oldestFirst(all: readonly HeldContent[]): readonly HeldContent[] {
  const idle = all.filter(({ idleMs }) => idleMs >= usedForMs);
  // Among those without calls, the one published first.
  return idle.toSorted((a, b) =>
    a.idleMs === b.idleMs ? a.record.publishedAtMs - b.record.publishedAtMs : b.idleMs - a.idleMs,
  );
}

/** A file shared by several versions counts once. */
export function bytesOf(files: readonly StoredFile[]): number {
  let bytes = 0;
  for (const file of new Map(files.map((each) => [each.sha256, each])).values()) bytes += file.bytes;
  return bytes;
}

const keyOf = ({ name, version }: ContentOf): string => `${name}@${version}`;
