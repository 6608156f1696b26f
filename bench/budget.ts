/** The time that a run may take, for benchmarks that measure less when there is less time. */

/** Thrown when the time is over before a step has ended. */
export class NotInTime extends Error {
  override readonly name = 'NotInTime';
}

/**
 * The result of some work; what it does after its time is over is nobody's business any more.
 * @param untilMs by `performance.now()`
 * @throws NotInTime
 */
export async function inTime<Result>(work: Promise<Result>, untilMs: number): Promise<Result> {
  if (untilMs === Infinity) return await work;
  work.catch(() => undefined);
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new NotInTime('the time is over')), Math.max(0, untilMs - performance.now()));
  });
  try {
    return await Promise.race([work, over]);
  } finally {
    clearTimeout(timer);
  }
}

/** Remembers what steps took, so that none begins that would probably end too late. */
export class Budget {
  readonly untilMs: number;
  readonly #nowMs: () => number;
  readonly #tookMs = new Map<string, number>();

  constructor(ms: number, nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
    this.untilMs = nowMs() + ms;
  }

  get leftMs(): number {
    return this.untilMs - this.#nowMs();
  }

  /** The time at which this share of what is left will be over. */
  shareMs(share: number): number {
    return this.#nowMs() + share * this.leftMs;
  }

  async time<Result>(step: string, work: () => Promise<Result>): Promise<Result> {
    const startMs = this.#nowMs();
    try {
      return await work();
    } finally {
      this.#tookMs.set(step, this.#nowMs() - startMs);
    }
  }

  /** Whether steps that take as long as they did the last time would end by `untilMs`; unknown ones take no time. */
  fits(steps: readonly string[], untilMs = this.untilMs): boolean {
    const ms = steps.reduce((sum, step) => sum + (this.#tookMs.get(step) ?? 0), 0);
    return this.#nowMs() + ms < untilMs;
  }
}
