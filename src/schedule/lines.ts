import { takeOut } from './columns.ts';
import { Heap } from './heap.ts';
import type { Invocation } from './invocation.ts';
import { laneMs, type BatchTime, type LaneTimes } from './offer.ts';

/** Larger than any instant and any number of arrivals, so that priority decides first. */
const priorityUnit = 1e12;
/** A deadline or latest start beyond this counts as none. */
export const farMs = 1e11;

/** What an entry waits for: a load to be ordered, the lane, or a load under way. */
export type Stage = 'loadable' | 'runnable' | 'loading';

/** Sort key of a call with this deadline and priority. */
export const keyFor = (priority: number, deadlineMs: number): number =>
  Math.min(deadlineMs, farMs) - priority * priorityUnit;

/** Calls of one function in a line, the first in order first. */
export interface Calls {
  head: Invocation | undefined;
  tail: Invocation | undefined;
  count: number;
}

const noCalls = (): Calls => ({ head: undefined, tail: undefined, count: 0 });

/**
 * The invocations of a function that wait for one GPU: they wait for the same load. Used again by other functions. The
 * line does not look into its slot.
 */
export class Entry<Slot> implements LaneTimes {
  readonly number: number;
  slot: Slot;
  stage: Stage = 'loadable';
  readonly onTime = noCalls();
  readonly late = noCalls();
  /** Its share of the lane so far. */
  tag = NaN;
  warmMs = NaN;
  batches: readonly BatchTime[] | undefined = undefined;
  /** How long the GPU's own link would carry what is missing. */
  linkMs = NaN;

  constructor(number: number, slot: Slot) {
    this.number = number;
    this.slot = slot;
  }

  get count(): number {
    return this.onTime.count + this.late.count;
  }

  /** Link milliseconds that count in the line's `linkMs`. */
  get countedLinkMs(): number {
    return this.onTime.count > 0 ? this.linkMs : 0;
  }
}

/**
 * The queue of one GPU. Calls on time are ordered by priority, then by deadline and the entry's share of the lane so
 * far: start-time fair queueing (Goyal 1996), so that a function with many invocations does not make those with few
 * late. Late calls are behind them, by arrival.
 */
export class Line<Slot> {
  /** Entries with calls on time, by stage; and with late calls. */
  readonly runnable = new Heap<Entry<Slot>>();
  readonly loadable = new Heap<Entry<Slot>>();
  readonly lateRunnable = new Heap<Entry<Slot>>();
  readonly lateLoadable = new Heap<Entry<Slot>>();
  /** Entries whose load is under way. */
  readonly loading: Entry<Slot>[] = [];
  count = 0;
  lateCount = 0;
  /**
   * Lane milliseconds of calls on time: those that run as soon as the lane is free, and those that have to be loaded
   * first.
   */
  runnableMs = NaN;
  loadableMs = NaN;
  lateMs = NaN;
  /** Link milliseconds of loads that are not ordered yet, for calls on time. */
  linkMs = NaN;
  /** The invocation whose turn comes before the first in order, until it has run. */
  turn: Invocation | undefined = undefined;
  /** Starts and loads since the last one for a late call. */
  startsSinceLate = 0;
  loadsSinceLate = 0;
  /** Starts since the last load for a late call. */
  startsSinceLateLoad = 0;
  /** The entry that was loaded for a late call and has not run since. */
  lateLoaded: Entry<Slot> | undefined = undefined;
  /** Whether that load was the late call's turn; then no call on time takes its room. */
  isLateLoadTurn = false;
  /** By number; those in `#free` are empty. */
  readonly #entries: Entry<Slot>[] = [];
  readonly #free: Entry<Slot>[] = [];
  #virtualMs = NaN;

  constructor() {
    // Not where they are declared: see `LinkLanes`.
    this.#virtualMs = 0;
    this.#hasNothing();
  }

  #hasNothing(): void {
    this.runnableMs = 0;
    this.loadableMs = 0;
    this.lateMs = 0;
    this.linkMs = 0;
  }

  /** A function begins to wait. */
  open(slot: Slot, stage: Stage, { warmMs, batches }: LaneTimes, linkMs: number): Entry<Slot> {
    let entry = this.#free.pop();
    if (entry === undefined) {
      entry = new Entry(this.#entries.length, slot);
      this.#entries.push(entry);
    }
    entry.slot = slot;
    entry.stage = stage;
    entry.tag = this.#virtualMs;
    entry.warmMs = warmMs;
    entry.batches = batches;
    entry.linkMs = linkMs;
    if (stage === 'loading') this.loading.push(entry);
    return entry;
  }

  /** Joins the entry, on time. @param by its deadline, or another value to order it by */
  add(invocation: Invocation, entry: Entry<Slot>, by: number): void {
    invocation.isLate = false;
    this.count++;
    invocation.key = keyFor(invocation.priority, by);
    this.#join(invocation, entry, entry.onTime);
  }

  /** Leaves its entry. Returns whether the entry is then empty and gone. */
  remove(invocation: Invocation, entry: Entry<Slot>): boolean {
    this.#unlink(invocation, entry);
    this.count--;
    if (this.turn === invocation) this.turn = undefined;
    if (entry.count > 0) return false;
    if (entry.stage === 'loading') takeOut(this.loading, entry);
    if (this.lateLoaded === entry) this.lateLoaded = undefined;
    this.#free.push(entry);
    if (this.count === 0) this.#hasNothing();
    return true;
  }

  /** The invocation can no longer meet its SLO, and goes behind those that can. */
  makeLate(invocation: Invocation, entry: Entry<Slot>): void {
    this.#unlink(invocation, entry);
    invocation.isLate = true;
    invocation.key = invocation.sequence;
    this.#join(invocation, entry, entry.late);
  }

  /** The invocation was taken for late, but can meet its SLO. */
  makeOnTime(invocation: Invocation, entry: Entry<Slot>): void {
    this.#unlink(invocation, entry);
    this.count--;
    this.add(invocation, entry, invocation.dueMs);
  }

  /** A run of the entry starts and takes so long: the entry's share of the lane grows. */
  charge(entry: Entry<Slot>, ms: number): void {
    if (entry.tag > this.#virtualMs) this.#virtualMs = entry.tag;
    entry.tag += ms;
  }

  /** The entry waits for something else now. */
  setStage(entry: Entry<Slot>, to: Stage, { warmMs, batches }: LaneTimes, linkMs: number): void {
    const from = entry.stage;
    if (from === to && warmMs === entry.warmMs && batches === entry.batches && linkMs === entry.linkMs) return;
    const { onTime, late } = entry;
    const counted = onTime.count;
    this.#count(entry, onTime, -counted);
    if (from !== 'loading') {
      this.#heapOf(from, false).remove(entry);
      this.#heapOf(from, true).remove(entry);
    } else if (to !== 'loading') takeOut(this.loading, entry);
    this.lateMs += late.count * (warmMs - entry.warmMs);
    entry.stage = to;
    entry.warmMs = warmMs;
    entry.batches = batches;
    entry.linkMs = linkMs;
    if (to === 'loading' && from !== 'loading') this.loading.push(entry);
    // What was loaded for the late call is gone, with the GPU that lent its link or with its plan.
    if (to === 'loadable' && this.lateLoaded === entry) this.lateLoaded = undefined;
    this.#count(entry, onTime, counted);
    this.#key(entry, onTime);
    this.#key(entry, late);
  }

  /**
   * Lane milliseconds of the calls on time that run as soon as the lane is free and go before a call with this key: the
   * earlier ones of its function, and of the others those that are before the last of these.
   *
   * @param own entry of its function
   */
  runnableMsBefore(key: number, own: Entry<Slot> | undefined): number {
    if (own === undefined) return this.#msBefore(this.runnable, key + this.#virtualMs, undefined, 0);
    let ownMs = 0;
    if (own.stage === 'runnable') {
      let count = own.onTime.count;
      for (let last = own.onTime.tail; last !== undefined && last.key > key; last = last.previous) count--;
      ownMs = laneMs(own, count);
    }
    return ownMs + this.#msBefore(this.runnable, key + own.tag + ownMs, own, 0);
  }

  /** Everything that waits, in no order. */
  all(): Invocation[] {
    const found: Invocation[] = [];
    for (const { onTime, late } of this.#entries) {
      for (let next = onTime.head; next !== undefined; next = next.next) found.push(next);
      for (let next = late.head; next !== undefined; next = next.next) found.push(next);
    }
    return found;
  }

  /** The next invocation where turns are strictly in order, resident or not. */
  next(): Invocation | undefined {
    if (this.turn !== undefined) return this.turn;
    let first: Invocation | undefined;
    let key = Infinity;
    for (const heap of [this.runnable, this.loadable]) {
      const entry = heap.first();
      if (entry === undefined || heap.keyOf(entry) >= key) continue;
      first = entry.onTime.head;
      key = heap.keyOf(entry);
    }
    for (const { onTime } of this.loading) {
      const { head } = onTime;
      if (head === undefined || head.key >= key) continue;
      first = head;
      key = head.key;
    }
    return first;
  }

  /** The earliest arrival among the calls on time of the entries in these heaps. */
  oldest(heaps: readonly Heap<Entry<Slot>>[]): Invocation | undefined {
    let found: Invocation | undefined;
    for (const heap of heaps) {
      for (let place = 0; place < heap.size; place++) {
        for (let each = heap.at(place).onTime.head; each !== undefined; each = each.next)
          if (found === undefined || each.sequence < found.sequence) found = each;
      }
    }
    return found;
  }

  /** @param own is left out */
  #msBefore(heap: Heap<Entry<Slot>>, key: number, own: Entry<Slot> | undefined, place: number): number {
    if (place >= heap.size) return 0;
    const entry = heap.at(place);
    const leadMs = key - heap.keyOf(entry);
    if (leadMs < 0) return 0;
    const ms = entry === own ? 0 : callsMsBefore(entry, key);
    return ms + this.#msBefore(heap, key, own, 2 * place + 1) + this.#msBefore(heap, key, own, 2 * place + 2);
  }

  #join(invocation: Invocation, entry: Entry<Slot>, calls: Calls): void {
    const { key } = invocation;
    // Almost always the very end of the list.
    let before = calls.tail;
    while (before !== undefined && before.key > key) before = before.previous;
    const after = before === undefined ? calls.head : before.next;
    invocation.previous = before;
    invocation.next = after;
    if (after === undefined) calls.tail = invocation;
    else after.previous = invocation;
    this.#count(entry, calls, 1);
    if (before === undefined) this.#setHead(entry, calls, invocation);
    else before.next = invocation;
  }

  #unlink(invocation: Invocation, entry: Entry<Slot>): void {
    const calls = invocation.isLate ? entry.late : entry.onTime;
    const { previous, next } = invocation;
    if (previous !== undefined) previous.next = next;
    if (next === undefined) calls.tail = previous;
    else next.previous = previous;
    this.#count(entry, calls, -1);
    if (previous === undefined) this.#setHead(entry, calls, next);
  }

  #count(entry: Entry<Slot>, calls: Calls, by: number): void {
    if (by === 0) return;
    const before = calls.count;
    const after = before + by;
    calls.count = after;
    if (calls === entry.late) {
      this.lateCount += by;
      this.lateMs = this.lateCount === 0 ? 0 : this.lateMs + by * entry.warmMs;
      return;
    }
    const isAlone = entry.batches === undefined;
    const ms = isAlone ? by * entry.warmMs : laneMs(entry, after) - laneMs(entry, before);
    if (entry.stage === 'loadable') {
      this.loadableMs += ms;
      if (before === 0) this.linkMs += entry.linkMs;
      else if (after === 0) this.linkMs -= entry.linkMs;
    } else if (entry.stage === 'runnable') this.runnableMs += ms;
  }

  #setHead(entry: Entry<Slot>, calls: Calls, invocation: Invocation | undefined): void {
    calls.head = invocation;
    this.#key(entry, calls);
  }

  #key(entry: Entry<Slot>, calls: Calls): void {
    // A loading entry is in no heap.
    if (entry.stage === 'loading') return;
    const isLate = calls === entry.late;
    const heap = this.#heapOf(entry.stage, isLate);
    heap.remove(entry);
    if (calls.head !== undefined) heap.add(entry, calls.head.key + (isLate ? 0 : entry.tag));
  }

  #heapOf(stage: Stage, isLate: boolean): Heap<Entry<Slot>> {
    if (isLate) return stage === 'runnable' ? this.lateRunnable : this.lateLoadable;
    return stage === 'runnable' ? this.runnable : this.loadable;
  }
}

/** Lane milliseconds of the calls on time of an entry that go before this key: with each of its runs its share grows. */
function callsMsBefore<Slot>(entry: Entry<Slot>, key: number): number {
  let count = 0;
  for (let call = entry.onTime.head; call !== undefined; call = call.next) {
    if (call.key + entry.tag + count * entry.warmMs > key) break;
    count++;
  }
  return laneMs(entry, count);
}
