/**
 * Functions on the CPU whose lists of instances follow their load, on a virtual clock. What they change to and when, the
 * cores of the instances and each function's share of them are decided by the code of a host's pools (`src/cpu`); the
 * scheduler makes room for their memory, as on a host.
 */
import { isDeepStrictEqual } from 'node:util';
import {
  CoreAllocator,
  ListChooser,
  lookMs,
  PoolLoad,
  instanceMs,
  instancesOf,
  runMs,
  stepTo,
  withoutOne,
  arrivalWindowMs,
  type Candidate,
  type CoreLease,
  type ListChange,
  type ListLoad,
  type ListStep,
  type PoolConfiguration,
} from '../cpu/index.ts';
import type { LogicalCore } from '../hardware/index.ts';
import type { CpuOffer, FunctionId, Given } from '../schedule/index.ts';
import type { SwapOptions } from './simulator-demand.ts';
import type { ListInstance, SimulatedLists } from './simulator-lists.ts';
import type { ListChangeRecord } from './types.ts';

export interface SwapEvents {
  /** `then` is to be called at that instant. */
  readonly later: (atMs: number, then: () => void) => void;
  /** Asks for room for instances beside those of the function. Returns whether there is some, which counts as used. */
  readonly reserve: (functionIndex: Given<FunctionId>, bytes: number) => boolean;
  /** Memory that is used no more. */
  readonly free: (bytes: number) => void;
  /** The cores without a lease, or the memory that is reserved. */
  readonly placeChanged: (cores: number, reservedBytes: number) => void;
  /** What the function's sessions take. */
  readonly sessions: (functionIndex: Given<FunctionId>, bytes: number, spares: number) => void;
  readonly offered: (functionIndex: Given<FunctionId>, offer: CpuOffer) => void;
  /** Nothing has used the function's instances for {@link idleMs}. */
  readonly idle: (functionIndex: Given<FunctionId>) => void;
  readonly changed: (record: ListChangeRecord) => void;
}

/** `cpu.reconfigureInterval`, `cpu.objective` and `cpu.idle` of a host whose configuration does not say. */
const intervalMs = 10_000;
const objective = 'latency';
const idleMs = 300_000;
/** The scheduler is told when a time has changed by this share. */
const worthTelling = 0.2;

interface OwnInstance extends ListInstance {
  readonly threads: number;
  batch: number;
  readonly lease: CoreLease;
}

/** A list that is being started. */
interface Starting {
  readonly change: ListChange;
  readonly step: ListStep;
  readonly leases: readonly CoreLease[];
  readonly bytes: number;
}

interface SwappedPool {
  readonly functionIndex: Given<FunctionId>;
  readonly options: SwapOptions;
  readonly chooser: ListChooser;
  readonly load: PoolLoad;
  /** Its offer without a list, and the one that the scheduler knows. */
  readonly onDemand: CpuOffer;
  offer: CpuOffer;
  /** Calls that were handed over and not answered, and those of them that run. */
  present: number;
  running: number;
  usedMs: number;
  /** Undefined: on demand. */
  configuration: PoolConfiguration | undefined;
  candidate: Candidate | undefined;
  instances: readonly OwnInstance[];
  starting: Starting | undefined;
  /** Instances that have left, and still run and count. */
  readonly leaving: Set<object>;
}

/** An instance that takes no more calls: when its run ends, and its cores; undefined: it was on demand. */
interface Left {
  readonly endMs: number;
  readonly lease?: CoreLease;
}

export class SimulatedSwaps {
  readonly #cores: CoreAllocator;
  readonly #lists: SimulatedLists;
  readonly #events: SwapEvents;
  readonly #pools = new Map<Given<FunctionId>, SwappedPool>();
  /** Recently called. */
  readonly #called = new Set<SwappedPool>();
  /** Functions whose lists do not change: when they were called last. */
  readonly #others = new Map<Given<FunctionId>, number>();
  #isLooking = false;
  #isOver = false;
  #reservedBytes = 0;

  /** @param limit how many of the cores its functions may have */
  constructor(cores: readonly LogicalCore[], limit: number, lists: SimulatedLists, events: SwapEvents) {
    this.#cores = new CoreAllocator(cores, limit);
    this.#lists = lists;
    this.#events = events;
  }

  /** A function's list follows its load. Returns what its pool offers at first. */
  add(functionIndex: Given<FunctionId>, options: SwapOptions, onDemand: CpuOffer, nowMs: number): CpuOffer {
    const { tables, sloMs } = options;
    const pool: SwappedPool = {
      functionIndex,
      options,
      chooser: new ListChooser(tables, { objective, sloMs, intervalMs }, nowMs),
      load: new PoolLoad(nowMs),
      onDemand,
      offer: onDemand,
      present: 0,
      running: 0,
      usedMs: nowMs,
      configuration: undefined,
      candidate: undefined,
      instances: [],
      starting: undefined,
      leaving: new Set(),
    };
    this.#pools.set(functionIndex, pool);
    return (pool.offer = this.#offerOf(pool, nowMs));
  }

  /** The list that serves the function now; null: it is on demand; undefined: its list does not change. */
  listOf(functionIndex: Given<FunctionId>): PoolConfiguration | null | undefined {
    const pool = this.#pools.get(functionIndex);
    return pool && (pool.configuration ?? null);
  }

  /** The function, which may be one whose list does not change, is handed a call. */
  called(functionIndex: Given<FunctionId>, nowMs: number): void {
    const pool = this.#pools.get(functionIndex);
    if (pool === undefined) {
      this.#others.set(functionIndex, nowMs);
      return;
    }
    pool.present++;
    pool.load.arrived(1, nowMs);
    this.#called.add(pool);
    this.#lookSoon(nowMs);
  }

  began(functionIndex: Given<FunctionId>, calls: number): void {
    const pool = this.#pools.get(functionIndex);
    if (pool !== undefined) pool.running += calls;
  }

  /** @param handedMs when the call was handed over @param serviceMs of its run; undefined: it was a cold start */
  answered(functionIndex: Given<FunctionId>, handedMs: number, serviceMs: number | undefined, nowMs: number): void {
    const pool = this.#pools.get(functionIndex);
    if (pool === undefined) return;
    pool.present--;
    pool.running--;
    pool.usedMs = nowMs;
    pool.load.left(1, nowMs);
    if (serviceMs !== undefined) pool.chooser.live.answered(nowMs - handedMs, serviceMs, nowMs);
  }

  /**
   * The scheduler has closed the function's sessions, in which nothing runs, or one of several (`isSpare`). Returns the
   * bytes of those that were its list's; undefined: it was on demand.
   */
  close(functionIndex: Given<FunctionId>, isSpare: boolean, isIdle: boolean, nowMs: number): number | undefined {
    const pool = this.#pools.get(functionIndex);
    if (pool === undefined) return undefined;
    const { starting, configuration, instances, onDemand } = pool;
    const to = isSpare && configuration !== undefined ? withoutOne(configuration) : undefined;
    let count = 1;
    if (to !== undefined) this.#leave(pool, this.#serve(pool, to, instances, [], nowMs), false, nowMs);
    else {
      if (isSpare) return undefined;
      if (isIdle) pool.load.forgetArrivals(nowMs);
      if (starting !== undefined) this.#giveUp(pool, starting, nowMs);
      count = instances.length + pool.leaving.size;
      pool.leaving.clear();
      pool.configuration = pool.candidate = undefined;
      pool.instances = [];
      for (const { lease } of instances) lease[Symbol.dispose]();
      if (configuration !== undefined) this.#lists.change(functionIndex, [], 0, nowMs);
    }
    // Not in the midst of the scheduler's actions.
    this.#events.later(nowMs, () => {
      this.#tellPlace();
      this.#offer(pool, nowMs);
    });
    return configuration === undefined ? undefined : count * (onDemand.bytes ?? 0);
  }

  /** No more calls come: what is idle stays, as a report would count its end. */
  finish(): void {
    this.#isOver = true;
  }

  #lookSoon(nowMs: number): void {
    if (this.#isLooking) return;
    this.#isLooking = true;
    const atMs = (Math.floor(nowMs / lookMs) + 1) * lookMs;
    this.#events.later(atMs, () => {
      this.#isLooking = false;
      for (const pool of this.#called) this.#look(pool, atMs);
      if (this.#called.size > 0) this.#lookSoon(atMs);
    });
  }

  #look(pool: SwappedPool, nowMs: number): void {
    const load = this.#loadOf(pool, nowMs);
    pool.chooser.look(load, nowMs);
    if (load.arrivalsPerSecond === 0) {
      this.#called.delete(pool);
      if (pool.configuration !== undefined) this.#watchIdle(pool);
    }
    const change = pool.chooser.choose(load, () => this.#shareOf(pool, nowMs), nowMs);
    if (change !== undefined) this.#apply(pool, change, nowMs);
    this.#offer(pool, nowMs);
  }

  #watchIdle(pool: SwappedPool): void {
    const { usedMs, functionIndex } = pool;
    this.#events.later(usedMs + idleMs, () => {
      const isIdle = pool.present === 0 && pool.usedMs === usedMs && pool.configuration !== undefined;
      if (isIdle && !this.#isOver) this.#events.idle(functionIndex);
    });
  }

  #loadOf({ load, configuration, starting, present, running, onDemand }: SwappedPool, nowMs: number): ListLoad {
    return {
      configuration,
      starting: starting?.change.configuration,
      arrivalsPerSecond: load.perSecond(nowMs),
      queueDepth: load.depth(nowMs),
      queueLength: present - running,
      inFlight: running,
      startMs: onDemand.loadMs,
    };
  }

  #shareOf({ functionIndex, load }: SwappedPool, nowMs: number): number {
    let active = 0;
    for (const each of this.#pools.values())
      if (each.functionIndex === functionIndex || each.configuration !== undefined || this.#called.has(each)) active++;
    for (const calledMs of this.#others.values()) if (nowMs - calledMs < arrivalWindowMs) active++;
    const callMs = this.#lists.onDemand(functionIndex)?.callMs ?? 0;
    return this.#cores.shareOf(String(functionIndex), active, (load.perSecond(nowMs) * callMs) / 1000);
  }

  #apply(pool: SwappedPool, change: ListChange, nowMs: number): void {
    const { functionIndex, onDemand } = pool;
    const step = stepTo(pool.configuration, change.configuration);
    if (step.kind === 'none') {
      pool.chooser.changed(true);
      return;
    }
    const bytes = step.added.length * (onDemand.bytes ?? 0);
    const leases = this.#cores.leaseFor(String(functionIndex), step);
    if (leases === undefined || !this.#events.reserve(functionIndex, bytes)) {
      for (const lease of leases ?? []) lease[Symbol.dispose]();
      this.#settle(pool, change, false, nowMs);
      return;
    }
    const starting: Starting = { change, step, leases, bytes };
    pool.starting = starting;
    this.#reservedBytes += bytes;
    this.#tellPlace();
    const readyMs = leases.length === 0 ? nowMs : nowMs + (onDemand.loadMs ?? 0);
    this.#events.later(readyMs, () => {
      if (pool.starting === starting) this.#takeOver(pool, starting, readyMs);
    });
  }

  /** Its instances are ready. */
  #takeOver(pool: SwappedPool, { change, step, leases, bytes }: Starting, nowMs: number): void {
    pool.starting = undefined;
    this.#reservedBytes -= bytes;
    const added = leases.map((lease, at) => this.#instance(pool, step.added[at]!.threads, lease));
    const kept = step.kind === 'scale' ? pool.instances : [];
    this.#leave(pool, this.#serve(pool, change.configuration, kept, added, nowMs), true, nowMs);
    this.#tellPlace();
    this.#tellSessions(pool);
    this.#settle(pool, change, true, nowMs);
    this.#offer(pool, nowMs);
  }

  /** A list that was being started is not needed any more. */
  #giveUp(pool: SwappedPool, { change, leases, bytes }: Starting, nowMs: number): void {
    pool.starting = undefined;
    this.#reservedBytes -= bytes;
    this.#events.free(bytes);
    for (const lease of leases) lease[Symbol.dispose]();
    this.#settle(pool, change, false, nowMs);
  }

  #settle({ chooser, functionIndex }: SwappedPool, { cause }: ListChange, isDone: boolean, nowMs: number): void {
    chooser.changed(isDone);
    this.#events.changed({ atMs: nowMs, functionIndex, outcome: isDone ? 'done' : 'refused', cause });
  }

  /** The list serves from now on, on instances of those kept, and on the added ones. Returns those that leave. */
  #serve(
    pool: SwappedPool,
    configuration: PoolConfiguration,
    kept: readonly OwnInstance[],
    added: readonly OwnInstance[],
    nowMs: number,
  ): readonly Left[] {
    const { functionIndex, instances: before, options } = pool;
    const endMs = (instance: OwnInstance): number => this.#lists.endMs(functionIndex, instance);
    const planned = instancesOf(configuration);
    const serving = new Set<OwnInstance>();
    // Of those that may stay, the ones at work do.
    const rank = (each: OwnInstance): number => (endMs(each) > nowMs ? 0 : 1);
    for (const each of [...kept.toSorted((a, b) => rank(a) - rank(b)), ...added]) {
      const at = planned.findIndex(({ threads }) => threads === each.threads);
      const [next] = at === -1 ? [] : planned.splice(at, 1);
      if (next === undefined) continue;
      each.batch = next.batch / options.rowsPerCall;
      serving.add(each);
    }
    const left = before.filter((each) => !serving.has(each)).map((each) => ({ endMs: endMs(each), lease: each.lease }));
    pool.instances = [...before.filter((each) => serving.has(each)), ...added];
    pool.configuration = configuration;
    pool.candidate = options.tables.largest.find(configuration.groups);
    const { batchTimeoutMs = 0 } = configuration;
    const endsMs = this.#lists.change(functionIndex, pool.instances, batchTimeoutMs, nowMs);
    return [...left, ...endsMs.map((each) => ({ endMs: each }))];
  }

  #instance(pool: SwappedPool, threads: number, lease: CoreLease): OwnInstance {
    const { tables, rowsPerCall } = pool.options;
    const { profile } = tables.largest;
    const expectedMs = (calls: number): number => instanceMs(profile.pool, threads, calls * rowsPerCall) ?? 0;
    const own: OwnInstance = {
      threads,
      batch: 1,
      lease,
      expectedMs,
      runMs: (calls, together, sinceMs) =>
        runMs(pool.candidate, profile.idle, { threads, expectedMs }, calls, together, sinceMs),
    };
    return own;
  }

  /** Each goes when its run has ended. @param counts as sessions until then */
  #leave(pool: SwappedPool, left: readonly Left[], counts: boolean, nowMs: number): void {
    for (const each of left) {
      if (counts) pool.leaving.add(each);
      const go = (): void => {
        each.lease?.[Symbol.dispose]();
        if (pool.leaving.delete(each)) this.#events.free(pool.onDemand.bytes ?? 0);
      };
      if (each.endMs <= nowMs) go();
      else {
        this.#events.later(each.endMs, () => {
          const counted = pool.leaving.has(each);
          go();
          this.#tellPlace();
          if (counted) this.#tellSessions(pool);
        });
      }
    }
  }

  #tellSessions({ functionIndex, instances, leaving, onDemand }: SwappedPool): void {
    const bytes = (instances.length + leaving.size) * (onDemand.bytes ?? 0);
    if (bytes > 0) this.#events.sessions(functionIndex, bytes, Math.max(0, instances.length - 1));
  }

  /** With every core leased, runs without a lease share all cores: a function is never without any. */
  get #freeCores(): number {
    return Math.max(1, this.#cores.unleased().length);
  }

  #tellPlace(): void {
    this.#events.placeChanged(this.#freeCores, this.#reservedBytes);
  }

  #offer(pool: SwappedPool, nowMs: number): void {
    const { offer: before, functionIndex } = pool;
    const offer = this.#offerOf(pool, nowMs);
    const isAlike = offer.list === before.list && offer.cores === before.cores;
    if (isAlike && isClose(offer.latencyMs, before.latencyMs)) return;
    pool.offer = offer;
    this.#events.offered(functionIndex, offer);
  }

  #offerOf(pool: SwappedPool, nowMs: number): CpuOffer {
    const { chooser, onDemand, configuration, instances, options, offer } = pool;
    const { serviceMs, cores = 1 } = chooser.live.arrival(this.#loadOf(pool, nowMs)) ?? {};
    const callsMax = options.tables.largest.options.batchMax / options.rowsPerCall;
    const groups = instances.map(({ threads, batch }) => ({ instances: 1, threads, batch }));
    const isSame = isDeepStrictEqual(offer.list?.groups, groups);
    return {
      ...onDemand,
      latencyMs: serviceMs,
      cores: Math.min(cores, this.#freeCores) / callsMax,
      list: configuration && (isSame ? offer.list : { ...configuration, groups }),
    };
  }
}

const isClose = (one: number | undefined, other: number | undefined): boolean =>
  one === other || (one !== undefined && other !== undefined && Math.abs(one - other) <= worthTelling * other);
