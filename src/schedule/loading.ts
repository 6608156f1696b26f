/** Orders loads to a GPU: what is loaded of a function, the room for it, and the links that carry it. */
import { wholeBytes, type GpuOffer } from './offer.ts';
import type { Load, SchedulerState } from './state.ts';

export class Loading {
  readonly #state: SchedulerState;

  constructor(schedulerState: SchedulerState) {
    this.#state = schedulerState;
  }

  /**
   * For one that goes on waiting. Returns whether there was room; by force: at the cost of functions that could run.
   */
  order(invocation: number, gpu: number, nowMs: number, byForce = false): boolean {
    const load = this.load(invocation, gpu, nowMs) ?? (byForce ? this.loadByForce(invocation, gpu, nowMs) : undefined);
    if (load === undefined) return false;
    const functionIndex = this.#state.functionOf[invocation]!;
    const { plan } = this.#state.offerAt(functionIndex, gpu);
    this.#state.actions.push({ kind: 'load', invocation, functionIndex, gpu, load, plan });
    return true;
  }

  /** Reserves the room and the links for a load, or returns undefined when there is no room now. */
  load(invocation: number, gpu: number, nowMs: number): Load | undefined {
    const functionIndex = this.#state.functionOf[invocation]!;
    if (this.#state.isStale(functionIndex, gpu) || !this.#state.host.has(functionIndex)) return undefined;
    const memory = this.#state.memories[gpu]!;
    const offer = this.#toLoad(functionIndex, gpu);
    const prefix = memory.prefix(functionIndex);
    memory.hold(functionIndex);
    this.#state.pressure.now(gpu, nowMs);
    if (!memory.reserve(functionIndex, offer)) {
      this.#state.settle(functionIndex, gpu);
      return undefined;
    }
    const way = this.#state.links.choose(offer.ways, this.#state.policy.borrow === 'when-idle');
    const readyMs = this.#state.links.occupy(way, prefix, nowMs);
    const load: Load = { functionIndex, way, prefix, readyMs, soonestMs: nowMs + way.coldMs[prefix]! };
    this.#state.loads[gpu]!.push(load);
    if (this.#state.sheets[functionIndex]!.pinned) {
      memory.setPinned(functionIndex, true);
      this.#state.pinnedOn.push(gpu);
    }
    this.#state.start[invocation] = prefix > 0 ? 1 : 2;
    this.#state.restage(functionIndex, gpu);
    return load;
  }

  /**
   * The rung of which something is there already, unless it can never be there as a whole again; else the one that is
   * due.
   */
  #toLoad(functionIndex: number, gpu: number): GpuOffer {
    const offer = this.#state.offerAt(functionIndex, gpu);
    if (offer.smaller === undefined) return offer;
    const memory = this.#state.memories[gpu]!;
    if (wholeBytes(offer) <= memory.attainableBytes(functionIndex)) return offer;
    memory.drop(functionIndex, 'plan-changed');
    return this.#state.offerAt(functionIndex, gpu);
  }

  /** Room for one that has its turn: at the cost of functions that could run, the last that became so first. */
  loadByForce(invocation: number, gpu: number, nowMs: number): Load | undefined {
    const awaited = [...this.#state.awaited[gpu]!].reverse();
    for (const [count, functionIndex] of awaited.entries()) {
      this.#state.awaited[gpu]!.delete(functionIndex);
      this.#state.memories[gpu]!.release(functionIndex);
      const load = this.load(invocation, gpu, nowMs);
      if (load !== undefined) {
        // What was not needed for it after all is held again.
        for (let place = 0; place <= count; place++) this.#state.settle(awaited[place]!, gpu);
        return load;
      }
    }
    for (const functionIndex of awaited) this.#state.settle(functionIndex, gpu);
    return undefined;
  }
}
