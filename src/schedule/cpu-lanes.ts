import type { ServedFunction } from './function.ts';
import { ValueOrder } from './heap.ts';
import type { Invocation } from './invocation.ts';
import { Learnt, type Popularity } from './learnt.ts';
import type { CpuOffer } from './offer.ts';
import type { Lanes } from './lanes.ts';
import type { CpuPlace, Observation, Shell } from './types.ts';
import { tuning } from './tuning.ts';

const { aheadMax, sharingMax } = tuning.sides;

/** What an invocation occupies on the CPU while it runs. */
interface Taken {
  readonly fn: ServedFunction;
  readonly cores: number;
  readonly startMs: number;
  readonly endMs: number;
  /**
   * `own`: on an instance of the function's own. `shares`: it has held its cores longer than {@link
   * CpuPlace.holdMsMax}.
   */
  kind: 'own' | 'holds' | 'shares';
}

interface Session {
  bytes: number;
  /** Runs in it. */
  runs: number;
  /** How long the session takes to make, and when it is expected to be ready. */
  loadMs: number;
  readyMs: number;
  /**
   * The function was removed during a run. The session goes with its last run; a new function of that number makes
   * another.
   */
  isLeft: boolean;
}

/**
 * The CPU as a place: cores as lanes, and room for sessions. A session stays until another one needs its room. The
 * first to go is the cheapest to make again: invocation frequency times the time to make it, over its bytes.
 */
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
  readonly #sessions = new Map<ServedFunction, Session>();
  readonly #ownRuns = new Map<ServedFunction, number>();
  /** Sessions in which nothing runs. */
  readonly #idle: ValueOrder<ServedFunction>;
  #usedBytes = 0;
  #idleBytes = 0;
  readonly #runMs = new Learnt();
  /** By function: core time of its latest run, 0.1 ms at least. */
  readonly #coreMs = new Map<ServedFunction, number>();
  readonly #loadMs = new Learnt();
  readonly #bytes = new Learnt();
  readonly #popularity: Popularity;
  readonly #shell: Shell;

  constructor(place: CpuPlace | null, popularity: Popularity, shell: Shell) {
    this.#place = place;
    this.#popularity = popularity;
    this.#shell = shell;
    this.#idle = new ValueOrder((fn) => {
      const { loadMs, bytes } = this.#sessions.get(fn)!;
      return this.#valueOf(fn, loadMs, bytes);
    });
    popularity.onScale((factor) => this.#idle.scale(factor));
  }

  get count(): number {
    return this.#place?.cores ?? 0;
  }

  set(place: CpuPlace | null): void {
    this.#place = place;
    if (place !== null) this.#makeRoom(0);
  }

  offerFor({ sheet }: ServedFunction): CpuOffer | null {
    return sheet.cpu;
  }

  canTake(fn: ServedFunction): boolean {
    const { cpu } = fn.sheet;
    if (this.#place === null || cpu === null) return false;
    if ((cpu.slots ?? 0) > 0) return true;
    return cpu.cores <= this.#place.cores && this.#bytesOf(fn, cpu) <= this.#place.memoryBytes;
  }

  /** Whether an instance with cores and a session of the function's own is free. */
  hasOwn(fn: ServedFunction): boolean {
    return (this.#ownRuns.get(fn) ?? 0) < (fn.sheet.cpu?.slots ?? 0);
  }

  hasLane(fn: ServedFunction): boolean {
    const neededCores = this.#busyCores + (this.#sharedCoresOf.get(fn) ?? 0) + this.lanesOf(fn);
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

  lanesOf({ sheet }: ServedFunction): number {
    return sheet.cpu!.cores;
  }

  leftMs(nowMs: number): number {
    return Math.max(0, this.#coreEndMs - this.#busyCores * nowMs);
  }

  /** While another invocation's start is still making the session, this one waits for the rest of that time. */
  runMs(fn: ServedFunction, startMs: number): number {
    const offer = fn.sheet.cpu!;
    const runMs = this.#runMs.of(fn.number, offer.latencyMs);
    if (this.hasOwn(fn)) return runMs;
    const session = this.#sessions.get(fn);
    return runMs + (session === undefined ? this.#loadMsOf(fn, offer) : Math.max(0, session.readyMs - startMs));
  }

  canStart(fn: ServedFunction): boolean {
    const { cpu } = fn.sheet;
    if (this.#place === null || cpu === null) return false;
    if (this.hasOwn(fn)) return true;
    const session = this.#sessions.get(fn);
    if (session?.isLeft || !this.hasLane(fn)) return false;
    return (
      session !== undefined || this.#place.memoryBytes - this.#usedBytes + this.#idleBytes >= this.#bytesOf(fn, cpu)
    );
  }

  /**
   * Whether cores are idle, a run in a session would take no longer than this, the function has none, and room for it is
   * free or held by a session that is worth less.
   */
  isWorthMaking(fn: ServedFunction, mostMs: number): boolean {
    const offer = fn.sheet.cpu!;
    if (this.hasOwn(fn) || this.#sessions.has(fn)) return false;
    if (this.#runMs.of(fn.number, offer.latencyMs) > mostMs || !this.canStart(fn)) return false;
    const bytes = this.#bytesOf(fn, offer);
    if (this.#usedBytes + bytes <= this.#place!.memoryBytes) return true;
    const victim = this.#idle.first();
    return victim !== undefined && this.#idle.keyOf(victim) < this.#valueOf(fn, this.#loadMsOf(fn, offer), bytes);
  }

  /** Takes what a run needs. Returns whether its session has to be made first. */
  start(invocation: Invocation, endMs: number, nowMs: number): boolean {
    const { fn, number } = invocation;
    const offer = fn.sheet.cpu!;
    const isOwn = this.hasOwn(fn);
    const kind = isOwn ? 'own' : 'holds';
    while (this.#taken.length <= number) this.#taken.push(undefined);
    this.#taken[number] = { fn, cores: offer.cores, startMs: nowMs, endMs, kind };
    if (isOwn) {
      this.#ownRuns.set(fn, (this.#ownRuns.get(fn) ?? 0) + 1);
      return false;
    }
    this.#holding.add(invocation);
    this.#busyCores += offer.cores;
    this.#coreEndMs += endMs * offer.cores;
    const session = this.#sessions.get(fn);
    const loads = session === undefined && offer.loadMs !== undefined;
    const loadMs = this.#loadMsOf(fn, offer);
    if (session === undefined) {
      const bytes = this.#bytesOf(fn, offer);
      this.#makeRoom(bytes);
      const runs = this.#runsOutside(fn);
      this.#sessions.set(fn, { bytes, runs, loadMs, readyMs: nowMs + loadMs, isLeft: false });
      this.#usedBytes += bytes;
    } else {
      this.#hold(fn, session.bytes);
      session.runs++;
      session.loadMs = loadMs;
    }
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
    const session = this.#sessions.get(fn);
    if (observed?.loadMs !== undefined)
      this.#loadMs.observe(fn.number, observed.loadMs, observed.bytes ?? session?.bytes);
    switch (taken.kind) {
      case 'own':
        this.#ownRuns.set(fn, this.#ownRuns.get(fn)! - 1);
        return;
      case 'holds':
        this.#letGo(invocation, taken);
        break;
      case 'shares':
        this.#share(taken, -taken.cores);
    }
    if (session === undefined) return;
    session.runs--;
    session.readyMs = 0;
    if (session.isLeft) {
      if (session.runs === 0) this.#evict(fn, 'unload');
      return;
    }
    this.#release(fn);
    if (observed?.bytes !== undefined) this.setSession(fn, observed.bytes);
  }

  /** What a session really takes; 0: the session is gone. */
  setSession(fn: ServedFunction, bytes: number): void {
    const session = this.#sessions.get(fn);
    if (session !== undefined) this.#hold(fn, session.bytes);
    this.#usedBytes += bytes - (session?.bytes ?? 0);
    const { loadMs = this.#loadMs.of(fn.number, undefined, bytes), readyMs = 0, isLeft = false } = session ?? {};
    const runs = session?.runs ?? this.#runsOutside(fn);
    if (bytes === 0) this.#sessions.delete(fn);
    else this.#sessions.set(fn, { bytes, runs, loadMs, readyMs, isLeft });
    this.#release(fn);
    if (bytes > 0) this.#bytes.observe(fn.number, bytes);
    if (this.#place !== null) this.#makeRoom(0);
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
    const session = this.#sessions.get(fn);
    if (session === undefined) return;
    if (session.runs > 0) session.isLeft = true;
    else this.#evict(fn, 'unload');
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

  #valueOf({ number }: ServedFunction, loadMs: number, bytes: number): number {
    return (this.#popularity.count(number) * loadMs) / bytes;
  }

  /**
   * Counts the runs of a function that has no session. Its process may have died while they go on; the next session is
   * then theirs too.
   */
  #runsOutside(fn: ServedFunction): number {
    let runs = 0;
    for (const taken of this.#taken) if (taken?.fn === fn && taken.kind !== 'own') runs++;
    return runs;
  }

  /** The session may be closed from now on, if nothing runs in it. */
  #release(fn: ServedFunction): void {
    const session = this.#sessions.get(fn);
    if (session === undefined || session.runs > 0 || session.bytes === 0) return;
    this.#idle.add(fn);
    this.#idleBytes += session.bytes;
  }

  #hold(fn: ServedFunction, bytes: number): void {
    if (!this.#idle.has(fn)) return;
    this.#idle.remove(fn);
    this.#idleBytes -= bytes;
  }

  #makeRoom(neededBytes: number): void {
    while (this.#usedBytes + neededBytes > this.#place!.memoryBytes) {
      const victim = this.#idle.first();
      if (victim === undefined) return;
      this.#evict(victim, 'capacity');
    }
  }

  #evict(fn: ServedFunction, cause: 'capacity' | 'unload'): void {
    const { bytes } = this.#sessions.get(fn)!;
    this.#hold(fn, bytes);
    this.#sessions.delete(fn);
    this.#usedBytes -= bytes;
    // A session of 0 bytes is not counted: the place handles it alone.
    if (bytes > 0) this.#shell.act({ kind: 'evict-cpu', functionIndex: fn.number, bytes, cause });
  }
}
