/**
 * Orders loads to a GPU: which layers of a function are loaded, where the room comes from, and which links carry them.
 */
import { wholeBytes, type GpuOffer } from './offer.ts';
import type { Load, Slot } from './slots.ts';
import type { SchedulerState } from './state.ts';

export class Loading {
  readonly #state: SchedulerState;

  constructor(schedulerState: SchedulerState) {
    this.#state = schedulerState;
  }

  /**
   * Orders a load for a call that goes on waiting. Returns whether there was room. By force: functions that could run
   * are evicted for it.
   */
  order(invocation: number, slot: Slot, nowMs: number, byForce = false): boolean {
    const load =
      this.load(invocation, slot, nowMs) ?? (byForce ? this.loadByForce(invocation, slot, nowMs) : undefined);
    if (load === undefined) return false;
    const { functionIndex, gpu } = slot;
    const { plan } = this.#state.offerOf(slot);
    this.#state.shell.load(invocation, functionIndex, gpu, load, plan);
    return true;
  }

  /** Reserves the room and the links for a load, or returns undefined when there is no room now. */
  load(invocation: number, slot: Slot, nowMs: number): Load | undefined {
    const { functionIndex, gpu } = slot;
    if (this.#state.isStale(slot) || !this.#state.isInHostMemory(functionIndex)) return undefined;
    const memory = this.#state.memories[gpu]!;
    const offer = this.#toLoad(slot);
    const { prefix } = slot;
    memory.hold(slot);
    this.#state.pressure.now(gpu, nowMs);
    if (!memory.reserve(slot, offer)) {
      this.#state.settle(slot);
      return undefined;
    }
    const way = this.#state.links.choose(offer.ways, this.#state.policy.borrow === 'when-idle');
    this.#state.links.occupy(way, prefix, nowMs);
    this.#state.backlogChanged(gpu);
    const load: Load = { functionIndex, way, prefix, soonestMs: nowMs + way.coldMs[prefix]! };
    slot.load = load;
    this.#state.loads[gpu]!.push(load);
    if (this.#state.sheets[functionIndex]!.pinned) {
      memory.setPinned(slot, true);
      this.#state.pinnedOn.push(gpu);
    }
    this.#state.start[invocation] = prefix > 0 ? 1 : 2;
    this.#state.restage(slot);
    return load;
  }

  /**
   * The variant of which something is there already, unless it can never be there as a whole again; else the one that is
   * due.
   */
  #toLoad(slot: Slot): GpuOffer {
    const offer = this.#state.offerOf(slot);
    if (offer.smaller === undefined) return offer;
    const memory = this.#state.memories[slot.gpu]!;
    if (wholeBytes(offer) <= memory.attainableBytes(slot.functionIndex)) return offer;
    memory.drop(slot, 'plan-changed');
    return this.#state.offerOf(slot);
  }

  /** Room for one that has its turn: at the cost of functions that could run, the last that became so first. */
  loadByForce(invocation: number, slot: Slot, nowMs: number): Load | undefined {
    const { gpu } = slot;
    const awaited = [...this.#state.awaited[gpu]!].reverse();
    for (const [count, other] of awaited.entries()) {
      this.#state.awaited[gpu]!.delete(other);
      this.#state.memories[gpu]!.release(other);
      const load = this.load(invocation, slot, nowMs);
      if (load !== undefined) {
        // What was not needed for it after all is held again.
        for (let place = 0; place <= count; place++) this.#state.settle(awaited[place]!);
        return load;
      }
    }
    for (const other of awaited) this.#state.settle(other);
    return undefined;
  }
}
