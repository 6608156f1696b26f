/**
 * Who may hand the next message to a process that several functions share (start-time fair queueing): of those that
 * wait, the one that has had the least of the process's time. So a function with endless calls delays another by a
 * message, not by its queue. One message is at work, and where messages are short a few more lie ready, so that the
 * process need not wait for the host, which on a busy machine takes longer than the work.
 */

/** Messages of some hundred microseconds that a process may have at once. */
const shortMessagesMax = 8;
/** Of those that wait for a turn, the ones that are looked at for the next: they have waited longest. */
const lookedAt = 64;

/** Who takes turns in a process. */
export interface TurnTaker {
  /** Its messages are so short that others may lie ready behind them. */
  readonly isShort: boolean;
  /** Milliseconds of the process's time that it has had, on the process's virtual clock. */
  virtualMs: number;
  /** It may hand over one message now, within this call. */
  onTurn(): void;
}

export class Turns {
  readonly #isFull: () => boolean;
  readonly #waiting = new Set<TurnTaker>();
  #turnOf: TurnTaker | undefined;
  #virtualMs = 0;
  /** Messages that the process has, and those of them that are not short. */
  #messages = 0;
  #longMessages = 0;
  /** The last turn went to one that is not short: the message that comes next is its. */
  #isNextLong = false;

  /** @param isFull whether the process can take nothing more for another reason */
  constructor(isFull: () => boolean = () => false) {
    this.#isFull = isFull;
  }

  /** How many wait. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Whether there is a turn for it now; else it is told when, by {@link TurnTaker.onTurn}. */
  take(taker: TurnTaker): boolean {
    const isNext = this.#turnOf === taker || this.#waiting.size === 0;
    if (isNext && this.#hasRoomFor(taker)) {
      this.#turnOf = undefined;
      this.#isNextLong = !taker.isShort;
      taker.virtualMs = Math.max(taker.virtualMs, this.#virtualMs);
      this.#virtualMs = taker.virtualMs;
      return true;
    }
    if (!this.#waiting.has(taker)) taker.virtualMs = Math.max(taker.virtualMs, this.#virtualMs);
    this.#waiting.add(taker);
    return false;
  }

  leave(taker: TurnTaker): void {
    this.#waiting.delete(taker);
  }

  /** A message was handed over. Gives whether it is a long one. */
  begun(): boolean {
    const isLong = this.#isNextLong;
    this.#isNextLong = false;
    this.#messages++;
    if (isLong) this.#longMessages++;
    return isLong;
  }

  /** The process is done with a message. {@link offer} is to follow. */
  ended(isLong: boolean): void {
    this.#messages--;
    if (isLong) this.#longMessages--;
  }

  /** Gives turns to those who wait, the one with the least time first, until there is no room for the next one. */
  offer(): void {
    while (this.#waiting.size > 0) {
      let next: TurnTaker | undefined;
      let seen = 0;
      for (const taker of this.#waiting) {
        if (next === undefined || taker.virtualMs < next.virtualMs) next = taker;
        if (++seen === lookedAt) break;
      }
      // One that is not short gets its turn when the process has nothing else, so no other may go first meanwhile.
      if (next === undefined || !this.#hasRoomFor(next)) return;
      this.#waiting.delete(next);
      this.#turnOf = next;
      next.onTurn();
      this.#turnOf = undefined;
    }
  }

  /** The process is gone. */
  end(): void {
    this.#waiting.clear();
  }

  #hasRoomFor({ isShort }: TurnTaker): boolean {
    if (this.#isFull()) return false;
    return this.#messages === 0 || (isShort && this.#messages < shortMessagesMax && this.#longMessages === 0);
  }
}
