/** What a byte of host memory is worth, and what a read from disk costs: learnt of the reads so far. */
import { smoothed } from '../tools/index.ts';
import type { Block, Copy } from './host-blocks.ts';
import type { Popularity } from './learnt.ts';
import type { Pressure } from './miss-cost.ts';
import type { Policy } from './policy.ts';
import type { Slots } from './slots.ts';
import { tuning } from './tuning.ts';
import type { StageObservation } from './types.ts';

const { lateShare } = tuning.hostMemory;

export interface HostValueFacts {
  readonly policy: Policy;
  readonly slots: Slots;
  readonly popularity: Popularity;
  readonly pressure: Pressure;
}

export class HostValues {
  readonly #slots: Slots;
  readonly #popularity: Popularity;
  readonly #pressure: Pressure;
  readonly #msPerByte: { uncached: number; cached: number | undefined };
  /** Whether what GPUs have as a whole goes from here first. */
  readonly #sparesGpus: boolean;

  constructor(diskGBps: number, { policy, slots, popularity, pressure }: HostValueFacts) {
    this.#slots = slots;
    this.#popularity = popularity;
    this.#pressure = pressure;
    this.#msPerByte = { uncached: 1 / (diskGBps * 1e6), cached: undefined };
    // Where GPUs evict without asking for the price, it would soon have to be read again.
    this.#sparesGpus = policy.eviction === 'value-suffix';
  }

  /** How long a read of so many bytes takes: from the disk, or from the page cache if its last read was from there. */
  msOf({ wasCached }: Copy, bytes: number): number {
    const { cached, uncached } = this.#msPerByte;
    return bytes * (wasCached && cached !== undefined ? cached : uncached);
  }

  /** Milliseconds to read the function's blocks that are neither here nor being read. */
  readMs(copy: Copy): number {
    return this.msOf(copy, copy.onDiskBytes);
  }

  observe(copy: Copy, bytes: number, { ms, isCached }: StageObservation): void {
    copy.wasCached = isCached;
    if (bytes <= 0) return;
    const kind = isCached ? 'cached' : 'uncached';
    this.#msPerByte[kind] = smoothed(this.#msPerByte[kind], ms / bytes);
  }

  /** What a start costs that waits for the disk: the read, and being late where the read is longer than the SLO. */
  missMs(copy: Copy): number {
    const { fn, bytes } = copy;
    const readMs = this.msOf(copy, bytes);
    return readMs + (readMs + fn.leastColdMs > fn.sheet.sloMs ? this.#pressure.missMs : 0);
  }

  /** The value of a byte, as long as its functions are called as often as before. */
  valueOf(block: Block): number {
    let value = 0;
    for (const user of block.users)
      value += (this.#popularity.count(user.fn.number) * this.missMs(user)) / Math.max(1, user.bytes);
    // The most called functions stay on their GPUs longest, so their copies go first.
    return this.#sparesGpus && !block.isExecuted && isWholeOnGpus(block) ? -value : value;
  }

  /** The value of a byte of a function that calls wait for. Each call is a use; one that will be late is a part of one. */
  valueWith(copy: Copy, nowMs: number): number {
    const { fn } = copy;
    const inTimeMs = nowMs + this.readMs(copy);
    let uses = 0;
    for (let slot = this.#slots.first(fn); slot !== undefined; slot = slot.next) {
      if (slot.entry === undefined) continue;
      const { onTime, late } = slot.entry;
      const isInTime = onTime.head !== undefined && onTime.head.dueMs >= inTimeMs;
      uses += onTime.count * (isInTime ? 1 : lateShare) + late.count * lateShare;
    }
    return (this.#popularity.countWith(fn.number, uses) * this.missMs(copy)) / Math.max(1, copy.bytes);
  }

  /** All values are scaled down before they overflow. */
  onScale(listener: (factor: number) => void): void {
    this.#popularity.onScale(listener);
  }

  /** How often calls have come for it, the latest counting most. */
  calls(copy: Copy): number {
    return this.#popularity.count(copy.fn.number);
  }
}

function isWholeOnGpus({ users }: Block): boolean {
  for (const { fn } of users) if (fn.copies === 0) return false;
  return true;
}
