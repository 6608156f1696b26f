import type { SchedulerGpu, Given, GpuId } from '../schedule/index.ts';

/** One load's bytes on one link. */
export interface Transfer<Load> {
  load: Load;
  tailMs: number;
  /** Bytes still to come, and how many come per millisecond if the switch has no other traffic. */
  remainingBytes: number;
  bytesPerMs: number;
}

/**
 * PCIe as it behaves: each link carries its transfers one after the other, and the links of one switch share the path
 * to host memory fairly, each up to its own speed. Flows are continuous: whenever a transfer begins or ends, its
 * neighbours' speeds change.
 */
export class PcieLinks<Load> {
  /** The first of each is under way. */
  readonly #queues: Transfer<Load>[][];
  /** Reused objects: a simulation makes two for every load. */
  readonly #spare: Transfer<Load>[] = [];
  readonly #switchOf: readonly number[];
  readonly #linksOf: readonly (readonly number[])[];
  readonly #uplinkBytesPerMs: Float64Array;
  readonly #updatedMs: Float64Array;
  readonly #bytesPerMs: Float64Array;
  readonly #onDue: (link: Given<GpuId>, dueMs: number) => void;

  /**
   * @param onDue when the transfer on a link ends, as predicted now; the latest call for a link counts. Infinity: none
   * is left.
   */
  constructor(gpus: readonly SchedulerGpu[], onDue: (link: Given<GpuId>, dueMs: number) => void) {
    const switchCount = Math.max(0, ...gpus.map((gpu) => gpu.switch + 1));
    this.#queues = gpus.map(() => []);
    this.#switchOf = gpus.map((gpu) => gpu.switch);
    this.#linksOf = Array.from({ length: switchCount }, (_, index) =>
      [...gpus.keys()].filter((gpu) => gpus[gpu]!.switch === index),
    );
    this.#uplinkBytesPerMs = new Float64Array(switchCount);
    // 1 GB/s is 10^6 bytes a millisecond.
    for (const gpu of gpus) this.#uplinkBytesPerMs[gpu.switch] = gpu.uplinkGBps * 1e6;
    this.#updatedMs = new Float64Array(switchCount);
    this.#bytesPerMs = new Float64Array(gpus.length);
    this.#onDue = onDue;
  }

  add(link: Given<GpuId>, load: Load, bytes: number, ms: number, tailMs: number, nowMs: number): void {
    const queue = this.#queues[link]!;
    const index = this.#switchOf[link]!;
    const bytesPerMs = Math.min(bytes / ms, this.#uplinkBytesPerMs[index]!);
    const transfer = this.#spare.pop();
    if (transfer === undefined) {
      queue.push({ load, tailMs, remainingBytes: bytes, bytesPerMs });
    } else {
      transfer.load = load;
      transfer.tailMs = tailMs;
      transfer.remainingBytes = bytes;
      transfer.bytesPerMs = bytesPerMs;
      queue.push(transfer);
    }
    if (queue.length === 1) this.#share(index, nowMs);
  }

  /** Removes the transfer under way, which has ended. The object may be reused by the next `add`. */
  complete(link: Given<GpuId>, nowMs: number): Readonly<Transfer<Load>> {
    const index = this.#switchOf[link]!;
    this.#advance(index, nowMs);
    const done = this.#queues[link]!.shift()!;
    this.#share(index, nowMs);
    this.#spare.push(done);
    return done;
  }

  /** Removes all transfers of a load. */
  cancel(load: Load, nowMs: number): void {
    for (const [link, queue] of this.#queues.entries()) {
      const index = queue.findIndex((transfer) => transfer.load === load);
      if (index === -1) continue;
      this.#advance(this.#switchOf[link]!, nowMs);
      queue.splice(index, 1);
      if (queue.length === 0) this.#onDue(link, Infinity);
      this.#share(this.#switchOf[link]!, nowMs);
    }
  }

  /** Advances everything under way on the switch to now. */
  #advance(index: number, nowMs: number): void {
    const elapsedMs = nowMs - this.#updatedMs[index]!;
    this.#updatedMs[index] = nowMs;
    if (elapsedMs === 0) return;
    for (const link of this.#linksOf[index]!) {
      const transfer = this.#queues[link]![0];
      if (transfer !== undefined) transfer.remainingBytes -= elapsedMs * this.#bytesPerMs[link]!;
    }
  }

  /** Redistributes the switch's bandwidth: the slowest first, so that what it leaves goes to the others. */
  #share(index: number, nowMs: number): void {
    this.#advance(index, nowMs);
    const links = this.#linksOf[index]!;
    let sharing = 0;
    for (let place = 0; place < links.length; place++) {
      const link = links[place]!;
      this.#bytesPerMs[link] = 0;
      if (this.#queues[link]!.length > 0) sharing++;
    }
    let left = this.#uplinkBytesPerMs[index]!;
    while (sharing > 0) {
      let slowest: Transfer<Load> | undefined;
      let slowestLink: number | undefined;
      for (let place = 0; place < links.length; place++) {
        const link = links[place]!;
        const transfer = this.#queues[link]![0];
        if (transfer === undefined || this.#bytesPerMs[link]! > 0) continue;
        if (slowest === undefined || transfer.bytesPerMs < slowest.bytesPerMs) {
          slowest = transfer;
          slowestLink = link;
        }
      }
      if (slowest === undefined || slowestLink === undefined) return;
      const given = Math.min(slowest.bytesPerMs, left / sharing);
      this.#bytesPerMs[slowestLink] = given;
      left -= given;
      sharing--;
      this.#onDue(slowestLink, nowMs + Math.max(0, slowest.remainingBytes) / given);
    }
  }
}
