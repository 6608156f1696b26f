import type { ServedFunction } from './function.ts';
import { ValueOrder } from './heap.ts';
import type { Popularity } from './learnt.ts';
import type { Policy } from './policy.ts';
import type { Slots } from './slots.ts';
import type { HostTier, Shell } from './types.ts';

/**
 * Pinned host memory. Whatever is on a GPU, or on its way there, is here as well: GPUs are loaded from here and read
 * from here. The disk behind it reads one function at a time. The function with the fewest invocations for its bytes is
 * evicted first, since each byte takes equally long to read again.
 */
export class HostMemory {
  readonly #tier: HostTier;
  readonly #policy: Policy;
  readonly #shell: Shell;
  readonly #slots: Slots;
  readonly #order: ValueOrder<ServedFunction>;
  /** By function that is here or being read: its bytes, and whether they have arrived. */
  readonly #here = new Map<ServedFunction, { readonly bytes: number; isStaged: boolean }>();
  /**
   * Functions whose bytes here no longer match their sheets. They are dropped as soon as nothing uses them, and read
   * again.
   */
  readonly #outdated = new Set<ServedFunction>();
  /** By function that is pinned on GPUs: on how many. */
  readonly #pinnedOn = new Map<ServedFunction, number>();
  /** Wanted, but without room so far. */
  readonly #wanted = new Set<ServedFunction>();
  usedBytes = 0;
  #diskFreeMs = 0;

  constructor(
    tier: HostTier,
    policy: Policy,
    { shell, slots, popularity }: { readonly shell: Shell; readonly slots: Slots; readonly popularity: Popularity },
  ) {
    this.#tier = tier;
    this.#policy = policy;
    this.#shell = shell;
    this.#slots = slots;
    this.#order = new ValueOrder(({ number }) => popularity.count(number));
    popularity.onScale((factor) => this.#order.scale(factor));
  }

  /** Whether GPUs can be loaded from it. */
  has(fn: ServedFunction): boolean {
    if (this.#bytesOf(fn) === 0) return true;
    return this.#here.get(fn)?.isStaged === true && !this.#outdated.has(fn);
  }

  /** Whether there can ever be room for it, beside the pinned functions. */
  canHold(fn: ServedFunction): boolean {
    let roomBytes = this.#tier.capacityBytes;
    for (const pinned of this.#pinnedOn.keys()) {
      if (pinned !== fn) roomBytes -= this.#here.get(pinned)?.bytes ?? 0;
    }
    return (fn.sheet.hostBytes ?? 0) <= roomBytes;
  }

  /** A GPU pins or unpins a function. Returns whether that leaves less room for others. */
  pin(fn: ServedFunction, by: 1 | -1): boolean {
    const before = this.#pinnedOn.get(fn) ?? 0;
    if (before + by === 0) this.#pinnedOn.delete(fn);
    else this.#pinnedOn.set(fn, before + by);
    return before === 0;
  }

  /** The function has a new sheet. */
  changed(fn: ServedFunction): void {
    const entry = this.#here.get(fn);
    if (entry === undefined) return;
    if (entry.bytes === this.#bytesOf(fn)) this.#outdated.delete(fn);
    else this.#outdated.add(fn);
  }

  /** How long until a function that is wanted now would be read from disk; 0 when it is here. */
  missingMs(fn: ServedFunction, nowMs: number): number {
    if (this.has(fn)) return 0;
    let bytes = 0;
    if (!this.#here.has(fn)) bytes += this.#bytesOf(fn);
    for (const wanted of this.#wanted) if (wanted !== fn) bytes += this.#bytesOf(wanted);
    return Math.max(0, this.#diskFreeMs - nowMs) + this.#diskMs(bytes);
  }

  /** An invocation waits for the function: read it as soon as there is room. */
  want(fn: ServedFunction): void {
    if (this.#bytesOf(fn) === 0) return;
    if (this.#here.has(fn)) {
      // Its count has grown.
      if (this.#order.has(fn)) this.#order.relayer(fn);
      return;
    }
    this.#wanted.add(fn);
  }

  /** Something may have become free. */
  retry(nowMs: number): void {
    for (const fn of this.#outdated) this.#renew(fn);
    if (this.#wanted.size === 0) return;
    for (const fn of this.#wanted) {
      const bytes = this.#bytesOf(fn);
      // The waiting invocation may have gone, or may need other weights now.
      if (bytes === 0 || fn.isRemoved || !this.canHold(fn) || !this.#slots.isAwaited(fn)) {
        this.#wanted.delete(fn);
        continue;
      }
      if (!this.#makeRoom(bytes)) return;
      this.#wanted.delete(fn);
      this.#here.set(fn, { bytes, isStaged: false });
      this.usedBytes += bytes;
      this.#diskFreeMs = Math.max(nowMs, this.#diskFreeMs) + this.#diskMs(bytes);
      this.#shell.act({ kind: 'stage', functionIndex: fn.number, bytes });
    }
  }

  /** The function has been read. Returns whether an invocation may still want it. */
  arrived(fn: ServedFunction): boolean {
    const entry = this.#here.get(fn);
    if (entry === undefined || entry.isStaged) return false;
    entry.isStaged = true;
    if (fn.isRemoved) {
      this.#drop(fn, entry.bytes, 'unload');
      return false;
    }
    this.#order.add(fn);
    return true;
  }

  /** The function was removed. Memory that is still in use goes by the usual order of eviction. */
  forget(fn: ServedFunction): void {
    this.#wanted.delete(fn);
    const entry = this.#here.get(fn);
    // A function that the disk still reads is dropped when it has arrived.
    if (entry?.isStaged !== true || this.#isInUse(fn)) return;
    this.#drop(fn, entry.bytes, 'unload');
  }

  #renew(fn: ServedFunction): void {
    const entry = this.#here.get(fn);
    if (entry?.isStaged !== true || this.#isBusy(fn)) return;
    this.#dropFromGpus(fn);
    this.#drop(fn, entry.bytes, 'unload');
    this.want(fn);
    this.#restage(fn);
  }

  #isInUse(fn: ServedFunction): boolean {
    if (this.#pinnedOn.has(fn) || this.#isBusy(fn)) return true;
    return this.#policy.order === 'fifo' ? this.#isNext(fn) : this.#slots.isAwaited(fn);
  }

  #bytesOf(fn: ServedFunction): number {
    return fn.isRemoved ? 0 : (fn.sheet.hostBytes ?? 0);
  }

  #diskMs(bytes: number): number {
    return bytes / (this.#tier.diskGBps * 1e6);
  }

  #makeRoom(neededBytes: number): boolean {
    const spared: ServedFunction[] = [];
    const capacityBytes = this.#tier.capacityBytes;
    while (this.usedBytes + neededBytes > capacityBytes) {
      const victim = this.#order.first();
      if (victim === undefined) break;
      this.#order.remove(victim);
      if (this.#isInUse(victim)) {
        spared.push(victim);
        continue;
      }
      this.#dropFromGpus(victim);
      this.#drop(victim, this.#here.get(victim)!.bytes, 'capacity');
      if (!this.#slots.isAwaited(victim)) continue;
      this.#wanted.add(victim);
      this.#restage(victim);
    }
    for (const fn of spared) this.#order.add(fn);
    return this.usedBytes + neededBytes <= capacityBytes;
  }

  #drop(fn: ServedFunction, bytes: number, cause: 'capacity' | 'unload'): void {
    this.#order.remove(fn);
    this.#here.delete(fn);
    this.#outdated.delete(fn);
    this.usedBytes -= bytes;
    this.#shell.act({ kind: 'evict-host', functionIndex: fn.number, bytes, cause });
  }

  /** GPUs read from this memory: without it, what is there of the function is of no use. */
  #dropFromGpus(fn: ServedFunction): void {
    for (const slot of this.#slots.homes(fn)) {
      slot.gpu.memory.drop(slot, 'host');
      slot.gpu.awaited.delete(slot);
    }
  }

  /** The function has to be read from disk again. */
  #restage(fn: ServedFunction): void {
    for (const slot of this.#slots.homes(fn)) slot.gpu.restage(slot);
  }

  /** Whether the function runs on a GPU, or is being loaded there. */
  #isBusy(fn: ServedFunction): boolean {
    return this.#slots.homes(fn).some((slot) => slot.gpu.isBusyWith(slot));
  }

  /** Where turns are strictly in order, a waiting function other than the next may be behind the one that wants the room. */
  #isNext(fn: ServedFunction): boolean {
    return this.#slots.homes(fn).some(({ entry, gpu }) => entry !== undefined && gpu.line.next()?.fn === fn);
  }
}
