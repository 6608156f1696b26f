/**
 * Work that waits on behalf of callers who may leave, by the signal that tells of it. A signal lives as long as a
 * connection, over which many calls come. It is listened to once: adding and removing a listener for each call costs
 * more than queueing the call.
 */
export class CallerWatch<Work> {
  readonly #waiting = new WeakMap<AbortSignal, Set<Work>>();
  readonly #left: (work: Work) => void;

  /** @param left told of each work that waits when its caller leaves */
  constructor(left: (work: Work) => void) {
    this.#left = left;
  }

  /** Of a caller who is still there. */
  add(signal: AbortSignal, work: Work): void {
    let waiting = this.#waiting.get(signal);
    if (waiting === undefined) {
      const mine = (waiting = new Set<Work>());
      this.#waiting.set(signal, mine);
      const left = (): void => {
        for (const each of mine) this.#left(each);
      };
      signal.addEventListener('abort', left, { once: true });
    }
    waiting.add(work);
  }

  delete(signal: AbortSignal, work: Work): void {
    this.#waiting.get(signal)?.delete(work);
  }
}
