import type { Given, GpuId } from '../../schedule/index.ts';
import { TallyCounter } from './tally.ts';

/** Widths of an interval, and the most intervals of it: two minutes, ten minutes, two days; from there it doubles. */
const stages = [
  { widthMs: 1000, rowsMax: 120 },
  { widthMs: 5000, rowsMax: 120 },
  { widthMs: 60_000, rowsMax: 2880 },
] as const;

const sketchOptions = { exactMax: 64, precisionBits: 7 } as const;

export interface Interval {
  readonly tally: TallyCounter;
  /** Busy time of each GPU. */
  readonly busyMs: number[];
}

/**
 * Intervals of equal width from 0 on, for a trace of any length: when there would be too many, neighbours are merged,
 * so that memory stays bounded.
 */
export class IntervalSeries {
  #widthMs: number = stages[0].widthMs;
  #rowsMax: number = stages[0].rowsMax;
  #rows: Interval[] = [];

  get widthMs(): number {
    return this.#widthMs;
  }

  get rows(): readonly Interval[] {
    return this.#rows;
  }

  /** The interval of an instant, 0 or above. */
  at(instantMs: number): Interval {
    let index = Math.floor(instantMs / this.#widthMs);
    while (index >= this.#rowsMax) {
      this.#widen();
      index = Math.floor(instantMs / this.#widthMs);
    }
    while (this.#rows.length <= index) this.#rows.push(emptyInterval());
    return this.#rows[index]!;
  }

  /** A GPU executed from one instant to another. */
  busy(gpu: Given<GpuId>, fromMs: number, toMs: number): void {
    for (let startMs = fromMs; startMs < toMs;) {
      const { busyMs } = this.at(startMs);
      const nextMs = (Math.floor(startMs / this.#widthMs) + 1) * this.#widthMs;
      const endMs = Math.min(toMs, nextMs);
      while (busyMs.length <= gpu) busyMs.push(0);
      busyMs[gpu]! += endMs - startMs;
      startMs = endMs;
    }
  }

  #widen(): void {
    const next = stages.find(({ widthMs }) => widthMs > this.#widthMs);
    const widthMs = next?.widthMs ?? this.#widthMs * 2;
    this.#rows = joined(this.#rows, widthMs / this.#widthMs);
    this.#widthMs = widthMs;
    this.#rowsMax = next?.rowsMax ?? this.#rowsMax;
  }
}

function emptyInterval(): Interval {
  return { tally: new TallyCounter(sketchOptions), busyMs: [] };
}

/** Merges each `count` neighbours into one. */
export function joined(rows: readonly Interval[], count: number): Interval[] {
  const wide: Interval[] = [];
  for (const [index, { tally, busyMs }] of rows.entries()) {
    if (index % count === 0) wide.push(emptyInterval());
    const into = wide.at(-1)!;
    into.tally.merge(tally);
    for (const [gpu, ms] of busyMs.entries()) {
      while (into.busyMs.length <= gpu) into.busyMs.push(0);
      into.busyMs[gpu]! += ms;
    }
  }
  return wide;
}
