/**
 * Work waiting on behalf of callers that may leave, by abort signal. A connection has one signal for its many calls. It
 * gets one listener: adding and removing one for each call costs more than queueing the call.
 */
export class CallerWatch<Work> {
  readonly #waiting = new WeakMap<AbortSignal, Waiting<Work>>();
  readonly #left: (work: Work) => void;

  /** @param left called with each waiting work when its caller leaves */
  constructor(left: (work: Work) => void) {
    this.#left = left;
  }

  /** The caller must still be there: an aborted signal fires no event again. */
  add(signal: AbortSignal, work: Work): void {
    let waiting = this.#waiting.get(signal);
    if (waiting === undefined) {
      const mine: Waiting<Work> = (waiting = { only: undefined, others: new Set() });
      this.#waiting.set(signal, mine);
      const left = (): void => {
        if (mine.only !== undefined) this.#left(mine.only);
        for (const each of mine.others) this.#left(each);
      };
      signal.addEventListener('abort', left, { once: true });
    }
    if (waiting.only === undefined) waiting.only = work;
    else if (waiting.only !== work) waiting.others.add(work);
  }

  delete(signal: AbortSignal, work: Work): void {
    const waiting = this.#waiting.get(signal);
    if (waiting?.only === work) waiting.only = undefined;
    else waiting?.others.delete(work);
  }
}

/** A connection brings one call at a time unless it is pipelined, so the first one needs no Set. */
interface Waiting<Work> {
  only: Work | undefined;
  readonly others: Set<Work>;
}
