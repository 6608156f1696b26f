/**
 * Functions on the CPU whose lists of instances follow their load, on a virtual clock. What they change to and when, the
 * cores of the instances and each function's share of them are decided by the code of a host's pools (`src/cpu`); the
 * scheduler makes room for their memory, as on a host.
 */
import {
  callsIn,
  CoreAllocator,
  isAlikeOffer,
  ListChooser,
  ListSwaps,
  lookMs,
  offeredList,
  PoolLoad,
  instanceMs,
  runMs,
  arrivalWindowMs,
  type Candidate,
  type ListChange,
  type ListLoad,
  type ListMember,
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

interface OwnInstance extends ListInstance, ListMember {
  batch: number;
  /** What counts of its session. */
  bytes: number;
}

interface SwappedPool {
  readonly functionIndex: Given<FunctionId>;
  readonly options: SwapOptions;
  readonly chooser: ListChooser;
  readonly load: PoolLoad;
  /** Those of its list; instances on demand, only while they leave. */
  readonly instances: ListSwaps<OwnInstance>;
  /** Its offer without a list, and the one that the scheduler knows. */
  readonly onDemand: CpuOffer;
  offer: CpuOffer;
  /** Calls that were handed over and not answered, and those of them that run. */
  present: number;
  running: number;
  usedMs: number;
  candidate: Candidate | undefined;
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
  #nowMs = 0;

  /** @param limit how many of the cores its functions may have */
  constructor(cores: readonly LogicalCore[], limit: number, lists: SimulatedLists, events: SwapEvents) {
    this.#cores = new CoreAllocator(cores, limit);
    this.#lists = lists;
    this.#events = events;
  }

  /** A function's list follows its load. Returns what its pool offers at first. */
  add(functionIndex: Given<FunctionId>, options: SwapOptions, onDemand: CpuOffer, nowMs: number): CpuOffer {
    const { tables, sloMs } = options;
    this.#nowMs = nowMs;
    const endMs = (instance: OwnInstance): number => this.#lists.endMs(functionIndex, instance);
    const instances = new ListSwaps<OwnInstance>(this.#cores, String(functionIndex), {
      make: ({ threads }, lease) => this.#instance(pool, threads, lease),
      leavingRank: (instance) => (endMs(instance) > this.#nowMs ? 0 : 1),
      adopt: (instance, { batch }) => (instance.batch = batch / options.rowsPerCall),
      ends: (instance, cause) => {
        // What the scheduler has closed counts no more.
        if (cause !== 'reconfigured') instance.bytes = 0;
        this.#removeAt(pool, instance, endMs(instance));
      },
    });
    const pool: SwappedPool = {
      functionIndex,
      options,
      chooser: new ListChooser(tables, { objective, sloMs, intervalMs }, nowMs),
      load: new PoolLoad(nowMs),
      instances,
      onDemand,
      offer: onDemand,
      present: 0,
      running: 0,
      usedMs: nowMs,
      candidate: undefined,
    };
    this.#pools.set(functionIndex, pool);
    return (pool.offer = this.#offerOf(pool));
  }

  /** The list that serves the function now; null: it is on demand; undefined: its list does not change. */
  listOf(functionIndex: Given<FunctionId>): PoolConfiguration | null | undefined {
    const pool = this.#pools.get(functionIndex);
    return pool && (pool.instances.configuration ?? null);
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
    this.#nowMs = nowMs;
    this.#lookSoon();
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
    this.#nowMs = nowMs;
    const { instances, onDemand } = pool;
    const { configuration } = instances;
    const isOne = isSpare && instances.giveOne('room') !== undefined;
    if (isSpare && !isOne) return undefined;
    let bytes = onDemand.bytes ?? 0;
    if (!isOne) {
      if (isIdle) pool.load.forgetArrivals(nowMs);
      bytes = this.#bytesOf(pool);
      for (const instance of instances.leaving) instance.bytes = 0;
      instances.drop('room');
    }
    if (configuration !== undefined) this.#changed(pool);
    // Not in the midst of the scheduler's actions.
    this.#later(nowMs, () => {
      this.#tellPlace();
      this.#offer(pool);
    });
    return configuration === undefined ? undefined : bytes;
  }

  /** No more calls come: what is idle stays, as a report would count its end. */
  finish(): void {
    this.#isOver = true;
  }

  #later(atMs: number, then: () => void): void {
    this.#events.later(atMs, () => {
      this.#nowMs = atMs;
      then();
    });
  }

  #lookSoon(): void {
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#later((Math.floor(this.#nowMs / lookMs) + 1) * lookMs, () => {
      this.#isLooking = false;
      for (const pool of this.#called) this.#look(pool);
      if (this.#called.size > 0) this.#lookSoon();
    });
  }

  #look(pool: SwappedPool): void {
    const { chooser } = pool;
    const load = this.#loadOf(pool);
    chooser.look(load, this.#nowMs);
    if (load.arrivalsPerSecond === 0) {
      this.#called.delete(pool);
      if (load.configuration !== undefined) this.#watchIdle(pool);
    }
    const change = chooser.choose(load, () => this.#shareOf(pool), this.#nowMs);
    if (change !== undefined) this.#apply(pool, change);
    this.#offer(pool);
  }

  #watchIdle(pool: SwappedPool): void {
    const { usedMs, functionIndex, instances } = pool;
    this.#later(usedMs + idleMs, () => {
      const isIdle = pool.present === 0 && pool.usedMs === usedMs && instances.configuration !== undefined;
      if (isIdle && !this.#isOver) this.#events.idle(functionIndex);
    });
  }

  #loadOf({ load, instances, present, running, onDemand }: SwappedPool): ListLoad {
    return {
      configuration: instances.configuration,
      starting: instances.swap?.to,
      arrivalsPerSecond: load.perSecond(this.#nowMs),
      queueDepth: load.depth(this.#nowMs),
      queueLength: present - running,
      inFlight: running,
      startMs: onDemand.loadMs,
    };
  }

  #shareOf(pool: SwappedPool): number {
    const { functionIndex, load } = pool;
    let active = 0;
    for (const each of this.#pools.values())
      if (each === pool || each.instances.configuration !== undefined || this.#called.has(each)) active++;
    for (const calledMs of this.#others.values()) if (this.#nowMs - calledMs < arrivalWindowMs) active++;
    const { callMs } = this.#lists.onDemand(functionIndex) ?? {};
    return this.#cores.shareOf(String(functionIndex), active, load.coresUsed(this.#nowMs, callMs));
  }

  #apply(pool: SwappedPool, { configuration, cause }: ListChange): void {
    const { functionIndex, instances, onDemand } = pool;
    const { bytes = 0, loadMs = 0 } = onDemand;
    const begun = instances.begin(configuration);
    if ('state' in begun) {
      this.#settle(pool, cause, begun.state === 'done');
      return;
    }
    if (!this.#events.reserve(functionIndex, begun.passive.length * bytes)) {
      instances.giveUp(begun);
      this.#settle(pool, cause, false);
      return;
    }
    for (const each of begun.passive) each.bytes = bytes;
    this.#tellPlace();
    this.#later(this.#nowMs + loadMs, () => this.#settle(pool, cause, instances.takeOver(begun)));
  }

  #settle(pool: SwappedPool, cause: string, isDone: boolean): void {
    const { chooser, functionIndex } = pool;
    if (isDone) {
      this.#changed(pool);
      this.#tellPlace();
      this.#tellSessions(pool);
    }
    chooser.changed(isDone);
    this.#events.changed({ atMs: this.#nowMs, functionIndex, outcome: isDone ? 'done' : 'refused', cause });
    this.#offer(pool);
  }

  /** Other instances serve, or none but those on demand. */
  #changed(pool: SwappedPool): void {
    const { functionIndex, instances, options, onDemand } = pool;
    const { configuration, serving } = instances;
    pool.candidate = configuration && options.tables.largest.find(configuration.groups);
    const endsMs = this.#lists.change(functionIndex, serving, configuration?.batchTimeoutMs ?? 0, this.#nowMs);
    for (const endMs of endsMs) {
      const left = this.#instance(pool, 1, undefined);
      left.bytes = onDemand.bytes ?? 0;
      instances.leaving.add(left);
      this.#removeAt(pool, left, endMs);
    }
  }

  #instance(pool: SwappedPool, threads: number, lease: OwnInstance['lease']): OwnInstance {
    const { tables, rowsPerCall } = pool.options;
    const { profile } = tables.largest;
    const expectedMs = (calls: number): number => instanceMs(profile.pool, threads, calls * rowsPerCall) ?? 0;
    return {
      threads,
      lease,
      batch: 1,
      bytes: 0,
      expectedMs,
      runMs: (calls, together, sinceMs) =>
        runMs(pool.candidate, profile.idle, { threads, expectedMs }, calls, together, sinceMs),
    };
  }

  /** Its run ends then, and it with that. */
  #removeAt(pool: SwappedPool, instance: OwnInstance, endMs: number): void {
    const remove = (): void => {
      pool.instances.remove(instance);
      this.#events.free(instance.bytes);
    };
    if (endMs <= this.#nowMs) remove();
    else {
      this.#later(endMs, () => {
        remove();
        this.#tellPlace();
        if (instance.bytes > 0) this.#tellSessions(pool);
      });
    }
  }

  /** Bytes of its sessions, without those that are to take over. */
  #bytesOf({ instances: { serving, leaving } }: SwappedPool): number {
    return [...serving, ...leaving].reduce((sum, { bytes }) => sum + bytes, 0);
  }

  #tellSessions(pool: SwappedPool): void {
    const bytes = this.#bytesOf(pool);
    const spares = Math.max(0, pool.instances.serving.length - 1);
    if (bytes > 0) this.#events.sessions(pool.functionIndex, bytes, spares);
  }

  #tellPlace(): void {
    let reservedBytes = 0;
    for (const { instances } of this.#pools.values())
      for (const { bytes } of instances.swap?.passive ?? []) reservedBytes += bytes;
    this.#events.placeChanged(this.#cores.shared, reservedBytes);
  }

  #offer(pool: SwappedPool): void {
    const offer = this.#offerOf(pool);
    if (isAlikeOffer(offer, pool.offer)) return;
    pool.offer = offer;
    this.#events.offered(pool.functionIndex, offer);
  }

  #offerOf(pool: SwappedPool): CpuOffer {
    const { chooser, onDemand, instances, options } = pool;
    const { tables, rowsPerCall } = options;
    const { serviceMs, cores = 1 } = chooser.live.arrival(this.#loadOf(pool)) ?? {};
    const limits = {
      batchMax: tables.largest.options.batchMax,
      batchFixed: rowsPerCall > 1 ? rowsPerCall : undefined,
    };
    const serving = instances.serving.map(({ threads, batch }) => ({ threads, batch: batch * rowsPerCall }));
    return {
      ...onDemand,
      latencyMs: serviceMs,
      cores: Math.min(cores, this.#cores.shared) / callsIn(Infinity, limits),
      list: offeredList(instances.configuration, serving, limits),
    };
  }
}
