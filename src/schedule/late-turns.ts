import type { IndexedHeap } from './heap.ts';
import type { Line } from './lines.ts';
import type { Loading } from './loading.ts';
import { state } from './invocations.ts';
import type { Slot } from './slots.ts';
import { nobody, type SchedulerState } from './state.ts';
import { tuning } from './tuning.ts';

const { overdueShare } = tuning.queues;

/**
 * Turns for late calls. A call that can no longer meet its SLO gets the lane and the link when the others leave them
 * free; once it has waited beyond the policy's bound, it also gets one turn in `overdueShare`.
 */
export class LateTurns {
  readonly #state: SchedulerState;
  readonly #loading: Loading;

  constructor(schedulerState: SchedulerState, loading: Loading) {
    this.#state = schedulerState;
    this.#loading = loading;
  }

  /** The entry whose late call waits longest, to be loaded or not. */
  first({ lateRunnable, lateLoadable }: Line): number {
    const runnable = lateRunnable.first();
    const loadable = lateLoadable.first();
    if (runnable === nobody || loadable === nobody) return runnable === nobody ? loadable : runnable;
    return lateRunnable.keyOf(runnable) < lateLoadable.keyOf(loadable) ? runnable : loadable;
  }

  /** Whether a late call goes before the calls on time. */
  isTurn(line: Line, turnsSince: number, entry: number, nowMs: number): boolean {
    if (entry === nobody || turnsSince < overdueShare) return false;
    return nowMs - this.#state.arrivalMs[line.lateHead(entry)]! >= this.#state.policy.waitBoundMs;
  }

  /** The invocation whose turn the lane is, before what is on time and comes first; or -1. */
  laneTurn(line: Line, nowMs: number): number {
    const { startsSinceLate, runnable, loadable } = line;
    const { loadAhead } = this.#state.policy;
    line.turn = nobody;
    if (startsSinceLate < overdueShare) return nobody;
    if (startsSinceLate % overdueShare === 0) {
      this.find(runnable, line, nowMs);
      if (!loadAhead) this.find(loadable, line, nowMs);
    }
    const late = loadAhead ? line.lateRunnable.first() : this.first(line);
    if (!this.#state.isUniform) {
      line.turn = this.#passedOver(line, loadAhead ? [runnable] : [runnable, loadable], late, nowMs);
      if (line.turn !== nobody) return line.turn;
    }
    return this.isTurn(line, startsSinceLate, late, nowMs) ? line.lateHead(late) : nobody;
  }

  /** Loads for one whose turn it is before what is on time and comes first. Returns whether it was somebody's turn. */
  takeLoadTurn(line: Line, nowMs: number): boolean {
    if (line.loadsSinceLate < overdueShare) return false;
    const late = this.toLoad(line);
    const passedOver = this.#state.isUniform ? nobody : this.#passedOver(line, [line.loadable], late, nowMs);
    if (passedOver !== nobody && this.orderOnTime(passedOver, line, nowMs)) {
      line.loadsSinceLate = 0;
      return true;
    }
    if (!this.isTurn(line, line.loadsSinceLate, late, nowMs)) return false;
    this.load(line, late, nowMs);
    return true;
  }

  /**
   * One on time that priorities have passed over for as long as the policy's bound, and that came before what is late;
   * or -1. Not asked where no priority is above another: the order by deadlines lets nobody down who can still meet the
   * SLO.
   */
  #passedOver(line: Line, heaps: readonly IndexedHeap[], late: number, nowMs: number): number {
    const { arrivalMs, sequence, policy } = this.#state;
    const oldest = line.oldest(heaps);
    if (oldest === nobody || nowMs - arrivalMs[oldest]! < policy.waitBoundMs) return nobody;
    return late === nobody || sequence[oldest]! < sequence[line.lateHead(late)]! ? oldest : nobody;
  }

  /** Whether the invocation is refused once it is late. */
  isShed(invocation: number): boolean {
    return this.#state.isShedWhenLate(invocation, this.#state.sheets[this.#state.functionOf[invocation]!]!);
  }

  /** It can no longer meet its SLO: it is shed, or goes behind what can. */
  mark(invocation: number, line: Line, nowMs: number): void {
    const { invocationState, shell } = this.#state;
    const slot = this.#state.slotOf(invocation);
    if (this.isShed(invocation)) {
      this.#state.leave(invocation);
      invocationState[invocation] = state.ended;
      const predictedEndMs = nowMs + this.#state.offerOf(slot).warmMs;
      shell.act({ kind: 'shed', invocation, predictedEndMs });
    } else line.makeLate(invocation, slot.entry);
    this.#state.settle(slot);
  }

  /** A load is over, and some that were taken for late by its prediction are not. */
  reconsider(slot: Slot, nowMs: number): void {
    const { entry } = slot;
    if (entry < 0 || !this.#state.isResident(slot)) return;
    const line = this.#state.lines[slot.gpu]!;
    const { warmMs } = this.#state.offerOf(slot);
    const sheet = this.#state.sheets[slot.functionIndex]!;
    let found = false;
    for (let late = line.lateHead(entry), next = late; late !== nobody; late = next) {
      next = line.nextOf(late);
      const dueMs = this.#state.dueMs(late, sheet);
      if (nowMs + warmMs > dueMs) continue;
      line.makeOnTime(late, entry, this.#state.priorityOf(late, sheet), dueMs);
      found = true;
    }
    if (found) this.#state.settle(slot);
  }

  /**
   * Only the first calls are checked when a turn is picked, so a call behind them may have become late unnoticed. When
   * a late turn is due, all calls are checked.
   */
  find(heap: IndexedHeap, line: Line, nowMs: number): void {
    const entries: number[] = [];
    for (let place = 0; place < heap.size; place++) entries.push(heap.at(place));
    for (const entry of entries) {
      const { warmMs } = this.#state.offerOf(line.slotOf(entry));
      for (let each = line.head(entry), next = each; each !== nobody; each = next) {
        next = line.nextOf(each);
        if (nowMs + warmMs > this.#state.dueMsOf(each)) this.mark(each, line, nowMs);
        // Behind a priority one may be late that the priority itself is not.
        else if (this.#state.isUniform) break;
      }
    }
  }

  /** What is on time and comes first finds no room. */
  loadBesideFull(line: Line, nowMs: number): void {
    if (line.startsSinceLateLoad < overdueShare) return;
    this.find(line.loadable, line, nowMs);
    const late = this.toLoad(line);
    if (this.isTurn(line, line.startsSinceLateLoad, late, nowMs)) this.load(line, late, nowMs);
    // Not again before the next turn.
    else line.startsSinceLateLoad = 0;
  }

  /** One entry at a time is loaded for late calls; only an entry that has waited longer replaces it. */
  toLoad(line: Line): number {
    const late = line.lateLoadable.first();
    if (late === nobody || line.lateLoaded === nobody) return late;
    const { sequence } = this.#state;
    const loaded = line.lateHead(line.lateLoaded);
    return loaded === nobody || sequence[line.lateHead(late)]! < sequence[loaded]! ? late : nobody;
  }

  /** Loads for a late one, by force in its turn. */
  load(line: Line, entry: number, nowMs: number): void {
    // Functions that are there, with calls on time without end, would keep it out for ever.
    const isForced = this.isTurn(line, line.startsSinceLateLoad, entry, nowMs);
    if (!this.#orderOverLate(line.lateHead(entry), line, nowMs, isForced)) return;
    line.lateLoaded = entry;
    line.isLateLoadTurn = isForced || this.isTurn(line, line.loadsSinceLate, entry, nowMs);
    line.loadsSinceLate = 0;
    line.startsSinceLateLoad = 0;
  }

  /**
   * Beyond the policy's bound a call on time takes the room that was loaded for a late call, unless that was the late
   * call's turn.
   */
  orderOnTime(invocation: number, line: Line, nowMs: number): boolean {
    if (this.#loading.order(invocation, this.#state.slotOf(invocation), nowMs)) return true;
    if (line.lateLoaded === nobody || line.isLateLoadTurn) return false;
    if (nowMs - this.#state.arrivalMs[invocation]! < this.#state.policy.waitBoundMs) return false;
    return this.#orderOverLate(invocation, line, nowMs, false);
  }

  /**
   * Orders a load that may take the room of an entry that was loaded for a late call. If the room is still too small,
   * that entry stays.
   */
  #orderOverLate(invocation: number, line: Line, nowMs: number, byForce: boolean): boolean {
    const before = line.lateLoaded;
    line.lateLoaded = nobody;
    if (before !== nobody) this.#state.settle(line.slotOf(before));
    if (this.#loading.order(invocation, this.#state.slotOf(invocation), nowMs, byForce)) return true;
    line.lateLoaded = before;
    if (before !== nobody) this.#state.settle(line.slotOf(before));
    return false;
  }
}
