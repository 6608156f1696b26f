/**
 * Replay on a virtual clock: the scheduler that serves decides, and what it orders takes as long as the offers say, with
 * the PCIe links shared as they are on the machine. The same trace and settings give the same outcomes.
 */
import {
  rungNamed,
  Scheduler,
  type Action,
  type LoadOrder,
  type OfferSheet,
  type Policy,
  type SchedulerEvent,
  type SchedulerGpu,
} from '../schedule/index.ts';
import { DueHeap } from './simulator-heap.ts';
import { PcieLinks } from './simulator-links.ts';
import type { OutcomePlacement, PlanChangeRecord, ReplayObserver, Trace, TraceInvocation } from './types.ts';

export interface SimulatorOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  /** Cores that offloaded invocations share; 0 for none. */
  readonly cpuCores: number;
  /** Asked once for each function, when it is first invoked. */
  readonly sheetOf: (functionIndex: number, name: string) => OfferSheet;
  readonly observer: ReplayObserver;
  /** So many invocations first, of which the observer is told nothing. */
  readonly warmupInvocations?: number;
  /** GPUs that fail and come back. */
  readonly gpuChanges?: readonly GpuChange[];
}

export interface GpuChange {
  readonly atMs: number;
  readonly gpu: number;
  readonly kind: 'gpu-lost' | 'gpu-back';
}

export interface SimulatedRun {
  /** Those of the warm-up included. */
  readonly invocations: number;
  /** Arrival of the first invocation after the warm-up; undefined when there was none. */
  readonly measuredFromMs: number | undefined;
  /** When the last invocation had ended. */
  readonly endMs: number;
  /** Since the warm-up: functions that went to a smaller plan for room, and to a larger one with the room that there was. */
  readonly shrinks: number;
  readonly growths: number;
  /** Since the warm-up: invocations that had to wait for something to be loaded, over all. 0 when there were none. */
  readonly swapRate: number;
}

/** Throws RangeError for invocations that are not in order of arrival. */
export async function runSimulation(trace: Trace, options: SimulatorOptions): Promise<SimulatedRun> {
  const simulator = new Simulator(trace.functionNames, options);
  const invocations = trace.invocations();
  if (Symbol.iterator in invocations) for (const invocation of invocations) simulator.arrive(invocation);
  else for await (const invocation of invocations) simulator.arrive(invocation);
  return simulator.finish();
}

interface SimulatedLoad {
  readonly functionIndex: number;
  readonly gpu: number;
  /** Transfers under way. */
  left: number;
  /** When an execution behind it can end, as far as that is settled. */
  readyMs: number;
  /** An invocation that executes behind it, or -1. */
  invocation: number;
  /** To a larger plan, while runs go on under the smaller one. */
  readonly isGrowth: boolean;
}

const nobody = -1;
/** Kinds of what is due; the number of what it concerns stands below. */
const due = { finished: 0, link: 1, wake: 2, gpuChange: 3 } as const;
const kindUnit = 2 ** 32;

/** Columns by invocation grow by doubling; numbers are used again, so they stay as many as are under way at once. */
class Simulator {
  readonly #options: SimulatorOptions;
  readonly #names: readonly string[];
  readonly #scheduler: Scheduler;
  /** Used for every event. */
  readonly #actions: Action[] = [];
  readonly #due = new DueHeap();
  readonly #links: PcieLinks<SimulatedLoad>;
  /** The entry in the heap that counts for a link; others are out of date. */
  readonly #linkDue: number[];
  readonly #gpuCount: number;
  readonly #sheets: (OfferSheet | undefined)[] = [];
  readonly #loads: (SimulatedLoad | undefined)[] = [];
  /** By function times GPUs, plus GPU. */
  readonly #growths = new Map<number, SimulatedLoad>();
  readonly #free: number[] = [];
  readonly #functions: number[] = [];
  readonly #sequences: number[] = [];
  readonly #arrivalMs: number[] = [];
  /** When anything was first done for an invocation; Infinity until then. */
  readonly #begunMs: number[] = [];
  readonly #runMs: number[] = [];
  /** What its run takes with everything there. */
  readonly #warmMs: number[] = [];
  readonly #placements: (OutcomePlacement | undefined)[] = [];
  readonly #isMeasured: boolean[] = [];
  /** The entry in the heap that ends it. */
  readonly #finishDue: number[] = [];
  /** Placements that are told again and again. */
  readonly #gpuPlacements: readonly Readonly<Record<'warm' | 'partial' | 'cold', OutcomePlacement>>[];
  /** By GPU, for runs that are abandoned. */
  readonly #running: number[];
  #nowMs = 0;
  #arrived = 0;
  #measuredFromMs: number | undefined;
  #measured = 0;
  #swapped = 0;
  #shrinkCount = 0;
  #growthCount = 0;
  #freeCores: number;
  #cpuQueue: number[] = [];
  #cpuQueueHead = 0;

  constructor(names: readonly string[], options: SimulatorOptions) {
    const { gpus, policy, cpuCores, gpuChanges = [] } = options;
    this.#names = names;
    this.#options = options;
    this.#scheduler = new Scheduler({ gpus, policy, cpuCores });
    this.#gpuCount = gpus.length;
    this.#freeCores = cpuCores;
    this.#linkDue = gpus.map(() => nobody);
    this.#running = gpus.map(() => nobody);
    this.#links = new PcieLinks(gpus, (link, dueMs) => {
      this.#linkDue[link] = dueMs === Infinity ? nobody : this.#due.add(dueMs, due.link * kindUnit + link);
    });
    this.#gpuPlacements = gpus.map((_, gpu) => ({
      warm: { kind: 'gpu', gpu, residency: 'warm' },
      partial: { kind: 'gpu', gpu, residency: 'partial' },
      cold: { kind: 'gpu', gpu, residency: 'cold' },
    }));
    for (const [index, { atMs }] of gpuChanges.entries()) this.#due.add(atMs, due.gpuChange * kindUnit + index);
  }

  arrive({ arrivalMs, functionIndex }: TraceInvocation): void {
    if (!(arrivalMs >= this.#nowMs)) {
      throw new RangeError(`invocation ${this.#arrived} arrives at ${arrivalMs} ms, before the one in front of it`);
    }
    while (this.#due.nextMs <= arrivalMs) this.#next();
    this.#nowMs = arrivalMs;
    if (this.#sheets[functionIndex] === undefined) this.#addFunction(functionIndex);
    const isMeasured = this.#arrived >= (this.#options.warmupInvocations ?? 0);
    if (isMeasured) this.#measuredFromMs ??= arrivalMs;
    const invocation = this.#free.pop() ?? this.#functions.length;
    this.#sequences[invocation] = this.#arrived++;
    this.#functions[invocation] = functionIndex;
    this.#arrivalMs[invocation] = arrivalMs;
    this.#begunMs[invocation] = Infinity;
    this.#runMs[invocation] = 0;
    this.#warmMs[invocation] = 0;
    this.#placements[invocation] = undefined;
    this.#isMeasured[invocation] = isMeasured;
    this.#finishDue[invocation] = nobody;
    this.#tell({ kind: 'arrival', invocation, functionIndex });
  }

  finish(): SimulatedRun {
    while (this.#due.size > 0) this.#next();
    return {
      invocations: this.#arrived,
      measuredFromMs: this.#measuredFromMs,
      endMs: this.#nowMs,
      shrinks: this.#shrinkCount,
      growths: this.#growthCount,
      swapRate: this.#measured === 0 ? 0 : this.#swapped / this.#measured,
    };
  }

  /** What is due next. */
  #next(): void {
    const dueMs = this.#due.nextMs;
    const sequence = this.#due.nextSequence;
    const what = this.#due.take();
    const kind = Math.floor(what / kindUnit);
    const number = what % kindUnit;
    if (kind === due.finished) {
      if (this.#finishDue[number] !== sequence) return;
      this.#nowMs = dueMs;
      this.#finished(number);
    } else if (kind === due.link) {
      if (this.#linkDue[number] !== sequence) return;
      this.#nowMs = dueMs;
      this.#arrivedOverLink(number);
    } else if (kind === due.wake) {
      this.#nowMs = dueMs;
      this.#tell({ kind: 'wake' });
    } else {
      this.#nowMs = dueMs;
      const change = this.#options.gpuChanges![number]!;
      this.#tell({ kind: change.kind, gpu: change.gpu });
    }
  }

  #addFunction(functionIndex: number): void {
    const sheet = this.#options.sheetOf(functionIndex, this.#names[functionIndex] ?? String(functionIndex));
    while (this.#sheets.length <= functionIndex) {
      this.#sheets.push(undefined);
      for (let gpu = 0; gpu < this.#gpuCount; gpu++) this.#loads.push(undefined);
    }
    this.#sheets[functionIndex] = sheet;
    this.#tell({ kind: 'function-added', functionIndex, sheet });
  }

  #tell(event: SchedulerEvent): void {
    const actions = this.#actions;
    this.#scheduler.handle(event, this.#nowMs, actions);
    for (let index = 0; index < actions.length; index++) this.#do(actions[index]!);
    // Emptied one by one, an array keeps its room.
    while (actions.length > 0) actions.pop();
  }

  #do(action: Action): void {
    switch (action.kind) {
      case 'run':
        this.#run(action);
        break;
      case 'load':
        this.#begunMs[action.invocation] = Math.min(this.#begunMs[action.invocation]!, this.#nowMs);
        this.#load(action.functionIndex, action.gpu, action.load);
        break;
      case 'grow':
        if (this.#measuredFromMs !== undefined) {
          this.#growthCount++;
          this.#changedPlan(action.functionIndex, 'larger');
        }
        this.#grow(action.functionIndex, action.gpu, action.load);
        break;
      case 'shrink':
        // To give memory back takes no time.
        if (this.#measuredFromMs !== undefined) {
          this.#shrinkCount++;
          this.#changedPlan(action.functionIndex, 'smaller');
        }
        break;
      case 'evict':
        if (this.#measuredFromMs !== undefined) {
          const { gpu, functionIndex, bytes, cause } = action;
          this.#options.observer.eviction({ atMs: this.#nowMs, gpu, functionIndex, bytes, cause });
        }
        break;
      case 'abandon':
        this.#abandon(action.functionIndex, action.gpu);
        break;
      case 'offload':
        this.#placements[action.invocation] = cpuPlacement;
        this.#cpuQueue.push(action.invocation);
        this.#startOffloaded();
        break;
      case 'wake':
        this.#due.add(action.atMs, due.wake * kindUnit);
        break;
      case 'shed':
        this.#end(action.invocation, shedPlacement);
        break;
      case 'fail':
        this.#end(action.invocation, { kind: 'failed', reason: action.reason });
        break;
      case 'wait':
        break;
    }
  }

  #changedPlan(functionIndex: number, direction: PlanChangeRecord['direction']): void {
    this.#options.observer.planChange?.({ atMs: this.#nowMs, functionIndex, direction });
  }

  #run({ invocation, functionIndex, gpu, start, load, plan }: Action & { kind: 'run' }): void {
    const nowMs = this.#nowMs;
    this.#begunMs[invocation] = Math.min(this.#begunMs[invocation]!, nowMs);
    this.#runMs[invocation] = nowMs;
    this.#placements[invocation] = this.#gpuPlacements[gpu]![start];
    this.#running[gpu] = invocation;
    if (load !== null) this.#load(functionIndex, gpu, load);
    const loading = this.#loads[functionIndex * this.#gpuCount + gpu];
    const { warmMs } = rungNamed(this.#sheets[functionIndex]!.gpus[gpu]!, plan);
    this.#warmMs[invocation] = warmMs;
    if (loading === undefined) {
      this.#finishDue[invocation] = this.#due.add(nowMs + warmMs, due.finished * kindUnit + invocation);
    } else {
      loading.invocation = invocation;
    }
  }

  #load(functionIndex: number, gpu: number, order: LoadOrder): void {
    this.#loads[functionIndex * this.#gpuCount + gpu] = this.#transfer(functionIndex, gpu, order, false);
  }

  #grow(functionIndex: number, gpu: number, order: LoadOrder): void {
    this.#growths.set(functionIndex * this.#gpuCount + gpu, this.#transfer(functionIndex, gpu, order, true));
  }

  #transfer(functionIndex: number, gpu: number, { way, prefix }: LoadOrder, isGrowth: boolean): SimulatedLoad {
    const load: SimulatedLoad = {
      functionIndex,
      gpu,
      left: 0,
      readyMs: this.#nowMs + way.coldMs[prefix]!,
      invocation: nobody,
      isGrowth,
    };
    for (const { bytes } of way.transfers) if (bytes[prefix]! > 0) load.left++;
    for (const { link, bytes, ms, tailMs } of way.transfers) {
      if (bytes[prefix]! > 0) this.#links.add(link, load, bytes[prefix]!, ms[prefix]!, tailMs[prefix]!, this.#nowMs);
    }
    return load;
  }

  #arrivedOverLink(link: number): void {
    this.#linkDue[link] = nobody;
    const { load, tailMs } = this.#links.complete(link, this.#nowMs);
    load.readyMs = Math.max(load.readyMs, this.#nowMs + tailMs);
    if (--load.left > 0) return;
    const { functionIndex, gpu, invocation } = load;
    const slot = functionIndex * this.#gpuCount + gpu;
    if (load.isGrowth) this.#growths.delete(slot);
    else this.#loads[slot] = undefined;
    if (invocation !== nobody) {
      const endMs = Math.max(load.readyMs, this.#runMs[invocation]! + this.#warmMs[invocation]!);
      this.#finishDue[invocation] = this.#due.add(endMs, due.finished * kindUnit + invocation);
    }
    this.#tell({ kind: 'loaded', gpu, functionIndex });
  }

  #abandon(functionIndex: number, gpu: number): void {
    const slot = functionIndex * this.#gpuCount + gpu;
    const load = this.#loads[slot];
    if (load !== undefined) {
      this.#links.cancel(load, this.#nowMs);
      this.#loads[slot] = undefined;
    }
    const growth = this.#growths.get(slot);
    if (growth !== undefined) {
      this.#links.cancel(growth, this.#nowMs);
      this.#growths.delete(slot);
    }
    const running = this.#running[gpu]!;
    if (running !== nobody && this.#functions[running] === functionIndex) {
      this.#finishDue[running] = nobody;
      this.#tellBusy(gpu, running);
    }
  }

  #finished(invocation: number): void {
    const placement = this.#placements[invocation]!;
    if (placement.kind === 'gpu') {
      this.#tellBusy(placement.gpu, invocation);
    } else {
      this.#freeCores += this.#sheets[this.#functions[invocation]!]!.cpu!.cores;
      this.#startOffloaded();
    }
    this.#end(invocation, placement);
    this.#tell({ kind: 'finished', invocation });
  }

  #tellBusy(gpu: number, invocation: number): void {
    this.#running[gpu] = nobody;
    if (this.#measuredFromMs !== undefined) {
      this.#options.observer.busy(gpu, this.#runMs[invocation]!, this.#nowMs);
    }
  }

  /** Offloaded invocations in their order, as cores become free. */
  #startOffloaded(): void {
    for (;;) {
      const invocation = this.#cpuQueue[this.#cpuQueueHead];
      if (invocation === undefined) break;
      const { cores, latencyMs } = this.#sheets[this.#functions[invocation]!]!.cpu!;
      if (cores > this.#freeCores) break;
      this.#cpuQueueHead++;
      this.#freeCores -= cores;
      this.#begunMs[invocation] = Math.min(this.#begunMs[invocation]!, this.#nowMs);
      this.#finishDue[invocation] = this.#due.add(this.#nowMs + latencyMs, due.finished * kindUnit + invocation);
    }
    if (this.#cpuQueueHead > 1024 && this.#cpuQueueHead * 2 > this.#cpuQueue.length) {
      this.#cpuQueue = this.#cpuQueue.slice(this.#cpuQueueHead);
      this.#cpuQueueHead = 0;
    }
  }

  #end(invocation: number, placement: OutcomePlacement): void {
    if (this.#isMeasured[invocation]) {
      this.#measured++;
      if (placement.kind === 'gpu' && placement.residency !== 'warm') this.#swapped++;
      const functionIndex = this.#functions[invocation]!;
      const arrivalMs = this.#arrivalMs[invocation]!;
      this.#options.observer.outcome({
        sequence: this.#sequences[invocation]!,
        functionIndex,
        arrivalMs,
        endMs: this.#nowMs,
        queueMs: Math.min(this.#begunMs[invocation]!, this.#nowMs) - arrivalMs,
        sloMs: this.#sheets[functionIndex]!.sloMs,
        placement,
      });
    }
    this.#free.push(invocation);
  }
}

const cpuPlacement: OutcomePlacement = { kind: 'cpu' };
const shedPlacement: OutcomePlacement = { kind: 'shed' };
