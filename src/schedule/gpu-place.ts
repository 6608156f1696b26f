import type { GpuId } from './ids.ts';
import type { Dispatcher } from './dispatch.ts';
import type { ServedFunction } from './function.ts';
import { nobodyElse, type Gpu } from './gpu.ts';
import type { Invocation } from './invocation.ts';
import type { Place } from './place.ts';
import type { Router } from './routing.ts';
import type { SchedulerState } from './state.ts';

/** A GPU as a place. */
export class GpuPlace implements Place {
  readonly id: GpuId;
  readonly gpu: Gpu;
  readonly #state: SchedulerState;
  readonly #router: Router;
  readonly #dispatcher: Dispatcher;

  constructor(gpu: Gpu, state: SchedulerState, router: Router, dispatcher: Dispatcher) {
    this.id = gpu.number;
    this.gpu = gpu;
    this.#state = state;
    this.#router = router;
    this.#dispatcher = dispatcher;
  }

  get waitingCount(): number {
    return this.gpu.line.count;
  }

  canTake(fn: ServedFunction): boolean {
    return this.gpu.canHold(fn);
  }

  predictEndMs(fn: ServedFunction, _deadlineMs: number, nowMs: number): number {
    return this.canTake(fn)
      ? this.#router.predictEndMs(fn, this.gpu, this.#state.slots.find(fn, this.gpu), nowMs)
      : Infinity;
  }

  enter(invocation: Invocation, nowMs: number): void {
    const { gpu } = this;
    const { host, slots, sparesWaiting } = this.#state;
    const slot = slots.open(invocation.fn, gpu);
    if (host !== undefined) {
      host.want(invocation.fn, nowMs);
      invocation.waitsForDisk = !slot.isResident && slot.load === undefined && !host.isHere(invocation.fn);
    }
    if (this.#dispatcher.runAtOnce(invocation, slot, nowMs)) return;
    gpu.enter(invocation, slot);
    this.#dispatcher.dispatch(gpu, nowMs);
    if (sparesWaiting && invocation.state === 'waiting') gpu.memory.touch(slot);
  }

  leave(invocation: Invocation): void {
    const slot = this.#state.slotOf(invocation);
    this.gpu.leave(invocation, slot);
    this.gpu.settle(slot);
  }

  runs(invocation: Invocation): boolean {
    return this.gpu.running === invocation;
  }

  finish(invocation: Invocation, _observed: unknown, nowMs: number): void {
    const { gpu } = this;
    const { start, arrivalMs, decision } = invocation;
    if (start === 'partial' || start === 'cold')
      this.#state.pressure.tookMs(start === 'cold', decision.chosenEndMs - arrivalMs, nowMs - arrivalMs);
    for (const companion of gpu.endRun()) companion.state = 'ended';
    gpu.settle(this.#state.slotOf(invocation));
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  companionsOf(invocation: Invocation): readonly Invocation[] {
    return this.runs(invocation) ? this.gpu.companions : nobodyElse;
  }

  dispatch(nowMs: number): void {
    this.#dispatcher.dispatch(this.gpu, nowMs);
  }
}
