import type { ServedFunction } from './function.ts';
import type { Invocation } from './invocation.ts';
import { Learnt, type Popularity } from './learnt.ts';
import { slotsOf } from './batches.ts';
import type { CpuOffer } from './offer.ts';
import type { Lanes } from './lanes.ts';
import type { Orders } from './orders.ts';
import { Sessions } from './sessions.ts';
import type { CpuPlace, Observation } from './types.ts';
import { tuning } from './tuning.ts';
import { getOrMake } from '../tools/index.ts';

const { aheadMax, aheadShare, sharingMax } = tuning.sides;

/** What an invocation occupies on the CPU while it runs. */
interface Taken {
  readonly fn: ServedFunction;
  readonly cores: number;
  readonly startMs: number;
  /** When its cores are expected to be free. */
  readonly endMs: number;
  /**
   * `own`: on an instance of the function's own. `shares`: it has held its cores longer than {@link
   * CpuPlace.holdMsMax}.
   */
  kind: 'own' | 'holds' | 'shares';
}

/** The CPU as a place: cores as lanes, and room for sessions (`sessions.ts`). */
export class CpuLanes implements Lanes<CpuPlace> {
  readonly id = 'cpu';
  #place: CpuPlace | null;
  #busyCores = 0;
  /** Over the runs: cores times the instant at which they are expected to be free. */
  #coreEndMs = 0;
  /** By invocation number, as these are reused. */
  readonly #taken: (Taken | undefined)[] = [];
  /** Runs that have their cores to themselves, in the order in which they started. */
  readonly #holding = new Set<Invocation>();
  /** Cores of the runs that share theirs: over all functions, and for each function that has such runs. */
  #sharedCores = 0;
  readonly #sharedCoresOf = new Map<ServedFunction, number>();
  readonly sessions: Sessions;
  /** Runs on instances of the function's own, and the sum of their expected ends. */
  readonly #own = new Map<ServedFunction, { runs: number; endMs: number }>();
  /** Cores of the sessions that are being made without a call. */
  readonly #makingCores = new Map<ServedFunction, number>();
  readonly #runMs = new Learnt();
  /** By function: core time of its latest run, 0.1 ms at least. */
  readonly #coreMs = new Map<ServedFunction, number>();
  readonly #loadMs = new Learnt();
  readonly #bytes = new Learnt();

  constructor(place: CpuPlace | null, popularity: Popularity, orders: Orders) {
    this.#place = place;
    this.sessions = new Sessions(roomOf(place), popularity, orders);
  }

  get count(): number {
    return this.#place?.cores ?? 0;
  }

  set(place: CpuPlace | null): void {
    this.#place = place;
    if (place !== null) this.sessions.setRoom(roomOf(place));
  }

  offerFor({ sheet }: ServedFunction): CpuOffer | null {
    return sheet.cpu;
  }

  canTake(fn: ServedFunction): boolean {
    const { cpu } = fn.sheet;
    if (this.#place === null || cpu === null) return false;
    if (slotsIn(cpu) > 0) return true;
    return cpu.cores <= this.#place.cores && this.#bytesOf(fn, cpu) <= this.#place.memoryBytes;
  }

  /** The calls that its instances with cores of their own take at once. */
  ownCount({ sheet }: ServedFunction): number {
    return slotsIn(sheet.cpu);
  }

  hasLane(fn: ServedFunction): boolean {
    const own = this.ownCount(fn);
    if (own > 0) return (this.#own.get(fn)?.runs ?? 0) < own;
    const neededCores = this.#busyCores + (this.#sharedCoresOf.get(fn) ?? 0) + fn.sheet.cpu!.cores;
    if (neededCores <= this.count) return true;
    const coreMs = this.#coreMs.get(fn);
    if (coreMs === undefined) return false;
    const ahead = Math.min(Math.floor((this.#place?.aheadMs ?? 0) / coreMs), aheadMax);
    return neededCores <= this.count * (1 + ahead);
  }

  /** Whether any run shares its cores. Then a function that has one may have to wait where another need not. */
  get isShared(): boolean {
    return this.#sharedCores > 0;
  }

  /**
   * Makes runs that have held their cores too long share them, so that another function's invocation may start beside
   * them. Returns when the next run will have held too long; Infinity if none will.
   */
  shareHeld(nowMs: number): number {
    const { holdMsMax = Infinity } = this.#place ?? {};
    for (const invocation of this.#holding) {
      const taken = this.#taken[invocation.number]!;
      if (taken.startMs + holdMsMax > nowMs) return taken.startMs + holdMsMax;
      if (this.#sharedCores >= sharingMax * this.count) return Infinity;
      this.#letGo(invocation, taken);
      taken.kind = 'shares';
      this.#share(taken, taken.cores);
    }
    return Infinity;
  }

  laneMs(fn: ServedFunction, runMs: number): number {
    return (runMs - this.#coreFreeMs(fn)) * (this.ownCount(fn) > 0 ? 1 : fn.sheet.cpu!.cores);
  }

  leftMs(nowMs: number, owner?: ServedFunction): number {
    if (owner === undefined) return Math.max(0, this.#coreEndMs - this.#busyCores * nowMs);
    const { runs, endMs } = this.#own.get(owner) ?? { runs: 0, endMs: 0 };
    return Math.max(0, endMs - runs * nowMs);
  }

  /** While another invocation's start is still making the session, this one waits for the rest of that time. */
  runMs(fn: ServedFunction, startMs: number): number {
    const offer = fn.sheet.cpu!;
    const runMs = this.#runMs.of(fn.number, offer.latencyMs);
    if (this.ownCount(fn) > 0) return runMs;
    const session = this.sessions.of(fn);
    return runMs + (session === undefined ? this.#loadMsOf(fn, offer) : Math.max(0, session.readyMs - startMs));
  }

  canStart(fn: ServedFunction): boolean {
    const { cpu } = fn.sheet;
    if (this.#place === null || cpu === null) return false;
    if (!this.hasLane(fn)) return false;
    if (this.ownCount(fn) > 0) return true;
    const session = this.sessions.of(fn);
    if (session?.isLeft) return false;
    return session !== undefined || this.sessions.hasRoomFor(this.#bytesOf(fn, cpu));
  }

  /**
   * Whether cores are idle, a run in a session would take no longer than this, the function has none, and room for it is
   * free or held by a session that is worth less.
   */
  isWorthMaking(fn: ServedFunction, mostMs: number): boolean {
    const offer = fn.sheet.cpu!;
    if (this.ownCount(fn) > 0 || this.sessions.of(fn) !== undefined) return false;
    if (this.#runMs.of(fn.number, offer.latencyMs) > mostMs || !this.canStart(fn)) return false;
    return this.sessions.isWorth(fn, this.#loadMsOf(fn, offer), this.#bytesOf(fn, offer));
  }

  /** The session counts as a run until a `session` says what came of it. */
  makeAhead(fn: ServedFunction, nowMs: number): boolean {
    const offer = fn.sheet.cpu!;
    // A session is made by one thread.
    const cores = Math.min(1, offer.cores);
    // Of what has no bytes it could not be told that it is there.
    if (!offer.bytes || this.#busyCores + cores > aheadShare * this.count) return false;
    const loadMs = this.#loadMsOf(fn, offer);
    this.sessions.open(fn, { bytes: this.#bytesOf(fn, offer), runs: 1, loadMs, readyMs: nowMs + loadMs });
    this.#makingCores.set(fn, cores);
    this.#busyCores += cores;
    this.#coreEndMs += (nowMs + loadMs) * cores;
    return true;
  }

  /** Takes what a run needs. Returns whether its session has to be made first. */
  start(invocation: Invocation, endMs: number, nowMs: number): boolean {
    const { fn, number } = invocation;
    const offer = fn.sheet.cpu!;
    const isOwn = this.ownCount(fn) > 0;
    const kind = isOwn ? 'own' : 'holds';
    while (this.#taken.length <= number) this.#taken.push(undefined);
    const freeMs = Math.max(nowMs, endMs - this.#coreFreeMs(fn));
    this.#taken[number] = { fn, cores: offer.cores, startMs: nowMs, endMs: freeMs, kind };
    if (isOwn) {
      const own = getOrMake(this.#own, fn, () => ({ runs: 0, endMs: 0 }));
      own.runs++;
      own.endMs += freeMs;
      if (this.sessions.of(fn) !== undefined) this.sessions.begin(fn, this.#loadMsOf(fn, offer));
      return false;
    }
    this.#holding.add(invocation);
    this.#busyCores += offer.cores;
    this.#coreEndMs += freeMs * offer.cores;
    const session = this.sessions.of(fn);
    const loads = session === undefined && offer.loadMs !== undefined;
    const loadMs = this.#loadMsOf(fn, offer);
    if (session === undefined) {
      const runs = this.#runsOutside(fn);
      this.sessions.open(fn, { bytes: this.#bytesOf(fn, offer), runs, loadMs, readyMs: nowMs + loadMs });
    } else this.sessions.begin(fn, loadMs);
    return loads;
  }

  /** A run has ended, or was refused. */
  end(invocation: Invocation, observed: Observation | undefined): void {
    const { fn, number } = invocation;
    const taken = this.#taken[number];
    if (taken === undefined) return;
    this.#taken[number] = undefined;
    if (observed?.runMs !== undefined) this.#runMs.observe(fn.number, observed.runMs);
    if (observed?.coreMs !== undefined) this.#coreMs.set(fn, Math.max(observed.coreMs, 0.1));
    const session = this.sessions.of(fn);
    if (observed?.loadMs !== undefined)
      this.#loadMs.observe(fn.number, observed.loadMs, observed.bytes ?? session?.bytes);
    switch (taken.kind) {
      case 'own':
        this.#endOwn(fn, taken.endMs);
        break;
      case 'holds':
        this.#letGo(invocation, taken);
        break;
      case 'shares':
        this.#share(taken, -taken.cores);
    }
    this.sessions.end(fn);
    if (observed?.bytes !== undefined && this.sessions.of(fn)?.isLeft === false) this.setSession(fn, observed.bytes);
  }

  /** What its sessions really take; 0: they are gone. */
  setSession(fn: ServedFunction, bytes: number, spares = 0): void {
    this.#endMaking(fn);
    const loadMs = this.#loadMs.of(fn.number, undefined, bytes);
    this.sessions.set(fn, bytes, spares, loadMs, this.#runsOutside(fn));
    if (bytes > 0) this.#bytes.observe(fn.number, bytes / (spares + 1));
  }

  forgetRuns(fn: ServedFunction): void {
    this.#runMs.forget(fn.number);
  }

  /** The function was removed, or can hold no session any more. */
  forget(fn: ServedFunction): void {
    this.forgetRuns(fn);
    this.#coreMs.delete(fn);
    this.#loadMs.forget(fn.number);
    this.#bytes.forget(fn.number);
    this.#endMaking(fn);
    this.sessions.leave(fn);
  }

  /** How much of a run takes no core: its message waits in the process, behind those that were handed over before it. */
  #coreFreeMs(fn: ServedFunction): number {
    const runMs = this.#runMs.of(fn.number, fn.sheet.cpu!.latencyMs);
    return Math.max(0, runMs - (this.#coreMs.get(fn) ?? runMs));
  }

  #endMaking(fn: ServedFunction): void {
    const cores = this.#makingCores.get(fn);
    if (cores === undefined) return;
    this.#makingCores.delete(fn);
    const { readyMs } = this.sessions.of(fn) ?? { readyMs: 0 };
    this.#busyCores -= cores;
    this.#coreEndMs = this.#busyCores === 0 ? 0 : this.#coreEndMs - readyMs * cores;
    this.sessions.end(fn);
  }

  #endOwn(fn: ServedFunction, endMs: number): void {
    const own = this.#own.get(fn)!;
    own.runs--;
    own.endMs -= endMs;
    if (own.runs === 0) this.#own.delete(fn);
  }

  /** Frees the run's cores for others. */
  #letGo(invocation: Invocation, { cores, endMs }: Taken): void {
    this.#holding.delete(invocation);
    this.#busyCores -= cores;
    this.#coreEndMs = this.#busyCores === 0 ? 0 : this.#coreEndMs - endMs * cores;
  }

  #share({ fn }: Taken, cores: number): void {
    const ofFunction = (this.#sharedCoresOf.get(fn) ?? 0) + cores;
    this.#sharedCores += cores;
    if (ofFunction === 0) this.#sharedCoresOf.delete(fn);
    else this.#sharedCoresOf.set(fn, ofFunction);
  }

  #loadMsOf(fn: ServedFunction, offer: CpuOffer): number {
    return 'loadMs' in offer ? this.#loadMs.of(fn.number, offer.loadMs, this.#bytesOf(fn, offer)) : 0;
  }

  #bytesOf(fn: ServedFunction, offer: CpuOffer): number {
    return 'bytes' in offer ? this.#bytes.of(fn.number, offer.bytes) : 0;
  }

  /**
   * Counts the runs of a function that has no session. Its process may have died while they go on; the next session is
   * then theirs too.
   */
  #runsOutside(fn: ServedFunction): number {
    let runs = 0;
    for (const taken of this.#taken) if (taken?.fn === fn) runs++;
    return runs;
  }
}

const slotsIn = (offer: CpuOffer | null): number => (offer?.list === undefined ? 0 : slotsOf(offer.list));

const roomOf = (place: CpuPlace | null): number =>
  place === null ? Infinity : place.memoryBytes - (place.takenBytes ?? 0);
