import { LinkLanes } from './links.ts';
import { GpuMemory, type MemoryListener, type SharedResidency } from './memory.ts';
import {
  isVariantOf,
  leastBytes,
  leastColdMs,
  leastWarmMs,
  wholeBytes,
  wholePrefix,
  type GpuOffer,
  type OfferSheet,
} from './offer.ts';
import type { Policy } from './policy.ts';
import { Popularity } from './learnt.ts';
import { Pressure } from './miss-cost.ts';
import { Variants } from './plan-variants.ts';
import { absent, Slots, type Load, type Slot } from './slots.ts';
import type { EvictionCause, HostTier, SchedulerGpu, Shell } from './types.ts';
import { IndexedHeap } from './heap.ts';
import { HostMemory } from './host-memory.ts';
import { Invocations, state, undecided } from './invocations.ts';
import { Line, stage } from './lines.ts';
import { grown, takeOut } from './columns.ts';
import { tuning } from './tuning.ts';

const { candidatesMax } = tuning.routing;

export const nobody = -1;

/** What the parts of the scheduler share: who waits, runs and is resident where. */
export class SchedulerState extends Invocations {
  readonly gpuCount: number;
  /** Whether a resident function stays as long as invocations wait for it. */
  readonly sparesWaiting: boolean;
  readonly links: LinkLanes;
  readonly pressure: Pressure;
  /** Undefined: everything is in host memory. */
  readonly host: HostMemory | undefined;
  readonly slots: Slots;
  readonly memories: readonly GpuMemory[];
  /** By GPU, its queue. */
  readonly lines: readonly Line[];
  readonly popularity = new Popularity();
  readonly shell: Shell;
  /** GPUs on which what is pinned has just changed. */
  readonly pinnedOn: number[] = [];

  /**
   * By GPU: the invocation that runs, and when it is expected to end.
   */
  readonly up: boolean[];
  readonly running: Int32Array;
  /** By GPU: the other invocations of a joined run, in order. They end with it. */
  readonly companions: number[][];
  readonly laneEndMs: Float64Array;
  /** GPUs by the wake that they asked for. */
  readonly wakes = new IndexedHeap();
  /** GPUs by when their lane and link will be free of what is there now; kept only where they are too many to weigh all. */
  readonly backlog = new IndexedHeap();
  /** By GPU: what is held for nothing else but that invocations wait for it. */
  readonly awaited: readonly Set<Slot>[];

  /** By function. */
  readonly sheets: (OfferSheet | undefined)[] = [];
  readonly variants = new Variants(this.sheets);
  #leastColdMs = new Float64Array(64);
  #leastWarmMs = new Float64Array(64);
  /** Functions that the columns have room for. */
  #functionRoom = 0;
  /** By GPU: a few at the most. */
  readonly loads: readonly Load[][];
  /** What a larger variant of these has more is on its way. */
  readonly growing = new Set<Slot>();

  constructor(gpus: readonly SchedulerGpu[], policy: Policy, shell: Shell, host?: HostTier) {
    super(policy);
    this.shell = shell;
    this.gpuCount = gpus.length;
    // A function that is loaded ahead must not be evicted before it has run, or two functions could evict each other
    // forever.
    this.sparesWaiting = policy.order === 'slo-first' || policy.loadAhead;
    this.links = new LinkLanes(gpus);
    this.pressure = new Pressure(gpus.length, this.links);
    this.slots = new Slots();
    this.host = host && this.#hostMemory(host);
    const { gpuCount, slots, sheets, popularity, variants, pressure } = this;
    const shared: SharedResidency = { slots, sheets, popularity, variants, pressure };
    this.memories = gpus.map(({ capacityBytes }, gpu) => {
      const listener: MemoryListener = {
        evicted: ({ functionIndex }: Slot, prefix: number, bytes: number, cause: EvictionCause): void => {
          shell.evict(functionIndex, gpu, prefix, bytes, cause);
        },
        shrunk: ({ functionIndex }: Slot, { plan }: GpuOffer, bytes: number): void => {
          variants.wasShrunk(functionIndex * gpuCount + gpu);
          shell.act({ kind: 'shrink', functionIndex, gpu, plan: plan!, bytes });
        },
        pinned: (functionIndex: number, by: 1 | -1): void => {
          // Less room in host memory concerns calls that wait on any GPU.
          if (this.host?.pin(functionIndex, by) === true) this.pinnedOn.push(...gpus.keys());
        },
        waiting: ({ entry }: Slot): number => (entry < 0 ? 0 : this.lines[gpu]!.waitingCount(entry)),
        cut: (slot: Slot): void => this.restage(slot),
      };
      return new GpuMemory(gpu, capacityBytes, policy.eviction, shared, listener);
    });
    this.lines = gpus.map(() => new Line(this.waitingColumns));
    this.wakes.grow(gpus.length);
    this.backlog.grow(gpus.length);
    if (gpus.length > candidatesMax) for (const gpu of gpus.keys()) this.backlog.add(gpu, 0);
    this.up = gpus.map(() => true);
    this.running = new Int32Array(gpus.length).fill(nobody);
    this.companions = gpus.map(() => []);
    this.laneEndMs = new Float64Array(gpus.length);
    this.awaited = gpus.map(() => new Set());
    this.loads = gpus.map(() => []);
  }

  growFunctions(count: number): void {
    while (this.sheets.length < count) this.sheets.push(undefined);
    this.popularity.grow(count);
    if (count <= this.#functionRoom) return;
    const room = Math.max(64, count, this.#functionRoom * 2);
    this.#functionRoom = room;
    this.#leastColdMs = grown(this.#leastColdMs, room);
    this.#leastWarmMs = grown(this.#leastWarmMs, room);
    this.slots.grow(room);
    this.host?.grow(room);
  }

  #hostMemory(tier: HostTier): HostMemory {
    const { shell } = this;
    return new HostMemory(tier, this.popularity, {
      sheetOf: (functionIndex) => this.sheets[functionIndex],
      isBusy: (functionIndex) => this.#isBusy(functionIndex),
      isInUse: (functionIndex) => this.#isInUse(functionIndex),
      isBehind: (functionIndex) => this.#isWaiting(functionIndex),
      isGone: (functionIndex) => {
        for (const slot of this.slotsOf(functionIndex)) this.restage(slot);
      },
      dropFromGpus: (functionIndex) => {
        for (const slot of this.slotsOf(functionIndex)) {
          this.memories[slot.gpu]!.drop(slot, 'host');
          this.awaited[slot.gpu]!.delete(slot);
        }
      },
      staged: (functionIndex, bytes) => shell.act({ kind: 'stage', functionIndex, bytes }),
      evicted: (functionIndex, bytes, cause) => shell.act({ kind: 'evict-host', functionIndex, bytes, cause }),
    });
  }

  /** Whether GPUs can be loaded with the function, without reading the disk first. */
  isInHostMemory(functionIndex: number): boolean {
    return this.host === undefined || this.host.has(functionIndex);
  }

  /** A function is new, or has another sheet. */
  setSheet(functionIndex: number, sheet: OfferSheet): void {
    this.sheets[functionIndex] = sheet;
    this.setCommon(sheet);
    this.#leastColdMs[functionIndex] = this.policy.loadAhead ? leastColdMs(sheet.gpus) : 0;
    this.#leastWarmMs[functionIndex] = leastWarmMs(sheet.gpus);
  }

  /** No GPU that has nothing of the function could answer sooner. Without loads ahead that is not known: 0. */
  leastColdMs(functionIndex: number): number {
    return this.#leastColdMs[functionIndex]!;
  }

  /** No GPU could answer sooner. */
  leastWarmMs(functionIndex: number): number {
    return this.#leastWarmMs[functionIndex]!;
  }

  /** The deadline of an invocation whose function is there still. */
  dueMsOf(invocation: number): number {
    return this.dueMs(invocation, this.sheets[this.functionOf[invocation]!]!);
  }

  /** A GPU has more or less to do than before. */
  backlogChanged(gpu: number): void {
    if (this.backlog.size === 0) return;
    const { runnableMs, loadableMs, linkMs } = this.lines[gpu]!;
    this.backlog.remove(gpu);
    this.backlog.add(gpu, Math.max(this.laneEndMs[gpu]!, this.links.freeMs(gpu)) + runnableMs + loadableMs + linkMs);
  }

  /** The run of a GPU is over. Returns the companions of its invocation. */
  endRun(gpu: number): readonly number[] {
    const ended = this.companions[gpu]!;
    this.running[gpu] = nobody;
    if (ended.length > 0) this.companions[gpu] = [];
    return ended;
  }

  /**
   * The GPU's run was lost. Returns its invocations, which run alone from now on: one that breaks a run takes its
   * companions along only once.
   */
  loseRun(gpu: number): number[] {
    const lost = [this.running[gpu]!, ...this.endRun(gpu)];
    for (const invocation of lost) this.setJoin(invocation, undefined);
    return lost;
  }

  endLoad(slot: Slot): void {
    takeOut(this.loads[slot.gpu]!, slot.load!);
    slot.load = undefined;
    this.slots.emptied(slot);
  }

  /** GPUs that have anything of a function, or where it waits: the lowest first. */
  slotsOf(functionIndex: number): Slot[] {
    const found: Slot[] = [];
    for (let slot = this.slots.first(functionIndex); slot !== undefined; slot = slot.next)
      if (slot.isHome) found.push(slot);
    return found;
  }

  /** Joins the line of a GPU. */
  enter(invocation: number, sheet: OfferSheet, slot: Slot): void {
    const { gpu } = slot;
    const line = this.lines[gpu]!;
    const sequence = this.sequence[invocation]!;
    if (slot.entry < 0) {
      const offer = this.offerOf(slot);
      slot.entry = line.open(slot, this.#stageOf(slot), offer, this.#linkMs(slot, offer));
    }
    this.invocationState[invocation] = state.waiting;
    this.gpuOf[invocation] = gpu;
    this.start[invocation] = undecided;
    const by = this.policy.order === 'fifo' ? sequence : this.dueMs(invocation, sheet);
    line.add(invocation, slot.entry, this.priorityOf(invocation, sheet), by, sequence);
    this.backlogChanged(gpu);
    // It is to stay. Others of it that are on time hold it already, and what is not there as a whole is not held.
    if (this.sparesWaiting && slot.isWhole && line.onTimeCount(slot.entry) === 1) this.#keep(slot);
  }

  /** Of an invocation that waits for a GPU or runs there. */
  slotOf(invocation: number): Slot {
    return this.slots.open(this.functionOf[invocation]!, this.gpuOf[invocation]!);
  }

  /** Out of the line. */
  leave(invocation: number): void {
    const slot = this.slotOf(invocation);
    if (this.lines[slot.gpu]!.remove(invocation, slot.entry)) {
      slot.entry = nobody;
      this.slots.emptied(slot);
    }
    this.backlogChanged(slot.gpu);
  }

  #isWaiting(functionIndex: number): boolean {
    for (let slot = this.slots.first(functionIndex); slot !== undefined; slot = slot.next)
      if (slot.entry >= 0) return true;
    return false;
  }

  #isBusy(functionIndex: number): boolean {
    return this.slotsOf(functionIndex).some((slot) => this.#isHeld(slot));
  }

  /** It runs, or something of it is on its way. */
  #isHeld(slot: Slot): boolean {
    const running = this.running[slot.gpu]!;
    if (running !== nobody && this.functionOf[running] === slot.functionIndex) return true;
    return slot.load !== undefined || (this.growing.size > 0 && this.growing.has(slot));
  }

  #isInUse(functionIndex: number): boolean {
    const isAwaited = this.policy.order === 'fifo' ? this.#isNext(functionIndex) : this.#isWaiting(functionIndex);
    return isAwaited || this.#isBusy(functionIndex);
  }

  /**
   * Where turns are strictly in order, a waiting function other than the next may be behind the one that wants the
   * room.
   */
  #isNext(functionIndex: number): boolean {
    return this.slotsOf(functionIndex).some(({ entry, gpu }) => {
      const next = entry < 0 ? nobody : this.lines[gpu]!.next();
      return next !== nobody && this.functionOf[next] === functionIndex;
    });
  }

  #stageOf(slot: Slot): number {
    if (slot.load !== undefined) return stage.loading;
    if (this.isResident(slot)) return stage.runnable;
    return this.isInHostMemory(slot.functionIndex) ? stage.loadable : stage.loading;
  }

  /** How long the GPU's own link would carry what is missing of a function. */
  #linkMs(slot: Slot, { ways }: GpuOffer): number {
    return ways[ways.length - 1]!.transfers[0].ms[this.keptPrefix(slot)]!;
  }

  canHold(functionIndex: number, sheet: OfferSheet, gpu: number): boolean {
    const offer = sheet.gpus[gpu];
    if (!offer || !this.up[gpu]! || this.host?.canHold(functionIndex, sheet) === false) return false;
    return leastBytes(offer) <= this.memories[gpu]!.attainableBytes(functionIndex);
  }

  /** To look at only. */
  slotAt(functionIndex: number, gpu: number): Readonly<Slot> {
    return this.slots.at(functionIndex, gpu) ?? absent;
  }

  /** The variant that the function has on a GPU that it can run on, or that a load would bring there now. */
  offerAt(functionIndex: number, gpu: number, { offer: resident } = this.slotAt(functionIndex, gpu)): GpuOffer {
    const top = this.sheets[functionIndex]!.gpus[gpu]!;
    if (top.smaller === undefined) return top;
    if (resident !== undefined && isVariantOf(top, resident)) return resident;
    const memory = this.memories[gpu]!;
    return this.variants.toLoad(functionIndex, top, memory.freeBytes, memory.attainableBytes(functionIndex));
  }

  offerOf(slot: Slot): GpuOffer {
    return this.offerAt(slot.functionIndex, slot.gpu, slot);
  }

  /** Whether all layers of a variant are there, for the plan as it is now, and none that a run needs on its way. */
  isResident(slot: Slot): boolean {
    const top = this.sheets[slot.functionIndex]?.gpus[slot.gpu];
    if (!top || slot.load !== undefined) return false;
    const resident = slot.offer;
    const offer = resident !== undefined && top.smaller !== undefined && isVariantOf(top, resident) ? resident : top;
    if (slot.prefix !== wholePrefix(offer)) return false;
    return resident === offer || wholeBytes(offer) === 0;
  }

  isResidentAt(functionIndex: number, gpu: number): boolean {
    return this.isResident(this.slots.open(functionIndex, gpu));
  }

  /** Whether what is there, or on its way, are layers of a plan that the function has no longer. */
  isStale({ functionIndex, gpu, offer }: Readonly<Slot>): boolean {
    return offer !== undefined && !isVariantOf(this.sheets[functionIndex]?.gpus[gpu], offer);
  }

  /** What a load would find there: layers of a plan that the function has no longer go before it begins. */
  keptPrefix(slot: Readonly<Slot>): number {
    return slot.prefix > 0 && this.isStale(slot) ? 0 : slot.prefix;
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
    const { functionIndex, gpu, offer } = slot;
    if (offer === undefined) return;
    const memory = this.memories[gpu]!;
    const sheet = this.sheets[functionIndex];
    if (memory.setPinned(slot, sheet?.pinned ?? false)) this.pinnedOn.push(gpu);
    const isAwaited = this.sparesWaiting && slot.entry >= 0 && slot.isWhole && this.#isWanted(slot);
    if (this.#isHeld(slot)) {
      memory.hold(slot);
    } else if (sheet === undefined) {
      memory.drop(slot, 'unload');
    } else if (!isVariantOf(sheet.gpus[gpu], offer)) {
      memory.drop(slot, 'plan-changed');
    } else if (sheet.pinned) {
      memory.hold(slot);
    } else if (isAwaited) {
      memory.hold(slot);
      this.awaited[gpu]!.add(slot);
      return;
    } else {
      memory.release(slot);
    }
    if (this.awaited[gpu]!.size > 0) this.awaited[gpu]!.delete(slot);
  }

  /**
   * Whether something waits that the function has to stay for: what is late has to be loaded for once more if need be.
   */
  #isWanted({ entry, gpu }: Slot): boolean {
    const line = this.lines[gpu]!;
    return line.onTimeCount(entry) > 0 || line.lateLoaded === entry;
  }

  /** Brings the line up to date with what is there of a function. */
  restage(slot: Slot): void {
    if (slot.entry < 0 || !this.sheets[slot.functionIndex]?.gpus[slot.gpu]) return;
    const offer = this.offerOf(slot);
    this.lines[slot.gpu]!.setStage(slot.entry, this.#stageOf(slot), offer, this.#linkMs(slot, offer));
  }
}
