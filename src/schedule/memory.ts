import { GreedyDual, popLeastRecent, RecencyOrder, recencyList, type EvictionOrder } from './eviction-order.ts';
import { OracleOrder } from './foresight.ts';
import { ValueOrder } from './heap.ts';
import { MissCost, type Pressure } from './miss-cost.ts';
import { wholeBytes, wholePrefix, type GpuOffer, type OfferSheet } from './offer.ts';
import type { Policy } from './policy.ts';
import type { Popularity } from './learnt.ts';
import type { Variants } from './plan-variants.ts';
import type { Slot, Slots } from './slots.ts';
import type { EvictionCause } from './types.ts';

/** Is told about evictions before the bytes count as free. */
export interface MemoryListener {
  evicted(slot: Slot, prefix: number, bytes: number, cause: EvictionCause): void;
  shrunk(slot: Slot, variant: GpuOffer, bytes: number): void;
  /** It is held for good from now on, or no longer. */
  pinned(functionIndex: number, by: 1 | -1): void;
  /** How many wait for it here: each will use it soon. */
  waiting(slot: Slot): number;
  /** It is gone now: what waits for it has to be loaded for. */
  cut(slot: Slot): void;
}

/** State that the memories of all GPUs share. */
export interface SharedResidency {
  readonly slots: Slots;
  /** By function. */
  readonly sheets: readonly (OfferSheet | undefined)[];
  readonly popularity: Popularity;
  readonly variants: Variants;
  readonly pressure: Pressure;
}

const nobody = -1;

/**
 * The weights on one GPU: a prefix of each function's layers, under one of its plan variants. The bytes of a load count
 * from its start, and so do those of a growth to a larger variant.
 *
 * Only idle functions are in the eviction order, so whichever is next may be evicted. A function is taken out while it
 * is held (running, loading, about to run) and comes back as the most recently used. All orders go by rows.
 */
export class GpuMemory {
  readonly capacityBytes: number;
  usedBytes = 0;
  readonly #trims: boolean;
  readonly #isPriced: boolean;
  readonly #missCost: MissCost;
  readonly #order: EvictionOrder;
  readonly #slots: Slots;
  readonly #sheets: readonly (OfferSheet | undefined)[];
  /** By row, the slots that something is there of: only as many as the memory has room for. */
  readonly #rows: (Slot | undefined)[] = [];
  readonly #freeRows: number[] = [];
  readonly #variants: Variants;
  readonly #popularity: Popularity;
  readonly #pressure: Pressure;
  readonly #listener: MemoryListener;
  #idleBytes = 0;
  readonly #pinned = new Set<Slot>();
  #pinnedBytes = 0;
  /** Idle and also resident on another GPU: first to go, and not in the order. */
  readonly #spare = recencyList();
  readonly #gdsf: GreedyDual | undefined;
  /** Idle, whole, and with an acceptable smaller variant as far as was known when it became idle. */
  readonly #shrinkable = new RecencyOrder();
  /** The larger variant whose other layers are on their way. */
  readonly #growing = new Map<Slot, GpuOffer>();

  constructor(
    gpu: number,
    capacityBytes: number,
    eviction: Policy['eviction'],
    { slots, sheets, popularity, variants, pressure }: SharedResidency,
    listener: MemoryListener,
  ) {
    this.capacityBytes = capacityBytes;
    this.#slots = slots;
    this.#sheets = sheets;
    this.#variants = variants;
    this.#popularity = popularity;
    this.#pressure = pressure;
    this.#listener = listener;
    this.#trims = eviction === 'lru-suffix' || eviction === 'value-suffix' || typeof eviction === 'object';
    this.#isPriced = eviction === 'value-suffix';
    this.#missCost = new MissCost(pressure, gpu);
    if (typeof eviction === 'object') {
      this.#order = new OracleOrder((row) => eviction.nextUseMs(this.#rows[row]!.functionIndex));
    } else if (eviction === 'value-suffix') {
      const order = new ValueOrder((row) => {
        const slot = this.#rows[row]!;
        const uses = popularity.expectedWith(slot.functionIndex, listener.waiting(slot));
        // Of what would go next: the less of what its suffix, if it has one, and of what everything costs.
        const { whole, suffix } = this.#costOf(slot);
        return uses * Math.min(whole, suffix);
      });
      popularity.onScale((factor) => order.scale(factor));
      this.#order = order;
    } else if (eviction === 'gdsf') {
      this.#gdsf = new GreedyDual((row) => this.#rows[row]!);
      this.#order = this.#gdsf.order;
    } else {
      this.#order = new RecencyOrder();
    }
  }

  /** The larger variant that it is growing to. */
  growing(slot: Slot): GpuOffer | undefined {
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
  attainableBytes(functionIndex: number): number {
    if (this.#pinnedBytes === 0) return this.capacityBytes;
    let ownBytes = 0;
    for (const slot of this.#pinned) if (slot.functionIndex === functionIndex) ownBytes = slot.bytes;
    return this.capacityBytes - this.#pinnedBytes + ownBytes;
  }

  /** Of a resident function. Returns whether that is new. */
  setPinned(slot: Slot, isPinned: boolean): boolean {
    if ((this.#pinned.size === 0 && !isPinned) || this.#pinned.has(slot) === isPinned) return false;
    if (isPinned) this.#pinned.add(slot);
    else this.#pinned.delete(slot);
    this.#listener.pinned(slot.functionIndex, isPinned ? 1 : -1);
    this.#pinnedBytes += isPinned ? slot.bytes : -slot.bytes;
    return true;
  }

  /** May be evicted from now on; as the most recently used. */
  release(slot: Slot): void {
    if (slot.isIdle) return;
    const { row, bytes } = slot;
    if (bytes === 0) return;
    slot.isIdle = true;
    this.#idleBytes += bytes;
    this.#gdsf?.use(row);
    if (this.#slots.copies(slot.functionIndex) > 1) this.#spare.set(row, row);
    else this.#order.add(row, this.#hasSuffix(slot));
    this.#joinShrinkable(slot);
  }

  /** Must not be evicted from now on. */
  hold(slot: Slot): void {
    if (!slot.isIdle) return;
    const { row, offer } = slot;
    slot.isIdle = false;
    this.#idleBytes -= slot.bytes;
    if (this.#spare.size === 0 || !this.#spare.delete(row)) this.#order.remove(row);
    if (offer!.smaller !== undefined) this.#shrinkable.remove(row);
  }

  /** Most recently used, though not held. */
  touch(slot: Slot): void {
    if (!slot.isIdle) return;
    this.hold(slot);
    this.release(slot);
  }

  /**
   * Takes the room for a whole function that is held or not resident at all. Shrinks idle functions first, then evicts
   * them. Returns false, and changes nothing, when that is not enough.
   */
  reserve(slot: Slot, offer: GpuOffer): boolean {
    const neededBytes = wholeBytes(offer) - slot.bytes;
    if (!this.#makeRoom(neededBytes)) return false;
    this.usedBytes += neededBytes;
    if (this.#pinned.size > 0 && this.#pinned.has(slot)) this.#pinnedBytes += neededBytes;
    if (slot.row < 0) {
      slot.row = this.#freeRows.pop() ?? this.#rows.length;
      if (slot.row === this.#rows.length) {
        this.#rows.push(slot);
        this.#order.grow(this.#rows.length);
      } else this.#rows[slot.row] = slot;
    }
    this.#slots.setPrefix(slot, offer, wholePrefix(offer));
    return true;
  }

  /**
   * Takes the room for a larger variant of a function that is held and there as a whole. Returns false as `reserve` does.
   */
  startGrowth(slot: Slot, variant: GpuOffer): boolean {
    const neededBytes = wholeBytes(variant) - slot.bytes;
    if (!this.#makeRoom(neededBytes)) return false;
    this.usedBytes += neededBytes;
    this.#growing.set(slot, variant);
    return true;
  }

  /** The layers of the larger variant are there. */
  endGrowth(slot: Slot): void {
    const variant = this.#growing.get(slot);
    if (variant === undefined) return;
    this.#growing.delete(slot);
    if (this.#pinned.has(slot)) this.#pinnedBytes += wholeBytes(variant) - slot.bytes;
    this.#slots.setPrefix(slot, variant, wholePrefix(variant));
  }

  /**
   * The expected cost to other functions of a load of so many bytes; 0 where that many are free. Fewer free bytes make
   * no difference: the next load would take them, so calls are not drawn to a GPU where a few bytes happen to be free.
   */
  lossMs(neededBytes: number): number {
    return neededBytes <= this.freeBytes ? 0 : this.#pressure.lossMs(neededBytes);
  }

  /** Drops a function, held or not. */
  drop(slot: Slot, cause: EvictionCause): void {
    if (slot.row < 0) return;
    this.hold(slot);
    this.setPinned(slot, false);
    this.#cut(slot, 0, cause);
  }

  /** Drops all that is there. */
  dropAll(cause: EvictionCause): void {
    const slots = this.#rows.filter((slot) => slot !== undefined);
    for (const slot of slots.sort((a, b) => a.functionIndex - b.functionIndex)) this.drop(slot, cause);
  }

  /** Takes over an offer with the same layers: other times, nothing else. */
  replaceOffer(slot: Slot, offer: GpuOffer): void {
    if (slot.offer?.smaller !== undefined) this.#shrinkable.remove(slot.row);
    slot.offer = offer;
    if (slot.isIdle) this.#joinShrinkable(slot);
  }

  /** The same for the variant that it is growing to. */
  replaceGrowth(slot: Slot, variant: GpuOffer): void {
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
    const row = this.#shrinkable.first();
    if (row === nobody) return false;
    const slot = this.#rows[row]!;
    const { functionIndex } = slot;
    const resident = slot.offer!;
    const variant = this.#variants.toShrinkTo(functionIndex, resident, missingBytes);
    if (variant === undefined || !this.#variants.canShrink(functionIndex, variant)) this.#shrinkable.remove(row);
    // Its SLO has become tighter since it became idle: try the next one.
    if (variant === undefined) return true;
    const bytes = wholeBytes(resident) - wholeBytes(variant);
    this.#listener.shrunk(slot, variant, bytes);
    this.usedBytes -= bytes;
    this.#idleBytes -= bytes;
    this.#slots.setPrefix(slot, variant, wholePrefix(variant));
    if (!this.#spare.has(row)) this.#order.relayer(row, this.#hasSuffix(slot));
    return true;
  }

  /** Of an idle function. */
  #joinShrinkable(slot: Slot): void {
    const resident = slot.offer!;
    if (resident.smaller === undefined || !slot.isWhole) return;
    if (this.#variants.canShrink(slot.functionIndex, resident)) this.#shrinkable.add(slot.row, false);
  }

  #costOf(slot: Slot): MissCost {
    const { functionIndex, offer, prefix } = slot;
    this.#missCost.look(offer!, prefix, this.#sheets[functionIndex]!.sloMs, this.#hasSuffix(slot));
    return this.#missCost;
  }

  /** Returns the expected cost: nothing for a second copy. */
  #evictOne(missingBytes: number): number {
    const spare = this.#takeSpare();
    if (spare !== nobody) {
      this.#evict(this.#rows[spare]!, 'migration');
      return 0;
    }
    const row = this.#order.first();
    const victim = this.#rows[row]!;
    const uses = Math.min(1, this.#popularity.share(victim.functionIndex));
    const hasSuffix = this.#hasSuffix(victim);
    const { whole, suffix } = this.#costOf(victim);
    const lossPerByte = Math.min(whole, suffix) * uses;
    const beforeBytes = this.usedBytes;
    // A start that lacks any layer waits for the link, so while links are short whole functions stay longer.
    if (hasSuffix && (!this.#isPriced || suffix <= whole)) {
      this.#trim(victim, missingBytes);
    } else {
      this.#gdsf?.evicts(row);
      this.#order.remove(row);
      this.#evict(victim, 'capacity');
    }
    return lossPerByte * (beforeBytes - this.usedBytes);
  }

  /** Drops as many of the last layers as are missing, but none of the hiding prefix. */
  #trim(slot: Slot, missingBytes: number): void {
    const { row } = slot;
    const { prefixBytes, overlapPrefix } = slot.offer!;
    const beforeBytes = prefixBytes[slot.prefix]!;
    let { prefix } = slot;
    while (prefix > overlapPrefix && beforeBytes - prefixBytes[prefix]! < missingBytes) prefix--;
    this.#idleBytes -= beforeBytes - prefixBytes[prefix]!;
    if (prefix === 0) slot.isIdle = false;
    if (prefix === overlapPrefix) this.#order.remove(row);
    this.#cut(slot, prefix, prefix === 0 ? 'capacity' : 'trim');
    if (prefix === overlapPrefix && prefix > 0) this.#order.add(row, false);
  }

  /** An idle function that stands nowhere any more. */
  #evict(slot: Slot, cause: EvictionCause): void {
    slot.isIdle = false;
    this.#idleBytes -= slot.bytes;
    this.#cut(slot, 0, cause);
  }

  #cut(slot: Slot, prefix: number, cause: EvictionCause): void {
    const offer = slot.offer!;
    const beforeBytes = offer.prefixBytes[slot.prefix]!;
    const bytes = beforeBytes - offer.prefixBytes[prefix]!;
    const growing = this.growing(slot);
    const onTheirWayBytes = growing === undefined ? 0 : wholeBytes(growing) - beforeBytes;
    this.#listener.evicted(slot, prefix, bytes + onTheirWayBytes, cause);
    this.usedBytes -= bytes + onTheirWayBytes;
    if (growing !== undefined) this.#growing.delete(slot);
    if (this.#pinned.size > 0 && this.#pinned.has(slot)) this.#pinnedBytes -= bytes;
    if (prefix > 0) this.#slots.setPrefix(slot, offer, prefix);
    else {
      this.#slots.clear(slot);
      this.#gdsf?.forget(slot.row);
      this.#rows[slot.row] = undefined;
      this.#freeRows.push(slot.row);
      slot.row = nobody;
    }
    this.#listener.cut(slot);
    if (prefix === 0) this.#slots.emptied(slot);
  }

  #hasSuffix({ prefix, offer }: Slot): boolean {
    return this.#trims && prefix > offer!.overlapPrefix;
  }

  #takeSpare(): number {
    while (this.#spare.size > 0) {
      const row = popLeastRecent(this.#spare);
      const slot = this.#rows[row]!;
      if (this.#slots.copies(slot.functionIndex) > 1) return row;
      // The other copy has gone meanwhile: this is the only one now.
      this.#order.add(row, this.#hasSuffix(slot));
    }
    return nobody;
  }
}
