import { LRUCache } from 'lru-cache';
import { wholeBytes, wholePrefix, type GpuOffer } from './offer.ts';
import type { Policy } from './policy.ts';
import type { EvictionCause } from './types.ts';
import { grownFloats, grownInts } from './waiting.ts';

/** Told of each eviction, before the bytes count as free. */
export type OnEviction = (functionIndex: number, prefix: number, bytes: number, cause: EvictionCause) => void;

/** On how many GPUs each function is resident as a whole. */
export class CopyCounts {
  #counts = new Int32Array(64);

  grow(functionCount: number): void {
    this.#counts = grownInts(this.#counts, functionCount);
  }

  of(functionIndex: number): number {
    return this.#counts[functionIndex]!;
  }

  change(functionIndex: number, by: number): void {
    this.#counts[functionIndex]! += by;
  }
}

const nobody = -1;
/** Recency without a limit: the bytes are counted here, and say when something has to go. */
const recency = (): LRUCache<number, number> =>
  new LRUCache({ maxSize: Number.MAX_SAFE_INTEGER, sizeCalculation: () => 1 });

/**
 * The weights on one GPU: a prefix of the layers of each function. The bytes of a load count from its start.
 *
 * Only what is idle stands in a recency list, so that whoever comes out of one may be evicted. A function is taken out
 * while it is held (running, loading, about to run) and comes back as the most recently used.
 */
export class GpuMemory {
  readonly capacityBytes: number;
  usedBytes = 0;
  readonly #eviction: Policy['eviction'];
  readonly #copies: CopyCounts;
  readonly #onEviction: OnEviction;
  /** The offer by which a function's prefix is to be read; undefined as long as nothing of it is here. */
  readonly #offers: (GpuOffer | undefined)[] = [];
  #prefixes = new Int32Array(64);
  /** Whether a function is in one of the lists below. */
  #idle = new Int32Array(64);
  #idleBytes = 0;
  /** With layers behind the hiding prefix, or under a policy that evicts whole functions. */
  readonly #untrimmed = recency();
  readonly #trimmed = recency();
  /** Resident elsewhere too. */
  readonly #spare = recency();
  /** Out of `untrimmed`, and only just begun to be trimmed. */
  #trimming = nobody;
  /** Greedy dual size frequency: uses while resident, value at the last use, and the value that was evicted last. */
  #uses = new Int32Array(64);
  #values = new Float64Array(64);
  #agedValue = 0;

  constructor(capacityBytes: number, eviction: Policy['eviction'], copies: CopyCounts, onEviction: OnEviction) {
    this.capacityBytes = capacityBytes;
    this.#eviction = eviction;
    this.#copies = copies;
    this.#onEviction = onEviction;
  }

  grow(functionCount: number): void {
    this.#prefixes = grownInts(this.#prefixes, functionCount);
    this.#idle = grownInts(this.#idle, functionCount);
    this.#uses = grownInts(this.#uses, functionCount);
    this.#values = grownFloats(this.#values, functionCount);
    while (this.#offers.length < functionCount) this.#offers.push(undefined);
  }

  /** Layers resident, counted from the first. */
  prefix(functionIndex: number): number {
    return this.#prefixes[functionIndex]!;
  }

  bytes(functionIndex: number): number {
    return this.#offers[functionIndex]?.prefixBytes[this.#prefixes[functionIndex]!] ?? 0;
  }

  /** The offer that the resident layers belong to. */
  offer(functionIndex: number): GpuOffer | undefined {
    return this.#offers[functionIndex];
  }

  get freeBytes(): number {
    return this.capacityBytes - this.usedBytes;
  }

  /** Free now, or as soon as everything idle is evicted. */
  get obtainableBytes(): number {
    return this.capacityBytes - this.usedBytes + this.#idleBytes;
  }

  /** May be evicted from now on; as the most recently used. */
  release(functionIndex: number): void {
    const bytes = this.bytes(functionIndex);
    if (this.#idle[functionIndex] === 1 || bytes === 0) return;
    this.#idle[functionIndex] = 1;
    this.#idleBytes += bytes;
    if (this.#eviction === 'gdsf') this.#value(functionIndex);
    this.#listFor(functionIndex).set(functionIndex, functionIndex);
  }

  /** Must not be evicted from now on. */
  hold(functionIndex: number): void {
    if (this.#idle[functionIndex] !== 1) return;
    this.#idle[functionIndex] = 0;
    this.#idleBytes -= this.bytes(functionIndex);
    if (this.#trimming === functionIndex) this.#trimming = nobody;
    else if (!this.#untrimmed.delete(functionIndex) && !this.#trimmed.delete(functionIndex)) {
      this.#spare.delete(functionIndex);
    }
  }

  /** Most recently used, though not held. */
  touch(functionIndex: number): void {
    if (this.#idle[functionIndex] !== 1) return;
    this.hold(functionIndex);
    this.release(functionIndex);
  }

  /**
   * Takes the room for a whole function that is held or not resident at all, evicting what is idle. Returns false, with
   * nothing evicted, when that is not enough.
   */
  reserve(functionIndex: number, offer: GpuOffer): boolean {
    const needed = wholeBytes(offer) - this.bytes(functionIndex);
    if (needed > this.obtainableBytes) return false;
    while (needed > this.freeBytes) this.#evictOne(needed - this.freeBytes);
    this.usedBytes += needed;
    this.#offers[functionIndex] = offer;
    this.#setPrefix(functionIndex, wholePrefix(offer));
    return true;
  }

  /** Drops a function, held or not. */
  drop(functionIndex: number, cause: EvictionCause): void {
    this.hold(functionIndex);
    this.#shrink(functionIndex, 0, cause);
  }

  /** Takes over an offer with the same layers: other times, nothing else. */
  replaceOffer(functionIndex: number, offer: GpuOffer): void {
    if (this.#offers[functionIndex] !== undefined) this.#offers[functionIndex] = offer;
  }

  #evictOne(missingBytes: number): void {
    const spare = this.#popSpare();
    if (spare !== nobody) {
      this.#evict(spare, 0, 'migration');
      return;
    }
    if (this.#eviction === 'gdsf') {
      const victim = this.#leastValuable();
      this.#agedValue = this.#values[victim]!;
      this.#untrimmed.delete(victim);
      this.#evict(victim, 0, 'capacity');
      return;
    }
    if (this.#eviction === 'lru-suffix') {
      if (this.#trimming === nobody) this.#trimming = pop(this.#untrimmed);
      if (this.#trimming !== nobody) {
        this.#trim(this.#trimming, missingBytes);
        return;
      }
    }
    let victim = pop(this.#trimmed);
    if (victim === nobody) victim = pop(this.#untrimmed);
    this.#evict(victim, 0, 'capacity');
  }

  /** Drops as many of the last layers as are missing, but none of the hiding prefix. */
  #trim(functionIndex: number, missingBytes: number): void {
    const { prefixBytes, hidingPrefix } = this.#offers[functionIndex]!;
    const before = this.#prefixes[functionIndex]!;
    let prefix = before;
    while (prefix > hidingPrefix && prefixBytes[before]! - prefixBytes[prefix]! < missingBytes) prefix--;
    if (prefix === hidingPrefix) {
      this.#trimming = nobody;
      if (prefix > 0) this.#trimmed.set(functionIndex, functionIndex);
    }
    this.#idleBytes -= prefixBytes[before]! - prefixBytes[prefix]!;
    if (prefixBytes[prefix] === 0) this.#idle[functionIndex] = 0;
    this.#shrink(functionIndex, prefix, prefix === 0 ? 'capacity' : 'trim');
  }

  /** An idle function that is in no list any more. */
  #evict(functionIndex: number, prefix: number, cause: EvictionCause): void {
    this.#idle[functionIndex] = 0;
    this.#idleBytes -= this.bytes(functionIndex);
    this.#shrink(functionIndex, prefix, cause);
  }

  #shrink(functionIndex: number, prefix: number, cause: EvictionCause): void {
    const offer = this.#offers[functionIndex];
    if (offer === undefined) return;
    const before = this.#prefixes[functionIndex]!;
    const bytes = offer.prefixBytes[before]! - offer.prefixBytes[prefix]!;
    this.#onEviction(functionIndex, prefix, bytes, cause);
    this.usedBytes -= bytes;
    this.#setPrefix(functionIndex, prefix);
    if (prefix === 0) {
      this.#offers[functionIndex] = undefined;
      this.#uses[functionIndex] = 0;
    }
  }

  #setPrefix(functionIndex: number, prefix: number): void {
    const offer = this.#offers[functionIndex]!;
    const whole = wholePrefix(offer);
    const before = this.#prefixes[functionIndex]!;
    if (before !== whole && prefix === whole) this.#copies.change(functionIndex, 1);
    else if (before === whole && prefix !== whole) this.#copies.change(functionIndex, -1);
    this.#prefixes[functionIndex] = prefix;
  }

  #listFor(functionIndex: number): LRUCache<number, number> {
    if (this.#copies.of(functionIndex) > 1) return this.#spare;
    if (this.#eviction !== 'lru-suffix') return this.#untrimmed;
    const { hidingPrefix } = this.#offers[functionIndex]!;
    return this.#prefixes[functionIndex]! > hidingPrefix ? this.#untrimmed : this.#trimmed;
  }

  #popSpare(): number {
    for (;;) {
      const functionIndex = pop(this.#spare);
      if (functionIndex === nobody || this.#copies.of(functionIndex) > 1) return functionIndex;
      // The other copy has gone meanwhile: this is the only one now.
      this.#listFor(functionIndex).set(functionIndex, functionIndex);
    }
  }

  #value(functionIndex: number): void {
    const { ways, warmMs } = this.#offers[functionIndex]!;
    const uses = ++this.#uses[functionIndex]!;
    const costMs = ways[0].coldMs[0]! - warmMs;
    this.#values[functionIndex] = this.#agedValue + (uses * costMs) / this.bytes(functionIndex);
  }

  #leastValuable(): number {
    let victim = nobody;
    let least = Infinity;
    for (const functionIndex of this.#untrimmed.keys()) {
      const value = this.#values[functionIndex]!;
      // Of equals the least recently used: keys come with the most recent first.
      if (value <= least) {
        least = value;
        victim = functionIndex;
      }
    }
    return victim;
  }
}

/** The least recently used, taken out; -1 when there is none. */
const pop = (list: LRUCache<number, number>): number => list.pop() ?? nobody;
