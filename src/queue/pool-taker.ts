/**
 * A worker's own CPU behind the queue's interface: functions by revision, fetched on first use. What waits, what runs
 * and whose session goes is decided by a scheduler, as in a host that has nothing but its CPU.
 */
import { CpuError, type CpuPools, type PoolInput, type PoolResult } from '../cpu/index.ts';
import { LiveCpu, LiveScheduler, type CpuNeed, type LiveCpuOptions } from '../live/index.ts';
import { policies } from '../schedule/index.ts';
import { chunkFilesOf, filesOf, manifestBytes, type FunctionManifest } from './manifest.ts';
import { ModelFolder } from './model-folder.ts';
import type { FunctionOffer } from '../fleet/index.ts';
import type { OverflowOptions } from './types.ts';
import type { RemoteTaker } from './worker.ts';
import { ContentCache, type Store } from '../store/index.ts';
import { getOrMake, given, smoothed, type Log } from '../tools/index.ts';

export interface PoolTakerOptions {
  readonly name: string;
  readonly cores: number;
  readonly pools: Omit<LiveCpuOptions, 'needOf' | 'cores'>;
  /** The hosts' store. */
  readonly store: Store;
  /** Where fetched models are kept, and how much of them. */
  readonly models: string;
  readonly modelBytesMax: number;
  /** Threads of an instance, unless the function says. */
  readonly threads: number;
  readonly queueMax: number;
  readonly idleMs: number;
  readonly log: Log;
}

interface Measured {
  readonly manifest: FunctionManifest;
  callMs: number | undefined;
  outstanding: number;
  registered: Promise<void> | undefined;
}

/**
 * How a function is scheduled whose calls say nothing about that; the longest SLO that the scheduler still reckons
 * with.
 */
const settings = { sloMs: 1e10, priority: 2 ** 31 - 1 } as const;

/** A function that was not called for this long offers no prediction any more. */
const activeMs = 30_000;
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
  readonly #models: ModelFolder;
  readonly #cache: ContentCache<FunctionManifest>;

  constructor(options: PoolTakerOptions) {
    this.#options = options;
    this.name = options.name;
    this.cores = options.cores;
    this.#models = new ModelFolder(options.models);
    this.#cache = new ContentCache<FunctionManifest>({
      store: options.store,
      bytesMax: options.modelBytesMax,
      staysMs: 0,
      keyOf: ({ revision }) => revision,
      filesOf: (manifest) => this.#models.filesOf(manifest.revision) ?? filesOf(manifest),
      chunks: {
        manifestOf: ({ revision, chunks }) => (this.#models.has(revision) ? undefined : chunks),
        filesOf: chunkFilesOf,
      },
      nameOf: ({ key }) => key,
      idleMs: ({ revision }) => (this.#isBusy(revision) ? -1 : this.#models.idleMs(revision)),
      held: () => this.#models.manifests(),
      isMissing: ({ revision }) => this.#known.has(revision) && !this.#models.has(revision),
      hold: async (manifest, files, fetch) => await this.#models.add(manifest, files, fetch),
      // The instances map the files, so they end before the files are removed.
      drop: async (manifest) => await this.#models.drop(manifest, async () => await this.#forget(manifest.revision)),
      log: options.log,
    });
    this.#cpu = new LiveCpu({ ...options.pools, cores: options.cores, needOf: (revision) => this.#needOf(revision) });
    this.#live = new LiveScheduler({ ...this.#cpu.asPlace, policy: policies.best, waitingMax: options.queueMax });
    this.#cpu.join(this.#live);
    this.pools = this.#cpu.pools;
  }

  /** Reads which models are on the disk. */
  async start(): Promise<void> {
    await this.#models.start();
    await this.#cache.shrink();
  }

  get cacheBytes(): number {
    return this.#cache.bytes;
  }

  get held(): number {
    return this.#models.manifests().length;
  }

  get cacheBytesMax(): number {
    return this.#options.modelBytesMax;
  }

  revisions(): readonly string[] {
    return [...this.#known.keys()];
  }

  #isBusy(revision: string): boolean {
    return (this.#measured.get(revision)?.outstanding ?? 0) > 0;
  }

  learn(manifests: readonly FunctionManifest[]): void {
    const known = new Map(manifests.map((manifest) => [manifest.revision, manifest]));
    // Its host has just put it into the store.
    for (const [revision, manifest] of known) {
      if (!this.#known.has(revision) && this.#cache.isFailing(manifest)) this.#cache.want(manifest);
    }
    // A function that no host offers any more keeps its instances until they have been idle for long: a restarting host
    // offers the same functions a moment later.
    this.#known = known;
    this.#fetchAhead();
  }

  offer(revision: string): FunctionOffer | undefined {
    const manifest = this.#known.get(revision);
    if (manifest === undefined || manifestBytes(manifest) > this.cacheBytesMax) return undefined;
    // It could not be fetched, or kills this worker's processes: an invocation would fail.
    if (this.#cache.isFailing(manifest) || this.pools.stopped(revision) !== undefined) return undefined;
    const { instances = [], startMs = firstStartMs } = this.pools.state(revision) ?? {};
    const measured = this.#measured.get(revision);
    const threads = this.#threadsOf(manifest);
    const idleMs = this.#live.placeOf(revision)?.idleMs ?? Infinity;
    const ms = idleMs < activeMs ? this.#live.predictMs(revision) : Infinity;
    return {
      ms: ms < Infinity ? ms : undefined,
      isHeld: this.#models.has(revision),
      load: 0,
      callMs: measured?.callMs,
      startMs: instances.some(({ state }) => state !== 'loading') ? 0 : startMs,
      lanes: Math.max(1, Math.floor(this.cores / threads)),
    };
  }

  work(): { readonly outstanding: number; readonly backlogMs: number } {
    let outstanding = 0;
    for (const measured of this.#measured.values()) outstanding += measured.outstanding;
    return { outstanding, backlogMs: this.#live.cpuBacklogMs };
  }

  refresh(): void {
    this.#fetchAhead();
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
      this.#models.use(revision);
      const { deadlineMs, dueMs, signal, priority } = options;
      const sinceMs = performance.now();
      const sloMs = dueMs === undefined ? undefined : Math.max(0, dueMs - sinceMs);
      const terms = { sinceMs, sloMs, priority, deadlineMs, signal };
      const result = await this.#cpu.run({ key: revision, settings }, input, terms, options);
      const { preprocessMs, inferMs, postprocessMs } = result.timings;
      measured.callMs = smoothed(measured.callMs, preprocessMs + inferMs / result.batchSize + postprocessMs);
      return result;
    } finally {
      measured.outstanding--;
    }
  }

  /** Ends the function's instances here. */
  async #forget(revision: string): Promise<void> {
    const measured = this.#measured.get(revision);
    if (measured !== undefined) measured.registered = undefined;
    await this.pools.unregister(revision);
    await this.#live.functions.remove(revision);
  }

  async stop(): Promise<void> {
    this.#live.close();
    await Promise.all([this.pools.stop(0), this.#cache.close()]);
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
      modelBytes: manifestBytes(manifest),
      latencyMs: undefined,
    };
  }

  async #register(manifest: FunctionManifest): Promise<void> {
    const { idleMs } = this.#options;
    try {
      await this.#cache.bring(manifest);
    } catch (error) {
      throw new CpuError('stopping', error instanceof Error ? error.message : String(error));
    }
    const threads = this.#threadsOf(manifest);
    const { modelPath, handlerPath } = this.#models.pathsOf(manifest);
    const { opening, runBytes, isolation } = manifest;
    this.pools.register(
      {
        key: manifest.revision,
        modelBytes: manifestBytes(manifest),
        modelPath,
        modelIdentity: identityOf(manifest),
        threads,
        ...given({ handlerPath, opening, runBytes, isolation }),
      },
      {
        ...manifest.limits,
        instancesMin: 0,
        instancesMax: Math.max(1, Math.floor(this.cores / threads)),
        idleMs,
      },
    );
  }

  #threadsOf({ threads }: FunctionManifest): number {
    return Math.min(threads ?? this.#options.threads, this.cores);
  }

  /** Fetches functions that fit without an eviction, so that a first overflow need not wait. */
  #fetchAhead(): void {
    for (const manifest of this.#known.values()) {
      if (!this.#models.has(manifest.revision)) this.#cache.want(manifest, true);
    }
  }
}

/** A prepared model is one of the served form. */
const identityOf = ({ files, opening }: FunctionManifest): string =>
  `${files.map(({ sha256 }) => sha256).join(' ')}${opening?.isMended === true ? ' mended' : ''}`;
