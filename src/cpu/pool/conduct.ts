/**
 * How the processes of one function have ended: whether it may share one, when the next may be started, and whether it
 * is stopped because it kills them.
 *
 *   - If a shared process ends or hangs while working on a function, the function gets its own process at its next
 *     start. If it answers well there, it was not to blame and goes back to sharing; if it ends that process too, it
 *     stays alone.
 *   - After two crashes in a row, the second in a process of its own, the function is stopped: it gets no third process.
 *     One that has never answered stays stopped until somebody loads it. One that has answered before was killed by
 *     something new, perhaps by a single caller's input, and is tried again after a second, then two, up to five minutes.
 *     A division that the processor refuses is that caller's doing, and stops nobody else.
 */
import { sharedSessionBytesMax } from '../../hardware/index.ts';
import { backoffMs } from '../../tools/index.ts';
import type { Crash } from '../instance/index.ts';
import type { Stopped } from '../types.ts';

/** Calls that a suspect must answer alone before it is cleared. */
const answersToClear = 20;
/** A function with longer calls delays those it shares a process with, so it gets its own. */
const callMsMax = 25;
/** It keeps its own process until its calls take less than this. */
const callMsMin = 10;
/**
 * Unexpected ends in a row, without an answer between them, after which the next start is delayed, twice as long each
 * time.
 */
const endsInRowMax = 3;
const delayMsMin = 500;
const delayMsMax = 30_000;
/** Crashes in a row that stop the function. */
const crashesMax = 2;
const pauseMsMin = 1000;
const pauseMsMax = 300_000;

export class Conduct {
  #state: 'trusted' | 'suspect' | 'alone' = 'trusted';
  #answersAlone = 0;
  #endsInRow = 0;
  #notBeforeMs = 0;
  #hasAnswered = false;
  /** Without a successful call between them. */
  #crashesInRow = 0;
  #stopped: Stopped | undefined;

  /**
   * Whether its next replica gets a process of its own.
   *
   * @param sessionBytes intermediate results of its runs included @param isNow it has one
   */
  isAlone(isolation: 'own' | 'shared' | undefined, sessionBytes: number, callMs = 0, isNow = false): boolean {
    if (isolation === 'own' || this.#state !== 'trusted' || sessionBytes > sharedSessionBytesMax) return true;
    return callMs > (isNow ? callMsMin : callMsMax);
  }

  get mayReplace(): boolean {
    return this.#endsInRow <= endsInRowMax;
  }

  /** Milliseconds until another may be started. */
  waitMs(nowMs: number): number {
    return Math.max(0, this.#notBeforeMs - nowMs);
  }

  /** Why it gets no process now; undefined if it gets one. */
  stopped(nowMs: number): Stopped | undefined {
    const { untilMs } = this.#stopped ?? {};
    return untilMs !== undefined && nowMs < untilMs ? this.#stopped : undefined;
  }

  /** A run has ended. @param isSuccess a call of it was answered without an error */
  answered(isAlone: boolean, isSuccess: boolean): void {
    this.#endsInRow = 0;
    if (isSuccess) {
      this.#hasAnswered = true;
      this.#crashesInRow = 0;
      this.#stopped = undefined;
    }
    if (this.#state === 'suspect' && isAlone && ++this.#answersAlone >= answersToClear) this.#state = 'trusted';
  }

  /** A process ended by itself, or was stopped, while working on this function. */
  ended(wasAlone: boolean, nowMs: number): void {
    this.#endsInRow++;
    if (this.#endsInRow > endsInRowMax) {
      this.#notBeforeMs = nowMs + backoffMs(delayMsMin, this.#endsInRow - endsInRowMax - 1, delayMsMax);
    }
    if (!wasAlone) this.#state = 'suspect';
    else if (this.#state === 'suspect') this.#state = 'alone';
    this.#answersAlone = 0;
  }

  /**
   * The function's code ended a process. Returns the stop if that was one crash too many: proven to be the function's
   * fault, since no other was in the process, and not one call's among several.
   */
  crashed(crash: Crash, reason: string, wasAlone: boolean, nowMs: number): Stopped | undefined {
    const { during, isOfOneCall, isDivision } = crash;
    if (isDivision && this.#hasAnswered) return undefined;
    const crashes = ++this.#crashesInRow;
    if (crashes < crashesMax || !wasAlone || !isOfOneCall) return undefined;
    const pauseMs = this.#hasAnswered ? backoffMs(pauseMsMin, crashes - crashesMax, pauseMsMax) : Infinity;
    this.#stopped = { crashes, reason: `${reason} ${during}`, untilMs: nowMs + pauseMs };
    return this.#stopped;
  }

  /** Somebody loads the function: it gets processes as if none had died. */
  forgive(): void {
    this.#crashesInRow = this.#endsInRow = this.#notBeforeMs = 0;
    this.#stopped = undefined;
  }
}
