/**
 * Orders loads to a GPU: which layers of a function are loaded, where the room comes from, and which links carry them.
 */
import type { Invocation } from './invocation.ts';
import { wholeBytes, type GpuOffer } from './offer.ts';
import type { Load, Slot } from './gpu.ts';
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
  order(invocation: Invocation, slot: Slot, nowMs: number, byForce = false): boolean {
    const load =
      this.load(invocation, slot, nowMs) ?? (byForce ? this.loadByForce(invocation, slot, nowMs) : undefined);
    if (load === undefined) return false;
    const { fn, gpu, variant } = slot;
    this.#state.orders.add({
      kind: 'load',
      invocation: invocation.number,
      functionIndex: fn.number,
      gpu: gpu.number,
      load,
      plan: variant.plan,
    });
    return true;
  }

  /** Reserves the room and the links for a load, or returns undefined when there is no room now. */
  load(invocation: Invocation, slot: Slot, nowMs: number): Load | undefined {
    const { fn, gpu } = slot;
    if (!gpu.link(slot) || slot.isStale || slot.isBaseLoading || !this.#state.isInHostMemory(fn)) return undefined;
    const { memory } = gpu;
    const offer = toLoad(slot);
    const { prefix } = slot;
    memory.hold(slot);
    this.#state.pressure.now(gpu.number, offer, nowMs);
    if (!memory.reserve(slot, offer)) {
      gpu.settle(slot);
      return undefined;
    }
    const way = this.#state.links.choose(offer.ways, this.#state.policy.borrow === 'when-idle');
    this.#state.links.occupy(way, prefix, nowMs);
    this.#state.backlogChanged(gpu);
    const { host } = this.#state;
    // What is still being read cannot arrive before the read ends.
    const readMs = host === undefined ? 0 : host.readEndMs(fn) + way.transfers[0].tailMs[prefix]!;
    const load: Load = { way, prefix, soonestMs: Math.max(nowMs + way.coldMs[prefix]!, readMs) };
    host?.moved(fn);
    slot.ordered = load;
    gpu.loading.push(slot);
    if (slot.base !== undefined && prefix < slot.low) {
      slot.base.loadedBy = slot;
      for (const user of gpu.usersOf(slot.base)) if (user !== slot) gpu.restage(user);
    }
    if (fn.sheet.pinned) {
      memory.setPinned(slot, true);
      this.#state.pinnedOn.push(gpu);
    }
    invocation.start = prefix > 0 ? 'partial' : 'cold';
    gpu.restage(slot);
    return load;
  }

  /** Room for one that has its turn: at the cost of functions that could run, the last that became so first. */
  loadByForce(invocation: Invocation, slot: Slot, nowMs: number): Load | undefined {
    const { gpu } = slot;
    const awaited = [...gpu.awaited].reverse();
    for (const [count, other] of awaited.entries()) {
      gpu.awaited.delete(other);
      gpu.memory.release(other);
      const load = this.load(invocation, slot, nowMs);
      if (load !== undefined) {
        // What was not needed for it after all is held again.
        for (let place = 0; place <= count; place++) gpu.settle(awaited[place]!);
        return load;
      }
    }
    for (const other of awaited) gpu.settle(other);
    return undefined;
  }
}

/**
 * The variant of which something is there already, unless it can never be there as a whole again; else the one that is
 * due.
 */
function toLoad(slot: Slot): GpuOffer {
  const offer = slot.variant;
  if (offer.smaller === undefined) return offer;
  const { memory } = slot.gpu;
  if (wholeBytes(offer) <= memory.attainableBytes(slot.fn)) return offer;
  memory.drop(slot, 'plan-changed');
  return slot.variant;
}
