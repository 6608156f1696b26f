import { batchMs, isWorthJoining } from './offer.ts';
import type { Load, Slot } from './slots.ts';
import { nobody, type SchedulerState } from './state.ts';
import { tuning } from './tuning.ts';

const { looksPerRow } = tuning.joining;

/** A run, and the invocations that share it. */
interface JoinedRun {
  readonly companions: number[];
  /** With everything there. */
  readonly ms: number;
  readonly endMs: number;
}

export const nobodyElse: number[] = [];

/**
 * The latest end of the run that still answers this invocation in time, if it could be in time where the run ended at
 * `leastMs`.
 */
const within = (limitMs: number, ownMs: number, leastMs: number): number =>
  ownMs >= leastMs ? Math.min(limitMs, ownMs) : limitMs;

/**
 * Which waiting invocations join a run that starts now. No run is delayed for calls that may still come. Invocations of
 * the same function and join key are taken in their order, as long as
 *
 *   - the joined run takes at most three quarters of the time that they take one after the other;
 *   - it ends within the SLO of each call that would be in time in a run of its own;
 *   - it makes no call of another function late that could be in time behind a single run.
 *
 * Where turns are strictly in order nothing is joined.
 */
export class Joining {
  readonly #state: SchedulerState;
  /** Reused for each run that nothing is joined to. */
  readonly #alone = { companions: nobodyElse, ms: NaN, endMs: NaN };

  constructor(schedulerState: SchedulerState) {
    this.#state = schedulerState;
  }

  /** The result holds until the next call. @param load that the run waits for */
  choose(invocation: number, slot: Slot, load: Load | undefined, nowMs: number): JoinedRun {
    const { joinKeys, rows: rowsOf, policy, lines } = this.#state;
    const { warmMs, batches } = this.#state.offerOf(slot);
    const key = joinKeys[invocation]!;
    const line = lines[slot.gpu]!;
    const first = line.nextOf(invocation);
    const rowsMax = batches?.at(-1)?.rows ?? 1;
    const singleEndMs = this.#endMs(warmMs, warmMs, load, nowMs);
    if (batches === undefined || key === '' || first === nobody || policy.order === 'fifo') {
      this.#alone.ms = warmMs;
      this.#alone.endMs = singleEndMs;
      return this.#alone;
    }
    const isLate = line.isLate(invocation);
    let limitMs = this.#othersLimitMs(slot, singleEndMs);
    if (!isLate) limitMs = within(limitMs, this.#state.dueMsOf(invocation), singleEndMs);
    const companions: number[] = [];
    const ownMs = (each: number): number =>
      rowsOf[each]! > 1 ? Math.max(warmMs, batchMs(batches, rowsOf[each]!)) : warmMs;
    let [rows, ms, count, runEndMs] = [rowsOf[invocation]!, warmMs, 0, singleEndMs];
    let oneByOneMs = ownMs(invocation);
    let looksLeft = rowsMax * looksPerRow;
    for (let next = first; next !== nobody && rows < rowsMax && looksLeft > 0; next = line.nextOf(next), looksLeft--) {
      const dueMs = isLate ? Infinity : this.#state.dueMsOf(next);
      const joinedMs = joinKeys[next] === key ? batchMs(batches, rows + rowsOf[next]!) : Infinity;
      if (joinedMs === Infinity) {
        // The calls behind it overtake it.
        limitMs = within(limitMs, dueMs - warmMs, runEndMs);
        continue;
      }
      const ownLimitMs = within(limitMs, dueMs, singleEndMs);
      const endMs = this.#endMs(joinedMs, warmMs, load, nowMs);
      if (endMs > ownLimitMs) break;
      companions.push(next);
      [rows, limitMs, runEndMs] = [rows + rowsOf[next]!, ownLimitMs, endMs];
      oneByOneMs += ownMs(next);
      if (isWorthJoining(joinedMs, oneByOneMs)) [count, ms] = [companions.length, joinedMs];
    }
    companions.length = count;
    return { companions, ms, endMs: this.#endMs(ms, warmMs, load, nowMs) };
  }

  /** When a run that starts now ends. @param warmMs of its first invocation alone @param load that it waits for */
  #endMs(ms: number, warmMs: number, load: Load | undefined, nowMs: number): number {
    const loadedMs = load === undefined ? 0 : this.#state.links.readyMs(load, nowMs) + (ms - warmMs);
    return Math.max(nowMs + ms, loadedMs);
  }

  /** By when the run has to end for the first ones of other functions, of those that could start in time at `fromMs`. */
  #othersLimitMs(slot: Slot, fromMs: number): number {
    const line = this.#state.lines[slot.gpu]!;
    let limitMs = Infinity;
    const consider = (entry: number): void => {
      const head = line.head(entry);
      const other = line.slotOf(entry);
      if (head === nobody || other === slot) return;
      const latestMs = this.#state.dueMsOf(head) - this.#state.offerOf(other).warmMs;
      if (latestMs >= fromMs && latestMs < limitMs) limitMs = latestMs;
    };
    for (let place = 0; place < line.runnable.size; place++) consider(line.runnable.at(place));
    for (const entry of line.loading) consider(entry);
    return limitMs;
  }
}
