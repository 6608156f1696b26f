/**
 * The content of a store on this machine's disk, within a budget: what is wanted is fetched, a few items at a time and
 * again after pauses when that failed, and what was used longest ago is dropped. How the files lie on the disk is the
 * owner's: a host keeps published versions, a worker the functions that hosts offer.
 */
import { inParallel, Semaphore, type Log } from '../tools/index.ts';
import { fetchContent, fetchText, type WantedContent } from './fetch-content.ts';
import type { Store } from './store.ts';

/** Fetches at once; one of them at most is for an item that nobody waits for. */
const fetchesAtOnce = 2;
/** The first pause after a failed fetch, and the longest; each is twice as long as the one before. */
const [retryMs, retryMsMax] = [500, 30_000];
/** Changes are handled together; if too little could be dropped, it is tried again later. */
const [lookMs, lookAgainMs] = [200, 5000];

export interface NamedContent extends WantedContent {
  /** Relative to the model, as the model names its external data; '/' between parts. */
  readonly name: string;
}

/** Writes a file of the store to a path. */
export type FetchFile = (file: NamedContent, path: string) => Promise<void>;

export interface ContentCacheOptions<Item> {
  readonly store: Store;
  /** Undefined: nothing is dropped. */
  readonly bytesMax: number | undefined;
  /** An item that was used more recently than this stays, whatever the budget. */
  readonly staysMs: number;
  /** Two items with one key are states of one thing, of which the latest counts. */
  readonly keyOf: (item: Item) => string;
  /** As far as they are known. */
  readonly filesOf: (item: Item) => readonly NamedContent[];
  /** For items in chunks: the manifest of one whose files are not known, and the files that its text lists. */
  readonly chunks?: {
    readonly manifestOf: (item: Item) => WantedContent | undefined;
    readonly filesOf: (item: Item, manifest: string) => readonly NamedContent[];
  };
  /** For logs. */
  readonly nameOf: (item: Item) => string;
  /** Time since the latest use: Infinity if there was none, below 0 while it is used. */
  readonly idleMs: (item: Item) => number;
  /** Items whose files are here; of two that are idle for equally long, the first is dropped first. */
  readonly held: () => readonly Item[];
  /** Whether an item is wanted still, and its files are not here. */
  readonly isMissing: (item: Item) => boolean;
  /** Brings the files of an item here. */
  readonly hold: (item: Item, files: readonly NamedContent[], fetch: FetchFile) => Promise<void>;
  readonly drop: (item: Item) => Promise<void>;
  readonly log: Log;
}

interface Wanted<Item> {
  /** As it is now: the same key may come again with other files. */
  item: Item;
  /** Nobody waits for it. */
  isAhead: boolean;
  failures: number;
  isFetching: boolean;
  /** Not before (performance.now()). */
  atMs: number;
  /** Told how the next try ends. */
  waiting: ((error?: Error) => void)[];
}

export class ContentCache<Item> {
  readonly #options: ContentCacheOptions<Item>;
  readonly #wanted = new Map<string, Wanted<Item>>();
  readonly #stopped = new AbortController();
  readonly #fetching = new Set<Promise<void>>();
  /** One at a time drops items. */
  readonly #dropping = new Semaphore();
  #fetchTimer: NodeJS.Timeout | undefined;
  #shrinkTimer: NodeJS.Timeout | undefined;
  #shrinking: Promise<void> | undefined;
  #isTight = false;
  /** Bytes on the disk, as last counted. */
  bytes = 0;
  /** Items that were dropped. */
  dropped = 0;

  constructor(options: ContentCacheOptions<Item>) {
    this.#options = options;
  }

  /** Undefined: nothing is dropped. */
  get bytesMax(): number | undefined {
    return this.#options.bytesMax;
  }

  /** Resolves when nothing is fetched or dropped any more. */
  async close(): Promise<void> {
    this.#stopped.abort();
    clearTimeout(this.#fetchTimer);
    clearTimeout(this.#shrinkTimer);
    await Promise.all([...this.#fetching, this.#shrinking]);
    for (const { waiting } of this.#wanted.values()) for (const tell of waiting) tell(new Error('the cache is closed'));
  }

  /**
   * Fetches an item until it is here, or no longer wanted. @param isAhead nobody waits for it yet: it is fetched only if
   * there is room
   */
  want(item: Item, isAhead = false): void {
    const { keyOf } = this.#options;
    const known = this.#wanted.get(keyOf(item));
    if (known !== undefined) {
      known.item = item;
      if (isAhead) return;
      known.isAhead = false;
      known.atMs = Math.min(known.atMs, performance.now() + retryMs);
    } else if (!isAhead || this.#hasRoomFor(item)) {
      this.#wanted.set(keyOf(item), { item, isAhead, failures: 0, isFetching: false, atMs: 0, waiting: [] });
    }
    this.#work();
  }

  /** Resolves when the item is here. @throws Error with a sentence if the next try to fetch it fails */
  async bring(item: Item): Promise<void> {
    const { keyOf, isMissing } = this.#options;
    if (!isMissing(item)) return;
    this.want(item);
    const wanted = this.#wanted.get(keyOf(item));
    await new Promise<void>((resolve, reject) => {
      wanted?.waiting.push((error) => (error === undefined ? resolve() : reject(error)));
    });
  }

  /** Whether an item is wanted that could not be fetched when that was last tried. */
  isFailing(item: Item): boolean {
    return (this.#wanted.get(this.#options.keyOf(item))?.failures ?? 0) > 0;
  }

  #hasRoomFor(item: Item): boolean {
    const { bytesMax } = this.#options;
    if (bytesMax === undefined) return true;
    return this.bytes + this.#bytesOf([...Array.from(this.#wanted.values(), (each) => each.item), item]) <= bytesMax;
  }

  /** What is here has changed. */
  changed(): void {
    this.#shrinkIn(lookMs);
  }

  /** Drops items that are idle and in the store, until so many bytes more are within the budget. */
  async shrink(bytesMore = 0): Promise<void> {
    await this.#dropping.use(async () => await this.#shrink(bytesMore));
  }

  async #shrink(bytesMore: number): Promise<void> {
    const { bytesMax, staysMs, held, filesOf, nameOf, idleMs, drop, log } = this.#options;
    this.bytes = this.#bytesOf(held());
    const isWithin = (): boolean => bytesMax === undefined || this.bytes + bytesMore <= bytesMax;
    if (isWithin()) {
      this.#isTight = false;
      return;
    }
    const idle = held().map((item) => ({ item, idleMs: idleMs(item) }));
    const oldestFirst = idle.filter((each) => each.idleMs >= staysMs).toSorted((a, b) => order(b.idleMs, a.idleMs));
    for (const { item } of oldestFirst) {
      if (this.#stopped.signal.aborted || isWithin()) return;
      if (idleMs(item) < staysMs || !(await this.#isStored(filesOf(item)))) continue;
      await drop(item);
      this.dropped++;
      this.bytes = this.#bytesOf(held());
      log.info({ function: nameOf(item) }, 'content was dropped for room; the store has it');
    }
    if (isWithin()) return;
    const { bytes } = this;
    if (!this.#isTight)
      log.warn({ bytes, bytesMax }, 'content takes more than "store.cache" (a worker: --cache), and none of it may go');
    this.#isTight = true;
    this.#shrinkIn(lookAgainMs);
  }

  async #isStored(files: readonly NamedContent[]): Promise<boolean> {
    const { store } = this.#options;
    let isMissing = false;
    const look = async (file: NamedContent): Promise<void> => {
      if (!isMissing) isMissing = !(await store.has(file, this.#stopped.signal));
    };
    return await inParallel(files, look).then(
      () => !isMissing,
      () => false,
    );
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
    const inOrder = [...this.#wanted.values()].toSorted((a, b) => Number(a.isAhead) - Number(b.isAhead));
    for (const wanted of inOrder) {
      if (this.#stopped.signal.aborted || this.#fetching.size >= (wanted.isAhead ? 1 : fetchesAtOnce)) return;
      if (wanted.isFetching) continue;
      if (wanted.atMs > nowMs) nextMs = Math.min(nextMs, wanted.atMs);
      else this.#begin(wanted);
    }
    if (nextMs < Infinity) this.#fetchTimer = setTimeout(() => this.#work(), nextMs - nowMs).unref();
  }

  #begin(wanted: Wanted<Item>): void {
    wanted.isFetching = true;
    wanted.atMs = Infinity;
    const fetching = this.#fetch(wanted).finally(() => {
      wanted.isFetching = false;
      this.#fetching.delete(fetching);
      this.#work();
    });
    this.#fetching.add(fetching);
  }

  async #fetch(wanted: Wanted<Item>): Promise<void> {
    const { store, keyOf, nameOf, filesOf, chunks, hold, held, isMissing, log } = this.#options;
    const source = store.source(this.#stopped.signal);
    const { item } = wanted;
    const isOver = (error?: Error): void => {
      // The same key may have come with other files meanwhile.
      if (wanted.item === item) this.#wanted.delete(keyOf(item));
      else wanted.atMs = 0;
      tellAll(error);
    };
    const tellAll = (error?: Error): void => {
      for (const tell of wanted.waiting.splice(0)) tell(error);
    };
    try {
      const manifest = chunks?.manifestOf(item);
      const text = manifest && (await fetchText(source, manifest));
      const files = text === undefined ? filesOf(item) : chunks!.filesOf(item, text);
      await this.shrink(this.#bytesOf(held(), files) - this.#bytesOf(held()));
      await hold(item, files, async (file, path) => {
        await fetchContent(source, file, path).catch((error: Error) => {
          const which = `the file '${file.name}' with the sha256 ${file.sha256}`;
          throw new Error(`${which} could not be fetched: ${error.message}`, { cause: error });
        });
      });
      this.bytes = this.#bytesOf(held());
      isOver();
    } catch (error) {
      if (!isMissing(item)) return isOver(error as Error);
      wanted.atMs = performance.now() + Math.min(retryMsMax, retryMs * 2 ** wanted.failures++);
      const reason = (error as Error).message;
      log.warn({ function: nameOf(item), reason }, 'a function could not be fetched from the store');
      tellAll(error as Error);
    }
  }

  /** A file of several items counts once. */
  #bytesOf(items: readonly Item[], more: readonly NamedContent[] = []): number {
    const files = [...items.flatMap((item) => this.#options.filesOf(item)), ...more];
    const bytes = new Map(files.map((file) => [file.sha256, file.bytes]));
    return [...bytes.values()].reduce((sum, each) => sum + each, 0);
  }
}

/** Infinity is equal to itself. */
const order = (one: number, other: number): number => (one === other ? 0 : one - other);
