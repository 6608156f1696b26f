/** Accounts for every call: each must get one right answer in time. Everything else is recorded with its detail. */

/** Calls whose answers do not depend on each other: a fault in one place need not affect the others. */
export type Stream = 'cpu' | 'gpu' | 'asynchronous' | 'publications';

export const troubles = ['lost', 'doubled', 'hung', 'wrong'] as const;

export type Trouble = (typeof troubles)[number];

export interface Outage {
  readonly fault: string;
  times: number;
  /** The longest time between two good answers of one stream. */
  longestMs: number;
  stream: Stream | '';
}

const detailsMax = 20;

export class Ledger {
  readonly calls = new Map<Stream, number>();
  readonly placements = new Map<string, number>();
  readonly refusals = new Map<string, number>();
  readonly counts: Record<Trouble, number> = { lost: 0, doubled: 0, hung: 0, wrong: 0 };
  readonly details: string[] = [];
  readonly outages = new Map<string, Outage>();
  /** Sent again because the host was killed before it answered, or asked to try again. */
  retries = 0;
  /** Accepted calls that Redis was made to forget. */
  flushed = 0;
  calledBackTwice = 0;
  readonly #lastGoodMs = new Map<Stream, number>();
  #window: { readonly fault: string; readonly startMs: number } | undefined;
  #pending = 0;
  #waiters: (() => void)[] = [];
  readonly #started = performance.now();

  get answered(): number {
    return [...this.calls.values()].reduce((sum, count) => sum + count, 0);
  }

  goodOf(stream: Stream): number {
    return this.calls.get(stream) ?? 0;
  }

  good(stream: Stream, placement?: string): void {
    const nowMs = performance.now();
    this.#gap(stream, nowMs);
    this.#lastGoodMs.set(stream, nowMs);
    this.calls.set(stream, this.goodOf(stream) + 1);
    if (placement !== undefined) this.placements.set(placement, (this.placements.get(placement) ?? 0) + 1);
    this.#wake();
  }

  refused(code: string): void {
    this.refusals.set(code, (this.refusals.get(code) ?? 0) + 1);
    this.retries++;
  }

  trouble(kind: Trouble, detail: string): void {
    this.counts[kind]++;
    const atS = ((performance.now() - this.#started) / 1000).toFixed(1);
    const during = this.#window === undefined ? '' : ` during ${this.#window.fault}`;
    if (this.details.length < detailsMax) this.details.push(`${kind} at ${atS} s${during}: ${detail}`);
    this.#wake();
  }

  /** A call is in flight between `begin` and `end`: its client waits for an answer. */
  begin(): void {
    this.#pending++;
  }

  end(): void {
    this.#pending--;
    this.#wake();
  }

  get pending(): number {
    return this.#pending;
  }

  openWindow(fault: string): void {
    this.#window = { fault, startMs: performance.now() };
  }

  closeWindow(): void {
    const { fault } = this.#window!;
    const nowMs = performance.now();
    for (const stream of this.#lastGoodMs.keys()) this.#gap(stream, nowMs);
    this.#outageOf(fault).times++;
    this.#window = undefined;
  }

  /** Resolves once `isSo` holds, checked at each answer. Rejects after `limitMs`. */
  async until(what: string, isSo: () => boolean, limitMs: number): Promise<void> {
    const late = performance.now() + limitMs;
    while (!isSo()) {
      const leftMs = late - performance.now();
      if (leftMs <= 0) throw new Error(`after ${limitMs / 1000} s, still not so: ${what}`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, leftMs);
        this.#waiters.push(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  #gap(stream: Stream, nowMs: number): void {
    const lastMs = this.#lastGoodMs.get(stream);
    if (this.#window === undefined || lastMs === undefined) return;
    const outage = this.#outageOf(this.#window.fault);
    const gapMs = nowMs - Math.max(lastMs, this.#window.startMs);
    if (gapMs <= outage.longestMs) return;
    outage.longestMs = gapMs;
    outage.stream = stream;
  }

  #outageOf(fault: string): Outage {
    let outage = this.outages.get(fault);
    if (outage === undefined) this.outages.set(fault, (outage = { fault, times: 0, longestMs: 0, stream: '' }));
    return outage;
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }
}
