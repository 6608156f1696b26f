/**
 * All CPU pools of a machine: they share its cores, its limit of instances and the blank instances.
 *
 * Cores: a configured pool leases its own from the allocator; what is not leased is shared. There, each run takes the threads of its instance; a function that has nothing running is always granted its first run
 * (the operating system then divides the time, so that no function waits for another's long run), further ones only
 * while cores are free. Instances: at the limit, the one that has been idle for longest makes room, whosever it is; where
 * configurations hold them all, one of those is cut down.
 */
import { BlankSet } from './blank-set.ts';
import { readLogicalCores, type LogicalCore } from '../hardware/index.ts';
import { CoreAllocator, type CoreLease } from './cores.ts';
import type { Instance } from './instance.ts';
import type { InstanceLog } from './instance-run.ts';
import { Pool } from './pool.ts';
import type { GiveUpCause, PoolMachine, TakeOptions } from './pool-machine.ts';
import {
  CpuError,
  type ConfigureOptions,
  type CoreBudget,
  type CpuPools,
  type InstanceSpec,
  type InvokeOptions,
  type LeasedCores,
  type LoadOptions,
  type PoolConfiguration,
  type PoolInput,
  type PoolLimits,
  type PoolResult,
  type PoolState,
  type Reconfiguration,
  type Reconfigured,
} from './types.ts';
import { WeightsCache } from './weights.ts';

export interface CpuPoolsOptions {
  /** Cores that the pools share. */
  readonly cores: number;
  /** Blank instances kept started. */
  readonly blankInstances: number;
  /** Most instances that hold a model, over all functions. */
  readonly instancesMax: number;
  readonly log: InstanceLog;
  /** Told of every model that was loaded into an instance. */
  readonly onLoaded?: (loaded: Loaded) => void;
  /** Told of every instance that held a model and is no more, and why. */
  readonly onGivenUp?: (given: GivenUp) => void;
  /** Told how each call of {@link CpuPools.configure} ended. */
  readonly onReconfigured?: (reconfigured: Reconfigured) => void;
  /** Where the prepacked weights that instances share are kept, over restarts. Without it nothing is shared. */
  readonly cacheFolder?: string;
  /** The hardware threads that instances may be pinned to; default: those of this machine. */
  readonly logicalCores?: readonly LogicalCore[];
}

/** `loadMs`: from taking the instance until it was ready, including what was left of its start. */
export interface Loaded {
  readonly key: string;
  readonly loadMs: number;
}

/** `ageMs`: how long it had been ready. `reason`: the cause in words, of a death what the operating system says. */
export interface GivenUp {
  readonly key: string;
  readonly cause: GiveUpCause;
  readonly ageMs: number;
  readonly reason: string;
}

/** How often idle instances are looked for; their limit is a matter of seconds to minutes. */
const retireIntervalMs = 500;

export function createCpuPools(options: CpuPoolsOptions): CpuPools {
  return new SharedPools(options);
}

class SharedPools implements CpuPools, PoolMachine {
  readonly #options: CpuPoolsOptions;
  readonly #pools = new Map<string, Pool>();
  readonly #blanks: BlankSet;
  readonly #retireTimer: NodeJS.Timeout;
  readonly cores: CoreAllocator;
  readonly #weights: WeightsCache | undefined;
  #busyThreads = 0;
  /** Once cores have been leased, instances on demand are kept off them. */
  #pinning = false;
  /** Pools that were refused cores, and those without any instance that were refused one. */
  readonly #coreWaiters = new Set<Pool>();
  readonly #instanceWaiters = new Set<Pool>();
  #pumpScheduled = false;
  #stopping = false;

  constructor(options: CpuPoolsOptions) {
    this.#options = options;
    this.cores = new CoreAllocator(options.logicalCores ?? readLogicalCores(), options.cores, () =>
      this.#leasesChanged(),
    );
    this.#weights =
      options.cacheFolder === undefined
        ? undefined
        : new WeightsCache(options.cacheFolder, (key, line) => options.log(-1, key, line));
    this.#blanks = new BlankSet(options.blankInstances, options.log);
    this.#retireTimer = setInterval(() => {
      const nowMs = performance.now();
      for (const pool of this.#pools.values()) pool.retireIdle(nowMs);
    }, retireIntervalMs);
    this.#retireTimer.unref();
  }

  register(spec: InstanceSpec, limits: PoolLimits): void {
    let pool = this.#pools.get(spec.key);
    if (pool === undefined) {
      pool = new Pool(spec, limits, this);
      this.#pools.set(spec.key, pool);
    } else {
      pool.spec = spec;
      pool.limits = limits;
    }
    if (limits.instancesMin > 0) {
      pool.load().catch((error: unknown) => {
        this.#options.log(-1, spec.key, `the pinned function could not be loaded: ${(error as Error).message}`);
      });
    }
  }

  async unregister(key: string): Promise<void> {
    const pool = this.#pools.get(key);
    if (pool === undefined) return;
    // Gone from the map first: whoever comes now is told that the function is unknown, whoever came before is served.
    this.#pools.delete(key);
    pool.removed();
    await pool.quiet();
    await pool.unload();
    pool.stop();
    this.#coreWaiters.delete(pool);
    this.#instanceWaiters.delete(pool);
  }

  invoke(key: string, input: PoolInput, options: InvokeOptions = {}): Promise<PoolResult> {
    const pool = this.#pools.get(key);
    if (pool === undefined) {
      return Promise.reject(new CpuError('unknown-function', `no function '${key}' is registered`));
    }
    if (this.#stopping) return Promise.reject(new CpuError('stopping', 'the host is stopping and takes no new work'));
    return pool.invoke(input, options);
  }

  async load(key: string, options?: LoadOptions): Promise<void> {
    await this.#pool(key).load(options);
  }

  async configure(
    key: string,
    configuration: PoolConfiguration | undefined,
    { cause }: ConfigureOptions,
  ): Promise<Reconfiguration> {
    const pool = this.#pool(key);
    if (this.#stopping) throw new CpuError('stopping', 'the host is stopping and takes no new work');
    return pool.configure(configuration, cause);
  }

  leaseCores(owner: string, count: number): LeasedCores {
    const most = Math.min(count, this.cores.unleased().length, this.cores.total - 1);
    let leases: CoreLease[] | undefined = [];
    for (let tried = most; tried > 0; tried--) {
      leases = this.cores.lease(
        owner,
        Array.from({ length: tried }, () => 1),
      );
      if (leases !== undefined) break;
    }
    const held = leases ?? [];
    return {
      cores: held.flatMap(({ cores }) => cores),
      [Symbol.dispose]: () => {
        for (const lease of held) lease[Symbol.dispose]();
      },
    };
  }

  coresFor(key: string): CoreBudget {
    const asking = this.#pool(key);
    const nowMs = performance.now();
    const active = [...this.#pools.values()].filter((pool) => pool === asking || pool.isActive(nowMs)).length;
    let left = Math.max(1, Math.floor(this.cores.total / active));
    const perSocket = this.cores.available(key, true).map((cores) => {
      const share = Math.min(cores, left);
      left -= share;
      return share;
    });
    return { cores: perSocket.reduce((sum, cores) => sum + cores, 0), perSocket };
  }

  async unload(key: string): Promise<void> {
    await this.#pool(key).unload();
  }

  states(): readonly PoolState[] {
    return Array.from(this.#pools.values(), (pool) => pool.state());
  }

  async stop(graceMs: number): Promise<void> {
    this.#stopping = true;
    clearInterval(this.#retireTimer);
    const quiet = Promise.all(Array.from(this.#pools.values(), (pool) => pool.quiet()));
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([
      quiet,
      new Promise<void>((resolve) => {
        timer = setTimeout(resolve, graceMs);
      }),
    ]);
    clearTimeout(timer);
    for (const pool of this.#pools.values()) pool.stop();
    this.#blanks.stop();
    this.#weights?.stop();
  }

  takeCores(pool: Pool): boolean {
    const { threads } = pool.spec;
    if (pool.busy > 0 && this.#busyThreads + threads > this.#sharedCores()) {
      this.#coreWaiters.add(pool);
      return false;
    }
    this.#busyThreads += threads;
    return true;
  }

  retakeCores(pool: Pool): void {
    this.#busyThreads += pool.spec.threads;
  }

  giveCores(pool: Pool): void {
    this.#busyThreads -= pool.spec.threads;
    if (this.#coreWaiters.size > 0 || this.#instanceWaiters.size > 0) this.#schedulePump();
  }

  takeInstance(pool: Pool, { anew, replaced }: TakeOptions): Instance | undefined {
    if (this.#stopping) return undefined;
    const first = this.#firstInNeed();
    if (first !== undefined && first !== pool) {
      // What has become free is for whoever has waited longest: a pool with endless work would always be there before it.
      if (pool.instances === 0) this.#instanceWaiters.add(pool);
      return undefined;
    }
    if (this.#instances() - replaced >= this.#options.instancesMax) {
      // One more for a function that has some is not worth taking another function's last.
      const isFirst = pool.instances === 0;
      // Where pins hold all that there is, whoever has invocations waiting has one of them: nobody waits for ever.
      const from =
        this.#longestIdle(pool, isFirst) ??
        (isFirst && pool.hasWaiting ? this.#longestIdle(pool, true, true) : undefined);
      if (from === undefined) {
        if (pool.instances === 0) {
          this.#instanceWaiters.add(pool);
          this.#makeRoom(pool);
        }
        return undefined;
      }
      from.pool.give(from.instance, 'room');
    }
    this.#instanceWaiters.delete(pool);
    // There may be room for more of them, who were told to wait for this one.
    if (this.#instanceWaiters.size > 0) this.#schedulePump();
    return this.#blanks.take(anew);
  }

  wantsBack(pool: Pool): boolean {
    return this.#firstInNeed() !== undefined && !this.#instanceWaiters.has(pool);
  }

  async sharedModelPath(pool: Pool): Promise<string | undefined> {
    return this.#weights?.prepared(pool.spec);
  }

  sharedModelAtHand(pool: Pool): Promise<string | undefined> | undefined {
    return this.#weights?.isKnown(pool.spec) ? this.#weights.prepared(pool.spec) : undefined;
  }

  sharedModelRefused(pool: Pool, problem: string): void {
    this.#weights?.refused(pool.spec, problem).catch((error: unknown) => {
      this.#options.log(-1, pool.spec.key, `its prepared weights could not be removed: ${(error as Error).message}`);
    });
  }

  reconfigured(outcome: Reconfigured): void {
    this.#options.onReconfigured?.(outcome);
  }

  pinOnDemand(instance: Instance): void {
    if (!this.#pinning) return;
    const free = this.cores.unleased();
    // With every core leased they run where they can: the first run of a function is always granted.
    instance.pin(free.length > 0 ? free : this.cores.all());
  }

  loaded(pool: Pool, loadMs: number): void {
    this.#options.onLoaded?.({ key: pool.spec.key, loadMs });
  }

  givenUp(pool: Pool, cause: GiveUpCause, ageMs: number, reason: string): void {
    this.#options.onGivenUp?.({ key: pool.spec.key, cause, ageMs, reason });
  }

  instanceSettled(): void {
    if (!this.#stopping) this.#blanks.refill();
    this.#schedulePump();
  }

  /** The pool that has waited longest for its first instance; those whose clients have gone wait no more. */
  #firstInNeed(): Pool | undefined {
    for (const pool of this.#instanceWaiters) {
      if (pool.needsFirst) return pool;
      this.#instanceWaiters.delete(pool);
    }
    return undefined;
  }

  /** Later, and once: a pool may be in the middle of its own pump. */
  #schedulePump(): void {
    if (this.#pumpScheduled || this.#stopping) return;
    this.#pumpScheduled = true;
    setImmediate(() => {
      this.#pumpScheduled = false;
      const waiters = new Set([...this.#instanceWaiters, ...this.#coreWaiters]);
      this.#coreWaiters.clear();
      for (const pool of waiters) pool.pump();
    });
  }

  /** Cores for runs on demand. */
  #sharedCores(): number {
    return this.#options.cores - (this.cores.total - this.cores.unleased().length);
  }

  #leasesChanged(): void {
    this.#pinning = true;
    for (const pool of this.#pools.values()) pool.pinOnDemand();
    this.#schedulePump();
  }

  #instances(): number {
    let count = 0;
    for (const pool of this.#pools.values()) count += pool.instances;
    return count;
  }

  #longestIdle(asking: Pool, evenLast: boolean, evenPinned = false): { pool: Pool; instance: Instance } | undefined {
    let longest: { pool: Pool; instance: Instance } | undefined;
    for (const pool of this.#pools.values()) {
      if (pool === asking) continue;
      const instance = pool.longestIdle(Math.max(evenPinned ? 0 : pool.limits.instancesMin, evenLast ? 0 : 1));
      if (instance === undefined) continue;
      if (longest === undefined || instance.idleSinceMs < longest.instance.idleSinceMs) longest = { pool, instance };
    }
    return longest;
  }

  /**
   * Configured pools keep their instances between runs. Where they hold all there are, one of them gives one up, for a
   * function that has none: of those with several, which serve on without it, the one that has been idle for longest.
   */
  #makeRoom(asking: Pool): void {
    const others = [...this.#pools.values()].filter((pool) => pool !== asking);
    if (others.some(({ mayRest }) => mayRest)) return;
    const nowMs = performance.now();
    const [first] = others
      .map((pool) => {
        const { spare, idleForMs } = pool.configured(nowMs);
        return { pool, spare, idleForMs };
      })
      .filter(({ spare }) => spare > 0)
      .sort((a, b) => Number(b.spare > 1) - Number(a.spare > 1) || b.idleForMs - a.idleForMs);
    first?.pool.giveConfigured();
  }

  #pool(key: string): Pool {
    const pool = this.#pools.get(key);
    if (pool === undefined) throw new CpuError('unknown-function', `no function '${key}' is registered`);
    return pool;
  }
}
