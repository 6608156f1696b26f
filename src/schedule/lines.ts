import { IndexedHeap } from './heap.ts';
import { grown, takeOut } from './columns.ts';
import { laneMs, type BatchTime, type LaneTimes } from './offer.ts';
import type { Slot } from './slots.ts';

const none = -1;
/** Larger than any instant and any number of arrivals, so that priority decides first. */
const priorityUnit = 1e12;
/** A deadline beyond this counts as none. */
const farMs = 1e11;

/** What an entry waits for: a load to be ordered, the lane, or a load under way. */
export const stage = { loadable: 0, runnable: 1, loading: 2 } as const;

/** Lists of calls on time are even, lists of late ones odd. */
const isLateList = (list: number): boolean => (list & 1) === 1;

/** Columns by invocation, the same for all lines: an invocation waits in one line at a time. */
export class WaitingColumns {
  next = new Int32Array(64);
  previous = new Int32Array(64);
  key = new Float64Array(64);
  sequence = new Float64Array(64);
  isLate = new Int32Array(64);

  grow(count: number): void {
    this.next = grown(this.next, count);
    this.previous = grown(this.previous, count);
    this.key = grown(this.key, count);
    this.sequence = grown(this.sequence, count);
    this.isLate = grown(this.isLate, count);
  }
}

/**
 * The queue of one GPU. Invocations of a function form one *entry*, since they wait for the same load. Calls on time
 * are ordered by priority, then by deadline and the entry's share of the lane so far: start-time fair queueing (Goyal
 * 1996), so that a function with many invocations does not make those with few late. Late calls are behind them, by
 * arrival.
 */
export class Line {
  /** Entries with calls on time, by stage; and with late calls. */
  readonly runnable = new IndexedHeap();
  readonly loadable = new IndexedHeap();
  readonly lateRunnable = new IndexedHeap();
  readonly lateLoadable = new IndexedHeap();
  /** Entries whose load is under way. */
  readonly loading: number[] = [];
  count = 0;
  lateCount = 0;
  /**
   * Lane milliseconds of calls on time: those that run as soon as the lane is free, and those that have to be loaded
   * first.
   */
  runnableMs = 0;
  loadableMs = 0;
  lateMs = 0;
  /** Link milliseconds of loads that are not ordered yet, for calls on time. */
  linkMs = 0;
  /** The invocation whose turn comes before the first in order, until it has run; or -1. */
  turn = none;
  /** Starts and loads since the last one for a late call. */
  startsSinceLate = 0;
  loadsSinceLate = 0;
  /** Starts since the last load for a late call. */
  startsSinceLateLoad = 0;
  /** The entry that was loaded for a late call and has not run since, or -1. */
  lateLoaded = none;
  /** Whether that load was the late call's turn; then no call on time takes its room. */
  isLateLoadTurn = false;
  readonly #columns: WaitingColumns;
  readonly #free: number[] = [];
  #virtualMs = 0;
  /** By entry. */
  readonly #slots: Slot[] = [];
  #stages = new Int32Array(64);
  #tags = new Float64Array(64);
  #warmMs = new Float64Array(64);
  #batches: (readonly BatchTime[] | undefined)[] = [];
  #linkMs = new Float64Array(64);
  #entries = 0;
  /** By list: an entry has that of its calls on time, 2 * entry, and behind it that of its late ones. */
  #heads = new Int32Array(128);
  #tails = new Int32Array(128);
  #counts = new Int32Array(128);

  constructor(columns: WaitingColumns) {
    this.#columns = columns;
  }

  /** A function begins to wait. Returns its entry. */
  open(slot: Slot, at: number, { warmMs, batches }: LaneTimes, linkMs: number): number {
    const entry = this.#free.pop() ?? this.#entries++;
    if (entry >= this.#stages.length || this.#entries === 1) this.#grow(entry + 1);
    this.#slots[entry] = slot;
    this.#stages[entry] = at;
    for (let list = 2 * entry; list <= 2 * entry + 1; list++) {
      this.#heads[list] = none;
      this.#tails[list] = none;
      this.#counts[list] = 0;
    }
    this.#tags[entry] = this.#virtualMs;
    this.#warmMs[entry] = warmMs;
    this.#batches[entry] = batches;
    this.#linkMs[entry] = linkMs;
    if (at === stage.loading) this.loading.push(entry);
    return entry;
  }

  slotOf(entry: number): Slot {
    return this.#slots[entry]!;
  }

  /** How many of the entry's calls are on time. */
  onTimeCount(entry: number): number {
    return this.#counts[2 * entry]!;
  }

  /** Link milliseconds of the entry that are counted in `linkMs`. */
  linkMsOf(entry: number): number {
    return this.#counts[2 * entry]! > 0 ? this.#linkMs[entry]! : 0;
  }

  waitingCount(entry: number): number {
    return this.#counts[2 * entry]! + this.#counts[2 * entry + 1]!;
  }

  /** The entry's next call on time, or -1. */
  head(entry: number): number {
    return this.#heads[2 * entry]!;
  }

  /** Sort key of an invocation in its list: the least is first. */
  keyOf(invocation: number): number {
    return this.#columns.key[invocation]!;
  }

  /** The invocation behind it in its entry, among the calls on time or the late ones; or -1. */
  nextOf(invocation: number): number {
    return this.#columns.next[invocation]!;
  }

  lateHead(entry: number): number {
    return this.#heads[2 * entry + 1]!;
  }

  /** Joins the entry, on time. @param deadlineMs or another value to order it by */
  add(invocation: number, entry: number, priority: number, deadlineMs: number, sequence: number): void {
    this.#columns.sequence[invocation] = sequence;
    this.#columns.isLate[invocation] = 0;
    this.count++;
    this.#join(invocation, 2 * entry, this.keyFor(priority, deadlineMs));
  }

  /** Leaves its entry. Returns whether the entry is then empty and gone. */
  remove(invocation: number, entry: number): boolean {
    this.#unlink(invocation, entry);
    this.count--;
    if (this.turn === invocation) this.turn = none;
    if (this.waitingCount(entry) > 0) return false;
    if (this.#stages[entry] === stage.loading) takeOut(this.loading, entry);
    if (this.lateLoaded === entry) this.lateLoaded = none;
    this.#free.push(entry);
    if (this.count === 0) {
      this.runnableMs = 0;
      this.loadableMs = 0;
      this.lateMs = 0;
      this.linkMs = 0;
    }
    return true;
  }

  /** The invocation can no longer meet its SLO, and goes behind those that can. */
  makeLate(invocation: number, entry: number): void {
    this.#unlink(invocation, entry);
    this.#columns.isLate[invocation] = 1;
    this.#join(invocation, 2 * entry + 1, this.#columns.sequence[invocation]!);
  }

  /** The invocation was taken for late, but can meet its SLO. */
  makeOnTime(invocation: number, entry: number, priority: number, deadlineMs: number): void {
    this.#unlink(invocation, entry);
    this.count--;
    this.add(invocation, entry, priority, deadlineMs, this.#columns.sequence[invocation]!);
  }

  isLate(invocation: number): boolean {
    return this.#columns.isLate[invocation] === 1;
  }

  /** A run of the entry starts and takes so long: the entry's share of the lane grows. */
  charge(entry: number, ms: number): void {
    const tag = this.#tags[entry]!;
    if (tag > this.#virtualMs) this.#virtualMs = tag;
    this.#tags[entry] = tag + ms;
  }

  /** The entry waits for something else now. */
  setStage(entry: number, to: number, { warmMs, batches }: LaneTimes, linkMs: number): void {
    const from = this.#stages[entry]!;
    const isAlike = warmMs === this.#warmMs[entry] && batches === this.#batches[entry];
    if (from === to && isAlike && linkMs === this.#linkMs[entry]) return;
    const onTime = 2 * entry;
    const late = onTime + 1;
    const counted = this.#counts[onTime]!;
    this.#count(onTime, -counted);
    this.#heapOf(from, onTime).remove(entry);
    if (from === stage.loading && to !== stage.loading) takeOut(this.loading, entry);
    this.#heapOf(from, late).remove(entry);
    this.lateMs += this.#counts[late]! * (warmMs - this.#warmMs[entry]!);
    this.#stages[entry] = to;
    this.#warmMs[entry] = warmMs;
    this.#batches[entry] = batches;
    this.#linkMs[entry] = linkMs;
    if (to === stage.loading && from !== stage.loading) this.loading.push(entry);
    // What was loaded for the late call is gone, with the GPU that lent its link or with its plan.
    if (to === stage.loadable && this.lateLoaded === entry) this.lateLoaded = none;
    this.#count(onTime, counted);
    this.#key(onTime);
    this.#key(late);
  }

  /** Sort key of a call with this deadline and priority. */
  keyFor(priority: number, deadlineMs: number): number {
    return Math.min(deadlineMs, farMs) - priority * priorityUnit;
  }

  /**
   * Lane milliseconds of the calls on time that run as soon as the lane is free and go before a call with this key. @param
   * own entry of its function, or -1
   */
  runnableMsBefore(key: number, own: number): number {
    return this.#msBefore(this.runnable, key + (own === none ? this.#virtualMs : this.#tags[own]!), 0);
  }

  /** Everything that waits, in no order. */
  all(): number[] {
    const found: number[] = [];
    for (let list = 0; list < 2 * this.#entries; list++)
      for (let next = this.#heads[list]!; next !== none; next = this.#columns.next[next]!) found.push(next);
    return found;
  }

  /** The next invocation where turns are strictly in order, resident or not; or -1. */
  next(): number {
    if (this.turn !== none) return this.turn;
    let first = none;
    let key = Infinity;
    for (const heap of [this.runnable, this.loadable]) {
      const entry = heap.first();
      if (entry === none || heap.keyOf(entry) >= key) continue;
      first = this.head(entry);
      key = heap.keyOf(entry);
    }
    for (const entry of this.loading) {
      const head = this.head(entry);
      if (head === none || this.keyOf(head) >= key) continue;
      first = head;
      key = this.keyOf(head);
    }
    return first;
  }

  /** The earliest arrival among the calls on time of the entries in these heaps; or -1. */
  oldest(heaps: readonly IndexedHeap[]): number {
    const { next, sequence } = this.#columns;
    let found = none;
    for (const heap of heaps) {
      for (let place = 0; place < heap.size; place++) {
        for (let each = this.head(heap.at(place)); each !== none; each = next[each]!)
          if (found === none || sequence[each]! < sequence[found]!) found = each;
      }
    }
    return found;
  }

  #msBefore(heap: IndexedHeap, key: number, place: number): number {
    if (place >= heap.size) return 0;
    const entry = heap.at(place);
    const leadMs = key - heap.keyOf(entry);
    if (leadMs < 0) return 0;
    // With each run of the entry its share grows by as much.
    const ownMs = Math.min(this.#laneMs(entry, this.onTimeCount(entry)), leadMs + this.#warmMs[entry]!);
    return ownMs + this.#msBefore(heap, key, 2 * place + 1) + this.#msBefore(heap, key, 2 * place + 2);
  }

  #join(invocation: number, list: number, own: number): void {
    const { next, previous, key } = this.#columns;
    key[invocation] = own;
    // Almost always the very end of the list.
    let before = this.#tails[list]!;
    while (before !== none && key[before]! > own) before = previous[before]!;
    const after = before === none ? this.#heads[list]! : next[before]!;
    previous[invocation] = before;
    next[invocation] = after;
    if (after === none) this.#tails[list] = invocation;
    else previous[after] = invocation;
    this.#count(list, 1);
    if (before === none) this.#setHead(list, invocation);
    else next[before] = invocation;
  }

  #unlink(invocation: number, entry: number): void {
    const { next, previous, isLate } = this.#columns;
    const list = 2 * entry + isLate[invocation]!;
    const before = previous[invocation]!;
    const after = next[invocation]!;
    if (before !== none) next[before] = after;
    if (after === none) this.#tails[list] = before;
    else previous[after] = before;
    this.#count(list, -1);
    if (before === none) this.#setHead(list, after);
  }

  #count(list: number, by: number): void {
    if (by === 0) return;
    const entry = list >> 1;
    const before = this.#counts[list]!;
    const after = before + by;
    this.#counts[list] = after;
    if (isLateList(list)) {
      this.lateCount += by;
      this.lateMs = this.lateCount === 0 ? 0 : this.lateMs + by * this.#warmMs[entry]!;
      return;
    }
    const isAlone = this.#batches[entry] === undefined;
    const ms = isAlone ? by * this.#warmMs[entry]! : this.#laneMs(entry, after) - this.#laneMs(entry, before);
    if (this.#stages[entry] === stage.loadable) {
      this.loadableMs += ms;
      if (before === 0) this.linkMs += this.#linkMs[entry]!;
      else if (after === 0) this.linkMs -= this.#linkMs[entry]!;
    } else if (this.#stages[entry] === stage.runnable) this.runnableMs += ms;
  }

  #laneMs(entry: number, calls: number): number {
    return laneMs({ warmMs: this.#warmMs[entry]!, batches: this.#batches[entry] }, calls);
  }

  #setHead(list: number, invocation: number): void {
    this.#heads[list] = invocation;
    this.#key(list);
  }

  #key(list: number): void {
    const entry = list >> 1;
    const heap = this.#heapOf(this.#stages[entry]!, list);
    const head = this.#heads[list]!;
    heap.remove(entry);
    if (head !== none && this.#stages[entry] !== stage.loading)
      heap.add(entry, this.#columns.key[head]! + (isLateList(list) ? 0 : this.#tags[entry]!));
  }

  /** A loading entry is in no heap. */
  #heapOf(at: number, list: number): IndexedHeap {
    if (isLateList(list)) return at === stage.runnable ? this.lateRunnable : this.lateLoadable;
    return at === stage.runnable ? this.runnable : this.loadable;
  }

  #grow(count: number): void {
    this.#stages = grown(this.#stages, count);
    this.#heads = grown(this.#heads, 2 * count);
    this.#tails = grown(this.#tails, 2 * count);
    this.#counts = grown(this.#counts, 2 * count);
    this.#tags = grown(this.#tags, count);
    this.#warmMs = grown(this.#warmMs, count);
    this.#linkMs = grown(this.#linkMs, count);
    for (const heap of [this.runnable, this.loadable, this.lateRunnable, this.lateLoadable])
      heap.grow(this.#stages.length);
  }
}
