import type { GpuId } from './ids.ts';
import { takeOut } from './columns.ts';
import type { ServedFunction } from './function.ts';
import type { Invocation } from './invocation.ts';
import { Line, type Entry, type Stage } from './lines.ts';
import { GpuMemory, type MemoryListener, type SharedResidency } from './memory.ts';
import { isVariantOf, leastBytes, wholeBytes, wholePrefix, type GpuOffer, type LoadOption } from './offer.ts';
import type { Orders } from './orders.ts';
import type { Policy } from './policy.ts';
import { Base, Resident } from './residents.ts';
import type { EvictionCause, LoadOrder, SchedulerGpu } from './types.ts';

export const nobodyElse: readonly Invocation[] = [];
const noSlots: readonly Slot[] = [];

/** A load in flight. */
export interface Load extends LoadOrder {
  /** When an execution behind it could have ended with the links to itself. */
  readonly soonestMs: number;
}

/**
 * A function on one GPU, as long as that has something of it or something waits there for it. All that is asked of the
 * two together stands here, so that one look finds it.
 */
export class Slot extends Resident {
  readonly gpu: Gpu;
  /** Under way to the GPU, ordered for this function. */
  ordered: Load | undefined = undefined;
  /** How what a larger variant has more is on its way. */
  growth: LoadOption | undefined = undefined;
  /** In the GPU's line, while something waits. */
  entry: Entry<Slot> | undefined = undefined;
  /** The function's slot on the next higher GPU where it has one. */
  next: Slot | undefined = undefined;

  constructor(fn: ServedFunction, gpu: Gpu) {
    super(fn);
    this.gpu = gpu;
    gpu.link(this);
  }

  /** Something of the function is there, or waits there. What all functions of a family share makes it nobody's home. */
  get isHome(): boolean {
    return this.hasOwn || this.entry !== undefined || (this.isTwin && this.prefix > 0);
  }

  get isEmpty(): boolean {
    return !this.isThere && this.entry === undefined && this.ordered === undefined && !this.usesBase;
  }

  /** Whether another function's load brings what this one shares with it. */
  get isBaseLoading(): boolean {
    const loadedBy = this.base?.loadedBy as Slot | undefined;
    return loadedBy !== undefined && loadedBy !== this && loadedBy.ordered!.prefix < this.low;
  }

  /** Under way to the GPU: with it, all that is missing of the function will be there. */
  get load(): Load | undefined {
    if (this.base === undefined || this.ordered !== undefined) return this.ordered;
    return this.isTwin && this.isWhole && this.isBaseLoading ? (this.base.loadedBy as Slot).ordered : undefined;
  }

  /** The variant that the function has there and can run on, or that a load would bring there now. */
  get variant(): GpuOffer {
    return this.gpu.variantOf(this.fn, this);
  }

  /**
   * Whether it can run: all layers of a variant are there, for the plan as it is now, and none that a run needs on its
   * way; and what it executes from is in host memory.
   */
  get isResident(): boolean {
    const top = this.fn.offerFor(this.gpu);
    if (!top || this.ordered !== undefined || this.isBaseLoading || this.fn.lacksExecuted) return false;
    const resident = this.offer;
    const offer = resident !== undefined && top.smaller !== undefined && isVariantOf(top, resident) ? resident : top;
    if (this.prefix !== wholePrefix(offer)) return false;
    return resident === offer || wholeBytes(offer) === 0;
  }

  /** Whether what is there, or on its way, are layers of a plan that the function has no longer. */
  get isStale(): boolean {
    const { offer } = this;
    return offer !== undefined && !isVariantOf(this.fn.offerFor(this.gpu), offer);
  }

  /** What a load would find there: layers of a plan that the function has no longer go before it begins. */
  get keptPrefix(): number {
    const { prefix } = this;
    return prefix > 0 && this.isStale ? 0 : prefix;
  }
}

/** What all GPUs share. */
interface Shared extends SharedResidency {
  readonly policy: Policy;
  readonly orders: Orders;
  readonly gpus: readonly Gpu[];
  readonly slots: SharedResidency['slots'] & { at(fn: ServedFunction, gpu: Gpu): Slot | undefined };
  readonly host:
    | {
        has(fn: ServedFunction): boolean;
        canHold(fn: ServedFunction): boolean;
        pin(fn: ServedFunction, by: 1 | -1): boolean;
        moved(fn: ServedFunction): void;
        restoreMs(fn: ServedFunction): number;
      }
    | undefined;
  /** Whether a resident function stays as long as invocations wait for it. */
  readonly sparesWaiting: boolean;
  /** GPUs on which what is pinned has just changed. */
  readonly pinnedOn: Gpu[];
  backlogChanged(gpu: Gpu): void;
}

/** A GPU: what runs there, what waits, what is resident, and what is on its way. */
export class Gpu implements MemoryListener {
  readonly number: GpuId;
  readonly line = new Line<Slot>();
  readonly memory: GpuMemory;
  isUp = true;
  running: Invocation | undefined = undefined;
  /** The other invocations of a joined run, in order. They end with it. */
  companions = nobodyElse;
  /** When the run is expected to end. */
  laneEndMs = NaN;
  /** Functions that a load is under way for: a few at the most. */
  readonly loading: Slot[] = [];
  /** What is held for nothing else but that invocations wait for it. */
  readonly awaited = new Set<Slot>();
  readonly #shared: Shared;

  constructor(number: GpuId, { capacityBytes }: SchedulerGpu, shared: Shared) {
    this.number = number;
    this.#shared = shared;
    this.laneEndMs = 0;
    this.memory = new GpuMemory(number, capacityBytes, shared.policy.eviction, shared, this);
  }

  // What its memory tells

  evicted(slot: Resident, prefix: number, bytes: number, cause: EvictionCause): void {
    const { orders } = this.#shared;
    const gpu = this.number;
    if (!(slot instanceof Base)) {
      orders.add({ kind: 'evict', functionIndex: slot.fn.number, gpu, prefix, bytes, cause });
      return;
    }
    const { family } = slot;
    const functionIndex = family.sharerOf(gpu, prefix);
    orders.add({ kind: 'evict', functionIndex, gpu, prefix, bytes, cause, base: family.name });
  }

  shrunk(slot: Slot, { plan }: GpuOffer, bytes: number): void {
    this.#shared.variants.wasShrunk(slot);
    this.#shared.orders.add({
      kind: 'shrink',
      functionIndex: slot.fn.number,
      gpu: this.number,
      plan: plan!,
      bytes,
    });
  }

  pinned(fn: ServedFunction, by: 1 | -1): void {
    // Less room in host memory concerns calls that wait on any GPU.
    if (this.#shared.host?.pin(fn, by) === true) this.#shared.pinnedOn.push(...this.#shared.gpus);
  }

  cut(slot: Resident): void {
    if (slot instanceof Slot) this.#lost(slot);
    else for (const user of this.usersOf(slot as Base)) this.#lost(user);
  }

  #lost(slot: Slot): void {
    this.#shared.host?.moved(slot.fn);
    this.restage(slot);
  }

  // What functions share

  /** The slots here of the functions that share these layers. */
  usersOf({ family, active }: Base): Iterable<Slot> {
    // One may use it that is to share other layers.
    const found = new Set(active as Set<Slot>);
    // Most of the others have nothing here, and no slot.
    for (const fn of family.users) {
      const slot = this.#shared.slots.at(fn, this);
      if (slot !== undefined) found.add(slot);
    }
    return found;
  }

  /** Brings up to date what the function shares here, as far as what it has here allows. Returns whether it is. */
  link(slot: Slot): boolean {
    const offer = slot.fn.offerFor(this) ?? undefined;
    if (slot.base === undefined && offer?.shared === undefined) return true;
    const isLinked = this.memory.share(slot, offer);
    // What is on its way of it is on its way of the base.
    if (isLinked && slot.base !== undefined && slot.ordered !== undefined && slot.ordered.prefix < slot.low)
      slot.base.loadedBy = slot;
    return isLinked;
  }

  // The run

  /** The run is over. Returns the companions of its invocation. */
  endRun(): readonly Invocation[] {
    const ended = this.companions;
    this.running = undefined;
    this.companions = nobodyElse;
    return ended;
  }

  /**
   * The run was lost. Returns its invocations, which run alone from now on: one that breaks a run takes its companions
   * along only once.
   */
  loseRun(): Invocation[] {
    const lost = [this.running!, ...this.endRun()];
    for (const invocation of lost) invocation.setJoin(undefined);
    return lost;
  }

  /** Returns the slots of other functions that waited for some of it. */
  endLoad(slot: Slot): readonly Slot[] {
    takeOut(this.loading, slot);
    slot.ordered = undefined;
    this.#shared.slots.emptied(slot);
    const { base } = slot;
    if (base?.loadedBy !== slot) return noSlots;
    base.loadedBy = undefined;
    return [...this.usersOf(base)].filter((user) => user !== slot);
  }

  /** The function runs, or something of it is on its way. */
  isBusyWith(slot: Slot): boolean {
    return this.running?.fn === slot.fn || slot.load !== undefined || slot.growth !== undefined;
  }

  // The line

  /** The invocation joins the line. */
  enter(invocation: Invocation, slot: Slot): void {
    const { line } = this;
    const { policy, sparesWaiting } = this.#shared;
    slot.entry ??= this.#open(slot);
    const { entry } = slot;
    invocation.state = 'waiting';
    invocation.place = this.number;
    invocation.start = undefined;
    line.add(invocation, entry, policy.order === 'fifo' ? invocation.sequence : invocation.dueMs);
    this.#shared.backlogChanged(this);
    // It is to stay. Others of it that are on time hold it already, and what is not there as a whole is not held.
    if (sparesWaiting && slot.isWhole && entry.onTime.count === 1) this.#keep(slot);
  }

  /** Out of the line. */
  leave(invocation: Invocation, slot: Slot): void {
    if (this.line.remove(invocation, slot.entry!)) {
      slot.entry = undefined;
      this.#shared.slots.emptied(slot);
    }
    this.#shared.backlogChanged(this);
  }

  #open(slot: Slot): Entry<Slot> {
    const { variant } = slot;
    return this.line.open(slot, this.#stageOf(slot), variant, linkMs(slot, variant));
  }

  /** Brings the line up to date with what is there of a function. */
  restage(slot: Slot): void {
    if (slot.entry === undefined || !slot.fn.offerFor(this)) return;
    const { variant } = slot;
    this.line.setStage(slot.entry, this.#stageOf(slot), variant, linkMs(slot, variant));
  }

  #stageOf(slot: Slot): Stage {
    if (slot.ordered !== undefined || slot.isBaseLoading) return 'loading';
    if (slot.isResident) return 'runnable';
    return this.#shared.host?.has(slot.fn) !== false ? 'loadable' : 'loading';
  }

  // What is resident

  /** Whether it could ever run the function. */
  canHold(fn: ServedFunction): boolean {
    const offer = fn.offerFor(this);
    if (!offer || !this.isUp || this.#shared.host?.canHold(fn) === false) return false;
    return leastBytes(offer) <= this.memory.attainableBytes(fn);
  }

  /** The variant that the function has here and can run on, or that a load would bring here now. */
  variantOf(fn: ServedFunction, slot: Slot | undefined): GpuOffer {
    const top = fn.sheet.gpus[this.number]!;
    if (top.smaller === undefined) return top;
    // What it shares is in all of its variants.
    const hasBaseAlone = slot?.base !== undefined && !slot.hasOwn;
    const resident = hasBaseAlone ? undefined : slot?.offer;
    if (resident !== undefined && isVariantOf(top, resident)) return resident;
    const { memory } = this;
    const freeBytes = memory.freeBytes + (hasBaseAlone ? top.prefixBytes[slot.prefix]! : 0);
    return this.#shared.variants.toLoad(fn, top, freeBytes, memory.attainableBytes(fn));
  }

  /**
   * Holds a function in memory or releases it, according to its current state. It is held while it runs, is being
   * loaded, or is resident with invocations waiting (unless turns are strictly in order). A waiting function that is
   * not whole is not held: if such functions held all of the memory, nothing could be loaded.
   */
  settle(slot: Slot): void {
    if (slot.base !== undefined || slot.fn.offerFor(this)?.shared !== undefined) this.#relink(slot);
    this.restage(slot);
    this.#keep(slot);
  }

  #keep(slot: Slot): void {
    const { memory } = this;
    const { fn, offer } = slot;
    if (offer === undefined) return;
    // What others have brought of it is no reason to keep it.
    const isPinned = !fn.isRemoved && fn.sheet.pinned && (slot.base === undefined || slot.isWhole);
    if (memory.setPinned(slot, isPinned)) this.#shared.pinnedOn.push(this);
    const isAwaited = this.#shared.sparesWaiting && slot.entry !== undefined && slot.isWhole && this.#isWanted(slot);
    if (this.isBusyWith(slot)) {
      memory.hold(slot);
    } else if (fn.isRemoved) {
      memory.drop(slot, 'unload');
    } else if (!isVariantOf(fn.offerFor(this), offer)) {
      memory.drop(slot, 'plan-changed');
    } else if (isPinned) {
      memory.hold(slot);
    } else if (isAwaited) {
      memory.hold(slot);
      this.awaited.add(slot);
      return;
    } else {
      memory.release(slot);
    }
    if (this.awaited.size > 0) this.awaited.delete(slot);
  }

  /** What it shares may be other layers now; it is told of here, and kept in mind where it has some of those before. */
  #relink(slot: Slot): void {
    if (this.link(slot) || this.isBusyWith(slot)) return;
    this.memory.drop(slot, slot.fn.isRemoved ? 'unload' : 'plan-changed');
    this.awaited.delete(slot);
    this.link(slot);
  }

  /** Whether a call on time, or the late call that was loaded for, needs these weights. */
  #isWanted({ entry }: Slot): boolean {
    return entry!.onTime.count > 0 || this.line.lateLoaded === entry;
  }
}

/** How long the GPU's own link would carry what is missing of a function. */
const linkMs = (slot: Slot, { ways }: GpuOffer): number => ways[ways.length - 1]!.transfers[0].ms[slot.keptPrefix]!;
