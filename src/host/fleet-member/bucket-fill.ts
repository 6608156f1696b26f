/**
 * Writes content to the bucket in the background, one file after the other, after other hosts have secured the
 * publication.
 */
import type { Bucket } from '../../store/index.ts';
import type { Log } from '../../tools/index.ts';
import type { StoredFile } from '../store/index.ts';

/** The first pause after a failed write, and the longest; each is twice as long as the one before. */
const [retryMs, retryMsMax] = [500, 60_000];

export interface BucketFillOptions {
  readonly bucket: Bucket;
  /** Path of a file here; undefined: it is gone. */
  readonly pathOf: (sha256: string) => Promise<string | undefined>;
  readonly log: Log;
}

export class BucketFill {
  readonly #options: BucketFillOptions;
  readonly #stopped = new AbortController();
  /** Hashes that are known to be in the bucket. */
  readonly #known = new Set<string>();
  readonly #waiting = new Map<string, StoredFile>();
  #filling: Promise<void> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #failures = 0;

  constructor(options: BucketFillOptions) {
    this.#options = options;
  }

  /** Files still to be written. */
  get waiting(): number {
    return this.#waiting.size;
  }

  add(files: readonly StoredFile[]): void {
    for (const file of files) if (!this.#known.has(file.sha256)) this.#waiting.set(file.sha256, file);
    this.#fill();
  }

  /** Writes files now. @throws Error with a sentence */
  async put(files: readonly StoredFile[]): Promise<void> {
    for (const file of files) await this.#put(file);
  }

  /** Resolves when no file is being written any more. */
  async close(): Promise<void> {
    this.#stopped.abort();
    clearTimeout(this.#timer);
    await this.#filling;
  }

  #fill(): void {
    if (this.#waiting.size === 0 || this.#timer !== undefined || this.#stopped.signal.aborted) return;
    this.#filling ??= this.#fillAll().finally(() => {
      this.#filling = undefined;
      this.#fill();
    });
  }

  async #fillAll(): Promise<void> {
    for (const file of this.#waiting.values()) {
      if (this.#stopped.signal.aborted) return;
      try {
        await this.#put(file);
        this.#waiting.delete(file.sha256);
        this.#failures = 0;
      } catch (error) {
        if (this.#stopped.signal.aborted) return;
        const ms = Math.min(retryMsMax, retryMs * 2 ** this.#failures++);
        this.#options.log.warn(
          { sha256: file.sha256, reason: (error as Error).message },
          'content could not be written to the bucket; it is tried again',
        );
        this.#timer = setTimeout(() => {
          this.#timer = undefined;
          this.#fill();
        }, ms).unref();
        return;
      }
    }
  }

  async #put(file: StoredFile): Promise<void> {
    const { bucket, pathOf } = this.#options;
    const path = await pathOf(file.sha256);
    if (path !== undefined) await bucket.put(file, path, this.#stopped.signal);
    this.#known.add(file.sha256);
  }
}
