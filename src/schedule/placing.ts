/**
 * Where an invocation goes: the whole decision, in the order of its questions. `PlaceReason` says what each reason
 * means.
 */
import { Bringing } from './bringing.ts';
import type { ServedFunction } from './function.ts';
import { GpuPlace } from './gpu-place.ts';
import type { Invocation } from './invocation.ts';
import type { Place } from './place.ts';
import { nowhere, type Route, type Router } from './routing.ts';
import { SecondLook } from './second-look.ts';
import type { Side } from './side.ts';
import type { SchedulerState } from './state.ts';
import { tuning } from './tuning.ts';

const { aheadSessions } = tuning.sides;

export class Placing {
  readonly #state: SchedulerState;
  readonly #router: Router;
  readonly #gpus: readonly GpuPlace[];
  readonly #sides: readonly Side[];
  readonly #secondLook: SecondLook;
  readonly #bringing: Bringing;
  /** How many sessions may be made ahead of calls that will need them. */
  #sessionsAhead = 0;
  /** What `#bestSide` found last, and when the invocation would end there; Infinity if it found none. */
  #side: Side | undefined;
  #sideEndMs = Infinity;

  constructor(state: SchedulerState, router: Router, gpus: readonly GpuPlace[], sides: readonly Side[]) {
    this.#state = state;
    this.#router = router;
    this.#gpus = gpus;
    this.#sides = sides;
    this.#secondLook = new SecondLook(state);
    this.#bringing = new Bringing(state);
  }

  /**
   * Puts an invocation where the policy wants it, and starts it there if it can start. @param except a place that
   * refused it
   */
  place(invocation: Invocation, nowMs: number, except?: Place): void {
    const place = this.#choose(invocation, nowMs, except);
    if (place === undefined) return;
    // 6. It starts, or waits.
    place.enter(invocation, nowMs);
    if (invocation.state !== 'waiting') return;
    this.#waits(invocation, place);
    // 7. Where it waits for a GPU, a place beside the GPUs may be the better one later. Nothing there has changed since 1.
    if (place instanceof GpuPlace && this.#state.policy.offload !== 'never')
      this.#secondLook.plan(invocation, this.#side, nowMs);
  }

  /** Chooses the place and records the decision; undefined when the invocation is shed or failed. */
  #choose(invocation: Invocation, nowMs: number, except: Place | undefined): Place | undefined {
    const { policy, orders, gpus } = this.#state;
    const { fn, decision, deadlineMs } = invocation;

    // 1. May it run on a GPU? Then the router weighs those. `resident`, `copy`, `room`, `by-number`
    const side = this.#bestSide(invocation, nowMs, except);
    const sideEndMs = this.#sideEndMs;
    const isSafe = policy.offload !== 'never' && sideEndMs <= deadlineMs;
    const route: Route =
      gpus.length === 0 || invocation.isKeptOff
        ? nowhere
        : this.#router.route(invocation, nowMs, except instanceof GpuPlace ? except.gpu : undefined, isSafe);
    const { gpu } = route;
    decision.otherPlace = route.other?.number;
    decision.otherEndMs = route.otherEndMs;
    if (gpu === undefined && side === undefined) {
      orders.add({ kind: 'fail', invocation: invocation.number, reason: 'nowhere' });
      return undefined;
    }
    const isLateOnGpu = route.endMs > deadlineMs;

    // 2. Is there no GPU for it, or does the policy want the earliest end? `only`, `earliest`
    let goesBeside = gpu === undefined;
    decision.reason = goesBeside ? 'only' : route.reason;
    if (gpu !== undefined && side !== undefined && policy.offload !== 'never') {
      if (policy.offload === 'earliest-finish') goesBeside = sideEndMs < route.endMs;
      // 3. Would it be late on the GPU, and in time beside it? `slo`
      else goesBeside = isLateOnGpu && sideEndMs <= deadlineMs;
      if (goesBeside) decision.reason = policy.offload === 'earliest-finish' ? 'earliest' : 'slo';
      // 4. Would it be late everywhere, but calls behind it in time, once what they need there is made? `bringing`
      else if (isLateOnGpu && side.isWorthMaking(fn, deadlineMs, nowMs)) {
        goesBeside = true;
        decision.reason = 'bringing';
        this.#sessionsAhead = aheadSessions;
      }
      // Functions that are not whole on a GPU will be late next: their sessions are made ahead of their calls.
      else if (this.#sessionsAhead > 0 && !isLateOnGpu && this.#state.slots.at(fn, gpu)?.isResident !== true) {
        if (side.makeAhead(fn, deadlineMs, nowMs)) {
          this.#sessionsAhead--;
          orders.add({ kind: 'make-session', functionIndex: fn.number });
        }
      }
    }
    decision.chosenEndMs = goesBeside ? sideEndMs : route.endMs;
    if (gpu !== undefined && side !== undefined && (goesBeside || sideEndMs < decision.otherEndMs)) {
      decision.otherPlace = goesBeside ? gpu.number : side.id;
      decision.otherEndMs = goesBeside ? route.endMs : sideEndMs;
    }
    // A call that goes elsewhere because its load would end too late counts as late for the load of the links.
    if (gpu !== undefined && isLateOnGpu && (goesBeside || fn.sheds)) {
      const slot = this.#state.slots.open(fn, gpu);
      const { arrivalMs } = invocation;
      // The delay that later calls usually add is left out: it is no load of the links now, and nothing tells its end.
      const endMs = this.#router.soonestMs(fn, gpu, route.endMs, nowMs);
      if (!slot.isResident)
        this.#state.pressure.loadWas(endMs - arrivalMs, slot.variant, slot.keptPrefix, deadlineMs - arrivalMs);
    }

    // 5. Does its function shed, and would it be late even if no other call came? Then it is refused, unless it is to
    // bring its function to a GPU. `bringing`
    const lateEndMs = fn.sheds && goesBeside ? side!.lateEndMs(invocation, nowMs) : undefined;
    if (lateEndMs !== undefined) {
      this.#shed(invocation, lateEndMs, side!.trialMs(fn, nowMs));
      return undefined;
    }
    if (fn.sheds && !goesBeside && this.#router.soonestMs(fn, gpu!, route.endMs, nowMs) > deadlineMs) {
      if (!this.#bringing.mayPass(fn, gpu!, deadlineMs, nowMs)) {
        const endMs = policy.offload === 'never' ? route.endMs : Math.min(route.endMs, sideEndMs);
        this.#shed(invocation, endMs, -Infinity);
        return undefined;
      }
      invocation.letThrough();
      decision.reason = 'bringing';
    }
    return goesBeside ? side : this.#gpus[gpu!.number];
  }

  #waits({ number, decision }: Invocation, { id }: Place): void {
    const { chosenEndMs: predictedEndMs } = decision;
    this.#state.orders.add({ kind: 'wait', invocation: number, place: id, predictedEndMs, decision });
  }

  #shed({ number }: Invocation, predictedEndMs: number, trialMs: number): void {
    this.#state.orders.add({ kind: 'shed', invocation: number, predictedEndMs, trialMs });
  }

  /** The place beside the GPUs where it would end first, with its predicted start there. @param except is left out */
  #bestSide(invocation: Invocation, nowMs: number, except?: Place): Side | undefined {
    this.#side = undefined;
    this.#sideEndMs = Infinity;
    if (!invocation.mayGoBeside) return undefined;
    const { fn, deadlineMs, priority } = invocation;
    for (const side of this.#sides) {
      if (side === except || !side.offers(fn)) continue;
      const startMs = side.predictStartMs(fn, deadlineMs, nowMs, priority);
      const endMs = side.endMs(fn, startMs);
      if (endMs >= this.#sideEndMs) continue;
      this.#side = side;
      this.#sideEndMs = endMs;
      invocation.predictedMs = startMs;
    }
    return this.#side;
  }

  /** A load of the function has ended, or it was removed. */
  forget(fn: ServedFunction): void {
    this.#bringing.forget(fn);
  }

  /** Looks again at invocations that wait for a GPU and could only just be in time at another place. */
  wake(nowMs: number): void {
    for (let due = this.#secondLook.next(nowMs); due !== undefined; due = this.#secondLook.next(nowMs))
      if (due.state === 'waiting' && typeof due.place === 'number') this.#lookAgain(due, nowMs);
  }

  /** Moves the invocation beside the GPUs if it would miss its SLO where it waits, and end sooner there. */
  #lookAgain(invocation: Invocation, nowMs: number): void {
    const { fn, decision, deadlineMs } = invocation;
    const slot = this.#state.slotOf(invocation);
    const { gpu } = slot;
    // A load that is under way for it would be in vain.
    if (fn.isRemoved || slot.load !== undefined) return;
    const side = this.#bestSide(invocation, nowMs);
    if (side === undefined) return;
    const gpuEndMs = this.#router.predictEndMs(fn, gpu, slot, nowMs, invocation);
    const sideEndMs = this.#sideEndMs;
    if (gpuEndMs <= deadlineMs || sideEndMs >= gpuEndMs) return;
    decision.reason = 'slo';
    decision.chosenEndMs = sideEndMs;
    decision.otherPlace = gpu.number;
    decision.otherEndMs = gpuEndMs;
    this.#gpus[gpu.number]!.leave(invocation);
    side.enter(invocation, nowMs);
    if (invocation.state === 'waiting') this.#waits(invocation, side);
    this.#gpus[gpu.number]!.dispatch(nowMs);
  }

  /** Places invocations again that lost their place, the earliest first. @param except a place that refused them */
  placeAnew(displaced: readonly Invocation[], nowMs: number, except?: Place): void {
    for (const invocation of displaced) {
      invocation.state = 'ended';
      if (!invocation.fn.isRemoved) this.place(invocation, nowMs, except);
      else this.#state.orders.add({ kind: 'fail', invocation: invocation.number, reason: 'removed' });
    }
  }
}

export const byArrival = (one: Invocation, other: Invocation): number => one.sequence - other.sequence;
