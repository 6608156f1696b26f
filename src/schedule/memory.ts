import type { GpuId } from './ids.ts';
import { evictionOrder, type EvictionFacts, type EvictionOrder } from './eviction-order.ts';
import type { ServedFunction } from './function.ts';
import { Heap, type Numbered } from './heap.ts';
import { MissCost, type Pressure } from './miss-cost.ts';
import { sameBytes, trimmedPrefix, variantNamed, wholeBytes, wholePrefix, type GpuOffer } from './offer.ts';
import type { Policy } from './policy.ts';
import type { Popularity } from './learnt.ts';
import type { Variants } from './plan-variants.ts';
import { Base, type Resident } from './residents.ts';
import type { EvictionCause } from './types.ts';

/** Is told about evictions before the bytes count as free. */
export interface MemoryListener {
  evicted(slot: Resident, prefix: number, bytes: number, cause: EvictionCause): void;
  shrunk(slot: Resident, variant: GpuOffer, bytes: number): void;
  /** It is held for good from now on, or no longer. */
  pinned(fn: ServedFunction, by: 1 | -1): void;
  /** It is gone now: what waits for it has to be loaded for. */
  cut(slot: Resident): void;
}

/** State that the memories of all GPUs share. */
export interface SharedResidency {
  readonly slots: { emptied(slot: Resident): void };
  readonly bases: { at(offer: GpuOffer | null | undefined, gpu: Numbered): Base | undefined };
  readonly popularity: Popularity;
  readonly variants: Variants;
  readonly pressure: Pressure;
  readonly host: { restoreMs(fn: ServedFunction): number } | undefined;
}

/**
 * The weights on one GPU: a prefix of each function's layers, under one of its plan variants. The bytes of a load count
 * from its start, and so do those of a growth to a larger variant. Layers that functions share are a resident of their
 * own (`Base`), which can go once no own layers of its users are there and none of them uses it.
 *
 * Only idle functions are in the order of eviction, so whichever is next may be evicted. A function is taken out while it
 * is held (running, loading, about to run) and comes back as the most recently used.
 */
export class GpuMemory implements EvictionFacts {
  readonly capacityBytes: number;
  usedBytes = NaN;
  readonly #missCost: MissCost;
  readonly #order: EvictionOrder;
  readonly #gpu: Numbered;
  readonly #slots: SharedResidency['slots'];
  readonly #bases: SharedResidency['bases'];
  /** By slot number: only as many as the memory has room for. */
  readonly #resident: (Resident | undefined)[] = [];
  readonly #freeNumbers: number[] = [];
  readonly #variants: Variants;
  readonly popularity: Popularity;
  readonly #pressure: Pressure;
  readonly #host: SharedResidency['host'];
  readonly #listener: MemoryListener;
  #idleBytes = NaN;
  readonly #pinned = new Set<Resident>();
  #pinnedBytes = NaN;
  /** Idle and also resident on another GPU: first to go, and not in the order. By when they came. */
  readonly #spare = new Heap<Resident>();
  /** Idle, whole, and with an acceptable smaller variant as far as was known when it became idle. By when they came. */
  readonly #shrinkable = new Heap<Resident>();
  #came = 0;

  constructor(
    gpu: GpuId,
    capacityBytes: number,
    eviction: Policy['eviction'],
    { slots, bases, popularity, variants, pressure, host }: SharedResidency,
    listener: MemoryListener,
  ) {
    this.capacityBytes = capacityBytes;
    // Not where they are declared: see `LinkLanes`.
    this.usedBytes = 0;
    this.#idleBytes = 0;
    this.#pinnedBytes = 0;
    this.#gpu = { number: gpu };
    this.#slots = slots;
    this.#bases = bases;
    this.#variants = variants;
    this.popularity = popularity;
    this.#pressure = pressure;
    this.#host = host;
    this.#listener = listener;
    this.#missCost = new MissCost(pressure, gpu);
    this.#order = evictionOrder(eviction, this);
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
    const offer = fn.offerFor(this.#gpu);
    const base = this.#bases.at(offer, this.#gpu);
    let ownBytes = base === undefined ? 0 : Math.min(base.pinnedBytes, offer!.prefixBytes[offer!.shared!.layers]!);
    for (const slot of this.#pinned) if (slot.fn === fn) ownBytes += slot.bytes;
    return this.capacityBytes - this.#pinnedBytes + ownBytes;
  }

  /** Pins or unpins a resident function. Returns whether that is new. */
  setPinned(slot: Resident, isPinned: boolean): boolean {
    if (slot.isPinned === isPinned) return false;
    slot.isPinned = isPinned;
    const by = isPinned ? 1 : -1;
    if (isPinned) this.#pinned.add(slot);
    else this.#pinned.delete(slot);
    this.#listener.pinned(slot.fn, by);
    this.#pinnedBytes += by * slot.bytes;
    if (slot.base !== undefined) this.#pinBase(slot.base);
    return true;
  }

  /** Counts anew what is pinned of a base. */
  #pinBase(base: Base): void {
    let layers = 0;
    for (const slot of this.#pinned) if (slot.base === base) layers = Math.max(layers, slot.low);
    const bytes = base.offer?.prefixBytes[Math.min(layers, base.prefix)] ?? 0;
    this.#pinnedBytes += bytes - base.pinnedBytes;
    base.pinnedBytes = bytes;
  }

  /** May be evicted from now on; as the most recently used. */
  release(slot: Resident): void {
    if (slot.usesBase) this.#leaveBase(slot);
    if (slot.isIdle) return;
    const { bytes } = slot;
    if (bytes === 0) return;
    slot.isIdle = true;
    this.#idleBytes += bytes;
    this.#order.used?.(slot);
    if (!isCarrying(slot)) this.#enqueue(slot);
    this.#joinShrinkable(slot);
  }

  #enqueue(slot: Resident): void {
    if (slot.fn.copies > 1) this.#spare.add(slot, this.#came++);
    else this.#order.add(slot, this.#hasSuffix(slot));
  }

  /** Its base stays from now on. */
  #useBase(slot: Resident, base: Base): void {
    slot.usesBase = true;
    base.active.add(slot);
    this.hold(base);
  }

  /** Its base may go as far as it is concerned, once no own layers of users are there. */
  #leaveBase(slot: Resident): void {
    const base = slot.base!;
    slot.usesBase = false;
    base.active.delete(slot);
    if (base.active.size === 0) this.release(base);
    this.#slots.emptied(slot);
  }

  /** Must not be evicted from now on. */
  hold(slot: Resident): void {
    if (slot.base !== undefined && !slot.usesBase) this.#useBase(slot, slot.base);
    if (!slot.isIdle) return;
    slot.isIdle = false;
    this.#idleBytes -= slot.bytes;
    if (this.#spare.has(slot)) this.#spare.remove(slot);
    else if (!isCarrying(slot)) this.#order.remove(slot);
    if (slot.offer!.smaller !== undefined) this.#shrinkable.remove(slot);
  }

  /** Most recently used, though not held. */
  touch(slot: Resident): void {
    if (slot.isTwin && slot.base!.isIdle) this.touch(slot.base!);
    if (!slot.isIdle) return;
    this.hold(slot);
    this.release(slot);
  }

  /**
   * Takes the room for a whole function that is held or not resident at all. Shrinks idle functions first, then evicts
   * them. Returns false, and changes nothing, when that is not enough.
   */
  reserve(slot: Resident, offer: GpuOffer): boolean {
    const { base } = slot;
    const neededBytes = wholeBytes(offer) - (base === undefined ? slot.bytes : offer.prefixBytes[slot.prefix]!);
    if (!this.#makeRoom(neededBytes, slot)) return false;
    this.usedBytes += neededBytes;
    const { isPinned } = slot;
    if (base !== undefined) {
      const beforeBytes = base.bytes;
      if (base.prefix < slot.low) this.#extend(base, offer, slot.low);
      if (isPinned) this.#pinnedBytes += neededBytes - (base.bytes - beforeBytes);
      if (this.#pinned.size > 0) this.#pinBase(base);
      if (slot.isTwin) return true;
    } else if (isPinned) this.#pinnedBytes += neededBytes;
    this.#enter(slot);
    slot.setPrefix(offer, wholePrefix(offer));
    return true;
  }

  #enter(slot: Resident): void {
    if (slot.isThere) return;
    slot.isThere = true;
    slot.number = this.#freeNumbers.pop() ?? this.#resident.length;
    if (slot.number === this.#resident.length) this.#resident.push(slot);
    else this.#resident[slot.number] = slot;
  }

  /** A base has so many layers from now on. It is in use. */
  #extend(base: Base, offer: GpuOffer, prefix: number): void {
    this.#enter(base);
    base.extend(offer, prefix);
  }

  /**
   * A function shares its layers with others by this offer from now on; nothing has to be loaded for that where the
   * layers are the same, and the base has none of those that the function has. Returns whether it is so now.
   */
  share(slot: Resident, offer: GpuOffer | undefined): boolean {
    const base = this.#bases.at(offer, this.#gpu);
    if (slot.base === base && slot.low === (offer?.shared?.layers ?? 0)) {
      slot.link(base, offer);
      return true;
    }
    if (!slot.hasOwn) {
      if (slot.usesBase) return false;
      slot.link(base, offer);
      return true;
    }
    const resident = slot.offer!;
    if (base === undefined || base.prefix !== slot.low || slot.growingTo !== undefined) return false;
    const variant = variantNamed(offer!, resident.plan);
    if (!sameBytes(resident, variant) || offer!.shared!.layers <= slot.low) return false;
    if (slot.base !== undefined && slot.base !== base) return false;
    this.setPinned(slot, false);
    this.hold(slot);
    const { prefix } = slot;
    const { layers } = offer!.shared!;
    const wasInUse = slot.usesBase;
    slot.clear();
    slot.link(base, offer);
    if (!wasInUse) this.#useBase(slot, base);
    this.#extend(base, offer!, Math.min(prefix, layers));
    if (prefix > layers) slot.setPrefix(variant, prefix);
    else this.#leave(slot);
    return true;
  }

  /**
   * Takes the room for a larger variant of a function that is held and there as a whole. Returns false as `reserve` does.
   */
  startGrowth(slot: Resident, variant: GpuOffer): boolean {
    const neededBytes = wholeBytes(variant) - wholeBytes(slot.offer!);
    if (!this.#makeRoom(neededBytes, slot)) return false;
    this.usedBytes += neededBytes;
    slot.growingTo = variant;
    return true;
  }

  /** The layers of the larger variant are there. */
  endGrowth(slot: Resident): void {
    const variant = slot.growingTo;
    if (variant === undefined) return;
    slot.growingTo = undefined;
    if (slot.isPinned) this.#pinnedBytes += wholeBytes(variant) - wholeBytes(slot.offer!);
    slot.setPrefix(variant, wholePrefix(variant));
  }

  /**
   * The expected cost to other functions of a load of so many bytes that finds nothing; 0 where that many are free. Fewer
   * free bytes make no difference: the next load would take them, so calls are not drawn to a GPU where a few bytes happen
   * to be free.
   */
  lossMs(neededBytes: number): number {
    return neededBytes <= this.freeBytes ? 0 : this.#pressure.lossMs(neededBytes);
  }

  /** Drops a function, held or not. */
  drop(slot: Resident, cause: EvictionCause): void {
    if (slot.isThere) {
      this.hold(slot);
      this.setPinned(slot, false);
      this.#cut(slot, slot.low, cause);
    } else if (slot.usesBase) this.setPinned(slot, false);
    if (!slot.usesBase) return;
    const base = slot.base!;
    this.#leaveBase(slot);
    if (!base.family.users.has(slot.fn)) this.tidy(base);
  }

  /** A user has left: layers that none of the others shares go. */
  tidy(base: Base): void {
    const layers = Math.max(base.layersInUse, base.family.layersOn(base.gpu));
    this.dropBase(base, [], 'unload', layers);
  }

  /** Drops what users share, and what they have of their own with it; or only what is behind so many layers. */
  dropBase(base: Base, users: readonly Resident[], cause: EvictionCause, layers = 0): void {
    if (base.prefix <= layers) return;
    if (layers === 0) for (const user of users) this.drop(user, cause);
    // The last user may have left with that.
    if (base.prefix <= layers) return;
    const wasIdle = base.isIdle;
    this.hold(base);
    this.#cut(base, layers, cause);
    if (wasIdle) this.release(base);
  }

  /** Drops all that is there. */
  dropAll(cause: EvictionCause): void {
    const slots = this.#resident.filter((slot) => slot !== undefined).sort((a, b) => a.fn.number - b.fn.number);
    for (const slot of slots) if (!(slot instanceof Base)) this.drop(slot, cause);
    for (const base of slots) if (base instanceof Base) this.dropBase(base, [...base.active], cause);
  }

  /** It is worth more or less than before, since there is no copy of it in host memory, or one again. */
  reprice(slot: Resident): void {
    if (slot.base !== undefined) this.reprice(slot.base);
    if (slot.isIdle && !isCarrying(slot) && !this.#spare.has(slot)) this.#order.relayer(slot, this.#hasSuffix(slot));
  }

  /** Takes over an offer with the same layers: other times, nothing else. */
  replaceOffer(slot: Resident, offer: GpuOffer): void {
    if (slot.offer?.smaller !== undefined) this.#shrinkable.remove(slot);
    slot.replaceOffer(offer);
    if (slot.isIdle) this.#joinShrinkable(slot);
  }

  /**
   * Bases that are in use may have layers that none of those shares that use them. Drops them, with what idle functions
   * have above them, if that is enough, or else nothing.
   */
  #cutTails(neededBytes: number): boolean {
    const needed = new Map<Base, number>();
    for (const slot of this.#resident)
      if (slot instanceof Base && !slot.isIdle && slot.layersInUse < slot.prefix) needed.set(slot, slot.layersInUse);
    let bytes = 0;
    for (const [base, layers] of needed) bytes += base.bytes - base.offer!.prefixBytes[layers]!;
    if (neededBytes > this.obtainableBytes + bytes) return false;
    while (neededBytes > this.freeBytes && this.#shrinkOne(neededBytes - this.freeBytes));
    for (const slot of this.#resident)
      if (slot?.base !== undefined && slot.low > (needed.get(slot.base) ?? Infinity)) this.drop(slot, 'capacity');
    for (const [base, layers] of needed) this.dropBase(base, [], 'trim', layers);
    return true;
  }

  /**
   * Has so many bytes free, or as many as there can be: shrinks functions while any can be shrunk, and only then evicts.
   * Returns the expected cost.
   */
  free(wantedBytes: number): number {
    const neededBytes = Math.min(wantedBytes, this.obtainableBytes);
    while (neededBytes > this.freeBytes && this.#shrinkOne(neededBytes - this.freeBytes));
    let lostMs = 0;
    while (neededBytes > this.freeBytes) lostMs += this.#evictOne(neededBytes - this.freeBytes);
    return lostMs;
  }

  /** Takes room from others, or changes nothing and returns false. @param slot that it is for */
  #makeRoom(neededBytes: number, slot: Resident): boolean {
    if (neededBytes > this.obtainableBytes && !this.#cutTails(neededBytes)) return false;
    const lostMs = this.free(neededBytes);
    // What a load of the last layers evicts costs less: suffixes of others.
    if (!slot.hasOwn) this.#pressure.lost(lostMs, Math.max(0, neededBytes));
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

  /** Adds an idle function to those that can shrink. */
  #joinShrinkable(slot: Resident): void {
    const resident = slot.offer!;
    if (resident.smaller === undefined || !slot.isWhole) return;
    if (this.#variants.canShrink(slot.fn, resident)) this.#shrinkable.add(slot, this.#came++);
  }

  valuePerByte(slot: Resident): number {
    const { popularity } = this;
    let uses = 0;
    if (!(slot instanceof Base)) uses = popularity.expected(slot.fn.number);
    else for (const { number } of slot.family.users) uses += popularity.expected(number);
    const { whole, suffix } = this.#costOf(slot);
    // Of what would go next: the less of what its suffix, if it has one, and of what everything costs.
    return uses * Math.min(whole, suffix);
  }

  #costOf(slot: Resident): MissCost {
    const { fn, offer, prefix } = slot;
    let restoreMs = 0;
    if (this.#host !== undefined && slot.isWhole) {
      if (!(slot instanceof Base)) restoreMs = this.#host.restoreMs(fn);
      // One of them stands for all: the disk is read once.
      else for (const user of slot.family.users) if ((restoreMs = this.#host.restoreMs(user)) > 0) break;
    }
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
    let uses = 0;
    if (!(victim instanceof Base)) uses = this.popularity.share(victim.fn.number);
    else for (const { number } of victim.family.users) uses += this.popularity.share(number);
    const { whole, suffix } = this.#costOf(victim);
    const lossPerByte = Math.min(whole, suffix) * Math.min(1, uses);
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
    const { prefixBytes } = slot.offer!;
    const { low } = slot;
    const leastPrefix = trimmedPrefix(slot.offer!);
    const beforeBytes = prefixBytes[slot.prefix]!;
    let { prefix } = slot;
    while (prefix > leastPrefix && beforeBytes - prefixBytes[prefix]! < missingBytes) prefix--;
    this.#idleBytes -= beforeBytes - prefixBytes[prefix]!;
    if (prefix === low) slot.isIdle = false;
    if (prefix === leastPrefix) this.#order.remove(slot);
    this.#cut(slot, prefix, prefix === 0 ? 'capacity' : 'trim');
    if (prefix === leastPrefix && prefix > low) this.#order.add(slot, false);
  }

  /** An idle function that stands nowhere any more. */
  #evict(slot: Resident, cause: EvictionCause): void {
    slot.isIdle = false;
    this.#idleBytes -= slot.bytes;
    this.#cut(slot, slot.low, cause);
  }

  #cut(slot: Resident, prefix: number, cause: EvictionCause): void {
    const offer = slot.offer!;
    const beforeBytes = offer.prefixBytes[slot.prefix]!;
    const bytes = beforeBytes - offer.prefixBytes[prefix]!;
    const growing = slot.growingTo;
    const onTheirWayBytes = growing === undefined ? 0 : wholeBytes(growing) - beforeBytes;
    this.#listener.evicted(slot, prefix, bytes + onTheirWayBytes, cause);
    this.usedBytes -= bytes + onTheirWayBytes;
    slot.growingTo = undefined;
    if (slot.isPinned) this.#pinnedBytes -= bytes;
    const isGone = prefix === slot.low;
    if (isGone) {
      slot.clear();
      this.#leave(slot);
    } else slot.setPrefix(offer, prefix);
    if (slot instanceof Base) this.#pinBase(slot);
    this.#listener.cut(slot);
    if (!isGone) return;
    this.#slots.emptied(slot);
    const { base } = slot;
    if (base?.isIdle === true && base.above === 0) this.#enqueue(base);
  }

  /** Nothing of its own is there any more. */
  #leave(slot: Resident): void {
    this.#order.forget?.(slot);
    this.#resident[slot.number] = undefined;
    this.#freeNumbers.push(slot.number);
    slot.isThere = false;
  }

  #hasSuffix({ prefix, offer }: Resident): boolean {
    return this.#order.trims && prefix > trimmedPrefix(offer!);
  }

  #takeSpare(): Resident | undefined {
    for (let slot = this.#spare.first(); slot !== undefined; slot = this.#spare.first()) {
      this.#spare.remove(slot);
      if (slot.fn.copies > 1) return slot;
      // The other copy has gone meanwhile: this is the only one now.
      this.#order.add(slot, this.#hasSuffix(slot));
    }
    return undefined;
  }
}

/** A base that own layers of its users stand on is in no order of eviction. */
const isCarrying = ({ above }: Resident): boolean => above > 0;
