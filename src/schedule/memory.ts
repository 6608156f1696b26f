import type { GpuId } from './ids.ts';
import { evictionOrder, recencyList, RecencyOrder, type EvictionFacts, type EvictionOrder } from './eviction-order.ts';
import type { ServedFunction } from './function.ts';
import { MissCost, type Pressure } from './miss-cost.ts';
import { wholeBytes, wholePrefix, type GpuOffer } from './offer.ts';
import type { Policy } from './policy.ts';
import type { Popularity } from './learnt.ts';
import type { Variants } from './plan-variants.ts';
import type { Resident } from './residents.ts';
import type { EvictionCause } from './types.ts';

/** Is told about evictions before the bytes count as free. */
export interface MemoryListener {
  evicted(slot: Resident, prefix: number, bytes: number, cause: EvictionCause): void;
  shrunk(slot: Resident, variant: GpuOffer, bytes: number): void;
  /** It is held for good from now on, or no longer. */
  pinned(fn: ServedFunction, by: 1 | -1): void;
  /** How many invocations wait for it there. */
  waiting(slot: Resident): number;
  /** It is gone now: what waits for it has to be loaded for. */
  cut(slot: Resident): void;
}

/** State that the memories of all GPUs share. */
export interface SharedResidency {
  readonly slots: { emptied(slot: Resident): void };
  readonly popularity: Popularity;
  readonly variants: Variants;
  readonly pressure: Pressure;
  readonly host: { restoreMs(fn: ServedFunction): number } | undefined;
}

/**
 * The weights on one GPU: a prefix of each function's layers, under one of its plan variants. The bytes of a load count
 * from its start, and so do those of a growth to a larger variant.
 *
 * Only idle functions are in the order of eviction, so whichever is next may be evicted. A function is taken out while it
 * is held (running, loading, about to run) and comes back as the most recently used.
 */
export class GpuMemory implements EvictionFacts {
  readonly capacityBytes: number;
  usedBytes = 0;
  readonly #missCost: MissCost;
  readonly #order: EvictionOrder;
  readonly #slots: SharedResidency['slots'];
  /** By slot number: only as many as the memory has room for. */
  readonly #resident: (Resident | undefined)[] = [];
  readonly #freeNumbers: number[] = [];
  readonly #variants: Variants;
  readonly popularity: Popularity;
  readonly #pressure: Pressure;
  readonly #host: SharedResidency['host'];
  readonly #listener: MemoryListener;
  #idleBytes = 0;
  readonly #pinned = new Set<Resident>();
  #pinnedBytes = 0;
  /** Idle and also resident on another GPU: first to go, and not in the order. */
  readonly #spare = recencyList();
  /** Idle, whole, and with an acceptable smaller variant as far as was known when it became idle. */
  readonly #shrinkable = new RecencyOrder(false);
  /** The larger variant whose other layers are on their way. */
  readonly #growing = new Map<Resident, GpuOffer>();

  constructor(
    gpu: GpuId,
    capacityBytes: number,
    eviction: Policy['eviction'],
    { slots, popularity, variants, pressure, host }: SharedResidency,
    listener: MemoryListener,
  ) {
    this.capacityBytes = capacityBytes;
    this.#slots = slots;
    this.#variants = variants;
    this.popularity = popularity;
    this.#pressure = pressure;
    this.#host = host;
    this.#listener = listener;
    this.#missCost = new MissCost(pressure, gpu);
    this.#order = evictionOrder(eviction, this);
  }

  /** The larger variant that it is growing to. */
  growing(slot: Resident): GpuOffer | undefined {
    return this.#growing.size === 0 ? undefined : this.#growing.get(slot);
  }

  get freeBytes(): number {
    return this.capacityBytes - this.usedBytes;
  }

  /** Free now, or as soon as everything idle is evicted. */
  get obtainableBytes(): number {
    return this.capacityBytes - this.usedBytes + this.#idleBytes;
  }

  /** The most that a function can have: everything but the bytes pinned by others. */
  attainableBytes(fn: ServedFunction): number {
    if (this.#pinnedBytes === 0) return this.capacityBytes;
    let ownBytes = 0;
    for (const slot of this.#pinned) if (slot.fn === fn) ownBytes = slot.bytes;
    return this.capacityBytes - this.#pinnedBytes + ownBytes;
  }

  /** Of a resident function. Returns whether that is new. */
  setPinned(slot: Resident, isPinned: boolean): boolean {
    if ((this.#pinned.size === 0 && !isPinned) || this.#pinned.has(slot) === isPinned) return false;
    if (isPinned) this.#pinned.add(slot);
    else this.#pinned.delete(slot);
    this.#listener.pinned(slot.fn, isPinned ? 1 : -1);
    this.#pinnedBytes += isPinned ? slot.bytes : -slot.bytes;
    return true;
  }

  /** May be evicted from now on; as the most recently used. */
  release(slot: Resident): void {
    if (slot.isIdle) return;
    const { bytes } = slot;
    if (bytes === 0) return;
    slot.isIdle = true;
    this.#idleBytes += bytes;
    this.#order.used?.(slot);
    if (slot.fn.copies > 1) this.#spare.set(slot, slot);
    else this.#order.add(slot, this.#hasSuffix(slot));
    this.#joinShrinkable(slot);
  }

  /** Must not be evicted from now on. */
  hold(slot: Resident): void {
    if (!slot.isIdle) return;
    slot.isIdle = false;
    this.#idleBytes -= slot.bytes;
    if (this.#spare.size === 0 || !this.#spare.delete(slot)) this.#order.remove(slot);
    if (slot.offer!.smaller !== undefined) this.#shrinkable.remove(slot);
  }

  /** Most recently used, though not held. */
  touch(slot: Resident): void {
    if (!slot.isIdle) return;
    this.hold(slot);
    this.release(slot);
  }

  /**
   * Takes the room for a whole function that is held or not resident at all. Shrinks idle functions first, then evicts
   * them. Returns false, and changes nothing, when that is not enough.
   */
  reserve(slot: Resident, offer: GpuOffer): boolean {
    const neededBytes = wholeBytes(offer) - slot.bytes;
    if (!this.#makeRoom(neededBytes)) return false;
    this.usedBytes += neededBytes;
    if (this.#pinned.size > 0 && this.#pinned.has(slot)) this.#pinnedBytes += neededBytes;
    if (slot.number < 0) {
      slot.number = this.#freeNumbers.pop() ?? this.#resident.length;
      if (slot.number === this.#resident.length) this.#resident.push(slot);
      else this.#resident[slot.number] = slot;
    }
    slot.setPrefix(offer, wholePrefix(offer));
    return true;
  }

  /**
   * Takes the room for a larger variant of a function that is held and there as a whole. Returns false as `reserve` does.
   */
  startGrowth(slot: Resident, variant: GpuOffer): boolean {
    const neededBytes = wholeBytes(variant) - slot.bytes;
    if (!this.#makeRoom(neededBytes)) return false;
    this.usedBytes += neededBytes;
    this.#growing.set(slot, variant);
    return true;
  }

  /** The layers of the larger variant are there. */
  endGrowth(slot: Resident): void {
    const variant = this.#growing.get(slot);
    if (variant === undefined) return;
    this.#growing.delete(slot);
    if (this.#pinned.has(slot)) this.#pinnedBytes += wholeBytes(variant) - slot.bytes;
    slot.setPrefix(variant, wholePrefix(variant));
  }

  /**
   * The expected cost to other functions of a load of so many bytes; 0 where that many are free. Fewer free bytes make
   * no difference: the next load would take them, so calls are not drawn to a GPU where a few bytes happen to be free.
   */
  lossMs(neededBytes: number): number {
    return neededBytes <= this.freeBytes ? 0 : this.#pressure.lossMs(neededBytes);
  }

  /** Drops a function, held or not. */
  drop(slot: Resident, cause: EvictionCause): void {
    if (slot.number < 0) return;
    this.hold(slot);
    this.setPinned(slot, false);
    this.#cut(slot, 0, cause);
  }

  /** Drops all that is there. */
  dropAll(cause: EvictionCause): void {
    const slots = this.#resident.filter((slot) => slot !== undefined);
    for (const slot of slots.sort((a, b) => a.fn.number - b.fn.number)) this.drop(slot, cause);
  }

  /** It is worth more or less than before, since there is no copy of it in host memory, or one again. */
  reprice(slot: Resident): void {
    if (slot.isIdle && !this.#spare.has(slot)) this.#order.relayer(slot, this.#hasSuffix(slot));
  }

  /** Takes over an offer with the same layers: other times, nothing else. */
  replaceOffer(slot: Resident, offer: GpuOffer): void {
    if (slot.offer?.smaller !== undefined) this.#shrinkable.remove(slot);
    slot.offer = offer;
    if (slot.isIdle) this.#joinShrinkable(slot);
  }

  /** The same for the variant that it is growing to. */
  replaceGrowth(slot: Resident, variant: GpuOffer): void {
    if (this.#growing.has(slot)) this.#growing.set(slot, variant);
  }

  /** Shrinks functions while any can be shrunk, and only then evicts. */
  #makeRoom(neededBytes: number): boolean {
    if (neededBytes > this.obtainableBytes) return false;
    while (neededBytes > this.freeBytes && this.#shrinkOne(neededBytes - this.freeBytes));
    let lostMs = 0;
    while (neededBytes > this.freeBytes) lostMs += this.#evictOne(neededBytes - this.freeBytes);
    this.#pressure.lost(lostMs, Math.max(0, neededBytes));
    return true;
  }

  /**
   * Shrinks the least recently used function as far as needed, or as far as it can. Returns false when none can shrink.
   */
  #shrinkOne(missingBytes: number): boolean {
    const slot = this.#shrinkable.first();
    if (slot === undefined) return false;
    const resident = slot.offer!;
    const variant = this.#variants.toShrinkTo(slot.fn, resident, missingBytes);
    if (variant === undefined || !this.#variants.canShrink(slot.fn, variant)) this.#shrinkable.remove(slot);
    // Its SLO has become tighter since it became idle: try the next one.
    if (variant === undefined) return true;
    const bytes = wholeBytes(resident) - wholeBytes(variant);
    this.#listener.shrunk(slot, variant, bytes);
    this.usedBytes -= bytes;
    this.#idleBytes -= bytes;
    slot.setPrefix(variant, wholePrefix(variant));
    if (!this.#spare.has(slot)) this.#order.relayer(slot, this.#hasSuffix(slot));
    return true;
  }

  /** Of an idle function. */
  #joinShrinkable(slot: Resident): void {
    const resident = slot.offer!;
    if (resident.smaller === undefined || !slot.isWhole) return;
    if (this.#variants.canShrink(slot.fn, resident)) this.#shrinkable.add(slot, false);
  }

  waiting(slot: Resident): number {
    return this.#listener.waiting(slot);
  }

  costPerByte(slot: Resident): number {
    // Of what would go next: the less of what its suffix, if it has one, and of what everything costs.
    const { whole, suffix } = this.#costOf(slot);
    return Math.min(whole, suffix);
  }

  #costOf(slot: Resident): MissCost {
    const { fn, offer, prefix } = slot;
    const restoreMs = this.#host !== undefined && slot.isWhole ? this.#host.restoreMs(fn) : 0;
    this.#missCost.look(offer!, prefix, fn.sheet.sloMs, this.#hasSuffix(slot), restoreMs);
    return this.#missCost;
  }

  /** Returns the expected cost: nothing for a second copy. */
  #evictOne(missingBytes: number): number {
    const spare = this.#takeSpare();
    if (spare !== undefined) {
      this.#evict(spare, 'migration');
      return 0;
    }
    const victim = this.#order.first()!;
    const uses = Math.min(1, this.popularity.share(victim.fn.number));
    const { whole, suffix } = this.#costOf(victim);
    const lossPerByte = Math.min(whole, suffix) * uses;
    const beforeBytes = this.usedBytes;
    // A start that lacks any layer waits for the link, so while links are short whole functions stay longer.
    if (this.#hasSuffix(victim) && (!this.#order.isPriced || suffix <= whole)) {
      this.#trim(victim, missingBytes);
    } else {
      this.#order.evicts?.(victim);
      this.#order.remove(victim);
      this.#evict(victim, 'capacity');
    }
    return lossPerByte * (beforeBytes - this.usedBytes);
  }

  /** Drops as many of the last layers as are missing, but none of the hiding prefix. */
  #trim(slot: Resident, missingBytes: number): void {
    const { prefixBytes, overlapPrefix } = slot.offer!;
    const beforeBytes = prefixBytes[slot.prefix]!;
    let { prefix } = slot;
    while (prefix > overlapPrefix && beforeBytes - prefixBytes[prefix]! < missingBytes) prefix--;
    this.#idleBytes -= beforeBytes - prefixBytes[prefix]!;
    if (prefix === 0) slot.isIdle = false;
    if (prefix === overlapPrefix) this.#order.remove(slot);
    this.#cut(slot, prefix, prefix === 0 ? 'capacity' : 'trim');
    if (prefix === overlapPrefix && prefix > 0) this.#order.add(slot, false);
  }

  /** An idle function that stands nowhere any more. */
  #evict(slot: Resident, cause: EvictionCause): void {
    slot.isIdle = false;
    this.#idleBytes -= slot.bytes;
    this.#cut(slot, 0, cause);
  }

  #cut(slot: Resident, prefix: number, cause: EvictionCause): void {
    const offer = slot.offer!;
    const beforeBytes = offer.prefixBytes[slot.prefix]!;
    const bytes = beforeBytes - offer.prefixBytes[prefix]!;
    const growing = this.growing(slot);
    const onTheirWayBytes = growing === undefined ? 0 : wholeBytes(growing) - beforeBytes;
    this.#listener.evicted(slot, prefix, bytes + onTheirWayBytes, cause);
    this.usedBytes -= bytes + onTheirWayBytes;
    if (growing !== undefined) this.#growing.delete(slot);
    if (this.#pinned.size > 0 && this.#pinned.has(slot)) this.#pinnedBytes -= bytes;
    if (prefix > 0) slot.setPrefix(offer, prefix);
    else {
      slot.clear();
      this.#order.forget?.(slot);
      this.#resident[slot.number] = undefined;
      this.#freeNumbers.push(slot.number);
      slot.number = -1;
    }
    this.#listener.cut(slot);
    if (prefix === 0) this.#slots.emptied(slot);
  }

  #hasSuffix({ prefix, offer }: Resident): boolean {
    return this.#order.trims && prefix > offer!.overlapPrefix;
  }

  #takeSpare(): Resident | undefined {
    while (this.#spare.size > 0) {
      const slot = this.#spare.pop()!;
      if (slot.fn.copies > 1) return slot;
      // The other copy has gone meanwhile: this is the only one now.
      this.#order.add(slot, this.#hasSuffix(slot));
    }
    return undefined;
  }
}
