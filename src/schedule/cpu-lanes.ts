import { ValueOrder } from './heap.ts';
import { Learnt, type Popularity } from './learnt.ts';
import type { CpuOffer, OfferSheet } from './offer.ts';
import type { SidePlace } from './side-line.ts';
import type { CpuPlace, Observation } from './types.ts';
import { tuning } from './tuning.ts';

const { aheadMax, sharingMax } = tuning.sides;

/** What an invocation occupies on the CPU while it runs. */
interface Taken {
  readonly functionIndex: number;
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
export class CpuLanes implements SidePlace {
  #place: CpuPlace | null;
  #busyCores = 0;
  /** Over the runs: cores times the instant at which they are expected to be free. */
  #coreEndMs = 0;
  /** By invocation number, as these are reused. */
  readonly #taken: (Taken | undefined)[] = [];
  /** Runs that have their cores to themselves, in the order in which they started. */
  readonly #holding = new Set<number>();
  /** Cores of the runs that share theirs: over all functions, and for each function that has such runs. */
  #sharedCores = 0;
  readonly #sharedCoresOf = new Map<number, number>();
  readonly #sessions = new Map<number, Session>();
  readonly #ownRuns = new Map<number, number>();
  /** Sessions in which nothing runs. */
  readonly #idle: ValueOrder;
  #usedBytes = 0;
  #idleBytes = 0;
  readonly #runMs = new Learnt();
  /** By function: core time of its latest run, 0.1 ms at least. */
  readonly #coreMs = new Map<number, number>();
  readonly #loadMs = new Learnt();
  readonly #bytes = new Learnt();
  readonly #onEvict: (functionIndex: number, bytes: number, cause: 'capacity' | 'unload') => void;
  readonly #valueOf: (functionIndex: number, loadMs: number, bytes: number) => number;

  constructor(
    place: CpuPlace | null,
    popularity: Popularity,
    onEvict: (functionIndex: number, bytes: number, cause: 'capacity' | 'unload') => void,
  ) {
    this.#place = place;
    this.#onEvict = onEvict;
    this.#valueOf = (functionIndex, loadMs, bytes) => (popularity.count(functionIndex) * loadMs) / bytes;
    this.#idle = new ValueOrder((functionIndex) => {
      const { loadMs, bytes } = this.#sessions.get(functionIndex)!;
      return this.#valueOf(functionIndex, loadMs, bytes);
    });
    popularity.onScale((factor) => this.#idle.scale(factor));
  }

  grow(functionCount: number): void {
    this.#idle.grow(functionCount);
  }

  get lanes(): number {
    return this.#place?.cores ?? 0;
  }

  setPlace(place: CpuPlace | null): void {
    this.#place = place;
    if (place !== null) this.#makeRoom(0);
  }

  canTake(functionIndex: number, { cpu }: OfferSheet): boolean {
    if (this.#place === null || cpu === null) return false;
    if ((cpu.slots ?? 0) > 0) return true;
    return cpu.cores <= this.#place.cores && this.#bytesOf(functionIndex, cpu) <= this.#place.memoryBytes;
  }

  /** Whether an instance with cores and a session of the function's own is free. */
  hasOwn(functionIndex: number, { cpu }: OfferSheet): boolean {
    return (this.#ownRuns.get(functionIndex) ?? 0) < (cpu?.slots ?? 0);
  }

  hasLane(functionIndex: number, { cpu }: OfferSheet): boolean {
    const neededCores = this.#busyCores + (this.#sharedCoresOf.get(functionIndex) ?? 0) + cpu!.cores;
    if (neededCores <= this.lanes) return true;
    const coreMs = this.#coreMs.get(functionIndex);
    if (coreMs === undefined) return false;
    const ahead = Math.min(Math.floor((this.#place?.aheadMs ?? 0) / coreMs), aheadMax);
    return neededCores <= this.lanes * (1 + ahead);
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
      const taken = this.#taken[invocation]!;
      if (taken.startMs + holdMsMax > nowMs) return taken.startMs + holdMsMax;
      if (this.#sharedCores >= sharingMax * this.lanes) return Infinity;
      this.#letGo(invocation, taken);
      taken.kind = 'shares';
      this.#share(taken, taken.cores);
    }
    return Infinity;
  }

  lanesOf({ cpu }: OfferSheet): number {
    return cpu!.cores;
  }

  leftMs(nowMs: number): number {
    return Math.max(0, this.#coreEndMs - this.#busyCores * nowMs);
  }

  /** While another invocation's start is still making the session, this one waits for the rest of that time. */
  runMs(functionIndex: number, sheet: OfferSheet, startMs: number): number {
    const offer = sheet.cpu!;
    const runMs = this.#runMs.of(functionIndex, offer.latencyMs);
    if (this.hasOwn(functionIndex, sheet)) return runMs;
    const session = this.#sessions.get(functionIndex);
    return (
      runMs + (session === undefined ? this.#loadMsOf(functionIndex, offer) : Math.max(0, session.readyMs - startMs))
    );
  }

  canStart(functionIndex: number, sheet: OfferSheet): boolean {
    if (this.#place === null || sheet.cpu === null) return false;
    if (this.hasOwn(functionIndex, sheet)) return true;
    const session = this.#sessions.get(functionIndex);
    if (session?.isLeft || !this.hasLane(functionIndex, sheet)) return false;
    return (
      session !== undefined ||
      this.#place.memoryBytes - this.#usedBytes + this.#idleBytes >= this.#bytesOf(functionIndex, sheet.cpu)
    );
  }

  /**
   * Whether cores are idle, a run in a session would take no longer than this, the function has none, and room for it is
   * free or held by a session that is worth less.
   */
  isWorthSession(functionIndex: number, sheet: OfferSheet, mostMs: number): boolean {
    const offer = sheet.cpu!;
    if (this.hasOwn(functionIndex, sheet) || this.#sessions.has(functionIndex)) return false;
    if (this.#runMs.of(functionIndex, offer.latencyMs) > mostMs || !this.canStart(functionIndex, sheet)) return false;
    const bytes = this.#bytesOf(functionIndex, offer);
    if (this.#usedBytes + bytes <= this.#place!.memoryBytes) return true;
    const victim = this.#idle.first();
    return (
      victim >= 0 &&
      this.#idle.keyOf(victim) < this.#valueOf(functionIndex, this.#loadMsOf(functionIndex, offer), bytes)
    );
  }

  /** Takes what a run needs. Returns whether its session has to be made first. */
  start(invocation: number, functionIndex: number, sheet: OfferSheet, endMs: number, nowMs: number): boolean {
    const offer = sheet.cpu!;
    const isOwn = this.hasOwn(functionIndex, sheet);
    const kind = isOwn ? 'own' : 'holds';
    while (this.#taken.length <= invocation) this.#taken.push(undefined);
    this.#taken[invocation] = { functionIndex, cores: offer.cores, startMs: nowMs, endMs, kind };
    if (isOwn) {
      this.#ownRuns.set(functionIndex, (this.#ownRuns.get(functionIndex) ?? 0) + 1);
      return false;
    }
    this.#holding.add(invocation);
    this.#busyCores += offer.cores;
    this.#coreEndMs += endMs * offer.cores;
    const session = this.#sessions.get(functionIndex);
    const loads = session === undefined && offer.loadMs !== undefined;
    const loadMs = this.#loadMsOf(functionIndex, offer);
    if (session === undefined) {
      const bytes = this.#bytesOf(functionIndex, offer);
      this.#makeRoom(bytes);
      const runs = this.#runsOutside(functionIndex);
      this.#sessions.set(functionIndex, { bytes, runs, loadMs, readyMs: nowMs + loadMs, isLeft: false });
      this.#usedBytes += bytes;
    } else {
      this.#hold(functionIndex, session.bytes);
      session.runs++;
      session.loadMs = loadMs;
    }
    return loads;
  }

  /** A run has ended, or was refused. */
  end(invocation: number, functionIndex: number, observed: Observation | undefined): void {
    const taken = this.#taken[invocation];
    if (taken === undefined) return;
    this.#taken[invocation] = undefined;
    if (observed?.runMs !== undefined) this.#runMs.observe(functionIndex, observed.runMs);
    if (observed?.coreMs !== undefined) this.#coreMs.set(functionIndex, Math.max(observed.coreMs, 0.1));
    const session = this.#sessions.get(functionIndex);
    if (observed?.loadMs !== undefined)
      this.#loadMs.observe(functionIndex, observed.loadMs, observed.bytes ?? session?.bytes);
    switch (taken.kind) {
      case 'own':
        this.#ownRuns.set(functionIndex, this.#ownRuns.get(functionIndex)! - 1);
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
      if (session.runs === 0) this.#evict(functionIndex, 'unload');
      return;
    }
    this.#release(functionIndex);
    if (observed?.bytes !== undefined) this.setSession(functionIndex, observed.bytes);
  }

  /** What a session really takes; 0: the session is gone. */
  setSession(functionIndex: number, bytes: number): void {
    const session = this.#sessions.get(functionIndex);
    if (session !== undefined) this.#hold(functionIndex, session.bytes);
    this.#usedBytes += bytes - (session?.bytes ?? 0);
    const { loadMs = this.#loadMs.of(functionIndex, undefined, bytes), readyMs = 0, isLeft = false } = session ?? {};
    const runs = session?.runs ?? this.#runsOutside(functionIndex);
    if (bytes === 0) this.#sessions.delete(functionIndex);
    else this.#sessions.set(functionIndex, { bytes, runs, loadMs, readyMs, isLeft });
    this.#release(functionIndex);
    if (bytes > 0) this.#bytes.observe(functionIndex, bytes);
    if (this.#place !== null) this.#makeRoom(0);
  }

  forgetRuns(functionIndex: number): void {
    this.#runMs.forget(functionIndex);
  }

  /** The function was removed, or can hold no session any more. */
  forget(functionIndex: number): void {
    this.forgetRuns(functionIndex);
    this.#coreMs.delete(functionIndex);
    this.#loadMs.forget(functionIndex);
    this.#bytes.forget(functionIndex);
    const session = this.#sessions.get(functionIndex);
    if (session === undefined) return;
    if (session.runs > 0) session.isLeft = true;
    else this.#evict(functionIndex, 'unload');
  }

  /** Frees the run's cores for others. */
  #letGo(invocation: number, { cores, endMs }: Taken): void {
    this.#holding.delete(invocation);
    this.#busyCores -= cores;
    this.#coreEndMs = this.#busyCores === 0 ? 0 : this.#coreEndMs - endMs * cores;
  }

  #share({ functionIndex }: Taken, cores: number): void {
    const ofFunction = (this.#sharedCoresOf.get(functionIndex) ?? 0) + cores;
    this.#sharedCores += cores;
    if (ofFunction === 0) this.#sharedCoresOf.delete(functionIndex);
    else this.#sharedCoresOf.set(functionIndex, ofFunction);
  }

  #loadMsOf(functionIndex: number, offer: CpuOffer): number {
    return 'loadMs' in offer ? this.#loadMs.of(functionIndex, offer.loadMs, this.#bytesOf(functionIndex, offer)) : 0;
  }

  #bytesOf(functionIndex: number, offer: CpuOffer): number {
    return 'bytes' in offer ? this.#bytes.of(functionIndex, offer.bytes) : 0;
  }

  /**
   * Counts the runs of a function that has no session. Its process may have died while they go on; the next session is
   * then theirs too.
   */
  #runsOutside(functionIndex: number): number {
    let runs = 0;
    for (const taken of this.#taken) if (taken?.functionIndex === functionIndex && taken.kind !== 'own') runs++;
    return runs;
  }

  /** The session may be closed from now on, if nothing runs in it. */
  #release(functionIndex: number): void {
    const session = this.#sessions.get(functionIndex);
    if (session === undefined || session.runs > 0 || session.bytes === 0) return;
    this.#idle.add(functionIndex);
    this.#idleBytes += session.bytes;
  }

  #hold(functionIndex: number, bytes: number): void {
    if (!this.#idle.has(functionIndex)) return;
    this.#idle.remove(functionIndex);
    this.#idleBytes -= bytes;
  }

  #makeRoom(neededBytes: number): void {
    while (this.#usedBytes + neededBytes > this.#place!.memoryBytes) {
      const victim = this.#idle.first();
      if (victim < 0) return;
      this.#evict(victim, 'capacity');
    }
  }

  #evict(functionIndex: number, cause: 'capacity' | 'unload'): void {
    const { bytes } = this.#sessions.get(functionIndex)!;
    this.#hold(functionIndex, bytes);
    this.#sessions.delete(functionIndex);
    this.#usedBytes -= bytes;
    // A session of 0 bytes is not counted: the place handles it alone.
    if (bytes > 0) this.#onEvict(functionIndex, bytes, cause);
  }
}
