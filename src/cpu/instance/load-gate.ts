/**
 * The one queue of loads. They take more memory for a moment than what they leave behind: about two and a half times the
 * model's file. Loads that together exceed their part of the memory, and what the machine has left, begin one after the
 * other. One for whose session there is no room waits here too, while calls wait for it.
 */
import { loadPeakBytes, preparerPeakBytes, sessionBytesOf } from '../../hardware/index.ts';

export interface LoadGateOptions {
  /** The part of the memory that loads may take beyond what stays of them. */
  readonly loadsBytes: number;
  /** What can still be allocated now. */
  readonly leftBytes: () => number;
  /** A load begins although less is left than it takes at its peak. */
  readonly onShort?: () => void;
}

/** `peak`: all that it takes at once. `extra`: what of it comes back when it is over. */
export interface LoadNeed {
  readonly peakBytes: number;
  readonly extraBytes: number;
}

/** What a load into an instance needs. If it maps weights that others may have mapped, it makes no copies. */
export function needOfLoad(modelBytes: number, mapsWeights: boolean): LoadNeed {
  const sessionBytes = sessionBytesOf(modelBytes);
  if (mapsWeights) return { peakBytes: sessionBytes, extraBytes: 0 };
  const peakBytes = Math.max(sessionBytes, loadPeakBytes(modelBytes));
  return { peakBytes, extraBytes: peakBytes - sessionBytes };
}

/** What a process that prepares weights needs; it ends when it is done. */
export const needOfPreparer = (modelBytes: number): LoadNeed => ({
  peakBytes: preparerPeakBytes(modelBytes),
  extraBytes: preparerPeakBytes(modelBytes),
});

export interface LoadOrder<Opened> {
  readonly need: LoadNeed;
  /** Takes the memory of what stays; undefined: there is none. */
  readonly open: () => Opened | undefined;
  /** Whether it waits until there is. */
  readonly waits: () => boolean;
}

/** It is over when it is disposed of. */
export interface Load<Opened> extends Disposable {
  readonly opened: Opened;
}

interface Waiting {
  readonly need: LoadNeed;
  /** Returns whether it waits on. */
  readonly begin: () => boolean;
  /** There was no room for what stays of it. */
  isShort: boolean;
}

export class LoadGate {
  readonly #options: LoadGateOptions;
  #loadsBytes: number;
  readonly #underWay = new Set<LoadNeed>();
  readonly #waiting: Waiting[] = [];
  #isRetryAsked = false;

  constructor(options: LoadGateOptions) {
    this.#options = options;
    this.#loadsBytes = options.loadsBytes;
  }

  setPart(loadsBytes: number): void {
    this.#loadsBytes = loadsBytes;
    this.#next();
  }

  /**
   * Resolves when the load has begun, in order of arrival; to undefined if there is no room for what stays of it, and it
   * does not wait for that. Rejects with what `open` throws.
   */
  enter<Opened>({ need, open, waits }: LoadOrder<Opened>): Promise<Load<Opened> | undefined> {
    return new Promise((resolve, reject) => {
      const begin = (): boolean => {
        try {
          const opened = open();
          if (opened === undefined && waits()) return true;
          resolve(opened === undefined ? undefined : { opened, ...this.#begin(need) });
        } catch (error) {
          reject(error);
        }
        return false;
      };
      // What does not wait for room does not wait behind what does either.
      if (this.#waiting[0]?.isShort === true && !waits()) {
        resolve(undefined);
        return;
      }
      this.#waiting.push({ need, begin, isShort: false });
      if (this.#waiting.length === 1) this.#next();
    });
  }

  /** For work that may as well be left out: undefined if there is no room for it now. */
  tryEnter(need: LoadNeed): Disposable | undefined {
    return this.#waiting.length === 0 && this.#fits(need) ? this.#begin(need) : undefined;
  }

  /** There may be room again. Deferred and merged into one: a pool may be in the middle of its own pump. */
  retry(): void {
    if (this.#isRetryAsked || this.#waiting.length === 0) return;
    this.#isRetryAsked = true;
    setImmediate(() => {
      this.#isRetryAsked = false;
      this.#next();
    });
  }

  #fits({ peakBytes, extraBytes }: LoadNeed): boolean {
    let [peaks, extras] = [peakBytes, extraBytes];
    for (const need of this.#underWay) {
      peaks += need.peakBytes;
      extras += need.extraBytes;
    }
    // What stays of them is within the budget of sessions.
    return extras <= this.#loadsBytes || peaks <= this.#options.leftBytes();
  }

  #begin(need: LoadNeed): Disposable {
    if (!this.#fits(need)) this.#options.onShort?.();
    // Two loads of one size are two.
    const own = { ...need };
    this.#underWay.add(own);
    return {
      [Symbol.dispose]: () => {
        if (this.#underWay.delete(own)) this.#next();
      },
    };
  }

  #next(): void {
    for (;;) {
      const first = this.#waiting[0];
      if (first === undefined || !(this.#underWay.size === 0 || this.#fits(first.need))) return;
      first.isShort = first.begin();
      if (first.isShort) return;
      this.#waiting.shift();
    }
  }
}
