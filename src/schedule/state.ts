import { LinkLanes } from './links.ts';
import { GpuMemory, type MemoryListener, type SharedResidency } from './memory.ts';
import { leastColdMs, wholeBytes, wholePrefix, type ColdWay, type GpuOffer, type OfferSheet } from './offer.ts';
import type { Policy } from './policy.ts';
import { Popularity } from './learnt.ts';
import { Pressure } from './pressure.ts';
import { Residency } from './residents.ts';
import { isRungOf, leastBytes, Rungs } from './rungs.ts';
import type { Action, EvictionCause, HostTier, LoadOrder, SchedulerGpu } from './types.ts';
import { IndexedHeap } from './heap.ts';
import { HostMemory } from './host-memory.ts';
import { Invocations, state, undecided } from './invocations.ts';
import { Line, stage } from './lines.ts';
import { grownFloats, grownInts, GpuSets, takeOut } from './columns.ts';

export const nobody = -1;

/** A load in flight. */
export interface Load extends LoadOrder {
  readonly functionIndex: number;
  /** When an execution behind it could have ended with the links to itself. */
  readonly soonestMs: number;
}

/** What the parts of the scheduler share: who waits, runs and is resident where. */
export class SchedulerState extends Invocations {
  readonly gpuCount: number;
  /** Whether a function that is resident stays so as long as invocations wait for it. */
  readonly sparesWaiting: boolean;
  readonly links: LinkLanes;
  readonly pressure: Pressure;
  readonly host: HostMemory;
  readonly residency: Residency;
  readonly memories: readonly GpuMemory[];
  /** By GPU, what waits for it. */
  readonly lines: readonly Line[];
  readonly popularity = new Popularity();
  readonly rungs = new Rungs();
  /** Actions of the event at hand. */
  actions: Action[] = [];
  /** GPUs on which what is pinned has just changed. */
  readonly pinnedOn: number[] = [];

  /**
   * By GPU: the invocation that runs, and when it is expected to end.
   */
  readonly up: boolean[];
  readonly running: Int32Array;
  /** By GPU: the other invocations of a joined run, in their order. They end with it. */
  readonly companions: number[][];
  readonly laneEndMs: Float64Array;
  /** GPUs by the wake asked for. */
  readonly wakes = new IndexedHeap();
  /** By GPU: functions that are held for nothing else but that invocations wait for them. */
  readonly awaited: readonly Set<number>[];

  /** By function. */
  readonly sheets: (OfferSheet | undefined)[] = [];
  #leastColdMs = new Float64Array(64);
  /** Functions that the columns have room for. */
  #functionRoom = 0;
  /** Where each function waits. */
  readonly waitsAt: GpuSets;
  /** By function and GPU: the entry of the GPU's line, plus one; 0 where it does not wait. */
  #entries = new Int32Array(64);
  /** By GPU: a few at the most. */
  readonly loads: readonly Load[][];
  /** By function times GPUs, plus GPU: how what a larger rung has more is on its way. */
  readonly growing = new Map<number, ColdWay>();

  constructor(gpus: readonly SchedulerGpu[], policy: Policy, host?: HostTier) {
    super(policy);
    this.gpuCount = gpus.length;
    // What is loaded ahead must not be evicted again before it has run, or two functions could take turns for ever.
    this.sparesWaiting = policy.order === 'slo-first' || policy.loadAhead;
    this.links = new LinkLanes(gpus);
    this.pressure = new Pressure(gpus.length, this.links);
    this.residency = new Residency(gpus.length);
    this.host = new HostMemory(host, this.popularity, {
      sheetOf: (functionIndex) => this.sheets[functionIndex],
      isBusy: (functionIndex) => this.#isBusy(functionIndex),
      isInUse: (functionIndex) => this.#isInUse(functionIndex),
      isBehind: (functionIndex) => this.#isWaiting(functionIndex),
      isGone: (functionIndex) => {
        for (const gpu of this.gpusOf(functionIndex)) this.restage(functionIndex, gpu);
      },
      dropFromGpus: (functionIndex) => {
        for (const gpu of this.gpusOf(functionIndex)) {
          this.memories[gpu]!.drop(functionIndex, 'host');
          this.awaited[gpu]!.delete(functionIndex);
        }
      },
      staged: (functionIndex, bytes) => this.actions.push({ kind: 'stage', functionIndex, bytes }),
      evicted: (functionIndex, bytes, cause) => this.actions.push({ kind: 'evict-host', functionIndex, bytes, cause }),
    });
    const { gpuCount, residency, popularity, rungs, pressure } = this;
    const shared: SharedResidency = { residency, popularity, rungs, pressure };
    this.memories = gpus.map(({ capacityBytes }, gpu) => {
      const listener: MemoryListener = {
        evicted: (functionIndex: number, prefix: number, bytes: number, cause: EvictionCause): void => {
          this.actions.push({ kind: 'evict', functionIndex, gpu, prefix, bytes, cause });
        },
        shrunk: (functionIndex: number, { plan }: GpuOffer, bytes: number): void => {
          rungs.wasShrunk(functionIndex * gpuCount + gpu);
          this.actions.push({ kind: 'shrink', functionIndex, gpu, plan: plan!, bytes });
        },
        pinned: (functionIndex: number, by: 1 | -1): void => {
          // Less room in host memory is less for what waits anywhere.
          if (this.host.pin(functionIndex, by)) this.pinnedOn.push(...gpus.keys());
        },
        waiting: (functionIndex: number): number => {
          const entry = this.entryAt(functionIndex, gpu);
          return entry < 0 ? 0 : this.lines[gpu]!.waitingCount(entry);
        },
        cut: (functionIndex: number): void => this.restage(functionIndex, gpu),
      };
      return new GpuMemory(gpu, capacityBytes, policy.eviction, shared, listener);
    });
    this.lines = gpus.map(() => new Line(this.waitingColumns));
    this.waitsAt = new GpuSets(gpus.length);
    this.wakes.grow(gpus.length);
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
    this.#leastColdMs = grownFloats(this.#leastColdMs, room);
    this.#entries = grownInts(this.#entries, room * this.gpuCount);
    this.waitsAt.grow(room);
    this.residency.grow(room);
    this.host.grow(room);
  }

  /** A function is new, or has another sheet. */
  setSheet(functionIndex: number, sheet: OfferSheet): void {
    this.sheets[functionIndex] = sheet;
    this.rungs.setSlo(functionIndex, sheet.sloMs);
    this.setCommon(sheet);
    this.#leastColdMs[functionIndex] = this.policy.loadAhead ? leastColdMs(sheet.gpus) : 0;
  }

  /** No GPU that has nothing of the function could answer sooner. Without loads ahead that is not known: 0. */
  leastColdMs(functionIndex: number): number {
    return this.#leastColdMs[functionIndex]!;
  }

  /** The deadline of an invocation whose function is there still. */
  dueMsOf(invocation: number): number {
    return this.dueMs(invocation, this.sheets[this.functionOf[invocation]!]!);
  }

  /** The run of a GPU is over. Returns the companions of its invocation. */
  endRun(gpu: number): readonly number[] {
    const ended = this.companions[gpu]!;
    this.running[gpu] = nobody;
    if (ended.length > 0) this.companions[gpu] = [];
    return ended;
  }

  /**
   * The run of a GPU was lost. Returns its invocations, which run alone from now on: one that spoils a run
   * takes others along once.
   */
  loseRun(gpu: number): number[] {
    const lost = [this.running[gpu]!, ...this.endRun(gpu)];
    for (const invocation of lost) this.setJoin(invocation, undefined);
    return lost;
  }

  /** The load of a function that is under way to a GPU. */
  loadOf(functionIndex: number, gpu: number): Load | undefined {
    const loads = this.loads[gpu]!;
    for (let index = 0; index < loads.length; index++) {
      if (loads[index]!.functionIndex === functionIndex) return loads[index];
    }
    return undefined;
  }

  endLoad(load: Load, gpu: number): void {
    takeOut(this.loads[gpu]!, load);
  }

  /** GPUs that have anything of a function, or where it waits. */
  gpusOf(functionIndex: number): number[] {
    return this.residency.homes.union(functionIndex, this.waitsAt);
  }

  /** The entry of a function in a GPU's line, or -1. */
  entryAt(functionIndex: number, gpu: number): number {
    return this.#entries[functionIndex * this.gpuCount + gpu]! - 1;
  }

  /** Joins the line of a GPU. */
  enter(invocation: number, sheet: OfferSheet, gpu: number): void {
    const functionIndex = this.functionOf[invocation]!;
    const slot = functionIndex * this.gpuCount + gpu;
    const line = this.lines[gpu]!;
    const sequence = this.sequence[invocation]!;
    let entry = this.#entries[slot]! - 1;
    if (entry < 0) {
      const offer = this.offerAt(functionIndex, gpu);
      entry = line.open(functionIndex, this.#stageOf(functionIndex, gpu), offer, this.#linkMs(functionIndex, gpu));
      this.#entries[slot] = entry + 1;
      this.waitsAt.add(functionIndex, gpu);
    }
    this.invocationState[invocation] = state.waiting;
    this.gpuOf[invocation] = gpu;
    this.start[invocation] = undecided;
    const by = this.policy.order === 'fifo' ? sequence : this.dueMs(invocation, sheet);
    line.add(invocation, entry, this.priorityOf(invocation, sheet), by, sequence);
    // Others of it that are on time hold it already.
    if (this.sparesWaiting && line.onTimeCount(entry) === 1) this.#keep(functionIndex, gpu);
  }

  /** Out of the line. */
  leave(invocation: number): void {
    const gpu = this.gpuOf[invocation]!;
    const functionIndex = this.functionOf[invocation]!;
    const slot = functionIndex * this.gpuCount + gpu;
    if (!this.lines[gpu]!.remove(invocation, this.#entries[slot]! - 1)) return;
    this.#entries[slot] = 0;
    this.waitsAt.remove(functionIndex, gpu);
  }

  #isWaiting(functionIndex: number): boolean {
    for (let word = 0; word < this.waitsAt.words; word++) {
      if (this.waitsAt.word(functionIndex, word) !== 0) return true;
    }
    return false;
  }

  #isBusy(functionIndex: number): boolean {
    return this.gpusOf(functionIndex).some((gpu) => {
      const running = this.running[gpu]!;
      if (running !== nobody && this.functionOf[running] === functionIndex) return true;
      return this.loadOf(functionIndex, gpu) !== undefined || this.growing.has(functionIndex * this.gpuCount + gpu);
    });
  }

  #isInUse(functionIndex: number): boolean {
    const isAwaited = this.policy.order === 'fifo' ? this.#isNext(functionIndex) : this.#isWaiting(functionIndex);
    return isAwaited || this.host.isPinned(functionIndex) || this.#isBusy(functionIndex);
  }

  /** Where turns are strictly in order, what waits may be behind the one that wants the room, but for the next one. */
  #isNext(functionIndex: number): boolean {
    return this.gpusOf(functionIndex).some((gpu) => {
      const next = this.entryAt(functionIndex, gpu) < 0 ? nobody : this.lines[gpu]!.next();
      return next !== nobody && this.functionOf[next] === functionIndex;
    });
  }

  #stageOf(functionIndex: number, gpu: number): number {
    if (this.loadOf(functionIndex, gpu) !== undefined) return stage.loading;
    if (this.isResident(functionIndex, gpu)) return stage.runnable;
    return this.host.has(functionIndex) ? stage.loadable : stage.loading;
  }

  /** How long the GPU's own link would carry what is missing of a function. */
  #linkMs(functionIndex: number, gpu: number): number {
    const { ways } = this.offerAt(functionIndex, gpu);
    return ways[ways.length - 1]!.transfers[0].ms[this.keptPrefix(functionIndex, gpu)]!;
  }

  canHold(functionIndex: number, sheet: OfferSheet, gpu: number): boolean {
    const offer = sheet.gpus[gpu];
    if (!offer || !this.up[gpu]! || !this.host.canHold(functionIndex, sheet)) return false;
    return leastBytes(offer) <= this.memories[gpu]!.attainableBytes(functionIndex);
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
    if (!top || this.loadOf(functionIndex, gpu) !== undefined) return false;
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

  /** What a load would find there: layers of a plan that the function has no longer go before it begins. */
  keptPrefix(functionIndex: number, gpu: number): number {
    const prefix = this.memories[gpu]!.prefix(functionIndex);
    return prefix > 0 && this.isStale(functionIndex, gpu) ? 0 : prefix;
  }

  /**
   * Holds a function in memory or lets it go, as its state is now: held while it runs, is being loaded, or is resident
   * with invocations that wait for it (unless turns are strictly in order). One that waits and is not resident as a
   * whole is not held: if all of memory were held by such, nothing could be loaded.
   */
  settle(functionIndex: number, gpu: number): void {
    this.restage(functionIndex, gpu);
    this.#keep(functionIndex, gpu);
  }

  #keep(functionIndex: number, gpu: number): void {
    const memory = this.memories[gpu]!;
    const resident = memory.offer(functionIndex);
    if (resident === undefined) return;
    const slot = functionIndex * this.gpuCount + gpu;
    const running = this.running[gpu]!;
    const sheet = this.sheets[functionIndex];
    if (memory.setPinned(functionIndex, sheet?.pinned ?? false)) this.pinnedOn.push(gpu);
    const isAwaited =
      this.sparesWaiting && this.#isWanted(slot, gpu) && memory.prefix(functionIndex) === wholePrefix(resident);
    if (
      (running !== nobody && this.functionOf[running] === functionIndex) ||
      this.loadOf(functionIndex, gpu) !== undefined ||
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

  /**
   * Whether something waits that the function has to stay for: what is late has to be loaded for once more if need be.
   */
  #isWanted(slot: number, gpu: number): boolean {
    const entry = this.#entries[slot]! - 1;
    if (entry < 0) return false;
    const line = this.lines[gpu]!;
    return line.onTimeCount(entry) > 0 || line.lateLoaded === entry;
  }

  /** Brings the line up to date with what is there of a function. */
  restage(functionIndex: number, gpu: number): void {
    const entry = this.#entries[functionIndex * this.gpuCount + gpu]! - 1;
    if (entry < 0 || !this.sheets[functionIndex]?.gpus[gpu]) return;
    const offer = this.offerAt(functionIndex, gpu);
    this.lines[gpu]!.setStage(entry, this.#stageOf(functionIndex, gpu), offer, this.#linkMs(functionIndex, gpu));
  }
}
