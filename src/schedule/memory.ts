import { popLeastRecent, RecencyOrder, recencyList, ValueOrder, type EvictionOrder } from './eviction-order.ts';
import { wholeBytes, wholePrefix, type GpuOffer } from './offer.ts';
import type { Policy } from './policy.ts';
import type { Popularity } from './popularity.ts';
import type { Rungs } from './rungs.ts';
import type { EvictionCause } from './types.ts';
import { grownFloats, grownInts } from './waiting.ts';

/** Who is told what goes, before the bytes count as free. */
export interface MemoryListener {
  evicted(functionIndex: number, prefix: number, bytes: number, cause: EvictionCause): void;
  shrunk(functionIndex: number, rung: GpuOffer, bytes: number): void;
}

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

/** How many layers of each function each GPU has: one table, since who looks for a function looks on every GPU. */
export class Prefixes {
  readonly #gpuCount: number;
  #prefixes = new Int32Array(64);

  constructor(gpuCount: number) {
    this.#gpuCount = gpuCount;
  }

  grow(functionCount: number): void {
    this.#prefixes = grownInts(this.#prefixes, functionCount * this.#gpuCount);
  }

  /** @param slot function times GPUs, plus GPU. */
  of(slot: number): number {
    return this.#prefixes[slot]!;
  }

  set(slot: number, prefix: number): void {
    this.#prefixes[slot] = prefix;
  }
}

/** What the memories of all GPUs keep together. */
export interface SharedResidency {
  readonly gpuCount: number;
  readonly prefixes: Prefixes;
  readonly copies: CopyCounts;
  readonly popularity: Popularity;
  readonly rungs: Rungs;
}

const nobody = -1;

/**
 * The weights on one GPU: a prefix of the layers of each function, under one of the rungs of its ladder. The bytes of a load
 * count from its start, as do those of growing to a larger rung.
 *
 * Only what is idle stands in the order of eviction, so that whoever is next in it may be evicted. A function is taken out
 * while it is held (running, loading, about to run) and comes back as the most recently used.
 */
export class GpuMemory {
  readonly capacityBytes: number;
  usedBytes = 0;
  readonly #trims: boolean;
  readonly #order: EvictionOrder;
  readonly #copies: CopyCounts;
  readonly #rungs: Rungs;
  readonly #listener: MemoryListener;
  /** The offer by which a function's prefix is to be read; undefined as long as nothing of it is here. */
  readonly #offers: (GpuOffer | undefined)[] = [];
  readonly #prefixes: Prefixes;
  readonly #gpu: number;
  readonly #gpuCount: number;
  #idle = new Int32Array(64);
  #idleBytes = 0;
  #pinned = new Int32Array(64);
  #pinnedBytes = 0;
  /** Idle and resident elsewhere too: first to go, and not in the order. */
  readonly #spare = recencyList();
  /** Greedy dual size frequency: uses while resident, age at the last use, and age: the value that was evicted last. */
  #uses = new Int32Array(64);
  #ageAtUse = new Float64Array(64);
  #age = 0;
  readonly #gdsf: ValueOrder | undefined;
  /** Idle, there as a whole, and with a smaller rung that is acceptable as far as was known when it became idle. */
  readonly #shrinkable = new RecencyOrder();
  /** By function, the larger rung whose other layers are on their way. */
  readonly #growing = new Map<number, GpuOffer>();

  constructor(
    gpu: number,
    capacityBytes: number,
    eviction: Policy['eviction'],
    { gpuCount, prefixes, copies, popularity, rungs }: SharedResidency,
    listener: MemoryListener,
  ) {
    this.#gpu = gpu;
    this.#gpuCount = gpuCount;
    this.capacityBytes = capacityBytes;
    this.#prefixes = prefixes;
    this.#copies = copies;
    this.#rungs = rungs;
    this.#listener = listener;
    this.#trims = eviction === 'lru-suffix' || eviction === 'value-suffix';
    if (eviction === 'gdsf') this.#gdsf = new ValueOrder((functionIndex) => this.#greedyDualValue(functionIndex));
    if (eviction === 'value-suffix') {
      const order = new ValueOrder(
        (functionIndex) => popularity.count(functionIndex) * this.#missCostPerByte(functionIndex),
      );
      popularity.onScale((factor) => order.scale(factor));
      this.#order = order;
    } else {
      this.#order = this.#gdsf ?? new RecencyOrder();
    }
  }

  grow(functionCount: number): void {
    this.#idle = grownInts(this.#idle, functionCount);
    this.#pinned = grownInts(this.#pinned, functionCount);
    this.#uses = grownInts(this.#uses, functionCount);
    this.#ageAtUse = grownFloats(this.#ageAtUse, functionCount);
    this.#order.grow(functionCount);
    while (this.#offers.length < functionCount) this.#offers.push(undefined);
  }

  /** Layers resident, counted from the first. */
  prefix(functionIndex: number): number {
    return this.#prefixes.of(functionIndex * this.#gpuCount + this.#gpu);
  }

  bytes(functionIndex: number): number {
    return this.#offers[functionIndex]?.prefixBytes[this.prefix(functionIndex)] ?? 0;
  }

  /** The offer that the resident layers belong to. */
  offer(functionIndex: number): GpuOffer | undefined {
    return this.#offers[functionIndex];
  }

  /** The larger rung that it is growing to. */
  growing(functionIndex: number): GpuOffer | undefined {
    return this.#growing.size === 0 ? undefined : this.#growing.get(functionIndex);
  }

  get freeBytes(): number {
    return this.capacityBytes - this.usedBytes;
  }

  /** Free now, or as soon as everything idle is evicted. */
  get obtainableBytes(): number {
    return this.capacityBytes - this.usedBytes + this.#idleBytes;
  }

  /** What a function can have at the most: everything but what is pinned of others. */
  attainableBytes(functionIndex: number): number {
    if (this.#pinnedBytes === 0) return this.capacityBytes;
    const ownBytes = this.#pinned[functionIndex] === 1 ? this.bytes(functionIndex) : 0;
    return this.capacityBytes - this.#pinnedBytes + ownBytes;
  }

  /** Of a resident function. Returns whether that is new. */
  setPinned(functionIndex: number, isPinned: boolean): boolean {
    if ((this.#pinnedBytes === 0 && !isPinned) || (this.#pinned[functionIndex] === 1) === isPinned) return false;
    this.#pinned[functionIndex] = isPinned ? 1 : 0;
    this.#pinnedBytes += isPinned ? this.bytes(functionIndex) : -this.bytes(functionIndex);
    return true;
  }

  /** May be evicted from now on; as the most recently used. */
  release(functionIndex: number): void {
    const bytes = this.bytes(functionIndex);
    if (this.#idle[functionIndex] === 1 || bytes === 0) return;
    this.#idle[functionIndex] = 1;
    this.#idleBytes += bytes;
    this.#uses[functionIndex]!++;
    this.#ageAtUse[functionIndex] = this.#age;
    if (this.#copies.of(functionIndex) > 1) this.#spare.set(functionIndex, functionIndex);
    else this.#order.add(functionIndex, this.#hasSuffix(functionIndex));
    this.#joinShrinkable(functionIndex);
  }

  /** Must not be evicted from now on. */
  hold(functionIndex: number): void {
    if (this.#idle[functionIndex] !== 1) return;
    this.#idle[functionIndex] = 0;
    this.#idleBytes -= this.bytes(functionIndex);
    if (this.#spare.size === 0 || !this.#spare.delete(functionIndex)) this.#order.remove(functionIndex);
    if (this.#offers[functionIndex]!.smaller !== undefined) this.#shrinkable.remove(functionIndex);
  }

  /** Most recently used, though not held. */
  touch(functionIndex: number): void {
    if (this.#idle[functionIndex] !== 1) return;
    this.hold(functionIndex);
    this.release(functionIndex);
  }

  /**
   * Takes the room for a whole function that is held or not resident at all, shrinking and then evicting what is idle. Returns
   * false, with nothing touched, when that is not enough.
   */
  reserve(functionIndex: number, offer: GpuOffer): boolean {
    const neededBytes = wholeBytes(offer) - this.bytes(functionIndex);
    if (!this.#makeRoom(neededBytes)) return false;
    this.usedBytes += neededBytes;
    if (this.#pinned[functionIndex] === 1) this.#pinnedBytes += neededBytes;
    this.#offers[functionIndex] = offer;
    this.#setPrefix(functionIndex, wholePrefix(offer));
    return true;
  }

  /** Takes the room for a larger rung of a function that is held and there as a whole. Returns false as `reserve` does. */
  startGrowth(functionIndex: number, rung: GpuOffer): boolean {
    const neededBytes = wholeBytes(rung) - this.bytes(functionIndex);
    if (!this.#makeRoom(neededBytes)) return false;
    this.usedBytes += neededBytes;
    this.#growing.set(functionIndex, rung);
    return true;
  }

  /** The layers of the larger rung are there. */
  endGrowth(functionIndex: number): void {
    const rung = this.#growing.get(functionIndex);
    if (rung === undefined) return;
    this.#growing.delete(functionIndex);
    if (this.#pinned[functionIndex] === 1) this.#pinnedBytes += wholeBytes(rung) - this.bytes(functionIndex);
    this.#takeRung(functionIndex, rung);
  }

  /** Drops a function, held or not. */
  drop(functionIndex: number, cause: EvictionCause): void {
    this.hold(functionIndex);
    this.setPinned(functionIndex, false);
    this.#cut(functionIndex, 0, cause);
  }

  /** Takes over an offer with the same layers: other times, nothing else. */
  replaceOffer(functionIndex: number, offer: GpuOffer): void {
    const before = this.#offers[functionIndex];
    if (before === undefined) return;
    if (before.smaller !== undefined) this.#shrinkable.remove(functionIndex);
    this.#offers[functionIndex] = offer;
    if (this.#idle[functionIndex] === 1) this.#joinShrinkable(functionIndex);
  }

  /** The same for the rung that it is growing to. */
  replaceGrowth(functionIndex: number, rung: GpuOffer): void {
    if (this.#growing.has(functionIndex)) this.#growing.set(functionIndex, rung);
  }

  /** Shrinks what can be shrunk, and only then evicts. */
  #makeRoom(neededBytes: number): boolean {
    if (neededBytes > this.obtainableBytes) return false;
    while (neededBytes > this.freeBytes && this.#shrinkOne(neededBytes - this.freeBytes));
    while (neededBytes > this.freeBytes) this.#evictOne(neededBytes - this.freeBytes);
    return true;
  }

  /** The function that was used least recently goes down as far as needed, or as it can. Returns false when none can. */
  #shrinkOne(missingBytes: number): boolean {
    const functionIndex = this.#shrinkable.next();
    if (functionIndex === nobody) return false;
    const resident = this.#offers[functionIndex]!;
    const rung = this.#rungs.toShrinkTo(functionIndex, resident, missingBytes);
    if (rung === undefined || !this.#rungs.canShrink(functionIndex, rung)) this.#shrinkable.remove(functionIndex);
    // Its SLO has become tighter since it became idle: the next one, then.
    if (rung === undefined) return true;
    const bytes = wholeBytes(resident) - wholeBytes(rung);
    this.#listener.shrunk(functionIndex, rung, bytes);
    this.usedBytes -= bytes;
    this.#idleBytes -= bytes;
    this.#takeRung(functionIndex, rung);
    if (!this.#spare.has(functionIndex)) this.#order.relayer(functionIndex, this.#hasSuffix(functionIndex));
    return true;
  }

  /** Of a function that is there as a whole, and stays so. */
  #takeRung(functionIndex: number, rung: GpuOffer): void {
    this.#offers[functionIndex] = rung;
    this.#prefixes.set(functionIndex * this.#gpuCount + this.#gpu, wholePrefix(rung));
  }

  /** Of an idle function. */
  #joinShrinkable(functionIndex: number): void {
    const resident = this.#offers[functionIndex]!;
    if (resident.smaller === undefined || this.prefix(functionIndex) < wholePrefix(resident)) return;
    if (this.#rungs.canShrink(functionIndex, resident)) this.#shrinkable.add(functionIndex, false);
  }

  #evictOne(missingBytes: number): void {
    const spare = this.#takeSpare();
    if (spare !== nobody) {
      this.#evict(spare, 'migration');
      return;
    }
    const victim = this.#order.next();
    if (this.#hasSuffix(victim)) {
      this.#trim(victim, missingBytes);
      return;
    }
    if (this.#gdsf !== undefined) this.#age = this.#gdsf.valueAt(victim);
    this.#order.remove(victim);
    this.#evict(victim, 'capacity');
  }

  /** Drops as many of the last layers as are missing, but none of the hiding prefix. */
  #trim(functionIndex: number, missingBytes: number): void {
    const { prefixBytes, hidingPrefix } = this.#offers[functionIndex]!;
    const before = this.prefix(functionIndex);
    let prefix = before;
    while (prefix > hidingPrefix && prefixBytes[before]! - prefixBytes[prefix]! < missingBytes) prefix--;
    this.#idleBytes -= prefixBytes[before]! - prefixBytes[prefix]!;
    if (prefix === 0) this.#idle[functionIndex] = 0;
    if (prefix === hidingPrefix) this.#order.remove(functionIndex);
    this.#cut(functionIndex, prefix, prefix === 0 ? 'capacity' : 'trim');
    if (prefix === hidingPrefix && prefix > 0) this.#order.add(functionIndex, false);
  }

  /** An idle function that stands nowhere any more. */
  #evict(functionIndex: number, cause: EvictionCause): void {
    this.#idle[functionIndex] = 0;
    this.#idleBytes -= this.bytes(functionIndex);
    this.#cut(functionIndex, 0, cause);
  }

  #cut(functionIndex: number, prefix: number, cause: EvictionCause): void {
    const offer = this.#offers[functionIndex];
    if (offer === undefined) return;
    const bytes = offer.prefixBytes[this.prefix(functionIndex)]! - offer.prefixBytes[prefix]!;
    const growing = this.growing(functionIndex);
    const onTheirWayBytes = growing === undefined ? 0 : wholeBytes(growing) - this.bytes(functionIndex);
    this.#listener.evicted(functionIndex, prefix, bytes + onTheirWayBytes, cause);
    this.usedBytes -= bytes + onTheirWayBytes;
    if (growing !== undefined) this.#growing.delete(functionIndex);
    if (this.#pinned[functionIndex] === 1) this.#pinnedBytes -= bytes;
    this.#setPrefix(functionIndex, prefix);
    if (prefix > 0) return;
    this.#offers[functionIndex] = undefined;
    this.#uses[functionIndex] = 0;
  }

  #setPrefix(functionIndex: number, prefix: number): void {
    const whole = wholePrefix(this.#offers[functionIndex]!);
    const before = this.prefix(functionIndex);
    if (before !== whole && prefix === whole) this.#copies.change(functionIndex, 1);
    else if (before === whole && prefix !== whole) this.#copies.change(functionIndex, -1);
    this.#prefixes.set(functionIndex * this.#gpuCount + this.#gpu, prefix);
  }

  #hasSuffix(functionIndex: number): boolean {
    return this.#trims && this.prefix(functionIndex) > this.#offers[functionIndex]!.hidingPrefix;
  }

  #takeSpare(): number {
    while (this.#spare.size > 0) {
      const functionIndex = popLeastRecent(this.#spare);
      if (this.#copies.of(functionIndex) > 1) return functionIndex;
      // The other copy has gone meanwhile: this is the only one now.
      this.#order.add(functionIndex, this.#hasSuffix(functionIndex));
    }
    return nobody;
  }

  #greedyDualValue(functionIndex: number): number {
    const { ways, warmMs } = this.#offers[functionIndex]!;
    const costMs = ways[0].coldMs[0]! - warmMs;
    return this.#ageAtUse[functionIndex]! + (this.#uses[functionIndex]! * costMs) / this.bytes(functionIndex);
  }

  /**
   * Milliseconds that each of the bytes that would go next costs at the function's next use: of layers behind the hiding
   * prefix the link's time, of the prefix the link's time and the wait that it hides.
   */
  #missCostPerByte(functionIndex: number): number {
    const { ways, warmMs, prefixBytes, hidingPrefix } = this.#offers[functionIndex]!;
    const prefix = this.prefix(functionIndex);
    const left = prefix > hidingPrefix ? hidingPrefix : 0;
    const { coldMs, transfers } = ways[0];
    const linkMs = transfers[0].ms[left]! - transfers[0].ms[prefix]!;
    const waitMs = left === 0 ? coldMs[0]! - warmMs : 0;
    return (linkMs + waitMs) / (prefixBytes[prefix]! - prefixBytes[left]!);
  }
}
