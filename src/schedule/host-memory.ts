import { ValueOrder } from './heap.ts';
import type { OfferSheet } from './offer.ts';
import type { Popularity } from './learnt.ts';
import type { HostTier } from './types.ts';

/** What pinned host memory needs to know of the places that are loaded from it. */
export interface HostMemoryUses {
  readonly sheetOf: (functionIndex: number) => OfferSheet | undefined;
  /** Whether the function runs on a GPU, or is being loaded there. */
  readonly isBusy: (functionIndex: number) => boolean;
  /** Whether it is busy, or an invocation waits for it (where turns are strictly in order, only the next one counts). */
  readonly isInUse: (functionIndex: number) => boolean;
  /** Whether it waits, though perhaps behind the function that wants the room. */
  readonly isBehind: (functionIndex: number) => boolean;
  /** The function has to be read from disk again. */
  readonly isGone: (functionIndex: number) => void;
  /** Drops its layers from the GPUs, which read from this memory. */
  readonly dropFromGpus: (functionIndex: number) => void;
  readonly staged: (functionIndex: number, bytes: number) => void;
  readonly evicted: (functionIndex: number, bytes: number, cause: 'capacity' | 'unload') => void;
}

/**
 * Pinned host memory. Whatever is on a GPU, or on its way there, is here as well: GPUs are loaded from here and read
 * from here. The disk behind it reads one function at a time. The function with the fewest invocations for its bytes is
 * evicted first, since each byte takes equally long to read again.
 */
export class HostMemory {
  readonly #tier: HostTier;
  readonly #uses: HostMemoryUses;
  readonly #order: ValueOrder;
  /** By function that is here or being read: its bytes, and when they are expected. */
  readonly #here = new Map<number, { readonly bytes: number; isStaged: boolean }>();
  /**
   * Functions whose bytes here no longer match their sheets. They are dropped as soon as nothing uses them, and read
   * again.
   */
  readonly #outdated = new Set<number>();
  /** By function that is pinned on GPUs: on how many. */
  readonly #pinnedOn = new Map<number, number>();
  /** Wanted, but without room so far. */
  readonly #wanted = new Set<number>();
  usedBytes = 0;
  #diskFreeMs = 0;

  constructor(tier: HostTier, popularity: Popularity, uses: HostMemoryUses) {
    this.#tier = tier;
    this.#uses = uses;
    this.#order = new ValueOrder((functionIndex) => popularity.count(functionIndex));
    popularity.onScale((factor) => this.#order.scale(factor));
  }

  grow(functionCount: number): void {
    this.#order.grow(functionCount);
  }

  /** Whether GPUs can be loaded from it. */
  has(functionIndex: number): boolean {
    if (this.#bytesOf(functionIndex) === 0) return true;
    return this.#here.get(functionIndex)?.isStaged === true && !this.#outdated.has(functionIndex);
  }

  /** Whether there can ever be room for it, beside the pinned functions. */
  canHold(functionIndex: number, { hostBytes = 0 }: OfferSheet): boolean {
    let roomBytes = this.#tier.capacityBytes;
    for (const pinned of this.#pinnedOn.keys()) {
      if (pinned !== functionIndex) roomBytes -= this.#here.get(pinned)?.bytes ?? 0;
    }
    return hostBytes <= roomBytes;
  }

  /** A GPU pins or unpins a function. Returns whether that leaves less room for others. */
  pin(functionIndex: number, by: 1 | -1): boolean {
    const before = this.#pinnedOn.get(functionIndex) ?? 0;
    if (before + by === 0) this.#pinnedOn.delete(functionIndex);
    else this.#pinnedOn.set(functionIndex, before + by);
    return before === 0;
  }

  /** The function has a new sheet. */
  changed(functionIndex: number): void {
    const entry = this.#here.get(functionIndex);
    if (entry === undefined) return;
    if (entry.bytes === this.#bytesOf(functionIndex)) this.#outdated.delete(functionIndex);
    else this.#outdated.add(functionIndex);
  }

  /** How long until a function that is wanted now would be read from disk; 0 when it is here. */
  missingMs(functionIndex: number, nowMs: number): number {
    if (this.has(functionIndex)) return 0;
    let bytes = 0;
    if (!this.#here.has(functionIndex)) bytes += this.#bytesOf(functionIndex);
    for (const wanted of this.#wanted) if (wanted !== functionIndex) bytes += this.#bytesOf(wanted);
    return Math.max(0, this.#diskFreeMs - nowMs) + this.#diskMs(bytes);
  }

  /** An invocation waits for the function: read it as soon as there is room. */
  want(functionIndex: number): void {
    if (this.#bytesOf(functionIndex) === 0) return;
    if (this.#here.has(functionIndex)) {
      // Its count has grown.
      if (this.#order.has(functionIndex)) this.#order.relayer(functionIndex);
      return;
    }
    this.#wanted.add(functionIndex);
  }

  /** Something may have become free. */
  retry(nowMs: number): void {
    for (const functionIndex of this.#outdated) this.#renew(functionIndex);
    if (this.#wanted.size === 0) return;
    for (const functionIndex of this.#wanted) {
      const bytes = this.#bytesOf(functionIndex);
      const sheet = this.#uses.sheetOf(functionIndex);
      // The waiting invocation may have gone, or may need other weights now.
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

  /** The function has been read. Returns whether an invocation may still want it. */
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

  /** The function was removed. Memory that is still in use goes by the usual order of eviction. */
  forget(functionIndex: number): void {
    this.#wanted.delete(functionIndex);
    const entry = this.#here.get(functionIndex);
    // A function that the disk still reads is dropped when it has arrived.
    if (entry?.isStaged !== true || this.#isInUse(functionIndex)) return;
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

  #isInUse(functionIndex: number): boolean {
    return this.#pinnedOn.has(functionIndex) || this.#uses.isInUse(functionIndex);
  }

  #bytesOf(functionIndex: number): number {
    return this.#uses.sheetOf(functionIndex)?.hostBytes ?? 0;
  }

  #diskMs(bytes: number): number {
    return bytes / (this.#tier.diskGBps * 1e6);
  }

  #makeRoom(neededBytes: number): boolean {
    const spared: number[] = [];
    const capacityBytes = this.#tier.capacityBytes;
    while (this.usedBytes + neededBytes > capacityBytes) {
      const victim = this.#order.first();
      if (victim < 0) break;
      this.#order.remove(victim);
      if (this.#isInUse(victim)) {
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
