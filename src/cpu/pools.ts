/**
 * All CPU pools of a machine. They share its cores (pool/cores.ts: a configured pool leases its own, the rest share
 * what is not leased) and its memory, with the processes that hold their sessions (instance/processes.ts).
 */
import { readLogicalCores, readMemory, type LogicalCore } from '../hardware/index.ts';
import {
  LoadGate,
  Processes,
  proportionalBytes,
  WeightsCache,
  type InstanceLog,
  type MeasureProcess,
} from './instance/index.ts';
import { CoreAllocator, Pool, type PoolEvents, type PoolResources } from './pool/index.ts';
import {
  CpuError,
  type IdleSession,
  type InstanceSpec,
  type InvokeOptions,
  type LeasedCores,
  type LoadOptions,
  type PoolConfiguration,
  type PoolFacts,
  type PoolInput,
  type PoolLimits,
  type PoolResult,
  type PoolsObserver,
  type PoolsResources,
  type PoolState,
  type Reconfiguration,
  type RoomWanted,
  type Stopped,
} from './types.ts';
import type { FrameMemory } from '../tensor/index.ts';
import { doneWithin } from '../tools/index.ts';

export interface CpuPoolsOptions extends PoolEvents {
  /** Cores that the pools share. */
  readonly cores: number;
  /** Blank instances kept started. */
  readonly blankInstances: number;
  /** Limit for the processes of all functions together, by proportional set size. */
  readonly memoryBytes: number;
  /** What loads may take beyond what stays of them, and preparers of weights; default: no limit. */
  readonly loadsBytes?: number;
  /** How much a process uses; default: its proportional set size. Where the system does not tell, estimates count. */
  readonly measureProcess?: MeasureProcess;
  readonly log: InstanceLog;
  /** Counts replies while they arrive. */
  readonly replies?: FrameMemory;
  /** What is wrong with the machine, and no function's fault. */
  readonly warn?: (line: string) => void;
  /** Whether models without handlers run without network, where Linux allows it. Default: false. */
  readonly modelsOffline?: boolean;
  /**
   * Called with a function's measured figures, whenever a session of it has come or gone, or its cores have changed.
   */
  readonly onFacts?: (facts: PoolFacts) => void;
  /**
   * There is no room for a session, and the pools close none by themselves: whoever owns them calls {@link
   * CpuPools.evict}, within this call or later. Default: sessions wait for room.
   */
  readonly onShort?: (wanted: RoomWanted) => void;
  /**
   * Nothing has used a function's sessions for `idleMs` of its limits: whoever owns them calls {@link CpuPools.evict},
   * or is told again half a second later. Default: they stay.
   */
  readonly onIdle?: (idle: IdleSession) => void;
  /** What sessions have left to take has been measured. */
  readonly onMeasured?: () => void;
  /** Where the prepared weights that instances share are kept across restarts. Without it nothing is shared. */
  readonly cacheFolder?: string;
  /** The share of joined runs whose answers are compared with runs alone; default: 0.01. */
  readonly comparedShare?: number;
  /** The hardware threads that instances may be pinned to; default: those of this machine. */
  readonly logicalCores?: readonly LogicalCore[];
}

/** Interval of looking for idle sessions; their limit is seconds to minutes. */
const retireIntervalMs = 500;
/** Management does not wait behind calls: work that takes longer than this ends by itself later. */
const drainMsMax = 2000;

export function createCpuPools(options: CpuPoolsOptions): CpuPools {
  return new MachinePools(options);
}

/** The CPU pools of a machine. */
export type CpuPools = Pick<MachinePools, keyof MachinePools>;

class MachinePools {
  readonly #options: CpuPoolsOptions;
  readonly #pools = new Map<string, Pool>();
  readonly #resources: PoolResources;
  readonly #retireTimer: NodeJS.Timeout;
  #isStopping = false;
  #observer: PoolsObserver | undefined;

  constructor(options: CpuPoolsOptions) {
    this.#options = options;
    const { cacheFolder, log } = options;
    const cores = new CoreAllocator(options.logicalCores ?? readLogicalCores(), options.cores, () => {
      const free = cores.unleased();
      // With every core leased they run on any core.
      processes.pinUnleased(free.length > 0 ? free : cores.all());
    });
    const processes: Processes = new Processes({
      memoryBytes: options.memoryBytes,
      sharedMax: options.cores,
      blankInstances: options.blankInstances,
      modelsOffline: options.modelsOffline ?? false,
      measureProcess: options.measureProcess ?? proportionalBytes,
      log,
      replies: options.replies,
      warn: options.warn ?? ((line) => log(undefined, undefined, line)),
      onShort: (wanted) => options.onShort?.(wanted),
      onRoom: () => loads.retry(),
      onMeasured: () => options.onMeasured?.(),
    });
    const loads = new LoadGate({
      loadsBytes: options.loadsBytes ?? Infinity,
      leftBytes: () => readMemory().usableBytes,
      onShort: () => processes.giveUpBlanks(),
    });
    this.#resources = {
      loads,
      cores,
      processes,
      weights:
        cacheFolder === undefined
          ? undefined
          : new WeightsCache(cacheFolder, (key, line) => log(undefined, key, line), loads),
      events: options,
      comparedShare: options.comparedShare ?? 0.01,
      tookOver: (key) => {
        options.onMeasured?.();
        this.#resources.factsChanged(key);
      },
      factsChanged: (key) => {
        const facts = options.onFacts && this.facts(key);
        if (facts !== undefined) options.onFacts?.(facts);
      },
    };
    this.#retireTimer = setInterval(() => this.#retire(performance.now()), retireIntervalMs);
    this.#retireTimer.unref();
  }

  /** From now on; one observer at most. */
  observe(observer: PoolsObserver): void {
    this.#observer = observer;
  }

  /**
   * Resolves once a first process is up, so that no call waits for a process to start; at once if none is kept started.
   */
  started(): Promise<void> {
    return this.#resources.processes.started();
  }

  /** Makes a function known. Registering the same key again replaces its limits. */
  register(spec: InstanceSpec, limits: PoolLimits): void {
    let pool = this.#pools.get(spec.key);
    if (pool === undefined) {
      pool = new Pool(spec, limits, this.#resources);
      this.#pools.set(spec.key, pool);
    } else {
      pool.spec = spec;
      pool.limits = limits;
    }
    if (limits.instancesMin > 0) {
      pool.load().catch((error: unknown) => {
        this.#options.log(undefined, spec.key, `the pinned function could not be loaded: ${(error as Error).message}`);
      });
    }
  }

  /** Forgets a function: waiting invocations finish, then its instances are released. */
  async unregister(key: string): Promise<void> {
    const pool = this.#pools.get(key);
    if (pool === undefined) return;
    // Removed from the map first: later callers are told that the function is unknown, earlier ones are served.
    this.#pools.delete(key);
    pool.removed();
    await pool.quiet();
    await pool.unload();
    pool.stop();
  }

  /** Runs one invocation. Rejects with {@link CpuError} only. Concurrent cold invocations share one load. */
  invoke(key: string, input: PoolInput, options: InvokeOptions = {}): Promise<PoolResult> {
    const pool = this.#pools.get(key);
    if (pool === undefined) {
      return Promise.reject(new CpuError('unknown-function', `no function '${key}' is registered`));
    }
    if (this.#isStopping) return Promise.reject(new CpuError('stopping', 'the host is stopping and takes no new work'));
    return this.#observer === undefined
      ? pool.invoke(input, options)
      : observedRun(this.#observer, pool, key, input, options);
  }

  /**
   * Makes sure that at least one instance is ready (preload).
   *
   * @param options `isForgiving`: a function that was stopped is run again; default true
   */
  async load(
    key: string,
    { isForgiving = true, ...options }: LoadOptions & { isForgiving?: boolean } = {},
  ): Promise<void> {
    const pool = this.#pool(key);
    if (isForgiving) pool.conduct.forgive();
    await pool.load(options);
  }

  /** Why the function gets no process now; undefined if it gets one, or is not registered. */
  stopped(key: string): Stopped | undefined {
    return this.#pools.get(key)?.conduct.stopped(performance.now());
  }

  /**
   * Runs the function on instances of this list, pinned to cores of their own, as soon as they are ready. Until then,
   * and if one cannot be started, it runs as before. No invocation waits for a change. While one change of a function is
   * under way, another is refused.
   *
   * Rejects with {@link CpuError} `unknown-function` and `stopping` only.
   *
   * @param cause for logs and screens: `batch 8 -> 16`
   */
  async configure(key: string, configuration: PoolConfiguration, cause: string): Promise<Reconfiguration> {
    const pool = this.#pool(key);
    if (this.#isStopping) throw new CpuError('stopping', 'the host is stopping and takes no new work');
    return pool.configure(configuration, cause);
  }

  /**
   * Single cores for work of the host outside the pools, until they are returned: as many of `count` as are free; one
   * is always left to the pools.
   */
  leaseCores(owner: string, count: number): LeasedCores {
    const { cores } = this.#resources;
    const most = Math.min(count, cores.unleased().length, cores.total - 1);
    // Single cores fit wherever so many are free.
    const held = most > 0 ? (cores.lease(owner, Array<number>(most).fill(1)) ?? []) : [];
    return {
      cores: held.flatMap((lease) => lease.cores),
      [Symbol.dispose]: () => {
        for (const lease of held) lease[Symbol.dispose]();
      },
    };
  }

  /**
   * The function's share of the cores: see `shareOf` of the allocator. Active are functions that are configured or have
   * had requests within `arrivalWindowMs`. Each returns the cores beyond its share at its next configuration, if it asks
   * here before it chooses one. A lease beyond the share is not refused while its cores are free.
   */
  coresFor(key: string): number {
    const { cores } = this.#resources;
    const asking = this.#pool(key);
    const nowMs = performance.now();
    const active = [...this.#pools.values()].filter((pool) => pool === asking || pool.isActive(nowMs)).length;
    return cores.shareOf(key, active, asking.coresUsed(nowMs));
  }

  /** Releases the function's instances once they are idle; the next invocation loads again. */
  async unload(key: string): Promise<void> {
    await doneWithin(drainMsMax, this.#pool(key).unload());
  }

  /**
   * Frees memory: releases the function's idle sessions now, and the others when they are done. Waiting calls load it
   * again. Resolves when the sessions are gone. `isSpare`: one of several, and it is not waited for. `isIdle`: nobody
   * needs the memory.
   */
  async evict(key: string, { isSpare = false, isIdle = false } = {}): Promise<void> {
    await this.#pool(key).evict(isSpare, isIdle ? 'idle' : 'room');
  }

  /** From now on. @param loadsBytes see {@link CpuPoolsOptions.loadsBytes} */
  setMemory(bytes: number, loadsBytes: number): void {
    this.#resources.loads.setPart(loadsBytes);
    this.#resources.processes.setMemory(bytes);
  }

  /** What is measured of one function; undefined if it is not registered. */
  facts(key: string): PoolFacts | undefined {
    return this.#pools.get(key)?.figures();
  }

  /** For one function; undefined if it is not registered. */
  state(key: string): PoolState | undefined {
    return this.#pools.get(key)?.state();
  }

  /** For every function: for pages and metrics, not for each call. */
  states(): readonly PoolState[] {
    return Array.from(this.#pools.values(), (pool) => pool.state());
  }

  resources(): PoolsResources {
    const { cores, processes } = this.#resources;
    return {
      memoryBytes: processes.memoryBytes,
      memoryUsedBytes: processes.usedBytes,
      cores: cores.total,
      coresUnleased: cores.unleased().length,
    };
  }

  /** The cores of runs without a lease: for each call, where {@link resources} would look at all processes. */
  get coresShared(): number {
    return this.#resources.cores.shared;
  }

  /**
   * Of the memory that all processes hold, what is no session that serves: the processes, what runs and handlers have
   * allocated, and lists of instances that will take over. Looks at all sessions.
   */
  memoryTakenBytes(): number {
    let bytes = this.#resources.processes.heldBytes;
    for (const pool of this.#pools.values()) bytes -= pool.bytes;
    return Math.max(0, bytes);
  }

  /** Stops accepting, finishes accepted calls until `graceMs` is over, and ends every process. */
  async stop(graceMs: number): Promise<void> {
    this.#isStopping = true;
    clearInterval(this.#retireTimer);
    await doneWithin(graceMs, Promise.all(Array.from(this.#pools.values(), (pool) => pool.quiet())));
    for (const pool of this.#pools.values()) pool.stop();
    this.#resources.processes.stop();
    this.#resources.weights?.stop();
  }

  #retire(nowMs: number): void {
    const { processes, loads } = this.#resources;
    processes.retireEmpty(nowMs);
    for (const [key, pool] of this.#pools) {
      pool.waiting.dropGone(nowMs);
      const idle = pool.idle(nowMs);
      if (idle !== 'none') this.#options.onIdle?.({ key, isSpare: idle === 'spare' });
    }
    // A load may wait for room although the clients that it is for have gone.
    loads.retry();
  }

  #pool(key: string): Pool {
    const pool = this.#pools.get(key);
    if (pool === undefined) throw new CpuError('unknown-function', `no function '${key}' is registered`);
    return pool;
  }
}

function observedRun(
  observer: PoolsObserver,
  pool: Pool,
  key: string,
  input: PoolInput,
  options: InvokeOptions,
): Promise<PoolResult> {
  const startMs = performance.now();
  observer.arrived(key);
  const answered = pool.invoke(input, options);
  const ended = (result?: PoolResult): void => {
    // The time of a model that ran elsewhere says nothing about this pool.
    if (result !== undefined && !result.coldStart && result.modelElsewhere !== true) {
      const latencyMs = performance.now() - startMs;
      observer.answeredWarm(key, latencyMs, latencyMs - result.timings.queueMs);
    }
    observer.ended();
  };
  // The caller waits for the pool's own promise, and is answered after the observer.
  void answered.then(ended, () => ended());
  return answered;
}
