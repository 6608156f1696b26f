import { LinkLanes } from './links.ts';
import { CopyCounts, GpuMemory, Prefixes, type MemoryListener, type SharedResidency } from './memory.ts';
import { wholeBytes, wholePrefix, type ColdWay, type GpuOffer, type OfferSheet } from './offer.ts';
import type { Policy } from './policy.ts';
import { Popularity } from './popularity.ts';
import { isRungOf, leastBytes, Rungs } from './rungs.ts';
import type { Action, EvictionCause, LoadOrder, SchedulerGpu } from './types.ts';
import { grownFloats, grownInts, WaitingLists } from './waiting.ts';

export const nobody = -1;

/** Where an invocation is. */
export const state = { ended: 0, waiting: 1, running: 2, offloaded: 3 } as const;

/** What an invocation's function had on the GPU: as `starts` of dispatch.ts, or this until something is done for it. */
export const undecided = -1;

/** A load in flight. */
export interface Load extends LoadOrder {
  /** From when on an execution behind it would take no longer than a warm one. */
  readonly hiddenFromMs: number;
}

/**
 * What the parts of the scheduler share: who waits, runs and is resident where. Columns by number instead of objects, since
 * an event touches few of many.
 */
export class SchedulerState {
  readonly policy: Policy;
  readonly gpuCount: number;
  /** Whether a function that is resident stays so as long as invocations wait for it. */
  readonly sparesWaiting: boolean;
  readonly links: LinkLanes;
  readonly prefixes: Prefixes;
  readonly memories: readonly GpuMemory[];
  readonly waiting: WaitingLists;
  readonly popularity = new Popularity();
  readonly rungs = new Rungs();
  readonly #copies = new CopyCounts();
  /** Actions of the event at hand. */
  actions: Action[] = [];
  /** GPUs on which what is pinned has just changed. */
  readonly pinnedOn: number[] = [];

  /**
   * By GPU: the invocation that runs, when it is expected to end, the milliseconds of what waits and of that what could
   * run at once, and the wake asked for.
   */
  readonly up: boolean[];
  readonly running: Int32Array;
  readonly laneEndMs: Float64Array;
  readonly waitingMs: Float64Array;
  readonly readyMs: Float64Array;
  readonly wakeMs: Float64Array;
  /** By GPU: functions that are held for nothing else but that invocations wait for them. */
  readonly awaited: readonly Set<number>[];

  /** By function. */
  readonly sheets: (OfferSheet | undefined)[] = [];
  /** By function and GPU; of `readyMs` what is counted for it in the GPU's. */
  waitingCount = new Int32Array(64);
  #countedMs = new Float64Array(64);
  readonly loads: (Load | undefined)[] = [];
  /** By function times GPUs, plus GPU: how what a larger rung has more is on its way. */
  readonly growing = new Map<number, ColdWay>();

  /** By invocation. */
  invocationState = new Int32Array(64);
  functionOf = new Int32Array(64);
  gpuOf = new Int32Array(64);
  start = new Int32Array(64);
  arrivalMs = new Float64Array(64);
  sequence = new Float64Array(64);
  #expectedMs = new Float64Array(64);
  /** NaN: the function's. */
  #ownSloMs = new Float64Array(64);
  #ownPriority = new Float64Array(64);

  constructor(gpus: readonly SchedulerGpu[], policy: Policy) {
    this.policy = policy;
    this.gpuCount = gpus.length;
    // What is loaded ahead must not be evicted again before it has run, or two functions could take turns for ever.
    this.sparesWaiting = policy.order === 'resident-first' || policy.loadAhead;
    this.links = new LinkLanes(gpus);
    this.prefixes = new Prefixes(gpus.length);
    const { gpuCount, prefixes, popularity, rungs } = this;
    const shared: SharedResidency = { gpuCount, prefixes, popularity, rungs, copies: this.#copies };
    this.memories = gpus.map(({ capacityBytes }, gpu) => {
      const listener: MemoryListener = {
        evicted: (functionIndex: number, prefix: number, bytes: number, cause: EvictionCause): void => {
          this.actions.push({ kind: 'evict', functionIndex, gpu, prefix, bytes, cause });
        },
        shrunk: (functionIndex: number, { plan }: GpuOffer, bytes: number): void => {
          rungs.wasShrunk(functionIndex * gpuCount + gpu);
          this.actions.push({ kind: 'shrink', functionIndex, gpu, plan: plan!, bytes });
        },
      };
      return new GpuMemory(gpu, capacityBytes, policy.eviction, shared, listener);
    });
    this.waiting = new WaitingLists(gpus.length);
    this.up = gpus.map(() => true);
    this.running = new Int32Array(gpus.length).fill(nobody);
    this.laneEndMs = new Float64Array(gpus.length);
    this.waitingMs = new Float64Array(gpus.length);
    this.readyMs = new Float64Array(gpus.length);
    this.wakeMs = new Float64Array(gpus.length).fill(Infinity);
    this.awaited = gpus.map(() => new Set());
  }

  growFunctions(count: number): void {
    while (this.sheets.length < count) this.sheets.push(undefined);
    while (this.loads.length < count * this.gpuCount) this.loads.push(undefined);
    this.waitingCount = grownInts(this.waitingCount, count * this.gpuCount);
    this.#countedMs = grownFloats(this.#countedMs, count * this.gpuCount);
    this.prefixes.grow(count);
    this.#copies.grow(count);
    this.popularity.grow(count);
    for (const memory of this.memories) memory.grow(count);
  }

  growInvocations(count: number): void {
    this.invocationState = grownInts(this.invocationState, count);
    this.functionOf = grownInts(this.functionOf, count);
    this.gpuOf = grownInts(this.gpuOf, count);
    this.start = grownInts(this.start, count);
    this.arrivalMs = grownFloats(this.arrivalMs, count);
    this.sequence = grownFloats(this.sequence, count);
    this.#expectedMs = grownFloats(this.#expectedMs, count);
    this.#ownSloMs = grownFloats(this.#ownSloMs, count);
    this.#ownPriority = grownFloats(this.#ownPriority, count);
    this.waiting.grow(this.invocationState.length);
  }

  /** What an invocation asks for itself; NaN: what its function does. */
  setOwn(invocation: number, sloMs: number, priority: number): void {
    this.#ownSloMs[invocation] = sloMs;
    this.#ownPriority[invocation] = priority;
  }

  /** When an invocation has to be answered. */
  deadlineMs(invocation: number, { sloMs }: OfferSheet): number {
    const own = this.#ownSloMs[invocation]!;
    return this.arrivalMs[invocation]! + (Number.isNaN(own) ? sloMs : own);
  }

  enter(invocation: number, sheet: OfferSheet, gpu: number): void {
    const own = this.#ownPriority[invocation]!;
    const priority = Number.isNaN(own) ? sheet.priority : own;
    const functionIndex = this.functionOf[invocation]!;
    const slot = functionIndex * this.gpuCount + gpu;
    const offer = this.offerAt(functionIndex, gpu);
    const { loadAhead } = this.policy;
    let expectedMs = offer.warmMs;
    if (!loadAhead && this.waitingCount[slot] === 0 && this.loads[slot] === undefined) {
      expectedMs = offer.ways[0].coldMs[this.memories[gpu]!.prefix(functionIndex)] ?? offer.warmMs;
    }
    this.invocationState[invocation] = state.waiting;
    this.gpuOf[invocation] = gpu;
    this.start[invocation] = undecided;
    this.#expectedMs[invocation] = expectedMs;
    this.waitingMs[gpu]! += expectedMs;
    this.waitingCount[slot]!++;
    this.waiting.add(gpu, invocation, priority, this.sequence[invocation]!);
    if (this.sparesWaiting) this.settle(functionIndex, gpu);
  }

  /** Out of the waiting list. */
  leave(invocation: number): void {
    const gpu = this.gpuOf[invocation]!;
    this.waiting.remove(gpu, invocation);
    this.waitingCount[this.functionOf[invocation]! * this.gpuCount + gpu]!--;
    this.waitingMs[gpu]! -= this.#expectedMs[invocation]!;
    if (this.waiting.counts[gpu] === 0) this.waitingMs[gpu] = 0;
    this.countReady(this.functionOf[invocation]!, gpu);
  }

  canHold(functionIndex: number, sheet: OfferSheet, gpu: number): boolean {
    const offer = sheet.gpus[gpu];
    return !!offer && this.up[gpu]! && leastBytes(offer) <= this.memories[gpu]!.attainableBytes(functionIndex);
  }

  /** The rung that the function has on a GPU that it can run on, or that a load would bring there now. */
  offerAt(functionIndex: number, gpu: number): GpuOffer {
    const top = this.sheets[functionIndex]!.gpus[gpu]!;
    if (top.smaller === undefined) return top;
    const memory = this.memories[gpu]!;
    const resident = memory.offer(functionIndex);
    if (resident !== undefined && isRungOf(top, resident)) return resident;
    return this.rungs.toLoad(functionIndex, top, memory.freeBytes, memory.attainableBytes(functionIndex));
  }

  /** Whether all layers of a rung are there, for the plan as it is now, and none that a run needs on its way. */
  isResident(functionIndex: number, gpu: number): boolean {
    const top = this.sheets[functionIndex]?.gpus[gpu];
    if (!top || this.loads[functionIndex * this.gpuCount + gpu] !== undefined) return false;
    const memory = this.memories[gpu]!;
    const resident = memory.offer(functionIndex);
    const offer = resident !== undefined && top.smaller !== undefined && isRungOf(top, resident) ? resident : top;
    if (memory.prefix(functionIndex) !== wholePrefix(offer)) return false;
    return resident === offer || wholeBytes(offer) === 0;
  }

  /** Whether what is there, or on its way, are layers of a plan that the function has no longer. */
  isStale(functionIndex: number, gpu: number): boolean {
    const resident = this.memories[gpu]!.offer(functionIndex);
    return resident !== undefined && !isRungOf(this.sheets[functionIndex]?.gpus[gpu], resident);
  }

  /**
   * Holds a function in memory or lets it go, as its state is now: held while it runs, is being loaded, or is resident
   * with invocations that wait for it (unless turns are strictly in order). One that waits and is not resident as a whole
   * is not held: if all of memory were held by such, nothing could be loaded.
   */
  settle(functionIndex: number, gpu: number): void {
    this.countReady(functionIndex, gpu);
    const memory = this.memories[gpu]!;
    const resident = memory.offer(functionIndex);
    if (resident === undefined) return;
    const slot = functionIndex * this.gpuCount + gpu;
    const running = this.running[gpu]!;
    const sheet = this.sheets[functionIndex];
    if (memory.setPinned(functionIndex, sheet?.pinned ?? false)) this.pinnedOn.push(gpu);
    const isAwaited =
      this.sparesWaiting && this.waitingCount[slot]! > 0 && memory.prefix(functionIndex) === wholePrefix(resident);
    if (
      (running !== nobody && this.functionOf[running] === functionIndex) ||
      this.loads[slot] !== undefined ||
      (this.growing.size > 0 && this.growing.has(slot))
    ) {
      memory.hold(functionIndex);
    } else if (sheet === undefined) {
      memory.drop(functionIndex, 'unload');
    } else if (!isRungOf(sheet.gpus[gpu], resident)) {
      memory.drop(functionIndex, 'plan-changed');
    } else if (sheet.pinned) {
      memory.hold(functionIndex);
    } else if (isAwaited) {
      memory.hold(functionIndex);
      this.awaited[gpu]!.add(functionIndex);
      return;
    } else {
      memory.release(functionIndex);
    }
    if (this.awaited[gpu]!.size > 0) this.awaited[gpu]!.delete(functionIndex);
  }

  /** Brings what is counted as ready up to date for a function. */
  countReady(functionIndex: number, gpu: number): void {
    const slot = functionIndex * this.gpuCount + gpu;
    const count = this.waitingCount[slot]!;
    const counted = this.#countedMs[slot]!;
    if (count === 0 && counted === 0) return;
    let readyMs = 0;
    if (count > 0 && this.isResident(functionIndex, gpu)) {
      readyMs = count * this.offerAt(functionIndex, gpu).warmMs;
    }
    this.#countedMs[slot] = readyMs;
    this.readyMs[gpu] = this.waiting.counts[gpu] === 0 ? 0 : this.readyMs[gpu]! + readyMs - counted;
  }
}
