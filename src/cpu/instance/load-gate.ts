/**
 * Loads take more memory for a moment than what they leave behind: about two and a half times the model's file. Loads
 * that together exceed their part of the memory, and what the machine has left, begin one after the other.
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

/** Of a load into an instance. If it maps weights that others may have mapped, it makes no copies. */
export function needOfLoad(modelBytes: number, mapsWeights: boolean): LoadNeed {
  const sessionBytes = sessionBytesOf(modelBytes);
  if (mapsWeights) return { peakBytes: sessionBytes, extraBytes: 0 };
  const peakBytes = Math.max(sessionBytes, loadPeakBytes(modelBytes));
  return { peakBytes, extraBytes: peakBytes - sessionBytes };
}

/** Of a preparer of weights, which ends when it is done. */
export const needOfPreparer = (modelBytes: number): LoadNeed => ({
  peakBytes: preparerPeakBytes(modelBytes),
  extraBytes: preparerPeakBytes(modelBytes),
});

export class LoadGate {
  readonly #options: LoadGateOptions;
  #loadsBytes: number;
  readonly #underWay = new Set<LoadNeed>();
  readonly #waiting: { readonly need: LoadNeed; readonly enter: (lease: Disposable) => void }[] = [];

  constructor(options: LoadGateOptions) {
    this.#options = options;
    this.#loadsBytes = options.loadsBytes;
  }

  setPart(loadsBytes: number): void {
    this.#loadsBytes = loadsBytes;
    this.#next();
  }

  /** Resolves when the load may begin, in order of arrival; it is over when what this resolves to is disposed of. */
  async enter(need: LoadNeed): Promise<Disposable> {
    if (this.#waiting.length === 0 && (this.#underWay.size === 0 || this.#fits(need))) return this.#begin(need);
    return await new Promise((enter) => {
      this.#waiting.push({ need, enter });
    });
  }

  /** For work that may as well be left out: undefined if there is no room for it now. */
  tryEnter(need: LoadNeed): Disposable | undefined {
    return this.#waiting.length === 0 && this.#fits(need) ? this.#begin(need) : undefined;
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
      this.#waiting.shift();
      first.enter(this.#begin(first.need));
    }
  }
}
