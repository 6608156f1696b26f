/**
 * A worker's own CPU behind the queue's interface: functions by revision, fetched on first use. What waits, what runs and
 * whose session goes is decided by a scheduler, as in a host that has nothing but its CPU.
 */
import { CpuError, type CpuPools, type PoolInput, type PoolResult } from '../cpu/index.ts';
import { LiveCpu, LiveScheduler, type CpuNeed, type LiveCpuOptions } from '../live/index.ts';
import { policies } from '../schedule/index.ts';
import { FetchBackoff } from './fetch-backoff.ts';
import { manifestBytes, type FunctionManifest } from './manifest.ts';
import type { ModelCache } from './model-cache.ts';
import type { FunctionCapacity, OverflowOptions } from './types.ts';
import type { RemoteTaker } from './worker.ts';
import { getOrMake, given, smoothed } from '../tools/index.ts';

export interface PoolTakerOptions {
  readonly name: string;
  readonly cores: number;
  readonly pools: Omit<LiveCpuOptions, 'needOf' | 'cores'>;
  readonly cache: ModelCache;
  /** Threads of an instance, unless the function says. */
  readonly threads: number;
  readonly queueMax: number;
  readonly idleMs: number;
  readonly log: (message: string, fields: object) => void;
  /** In place of performance.now(). */
  readonly nowMs?: () => number;
}

interface Measured {
  readonly manifest: FunctionManifest;
  callMs: number | undefined;
  outstanding: number;
  registered: Promise<void> | undefined;
}

/** How a function is scheduled whose calls say nothing about that; the longest SLO that the scheduler still reckons with. */
const settings = { sloMs: 1e10, priority: 2 ** 31 - 1 } as const;

/** Assumed load time before any was measured. */
const firstStartMs = 300;

export class PoolTaker implements RemoteTaker {
  readonly name: string;
  readonly cores: number;
  readonly pools: CpuPools;
  readonly #cpu: LiveCpu;
  readonly #live: LiveScheduler;
  readonly #options: PoolTakerOptions;
  #known: ReadonlyMap<string, FunctionManifest> = new Map();
  readonly #measured = new Map<string, Measured>();
  /** The pools' latest state; read once per heartbeat. */
  #ready = new Map<string, number>();
  #starts = new Map<string, number>();
  readonly #backoffs = new FetchBackoff();
  readonly #nowMs: () => number;
  #prefetching = false;
  #stopped = false;

  constructor(options: PoolTakerOptions) {
    this.#options = options;
    this.name = options.name;
    this.cores = options.cores;
    this.#nowMs = options.nowMs ?? (() => performance.now());
    this.#cpu = new LiveCpu({ ...options.pools, cores: options.cores, needOf: (revision) => this.#needOf(revision) });
    this.#live = new LiveScheduler({ ...this.#cpu.asPlace, policy: policies.best, waitingMax: options.queueMax });
    this.#cpu.join(this.#live);
    this.pools = this.#cpu.pools;
  }

  get cacheBytes(): number {
    return this.#options.cache.bytes;
  }

  get cacheBytesMax(): number {
    return this.#options.cache.bytesMax;
  }

  revisions(): readonly string[] {
    return [...this.#known.keys()];
  }

  /** Whether the function has invocations here. */
  busy(revision: string): boolean {
    return (this.#measured.get(revision)?.outstanding ?? 0) > 0;
  }

  learn(manifests: readonly FunctionManifest[]): void {
    const known = new Map(manifests.map((manifest) => [manifest.revision, manifest]));
    // Its host has just put it into the store.
    for (const revision of known.keys()) if (!this.#known.has(revision)) this.#backoffs.end(revision);
    // A function that no host offers any more keeps its instances until they have been idle for long: a restarting host
    // offers the same functions a moment later.
    this.#known = known;
    void this.#prefetch();
  }

  capacity(revision: string): FunctionCapacity | undefined {
    const { cache } = this.#options;
    const manifest = this.#known.get(revision);
    if (manifest === undefined || manifestBytes(manifest) > cache.bytesMax) return undefined;
    // It kills this worker's processes: an invocation would fail.
    if (this.#isAbsent(manifest) || this.pools.stopped(revision) !== undefined) return undefined;
    const measured = this.#measured.get(revision);
    const threads = this.#threadsOf(manifest);
    return {
      slots: Math.max(1, Math.floor(this.cores / threads)),
      threads,
      callMs: measured?.callMs,
      held: cache.holds(revision),
      startMs: (this.#ready.get(revision) ?? 0) > 0 ? 0 : (this.#starts.get(revision) ?? firstStartMs),
      outstanding: measured?.outstanding ?? 0,
    };
  }

  refresh(): void {
    void this.#prefetch(); // A backoff pause may be over.
    const states = this.pools.states();
    this.#ready = new Map(
      states.map(({ key, instances }) => [key, instances.filter(({ state }) => state !== 'loading').length]),
    );
    for (const { key, startMs } of states) if (startMs !== undefined) this.#starts.set(key, startMs);
  }

  async run(revision: string, input: PoolInput, options: OverflowOptions): Promise<PoolResult> {
    const known = this.#known.get(revision);
    if (known === undefined) throw new CpuError('unknown-function', `no host offers the function ${revision}`);
    const measured = this.#measuredOf(known);
    measured.outstanding++;
    try {
      measured.registered ??= this.#register(known).catch((error: unknown) => {
        measured.registered = undefined;
        throw error;
      });
      await measured.registered;
      const { deadlineMs, dueMs, signal, priority } = options;
      const sinceMs = performance.now();
      const sloMs = dueMs === undefined ? undefined : Math.max(0, dueMs - sinceMs);
      const wish = { sinceMs, sloMs, priority, deadlineMs, signal };
      const result = await this.#cpu.run({ key: revision, settings }, input, wish, options);
      const { preprocessMs, inferMs, postprocessMs } = result.timings;
      measured.callMs = smoothed(measured.callMs, preprocessMs + inferMs / result.batchSize + postprocessMs);
      return result;
    } finally {
      measured.outstanding--;
    }
  }

  /** Ends the function's instances here; its files stay. */
  async forget(revision: string): Promise<void> {
    const measured = this.#measured.get(revision);
    if (measured !== undefined) measured.registered = undefined;
    await this.pools.unregister(revision);
    await this.#live.functions.remove(revision);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#live.close();
    await this.pools.stop(0);
  }

  #measuredOf(manifest: FunctionManifest): Measured {
    const none = { manifest, callMs: undefined, outstanding: 0, registered: undefined };
    return getOrMake(this.#measured, manifest.revision, () => none);
  }

  #needOf(revision: string): CpuNeed | undefined {
    const { manifest } = this.#measured.get(revision) ?? {};
    if (manifest === undefined) return undefined;
    return {
      settings,
      threads: this.#threadsOf(manifest),
      rowsJoinedMax: manifest.limits.batchMax,
      modelBytes: manifestBytes(manifest),
      latencyMs: undefined,
    };
  }

  async #register(manifest: FunctionManifest): Promise<void> {
    const { cache, queueMax, idleMs } = this.#options;
    let held;
    try {
      held = await cache.hold(manifest);
    } catch (error) {
      this.#couldNotFetch(manifest, error);
      throw new CpuError('stopping', error instanceof Error ? error.message : String(error));
    }
    this.#backoffs.end(manifest.revision);
    const threads = this.#threadsOf(manifest);
    const { modelPath, handlerPath } = held;
    this.pools.register(
      {
        key: manifest.revision,
        modelBytes: manifestBytes(manifest),
        modelPath,
        threads,
        ...given({ handlerPath, opening: manifest.opening }),
      },
      {
        ...manifest.limits,
        instancesMin: 0,
        instancesMax: Math.max(1, Math.floor(this.cores / threads)),
        queueMax,
        idleMs,
      },
    );
  }

  /** Its files could not be fetched: an invocation of it would be returned. */
  #isAbsent(manifest: FunctionManifest): boolean {
    const { revision } = manifest;
    const { cache } = this.#options;
    if (!this.#backoffs.has(revision) || cache.holds(revision)) return false;
    // A function that fits is fetched again before it is offered; a larger one is only fetched for an invocation.
    return this.#backoffs.isPaused(revision, this.#nowMs()) || cache.hasRoomFor(manifest);
  }

  #couldNotFetch({ key, revision }: FunctionManifest, error: unknown): void {
    const isNew = !this.#backoffs.isPaused(revision, this.#nowMs());
    const pauseMs = this.#backoffs.begin(revision, this.#nowMs());
    if (!isNew) return;
    const reason = error instanceof Error ? error.message : String(error);
    this.#options.log('a function could not be fetched, and is not offered for a while', {
      function: key,
      pauseMs,
      reason,
    });
  }

  #threadsOf({ threads }: FunctionManifest): number {
    return Math.min(threads ?? this.#options.threads, this.cores);
  }

  /** Fetches functions that fit without an eviction, one after the other, so that a first overflow need not wait. */
  async #prefetch(): Promise<void> {
    if (this.#prefetching) return;
    this.#prefetching = true;
    const { cache, log } = this.#options;
    const next = (): FunctionManifest | undefined =>
      [...this.#known.values()].find(
        (manifest) =>
          !cache.holds(manifest.revision) &&
          !this.#backoffs.isPaused(manifest.revision, this.#nowMs()) &&
          cache.hasRoomFor(manifest),
      );
    try {
      for (let manifest = next(); manifest !== undefined && !this.#stopped; manifest = next()) {
        const startMs = performance.now();
        try {
          await cache.hold(manifest);
          this.#backoffs.end(manifest.revision);
          const tookMs = Math.round(performance.now() - startMs);
          log('fetched a function', { function: manifest.key, bytes: manifestBytes(manifest), tookMs });
        } catch (error) {
          this.#couldNotFetch(manifest, error);
        }
      }
    } finally {
      this.#prefetching = false;
    }
  }
}
