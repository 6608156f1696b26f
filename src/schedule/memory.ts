import {
  GreedyDual,
  popLeastRecent,
  RecencyOrder,
  recencyList,
  ValueOrder,
  type EvictionOrder,
} from './eviction-order.ts';
import { OracleOrder } from './foresight.ts';
import { MissCost } from './miss-cost.ts';
import { wholeBytes, wholePrefix, type GpuOffer } from './offer.ts';
import type { Policy } from './policy.ts';
import type { Popularity } from './learnt.ts';
import type { Pressure } from './pressure.ts';
import { Residents, type Residency } from './residents.ts';
import type { Rungs } from './rungs.ts';
import type { EvictionCause } from './types.ts';

/** Who is told what goes, before the bytes count as free. */
export interface MemoryListener {
  evicted(functionIndex: number, prefix: number, bytes: number, cause: EvictionCause): void;
  shrunk(functionIndex: number, rung: GpuOffer, bytes: number): void;
  /** It is held for good from now on, or no longer. */
  pinned(functionIndex: number, by: 1 | -1): void;
  /** How many wait for it here: each will use it soon. */
  waiting(functionIndex: number): number;
  /** It is gone now: what waits for it has to be loaded for. */
  cut(functionIndex: number): void;
}

/** What the memories of all GPUs keep together. */
export interface SharedResidency {
  readonly residency: Residency;
  readonly popularity: Popularity;
  readonly rungs: Rungs;
  readonly pressure: Pressure;
}

const nobody = -1;

/**
 * The weights on one GPU: a prefix of the layers of each function, under one of the rungs of its ladder. The bytes of a
 * load count from its start, as do those of growing to a larger rung.
 *
 * Only what is idle stands in the order of eviction, so that whoever is next in it may be evicted. A function is taken
 * out while it is held (running, loading, about to run) and comes back as the most recently used. All orders go by
 * rows.
 */
export class GpuMemory {
  readonly capacityBytes: number;
  usedBytes = 0;
  readonly #trims: boolean;
  readonly #isPriced: boolean;
  readonly #missCost: MissCost;
  readonly #order: EvictionOrder;
  readonly #residency: Residency;
  readonly #residents: Residents;
  readonly #rungs: Rungs;
  readonly #popularity: Popularity;
  readonly #pressure: Pressure;
  readonly #listener: MemoryListener;
  #idleBytes = 0;
  /** Functions. */
  readonly #pinned = new Set<number>();
  #pinnedBytes = 0;
  /** Idle and resident elsewhere too: first to go, and not in the order. */
  readonly #spare = recencyList();
  readonly #gdsf: GreedyDual | undefined;
  /** Idle, there as a whole, and with a smaller rung that is acceptable as far as was known when it became idle. */
  readonly #shrinkable = new RecencyOrder();
  /** By function, the larger rung whose other layers are on their way. */
  readonly #growing = new Map<number, GpuOffer>();

  constructor(
    gpu: number,
    capacityBytes: number,
    eviction: Policy['eviction'],
    { residency, popularity, rungs, pressure }: SharedResidency,
    listener: MemoryListener,
  ) {
    this.capacityBytes = capacityBytes;
    this.#residency = residency;
    this.#residents = new Residents(residency, gpu);
    this.#rungs = rungs;
    this.#popularity = popularity;
    this.#pressure = pressure;
    this.#listener = listener;
    this.#trims = eviction === 'lru-suffix' || eviction === 'value-suffix' || typeof eviction === 'object';
    const residents = this.#residents;
    this.#isPriced = eviction === 'value-suffix';
    this.#missCost = new MissCost(residents, pressure, rungs, gpu);
    if (typeof eviction === 'object') {
      this.#order = new OracleOrder((row) => eviction.nextUseMs(residents.functionOf(row)));
    } else if (eviction === 'value-suffix') {
      const order = new ValueOrder((row) => {
        const functionIndex = residents.functionOf(row);
        const uses = popularity.expectedWith(functionIndex, listener.waiting(functionIndex));
        return uses * this.#missCost.perByte(row, this.#hasSuffix(row));
      });
      popularity.onScale((factor) => order.scale(factor));
      this.#order = order;
    } else if (eviction === 'gdsf') {
      this.#gdsf = new GreedyDual(residents);
      this.#order = this.#gdsf.order;
    } else {
      this.#order = new RecencyOrder();
    }
  }

  /** Layers resident, counted from the first. */
  prefix(functionIndex: number): number {
    const row = this.#residents.row(functionIndex);
    return row < 0 ? 0 : this.#residents.prefix(row);
  }

  bytes(functionIndex: number): number {
    const row = this.#residents.row(functionIndex);
    return row < 0 ? 0 : this.#residents.bytes(row);
  }

  /** The offer that the resident layers belong to. */
  offer(functionIndex: number): GpuOffer | undefined {
    const row = this.#residents.row(functionIndex);
    return row < 0 ? undefined : this.#residents.offer(row);
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
    const ownBytes = this.#pinned.has(functionIndex) ? this.bytes(functionIndex) : 0;
    return this.capacityBytes - this.#pinnedBytes + ownBytes;
  }

  /** Of a resident function. Returns whether that is new. */
  setPinned(functionIndex: number, isPinned: boolean): boolean {
    if ((this.#pinned.size === 0 && !isPinned) || this.#pinned.has(functionIndex) === isPinned) return false;
    if (isPinned) this.#pinned.add(functionIndex);
    else this.#pinned.delete(functionIndex);
    this.#listener.pinned(functionIndex, isPinned ? 1 : -1);
    this.#pinnedBytes += isPinned ? this.bytes(functionIndex) : -this.bytes(functionIndex);
    return true;
  }

  /** May be evicted from now on; as the most recently used. */
  release(functionIndex: number): void {
    const residents = this.#residents;
    const row = residents.row(functionIndex);
    if (row < 0 || residents.isIdle(row)) return;
    const bytes = residents.bytes(row);
    if (bytes === 0) return;
    residents.setIdle(row, true);
    this.#idleBytes += bytes;
    this.#gdsf?.use(row);
    if (this.#residency.copies(functionIndex) > 1) this.#spare.set(row, row);
    else this.#order.add(row, this.#hasSuffix(row));
    this.#joinShrinkable(row);
  }

  /** Must not be evicted from now on. */
  hold(functionIndex: number): void {
    const residents = this.#residents;
    const row = residents.row(functionIndex);
    if (row < 0 || !residents.isIdle(row)) return;
    residents.setIdle(row, false);
    this.#idleBytes -= residents.bytes(row);
    if (this.#spare.size === 0 || !this.#spare.delete(row)) this.#order.remove(row);
    if (residents.offer(row).smaller !== undefined) this.#shrinkable.remove(row);
  }

  /** Most recently used, though not held. */
  touch(functionIndex: number): void {
    const row = this.#residents.row(functionIndex);
    if (row < 0 || !this.#residents.isIdle(row)) return;
    this.hold(functionIndex);
    this.release(functionIndex);
  }

  /**
   * Takes the room for a whole function that is held or not resident at all, shrinking and then evicting what is idle.
   * Returns false, with nothing touched, when that is not enough.
   */
  reserve(functionIndex: number, offer: GpuOffer): boolean {
    const neededBytes = wholeBytes(offer) - this.bytes(functionIndex);
    if (!this.#makeRoom(neededBytes)) return false;
    this.usedBytes += neededBytes;
    if (this.#pinned.has(functionIndex)) this.#pinnedBytes += neededBytes;
    const residents = this.#residents;
    let row = residents.row(functionIndex);
    if (row < 0) {
      row = residents.open(functionIndex, offer);
      this.#order.grow(residents.room);
    }
    residents.setOffer(row, offer);
    this.#setPrefix(row, wholePrefix(offer));
    return true;
  }

  /**
   * Takes the room for a larger rung of a function that is held and there as a whole. Returns false as `reserve` does.
   */
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
    if (this.#pinned.has(functionIndex)) this.#pinnedBytes += wholeBytes(rung) - this.bytes(functionIndex);
    this.#takeRung(this.#residents.row(functionIndex), rung);
  }

  /**
   * What others are expected to lose in the near future when a load takes so many bytes; 0 where that many are free.
   * Less than that makes no difference: what one load leaves the next one takes, so a call is not sent where a few
   * bytes happen to be free.
   */
  lossMs(neededBytes: number): number {
    return neededBytes <= this.freeBytes ? 0 : this.#pressure.lossMs(neededBytes);
  }

  /** Drops a function, held or not. */
  drop(functionIndex: number, cause: EvictionCause): void {
    const row = this.#residents.row(functionIndex);
    if (row < 0) return;
    this.hold(functionIndex);
    this.setPinned(functionIndex, false);
    this.#cut(row, 0, cause);
  }

  /** Takes over an offer with the same layers: other times, nothing else. */
  replaceOffer(functionIndex: number, offer: GpuOffer): void {
    const residents = this.#residents;
    const row = residents.row(functionIndex);
    if (row < 0) return;
    if (residents.offer(row).smaller !== undefined) this.#shrinkable.remove(row);
    residents.setOffer(row, offer);
    if (residents.isIdle(row)) this.#joinShrinkable(row);
  }

  /** The same for the rung that it is growing to. */
  replaceGrowth(functionIndex: number, rung: GpuOffer): void {
    if (this.#growing.has(functionIndex)) this.#growing.set(functionIndex, rung);
  }

  /** Shrinks what can be shrunk, and only then evicts. */
  #makeRoom(neededBytes: number): boolean {
    if (neededBytes > this.obtainableBytes) return false;
    while (neededBytes > this.freeBytes && this.#shrinkOne(neededBytes - this.freeBytes));
    let lostMs = 0;
    while (neededBytes > this.freeBytes) lostMs += this.#evictOne(neededBytes - this.freeBytes);
    this.#pressure.lost(lostMs, Math.max(0, neededBytes));
    return true;
  }

  /**
   * The function that was used least recently goes down as far as needed, or as it can. Returns false when none can.
   */
  #shrinkOne(missingBytes: number): boolean {
    const row = this.#shrinkable.first();
    if (row === nobody) return false;
    const functionIndex = this.#residents.functionOf(row);
    const resident = this.#residents.offer(row);
    const rung = this.#rungs.toShrinkTo(functionIndex, resident, missingBytes);
    if (rung === undefined || !this.#rungs.canShrink(functionIndex, rung)) this.#shrinkable.remove(row);
    // Its SLO has become tighter since it became idle: the next one, then.
    if (rung === undefined) return true;
    const bytes = wholeBytes(resident) - wholeBytes(rung);
    this.#listener.shrunk(functionIndex, rung, bytes);
    this.usedBytes -= bytes;
    this.#idleBytes -= bytes;
    this.#takeRung(row, rung);
    if (!this.#spare.has(row)) this.#order.relayer(row, this.#hasSuffix(row));
    return true;
  }

  /** Of a function that is there as a whole, and stays so. */
  #takeRung(row: number, rung: GpuOffer): void {
    this.#residents.setOffer(row, rung);
    this.#residents.setPrefix(row, wholePrefix(rung));
  }

  /** Of an idle function. */
  #joinShrinkable(row: number): void {
    const resident = this.#residents.offer(row);
    if (resident.smaller === undefined || !this.#residents.isWhole(row)) return;
    if (this.#rungs.canShrink(this.#residents.functionOf(row), resident)) this.#shrinkable.add(row, false);
  }

  /** Returns what that is expected to cost: nothing for a second copy. */
  #evictOne(missingBytes: number): number {
    const spare = this.#takeSpare();
    if (spare !== nobody) {
      this.#evict(spare, 'migration');
      return 0;
    }
    const victim = this.#order.first();
    const uses = Math.min(1, this.#popularity.share(this.#residents.functionOf(victim)));
    const hasSuffix = this.#hasSuffix(victim);
    const whole = this.#missCost.whole(victim);
    const suffix = hasSuffix ? this.#missCost.suffix(victim) : Infinity;
    const lossPerByte = Math.min(whole, suffix) * uses;
    const beforeBytes = this.usedBytes;
    // A start that lacks anything waits for the link, so while links are short whole functions last.
    if (hasSuffix && (!this.#isPriced || suffix <= whole)) {
      this.#trim(victim, missingBytes);
    } else {
      this.#gdsf?.evicts(victim);
      this.#order.remove(victim);
      this.#evict(victim, 'capacity');
    }
    return lossPerByte * (beforeBytes - this.usedBytes);
  }

  /** Drops as many of the last layers as are missing, but none of the hiding prefix. */
  #trim(row: number, missingBytes: number): void {
    const residents = this.#residents;
    const { prefixBytes, hidingPrefix } = residents.offer(row);
    const beforeBytes = residents.bytes(row);
    let prefix = residents.prefix(row);
    while (prefix > hidingPrefix && beforeBytes - prefixBytes[prefix]! < missingBytes) prefix--;
    this.#idleBytes -= beforeBytes - prefixBytes[prefix]!;
    if (prefix === 0) residents.setIdle(row, false);
    if (prefix === hidingPrefix) this.#order.remove(row);
    this.#cut(row, prefix, prefix === 0 ? 'capacity' : 'trim');
    if (prefix === hidingPrefix && prefix > 0) this.#order.add(row, false);
  }

  /** An idle function that stands nowhere any more. */
  #evict(row: number, cause: EvictionCause): void {
    this.#residents.setIdle(row, false);
    this.#idleBytes -= this.#residents.bytes(row);
    this.#cut(row, 0, cause);
  }

  #cut(row: number, prefix: number, cause: EvictionCause): void {
    const residents = this.#residents;
    const functionIndex = residents.functionOf(row);
    const beforeBytes = residents.bytes(row);
    const bytes = beforeBytes - residents.offer(row).prefixBytes[prefix]!;
    const growing = this.growing(functionIndex);
    const onTheirWayBytes = growing === undefined ? 0 : wholeBytes(growing) - beforeBytes;
    this.#listener.evicted(functionIndex, prefix, bytes + onTheirWayBytes, cause);
    this.usedBytes -= bytes + onTheirWayBytes;
    if (growing !== undefined) this.#growing.delete(functionIndex);
    if (this.#pinned.has(functionIndex)) this.#pinnedBytes -= bytes;
    this.#setPrefix(row, prefix);
    if (prefix === 0) {
      residents.close(row);
      this.#gdsf?.forget(row);
    }
    this.#listener.cut(functionIndex);
  }

  #setPrefix(row: number, prefix: number): void {
    const residents = this.#residents;
    const wasWhole = residents.isWhole(row);
    residents.setPrefix(row, prefix);
    const isWhole = residents.isWhole(row);
    if (wasWhole !== isWhole) this.#residency.changeCopies(residents.functionOf(row), isWhole ? 1 : -1);
  }

  #hasSuffix(row: number): boolean {
    return this.#trims && this.#residents.prefix(row) > this.#residents.offer(row).hidingPrefix;
  }

  #takeSpare(): number {
    while (this.#spare.size > 0) {
      const row = popLeastRecent(this.#spare);
      if (this.#residency.copies(this.#residents.functionOf(row)) > 1) return row;
      // The other copy has gone meanwhile: this is the only one now.
      this.#order.add(row, this.#hasSuffix(row));
    }
    return nobody;
  }
}
