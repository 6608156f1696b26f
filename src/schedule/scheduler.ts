import { Changes } from './changes.ts';
import { Dispatcher } from './dispatch.ts';
import { Growth } from './growth.ts';
import type { GpuOffer } from './offer.ts';
import { Placing } from './placing.ts';
import type { Policy } from './policy.ts';
import { Sides } from './sides.ts';
import { only, state } from './invocations.ts';
import { nobody, SchedulerState } from './state.ts';
import {
  cpuPlace,
  workersPlace,
  type Action,
  type CpuPlace,
  type HostTier,
  type Observation,
  type SchedulerEvent,
  type SchedulerGpu,
  type Shell,
  type WorkersPlace,
} from './types.ts';

export interface SchedulerOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  /** null: nothing runs on the CPU. */
  readonly cpu: CpuPlace | null;
  readonly workers?: WorkersPlace | null;
  /** Left out: everything is in host memory. */
  readonly host?: HostTier;
  /**
   * Whether decisions also name the best of the other places; default true. Without it, GPUs that cannot be the best
   * are skipped early.
   */
  readonly explains?: boolean;
  /** Left out: `handle` returns what is to be done. */
  readonly shell?: Shell;
}

type OwnWishes = Omit<Extract<SchedulerEvent, { kind: 'arrival' }>, 'kind' | 'invocation' | 'functionIndex'>;

/**
 * Decides where and when each invocation runs, what is loaded for it and what is evicted. Pure in the sense of the
 * design: no clock, no promise, no process. Events come with their time, which never goes back, and actions go out. The
 * shell carries the actions out and reports how they ended. The same events give the same actions.
 *
 * Each GPU executes one invocation at a time. Each PCIe link carries loads in the order in which they were ordered.
 */
export class Scheduler {
  /** What the event under way has led to; nothing where a shell of its own is told. */
  #actions: Action[] = [];
  readonly #state: SchedulerState;
  readonly #placing: Placing;
  readonly #growth: Growth;
  readonly #dispatcher: Dispatcher;
  readonly #sides: Sides;
  readonly #changes: Changes;
  #arrivals = 0;

  constructor({ gpus, policy, cpu, workers = null, host, explains = true, shell }: SchedulerOptions) {
    const told = shell ?? listing((action) => this.#actions.push(action));
    this.#state = new SchedulerState(gpus, policy, told, host);
    this.#growth = new Growth(this.#state);
    this.#dispatcher = new Dispatcher(this.#state, this.#growth);
    this.#sides = new Sides(this.#state, cpu, workers);
    this.#placing = new Placing(this.#state, this.#dispatcher, this.#sides, explains);
    this.#changes = new Changes(this.#state, this.#growth, this.#dispatcher, this.#sides, this.#placing);
  }

  /**
   * What is to be done now that this has happened, in order; nothing where a shell of its own is told. Throws RangeError
   * for an event that cannot be.
   */
  handle(event: SchedulerEvent, nowMs: number): readonly Action[] {
    const actions: Action[] = [];
    this.#actions = actions;
    switch (event.kind) {
      case 'arrival':
        this.#arrive(event.invocation, event.functionIndex, event, nowMs);
        break;
      case 'finished':
        this.#finish(event.invocation, event.observed, nowMs);
        break;
      case 'loaded':
        this.#loaded(event.gpu, event.functionIndex, nowMs);
        break;
      case 'wake':
        this.#wake(nowMs);
        break;
      case 'refused':
        this.#refused(event.invocation, nowMs);
        break;
      case 'staged':
        this.#staged(event.functionIndex, nowMs);
        break;
      case 'session':
        this.#sides.cpu.setSession(event.functionIndex, event.bytes);
        // Invocations that waited for its memory can start, and there may be no later event to start them.
        this.#sides.dispatch(cpuPlace, nowMs);
        break;
      case 'cpu-changed':
        this.#placing.placeAnew(this.#sides.change(cpuPlace, event.cpu, nowMs), nowMs);
        break;
      case 'workers-changed':
        this.#placing.placeAnew(this.#sides.change(workersPlace, event.workers, nowMs), nowMs);
        break;
      case 'departed':
        this.#depart(event.invocation, nowMs);
        break;
      case 'gpu-lost':
        this.#changes.lose(event.gpu, nowMs);
        break;
      case 'gpu-back':
        this.#state.up[event.gpu] = true;
        this.#state.links.setUp(event.gpu, true);
        break;
      case 'function-added':
      case 'sheet-changed':
        this.#changes.setSheet(event.functionIndex, event.sheet, nowMs);
        break;
      case 'function-removed':
        this.#changes.removeFunction(event.functionIndex, nowMs);
        break;
    }
    this.#settle(nowMs);
    return actions;
  }

  /** The event of this name, as are the next three: for a shell that makes no object of each. */
  arrive(invocation: number, functionIndex: number, own: OwnWishes, nowMs: number): void {
    this.#arrive(invocation, functionIndex, own, nowMs);
    this.#settle(nowMs);
  }

  finished(invocation: number, nowMs: number): void {
    this.#finish(invocation, undefined, nowMs);
    this.#settle(nowMs);
  }

  loaded(gpu: number, functionIndex: number, nowMs: number): void {
    this.#loaded(gpu, functionIndex, nowMs);
    this.#settle(nowMs);
  }

  wake(nowMs: number): void {
    this.#wake(nowMs);
    this.#settle(nowMs);
  }

  /** Each event ends with it. */
  #settle(nowMs: number): void {
    const { host, pinnedOn, slots } = this.#state;
    host?.retry(nowMs);
    for (let gpu = pinnedOn.pop(); gpu !== undefined; gpu = pinnedOn.pop()) {
      this.#changes.displaceByPin(gpu, nowMs);
      host?.retry(nowMs);
    }
    slots.closeEmpty();
  }

  /** Bytes of weights on a GPU, including those being loaded. */
  residentBytes(gpu: number): number {
    return this.#state.memories[gpu]!.usedBytes;
  }

  /** How many layers of a function a GPU has, counted from the first, including those being loaded. */
  residentPrefix(functionIndex: number, gpu: number): number {
    return this.#state.slots.at(functionIndex, gpu)?.prefix ?? 0;
  }

  /** The plan variant under which a function is resident on a GPU; undefined where it is absent. */
  residentOffer(functionIndex: number, gpu: number): GpuOffer | undefined {
    return this.#state.slots.at(functionIndex, gpu)?.offer;
  }

  /** Invocations that wait for a place. */
  waitingCount(place: number): number {
    return place >= 0 ? this.#state.lines[place]!.count : this.#sides.waitingCount(place);
  }

  /**
   * When an invocation of the function that arrived now would end at a place; Infinity where it cannot run. Decides
   * nothing.
   */
  predictEnd(functionIndex: number, place: number, nowMs: number): number {
    return this.#placing.predictEnd(functionIndex, place, nowMs);
  }

  #arrive(invocation: number, functionIndex: number, own: OwnWishes, nowMs: number): void {
    const { isForGpus = false, isKeptOffGpus = false, join } = own;
    const { sloMs = isForGpus ? Infinity : NaN, priority = NaN } = own;
    const sheet = this.#state.sheets[functionIndex];
    if (sheet === undefined) throw new RangeError(`there is no function ${functionIndex}`);
    if (invocation >= this.#state.decisions.length) this.#growInvocations(Math.max(64, (invocation + 1) * 2));
    if (this.#state.invocationState[invocation] !== state.ended)
      throw new RangeError(`invocation ${invocation} has not ended yet`);
    this.#state.popularity.use(functionIndex);
    this.#state.functionOf[invocation] = functionIndex;
    this.#state.arrivalMs[invocation] = nowMs;
    this.#state.setOwn(invocation, sloMs, priority, isForGpus ? only.gpus : isKeptOffGpus ? only.others : only.any);
    this.#state.setJoin(invocation, join);
    this.#state.sequence[invocation] = this.#arrivals++;
    this.#placing.place(invocation, sheet, nowMs);
  }

  #growInvocations(count: number): void {
    this.#state.growInvocations(count);
    this.#sides.growInvocations(count);
    this.#placing.growInvocations(count);
  }

  #finish(invocation: number, observed: Observation | undefined, nowMs: number): void {
    const was = this.#state.invocationState[invocation];
    const gpu = this.#state.gpuOf[invocation]!;
    const isOnGpu = was === state.running && this.#state.running[gpu] === invocation;
    if (!isOnGpu && was !== state.offloaded) throw new RangeError(`invocation ${invocation} does not run`);
    this.#state.invocationState[invocation] = state.ended;
    if (!isOnGpu) {
      this.#sides.finish(invocation, observed, nowMs);
      return;
    }
    const start = this.#state.start[invocation]!;
    if (start > 0) {
      const arrivalMs = this.#state.arrivalMs[invocation]!;
      const expectedMs = this.#state.decisions[invocation]!.chosenEndMs - arrivalMs;
      this.#state.pressure.tookMs(start === 2, expectedMs, nowMs - arrivalMs);
    }
    for (const companion of this.#state.endRun(gpu)) this.#state.invocationState[companion] = state.ended;
    this.#state.settle(this.#state.slotOf(invocation));
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  #loaded(gpu: number, functionIndex: number, nowMs: number): void {
    const slot = this.#state.slots.at(functionIndex, gpu);
    const load = slot?.load;
    const way = load === undefined ? slot && this.#growth.end(slot, nowMs) : load.way;
    if (slot === undefined || way === undefined)
      throw new RangeError(`function ${functionIndex} is not being loaded to GPU ${gpu}`);
    if (load !== undefined) {
      this.#state.endLoad(slot);
      this.#state.links.release(way, nowMs);
      this.#placing.loaded(functionIndex);
    }
    this.#state.settle(slot);
    this.#dispatcher.dispatchFreed(slot, way, nowMs);
  }

  #wake(nowMs: number): void {
    const { wakes } = this.#state;
    for (let gpu = wakes.first(); gpu !== nobody && wakes.keyOf(gpu) <= nowMs; gpu = wakes.first()) {
      wakes.remove(gpu);
      this.#dispatcher.dispatch(gpu, nowMs);
    }
    this.#sides.wake(nowMs);
    this.#placing.wake(nowMs);
  }

  /** The function is in host memory now: the GPUs where it waits can load it. */
  #staged(functionIndex: number, nowMs: number): void {
    if (this.#state.host?.arrived(functionIndex) !== true) return;
    for (const slot of this.#state.slotsOf(functionIndex)) {
      if (slot.entry < 0) continue;
      this.#state.restage(slot);
      this.#dispatcher.dispatch(slot.gpu, nowMs);
    }
  }

  /** The place could not run it. Its resources there are freed, and it goes elsewhere if another place takes it. */
  #refused(invocation: number, nowMs: number): void {
    const refusedBy = this.#state.gpuOf[invocation]!;
    const companions = (refusedBy >= 0 && this.#state.companions[refusedBy]) || [];
    this.#finish(invocation, undefined, nowMs);
    // An invocation that breaks a run takes its companions along only once.
    const refused = [invocation, ...companions];
    for (const each of refused) this.#state.setJoin(each, undefined);
    this.#placing.placeAnew(refused, nowMs, refusedBy);
  }

  #depart(invocation: number, nowMs: number): void {
    if (this.#state.invocationState[invocation] === state.aside) {
      this.#sides.leave(invocation);
      this.#state.invocationState[invocation] = state.ended;
      this.#sides.dispatch(this.#state.gpuOf[invocation]!, nowMs);
      return;
    }
    if (this.#state.invocationState[invocation] !== state.waiting)
      throw new RangeError(`invocation ${invocation} does not wait`);
    const gpu = this.#state.gpuOf[invocation]!;
    this.#state.leave(invocation);
    this.#state.invocationState[invocation] = state.ended;
    this.#state.settle(this.#state.slotOf(invocation));
    this.#dispatcher.dispatch(gpu, nowMs);
  }
}

/** A shell that writes down what is decided; the caller carries it out later. */
function listing(add: (action: Action) => void): Shell {
  return {
    run: (invocation, functionIndex, gpu, start, load, predictedEndMs, decision, plan, companions) => {
      const run = { kind: 'run', invocation, functionIndex, gpu, start, load, predictedEndMs, decision, plan } as const;
      add(companions === undefined ? run : { ...run, companions });
    },
    load: (invocation, functionIndex, gpu, load, plan) =>
      add({ kind: 'load', invocation, functionIndex, gpu, load, plan }),
    evict: (functionIndex, gpu, prefix, bytes, cause) =>
      add({ kind: 'evict', functionIndex, gpu, prefix, bytes, cause }),
    wait: (invocation, place, predictedEndMs, decision) =>
      add({ kind: 'wait', invocation, place, predictedEndMs, decision }),
    wake: (atMs) => add({ kind: 'wake', atMs }),
    act: add,
  };
}
