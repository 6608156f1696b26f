import { gpuDevice } from './devices.ts';
import type { Lanes } from './lanes.ts';

/**
 * Puts operators that are ready when a core is free into one call. Devices start their next work in order of time. A
 * call continues with the next of `runs` as long as everything that run takes from other lanes was there when the call
 * started. It ends early once it has taken `paceMs` and holds outputs that others wait for.
 * @returns 1 at each position where a call begins
 */
export function callsAsReady(lanes: Lanes, runs: Uint8Array, paceMs: number): Uint8Array {
  const ready = new AsReady(lanes, runs, paceMs);
  while (ready.step());
  return ready.starts;
}

class AsReady {
  readonly starts: Uint8Array;
  readonly #lanes: Lanes;
  readonly #paceMs: number;
  readonly #runs: Uint8Array;
  readonly #waitsFor: Int32Array;
  readonly #givenMs: Float64Array;
  readonly #arrivedMs: Float64Array;
  /**
   * For each lane: the position it continues with, when it is free, and when it can continue; Infinity if not yet
   * known.
   */
  readonly #next: Int32Array;
  readonly #freeMs: Float64Array;
  readonly #nextStartMs: Float64Array;

  constructor(lanes: Lanes, runs: Uint8Array, paceMs: number) {
    this.#lanes = lanes;
    this.#paceMs = paceMs;
    this.#runs = runs;
    this.starts = runs.slice();
    const { startOf } = lanes.into;
    this.#waitsFor = Int32Array.from(lanes.nodes, (_, at) => (startOf[at + 1] as number) - (startOf[at] as number));
    this.#givenMs = new Float64Array(lanes.count);
    this.#arrivedMs = new Float64Array(lanes.tensorCount);
    this.#next = lanes.startOf.slice(0, lanes.laneCount);
    this.#freeMs = new Float64Array(lanes.laneCount);
    this.#nextStartMs = new Float64Array(lanes.laneCount);
    for (let lane = 0; lane < lanes.laneCount; lane++) this.#settle(lane);
  }

  /** Starts the earliest work of any lane; false if none is left. */
  step(): boolean {
    const startsMs = this.#nextStartMs;
    let lane = 0;
    for (let other = 1; other < startsMs.length; other++) {
      if ((startsMs[other] as number) < (startsMs[lane] as number)) lane = other;
    }
    const startMs = startsMs[lane] as number;
    if (startMs === Infinity) return false;
    const from = this.#next[lane] as number;
    if (lane === gpuDevice) this.#onGpu(from, startMs);
    else this.#call(lane, from, startMs);
    this.#settle(lane);
    for (let position = from; position < (this.#next[lane] as number); position++) this.#release(position);
    return true;
  }

  #settle(lane: number): void {
    const next = this.#next[lane] as number;
    const isOver = next === this.#lanes.startOf[lane + 1];
    this.#nextStartMs[lane] =
      isOver || this.#waitsFor[next] !== 0 ? Infinity : Math.max(this.#freeMs[lane] as number, this.#thereMs(next));
  }

  /** When all inputs from other lanes have arrived. */
  #thereMs(position: number): number {
    const { into, laneOf } = this.#lanes;
    let thereMs = 0;
    for (let row = into.startOf[position] as number; row < (into.startOf[position + 1] as number); row++) {
      const from = into.other[row] as number;
      const arrivedMs = laneOf[from] === gpuDevice ? this.#arrivedMs[into.tensor[row] as number] : this.#givenMs[from];
      thereMs = Math.max(thereMs, arrivedMs as number);
    }
    return thereMs;
  }

  #release(position: number): void {
    const { outOf, laneOf } = this.#lanes;
    for (let row = outOf.startOf[position] as number; row < (outOf.startOf[position + 1] as number); row++) {
      const other = outOf.other[row] as number;
      const left = (this.#waitsFor[other] as number) - 1;
      this.#waitsFor[other] = left;
      const lane = laneOf[other] as number;
      if (left === 0 && this.#next[lane] === other) this.#settle(lane);
    }
  }

  #onGpu(position: number, startMs: number): void {
    const { into, outOf, takesMs } = this.#lanes;
    let nowMs = startMs;
    for (let row = into.startOf[position] as number; row < (into.startOf[position + 1] as number); row++) {
      if (into.copied[row] === 1) nowMs += into.copyMs[row] as number;
    }
    nowMs += takesMs[position] as number;
    for (let row = outOf.startOf[position] as number; row < (outOf.startOf[position + 1] as number); row++) {
      if (outOf.copied[row] === 1) this.#arrivedMs[outOf.tensor[row] as number] = nowMs += outOf.copyMs[row] as number;
    }
    this.#freeMs[gpuDevice] = nowMs;
    this.#next[gpuDevice] = position + 1;
  }

  #call(lane: number, from: number, startMs: number): void {
    const { startOf, outOf, takesMs, callMs } = this.#lanes;
    const laneEnd = startOf[lane + 1] as number;
    let tookMs = 0;
    let end = from;
    // Runs stay whole: within one, nothing comes or leaves.
    const goesOn = (): boolean =>
      (outOf.startOf[from] === outOf.startOf[end] || tookMs < this.#paceMs) &&
      this.#waitsFor[end] === 0 &&
      this.#thereMs(end) <= startMs;
    do {
      this.starts[end] = end === from ? 1 : 0;
      tookMs += takesMs[end] as number;
      end++;
    } while (end < laneEnd && (this.#runs[end] === 0 || goesOn()));
    this.#givenMs.fill(startMs + callMs + tookMs, from, end);
    this.#freeMs[lane] = startMs + callMs + tookMs;
    this.#next[lane] = end;
  }
}
