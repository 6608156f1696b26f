import { nobodyElse, type Gpu } from './gpu.ts';
import type { Growth } from './growth.ts';
import type { Invocation } from './invocation.ts';
import { Joining } from './joining.ts';
import { LateTurns, toLoad } from './late-turns.ts';
import type { Entry, Line } from './lines.ts';
import { Loading } from './loading.ts';
import type { LoadOption } from './offer.ts';
import type { Load, Slot } from './gpu.ts';
import type { SchedulerState } from './state.ts';
import { tuning } from './tuning.ts';
import type { Companion, Start } from './types.ts';

const { overdueShare } = tuning.queues;

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
  readonly #freed: Gpu[] = [];
  /** When the latest pick has to be made again, because something may be late by then. */
  #wakeMs = Infinity;

  constructor(state: SchedulerState, growth: Growth) {
    this.#state = state;
    this.#growth = growth;
    this.#loading = new Loading(state);
    this.#late = new LateTurns(state, this.#loading);
    this.#joining = new Joining(state);
  }

  /**
   * Starts the invocation if the GPU is idle, nothing waits there, and the whole function is resident. Returns whether
   * it did.
   */
  runAtOnce(invocation: Invocation, slot: Slot, nowMs: number): boolean {
    const { gpu } = slot;
    if (gpu.running !== undefined || gpu.line.count > 0 || !slot.isResident) return false;
    gpu.line.startsSinceLate++;
    invocation.place = gpu.number;
    // Nothing was loaded for it; the invocation that had its number before may have had a load.
    invocation.start = undefined;
    this.#start(invocation, slot, 'warm', null, nobodyElse, nowMs + slot.variant.warmMs);
    this.#considerGrowth(slot, nowMs);
    return true;
  }

  /** Starts what this GPU can load and run now. */
  dispatch(gpu: Gpu, nowMs: number): void {
    const { line } = gpu;
    if (line.count === 0 || !gpu.isUp) return;
    const { loadAhead, order } = this.#state.policy;
    if (loadAhead) this.#loadAhead(gpu, nowMs);
    if (gpu.running !== undefined || line.count === 0) return;
    const next = order === 'fifo' ? this.#firstInLine(line, nowMs) : this.#pick(gpu, nowMs);
    if (next !== undefined) {
      this.#run(next, gpu, nowMs);
      return;
    }
    if (this.#wakeMs === Infinity) return;
    const { wakes, orders } = this.#state;
    if (wakes.has(gpu)) {
      if (wakes.keyOf(gpu) > nowMs && wakes.keyOf(gpu) <= this.#wakeMs) return;
      wakes.remove(gpu);
    }
    wakes.add(gpu, this.#wakeMs);
    orders.wake(this.#wakeMs);
  }

  /** Another function's load has brought what this one waits for, or some of it. */
  reconsider(slot: Slot, nowMs: number): void {
    this.#late.reconsider(slot, nowMs);
  }

  /** After a load: the GPUs that have a link for it now, the one with the most urgent invocation first. */
  dispatchFreed(slot: Slot, { transfers }: LoadOption, nowMs: number): void {
    this.#late.reconsider(slot, nowMs);
    const { links, gpus } = this.#state;
    const freed = this.#freed;
    // Popping keeps the array's storage.
    while (freed.length > 0) freed.pop();
    for (const { link } of transfers) {
      this.#addFreed(gpus[link]!, nowMs);
      for (const waiting of links.inTurnWith(link)) this.#addFreed(gpus[waiting]!, nowMs);
    }
    for (let index = 0; index < freed.length; index++) {
      const gpu = freed[index]!;
      // The other entries' loads pass over the late ones there.
      if (index > 0 && gpu.line.loadable.size === 0) gpu.line.loadsSinceLate++;
      this.dispatch(gpu, nowMs);
    }
  }

  #addFreed(gpu: Gpu, nowMs: number): void {
    const freed = this.#freed;
    if (gpu.line.count === 0 || freed.includes(gpu)) return;
    const dueMs = this.#linkDueMs(gpu.line, nowMs);
    let place = freed.length;
    for (; place > 0 && this.#linkDueMs(freed[place - 1]!.line, nowMs) > dueMs; place--)
      freed[place] = freed[place - 1]!;
    freed[place] = gpu;
  }

  /** Strictly in order, resident or not. */
  #firstInLine(line: Line<Slot>, nowMs: number): Invocation | undefined {
    this.#wakeMs = Infinity;
    line.turn ??= this.#overdueInLine(line, nowMs);
    for (;;) {
      const first = line.next();
      if (first === undefined || !first.isShedWhenLate) return first;
      const endMs = nowMs + this.#state.slotOf(first).variant.warmMs;
      if (endMs <= first.dueMs) return first;
      this.#late.mark(first, line, endMs);
    }
  }

  /** In order of arrival only a priority overtakes. */
  #overdueInLine(line: Line<Slot>, nowMs: number): Invocation | undefined {
    const { isUniform, policy } = this.#state;
    if (isUniform || line.startsSinceLate < overdueShare) return undefined;
    let oldest: Invocation | undefined;
    for (const invocation of line.all())
      if (oldest === undefined || invocation.sequence < oldest.sequence) oldest = invocation;
    return oldest !== undefined && nowMs - oldest.arrivalMs >= policy.waitBoundMs ? oldest : undefined;
  }

  /** The invocation that gets the lane now; where none does, `#wakeMs` is when to look again. */
  #pick(gpu: Gpu, nowMs: number): Invocation | undefined {
    this.#wakeMs = Infinity;
    const { line } = gpu;
    // 1. A call whose turn it is.
    const turn = this.#late.laneTurn(line, nowMs);
    if (turn !== undefined) return turn;
    // 2. The first on time whose function is there, or arrives before the run needs it.
    const hidden = this.#hidden(line, nowMs);
    for (;;) {
      let next = line.runnable.first()?.onTime.head;
      const joining = hidden?.onTime.head;
      if (joining !== undefined && (next === undefined || joining.key < next.key)) next = joining;
      if (next === undefined) break;
      const endMs = nowMs + this.#state.slotOf(next).variant.warmMs;
      if (endMs <= next.dueMs) return next;
      this.#late.mark(next, line, endMs);
    }
    // 3. Where nothing is loaded ahead, one that can be loaded in time.
    if (!this.#state.policy.loadAhead) return this.#pickLoadable(line, nowMs);
    // 4. A late one, in what the others leave.
    const late = this.#lateBesideLoads(line, nowMs) ?? hidden;
    if (late?.late.head !== undefined) return late.late.head;
    // 5. None, until a load is about to end. Where none is under way there was no room: waiting functions hold it.
    if (this.#wakeMs < Infinity) return undefined;
    if (!this.#isLinkFree(gpu)) return undefined;
    return line.loadable.first()?.onTime.head ?? line.lateLoadable.first()?.late.head;
  }

  /**
   * For policies that load nothing ahead, when no call on time has its whole function resident: a call that can be
   * loaded in time, else the first by arrival.
   */
  #pickLoadable(line: Line<Slot>, nowMs: number): Invocation | undefined {
    const { links, policy } = this.#state;
    for (let entry = line.loadable.first(); entry !== undefined; entry = line.loadable.first()) {
      const { slot } = entry;
      const invocation = entry.onTime.head!;
      const way = links.choose(slot.variant.ways, policy.borrow === 'when-idle');
      const endMs = links.estimate(way, slot.keptPrefix, 0, nowMs);
      if (endMs <= invocation.dueMs) return invocation;
      this.#late.mark(invocation, line, endMs);
    }
    return this.#late.first(line)?.late.head;
  }

  /** Among the loading entries, one whose execution would no longer have to wait for its load; or when to look again. */
  #hidden(line: Line<Slot>, nowMs: number): Entry<Slot> | undefined {
    const { links } = this.#state;
    for (const entry of line.loading) {
      const { slot } = entry;
      const { load } = slot;
      // Layers of a former plan are of no use: it comes up again when they have arrived, and have gone. What has no
      // load is still being read from disk, as is what it executes from there where that could not be read.
      if (load === undefined || slot.isStale || slot.fn.lacksExecuted) continue;
      const hiddenFromMs = links.readyMs(load, nowMs) - slot.variant.warmMs;
      if (hiddenFromMs <= nowMs) return entry;
      if (hiddenFromMs < this.#wakeMs) this.#wakeMs = hiddenFromMs;
    }
    return undefined;
  }

  /** The entry whose late invocation waits longest, among those whose run ends before a load under way needs the lane. */
  #lateBesideLoads({ lateRunnable, loading }: Line<Slot>, nowMs: number): Entry<Slot> | undefined {
    const first = lateRunnable.first();
    if (first === undefined || !this.#wouldDelay(loading, first, nowMs)) return first;
    let found: Entry<Slot> | undefined;
    for (let place = 1; place < lateRunnable.size; place++) {
      const entry = lateRunnable.at(place);
      if (found !== undefined && lateRunnable.keyOf(entry) >= lateRunnable.keyOf(found)) continue;
      if (!this.#wouldDelay(loading, entry, nowMs)) found = entry;
    }
    return found;
  }

  /** Whether to run one that is late now would make one late whose load is about to end. */
  #wouldDelay(loading: readonly Entry<Slot>[], late: Entry<Slot>, nowMs: number): boolean {
    if (this.#wakeMs === Infinity) return false;
    const endMs = nowMs + late.slot.variant.warmMs;
    for (const { onTime, slot } of loading) {
      const { head } = onTime;
      const { load } = slot;
      // What is late by its load alone is delayed by nobody.
      if (head === undefined || load === undefined || this.#state.links.readyMs(load, nowMs) > head.dueMs) continue;
      if (endMs + slot.variant.warmMs > head.dueMs) return true;
    }
    return false;
  }

  /** Whether this GPU's link is free for its next load. Loads over several switches do not wait for neighbours. */
  #isLinkFree({ number, line }: Gpu): boolean {
    const { links } = this.#state;
    if (links.hasRoom(number)) return true;
    if (!links.isIdle(number)) return false;
    const next = line.loadable.first() ?? line.lateLoadable.first();
    return next === undefined || next.slot.variant.ways.length > 1;
  }

  /** Orders the next load for a waiting invocation, while this GPU's own link is free. */
  #loadAhead(gpu: Gpu, nowMs: number): void {
    const { links, policy } = this.#state;
    const { line } = gpu;
    if (!this.#isLinkFree(gpu)) return;
    const isFifo = policy.order === 'fifo';
    if (this.#late.takeLoadTurn(line, nowMs)) return;
    for (;;) {
      const entry = line.loadable.first();
      if (entry === undefined) break;
      const invocation = entry.onTime.head!;
      if (!isFifo) {
        const { variant, keptPrefix } = entry.slot;
        const way = links.choose(variant.ways, policy.borrow === 'when-idle');
        // The lane may be taken when the load is over.
        const laneMs = gpu.running === undefined ? 0 : variant.warmMs;
        const endMs = links.estimate(way, keptPrefix, 0, nowMs) + laneMs;
        const { arrivalMs, dueMs } = invocation;
        this.#state.pressure.loadWas(endMs - arrivalMs, variant, keptPrefix, dueMs - arrivalMs);
        if (endMs > dueMs) {
          this.#late.mark(invocation, line, endMs);
          continue;
        }
      }
      if (this.#late.orderOnTime(invocation, line, nowMs)) line.loadsSinceLate++;
      else if (!isFifo) this.#late.loadBesideFull(line, nowMs);
      return;
    }
    const late = toLoad(line);
    if (late !== undefined) this.#late.load(line, late, nowMs);
  }

  #run(invocation: Invocation, gpu: Gpu, nowMs: number): void {
    const slot = this.#state.slotOf(invocation);
    const { line } = gpu;
    let { load } = slot;
    let { start } = invocation;
    let ordered: Load | null = null;
    // What is arriving are layers of a former plan, or what it executes from is on disk: it comes up again.
    if (load !== undefined && (slot.isStale || slot.fn.lacksExecuted)) return;
    if (load !== undefined) {
      // It joins a load in flight.
      start ??= load.prefix > 0 ? 'partial' : 'cold';
    } else if (slot.isResident) {
      start ??= 'warm';
    } else {
      if (!this.#state.isInHostMemory(slot.fn)) return;
      load = this.#loading.load(invocation, slot, nowMs) ?? this.#loading.loadByForce(invocation, slot, nowMs);
      // All of the memory is being loaded to: it comes up again when that is over.
      if (load === undefined) return;
      ordered = load;
      ({ start } = invocation);
    }
    const entry = slot.entry!;
    if (invocation.waitsForDisk) start = 'disk';
    const { companions, ms, endMs } = this.#joining.choose(invocation, slot, load, nowMs);
    if (invocation.isLate || line.turn === invocation) line.startsSinceLate = 0;
    else line.startsSinceLate++;
    line.startsSinceLateLoad++;
    if (line.lateLoaded === entry) line.lateLoaded = undefined;
    if (this.#state.policy.order !== 'fifo') line.charge(entry, ms);
    gpu.leave(invocation, slot);
    for (const companion of companions) gpu.leave(companion, slot);
    this.#start(invocation, slot, start!, ordered, companions, endMs);
    if (this.#state.policy.loadAhead && line.count > 0) this.#loadAhead(gpu, nowMs);
    const isLoading = line.loadable.size > 0 || line.lateLoadable.size > 0;
    if (load === undefined && !isLoading) this.#considerGrowth(slot, nowMs);
  }

  /** @param ordered the load that is ordered with the run @param companions that share it */
  #start(
    invocation: Invocation,
    slot: Slot,
    start: Start,
    ordered: Load | null,
    companions: readonly Invocation[],
    endMs: number,
  ): void {
    const { fn, gpu } = slot;
    invocation.state = 'running';
    gpu.running = invocation;
    for (const companion of companions) companion.state = 'running';
    gpu.companions = companions;
    gpu.laneEndMs = endMs;
    this.#state.backlogChanged(gpu);
    gpu.memory.hold(slot);
    if (gpu.awaited.size > 0) gpu.awaited.delete(slot);
    const { number, decision } = invocation;
    this.#state.orders.add({
      kind: 'run',
      invocation: number,
      functionIndex: fn.number,
      gpu: gpu.number,
      start,
      load: ordered,
      predictedEndMs: endMs,
      decision,
      plan: slot.variant.plan,
      companions: companions.length === 0 ? undefined : companions.map(companionOf),
    });
  }

  #considerGrowth(slot: Slot, nowMs: number): void {
    const top = slot.fn.sheet.gpus[slot.gpu.number]!;
    if (top.smaller !== undefined && slot.variant !== top) this.#growth.consider(slot, nowMs);
  }

  /**
   * Rank of a GPU's next load among all GPUs: its deadline. The line's heap key would not do: it includes a share of
   * this lane, which grows with everything that the GPU has run.
   */
  #linkDueMs(line: Line<Slot>, nowMs: number): number {
    if (this.#late.isTurn(line.loadsSinceLate, line.lateLoadable.first(), nowMs)) return -Infinity;
    return line.loadable.first()?.onTime.head?.key ?? Infinity;
  }
}

const companionOf = ({ number, decision }: Invocation): Companion => ({ invocation: number, decision });
