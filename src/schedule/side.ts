import type { ServedFunction } from './function.ts';
import { nobodyElse } from './gpu.ts';
import type { Heap } from './heap.ts';
import type { Invocation } from './invocation.ts';
import type { Lanes } from './lanes.ts';
import { Margin } from './learnt.ts';
import type { Place } from './place.ts';
import { SideLine } from './side-line.ts';
import type { SchedulerState } from './state.ts';
import type { SideId } from './ids.ts';
import type { Observation } from './types.ts';
import { tuning } from './tuning.ts';
import { getOrMake } from '../tools/index.ts';

const { onTimeShare, spareShareMax } = tuning.sides;
const { overdueShare } = tuning.queues;

/** A place beside the GPUs, with its queue: the CPU of this machine, or the workers. */
export class Side<Config = never> implements Place {
  readonly id: SideId;
  readonly #state: SchedulerState;
  readonly #lanes: Lanes<Config>;
  /** The queue for the lanes that functions share. */
  readonly #line = new SideLine();
  /** The queues of functions that have lanes of their own: no other function's call waits for those. */
  readonly #ownLines = new Map<ServedFunction, SideLine>();
  /** By function: how far the ends of runs, and of waits for a lane, are off their prediction. */
  readonly #runOffMs = new Margin(onTimeShare);
  readonly #waitOffMs = new Margin(onTimeShare);
  /** By function: when its latest run ended; Infinity while one runs. */
  readonly #endedMs = new Map<ServedFunction, number>();
  /** Runs of functions that had not run for so long that a call would be let through though it seemed late. */
  readonly #trials = new Set<Invocation>();
  /** When it asked to be woken; Infinity: not at all. */
  #wakeMs = Infinity;

  constructor(state: SchedulerState, lanes: Lanes<Config>) {
    this.id = lanes.id;
    this.#state = state;
    this.#lanes = lanes;
  }

  get waitingCount(): number {
    let count = 0;
    for (const line of this.#lines()) count += line.size;
    return count;
  }

  /** How long its lanes need for the runs under way and all that waits. */
  backlogMs(nowMs: number): number {
    let { count } = this.#lanes;
    let ms = this.#lanes.leftMs(nowMs) + this.#line.waitingMs;
    for (const [fn, line] of this.#ownLines) {
      count += this.#lanes.ownCount(fn);
      ms += this.#lanes.leftMs(nowMs, fn) + line.waitingMs;
    }
    return count === 0 ? 0 : ms / count;
  }

  /** Whether the function's sheet offers it anything. */
  offers(fn: ServedFunction): boolean {
    return Boolean(this.#lanes.offerFor(fn));
  }

  canTake(fn: ServedFunction): boolean {
    return this.#lanes.canTake(fn);
  }

  predictEndMs(fn: ServedFunction, deadlineMs: number, nowMs: number): number {
    return this.endMs(fn, this.predictStartMs(fn, deadlineMs, nowMs, fn.sheet.priority));
  }

  /**
   * When an invocation that joined now would start: behind those ahead of it, or, once it is late, behind all. Infinity
   * where it cannot run.
   */
  predictStartMs(fn: ServedFunction, deadlineMs: number, nowMs: number, priority: number): number {
    const lanes = this.#lanes;
    if (!lanes.canTake(fn)) return Infinity;
    const isOwn = lanes.ownCount(fn) > 0;
    const line = isOwn ? this.#ownLines.get(fn) : this.#line;
    if ((line === undefined || line.size === 0) && lanes.hasLane(fn)) return nowMs;
    const count = this.#lanesFor(fn);
    const latestStartMs = this.#latestStartMs(fn, lanes.runMs(fn, nowMs), deadlineMs, nowMs);
    const leftMs = lanes.leftMs(nowMs, isOwn ? fn : undefined);
    const mostMs = (latestStartMs - nowMs) * count - leftMs;
    const startMs = nowMs + (leftMs + (line?.msBefore(fn, latestStartMs, priority, mostMs, nowMs) ?? 0)) / count;
    return startMs <= latestStartMs ? startMs : nowMs + (leftMs + (line?.waitingMs ?? 0)) / count;
  }

  /** When a run that starts then ends. */
  endMs(fn: ServedFunction, startMs: number): number {
    return startMs === Infinity ? Infinity : startMs + this.#lanes.runMs(fn, startMs);
  }

  /**
   * When an invocation that joined now, at its predicted start, would end, if it is to be refused because that is late: as
   * predicted, or if its wait and its run took as much longer as they sometimes do. Undefined: it is not to be refused. A
   * function that would be late even without a wait still gets a call through now and then: predictions are learnt from
   * runs, so only a run can show that they have become shorter. A function with a measured time gets such a call only
   * after it has been refused for a while.
   */
  lateEndMs({ fn, deadlineMs, predictedMs: startMs }: Invocation, nowMs: number): number | undefined {
    const runMs = this.#lanes.runMs(fn, startMs);
    if (startMs > nowMs) {
      const latestStartMs = this.#latestStartMs(fn, runMs, deadlineMs, nowMs);
      const lateStartMs = startMs + margin(this.#waitOffMs, fn, latestStartMs - nowMs);
      return lateStartMs > latestStartMs ? lateStartMs + (deadlineMs - latestStartMs) : undefined;
    }
    if (nowMs + runMs <= deadlineMs) return undefined;
    if (this.#lanes.offerFor(fn)?.latencyMs !== undefined && !this.#endedMs.has(fn)) this.#endedMs.set(fn, nowMs);
    return nowMs < this.trialMs(fn, nowMs) ? nowMs + runMs : undefined;
  }

  /**
   * When a function that would be late even without a wait gets its next call through: Infinity while one runs, and
   * -Infinity for one that never ran.
   */
  trialMs(fn: ServedFunction, nowMs: number): number {
    return (this.#endedMs.get(fn) ?? -Infinity) + overdueShare * this.#lanes.runMs(fn, nowMs);
  }

  /**
   * Whether a call that is late everywhere is to have what its function needs here made on lanes that are idle: with it
   * the next calls would be in time.
   */
  isWorthMaking(fn: ServedFunction, deadlineMs: number, nowMs: number): boolean {
    return this.#line.size === 0 && this.#lanes.isWorthMaking?.(fn, deadlineMs - nowMs) === true;
  }

  /** As {@link isWorthMaking}, for a call that goes elsewhere. Returns whether it is made now. */
  makeAhead(fn: ServedFunction, deadlineMs: number, nowMs: number): boolean {
    return this.isWorthMaking(fn, deadlineMs, nowMs) && this.#lanes.makeAhead?.(fn, nowMs) === true;
  }

  /** The last instant at which an invocation could start here and be in time. */
  latestStartMs(fn: ServedFunction, deadlineMs: number, nowMs: number): number {
    return this.#latestStartMs(fn, this.#lanes.runMs(fn, nowMs), deadlineMs, nowMs);
  }

  enter(invocation: Invocation, nowMs: number): void {
    const { fn, deadlineMs } = invocation;
    const lanes = this.#lanes;
    invocation.state = 'waiting';
    invocation.place = this.id;
    const runMs = lanes.runMs(fn, nowMs);
    const latestStartMs = this.#latestStartMs(fn, runMs, deadlineMs, nowMs);
    const laneMs = lanes.laneMs(fn, runMs);
    const line = this.#lineFor(fn);
    if (latestStartMs >= nowMs) line.add(invocation, latestStartMs, laneMs, this.#lanesFor(fn), nowMs);
    else line.addLate(invocation, laneMs);
    this.#startFrom(line, nowMs);
  }

  leave(invocation: Invocation): void {
    this.#lineOf(invocation).remove(invocation);
  }

  runs({ state, place }: Invocation): boolean {
    return state === 'running' && place === this.id;
  }

  companionsOf(): readonly Invocation[] {
    return nobodyElse;
  }

  finish(invocation: Invocation, observed: Observation | undefined, nowMs: number): void {
    const { fn } = invocation;
    const isTrial = this.#trials.delete(invocation);
    // Without a run nothing was shown: it was refused, or failed.
    if (isTrial && observed?.runMs !== undefined && this.#isDisproved(invocation, nowMs)) this.#lanes.forgetRuns(fn);
    this.#lanes.end(invocation, observed);
    this.#endedMs.set(fn, nowMs);
    // A session is made too rarely to learn a margin from.
    if (observed !== undefined && observed.loadMs === undefined)
      this.#runOffMs.observe(fn.number, nowMs - invocation.predictedMs);
    this.dispatch(nowMs);
    const own = this.#ownLines.get(fn);
    if (own !== undefined) this.#startFrom(own, nowMs);
  }

  /**
   * Whether a trial is in time though no run of its function could be, by what was learnt: that was learnt under another
   * load, or from a first run. Smoothing it away would take a dozen trials, while the function sheds all other calls.
   */
  #isDisproved({ fn, arrivalMs, deadlineMs }: Invocation, nowMs: number): boolean {
    if (fn.isRemoved || !this.#lanes.canTake(fn)) return false;
    return nowMs <= deadlineMs && arrivalMs + this.#lanes.runMs(fn, nowMs) > deadlineMs;
  }

  /** The place has changed or is gone. Returns the waiting invocations that cannot stay. */
  change(to: Config | null, nowMs: number): Invocation[] {
    this.#lanes.set(to);
    const waiting = Array.from(this.#lines(), (line) => line.all()).flat();
    const displaced = waiting.filter(({ fn }) => fn.isRemoved || !this.#lanes.canTake(fn));
    for (const invocation of displaced) this.leave(invocation);
    this.dispatch(nowMs);
    return displaced;
  }

  /** Removes and returns a function's waiting invocations. It may have lanes of its own from now on, or none any more. */
  take(fn: ServedFunction): Invocation[] {
    const own = this.#ownLines.get(fn)?.all() ?? [];
    this.#ownLines.delete(fn);
    const taken = this.#line.all(fn);
    for (const invocation of taken) this.#line.remove(invocation);
    return [...own, ...taken];
  }

  /** The function was removed; none of its invocations wait. */
  forget(fn: ServedFunction, nowMs: number): void {
    this.#lanes.forget(fn);
    this.#runOffMs.forget(fn.number);
    this.#waitOffMs.forget(fn.number);
    this.#endedMs.delete(fn);
    // A call may have waited for the memory of its session.
    this.dispatch(nowMs);
  }

  dispatch(nowMs: number): void {
    this.#startFrom(this.#line, nowMs);
  }

  #startFrom(line: SideLine, nowMs: number): void {
    for (;;) {
      const invocation = this.#next(line, nowMs);
      if (invocation === undefined) return;
      if (this.#start(invocation, nowMs)) continue;
      if (line !== this.#line || !this.#startBeside(nowMs)) return;
    }
  }

  /** An invocation waited for a lane that another run has held too long, and that instant has come. */
  wake(nowMs: number): void {
    if (nowMs < this.#wakeMs) return;
    this.#wakeMs = Infinity;
    this.dispatch(nowMs);
  }

  /**
   * The first in the queue cannot start. Starts the first invocation that can share lanes with runs that have held
   * theirs too long.
   */
  #startBeside(nowMs: number): boolean {
    const lanes = this.#lanes;
    if (lanes.shareHeld === undefined) return false;
    const nextMs = lanes.shareHeld(nowMs);
    if (lanes.isShared === true) {
      const invocation = this.#next(this.#line, nowMs, ({ fn }) => lanes.canStart(fn));
      if (invocation !== undefined) return this.#start(invocation, nowMs);
    }
    if (nextMs < this.#wakeMs) {
      this.#wakeMs = nextMs;
      this.#state.orders.wake(nextMs);
    }
    return false;
  }

  *#lines(): Generator<SideLine> {
    yield this.#line;
    yield* this.#ownLines.values();
  }

  /** The queue in which an invocation of the function waits. */
  #lineFor(fn: ServedFunction): SideLine {
    if (this.#lanes.ownCount(fn) === 0) return this.#line;
    return getOrMake(this.#ownLines, fn, () => new SideLine());
  }

  #lineOf(invocation: Invocation): SideLine {
    const own = this.#ownLines.get(invocation.fn);
    return own?.has(invocation) === true ? own : this.#line;
  }

  /** How many lanes work off the queue of the function. */
  #lanesFor(fn: ServedFunction): number {
    return this.#lanes.ownCount(fn) || this.#lanes.count;
  }

  /** The latest start that still meets the SLO even if the run takes as much longer as runs sometimes do. */
  #latestStartMs(fn: ServedFunction, runMs: number, deadlineMs: number, nowMs: number): number {
    const spareMs = deadlineMs - runMs - nowMs;
    return nowMs + spareMs - margin(this.#runOffMs, fn, spareMs);
  }

  /**
   * Which invocation starts next, of all or of those for which this holds. One that has become late goes behind the
   * others, or is shed.
   */
  #next(line: SideLine, nowMs: number, holds?: (invocation: Invocation) => boolean): Invocation | undefined {
    const { policy } = this.#state;
    const firstOf = (heap: Heap<Invocation>): Invocation | undefined =>
      holds === undefined ? heap.first() : heap.firstThat(holds);
    for (;;) {
      const invocation = firstOf(line.onTime);
      if (invocation === undefined || invocation.latestStartMs >= nowMs) break;
      this.#isLate(invocation, line, nowMs);
    }
    if (line.startsSinceOverdue >= overdueShare) {
      // Only priorities pass over a call that can still meet its SLO, and one that is late behind the first.
      const isAsked = line.isMixed && line.startsSinceOverdue % overdueShare === 0;
      if (isAsked) for (const late of line.lateBy(nowMs)) this.#isLate(late, line, nowMs);
      const oldest = isAsked ? line.oldest(holds) : firstOf(line.late);
      if (oldest !== undefined && nowMs - oldest.arrivalMs >= policy.waitBoundMs) return oldest;
    }
    return firstOf(line.onTime) ?? firstOf(line.late);
  }

  /** The latest start of an invocation on time has passed. */
  #isLate(invocation: Invocation, line: SideLine, nowMs: number): void {
    this.#waited(invocation, nowMs);
    if (!invocation.fn.sheds) {
      line.makeLate(invocation);
      return;
    }
    line.remove(invocation);
    invocation.state = 'ended';
    // By as much as the latest start leaves for its run.
    const predictedEndMs = nowMs + invocation.deadlineMs - invocation.latestStartMs;
    this.#state.orders.add({ kind: 'shed', invocation: invocation.number, predictedEndMs });
  }

  /** An invocation on time has ended its wait. The calls that overtook it are as likely to overtake the next one. */
  #waited({ fn, predictedMs }: Invocation, nowMs: number): void {
    this.#waitOffMs.observe(fn.number, nowMs - predictedMs);
  }

  #start(invocation: Invocation, nowMs: number): boolean {
    const { fn, number, decision } = invocation;
    const line = this.#lineOf(invocation);
    const lanes = this.#lanes;
    if (!lanes.canStart(fn)) return false;
    if (line.onTime.has(invocation)) this.#waited(invocation, nowMs);
    line.startsSinceOverdue = line.late.has(invocation) ? 0 : line.startsSinceOverdue + 1;
    line.begin(invocation);
    const runMs = lanes.runMs(fn, nowMs);
    const endMs = nowMs + runMs;
    const predictedEndMs = runMs > 0 ? endMs : undefined;
    invocation.predictedMs = endMs;
    if (nowMs >= this.trialMs(fn, nowMs)) this.#trials.add(invocation);
    this.#endedMs.set(fn, Infinity);
    const loads = lanes.start(invocation, endMs, nowMs);
    // Written out: a spread would cost each call some microseconds.
    this.#state.orders.add({
      kind: 'run-beside',
      invocation: number,
      functionIndex: fn.number,
      place: this.id,
      loads,
      predictedEndMs,
      decision,
    });
    invocation.state = 'running';
    return true;
  }
}

/** How far a prediction may be off, given so much spare time. */
const margin = (offMs: Margin, fn: ServedFunction, spareMs: number): number =>
  Math.min(offMs.of(fn.number), Math.max(0, spareMs) * spareShareMax);
