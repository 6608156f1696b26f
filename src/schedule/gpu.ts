import type { GpuId } from './ids.ts';
import { takeOut } from './columns.ts';
import type { ServedFunction } from './function.ts';
import type { Invocation } from './invocation.ts';
import { Line, type Entry, type Stage } from './lines.ts';
import { GpuMemory, type MemoryListener, type SharedResidency } from './memory.ts';
import { isVariantOf, leastBytes, wholeBytes, wholePrefix, type GpuOffer, type LoadOption } from './offer.ts';
import type { Orders } from './orders.ts';
import type { Policy } from './policy.ts';
import { Resident } from './residents.ts';
import type { EvictionCause, LoadOrder, SchedulerGpu } from './types.ts';

export const nobodyElse: readonly Invocation[] = [];

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
  /** Under way to the GPU. */
  load: Load | undefined = undefined;
  /** How what a larger variant has more is on its way. */
  growth: LoadOption | undefined = undefined;
  /** In the GPU's line, while something waits. */
  entry: Entry<Slot> | undefined = undefined;
  /** The function's slot on the next higher GPU where it has one. */
  next: Slot | undefined = undefined;

  constructor(fn: ServedFunction, gpu: Gpu) {
    super(fn);
    this.gpu = gpu;
  }

  /** Something of the function is there, or waits there. */
  get isHome(): boolean {
    return this.prefix > 0 || this.entry !== undefined;
  }

  get isEmpty(): boolean {
    return this.number < 0 && this.entry === undefined && this.load === undefined;
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
    if (!top || this.load !== undefined || this.fn.lacksExecuted) return false;
    const resident = this.offer;
    const offer = resident !== undefined && top.smaller !== undefined && isVariantOf(top, resident) ? resident : top;
    if (this.prefix !== wholePrefix(offer)) return false;
    return resident === offer || wholeBytes(offer) === 0;
  }

  /** Whether what is there, or on its way, are layers of a plan that the function has no longer. */
  get isStale(): boolean {
    return this.offer !== undefined && !isVariantOf(this.fn.offerFor(this.gpu), this.offer);
  }

  /** What a load would find there: layers of a plan that the function has no longer go before it begins. */
  get keptPrefix(): number {
    return this.prefix > 0 && this.isStale ? 0 : this.prefix;
  }
}

/** What all GPUs share. */
interface Shared extends SharedResidency {
  readonly policy: Policy;
  readonly orders: Orders;
  readonly gpus: readonly Gpu[];
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

  evicted({ fn }: Slot, prefix: number, bytes: number, cause: EvictionCause): void {
    this.#shared.orders.add({ kind: 'evict', functionIndex: fn.number, gpu: this.number, prefix, bytes, cause });
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

  waiting({ entry }: Slot): number {
    return entry?.count ?? 0;
  }

  cut(slot: Slot): void {
    this.#shared.host?.moved(slot.fn);
    this.restage(slot);
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

  endLoad(slot: Slot): void {
    takeOut(this.loading, slot);
    slot.load = undefined;
    this.#shared.slots.emptied(slot);
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
    if (slot.load !== undefined) return 'loading';
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
    const resident = slot?.offer;
    if (resident !== undefined && isVariantOf(top, resident)) return resident;
    const { memory } = this;
    return this.#shared.variants.toLoad(fn, top, memory.freeBytes, memory.attainableBytes(fn));
  }

  /**
   * Holds a function in memory or releases it, according to its current state. It is held while it runs, is being
   * loaded, or is resident with invocations waiting (unless turns are strictly in order). A waiting function that is
   * not whole is not held: if such functions held all of the memory, nothing could be loaded.
   */
  settle(slot: Slot): void {
    this.restage(slot);
    this.#keep(slot);
  }

  #keep(slot: Slot): void {
    const { fn, offer } = slot;
    if (offer === undefined) return;
    const { memory } = this;
    const isPinned = !fn.isRemoved && fn.sheet.pinned;
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

  /** Whether a call on time, or the late call that was loaded for, needs these weights. */
  #isWanted({ entry }: Slot): boolean {
    return entry!.onTime.count > 0 || this.line.lateLoaded === entry;
  }
}

/** How long the GPU's own link would carry what is missing of a function. */
const linkMs = (slot: Slot, { ways }: GpuOffer): number => ways[ways.length - 1]!.transfers[0].ms[slot.keptPrefix]!;
