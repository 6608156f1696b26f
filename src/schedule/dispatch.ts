import type { Growth } from './growth.ts';
import { wholeBytes, type ColdWay, type GpuOffer } from './offer.ts';
import { nobody, state, undecided, type Load, type SchedulerState } from './state.ts';
import type { Start } from './types.ts';

/** How far down a GPU's waiting list the scheduler looks for something to run or to load: keeps an overload linear. */
const lookahead = 32;
/** All of the function is there, some, nothing. */
const starts: readonly Start[] = ['warm', 'partial', 'cold'];

/** What a GPU does next, of all that waits for it. */
export class Dispatcher {
  readonly #state: SchedulerState;
  readonly #growth: Growth;
  /** GPUs to turn to at a load's end. */
  readonly #freed: number[] = [];

  constructor(schedulerState: SchedulerState, growth: Growth) {
    this.#state = schedulerState;
    this.#growth = growth;
  }

  /** Starts what this GPU can load and run now. */
  dispatch(gpu: number, nowMs: number): void {
    if (this.#state.waiting.counts[gpu] === 0 || !this.#state.up[gpu]) return;
    if (this.#state.policy.admission === 'shed') this.#shedLate(gpu, nowMs);
    const isIdle = this.#state.running[gpu] === nobody;
    const overdue = this.#overdue(gpu, nowMs);
    if (isIdle && overdue !== nobody) {
      this.#run(overdue, gpu, nowMs);
      return;
    }
    if (this.#state.policy.loadAhead) this.#loadAhead(gpu, nowMs);
    if (!isIdle || this.#state.waiting.counts[gpu] === 0) return;
    if (this.#state.policy.order === 'fifo') {
      this.#run(this.#state.waiting.first(gpu), gpu, nowMs);
      return;
    }
    let wakeMs = Infinity;
    let invocation = this.#state.waiting.first(gpu);
    const first = invocation;
    for (let seen = 0; invocation !== nobody && seen < lookahead; seen++) {
      const functionIndex = this.#state.functionOf[invocation]!;
      const load = this.#state.loads[functionIndex * this.#state.gpuCount + gpu];
      if (load === undefined) {
        if (this.#state.isResident(functionIndex, gpu)) {
          this.#run(invocation, gpu, nowMs);
          return;
        }
      } else if (this.#state.isStale(functionIndex, gpu)) {
        // See #run.
      } else if (load.hiddenFromMs <= nowMs) {
        this.#run(invocation, gpu, nowMs);
        return;
      } else if (load.hiddenFromMs < wakeMs) {
        wakeMs = load.hiddenFromMs;
      }
      invocation = this.#state.waiting.next(invocation);
    }
    if (wakeMs < Infinity) {
      if (wakeMs >= this.#state.wakeMs[gpu]! && this.#state.wakeMs[gpu]! > nowMs) return;
      this.#state.wakeMs[gpu] = wakeMs;
      this.#state.actions.push({ kind: 'wake', atMs: wakeMs });
      return;
    }
    // Either nothing is loaded ahead, or there was no room: functions that wait further down the list have it.
    if (!this.#state.policy.loadAhead || this.#state.links.isIdle(gpu)) this.#run(first, gpu, nowMs);
  }

  /** After a load: the GPUs whose links carried it, the one with the oldest invocation first. */
  dispatchFreed(gpu: number, { transfers }: ColdWay, nowMs: number): void {
    if (transfers.length === 1) {
      this.dispatch(gpu, nowMs);
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
    for (let index = 0; index < freed.length; index++) this.dispatch(freed[index]!, nowMs);
  }

  /** The invocation that may wait no longer, or -1. */
  #overdue(gpu: number, nowMs: number): number {
    const { waiting, arrivalMs, policy } = this.#state;
    const oldest = waiting.oldest(gpu);
    return oldest !== nobody && nowMs - arrivalMs[oldest]! >= policy.waitBoundMs ? oldest : nobody;
  }

  /** Loads for invocations that wait, in their order, while this GPU's own link is free. */
  #loadAhead(gpu: number, nowMs: number): void {
    if (!this.#state.links.isIdle(gpu)) return;
    // Or else others could take the room that it waits for, again and again.
    const overdue = this.#overdue(gpu, nowMs);
    if (overdue !== nobody && this.#needsLoad(overdue, gpu)) {
      this.#orderLoad(overdue, gpu, nowMs);
      return;
    }
    let invocation = this.#state.waiting.first(gpu);
    for (let seen = 0; invocation !== nobody && seen < lookahead; seen++) {
      if (this.#needsLoad(invocation, gpu)) {
        this.#orderLoad(invocation, gpu, nowMs);
        return;
      }
      invocation = this.#state.waiting.next(invocation);
    }
  }

  #needsLoad(invocation: number, gpu: number): boolean {
    const functionIndex = this.#state.functionOf[invocation]!;
    if (this.#state.loads[functionIndex * this.#state.gpuCount + gpu] !== undefined) return false;
    return !this.#state.isResident(functionIndex, gpu);
  }

  #orderLoad(invocation: number, gpu: number, nowMs: number): void {
    const load = this.#load(invocation, gpu, nowMs);
    if (load === undefined) return;
    const functionIndex = this.#state.functionOf[invocation]!;
    const { plan } = this.#state.offerAt(functionIndex, gpu);
    this.#state.actions.push({ kind: 'load', invocation, functionIndex, gpu, load, plan });
  }

  /** Reserves the room and the links for a load, or returns undefined when there is no room now. */
  #load(invocation: number, gpu: number, nowMs: number): Load | undefined {
    const functionIndex = this.#state.functionOf[invocation]!;
    if (this.#state.isStale(functionIndex, gpu)) return undefined;
    const memory = this.#state.memories[gpu]!;
    const offer = this.#toLoad(functionIndex, gpu);
    const prefix = memory.prefix(functionIndex);
    memory.hold(functionIndex);
    if (!memory.reserve(functionIndex, offer)) {
      this.#state.settle(functionIndex, gpu);
      return undefined;
    }
    const way = this.#state.links.choose(offer.ways, this.#state.policy.borrow === 'when-idle');
    const readyMs = this.#state.links.occupy(way, prefix, nowMs);
    const load: Load = { way, prefix, readyMs, hiddenFromMs: readyMs - offer.warmMs };
    this.#state.loads[functionIndex * this.#state.gpuCount + gpu] = load;
    if (this.#state.sheets[functionIndex]!.pinned) {
      memory.setPinned(functionIndex, true);
      this.#state.pinnedOn.push(gpu);
    }
    this.#state.start[invocation] = prefix > 0 ? 1 : 2;
    return load;
  }

  /** The rung of which something is there already, unless it can never be there as a whole again; else the one that is due. */
  #toLoad(functionIndex: number, gpu: number): GpuOffer {
    const offer = this.#state.offerAt(functionIndex, gpu);
    if (offer.smaller === undefined) return offer;
    const memory = this.#state.memories[gpu]!;
    if (wholeBytes(offer) <= memory.attainableBytes(functionIndex)) return offer;
    memory.drop(functionIndex, 'plan-changed');
    return this.#state.offerAt(functionIndex, gpu);
  }

  #run(invocation: number, gpu: number, nowMs: number): void {
    const functionIndex = this.#state.functionOf[invocation]!;
    const slot = functionIndex * this.#state.gpuCount + gpu;
    let load = this.#state.loads[slot];
    let ordered: Load | null = null;
    let start = this.#state.start[invocation]!;
    // What is arriving are layers of a former plan: it comes up again when they have, and have gone.
    if (load !== undefined && this.#state.isStale(functionIndex, gpu)) return;
    if (load !== undefined) {
      // It joins a load in flight.
      if (start === undecided) start = load.prefix > 0 ? 1 : 2;
    } else if (this.#state.isResident(functionIndex, gpu)) {
      if (start === undecided) start = 0;
    } else {
      load = this.#load(invocation, gpu, nowMs) ?? this.#loadByForce(invocation, gpu, nowMs);
      // All of the memory is being loaded to: it comes up again when that is over.
      if (load === undefined) return;
      ordered = load;
      start = this.#state.start[invocation]!;
    }
    this.#state.leave(invocation);
    this.#state.invocationState[invocation] = state.running;
    this.#state.running[gpu] = invocation;
    const { plan, warmMs } = this.#state.offerAt(functionIndex, gpu);
    const endMs = Math.max(nowMs + warmMs, load?.readyMs ?? 0);
    this.#state.laneEndMs[gpu] = endMs;
    this.#state.memories[gpu]!.hold(functionIndex);
    this.#state.awaited[gpu]!.delete(functionIndex);
    this.#state.actions.push({
      kind: 'run',
      invocation,
      functionIndex,
      gpu,
      start: starts[start]!,
      load: ordered,
      predictedEndMs: endMs,
      plan,
    });
    if (this.#state.policy.loadAhead) this.#loadAhead(gpu, nowMs);
    if (load === undefined && this.#hasLarger(functionIndex, gpu) && !this.#lacksLayers(gpu)) {
      this.#growth.consider(functionIndex, gpu, nowMs);
    }
  }

  #hasLarger(functionIndex: number, gpu: number): boolean {
    const top = this.#state.sheets[functionIndex]!.gpus[gpu]!;
    return top.smaller !== undefined && this.#state.offerAt(functionIndex, gpu) !== top;
  }

  /** Whether something that waits has to be loaded first: room and link are for that. */
  #lacksLayers(gpu: number): boolean {
    let invocation = this.#state.waiting.first(gpu);
    for (let seen = 0; invocation !== nobody && seen < lookahead; seen++) {
      if (this.#needsLoad(invocation, gpu)) return true;
      invocation = this.#state.waiting.next(invocation);
    }
    return false;
  }

  /** Room for one that may wait no longer: at the cost of functions that could run, the last that became so first. */
  #loadByForce(invocation: number, gpu: number, nowMs: number): Load | undefined {
    const awaited = [...this.#state.awaited[gpu]!].reverse();
    for (const [count, functionIndex] of awaited.entries()) {
      this.#state.awaited[gpu]!.delete(functionIndex);
      this.#state.memories[gpu]!.release(functionIndex);
      const load = this.#load(invocation, gpu, nowMs);
      if (load !== undefined) {
        // What was not needed for it after all is held again.
        for (let place = 0; place <= count; place++) this.#state.settle(awaited[place]!, gpu);
        return load;
      }
    }
    for (const functionIndex of awaited) this.#state.settle(functionIndex, gpu);
    return undefined;
  }

  #shedLate(gpu: number, nowMs: number): void {
    for (;;) {
      const invocation = this.#state.waiting.oldest(gpu);
      if (invocation === nobody) return;
      const functionIndex = this.#state.functionOf[invocation]!;
      const deadlineMs = this.#state.deadlineMs(invocation, this.#state.sheets[functionIndex]!);
      if (nowMs + this.#state.offerAt(functionIndex, gpu).warmMs <= deadlineMs) return;
      this.#state.leave(invocation);
      this.#state.invocationState[invocation] = state.ended;
      this.#state.settle(functionIndex, gpu);
      this.#state.actions.push({ kind: 'shed', invocation });
    }
  }

  #oldestArrival(gpu: number): number {
    const invocation = this.#state.waiting.oldest(gpu);
    return invocation === nobody ? Infinity : this.#state.sequence[invocation]!;
  }
}
