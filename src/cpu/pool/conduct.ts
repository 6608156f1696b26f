/**
 * Whether a function may share a process. One under which a shared process ended or hung is put alone at its next
 * start. If it answers there as it should, it was not to blame and goes back; if it ends that process too, it stays
 * alone.
 */

/** Calls that a suspect answers alone before it is cleared. */
const answersToClear = 20;
/** A function whose calls take longer holds up those it shares a process with, so it has one of its own. */
const callMsMax = 25;
/** Once it has, it keeps it down to this. */
const callMsMin = 10;
/**
 * And one that takes more than this: to load it would hold them up as well, and its memory comes back with its process.
 */
const sessionBytesMax = 64 * 2 ** 20;
/**
 * Unexpected ends in a row, without an answer between them, after which the next start is put off, twice as long each
 * time.
 */
const endsInRowMax = 3;
const delayMsMin = 500;
const delayMsMax = 30_000;

export class Conduct {
  #state: 'trusted' | 'suspect' | 'alone' = 'trusted';
  #answersAlone = 0;
  #endsInRow = 0;
  #notBeforeMs = 0;

  /**
   * Whether its next replica has a process of its own.
   *
   * @param isNow it has one
   */
  isAlone(isolation: 'own' | 'shared' | undefined, sessionBytes: number, callMs = 0, isNow = false): boolean {
    if (isolation === 'own' || this.#state !== 'trusted' || sessionBytes > sessionBytesMax) return true;
    return callMs > (isNow ? callMsMin : callMsMax);
  }

  get mayReplace(): boolean {
    return this.#endsInRow <= endsInRowMax;
  }

  /** Milliseconds until another may be started. */
  waitMs(nowMs: number): number {
    return Math.max(0, this.#notBeforeMs - nowMs);
  }

  answered(isAlone: boolean): void {
    this.#endsInRow = 0;
    if (this.#state === 'suspect' && isAlone && ++this.#answersAlone >= answersToClear) this.#state = 'trusted';
  }

  /** A process ended by itself, or was stopped, while it was at this function. */
  ended(wasAlone: boolean, nowMs: number): void {
    this.#endsInRow++;
    if (this.#endsInRow > endsInRowMax) {
      this.#notBeforeMs = nowMs + Math.min(delayMsMax, delayMsMin * 2 ** (this.#endsInRow - endsInRowMax - 1));
    }
    if (!wasAlone) this.#state = 'suspect';
    else if (this.#state === 'suspect') this.#state = 'alone';
    this.#answersAlone = 0;
  }
}
