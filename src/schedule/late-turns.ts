import type { Heap } from './heap.ts';
import type { Invocation } from './invocation.ts';
import type { Entry, Line } from './lines.ts';
import type { Loading } from './loading.ts';
import type { Slot } from './gpu.ts';
import type { SchedulerState } from './state.ts';
import { tuning } from './tuning.ts';

const { overdueShare } = tuning.queues;

/**
 * Turns for late calls. A call that can no longer meet its SLO gets the lane and the link when the others leave them
 * free; once it has waited beyond the policy's bound, it also gets one turn in `overdueShare`.
 */
export class LateTurns {
  readonly #state: SchedulerState;
  readonly #loading: Loading;

  constructor(state: SchedulerState, loading: Loading) {
    this.#state = state;
    this.#loading = loading;
  }

  /** The entry whose late call waits longest, to be loaded or not. */
  first({ lateRunnable, lateLoadable }: Line<Slot>): Entry<Slot> | undefined {
    const runnable = lateRunnable.first();
    const loadable = lateLoadable.first();
    if (runnable === undefined || loadable === undefined) return runnable ?? loadable;
    return lateRunnable.keyOf(runnable) < lateLoadable.keyOf(loadable) ? runnable : loadable;
  }

  /** Whether a late call goes before the calls on time. */
  isTurn(turnsSince: number, entry: Entry<Slot> | undefined, nowMs: number): boolean {
    if (entry === undefined || turnsSince < overdueShare) return false;
    return nowMs - entry.late.head!.arrivalMs >= this.#state.policy.waitBoundMs;
  }

  /** The invocation whose turn the lane is, before what is on time and comes first. */
  laneTurn(line: Line<Slot>, nowMs: number): Invocation | undefined {
    const { startsSinceLate, runnable, loadable } = line;
    const { loadAhead } = this.#state.policy;
    line.turn = undefined;
    if (startsSinceLate < overdueShare) return undefined;
    if (startsSinceLate % overdueShare === 0) {
      this.find(runnable, line, nowMs);
      if (!loadAhead) this.find(loadable, line, nowMs);
    }
    const late = loadAhead ? line.lateRunnable.first() : this.first(line);
    if (!this.#state.isUniform) {
      line.turn = this.#passedOver(line, loadAhead ? [runnable] : [runnable, loadable], late, nowMs);
      if (line.turn !== undefined) return line.turn;
    }
    return this.isTurn(startsSinceLate, late, nowMs) ? late!.late.head : undefined;
  }

  /** Loads for one whose turn it is before what is on time and comes first. Returns whether one had its turn. */
  takeLoadTurn(line: Line<Slot>, nowMs: number): boolean {
    if (line.loadsSinceLate < overdueShare) return false;
    const late = toLoad(line);
    const passedOver = this.#state.isUniform ? undefined : this.#passedOver(line, [line.loadable], late, nowMs);
    if (passedOver !== undefined && this.orderOnTime(passedOver, line, nowMs)) {
      line.loadsSinceLate = 0;
      return true;
    }
    if (late === undefined || !this.isTurn(line.loadsSinceLate, late, nowMs)) return false;
    this.load(line, late, nowMs);
    return true;
  }

  /**
   * One on time that priorities have passed over for as long as the policy's bound, and that came before what is late.
   * Not asked where no priority is above another: the order by deadlines passes nobody over who can still meet the SLO.
   */
  #passedOver(
    line: Line<Slot>,
    heaps: readonly Heap<Entry<Slot>>[],
    late: Entry<Slot> | undefined,
    nowMs: number,
  ): Invocation | undefined {
    const oldest = line.oldest(heaps);
    if (oldest === undefined || nowMs - oldest.arrivalMs < this.#state.policy.waitBoundMs) return undefined;
    return late === undefined || oldest.sequence < late.late.head!.sequence ? oldest : undefined;
  }

  /** By this predicted end it can no longer meet its SLO: it is shed, or goes behind what can. */
  mark(invocation: Invocation, line: Line<Slot>, predictedEndMs: number): void {
    const slot = this.#state.slotOf(invocation);
    if (invocation.isShedWhenLate) {
      slot.gpu.leave(invocation, slot);
      invocation.state = 'ended';
      this.#state.orders.add({ kind: 'shed', invocation: invocation.number, predictedEndMs });
    } else line.makeLate(invocation, slot.entry!);
    slot.gpu.settle(slot);
  }

  /** A load is over, and some that were taken for late by its prediction are not. */
  reconsider(slot: Slot, nowMs: number): void {
    const { entry, gpu } = slot;
    if (entry === undefined || !slot.isResident) return;
    const { warmMs } = slot.variant;
    let found = false;
    for (let late = entry.late.head, next = late; late !== undefined; late = next) {
      ({ next } = late);
      if (nowMs + warmMs > late.dueMs) continue;
      gpu.line.makeOnTime(late, entry);
      found = true;
    }
    if (found) gpu.settle(slot);
  }

  /**
   * Only the first calls are checked when a turn is picked, so a call behind them may have become late unnoticed. When
   * a late turn is due, all calls are checked.
   */
  find(heap: Heap<Entry<Slot>>, line: Line<Slot>, nowMs: number): void {
    const entries: Entry<Slot>[] = [];
    for (let place = 0; place < heap.size; place++) entries.push(heap.at(place));
    for (const { slot, onTime } of entries) {
      const endMs = nowMs + slot.variant.warmMs;
      for (let each = onTime.head, next = each; each !== undefined; each = next) {
        ({ next } = each);
        if (endMs > each.dueMs) this.mark(each, line, endMs);
        // Behind a call with priority there may be a late one though the first is on time.
        else if (this.#state.isUniform) break;
      }
    }
  }

  /** What is on time and comes first finds no room. */
  loadBesideFull(line: Line<Slot>, nowMs: number): void {
    if (line.startsSinceLateLoad < overdueShare) return;
    this.find(line.loadable, line, nowMs);
    const late = toLoad(line);
    if (late !== undefined && this.isTurn(line.startsSinceLateLoad, late, nowMs)) this.load(line, late, nowMs);
    // Not again before the next turn.
    else line.startsSinceLateLoad = 0;
  }

  /** Loads for a late one, by force in its turn. */
  load(line: Line<Slot>, entry: Entry<Slot>, nowMs: number): void {
    // Functions that are there, with calls on time without end, would keep it out for ever.
    const isForced = this.isTurn(line.startsSinceLateLoad, entry, nowMs);
    if (!this.#orderOverLate(entry.late.head!, line, nowMs, isForced)) return;
    line.lateLoaded = entry;
    line.isLateLoadTurn = isForced || this.isTurn(line.loadsSinceLate, entry, nowMs);
    line.loadsSinceLate = 0;
    line.startsSinceLateLoad = 0;
  }

  /**
   * Beyond the policy's bound a call on time takes the room that was loaded for a late call, unless that was the late
   * call's turn.
   */
  orderOnTime(invocation: Invocation, line: Line<Slot>, nowMs: number): boolean {
    if (this.#loading.order(invocation, this.#state.slotOf(invocation), nowMs)) return true;
    if (line.lateLoaded === undefined || line.isLateLoadTurn) return false;
    if (nowMs - invocation.arrivalMs < this.#state.policy.waitBoundMs) return false;
    return this.#orderOverLate(invocation, line, nowMs, false);
  }

  /**
   * Orders a load that may take the room of an entry that was loaded for a late call. If the room is still too small,
   * that entry stays.
   */
  #orderOverLate(invocation: Invocation, line: Line<Slot>, nowMs: number, byForce: boolean): boolean {
    const before = line.lateLoaded;
    line.lateLoaded = undefined;
    before?.slot.gpu.settle(before.slot);
    if (this.#loading.order(invocation, this.#state.slotOf(invocation), nowMs, byForce)) return true;
    line.lateLoaded = before;
    before?.slot.gpu.settle(before.slot);
    return false;
  }
}

/** One entry at a time is loaded for late calls; only an entry that has waited longer replaces it. */
export function toLoad({ lateLoadable, lateLoaded }: Line<Slot>): Entry<Slot> | undefined {
  const late = lateLoadable.first();
  if (late === undefined || lateLoaded === undefined) return late;
  const loaded = lateLoaded.late.head;
  return loaded === undefined || late.late.head!.sequence < loaded.sequence ? late : undefined;
}
