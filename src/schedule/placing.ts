/** Places an invocation: on the GPU that the router finds, on the CPU or the workers, or nowhere. */
import { Bringing } from './bringing.ts';
import type { Dispatcher } from './dispatch.ts';
import { state } from './invocations.ts';
import type { OfferSheet } from './offer.ts';
import { nowhere, Router } from './routing.ts';
import { SecondLook } from './second-look.ts';
import type { Sides } from './sides.ts';
import { nobody, type SchedulerState } from './state.ts';
import { noPlace, type PlaceReason } from './types.ts';

export class Placing {
  readonly #state: SchedulerState;
  readonly #router: Router;
  readonly #dispatcher: Dispatcher;
  readonly #sides: Sides;
  readonly #secondLook: SecondLook;
  readonly #bringing: Bringing;

  constructor(schedulerState: SchedulerState, dispatcher: Dispatcher, sides: Sides, explains: boolean) {
    this.#state = schedulerState;
    this.#router = new Router(schedulerState, explains);
    this.#dispatcher = dispatcher;
    this.#sides = sides;
    this.#secondLook = new SecondLook(schedulerState, sides);
    this.#bringing = new Bringing(schedulerState);
  }

  /** When an invocation of the function that arrived now would end at a place; Infinity where it cannot run. */
  predictEnd(functionIndex: number, place: number, nowMs: number): number {
    const sheet = this.#state.sheets[functionIndex];
    if (sheet === undefined) throw new RangeError(`there is no function ${functionIndex}`);
    if (place < 0) return this.#sides.predictEnd(place, functionIndex, sheet, nowMs, nowMs + sheet.sloMs);
    if (!this.#state.canHold(functionIndex, sheet, place)) return Infinity;
    return this.#router.predictEnd(functionIndex, place, nowMs);
  }

  /**
   * Puts an invocation where the policy wants it, and starts it there if it can start. @param except a place that
   * refused it
   */
  place(invocation: number, sheet: OfferSheet, nowMs: number, except = noPlace): void {
    const { functionOf, decisions, shell, invocationState, memories, slots, sparesWaiting } = this.#state;
    const functionIndex = functionOf[invocation]!;
    const place = this.#choose(invocation, sheet, nowMs, except);
    const decision = decisions[invocation]!;
    if (place === noPlace) return;
    if (place < 0) this.#sides.enter(invocation, sheet, place, nowMs);
    else {
      this.#state.host?.want(functionIndex);
      const slot = slots.open(functionIndex, place);
      if (this.#dispatcher.runAtOnce(invocation, slot, nowMs)) return;
      this.#state.enter(invocation, sheet, slot);
      this.#dispatcher.dispatch(place, nowMs);
    }
    const now = invocationState[invocation];
    if (now !== state.waiting && now !== state.aside) return;
    if (place >= 0 && sparesWaiting) memories[place]!.touch(slots.at(functionIndex, place)!);
    shell.wait(invocation, place, decision.chosenEndMs, decision);
    if (place >= 0) this.#secondLook.plan(invocation, sheet, nowMs, except);
  }

  /** A load of the function has ended. */
  loaded(functionIndex: number): void {
    this.#bringing.loaded(functionIndex);
  }

  /** The function was removed. */
  forget(functionIndex: number): void {
    this.#bringing.forget(functionIndex);
  }

  growInvocations(count: number): void {
    this.#secondLook.grow(count);
  }

  /** Looks again at invocations that wait for a GPU and could only just be in time at the CPU or the workers. */
  wake(nowMs: number): void {
    for (let due = this.#secondLook.next(nowMs); due !== nobody; due = this.#secondLook.next(nowMs))
      if (this.#state.invocationState[due] === state.waiting) this.#lookAgain(due, nowMs);
  }

  /** Moves the invocation to the CPU or the workers if it would miss its SLO where it waits, and end sooner there. */
  #lookAgain(invocation: number, nowMs: number): void {
    const { functionOf, gpuOf, sheets, decisions, shell, invocationState } = this.#state;
    const functionIndex = functionOf[invocation]!;
    const gpu = gpuOf[invocation]!;
    const sheet = sheets[functionIndex];
    // What is under way for it would be in vain.
    const slot = this.#state.slotOf(invocation);
    if (sheet === undefined || slot.load !== undefined) return;
    const deadlineMs = this.#state.deadlineMs(invocation, sheet);
    const side = this.#sides.best(functionIndex, sheet, nowMs, deadlineMs, noPlace);
    if (side === noPlace) return;
    const gpuEndMs = this.#router.predictEnd(functionIndex, gpu, nowMs, invocation);
    const sideEndMs = this.#sides.predictEnd(side, functionIndex, sheet, nowMs, deadlineMs);
    if (gpuEndMs <= deadlineMs || sideEndMs >= gpuEndMs) return;
    const decision = decisions[invocation]!;
    decision.reason = 'slo';
    decision.chosenEndMs = sideEndMs;
    decision.otherPlace = gpu;
    decision.otherEndMs = gpuEndMs;
    this.#state.leave(invocation);
    this.#state.settle(slot);
    this.#sides.enter(invocation, sheet, side, nowMs);
    if (invocationState[invocation] === state.aside) shell.wait(invocation, side, sideEndMs, decision);
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  /** Chooses the place and records the decision; noPlace when the invocation is shed or failed. */
  #choose(invocation: number, sheet: OfferSheet, nowMs: number, except: number): number {
    const { policy, gpuCount, functionOf, decisions, shell } = this.#state;
    const { offload } = policy;
    const sheds = this.#state.sheds(sheet);
    const functionIndex = functionOf[invocation]!;
    const decision = decisions[invocation]!;
    const isKeptOff = gpuCount === 0 || this.#state.isKeptOff(invocation);
    const route = isKeptOff ? nowhere : this.#router.route(invocation, sheet, nowMs, except);
    const { gpu, endMs: gpuEndMs } = route;
    const deadlineMs = this.#state.deadlineMs(invocation, sheet);
    const side = this.#state.mayGoAside(invocation, sheet)
      ? this.#sides.best(functionIndex, sheet, nowMs, deadlineMs, except)
      : noPlace;
    decision.otherPlace = route.other === nobody ? noPlace : route.other;
    decision.otherEndMs = route.otherEndMs;
    if (gpu === nobody && side === noPlace) {
      shell.act({ kind: 'fail', invocation, reason: 'nowhere' });
      return noPlace;
    }
    const sideEndMs =
      side === noPlace ? Infinity : this.#sides.predictEnd(side, functionIndex, sheet, nowMs, deadlineMs);
    let isAside = gpu === nobody;
    let reason: PlaceReason = isAside ? 'only' : route.reason;
    if (!isAside && side !== noPlace && offload !== 'never') {
      isAside = offload === 'earliest-finish' ? sideEndMs < gpuEndMs : gpuEndMs > deadlineMs && sideEndMs <= deadlineMs;
      isAside ||= gpuEndMs > deadlineMs && this.#sides.isWorthSession(side, functionIndex, sheet, nowMs, deadlineMs);
      if (isAside) reason = offload === 'earliest-finish' ? 'earliest' : 'slo';
    }
    decision.reason = reason;
    decision.chosenEndMs = isAside ? sideEndMs : gpuEndMs;
    if (gpu !== nobody && side !== noPlace && (isAside || sideEndMs < decision.otherEndMs)) {
      decision.otherPlace = isAside ? gpu : side;
      decision.otherEndMs = isAside ? gpuEndMs : sideEndMs;
    }
    // What goes elsewhere since its load would come too late is as good as late.
    if (
      gpu !== nobody &&
      gpuEndMs > deadlineMs &&
      (isAside || sheds) &&
      !this.#state.isResidentAt(functionIndex, gpu)
    ) {
      const offer = this.#state.offerAt(functionIndex, gpu);
      const slot = this.#state.slots.at(functionIndex, gpu);
      const prefix = slot === undefined ? 0 : this.#state.keptPrefix(slot);
      this.#state.pressure.loadWas(true, offer, prefix, deadlineMs - this.#state.arrivalMs[invocation]!);
    }
    const isHopeless = isAside
      ? this.#sides.isHopeless(side, functionIndex, sheet, nowMs, deadlineMs)
      : sheds && this.#router.soonestMs(functionIndex, gpu, gpuEndMs, nowMs) > deadlineMs;
    if (sheds && isHopeless) {
      if (!isAside && this.#bringing.mayPass(functionIndex, gpu, deadlineMs, nowMs)) {
        this.#state.letThrough(invocation);
        return gpu;
      }
      const trialMs = isAside ? this.#sides.trialMs(side, functionIndex, sheet, nowMs) : -Infinity;
      shell.act({ kind: 'shed', invocation, predictedEndMs: Math.min(gpuEndMs, sideEndMs), trialMs });
      return noPlace;
    }
    return isAside ? side : gpu;
  }

  /** Places invocations again that lost their place. @param except a place that refused them */
  placeAnew(displaced: readonly number[], nowMs: number, except = noPlace): void {
    for (const invocation of displaced) {
      this.#state.invocationState[invocation] = state.ended;
      const sheet = this.#state.sheets[this.#state.functionOf[invocation]!];
      if (sheet === undefined) this.#state.shell.act({ kind: 'fail', invocation, reason: 'removed' });
      else this.place(invocation, sheet, nowMs, except);
    }
  }
}
