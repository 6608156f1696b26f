import { grown } from './columns.ts';
import { CpuLanes } from './cpu-lanes.ts';
import type { IndexedHeap } from './heap.ts';
import { Margin } from './learnt.ts';
import type { CpuOffer, OfferSheet, WorkersOffer } from './offer.ts';
import { state } from './invocations.ts';
import { SideLine, WorkerSlots, type SidePlace } from './side-line.ts';
import { nobody, type SchedulerState } from './state.ts';
import { cpuPlace, noPlace, workersPlace, type CpuPlace, type Observation, type WorkersPlace } from './types.ts';
import { tuning } from './tuning.ts';

const { onTimeShare, spareShareMax } = tuning.sides;

const { overdueShare } = tuning.queues;
const places = [cpuPlace, workersPlace] as const;

/** The CPU or the workers, with their queue. */
interface Side {
  readonly place: SidePlace;
  readonly line: SideLine;
  /** By function: how far the ends of runs, and of waits for a lane, are off their prediction. */
  readonly runOffMs: Margin;
  readonly waitOffMs: Margin;
  /** By function: when its latest run ended; Infinity while one runs. */
  readonly endedMs: Map<number, number>;
  /** Runs of functions that had not run for so long that a call would be let through though it seemed late. */
  readonly trials: Set<number>;
}

/** The places beside the GPUs: the CPU of this machine, and the workers behind a queue. */
export class Sides {
  readonly #state: SchedulerState;
  readonly cpu: CpuLanes;
  readonly #workers: WorkerSlots;
  readonly #cpuSide: Side;
  readonly #workersSide: Side;
  /** By invocation: its predicted start while it waits, then its predicted end. */
  #predictedMs = new Float64Array(64);
  /** When it asked to be woken; Infinity: not at all. */
  #wakeMs = Infinity;

  constructor(schedulerState: SchedulerState, cpu: CpuPlace | null, workers: WorkersPlace | null) {
    this.#state = schedulerState;
    this.cpu = new CpuLanes(cpu, schedulerState.popularity, (functionIndex, bytes, cause) => {
      schedulerState.shell.act({ kind: 'evict-cpu', functionIndex, bytes, cause });
    });
    this.#workers = new WorkerSlots(workers);
    this.#cpuSide = newSide(this.cpu);
    this.#workersSide = newSide(this.#workers);
  }

  growFunctions(count: number): void {
    this.cpu.grow(count);
    this.#cpuSide.line.growFunctions(count);
    this.#workersSide.line.growFunctions(count);
  }

  growInvocations(count: number): void {
    this.#cpuSide.line.grow(count);
    this.#workersSide.line.grow(count);
    this.#predictedMs = grown(this.#predictedMs, count);
  }

  waitingCount(place: number): number {
    return this.#side(place).line.size;
  }

  /** When an invocation that arrived now would end there; Infinity where it cannot run. */
  predictEnd(place: number, functionIndex: number, sheet: OfferSheet, nowMs: number, deadlineMs: number): number {
    const side = this.#side(place);
    if (!side.place.canTake(functionIndex, sheet)) return Infinity;
    const startMs = this.#predictStart(side, functionIndex, sheet, nowMs, deadlineMs);
    return startMs + side.place.runMs(functionIndex, sheet, startMs);
  }

  /** The better of both, or noPlace. @param except a place to leave out */
  best(functionIndex: number, sheet: OfferSheet, nowMs: number, deadlineMs: number, except: number): number {
    let best = noPlace;
    let bestEndMs = Infinity;
    for (const place of places) {
      if (place === except || !offerAt(place, sheet)) continue;
      const endMs = this.predictEnd(place, functionIndex, sheet, nowMs, deadlineMs);
      if (endMs >= bestEndMs) continue;
      best = place;
      bestEndMs = endMs;
    }
    return best;
  }

  /**
   * Whether to refuse an invocation that joined now because it would be late: as predicted, or if its wait took as much
   * longer as waits sometimes do. A function that would be late even without a wait still gets a call through now and
   * then: predictions are learnt from runs, so only a run can show that they have become shorter. A function with a
   * measured time gets such a call only after it has been refused for a while.
   */
  isHopeless(place: number, functionIndex: number, sheet: OfferSheet, nowMs: number, deadlineMs: number): boolean {
    const side = this.#side(place);
    const startMs = this.#predictStart(side, functionIndex, sheet, nowMs, deadlineMs);
    const runMs = side.place.runMs(functionIndex, sheet, startMs);
    if (startMs > nowMs) {
      const latestStartMs = this.#latestStartMs(side, functionIndex, runMs, nowMs, deadlineMs);
      return startMs + margin(side.waitOffMs, functionIndex, latestStartMs - nowMs) > latestStartMs;
    }
    if (nowMs + runMs <= deadlineMs) return false;
    if (offerAt(place, sheet)?.latencyMs !== undefined && !side.endedMs.has(functionIndex))
      side.endedMs.set(functionIndex, nowMs);
    return nowMs < this.trialMs(place, functionIndex, sheet, nowMs);
  }

  /**
   * When a function that would be late even without a wait gets its next call through: Infinity while one runs, and
   * -Infinity for one that never ran.
   */
  trialMs(place: number, functionIndex: number, sheet: OfferSheet, nowMs: number): number {
    const side = this.#side(place);
    const endedMs = side.endedMs.get(functionIndex) ?? -Infinity;
    return endedMs + overdueShare * side.place.runMs(functionIndex, sheet, nowMs);
  }

  /**
   * Whether a call that is late everywhere is to have its function's session made on cores that are idle: with it the
   * next calls would be in time.
   */
  isWorthSession(place: number, functionIndex: number, sheet: OfferSheet, nowMs: number, deadlineMs: number): boolean {
    if (place !== cpuPlace || this.#cpuSide.line.size > 0) return false;
    return this.cpu.isWorthSession(functionIndex, sheet, deadlineMs - nowMs);
  }

  /** The last instant at which an invocation could start there and be in time. */
  latestStartMs(place: number, functionIndex: number, sheet: OfferSheet, nowMs: number, deadlineMs: number): number {
    const side = this.#side(place);
    return this.#latestStartMs(side, functionIndex, side.place.runMs(functionIndex, sheet, nowMs), nowMs, deadlineMs);
  }

  /** An invocation joins the place's line, and starts if it can. */
  enter(invocation: number, sheet: OfferSheet, place: number, nowMs: number): void {
    const { invocationState, gpuOf, functionOf, sequence } = this.#state;
    const functionIndex = functionOf[invocation]!;
    invocationState[invocation] = state.aside;
    gpuOf[invocation] = place;
    const side = this.#side(place);
    const runMs = side.place.runMs(functionIndex, sheet, nowMs);
    const deadlineMs = this.#state.deadlineMs(invocation, sheet);
    const latestStartMs = this.#latestStartMs(side, functionIndex, runMs, nowMs, deadlineMs);
    this.#predictedMs[invocation] = this.#predictStart(side, functionIndex, sheet, nowMs, deadlineMs);
    const laneMs = runMs * side.place.lanesOf(sheet);
    if (latestStartMs >= nowMs) side.line.add(invocation, functionIndex, latestStartMs, laneMs, side.place.lanes);
    else side.line.addLate(invocation, sequence[invocation]!, laneMs);
    this.#startAll(place, functionIndex, nowMs);
  }

  /** Removes it from its place's queue. */
  leave(invocation: number): void {
    this.#side(this.#state.gpuOf[invocation]!).line.remove(invocation);
  }

  /** A run has ended. */
  finish(invocation: number, observed: Observation | undefined, nowMs: number): void {
    const place = this.#state.gpuOf[invocation]!;
    const functionIndex = this.#state.functionOf[invocation]!;
    const side = this.#side(place);
    const isTrial = side.trials.delete(invocation);
    // Without a run nothing was shown: it was refused, or failed.
    if (isTrial && observed?.runMs !== undefined && this.#isDisproved(side, invocation, nowMs))
      side.place.forgetRuns(functionIndex);
    side.place.end(invocation, functionIndex, observed);
    side.endedMs.set(functionIndex, nowMs);
    // A session is made too rarely to learn a margin from.
    if (observed !== undefined && observed.loadMs === undefined)
      side.runOffMs.observe(functionIndex, nowMs - this.#predictedMs[invocation]!);
    this.#startAll(place, functionIndex, nowMs);
  }

  /**
   * Whether a trial is in time though no run of its function could be, by what was learnt: that was learnt under another
   * load, or from a first run. Smoothing it away would take a dozen trials, while the function sheds all other calls.
   */
  #isDisproved({ place }: Side, invocation: number, nowMs: number): boolean {
    const { functionOf, sheets, arrivalMs } = this.#state;
    const functionIndex = functionOf[invocation]!;
    const sheet = sheets[functionIndex];
    if (sheet === undefined || !place.canTake(functionIndex, sheet)) return false;
    const startMs = arrivalMs[invocation]!;
    const deadlineMs = this.#state.deadlineMs(invocation, sheet);
    return nowMs <= deadlineMs && startMs + place.runMs(functionIndex, sheet, nowMs) > deadlineMs;
  }

  /** The place has changed or is gone. Returns the waiting invocations that cannot stay. */
  change(place: number, to: CpuPlace | WorkersPlace | null, nowMs: number): number[] {
    if (place === cpuPlace) this.cpu.setPlace(to as CpuPlace | null);
    else this.#workers.setPlace(to as WorkersPlace | null);
    const side = this.#side(place);
    const { functionOf, sheets } = this.#state;
    const displaced = side.line.all(functionOf).filter((invocation) => {
      const functionIndex = functionOf[invocation]!;
      const sheet = sheets[functionIndex];
      return sheet === undefined || !side.place.canTake(functionIndex, sheet);
    });
    for (const invocation of displaced) this.leave(invocation);
    this.dispatch(place, nowMs);
    return this.#inOrder(displaced);
  }

  /** Removes and returns a function's waiting invocations at either place. */
  take(functionIndex: number): number[] {
    const taken = [this.#cpuSide, this.#workersSide].flatMap(({ line }) =>
      line.all(this.#state.functionOf, functionIndex),
    );
    for (const invocation of taken) this.leave(invocation);
    return this.#inOrder(taken);
  }

  /** The function was removed; none of its invocations wait. */
  forget(functionIndex: number): void {
    for (const { place, runOffMs, waitOffMs, endedMs } of [this.#cpuSide, this.#workersSide]) {
      place.forget(functionIndex);
      runOffMs.forget(functionIndex);
      waitOffMs.forget(functionIndex);
      endedMs.delete(functionIndex);
    }
  }

  /** Starts what can start. */
  dispatch(place: number, nowMs: number): void {
    for (;;) {
      const invocation = this.#next(place, nowMs);
      if (invocation === nobody) return;
      if (this.#start(invocation, place, nowMs)) continue;
      if (place !== cpuPlace || !this.#startBeside(nowMs)) return;
    }
  }

  /** An invocation waited for a core that another run has held too long, and that instant has come. */
  wake(nowMs: number): void {
    if (nowMs < this.#wakeMs) return;
    this.#wakeMs = Infinity;
    this.dispatch(cpuPlace, nowMs);
  }

  /**
   * The first in the queue cannot start. Starts the first invocation that can share cores with runs that have held
   * theirs too long.
   */
  #startBeside(nowMs: number): boolean {
    const nextMs = this.cpu.shareHeld(nowMs);
    const { functionOf, sheets, shell } = this.#state;
    if (this.cpu.isShared) {
      const invocation = this.#next(cpuPlace, nowMs, (waiting) => {
        const functionIndex = functionOf[waiting]!;
        return this.cpu.canStart(functionIndex, sheets[functionIndex]!);
      });
      if (invocation !== nobody) return this.#start(invocation, cpuPlace, nowMs);
    }
    if (nextMs < this.#wakeMs) {
      this.#wakeMs = nextMs;
      shell.wake(nextMs);
    }
    return false;
  }

  #startAll(place: number, functionIndex: number, nowMs: number): void {
    this.dispatch(place, nowMs);
    if (place === cpuPlace) this.#startOwn(functionIndex, nowMs);
  }

  /** On instances of the function's own, for which no other function's call waits. */
  #startOwn(functionIndex: number, nowMs: number): void {
    const sheet = this.#state.sheets[functionIndex];
    if (sheet === undefined) return;
    while (this.cpu.hasOwn(functionIndex, sheet)) {
      const next = this.#firstOf(functionIndex);
      if (next === nobody || !this.#start(next, cpuPlace, nowMs)) return;
    }
  }

  #firstOf(functionIndex: number): number {
    const { onTime, late } = this.#cpuSide.line;
    const isOwn = (invocation: number): boolean => this.#state.functionOf[invocation] === functionIndex;
    const first = onTime.firstThat(isOwn);
    return first === nobody ? late.firstThat(isOwn) : first;
  }

  #side(place: number): Side {
    return place === cpuPlace ? this.#cpuSide : this.#workersSide;
  }

  #inOrder(invocations: number[]): number[] {
    return invocations.sort((a, b) => this.#state.sequence[a]! - this.#state.sequence[b]!);
  }

  /** When an invocation that joined now would start: behind those ahead of it, or, once it is late, behind all. */
  #predictStart(side: Side, functionIndex: number, sheet: OfferSheet, nowMs: number, deadlineMs: number): number {
    const { place, line } = side;
    if (place.hasOwn(functionIndex, sheet) || (line.size === 0 && place.hasLane(functionIndex, sheet))) return nowMs;
    const runMs = place.runMs(functionIndex, sheet, nowMs);
    const latestStartMs = this.#latestStartMs(side, functionIndex, runMs, nowMs, deadlineMs);
    const leftMs = place.leftMs(nowMs);
    const mostMs = (latestStartMs - nowMs) * place.lanes - leftMs;
    const startMs = nowMs + (leftMs + line.msBefore(functionIndex, latestStartMs, mostMs)) / place.lanes;
    return startMs <= latestStartMs ? startMs : nowMs + (leftMs + line.waitingMs) / place.lanes;
  }

  /** The latest start that still meets the SLO even if the run takes as much longer as runs sometimes do. */
  #latestStartMs({ runOffMs }: Side, functionIndex: number, runMs: number, nowMs: number, deadlineMs: number): number {
    const spareMs = deadlineMs - runMs - nowMs;
    return nowMs + spareMs - margin(runOffMs, functionIndex, spareMs);
  }

  /**
   * Which invocation starts next, of all or of those for which this holds. One that has become late goes behind the
   * others, or is shed.
   */
  #next(place: number, nowMs: number, holds?: (invocation: number) => boolean): number {
    const { sequence, arrivalMs, policy, functionOf, sheets, invocationState, shell } = this.#state;
    const side = this.#side(place);
    const { line } = side;
    const firstOf = (heap: IndexedHeap): number => (holds === undefined ? heap.first() : heap.firstThat(holds));
    for (;;) {
      const invocation = firstOf(line.onTime);
      if (invocation === nobody || !line.isPast(invocation, nowMs)) break;
      const functionIndex = functionOf[invocation]!;
      this.#waited(side, invocation, nowMs);
      const sheet = sheets[functionIndex]!;
      if ((sheet.admission ?? policy.admission) === 'shed') {
        line.remove(invocation);
        invocationState[invocation] = state.ended;
        const predictedEndMs = nowMs + side.place.runMs(functionIndex, sheet, nowMs);
        shell.act({ kind: 'shed', invocation, predictedEndMs });
      } else line.makeLate(invocation, sequence[invocation]!);
    }
    const first = firstOf(line.onTime);
    const oldest = firstOf(line.late);
    if (oldest !== nobody && nowMs - arrivalMs[oldest]! >= policy.waitBoundMs) {
      if (first === nobody || line.startsSinceOverdue >= overdueShare) return oldest;
    }
    return first === nobody ? oldest : first;
  }

  /** An invocation on time has ended its wait. The calls that overtook it are as likely to overtake the next one. */
  #waited({ waitOffMs }: Side, invocation: number, nowMs: number): void {
    waitOffMs.observe(this.#state.functionOf[invocation]!, nowMs - this.#predictedMs[invocation]!);
  }

  #start(invocation: number, at: number, nowMs: number): boolean {
    const { functionOf, sheets, shell, invocationState, decisions } = this.#state;
    const functionIndex = functionOf[invocation]!;
    const sheet = sheets[functionIndex]!;
    const decision = decisions[invocation]!;
    const side = this.#side(at);
    const { place, line, endedMs } = side;
    if (!place.canStart(functionIndex, sheet)) return false;
    if (line.onTime.has(invocation)) this.#waited(side, invocation, nowMs);
    line.startsSinceOverdue = line.late.has(invocation) ? 0 : line.startsSinceOverdue + 1;
    line.begin(invocation);
    const runMs = place.runMs(functionIndex, sheet, nowMs);
    const endMs = nowMs + runMs;
    const predictedEndMs = runMs > 0 ? endMs : undefined;
    this.#predictedMs[invocation] = endMs;
    if (nowMs >= this.trialMs(at, functionIndex, sheet, nowMs)) side.trials.add(invocation);
    endedMs.set(functionIndex, Infinity);
    const loads = place.start(invocation, functionIndex, sheet, endMs, nowMs);
    if (at === cpuPlace) shell.act({ kind: 'run-cpu', invocation, functionIndex, loads, predictedEndMs, decision });
    else shell.act({ kind: 'run-worker', invocation, functionIndex, predictedEndMs, decision });
    invocationState[invocation] = state.offloaded;
    return true;
  }
}

const offerAt = (place: number, { cpu, workers }: OfferSheet): CpuOffer | WorkersOffer | null | undefined =>
  place === cpuPlace ? cpu : workers;

/** How far a prediction may be off, given so much spare time. */
const margin = (offMs: Margin, functionIndex: number, spareMs: number): number =>
  Math.min(offMs.of(functionIndex), Math.max(0, spareMs) * spareShareMax);

const newSide = (place: SidePlace): Side => ({
  place,
  line: new SideLine(),
  runOffMs: new Margin(onTimeShare),
  waitOffMs: new Margin(onTimeShare),
  trials: new Set(),
  endedMs: new Map(),
});
