import type { Growth } from './growth.ts';
import { Joining, nobodyElse } from './joining.ts';
import { LateTurns } from './late-turns.ts';
import type { Line } from './lines.ts';
import { Loading } from './loading.ts';
import type { LoadOption } from './offer.ts';
import { state, undecided } from './invocations.ts';
import type { Load, Slot } from './slots.ts';
import { nobody, type SchedulerState } from './state.ts';
import type { Start } from './types.ts';
import { tuning } from './tuning.ts';

const { overdueShare } = tuning.queues;

/** All layers of the function are there, some, none. */
const starts: readonly Start[] = ['warm', 'partial', 'cold'];

/**
 * Decides what a GPU does next. Invocations that can still meet their SLO go first, on the link and on the lane. Late
 * ones get what is left over, and one turn in `overdueShare` once they have waited beyond the policy's bound.
 */
export class Dispatcher {
  readonly #state: SchedulerState;
  readonly #growth: Growth;
  readonly #loading: Loading;
  readonly #late: LateTurns;
  readonly #joining: Joining;
  /** GPUs to dispatch when a load ends. */
  readonly #freed: number[] = [];
  /** When the latest pick has to be made again, because something may be late by then. */
  #wakeMs = Infinity;

  constructor(schedulerState: SchedulerState, growth: Growth) {
    this.#state = schedulerState;
    this.#growth = growth;
    this.#loading = new Loading(schedulerState);
    this.#late = new LateTurns(schedulerState, this.#loading);
    this.#joining = new Joining(schedulerState);
  }

  /**
   * Starts the invocation if the GPU is idle, nothing waits there, and the whole function is resident. Returns whether
   * it did.
   */
  runAtOnce(invocation: number, slot: Slot, nowMs: number): boolean {
    const { running, lines } = this.#state;
    const { gpu } = slot;
    const line = lines[gpu]!;
    if (running[gpu] !== nobody || line.count > 0 || !this.#state.isResident(slot)) return false;
    line.startsSinceLate++;
    this.#state.gpuOf[invocation] = gpu;
    this.#start(invocation, slot, 0, null, nobodyElse, nowMs + this.#state.offerOf(slot).warmMs);
    this.#considerGrowth(slot, nowMs);
    return true;
  }

  /** Starts what this GPU can load and run now. */
  dispatch(gpu: number, nowMs: number): void {
    const line = this.#state.lines[gpu]!;
    if (line.count === 0 || !this.#state.up[gpu]) return;
    const { loadAhead, order } = this.#state.policy;
    if (loadAhead) this.#loadAhead(line, gpu, nowMs);
    if (this.#state.running[gpu] !== nobody || line.count === 0) return;
    const next = order === 'fifo' ? this.#firstInLine(line, gpu, nowMs) : this.#pick(line, gpu, nowMs);
    if (next !== nobody) {
      this.#run(next, gpu, nowMs);
      return;
    }
    if (this.#wakeMs === Infinity) return;
    const { wakes, shell } = this.#state;
    if (wakes.has(gpu)) {
      if (wakes.keyOf(gpu) > nowMs && wakes.keyOf(gpu) <= this.#wakeMs) return;
      wakes.remove(gpu);
    }
    wakes.add(gpu, this.#wakeMs);
    shell.wake(this.#wakeMs);
  }

  /** After a load: the GPUs that have a link for it now, the one with the most urgent invocation first. */
  dispatchFreed(slot: Slot, { transfers }: LoadOption, nowMs: number): void {
    this.#late.reconsider(slot, nowMs);
    const { links } = this.#state;
    const freed = this.#freed;
    // Popping keeps the array's storage.
    while (freed.length > 0) freed.pop();
    for (const { link } of transfers) {
      this.#addFreed(link, nowMs);
      for (const waiting of links.inTurnWith(link)) this.#addFreed(waiting, nowMs);
    }
    for (let index = 0; index < freed.length; index++) {
      const line = this.#state.lines[freed[index]!]!;
      // The other entries' loads pass over the late ones there.
      if (index > 0 && line.loadable.size === 0) line.loadsSinceLate++;
      this.dispatch(freed[index]!, nowMs);
    }
  }

  #addFreed(gpu: number, nowMs: number): void {
    const freed = this.#freed;
    if (this.#state.lines[gpu]!.count === 0 || freed.includes(gpu)) return;
    const dueMs = this.#linkDueMs(gpu, nowMs);
    let place = freed.length;
    for (; place > 0 && this.#linkDueMs(freed[place - 1]!, nowMs) > dueMs; place--) freed[place] = freed[place - 1]!;
    freed[place] = gpu;
  }

  /** Strictly in order, resident or not. */
  #firstInLine(line: Line, gpu: number, nowMs: number): number {
    this.#wakeMs = Infinity;
    if (line.turn === nobody) line.turn = this.#overdueInLine(line, nowMs);
    for (;;) {
      const first = line.next();
      if (first === nobody || !this.#late.isShed(first)) return first;
      const { warmMs } = this.#state.offerAt(this.#state.functionOf[first]!, gpu);
      if (nowMs + warmMs <= this.#state.dueMsOf(first)) return first;
      this.#late.mark(first, line, nowMs);
    }
  }

  /** In order of arrival only a priority overtakes. */
  #overdueInLine(line: Line, nowMs: number): number {
    const { isUniform, policy, sequence, arrivalMs } = this.#state;
    if (isUniform || line.startsSinceLate < overdueShare) return nobody;
    let oldest = nobody;
    for (const invocation of line.all()) {
      if (oldest === nobody || sequence[invocation]! < sequence[oldest]!) oldest = invocation;
    }
    return oldest !== nobody && nowMs - arrivalMs[oldest]! >= policy.waitBoundMs ? oldest : nobody;
  }

  /** The invocation that gets the lane now, or -1; then `#wakeMs` is when to look again. */
  #pick(line: Line, gpu: number, nowMs: number): number {
    this.#wakeMs = Infinity;
    const { policy } = this.#state;
    const turn = this.#late.laneTurn(line, nowMs);
    if (turn !== nobody) return turn;
    const hidden = this.#hidden(line, nowMs);
    for (;;) {
      const entry = line.runnable.first();
      let next = entry === nobody ? nobody : line.head(entry);
      if (hidden !== nobody && line.head(hidden) !== nobody) {
        const joining = line.head(hidden);
        if (next === nobody || line.keyOf(joining) < line.keyOf(next)) next = joining;
      }
      if (next === nobody) break;
      const { warmMs } = this.#state.offerAt(this.#state.functionOf[next]!, gpu);
      if (nowMs + warmMs <= this.#state.dueMsOf(next)) return next;
      this.#late.mark(next, line, nowMs);
    }
    if (!policy.loadAhead) return this.#pickLoadable(line, nowMs);
    const late = this.#lateBesideLoads(line, nowMs);
    if (late !== nobody) return line.lateHead(late);
    if (hidden !== nobody && line.lateHead(hidden) !== nobody) return line.lateHead(hidden);
    if (this.#wakeMs < Infinity) return nobody;
    // There was no room: waiting functions hold it.
    if (!this.#isLinkFree(line, gpu)) return nobody;
    const onTime = line.loadable.first();
    if (onTime !== nobody) return line.head(onTime);
    const entry = line.lateLoadable.first();
    return entry === nobody ? nobody : line.lateHead(entry);
  }

  /**
   * For policies that load nothing ahead, when no call on time has its whole function resident: a call that can be
   * loaded in time, else the first by arrival.
   */
  #pickLoadable(line: Line, nowMs: number): number {
    const { links, policy } = this.#state;
    for (let entry = line.loadable.first(); entry !== nobody; entry = line.loadable.first()) {
      const invocation = line.head(entry);
      const slot = line.slotOf(entry);
      const way = links.choose(this.#state.offerOf(slot).ways, policy.borrow === 'when-idle');
      const endMs = links.estimate(way, this.#state.keptPrefix(slot), 0, nowMs);
      if (endMs <= this.#state.dueMsOf(invocation)) return invocation;
      this.#late.mark(invocation, line, nowMs);
    }
    const late = this.#late.first(line);
    return late === nobody ? nobody : line.lateHead(late);
  }

  /**
   * Among the loading entries, one whose execution would no longer have to wait for its load; or -1, and when to look
   * again.
   */
  #hidden(line: Line, nowMs: number): number {
    const { links } = this.#state;
    for (const entry of line.loading) {
      const slot = line.slotOf(entry);
      const { load } = slot;
      // Layers of a former plan are of no use: it comes up again when they have arrived, and have gone. What has no
      // load is still being read from disk.
      if (load === undefined || this.#state.isStale(slot)) continue;
      const hiddenFromMs = links.readyMs(load, nowMs) - this.#state.offerOf(slot).warmMs;
      if (hiddenFromMs <= nowMs) return entry;
      if (hiddenFromMs < this.#wakeMs) this.#wakeMs = hiddenFromMs;
    }
    return nobody;
  }

  /**
   * The entry whose late invocation waits longest, among those whose run ends before a load under way needs the lane;
   * or -1.
   */
  #lateBesideLoads(line: Line, nowMs: number): number {
    const { lateRunnable } = line;
    const first = lateRunnable.first();
    if (first === nobody || !this.#wouldDelay(line, first, nowMs)) return first;
    let found = nobody;
    for (let place = 1; place < lateRunnable.size; place++) {
      const entry = lateRunnable.at(place);
      if (found !== nobody && lateRunnable.keyOf(entry) >= lateRunnable.keyOf(found)) continue;
      if (!this.#wouldDelay(line, entry, nowMs)) found = entry;
    }
    return found;
  }

  /** Whether to run one that is late now would make one late whose load is about to end. */
  #wouldDelay(line: Line, late: number, nowMs: number): boolean {
    if (this.#wakeMs === Infinity) return false;
    const endMs = nowMs + this.#state.offerOf(line.slotOf(late)).warmMs;
    for (const entry of line.loading) {
      const head = line.head(entry);
      const slot = line.slotOf(entry);
      const { load } = slot;
      // What is late by its load alone is delayed by nobody.
      if (head === nobody || load === undefined || this.#state.links.readyMs(load, nowMs) > this.#state.dueMsOf(head))
        continue;
      if (endMs + this.#state.offerOf(slot).warmMs > this.#state.dueMsOf(head)) return true;
    }
    return false;
  }

  /** Whether this GPU's link is free for its next load. Loads over several switches do not wait for neighbours. */
  #isLinkFree(line: Line, gpu: number): boolean {
    const { links } = this.#state;
    if (links.hasRoom(gpu)) return true;
    if (!links.isIdle(gpu)) return false;
    const next = line.loadable.size > 0 ? line.loadable.first() : line.lateLoadable.first();
    return next === nobody || this.#state.offerOf(line.slotOf(next)).ways.length > 1;
  }

  /** Orders the next load for a waiting invocation, while this GPU's own link is free. */
  #loadAhead(line: Line, gpu: number, nowMs: number): void {
    const { links, policy } = this.#state;
    if (!this.#isLinkFree(line, gpu)) return;
    const isFifo = policy.order === 'fifo';
    if (this.#late.takeLoadTurn(line, nowMs)) return;
    for (;;) {
      const entry = line.loadable.first();
      if (entry === nobody) break;
      const invocation = line.head(entry);
      if (!isFifo) {
        const slot = line.slotOf(entry);
        const offer = this.#state.offerOf(slot);
        const way = links.choose(offer.ways, policy.borrow === 'when-idle');
        const prefix = this.#state.keptPrefix(slot);
        // The lane may be taken when the load is over.
        const laneMs = this.#state.running[gpu] === nobody ? 0 : offer.warmMs;
        const endMs = links.estimate(way, prefix, 0, nowMs) + laneMs;
        const deadlineMs = this.#state.dueMsOf(invocation);
        const isLate = endMs > deadlineMs;
        this.#state.pressure.loadWas(isLate, offer, prefix, deadlineMs - this.#state.arrivalMs[invocation]!);
        if (isLate) {
          this.#late.mark(invocation, line, nowMs);
          continue;
        }
      }
      if (this.#late.orderOnTime(invocation, line, nowMs)) line.loadsSinceLate++;
      else if (!isFifo) this.#late.loadBesideFull(line, nowMs);
      return;
    }
    const idle = this.#late.toLoad(line);
    if (idle !== nobody) this.#late.load(line, idle, nowMs);
  }

  #run(invocation: number, gpu: number, nowMs: number): void {
    const slot = this.#state.slotOf(invocation);
    const line = this.#state.lines[gpu]!;
    let { load } = slot;
    let ordered: Load | null = null;
    let start = this.#state.start[invocation]!;
    // What is arriving are layers of a former plan: it comes up again when they have, and have gone.
    if (load !== undefined && this.#state.isStale(slot)) return;
    if (load !== undefined) {
      // It joins a load in flight.
      if (start === undecided) start = load.prefix > 0 ? 1 : 2;
    } else if (this.#state.isResident(slot)) {
      if (start === undecided) start = 0;
    } else {
      if (!this.#state.isInHostMemory(slot.functionIndex)) return;
      load = this.#loading.load(invocation, slot, nowMs) ?? this.#loading.loadByForce(invocation, slot, nowMs);
      // All of the memory is being loaded to: it comes up again when that is over.
      if (load === undefined) return;
      ordered = load;
      start = this.#state.start[invocation]!;
    }
    const { entry } = slot;
    const { companions, ms, endMs } = this.#joining.choose(invocation, slot, load, nowMs);
    if (line.isLate(invocation) || line.turn === invocation) line.startsSinceLate = 0;
    else line.startsSinceLate++;
    line.startsSinceLateLoad++;
    if (line.lateLoaded === entry) line.lateLoaded = nobody;
    if (this.#state.policy.order !== 'fifo') line.charge(entry, ms);
    this.#state.leave(invocation);
    for (const companion of companions) this.#state.leave(companion);
    this.#start(invocation, slot, start, ordered, companions, endMs);
    if (this.#state.policy.loadAhead && line.count > 0) this.#loadAhead(line, gpu, nowMs);
    const isLoading = line.loadable.size > 0 || line.lateLoadable.size > 0;
    if (load === undefined && !isLoading) this.#considerGrowth(slot, nowMs);
  }

  /** @param ordered the load that is ordered with the run @param companions that share it */
  #start(
    invocation: number,
    slot: Slot,
    start: number,
    ordered: Load | null,
    companions: number[],
    endMs: number,
  ): void {
    const { functionIndex, gpu } = slot;
    this.#state.invocationState[invocation] = state.running;
    this.#state.running[gpu] = invocation;
    for (const companion of companions) this.#state.invocationState[companion] = state.running;
    this.#state.companions[gpu] = companions;
    const { plan } = this.#state.offerOf(slot);
    this.#state.laneEndMs[gpu] = endMs;
    this.#state.backlogChanged(gpu);
    this.#state.memories[gpu]!.hold(slot);
    if (this.#state.awaited[gpu]!.size > 0) this.#state.awaited[gpu]!.delete(slot);
    const { decisions, shell } = this.#state;
    const decision = decisions[invocation]!;
    const told =
      companions.length === 0
        ? undefined
        : companions.map((companion) => ({ invocation: companion, decision: decisions[companion]! }));
    shell.run(invocation, functionIndex, gpu, starts[start]!, ordered, endMs, decision, plan, told);
  }

  #considerGrowth(slot: Slot, nowMs: number): void {
    const top = this.#state.sheets[slot.functionIndex]!.gpus[slot.gpu]!;
    if (top.smaller !== undefined && this.#state.offerOf(slot) !== top) this.#growth.consider(slot, nowMs);
  }

  /**
   * Rank of a GPU's next load among all GPUs: its deadline. The line's heap key would not do: it includes a share of
   * this lane, which grows with everything that the GPU has run.
   */
  #linkDueMs(gpu: number, nowMs: number): number {
    const line = this.#state.lines[gpu]!;
    if (this.#late.isTurn(line, line.loadsSinceLate, line.lateLoadable.first(), nowMs)) return -Infinity;
    return line.loadable.size === 0 ? Infinity : line.keyOf(line.head(line.loadable.first()));
  }
}
