import { named, type Given, type FunctionId, type GpuId, type InvocationId, type SideId } from './ids.ts';
import { Changes } from './changes.ts';
import { CpuLanes } from './cpu-lanes.ts';
import { Dispatcher } from './dispatch.ts';
import type { Gpu, Slot } from './gpu.ts';
import { GpuPlace } from './gpu-place.ts';
import type { ServedFunction } from './function.ts';
import { Growth } from './growth.ts';
import type { HostWait } from './host-memory.ts';
import { Invocation, type OwnSettings } from './invocation.ts';
import type { Lanes } from './lanes.ts';
import type { GpuOffer } from './offer.ts';
import type { Place } from './place.ts';
import { byArrival, Placing } from './placing.ts';
import type { Policy } from './policy.ts';
import { Router } from './routing.ts';
import { Side } from './side.ts';
import { SchedulerState } from './state.ts';
import type {
  Action,
  CpuPlace,
  HostTier,
  Observation,
  SchedulerEvent,
  SchedulerGpu,
  StageObservation,
  WorkersPlace,
} from './types.ts';
import { WorkerSlots } from './worker-slots.ts';

export interface SchedulerOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  /** null: nothing runs on the CPU. */
  readonly cpu: CpuPlace | null;
  readonly workers?: WorkersPlace | null;
  /** Other places beside the GPUs; each has one scheduler. */
  readonly others?: readonly Lanes[];
  /** Left out: everything is in host memory. */
  readonly host?: HostTier;
  /**
   * Whether decisions also name the best of the other places; default true. Without it, GPUs that cannot be the best
   * are skipped early.
   */
  readonly explains?: boolean;
}

/**
 * Decides where and when each invocation runs, what is loaded for it and what is evicted. Pure in the sense of the
 * design: no clock, no promise, no process. Events come with their time, which never goes back, and actions go out. The
 * caller carries the actions out and reports how they ended. The same events give the same actions.
 *
 * Each GPU executes one invocation at a time. Each PCIe link carries loads in the order in which they were ordered.
 */
export class Scheduler {
  readonly #state: SchedulerState;
  readonly #placing: Placing;
  readonly #growth: Growth;
  readonly #dispatcher: Dispatcher;
  readonly #changes: Changes;
  readonly #gpus: readonly GpuPlace[];
  readonly #cpuLanes: CpuLanes;
  readonly #cpu: Side<CpuPlace>;
  /** The CPU, the workers, and places of other kinds. */
  readonly #sides: readonly Side[];
  /** By number. */
  readonly #invocations: Invocation[] = [];
  #arrivals = 0;

  constructor({ gpus, policy, cpu, workers, others = [], host, explains = true }: SchedulerOptions) {
    const schedulerState = new SchedulerState(gpus, policy, host);
    this.#state = schedulerState;
    this.#growth = new Growth(schedulerState);
    this.#dispatcher = new Dispatcher(schedulerState, this.#growth);
    const router = new Router(schedulerState, explains);
    this.#gpus = schedulerState.gpus.map((gpu) => new GpuPlace(gpu, schedulerState, router, this.#dispatcher));
    this.#cpuLanes = new CpuLanes(cpu, schedulerState.popularity, schedulerState.orders);
    this.#cpu = new Side(schedulerState, this.#cpuLanes);
    const beside = workers ? [new WorkerSlots(workers), ...others] : others;
    this.#sides = [this.#cpu, ...beside.map((lanes) => new Side(schedulerState, lanes))];
    this.#placing = new Placing(schedulerState, router, this.#gpus, this.#sides);
    this.#changes = new Changes(schedulerState, this.#growth, this.#dispatcher, this.#sides, this.#placing);
  }

  /**
   * What is to be done now that this has happened, in order. Throws RangeError for an event that cannot be.
   */
  handle(event: SchedulerEvent, nowMs: number): readonly Action[] {
    const { orders } = this.#state;
    orders.begin();
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
        this.#staged(event.functionIndex, event.observed, nowMs);
        break;
      case 'session':
        this.#cpuLanes.setSession(this.#known(event.functionIndex), event.bytes, event.spares);
        // Invocations that waited for its memory can start, and there may be no later event to start them.
        this.#cpu.dispatch(nowMs);
        break;
      case 'room-wanted':
        this.#cpuLanes.sessions.want(this.#known(event.functionIndex), event.bytes, event.purpose);
        this.#cpu.dispatch(nowMs);
        break;
      case 'session-idle':
        this.#cpuLanes.sessions.isIdle(this.#known(event.functionIndex), event.isSpare);
        this.#cpu.dispatch(nowMs);
        break;
      case 'gpu-room-wanted': {
        const spared = event.spared.map((number) => this.#known(number));
        this.#changes.makeRoom(this.#gpu(event.gpu), event.bytes, spared, nowMs);
        break;
      }
      case 'place-changed':
        // What a place is told is what its kind knows.
        this.#placing.placeAnew(
          this.#side(event.place)
            .change(event.to as never, nowMs)
            .sort(byArrival),
          nowMs,
        );
        break;
      case 'departed':
        this.#depart(event.invocation, nowMs);
        break;
      case 'gpu-lost':
        this.#changes.lose(this.#gpu(event.gpu), nowMs);
        break;
      case 'gpu-back':
        this.#gpu(event.gpu).isUp = true;
        this.#state.links.setUp(event.gpu, true);
        break;
      case 'stage-refused':
        this.#state.host?.refused(this.#known(event.functionIndex), nowMs);
        break;
      case 'stage-failed':
        this.#state.host?.failed(this.#known(event.functionIndex), nowMs);
        break;
      case 'host-held':
        this.#state.host?.hold(this.#known(event.functionIndex), event.isHeld ? 1 : -1, nowMs);
        break;
      case 'host-lost':
        this.#state.host?.lost(nowMs);
        break;
      case 'host-changed':
        this.#changes.resizeHost(event.capacityBytes, nowMs);
        break;
      case 'host-filled':
        for (const { functionIndex, share } of event.functions) {
          this.#state.popularity.hadShare(functionIndex, share);
          this.#state.host?.fill(this.#known(functionIndex));
        }
        break;
      case 'function-added':
      case 'sheet-changed':
        this.#changes.setSheet(named(event.functionIndex), event.sheet, nowMs);
        break;
      case 'function-removed':
        this.#changes.removeFunction(named(event.functionIndex), nowMs);
        break;
    }
    this.#settle(nowMs);
    return orders.all;
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
  residentBytes(gpu: Given<GpuId>): number {
    return this.#gpu(gpu).memory.usedBytes;
  }

  /** Bytes of weights in host memory, including those being read. */
  get hostBytes(): number {
    return this.#state.host?.usedBytes ?? 0;
  }

  /** Whether nothing of a function has to be read from disk. */
  isInHostMemory(functionIndex: Given<FunctionId>): boolean {
    return this.#state.host?.isHere(this.#known(functionIndex)) !== false;
  }

  /** What a function waits for that something needs in host memory. */
  hostWait(functionIndex: Given<FunctionId>): HostWait {
    return this.#state.host?.waitsFor(this.#known(functionIndex)) ?? 'nothing';
  }

  /** Whether host memory can ever have room for a function. */
  fitsHostMemory(functionIndex: Given<FunctionId>): boolean {
    return this.#state.host?.canHold(this.#known(functionIndex)) !== false;
  }

  /** How many layers of a function a GPU has, counted from the first, including those being loaded. */
  residentPrefix(functionIndex: Given<FunctionId>, gpu: Given<GpuId>): number {
    const fn = this.#state.functions[functionIndex];
    return (fn && this.#state.slots.find(fn, this.#gpu(gpu))?.prefix) ?? 0;
  }

  /** The plan variant under which a function is resident on a GPU; undefined where it is absent. */
  residentOffer(functionIndex: Given<FunctionId>, gpu: Given<GpuId>): GpuOffer | undefined {
    const fn = this.#state.functions[functionIndex];
    return fn && this.#state.slots.find(fn, this.#gpu(gpu))?.offer;
  }

  /** How long the CPU needs for the runs under way and all that waits. */
  cpuBacklogMs(nowMs: number): number {
    return this.#cpu.backlogMs(nowMs);
  }

  /** Invocations that wait for a place. */
  waitingCount(place: Given<GpuId> | SideId): number {
    return this.#place(place).waitingCount;
  }

  /**
   * When an invocation of the function that arrived now would end at a place; Infinity where it cannot run. Decides
   * nothing.
   */
  predictEnd(functionIndex: Given<FunctionId>, place: Given<GpuId> | SideId, nowMs: number): number {
    const fn = this.#state.functionOf(functionIndex);
    return this.#place(place).predictEndMs(fn, nowMs + fn.sheet.sloMs, nowMs);
  }

  #slotOf(functionIndex: Given<FunctionId>, gpu: Given<GpuId>): Slot | undefined {
    const fn = this.#state.functions[functionIndex];
    return fn && this.#state.slots.at(fn, this.#gpu(gpu));
  }

  #place(id: Given<GpuId> | SideId): Place {
    return typeof id === 'number' ? this.#gpus[id]! : this.#side(id);
  }

  #side(id: SideId): Side {
    const side = this.#sides.find((each) => each.id === id);
    if (side === undefined) throw new RangeError(`there is no place '${id}'`);
    return side;
  }

  #placeOf(invocation: Invocation | undefined): Place | undefined {
    return invocation?.place === undefined ? undefined : this.#place(invocation.place);
  }

  #gpu(number: Given<GpuId>): Gpu {
    return this.#state.gpus[number]!;
  }

  /** A function that is there, or was removed while something of it goes on. */
  #known(number: Given<FunctionId>): ServedFunction {
    const fn = this.#state.functions[number];
    if (fn === undefined) throw new RangeError(`there is no function ${number}`);
    return fn;
  }

  #arrive(number: Given<InvocationId>, functionIndex: Given<FunctionId>, own: OwnSettings, nowMs: number): void {
    const fn = this.#state.functionOf(functionIndex);
    while (number >= this.#invocations.length)
      this.#invocations.push(new Invocation(named(this.#invocations.length), fn));
    const invocation = this.#invocations[number]!;
    if (invocation.state !== 'ended') throw new RangeError(`invocation ${number} has not ended yet`);
    this.#state.popularity.use(functionIndex);
    this.#state.pressure.called(fn.sheet.sloMs);
    invocation.arrives(fn, own, this.#arrivals++, nowMs);
    if (invocation.isSpecial) this.#state.isUniform = false;
    this.#placing.place(invocation, nowMs);
  }

  #finish(number: Given<InvocationId>, observed: Observation | undefined, nowMs: number): void {
    const invocation = this.#invocations[number];
    const place = this.#placeOf(invocation);
    if (invocation?.state !== 'running' || place?.runs(invocation) !== true)
      throw new RangeError(`invocation ${number} does not run`);
    invocation.state = 'ended';
    place.finish(invocation, observed, nowMs);
  }

  #loaded(gpu: Given<GpuId>, functionIndex: Given<FunctionId>, nowMs: number): void {
    const slot = this.#slotOf(functionIndex, gpu);
    const load = slot?.ordered;
    const way = load === undefined ? slot && this.#growth.end(slot, nowMs) : load.way;
    if (slot === undefined || way === undefined)
      throw new RangeError(`function ${functionIndex} is not being loaded to GPU ${gpu}`);
    if (load !== undefined) {
      for (const other of slot.gpu.endLoad(slot)) {
        slot.gpu.settle(other);
        this.#dispatcher.reconsider(other, nowMs);
        this.#placing.forget(other.fn);
      }
      this.#state.links.release(way, nowMs);
      this.#placing.forget(slot.fn);
    }
    this.#state.host?.moved(slot.fn);
    slot.gpu.settle(slot);
    this.#dispatcher.dispatchFreed(slot, way, nowMs);
  }

  #wake(nowMs: number): void {
    const { wakes } = this.#state;
    for (let gpu = wakes.first(); gpu !== undefined && wakes.keyOf(gpu) <= nowMs; gpu = wakes.first()) {
      wakes.remove(gpu);
      this.#dispatcher.dispatch(gpu, nowMs);
    }
    if (this.#state.host !== undefined) this.#loadable(this.#state.host.loadable(nowMs), nowMs);
    for (const side of this.#sides) side.wake(nowMs);
    this.#placing.wake(nowMs);
  }

  #staged(functionIndex: Given<FunctionId>, observed: StageObservation | undefined, nowMs: number): void {
    this.#loadable(this.#state.host?.arrived(this.#known(functionIndex), nowMs, observed) ?? [], nowMs);
  }

  /** The GPUs where these functions wait can load them now. */
  #loadable(functions: readonly ServedFunction[], nowMs: number): void {
    for (const slot of functions.flatMap((fn) => this.#state.slots.homes(fn))) {
      if (slot.entry === undefined) continue;
      slot.gpu.restage(slot);
      this.#dispatcher.dispatch(slot.gpu, nowMs);
    }
  }

  /** The place could not run it. Its resources there are freed, and it goes elsewhere if another place takes it. */
  #refused(number: Given<InvocationId>, nowMs: number): void {
    const invocation = this.#invocations[number];
    const place = this.#placeOf(invocation);
    const refused = invocation === undefined ? [] : [invocation, ...(place?.companionsOf(invocation) ?? [])];
    this.#finish(number, undefined, nowMs);
    // An invocation that breaks a run takes its companions along only once.
    for (const each of refused) each.setJoin(undefined);
    this.#placing.placeAnew(refused, nowMs, place);
  }

  #depart(number: Given<InvocationId>, nowMs: number): void {
    const invocation = this.#invocations[number];
    const place = this.#placeOf(invocation);
    if (invocation?.state !== 'waiting' || place === undefined)
      throw new RangeError(`invocation ${number} does not wait`);
    place.leave(invocation);
    invocation.state = 'ended';
    place.dispatch(nowMs);
  }
}
