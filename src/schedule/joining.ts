import { nobodyElse } from './gpu.ts';
import type { Invocation } from './invocation.ts';
import type { Entry } from './lines.ts';
import { batchMs, isWorthJoining } from './offer.ts';
import type { Load, Slot } from './gpu.ts';
import type { SchedulerState } from './state.ts';
import { tuning } from './tuning.ts';

const { looksPerRow } = tuning.joining;

/** A run, and the invocations that share it. */
interface JoinedRun {
  readonly companions: readonly Invocation[];
  /** With everything there. */
  readonly ms: number;
  readonly endMs: number;
}

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

  constructor(state: SchedulerState) {
    this.#state = state;
  }

  /** The result holds until the next call. @param load that the run waits for */
  choose(invocation: Invocation, slot: Slot, load: Load | undefined, nowMs: number): JoinedRun {
    const { warmMs, batches } = slot.variant;
    const { joinKey, next: first, isLate } = invocation;
    const singleEndMs = this.#endMs(warmMs, warmMs, load, nowMs);
    if (batches === undefined || joinKey === '' || first === undefined || this.#state.policy.order === 'fifo') {
      this.#alone.ms = warmMs;
      this.#alone.endMs = singleEndMs;
      return this.#alone;
    }
    const rowsMax = batches.at(-1)?.rows ?? 1;
    let limitMs = othersLimitMs(slot, singleEndMs);
    if (!isLate) limitMs = within(limitMs, invocation.dueMs, singleEndMs);
    const companions: Invocation[] = [];
    const ownMs = ({ rows }: Invocation): number => (rows > 1 ? Math.max(warmMs, batchMs(batches, rows)) : warmMs);
    let [rows, ms, count, runEndMs] = [invocation.rows, warmMs, 0, singleEndMs];
    let oneByOneMs = ownMs(invocation);
    let looksLeft = rowsMax * looksPerRow;
    for (
      let next: Invocation | undefined = first;
      next !== undefined && rows < rowsMax && looksLeft > 0;
      next = next.next, looksLeft--
    ) {
      const dueMs = isLate ? Infinity : next.dueMs;
      const joinedMs = next.joinKey === joinKey ? batchMs(batches, rows + next.rows) : Infinity;
      if (joinedMs === Infinity) {
        // The calls behind it overtake it.
        limitMs = within(limitMs, dueMs - warmMs, runEndMs);
        continue;
      }
      const ownLimitMs = within(limitMs, dueMs, singleEndMs);
      const endMs = this.#endMs(joinedMs, warmMs, load, nowMs);
      if (endMs > ownLimitMs) break;
      companions.push(next);
      [rows, limitMs, runEndMs] = [rows + next.rows, ownLimitMs, endMs];
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
}

/** By when the run has to end for the first ones of other functions, of those that could start in time at `fromMs`. */
function othersLimitMs(slot: Slot, fromMs: number): number {
  const { runnable, loading } = slot.gpu.line;
  let limitMs = Infinity;
  const consider = ({ onTime: { head }, slot: other }: Entry<Slot>): void => {
    if (head === undefined || other === slot) return;
    const latestMs = head.dueMs - other.variant.warmMs;
    if (latestMs >= fromMs && latestMs < limitMs) limitMs = latestMs;
  };
  for (let place = 0; place < runnable.size; place++) consider(runnable.at(place));
  for (const entry of loading) consider(entry);
  return limitMs;
}
