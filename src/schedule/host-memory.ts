import { ValueOrder } from './eviction-order.ts';
import type { OfferSheet } from './offer.ts';
import type { Popularity } from './learnt.ts';
import type { HostTier } from './types.ts';

/** What pinned host memory has to know of the places that are loaded from it. */
export interface HostMemoryUses {
  readonly sheetOf: (functionIndex: number) => OfferSheet | undefined;
  /** Whether the function runs on a GPU, or is being loaded there. */
  readonly isBusy: (functionIndex: number) => boolean;
  /** Whether it may not go for others' room: it is busy, pinned on a GPU, or waits for its turn there. */
  readonly isInUse: (functionIndex: number) => boolean;
  /** Whether it waits, though whoever wants the room may be before it. */
  readonly isBehind: (functionIndex: number) => boolean;
  /** It has to be read once more. */
  readonly isGone: (functionIndex: number) => void;
  /** Gives up what GPUs have of it: they read it from here. */
  readonly dropFromGpus: (functionIndex: number) => void;
  readonly staged: (functionIndex: number, bytes: number) => void;
  readonly evicted: (functionIndex: number, bytes: number, cause: 'capacity' | 'unload') => void;
}

/**
 * Pinned host memory: what is on a GPU, or to come there, is here as well, since GPUs are loaded from here and read
 * from here. The disk behind it reads one function after the other. What goes for room is what is invoked least for the
 * bytes that it takes: each byte takes the disk as long as any other.
 */
export class HostMemory {
  readonly #tier: HostTier | undefined;
  readonly #uses: HostMemoryUses;
  readonly #order: ValueOrder;
  /** By function that is here or on its way: its bytes, and when they are expected. */
  readonly #here = new Map<number, { readonly bytes: number; isStaged: boolean }>();
  /**
   * Here with other bytes than their sheets say by now: they go as soon as nothing is busy with them, and are read
   * anew.
   */
  readonly #outdated = new Set<number>();
  /** By function that is pinned on GPUs: how many. */
  readonly #pinnedOn = new Map<number, number>();
  /** Wanted, and without room so far. */
  readonly #wanted = new Set<number>();
  usedBytes = 0;
  #diskFreeMs = 0;

  constructor(tier: HostTier | undefined, popularity: Popularity, uses: HostMemoryUses) {
    this.#tier = tier;
    this.#uses = uses;
    this.#order = new ValueOrder((functionIndex) => popularity.count(functionIndex));
    popularity.onScale((factor) => this.#order.scale(factor));
  }

  grow(functionCount: number): void {
    if (this.#tier !== undefined) this.#order.grow(functionCount);
  }

  /** Whether GPUs can be loaded with it. */
  has(functionIndex: number): boolean {
    if (this.#tier === undefined) return true;
    if (this.#bytesOf(functionIndex) === 0) return true;
    return this.#here.get(functionIndex)?.isStaged === true && !this.#outdated.has(functionIndex);
  }

  /** Whether there can ever be room for it, beside what is pinned of others. */
  canHold(functionIndex: number, { hostBytes = 0 }: OfferSheet): boolean {
    if (this.#tier === undefined) return true;
    let roomBytes = this.#tier.capacityBytes;
    for (const pinned of this.#pinnedOn.keys()) {
      if (pinned !== functionIndex) roomBytes -= this.#here.get(pinned)?.bytes ?? 0;
    }
    return hostBytes <= roomBytes;
  }

  /** A GPU holds on to a function, or does no longer. Returns whether that leaves less room for others. */
  pin(functionIndex: number, by: 1 | -1): boolean {
    if (this.#tier === undefined) return false;
    const before = this.#pinnedOn.get(functionIndex) ?? 0;
    if (before + by === 0) this.#pinnedOn.delete(functionIndex);
    else this.#pinnedOn.set(functionIndex, before + by);
    return before === 0;
  }

  isPinned(functionIndex: number): boolean {
    return this.#pinnedOn.has(functionIndex);
  }

  /** Its sheet is another one. */
  changed(functionIndex: number): void {
    const entry = this.#here.get(functionIndex);
    if (entry === undefined) return;
    if (entry.bytes === this.#bytesOf(functionIndex)) this.#outdated.delete(functionIndex);
    else this.#outdated.add(functionIndex);
  }

  /** How long the disk takes until a function that is wanted now would be here; 0 when it is. */
  missingMs(functionIndex: number, nowMs: number): number {
    if (this.has(functionIndex)) return 0;
    let bytes = 0;
    if (!this.#here.has(functionIndex)) bytes += this.#bytesOf(functionIndex);
    for (const wanted of this.#wanted) if (wanted !== functionIndex) bytes += this.#bytesOf(wanted);
    return Math.max(0, this.#diskFreeMs - nowMs) + this.#diskMs(bytes);
  }

  /** Somebody waits for a function: it is read as soon as there is room. */
  want(functionIndex: number): void {
    if (this.#tier === undefined || this.#bytesOf(functionIndex) === 0) return;
    if (this.#here.has(functionIndex)) {
      // Its count has grown.
      if (this.#order.has(functionIndex)) this.#order.relayer(functionIndex);
      return;
    }
    this.#wanted.add(functionIndex);
  }

  /** Something may have become free. */
  retry(nowMs: number): void {
    // Told of every event, so that even an iterator over nothing would count.
    if (this.#tier === undefined) return;
    for (const functionIndex of this.#outdated) this.#renew(functionIndex);
    if (this.#wanted.size === 0) return;
    for (const functionIndex of this.#wanted) {
      const bytes = this.#bytesOf(functionIndex);
      const sheet = this.#uses.sheetOf(functionIndex);
      // Whoever waited may have gone, or wait for other weights now.
      if (bytes === 0 || !sheet || !this.canHold(functionIndex, sheet) || !this.#uses.isBehind(functionIndex)) {
        this.#wanted.delete(functionIndex);
        continue;
      }
      if (!this.#makeRoom(bytes)) return;
      this.#wanted.delete(functionIndex);
      this.#here.set(functionIndex, { bytes, isStaged: false });
      this.usedBytes += bytes;
      this.#diskFreeMs = Math.max(nowMs, this.#diskFreeMs) + this.#diskMs(bytes);
      this.#uses.staged(functionIndex, bytes);
    }
  }

  /** It has been read. Returns whether anybody may still want it. */
  arrived(functionIndex: number): boolean {
    const entry = this.#here.get(functionIndex);
    if (entry === undefined || entry.isStaged) return false;
    entry.isStaged = true;
    if (this.#uses.sheetOf(functionIndex) === undefined) {
      this.#drop(functionIndex, entry.bytes, 'unload');
      return false;
    }
    this.#order.add(functionIndex);
    return true;
  }

  /** The function was removed. What is still in use of it goes as others do. */
  forget(functionIndex: number): void {
    this.#wanted.delete(functionIndex);
    const entry = this.#here.get(functionIndex);
    // What the disk still reads goes when it has arrived.
    if (entry?.isStaged !== true || this.#uses.isInUse(functionIndex)) return;
    this.#drop(functionIndex, entry.bytes, 'unload');
  }

  #renew(functionIndex: number): void {
    const entry = this.#here.get(functionIndex);
    if (entry?.isStaged !== true || this.#uses.isBusy(functionIndex)) return;
    this.#uses.dropFromGpus(functionIndex);
    this.#drop(functionIndex, entry.bytes, 'unload');
    this.want(functionIndex);
    this.#uses.isGone(functionIndex);
  }

  #bytesOf(functionIndex: number): number {
    return this.#uses.sheetOf(functionIndex)?.hostBytes ?? 0;
  }

  #diskMs(bytes: number): number {
    return this.#tier === undefined ? 0 : bytes / (this.#tier.diskGBps * 1e6);
  }

  #makeRoom(neededBytes: number): boolean {
    const spared: number[] = [];
    const capacityBytes = this.#tier!.capacityBytes;
    while (this.usedBytes + neededBytes > capacityBytes) {
      const victim = this.#order.first();
      if (victim < 0) break;
      this.#order.remove(victim);
      if (this.#uses.isInUse(victim)) {
        spared.push(victim);
        continue;
      }
      this.#uses.dropFromGpus(victim);
      this.#drop(victim, this.#here.get(victim)!.bytes, 'capacity');
      if (!this.#uses.isBehind(victim)) continue;
      this.#wanted.add(victim);
      this.#uses.isGone(victim);
    }
    for (const functionIndex of spared) this.#order.add(functionIndex);
    return this.usedBytes + neededBytes <= capacityBytes;
  }

  #drop(functionIndex: number, bytes: number, cause: 'capacity' | 'unload'): void {
    this.#order.remove(functionIndex);
    this.#here.delete(functionIndex);
    this.#outdated.delete(functionIndex);
    this.usedBytes -= bytes;
    this.#uses.evicted(functionIndex, bytes, cause);
  }
}
