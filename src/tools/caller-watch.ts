/**
 * Work that waits on behalf of callers who may leave, by the signal that tells of it. A signal lives as long as a
 * connection, over which many calls come. It is listened to once: adding and removing a listener for each call costs
 * more than queueing the call.
 */
export class CallerWatch<Work> {
  readonly #waiting = new WeakMap<AbortSignal, Waiting<Work>>();
  readonly #left: (work: Work) => void;

  /** @param left told of each work that waits when its caller leaves */
  constructor(left: (work: Work) => void) {
    this.#left = left;
  }

  /** Of a caller who is still there. */
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

/** A connection brings one call at a time, unless it is pipelined: that one is hashed nowhere. */
interface Waiting<Work> {
  only: Work | undefined;
  readonly others: Set<Work>;
}
