/**
 * Which function may send the next message to a process that several functions share (start-time fair queueing): among
 * the waiting ones, the one that has used the least of the process's time. A function with endless calls then delays
 * another by one message, not by its whole queue. The process works on one message. If messages are short, a few more
 * are queued there, so that it need not wait for the host, which on a busy machine takes longer than the work.
 */

/** Limit of short messages (some hundred microseconds) that a process may have at once. */
const shortMessagesMax = 8;
/** Limit of a process's calls whose model runs elsewhere. Each keeps its request and the handler's state in memory. */
const awayMax = 16;
/** How many of the longest-waiting are compared for the next turn. */
const lookedAt = 64;

/** A function that takes turns in a process. */
export interface TurnTaker {
  /** Its messages are so short that others may be queued behind them. */
  readonly isShort: boolean;
  /** Process time that it has used, on the process's virtual clock, in milliseconds. */
  virtualMs: number;
  /** It may send one message now, within this call. */
  onTurn(): void;
}

export class Turns {
  readonly #waiting = new Set<TurnTaker>();
  #turnOf: TurnTaker | undefined;
  #virtualMs = 0;
  /** Messages that the process has, and how many of them are long. */
  #messages = 0;
  #longMessages = 0;
  /** The latest turn went to a function with long messages: the next message is its own. */
  #isNextLong = false;
  /** Calls whose model runs elsewhere. */
  away = 0;

  /** How many wait. */
  get waiting(): number {
    return this.#waiting.size;
  }

  /** Whether it gets a turn now; if not, {@link TurnTaker.onTurn} is called when it does. */
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

  /** A message was sent. Returns whether it is long. */
  begun(): boolean {
    const isLong = this.#isNextLong;
    this.#isNextLong = false;
    this.#messages++;
    if (isLong) this.#longMessages++;
    return isLong;
  }

  /** The process has finished a message. {@link offer} must follow. */
  ended(isLong: boolean): void {
    this.#messages--;
    if (isLong) this.#longMessages--;
  }

  /** Grants turns to those that wait, least used time first, until the next one has no room. */
  offer(): void {
    while (this.#waiting.size > 0) {
      let next: TurnTaker | undefined;
      let seen = 0;
      for (const taker of this.#waiting) {
        if (next === undefined || taker.virtualMs < next.virtualMs) next = taker;
        if (++seen === lookedAt) break;
      }
      // A long message gets its turn when the process is empty, so no other may go first until then.
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

  /** Whether the process has nothing to do and would take any message. */
  get isFree(): boolean {
    return this.#messages === 0 && this.#waiting.size === 0 && this.away < awayMax;
  }

  #hasRoomFor({ isShort }: TurnTaker): boolean {
    if (this.away >= awayMax) return false;
    return this.#messages === 0 || (isShort && this.#messages < shortMessagesMax && this.#longMessages === 0);
  }
}
