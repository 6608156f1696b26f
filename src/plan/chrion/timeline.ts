import { gpuDevice } from './devices.ts';
import type { Lanes } from './lanes.ts';

/** One copy of a tensor between host and GPU, on the GPU's stream. */
export interface Copy {
  /** Position of the operator that makes the tensor. */
  readonly from: number;
  /** Position of the first operator on the other side that takes it. */
  readonly to: number;
  readonly direction: 'to-gpu' | 'to-cpu';
  readonly startMs: number;
  readonly endMs: number;
}

export const nothing = -1;

/**
 * The times of all operators, by position in the lanes; every device does one thing at a time. One object serves for
 * many groupings into calls, and holds the times of the latest.
 *
 * The GPU takes its operators, and every core its calls, in the given order, and each waits for its inputs. A call
 * starts when all inputs from other lanes are there, and releases all outputs at its end. The GPU's stream has, for
 * each of its operators, the copies of inputs from the CPU, the operator, and the copies of outputs for the CPU, in
 * this order; a tensor is copied once. Plans are compared by these times, not by the greedy choice's own estimate.
 */
export class Timeline {
  /** Times of each operator; in a call, operators run in sequence after the cost of the call itself. */
  readonly startMs: Float64Array;
  readonly endMs: Float64Array;
  /**
   * For each operator on the GPU and each first one of a call: the operator whose end delayed the start, or {@link
   * nothing} if that was the device's own last work.
   */
  readonly heldUpBy: Int32Array;
  /** For each first operator of a call: the operator of the call that took the delaying tensor. */
  readonly heldUp: Int32Array;
  /** End of the last operator (Chrion, Equation 1). */
  latencyMs = 0;
  readonly #lanes: Lanes;
  /** When an operator's output is available to devices on its side; on a core, at the end of its call. */
  readonly #givenMs: Float64Array;
  /** When a tensor of the GPU is in host memory. */
  readonly #arrivedMs: Float64Array;
  readonly #freeMs: Float64Array;
  /** Number of inputs from other lanes that a GPU operator or a call (by its first position) still waits for. */
  readonly #waitsFor: Int32Array;
  readonly #headOf: Int32Array;
  /** For each lane, the position it continues with. */
  readonly #next: Int32Array;
  readonly #isQueued: Uint8Array;
  #copies: Copy[] | undefined;

  constructor(lanes: Lanes) {
    const { count, laneCount, tensorCount } = lanes;
    this.#lanes = lanes;
    this.startMs = new Float64Array(count);
    this.endMs = new Float64Array(count);
    this.heldUpBy = new Int32Array(count);
    this.heldUp = new Int32Array(count);
    this.#givenMs = new Float64Array(count);
    this.#arrivedMs = new Float64Array(tensorCount);
    this.#freeMs = new Float64Array(laneCount);
    this.#waitsFor = new Int32Array(count);
    this.#headOf = new Int32Array(count);
    this.#next = new Int32Array(laneCount);
    this.#isQueued = new Uint8Array(laneCount);
  }

  /**
   * Milliseconds of the calls that begin at `starts`; Infinity if calls and the GPU wait for each other.
   * @param starts 1 at each position where a call begins, and at each operator on the GPU
   */
  run(starts: Uint8Array): number {
    const { count, laneCount, startOf, laneOf, outOf } = this.#lanes;
    this.#reset(starts);
    const queue = Array.from({ length: laneCount }, (_, lane) => lane);
    let done = 0;
    for (let lane = queue.pop(); lane !== undefined; lane = queue.pop()) {
      this.#isQueued[lane] = 0;
      const laneEnd = startOf[lane + 1] as number;
      let head = this.#next[lane] as number;
      while (head < laneEnd && this.#waitsFor[head] === 0) {
        let end = head + 1;
        while (end < laneEnd && starts[end] === 0) end++;
        if (lane === gpuDevice) this.#onGpu(head);
        else this.#call(lane, head, end);
        const last = outOf.startOf[end] as number;
        for (let row = outOf.startOf[head] as number; row < last; row++) {
          const other = outOf.other[row] as number;
          const otherHead = this.#headOf[other] as number;
          const left = (this.#waitsFor[otherHead] as number) - 1;
          this.#waitsFor[otherHead] = left;
          const otherLane = laneOf[other] as number;
          if (left !== 0 || this.#next[otherLane] !== otherHead || this.#isQueued[otherLane] === 1) continue;
          this.#isQueued[otherLane] = 1;
          queue.push(otherLane);
        }
        done += end - head;
        head = end;
      }
      this.#next[lane] = head;
    }
    if (done < count) this.latencyMs = Infinity;
    return this.latencyMs;
  }

  /** The copies of a run, in the order of the GPU's stream. */
  copies(starts: Uint8Array): readonly Copy[] {
    const copies: Copy[] = [];
    this.#copies = copies;
    this.run(starts);
    this.#copies = undefined;
    return copies;
  }

  #reset(starts: Uint8Array): void {
    const { count, laneCount, startOf, into } = this.#lanes;
    this.latencyMs = 0;
    this.#freeMs.fill(0);
    this.#waitsFor.fill(0);
    this.heldUpBy.fill(nothing);
    this.#isQueued.fill(1);
    this.#next.set(startOf.subarray(0, laneCount));
    for (let position = 0, head = 0; position < count; position++) {
      if (starts[position] === 1) head = position;
      this.#headOf[position] = head;
      const comes = (into.startOf[position + 1] as number) - (into.startOf[position] as number);
      this.#waitsFor[head] = (this.#waitsFor[head] as number) + comes;
    }
  }

  #onGpu(position: number): void {
    const { into, outOf, takesMs } = this.#lanes;
    let nowMs = this.#freeMs[gpuDevice] as number;
    for (let row = into.startOf[position] as number; row < (into.startOf[position + 1] as number); row++) {
      if (into.copied[row] === 0) continue;
      const from = into.other[row] as number;
      const givenMs = this.#givenMs[from] as number;
      if (givenMs > nowMs) this.heldUpBy[position] = from;
      const startMs = Math.max(nowMs, givenMs);
      nowMs = startMs + (into.copyMs[row] as number);
      this.#copies?.push({ from, to: position, direction: 'to-gpu', startMs, endMs: nowMs });
    }
    this.startMs[position] = nowMs;
    nowMs += takesMs[position] as number;
    this.endMs[position] = nowMs;
    if (nowMs > this.latencyMs) this.latencyMs = nowMs;
    for (let row = outOf.startOf[position] as number; row < (outOf.startOf[position + 1] as number); row++) {
      if (outOf.copied[row] === 0) continue;
      const startMs = nowMs;
      nowMs += outOf.copyMs[row] as number;
      this.#arrivedMs[outOf.tensor[row] as number] = nowMs;
      const to = outOf.other[row] as number;
      this.#copies?.push({ from: position, to, direction: 'to-cpu', startMs, endMs: nowMs });
    }
    this.#freeMs[gpuDevice] = nowMs;
  }

  /** Runs a call of the positions from `head` to before `end`. */
  #call(lane: number, head: number, end: number): void {
    const { into, laneOf, takesMs, callMs } = this.#lanes;
    let nowMs = this.#freeMs[lane] as number;
    for (let position = head; position < end; position++) {
      for (let row = into.startOf[position] as number; row < (into.startOf[position + 1] as number); row++) {
        const from = into.other[row] as number;
        const thereMs = (
          laneOf[from] === gpuDevice ? this.#arrivedMs[into.tensor[row] as number] : this.#givenMs[from]
        ) as number;
        if (thereMs <= nowMs) continue;
        nowMs = thereMs;
        this.heldUpBy[head] = from;
        this.heldUp[head] = position;
      }
    }
    nowMs += callMs;
    for (let position = head; position < end; position++) {
      this.startMs[position] = nowMs;
      nowMs += takesMs[position] as number;
      this.endMs[position] = nowMs;
    }
    for (let position = head; position < end; position++) this.#givenMs[position] = nowMs;
    if (nowMs > this.latencyMs) this.latencyMs = nowMs;
    this.#freeMs[lane] = nowMs;
  }
}
