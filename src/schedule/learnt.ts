/** How much of what is known already a new observation leaves. */
const kept = 0.8;

/**
 * A figure of each function that may never have been measured: what was observed, else what its offer says, else the
 * mean of the functions that were observed, else nothing at all, so that the first invocation is sent and teaches it.
 */
export class Learnt {
  readonly #values = new Map<number, number>();
  #mean = 0;

  of(functionIndex: number, offered: number | undefined): number {
    return offered ?? this.#values.get(functionIndex) ?? this.#mean;
  }

  observe(functionIndex: number, value: number): void {
    const before = this.#values.get(functionIndex);
    this.#values.set(functionIndex, before === undefined ? value : before * kept + value * (1 - kept));
    this.#mean = this.#mean === 0 ? value : this.#mean * kept + value * (1 - kept);
  }

  forget(functionIndex: number): void {
    this.#values.delete(functionIndex);
  }
}

/** Weight of a new observation in the scale by which steps go. */
const newest = 0.1;

/**
 * By how much a prediction is to be put off so that a wanted share of what is predicted comes in time: the quantile of
 * how far it was off, by function, followed step by step (Robbins and Monro 1951). Who is late raises it by about the
 * mean error, who is in time lowers it by so much less that both balance at the share.
 */
export class Margin {
  readonly #lateShare: number;
  readonly #known = new Map<number, { ms: number; scaleMs: number }>();
  /** Of a function that was never observed. */
  #latestMs = 0;

  /** @param share that is to come in time */
  constructor(share: number) {
    this.#lateShare = 1 - share;
  }

  of(functionIndex: number): number {
    return this.#known.get(functionIndex)?.ms ?? this.#latestMs;
  }

  /** @param offMs how much later than predicted it came */
  observe(functionIndex: number, offMs: number): void {
    let known = this.#known.get(functionIndex);
    if (known === undefined) {
      known = { ms: this.#latestMs, scaleMs: Math.abs(offMs) };
      this.#known.set(functionIndex, known);
    }
    known.scaleMs += newest * (Math.abs(offMs) - known.scaleMs);
    known.ms = Math.max(0, known.ms + known.scaleMs * ((offMs > known.ms ? 1 : 0) - this.#lateShare));
    this.#latestMs = known.ms;
  }

  forget(functionIndex: number): void {
    this.#known.delete(functionIndex);
  }
}
