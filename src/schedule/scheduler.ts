import { CopyCounts, GpuMemory } from './memory.ts';
import { LinkLanes } from './links.ts';
import { wholeBytes, wholePrefix, type ColdWay, type GpuOffer, type OfferSheet } from './offer.ts';
import type { Policy } from './policy.ts';
import { Popularity } from './popularity.ts';
import type { Action, EvictionCause, LoadOrder, SchedulerEvent, SchedulerGpu, Start } from './types.ts';
import { grownFloats, grownInts, WaitingLists } from './waiting.ts';

export interface SchedulerOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  /** Cores that offloaded invocations share. */
  readonly cpuCores: number;
}

const nobody = -1;
/** How far down a GPU's waiting list the scheduler looks for something to run or to load: keeps an overload linear. */
const lookahead = 32;

/** Where an invocation is. */
const state = { ended: 0, waiting: 1, running: 2, offloaded: 3 } as const;
/** What a waiting invocation's function had on the GPU; `undecided` until something is done for it. */
const starts: readonly Start[] = ['warm', 'partial', 'cold'];
const undecided = -1;

/**
 * Decides where and when each invocation runs, what is loaded for it and what goes. Pure in the sense of the design: no
 * clock, no promise, no process. Events come with their time, which never goes back, and actions go out; whoever carries
 * them out tells how they ended. The same events give the same actions.
 *
 * Each GPU executes one invocation at a time. Each PCIe link carries loads in the order in which they were ordered.
 */
export class Scheduler {
  readonly #policy: Policy;
  /** Whether a function that is resident stays so as long as invocations wait for it. */
  readonly #sparesWaiting: boolean;
  readonly #gpuCount: number;
  readonly #cpuCores: number;
  readonly #links: LinkLanes;
  readonly #copies = new CopyCounts();
  readonly #popularity = new Popularity();
  readonly #memories: readonly GpuMemory[];
  readonly #waiting: WaitingLists;
  readonly #up: boolean[];
  /** A GPU on which something has just been pinned, or -1. */
  #pinnedOn = nobody;
  /** Actions of the event at hand. */
  #actions: Action[] = [];
  #arrivals = 0;
  /** GPUs to turn to, while the event at hand is a load's end. */
  readonly #freed: number[] = [];

  /**
   * By GPU: the invocation that runs, when it is expected to end, the milliseconds of what waits and of that what could
   * run at once, and the wake asked for.
   */
  readonly #running: Int32Array;
  readonly #laneEndMs: Float64Array;
  readonly #waitingMs: Float64Array;
  readonly #readyMs: Float64Array;
  readonly #wakeMs: Float64Array;

  /** By function. */
  readonly #sheets: (OfferSheet | undefined)[] = [];
  /** By function and GPU; of `readyMs` what is counted for it in the GPU's. */
  #waitingCount = new Int32Array(64);
  #countedMs = new Float64Array(64);
  readonly #loads: (Load | undefined)[] = [];

  /** By invocation. */
  #state = new Int32Array(64);
  #function = new Int32Array(64);
  #gpu = new Int32Array(64);
  #start = new Int32Array(64);
  #arrivalMs = new Float64Array(64);
  #sequence = new Float64Array(64);
  #expectedMs = new Float64Array(64);

  #busyCores = 0;
  /** Core milliseconds of offloaded invocations that have not ended. */
  #offloadedMs = 0;

  constructor({ gpus, policy, cpuCores }: SchedulerOptions) {
    this.#policy = policy;
    // What is loaded ahead must not be evicted again before it has run, or two functions could take turns for ever.
    this.#sparesWaiting = policy.order === 'resident-first' || policy.loadAhead;
    this.#gpuCount = gpus.length;
    this.#cpuCores = cpuCores;
    this.#links = new LinkLanes(gpus);
    this.#memories = gpus.map(({ capacityBytes }, gpu) => {
      const onEviction = (functionIndex: number, prefix: number, bytes: number, cause: EvictionCause): void => {
        this.#actions.push({ kind: 'evict', functionIndex, gpu, prefix, bytes, cause });
      };
      return new GpuMemory(capacityBytes, policy.eviction, this.#copies, this.#popularity, onEviction);
    });
    this.#waiting = new WaitingLists(gpus.length);
    this.#up = gpus.map(() => true);
    this.#running = new Int32Array(gpus.length).fill(nobody);
    this.#laneEndMs = new Float64Array(gpus.length);
    this.#waitingMs = new Float64Array(gpus.length);
    this.#readyMs = new Float64Array(gpus.length);
    this.#wakeMs = new Float64Array(gpus.length).fill(Infinity);
  }

  /** What is to be done now that this has happened, in order. Throws RangeError for an event that cannot be. */
  handle(event: SchedulerEvent, nowMs: number): readonly Action[] {
    this.#actions = [];
    switch (event.kind) {
      case 'arrival':
        this.#arrive(event.invocation, event.functionIndex, nowMs);
        break;
      case 'finished':
        this.#finish(event.invocation, nowMs);
        break;
      case 'loaded':
        this.#loaded(event.gpu, event.functionIndex, nowMs);
        break;
      case 'wake':
        this.#wake(nowMs);
        break;
      case 'departed':
        this.#depart(event.invocation, nowMs);
        break;
      case 'gpu-lost':
        this.#lose(event.gpu, nowMs);
        break;
      case 'gpu-back':
        this.#up[event.gpu] = true;
        this.#links.setUp(event.gpu, true);
        break;
      case 'function-added':
      case 'sheet-changed':
        this.#setSheet(event.functionIndex, event.sheet, nowMs);
        break;
      case 'function-removed':
        this.#removeFunction(event.functionIndex, nowMs);
        break;
    }
    while (this.#pinnedOn !== nobody) this.#displaceByPin(this.#pinnedOn, nowMs);
    return this.#actions;
  }

  /** Bytes of weights on a GPU, those on their way included. */
  residentBytes(gpu: number): number {
    return this.#memories[gpu]!.usedBytes;
  }

  /** How many layers of a function a GPU has, counted from the first, those on their way included. */
  residentPrefix(functionIndex: number, gpu: number): number {
    return this.#memories[gpu]!.prefix(functionIndex);
  }

  waitingCount(gpu: number): number {
    return this.#waiting.counts[gpu]!;
  }

  // --- events

  #arrive(invocation: number, functionIndex: number, nowMs: number): void {
    const sheet = this.#sheets[functionIndex];
    if (sheet === undefined) throw new RangeError(`there is no function ${functionIndex}`);
    if (invocation >= this.#state.length) this.#growInvocations(invocation + 1);
    if (this.#state[invocation] !== state.ended) throw new RangeError(`invocation ${invocation} has not ended yet`);
    this.#popularity.use(functionIndex);
    this.#function[invocation] = functionIndex;
    this.#arrivalMs[invocation] = nowMs;
    this.#sequence[invocation] = this.#arrivals++;
    this.#place(invocation, sheet, nowMs);
  }

  #finish(invocation: number, nowMs: number): void {
    const was = this.#state[invocation];
    if (was !== state.running && was !== state.offloaded) throw new RangeError(`invocation ${invocation} does not run`);
    this.#state[invocation] = state.ended;
    const functionIndex = this.#function[invocation]!;
    if (was === state.offloaded) {
      // As much as was added: the sheet may have changed meanwhile.
      this.#busyCores -= this.#gpu[invocation]!;
      this.#offloadedMs -= this.#expectedMs[invocation]!;
      return;
    }
    const gpu = this.#gpu[invocation]!;
    this.#running[gpu] = nobody;
    this.#settle(functionIndex, gpu);
    this.#dispatch(gpu, nowMs);
  }

  #loaded(gpu: number, functionIndex: number, nowMs: number): void {
    const slot = functionIndex * this.#gpuCount + gpu;
    const load = this.#loads[slot];
    if (load === undefined) throw new RangeError(`function ${functionIndex} is not being loaded to GPU ${gpu}`);
    this.#loads[slot] = undefined;
    this.#links.release(load.way);
    this.#settle(functionIndex, gpu);
    this.#dispatchFreed(gpu, load.way, nowMs);
  }

  #wake(nowMs: number): void {
    for (let gpu = 0; gpu < this.#gpuCount; gpu++) {
      if (this.#wakeMs[gpu]! > nowMs) continue;
      this.#wakeMs[gpu] = Infinity;
      this.#dispatch(gpu, nowMs);
    }
  }

  #depart(invocation: number, nowMs: number): void {
    if (this.#state[invocation] !== state.waiting) throw new RangeError(`invocation ${invocation} does not wait`);
    const gpu = this.#gpu[invocation]!;
    this.#leave(invocation);
    this.#state[invocation] = state.ended;
    this.#settle(this.#function[invocation]!, gpu);
    this.#dispatch(gpu, nowMs);
  }

  #lose(gpu: number, nowMs: number): void {
    this.#up[gpu] = false;
    this.#links.setUp(gpu, false);
    const displaced: number[] = [];
    for (const [slot, load] of this.#loads.entries()) {
      if (load === undefined) continue;
      const functionIndex = Math.floor(slot / this.#gpuCount);
      const primary = slot % this.#gpuCount;
      if (primary !== gpu && !load.way.transfers.some(({ link }) => link === gpu)) continue;
      this.#loads[slot] = undefined;
      this.#links.release(load.way);
      this.#actions.push({ kind: 'abandon', functionIndex, gpu: primary });
      const running = this.#running[primary]!;
      if (running !== nobody && this.#function[running] === functionIndex) {
        this.#running[primary] = nobody;
        displaced.push(running);
      }
      // What has arrived of it is not known: all of it counts as lost.
      this.#memories[primary]!.drop(functionIndex, 'gpu-lost');
    }
    const running = this.#running[gpu]!;
    if (running !== nobody) {
      this.#running[gpu] = nobody;
      this.#actions.push({ kind: 'abandon', functionIndex: this.#function[running]!, gpu });
      displaced.push(running);
    }
    for (const functionIndex of this.#sheets.keys()) this.#memories[gpu]!.drop(functionIndex, 'gpu-lost');
    for (let next = this.#waiting.first(gpu); next !== nobody; next = this.#waiting.first(gpu)) {
      this.#leave(next);
      displaced.push(next);
    }
    displaced.sort((a, b) => this.#sequence[a]! - this.#sequence[b]!);
    for (const invocation of displaced) {
      const sheet = this.#sheets[this.#function[invocation]!];
      this.#state[invocation] = state.ended;
      if (sheet === undefined) this.#actions.push({ kind: 'fail', invocation, reason: 'removed' });
      else this.#place(invocation, sheet, nowMs);
    }
    // Their lanes, their links or their memory may be free now.
    for (let other = 0; other < this.#gpuCount; other++) this.#dispatch(other, nowMs);
  }

  #setSheet(functionIndex: number, sheet: OfferSheet, nowMs: number): void {
    if (sheet.gpus.length !== this.#gpuCount) {
      throw new RangeError(`function ${functionIndex} has offers for ${sheet.gpus.length} GPUs, not ${this.#gpuCount}`);
    }
    if (functionIndex >= this.#sheets.length) this.#growFunctions(functionIndex + 1);
    this.#sheets[functionIndex] = sheet;
    const displaced: number[] = [];
    for (const [gpu, memory] of this.#memories.entries()) {
      const offer = sheet.gpus[gpu];
      const resident = memory.offer(functionIndex);
      if (resident !== undefined && resident !== offer) {
        if (offer && hasSameLayers(offer, resident)) memory.replaceOffer(functionIndex, offer);
        else this.#settle(functionIndex, gpu);
      }
      if (!this.#canHold(functionIndex, sheet, gpu)) displaced.push(...this.#takeWaiting(functionIndex, gpu));
      this.#settle(functionIndex, gpu);
      this.#dispatch(gpu, nowMs);
    }
    for (const invocation of displaced) this.#place(invocation, sheet, nowMs);
  }

  /** Takes a function's invocations out of a GPU's waiting list. */
  #takeWaiting(functionIndex: number, gpu: number): number[] {
    const taken: number[] = [];
    if (this.#waitingCount[functionIndex * this.#gpuCount + gpu] === 0) return taken;
    let next = this.#waiting.first(gpu);
    while (next !== nobody) {
      const invocation = next;
      next = this.#waiting.next(invocation);
      if (this.#function[invocation] !== functionIndex) continue;
      this.#leave(invocation);
      this.#state[invocation] = state.ended;
      taken.push(invocation);
    }
    return taken;
  }

  #removeFunction(functionIndex: number, nowMs: number): void {
    if (this.#sheets[functionIndex] === undefined) throw new RangeError(`there is no function ${functionIndex}`);
    this.#sheets[functionIndex] = undefined;
    for (let gpu = 0; gpu < this.#gpuCount; gpu++) {
      for (const invocation of this.#takeWaiting(functionIndex, gpu)) {
        this.#actions.push({ kind: 'fail', invocation, reason: 'removed' });
      }
      this.#settle(functionIndex, gpu);
      this.#dispatch(gpu, nowMs);
    }
  }

  // --- placement

  /** Puts an invocation where the policy wants it, and starts it there if it can start. */
  #place(invocation: number, sheet: OfferSheet, nowMs: number): void {
    const functionIndex = this.#function[invocation]!;
    const gpu = this.#route(functionIndex, sheet, nowMs);
    const { offload, admission } = this.#policy;
    const gpuEndMs = gpu === nobody ? Infinity : this.#predictEnd(functionIndex, sheet.gpus[gpu]!, gpu, nowMs);
    const deadlineMs = this.#arrivalMs[invocation]! + sheet.sloMs;
    if (sheet.cpu !== null && (gpu === nobody || offload !== 'never')) {
      const cpuEndMs = this.#predictCpuEnd(sheet.cpu, nowMs);
      const isBetter =
        offload === 'earliest-finish' ? cpuEndMs < gpuEndMs : gpuEndMs > deadlineMs && cpuEndMs <= deadlineMs;
      if (isBetter || (gpu === nobody && (admission === 'best-effort' || cpuEndMs <= deadlineMs))) {
        this.#offload(invocation, sheet.cpu);
        return;
      }
    }
    if (gpu === nobody) {
      if (sheet.cpu === null) this.#actions.push({ kind: 'fail', invocation, reason: 'nowhere' });
      else this.#actions.push({ kind: 'shed', invocation });
      return;
    }
    if (admission === 'shed' && gpuEndMs > deadlineMs) {
      this.#actions.push({ kind: 'shed', invocation });
      return;
    }
    this.#wait(invocation, sheet, gpu);
    this.#dispatch(gpu, nowMs);
    if (this.#state[invocation] === state.waiting) this.#actions.push({ kind: 'wait', invocation, gpu });
  }

  #offload(invocation: number, { latencyMs, cores }: NonNullable<OfferSheet['cpu']>): void {
    this.#state[invocation] = state.offloaded;
    this.#gpu[invocation] = cores;
    this.#expectedMs[invocation] = latencyMs * cores;
    this.#busyCores += cores;
    this.#offloadedMs += latencyMs * cores;
    this.#actions.push({ kind: 'offload', invocation, functionIndex: this.#function[invocation]! });
  }

  #predictCpuEnd({ latencyMs, cores }: NonNullable<OfferSheet['cpu']>, nowMs: number): number {
    const isFree = this.#busyCores + cores <= this.#cpuCores;
    return nowMs + latencyMs + (isFree ? 0 : this.#offloadedMs / this.#cpuCores);
  }

  /** The GPU that is to run it, or -1 when none can. */
  #route(functionIndex: number, sheet: OfferSheet, nowMs: number): number {
    if (this.#policy.routing === 'modulo') {
      for (let step = 0; step < this.#gpuCount; step++) {
        const gpu = (functionIndex + step) % this.#gpuCount;
        if (this.#canHold(functionIndex, sheet, gpu)) return gpu;
      }
      return nobody;
    }
    let home = nobody;
    let homeEndMs = Infinity;
    let other = nobody;
    let otherEndMs = Infinity;
    let otherRoom = -Infinity;
    for (let gpu = 0; gpu < this.#gpuCount; gpu++) {
      if (!this.#canHold(functionIndex, sheet, gpu)) continue;
      const memory = this.#memories[gpu]!;
      const offer = sheet.gpus[gpu]!;
      const endMs = this.#predictEnd(functionIndex, offer, gpu, nowMs);
      const isHome = memory.prefix(functionIndex) > 0 || this.#waitingCount[functionIndex * this.#gpuCount + gpu]! > 0;
      if (isHome) {
        if (endMs < homeEndMs) {
          home = gpu;
          homeEndMs = endMs;
        }
        continue;
      }
      // Room first: a load that evicts nothing costs nobody anything. Where there is none, the least loaded.
      const room = memory.freeBytes >= wholeBytes(offer) ? memory.freeBytes : 0;
      if (room > otherRoom || (room === otherRoom && endMs < otherEndMs)) {
        other = gpu;
        otherEndMs = endMs;
        otherRoom = room;
      }
    }
    if (home === nobody || other === nobody) return home === nobody ? other : home;
    return this.#isWorthCopy(sheet, home, other, nowMs) ? other : home;
  }

  /**
   * Whoever only looked for the earliest end would soon have every function everywhere, and room for few of them. A wait
   * for loads does not count as backlog either: a second copy would only have more to load.
   */
  #isWorthCopy({ gpus }: OfferSheet, home: number, other: number, nowMs: number): boolean {
    const { ways, warmMs } = gpus[other]!;
    const pendingLoads = (this.#waitingMs[other]! - this.#readyMs[other]!) / warmMs;
    const loadMs = (ways[0].coldMs[0]! - warmMs) * (1 + pendingLoads) + Math.max(0, this.#links.freeMs(other) - nowMs);
    const backlogMs = this.#backlogMs(home, nowMs) - this.#backlogMs(other, nowMs);
    return backlogMs > this.#policy.copyThreshold * loadMs;
  }

  /** What a GPU has to execute before an invocation that arrives now, loads left out. */
  #backlogMs(gpu: number, nowMs: number): number {
    const { loadAhead } = this.#policy;
    const running = this.#running[gpu]!;
    let leftMs = 0;
    if (running !== nobody) {
      const warmMs = this.#sheets[this.#function[running]!]?.gpus[gpu]?.warmMs ?? 0;
      leftMs = Math.min(warmMs, Math.max(0, this.#laneEndMs[gpu]! - nowMs));
    }
    return leftMs + (loadAhead ? this.#readyMs[gpu]! : this.#waitingMs[gpu]!);
  }

  /** When everything that waits for a GPU and could run at once would have been executed. */
  #readyLaneMs(gpu: number, nowMs: number): number {
    const { loadAhead } = this.#policy;
    return Math.max(nowMs, this.#laneEndMs[gpu]!) + (loadAhead ? this.#readyMs[gpu]! : this.#waitingMs[gpu]!);
  }

  /** Brings what is counted as ready up to date for a function. */
  #countReady(functionIndex: number, gpu: number): void {
    const slot = functionIndex * this.#gpuCount + gpu;
    const count = this.#waitingCount[slot]!;
    const counted = this.#countedMs[slot]!;
    if (count === 0 && counted === 0) return;
    let readyMs = 0;
    if (count > 0 && this.#isResident(functionIndex, gpu)) {
      readyMs = count * this.#sheets[functionIndex]!.gpus[gpu]!.warmMs;
    }
    this.#countedMs[slot] = readyMs;
    this.#readyMs[gpu] = this.#waiting.counts[gpu] === 0 ? 0 : this.#readyMs[gpu]! + readyMs - counted;
  }

  #canHold(functionIndex: number, sheet: OfferSheet, gpu: number): boolean {
    const offer = sheet.gpus[gpu];
    return !!offer && this.#up[gpu]! && wholeBytes(offer) <= this.#memories[gpu]!.attainableBytes(functionIndex);
  }

  /** When an invocation that joined this GPU now would end. */
  #predictEnd(functionIndex: number, offer: GpuOffer, gpu: number, nowMs: number): number {
    const laneMs = this.#readyLaneMs(gpu, nowMs);
    const load = this.#loads[functionIndex * this.#gpuCount + gpu];
    if (load !== undefined) return Math.max(laneMs + offer.warmMs, load.readyMs);
    const prefix = this.#memories[gpu]!.prefix(functionIndex);
    if (prefix === wholePrefix(offer)) return laneMs + offer.warmMs;
    const [way] = offer.ways;
    if (!this.#policy.loadAhead) return Math.max(laneMs, this.#links.freeMs(gpu)) + way.coldMs[prefix]!;
    return Math.max(laneMs + offer.warmMs, Math.max(nowMs, this.#links.freeMs(gpu)) + way.coldMs[prefix]!);
  }

  // --- waiting and running

  #wait(invocation: number, { gpus, priority }: OfferSheet, gpu: number): void {
    const functionIndex = this.#function[invocation]!;
    const slot = functionIndex * this.#gpuCount + gpu;
    const offer = gpus[gpu]!;
    const { loadAhead } = this.#policy;
    let expectedMs = offer.warmMs;
    if (!loadAhead && this.#waitingCount[slot] === 0 && this.#loads[slot] === undefined) {
      expectedMs = offer.ways[0].coldMs[this.#memories[gpu]!.prefix(functionIndex)] ?? offer.warmMs;
    }
    this.#state[invocation] = state.waiting;
    this.#gpu[invocation] = gpu;
    this.#start[invocation] = undecided;
    this.#expectedMs[invocation] = expectedMs;
    this.#waitingMs[gpu]! += expectedMs;
    this.#waitingCount[slot]!++;
    this.#waiting.add(gpu, invocation, priority, this.#sequence[invocation]!);
    if (this.#sparesWaiting) {
      this.#settle(functionIndex, gpu);
      this.#memories[gpu]!.touch(functionIndex);
    }
  }

  /** Out of the waiting list. */
  #leave(invocation: number): void {
    const gpu = this.#gpu[invocation]!;
    this.#waiting.remove(gpu, invocation);
    this.#waitingCount[this.#function[invocation]! * this.#gpuCount + gpu]!--;
    this.#waitingMs[gpu]! -= this.#expectedMs[invocation]!;
    if (this.#waiting.counts[gpu] === 0) this.#waitingMs[gpu] = 0;
    this.#countReady(this.#function[invocation]!, gpu);
  }

  /** Whether all layers are there, for the plan as it is now, and none on its way. */
  #isResident(functionIndex: number, gpu: number): boolean {
    const offer = this.#sheets[functionIndex]?.gpus[gpu];
    if (!offer || this.#loads[functionIndex * this.#gpuCount + gpu] !== undefined) return false;
    const memory = this.#memories[gpu]!;
    if (memory.prefix(functionIndex) !== wholePrefix(offer)) return false;
    return memory.offer(functionIndex) === offer || wholeBytes(offer) === 0;
  }

  /** Whether what is there, or on its way, are layers of a plan that the function has no longer. */
  #isStale(functionIndex: number, gpu: number): boolean {
    const resident = this.#memories[gpu]!.offer(functionIndex);
    return resident !== undefined && resident !== this.#sheets[functionIndex]?.gpus[gpu];
  }

  /**
   * Holds a function in memory or lets it go, as its state is now: held while it runs, is being loaded, or is resident
   * with invocations that wait for it (unless turns are strictly in order). One that waits and is not resident as a whole is not held: if all of memory were
   * held by such, nothing could be loaded.
   */
  #settle(functionIndex: number, gpu: number): void {
    this.#countReady(functionIndex, gpu);
    const memory = this.#memories[gpu]!;
    const resident = memory.offer(functionIndex);
    if (resident === undefined) return;
    const slot = functionIndex * this.#gpuCount + gpu;
    const running = this.#running[gpu]!;
    const sheet = this.#sheets[functionIndex];
    if (memory.setPinned(functionIndex, sheet?.pinned ?? false)) this.#pinnedOn = gpu;
    if ((running !== nobody && this.#function[running] === functionIndex) || this.#loads[slot] !== undefined) {
      memory.hold(functionIndex);
    } else if (sheet === undefined) {
      memory.drop(functionIndex, 'unload');
    } else if (sheet.gpus[gpu] !== resident) {
      memory.drop(functionIndex, 'plan-changed');
    } else if (
      sheet.pinned ||
      (this.#waitingCount[slot]! > 0 && this.#sparesWaiting && memory.prefix(functionIndex) === wholePrefix(resident))
    ) {
      memory.hold(functionIndex);
    } else {
      memory.release(functionIndex);
    }
  }

  /** Places anew what will never have room on a GPU beside what is pinned there now. */
  #displaceByPin(gpu: number, nowMs: number): void {
    this.#pinnedOn = nobody;
    const displaced: number[] = [];
    let next = this.#waiting.first(gpu);
    while (next !== nobody) {
      const invocation = next;
      next = this.#waiting.next(invocation);
      const functionIndex = this.#function[invocation]!;
      if (this.#canHold(functionIndex, this.#sheets[functionIndex]!, gpu)) continue;
      this.#leave(invocation);
      this.#state[invocation] = state.ended;
      displaced.push(invocation);
    }
    for (const invocation of displaced) this.#place(invocation, this.#sheets[this.#function[invocation]!]!, nowMs);
    this.#dispatch(gpu, nowMs);
  }

  /** Starts what this GPU can load and run now. */
  #dispatch(gpu: number, nowMs: number): void {
    if (this.#waiting.counts[gpu] === 0 || !this.#up[gpu]) return;
    if (this.#policy.admission === 'shed') this.#shedLate(gpu, nowMs);
    if (this.#policy.loadAhead) this.#loadAhead(gpu, nowMs);
    if (this.#running[gpu] !== nobody) return;
    const oldest = this.#waiting.oldest(gpu);
    if (oldest === nobody) return;
    if (nowMs - this.#arrivalMs[oldest]! >= this.#policy.waitBoundMs) {
      this.#run(oldest, gpu, nowMs);
      return;
    }
    if (this.#policy.order === 'fifo') {
      this.#run(this.#waiting.first(gpu), gpu, nowMs);
      return;
    }
    let wakeMs = Infinity;
    let invocation = this.#waiting.first(gpu);
    const first = invocation;
    for (let seen = 0; invocation !== nobody && seen < lookahead; seen++) {
      const functionIndex = this.#function[invocation]!;
      const load = this.#loads[functionIndex * this.#gpuCount + gpu];
      if (load === undefined) {
        if (this.#isResident(functionIndex, gpu)) {
          this.#run(invocation, gpu, nowMs);
          return;
        }
      } else if (this.#isStale(functionIndex, gpu)) {
        // See #run.
      } else if (load.hiddenFromMs <= nowMs) {
        this.#run(invocation, gpu, nowMs);
        return;
      } else if (load.hiddenFromMs < wakeMs) {
        wakeMs = load.hiddenFromMs;
      }
      invocation = this.#waiting.next(invocation);
    }
    if (wakeMs < Infinity) {
      if (wakeMs >= this.#wakeMs[gpu]! && this.#wakeMs[gpu]! > nowMs) return;
      this.#wakeMs[gpu] = wakeMs;
      this.#actions.push({ kind: 'wake', atMs: wakeMs });
      return;
    }
    // Either nothing is loaded ahead, or there was no room: functions that wait further down the list have it.
    if (!this.#policy.loadAhead || this.#links.isIdle(gpu)) this.#run(first, gpu, nowMs);
  }

  /** Loads for invocations that wait, in their order, while this GPU's own link is free. */
  #loadAhead(gpu: number, nowMs: number): void {
    if (!this.#links.isIdle(gpu)) return;
    let invocation = this.#waiting.first(gpu);
    for (let seen = 0; invocation !== nobody && seen < lookahead; seen++) {
      const functionIndex = this.#function[invocation]!;
      const isLoading = this.#loads[functionIndex * this.#gpuCount + gpu] !== undefined;
      if (!isLoading && !this.#isResident(functionIndex, gpu)) {
        const load = this.#load(invocation, gpu, nowMs);
        if (load !== undefined) this.#actions.push({ kind: 'load', invocation, functionIndex, gpu, load });
        return;
      }
      invocation = this.#waiting.next(invocation);
    }
  }

  /** Reserves the room and the links for a load, or returns undefined when there is no room now. */
  #load(invocation: number, gpu: number, nowMs: number): Load | undefined {
    const functionIndex = this.#function[invocation]!;
    if (this.#isStale(functionIndex, gpu)) return undefined;
    const memory = this.#memories[gpu]!;
    const offer = this.#sheets[functionIndex]!.gpus[gpu]!;
    const prefix = memory.prefix(functionIndex);
    memory.hold(functionIndex);
    if (!memory.reserve(functionIndex, offer)) {
      this.#settle(functionIndex, gpu);
      return undefined;
    }
    const way = this.#links.choose(offer.ways, this.#policy.borrow === 'when-idle');
    const readyMs = this.#links.occupy(way, prefix, nowMs);
    const load: Load = { way, prefix, readyMs, hiddenFromMs: readyMs - offer.warmMs };
    this.#loads[functionIndex * this.#gpuCount + gpu] = load;
    if (this.#sheets[functionIndex]!.pinned) {
      memory.setPinned(functionIndex, true);
      this.#pinnedOn = gpu;
    }
    this.#start[invocation] = prefix > 0 ? 1 : 2;
    return load;
  }

  #run(invocation: number, gpu: number, nowMs: number): void {
    const functionIndex = this.#function[invocation]!;
    const slot = functionIndex * this.#gpuCount + gpu;
    const { warmMs } = this.#sheets[functionIndex]!.gpus[gpu]!;
    let load = this.#loads[slot];
    let ordered: Load | null = null;
    let start = this.#start[invocation]!;
    // What is arriving are layers of a former plan: it comes up again when they have, and have gone.
    if (load !== undefined && this.#isStale(functionIndex, gpu)) return;
    if (load !== undefined) {
      // It joins a load in flight.
      if (start === undecided) start = load.prefix > 0 ? 1 : 2;
    } else if (this.#isResident(functionIndex, gpu)) {
      if (start === undecided) start = 0;
    } else {
      load = this.#load(invocation, gpu, nowMs) ?? this.#loadByForce(invocation, gpu, nowMs);
      // All of the memory is being loaded to: it comes up again when that is over.
      if (load === undefined) return;
      ordered = load;
      start = this.#start[invocation]!;
    }
    this.#leave(invocation);
    this.#state[invocation] = state.running;
    this.#running[gpu] = invocation;
    const endMs = Math.max(nowMs + warmMs, load?.readyMs ?? 0);
    this.#laneEndMs[gpu] = endMs;
    this.#memories[gpu]!.hold(functionIndex);
    this.#actions.push({
      kind: 'run',
      invocation,
      functionIndex,
      gpu,
      start: starts[start]!,
      load: ordered,
      predictedEndMs: endMs,
    });
    if (this.#policy.loadAhead) this.#loadAhead(gpu, nowMs);
  }

  /** Room for one that may wait no longer: at the cost of functions that could run, the last in the list first. */
  #loadByForce(invocation: number, gpu: number, nowMs: number): Load | undefined {
    const memory = this.#memories[gpu]!;
    let victim = this.#waiting.last(gpu);
    for (; victim !== nobody; victim = this.#waiting.previous(victim)) {
      const functionIndex = this.#function[victim]!;
      if (!this.#isResident(functionIndex, gpu) || this.#sheets[functionIndex]!.pinned) continue;
      memory.release(functionIndex);
      const load = this.#load(invocation, gpu, nowMs);
      if (load !== undefined) return load;
    }
    return undefined;
  }

  #shedLate(gpu: number, nowMs: number): void {
    for (;;) {
      const invocation = this.#waiting.oldest(gpu);
      if (invocation === nobody) return;
      const functionIndex = this.#function[invocation]!;
      const { gpus, sloMs } = this.#sheets[functionIndex]!;
      if (nowMs + gpus[gpu]!.warmMs <= this.#arrivalMs[invocation]! + sloMs) return;
      this.#leave(invocation);
      this.#state[invocation] = state.ended;
      this.#settle(functionIndex, gpu);
      this.#actions.push({ kind: 'shed', invocation });
    }
  }

  /** After a load: the GPUs whose links carried it, the one with the oldest invocation first. */
  #dispatchFreed(gpu: number, { transfers }: ColdWay, nowMs: number): void {
    if (transfers.length === 1) {
      this.#dispatch(gpu, nowMs);
      return;
    }
    const freed = this.#freed;
    freed.length = 0;
    for (const { link } of transfers) {
      let place = freed.length;
      while (place > 0 && this.#oldestArrival(freed[place - 1]!) > this.#oldestArrival(link)) {
        freed[place] = freed[place - 1]!;
        place--;
      }
      freed[place] = link;
    }
    for (let index = 0; index < freed.length; index++) this.#dispatch(freed[index]!, nowMs);
  }

  #oldestArrival(gpu: number): number {
    const invocation = this.#waiting.oldest(gpu);
    return invocation === nobody ? Infinity : this.#sequence[invocation]!;
  }

  #growFunctions(count: number): void {
    while (this.#sheets.length < count) this.#sheets.push(undefined);
    while (this.#loads.length < count * this.#gpuCount) this.#loads.push(undefined);
    this.#waitingCount = grownInts(this.#waitingCount, count * this.#gpuCount);
    this.#countedMs = grownFloats(this.#countedMs, count * this.#gpuCount);
    this.#copies.grow(count);
    this.#popularity.grow(count);
    for (const memory of this.#memories) memory.grow(count);
  }

  #growInvocations(count: number): void {
    this.#state = grownInts(this.#state, count);
    this.#function = grownInts(this.#function, count);
    this.#gpu = grownInts(this.#gpu, count);
    this.#start = grownInts(this.#start, count);
    this.#arrivalMs = grownFloats(this.#arrivalMs, count);
    this.#sequence = grownFloats(this.#sequence, count);
    this.#expectedMs = grownFloats(this.#expectedMs, count);
    this.#waiting.grow(this.#state.length);
  }
}

/** A load in flight. */
interface Load extends LoadOrder {
  /** From when on an execution behind it would take no longer than a warm one. */
  readonly hiddenFromMs: number;
}

function hasSameLayers(a: GpuOffer, b: GpuOffer): boolean {
  if (a.prefixBytes === b.prefixBytes) return true;
  return a.prefixBytes.length === b.prefixBytes.length && a.prefixBytes.every((bytes, i) => bytes === b.prefixBytes[i]);
}
