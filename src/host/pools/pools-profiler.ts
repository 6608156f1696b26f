/**
 * Measures functions in the background while the machine is idle, and keeps the profiles at hand.
 *
 * A measurement takes every core. It begins only when no invocation has come for a while and the machine has no other
 * work, and stops at once when an invocation comes, wherever that runs: its processes are killed. What it has found out is
 * kept, over a restart too, and it goes on from there when the machine is quiet again. A profile that `turntable profile`
 * writes meanwhile is picked up within seconds.
 */
import { loadavg } from 'node:os';
import type { Logger } from 'pino';
import {
  CpuError,
  measureCpu,
  measuredOn,
  poolSockets,
  ProfileFiles,
  reaches,
  resolveSizes,
  type CpuProfile,
  type ProfileKey,
} from '../../cpu/index.ts';
import type { HostConfig } from '../config/config.ts';
import type { FunctionVersion, Registry } from '../types.ts';

export interface PoolsProfilerOptions {
  readonly registry: Registry;
  /** Existing profiles are used even if it measures no functions. */
  readonly cpu: Pick<HostConfig['cpu'], 'cores' | 'profiling' | 'profilingBudgetMs'>;
  readonly dataDir: string;
  /** Without invocations for this long, the machine is quiet. */
  readonly quietMs: number;
  /** Runnable processes per core, averaged over a minute, above which the machine is busy with other work. */
  readonly otherLoadMax?: number;
  /** Whether a version gets no process, because it kills them. */
  readonly isStopped?: (key: string) => boolean;
  readonly logger: Logger;
  /** Interval of looking for profiles from other processes. */
  readonly filesIntervalMs?: number;
  /** A profile is available. */
  readonly onProfile?: (version: FunctionVersion, profile: CpuProfile) => void;
}

/** Interval of checking for quiet. */
const lookIntervalMs = 1000;
/** Attempts in a row that find out nothing before a function waits for the next start of the host. */
const attemptsMax = 5;
const otherLoadDefault = 0.7;
const filesIntervalDefault = 5000;
/** No file system, file servers included, has coarser timestamps than this. */
const coarseMs = 60_000;

/** A ready version, and its profile's file as last read. */
interface Followed {
  readonly version: FunctionVersion;
  readonly where: ProfileKey;
  stamp: string | undefined;
  /** It has no profile, or one for smaller batches than it may have now. */
  isWanted: boolean;
  /** What is known so far; a measurement goes on from it. */
  soFar: CpuProfile | undefined;
  /** How often its measurement was begun since it last found out something. */
  attempts: number;
}

export class PoolsProfiler {
  readonly #options: PoolsProfilerOptions;
  readonly #files: ProfileFiles;
  readonly #profiles = new Map<string, CpuProfile>();
  readonly #followed = new Map<string, Followed>();
  readonly #timer: NodeJS.Timeout;
  readonly #filesTimer: NodeJS.Timeout;
  #changedAtMs: number | undefined;
  #lastArrivalMs = performance.now();
  #inFlight = 0;
  #running: { readonly controller: AbortController; readonly ended: Promise<void> } | undefined;
  #closed = false;

  constructor(options: PoolsProfilerOptions) {
    this.#options = options;
    this.#files = new ProfileFiles(options.dataDir);
    options.registry.onChange(({ before, after }) => {
      if (before !== undefined && after?.modelSha256 !== before.modelSha256) this.#forget(before.key);
      if (after?.state.status !== 'ready') return;
      // A larger batch limit needs another measurement.
      const isSame = before?.state.status === 'ready' && before.settings === after.settings;
      if (!isSame) void this.#take(after);
    });
    this.#timer = setInterval(() => this.#look(), lookIntervalMs);
    this.#timer.unref();
    const { filesIntervalMs = filesIntervalDefault } = options;
    this.#filesTimer = setInterval(() => void this.#lookAtFiles(), filesIntervalMs);
    this.#filesTimer.unref();
  }

  /** The measured cost of a version. */
  find(key: string): CpuProfile | undefined {
    return this.#profiles.get(key);
  }

  /** An invocation came: a running measurement stops. */
  arrived(): void {
    this.#inFlight++;
    this.#lastArrivalMs = performance.now();
    this.#running?.controller.abort();
  }

  /** It was answered, or failed. */
  ended(): void {
    this.#inFlight--;
    this.#lastArrivalMs = performance.now();
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#timer);
    clearInterval(this.#filesTimer);
    this.#running?.controller.abort();
    await this.#running?.ended;
  }

  #forget(key: string): void {
    this.#profiles.delete(key);
    this.#followed.delete(key);
  }

  async #take(version: FunctionVersion): Promise<void> {
    const inputs = version.metadata?.inputs;
    if (inputs === undefined) return;
    const { modelSha256, key } = version;
    const where = { machine: measuredOn(this.#cores()), modelSha256, dimensions: resolveSizes(inputs, {}) };
    const followed: Followed = { version, where, stamp: undefined, isWanted: false, soFar: undefined, attempts: 0 };
    this.#followed.set(key, followed);
    await this.#read(followed);
    followed.isWanted ||= !this.#isEnough(followed);
  }

  async #lookAtFiles(): Promise<void> {
    const changedAtMs = await this.#files.changedAtMs(measuredOn(this.#cores()));
    // One look serves thousands of functions. File timestamps are coarse, so another file may be written in the same
    // tick.
    if (changedAtMs === undefined) return;
    if (changedAtMs === this.#changedAtMs && Date.now() - changedAtMs > coarseMs) return;
    this.#changedAtMs = changedAtMs;
    for (const followed of this.#followed.values()) await this.#read(followed);
  }

  /** Reads the file if it has changed since the last time. */
  async #read(followed: Followed): Promise<void> {
    const { version, where } = followed;
    const stamp = await this.#files.stamp(where);
    if (stamp === undefined || stamp === followed.stamp) return;
    const profile = await this.#files.find(where);
    if (this.#followed.get(version.key) !== followed || this.#closed) return; // Removed or replaced meanwhile.
    followed.stamp = stamp;
    if (profile !== undefined) this.#known(followed, profile);
  }

  #known(followed: Followed, profile: CpuProfile): void {
    const { version } = followed;
    if (profile.tookMs > (followed.soFar?.tookMs ?? 0)) followed.soFar = profile;
    if (profile.ended === 'interrupted') return;
    const isNews = this.#profiles.get(version.key)?.measuredAt !== profile.measuredAt;
    if (isNews) this.#profiles.set(version.key, profile);
    followed.isWanted = !this.#isEnough(followed);
    if (isNews) this.#options.onProfile?.(version, profile);
  }

  #isEnough({ version }: Followed): boolean {
    const profile = this.#profiles.get(version.key);
    const { metadata, settings } = version;
    return profile !== undefined && reaches(profile, metadata?.inputs ?? [], settings.batching.batchMax);
  }

  #cores(): number {
    return poolSockets(this.#options.cpu.cores).flat().length;
  }

  #look(): void {
    const { cpu, quietMs, otherLoadMax = otherLoadDefault } = this.#options;
    if (cpu.profiling === 'off' || this.#closed || this.#running !== undefined || this.#inFlight > 0) return;
    if (performance.now() - this.#lastArrivalMs < quietMs) return;
    if ((loadavg()[0] ?? 0) > otherLoadMax * cpu.cores) return;
    const wanted = [...this.#followed.values()].filter(
      ({ isWanted, version: { key } }) => isWanted && this.#options.isStopped?.(key) !== true,
    );
    const [next] = wanted.sort((a, b) => a.attempts - b.attempts);
    if (next === undefined || next.attempts >= attemptsMax) return;
    next.attempts++;
    const controller = new AbortController();
    const ended = this.#measure(next, controller.signal).finally(() => {
      this.#running = undefined;
    });
    this.#running = { controller, ended };
  }

  async #measure(followed: Followed, signal: AbortSignal): Promise<void> {
    const { logger, cpu } = this.#options;
    const { version, soFar: before, where } = followed;
    const { key, modelPath, modelSha256, metadata, settings } = version;
    try {
      const profile = await measureCpu({
        before,
        modelPath,
        opening: metadata?.opening,
        modelSha256,
        inputs: metadata?.inputs ?? [],
        sockets: poolSockets(cpu.cores),
        batchMax: settings.batching.batchMax,
        budgetMs: cpu.profilingBudgetMs,
        onMeasured: (soFar) => {
          followed.soFar = soFar;
          followed.attempts = 0;
          // If it cannot be written, it is still known until this host ends.
          this.#files.keep(soFar, where).catch(() => undefined);
        },
        signal,
      });
      await this.#files.keep(profile, where);
      if (this.#followed.get(key) !== followed) return; // Removed or replaced meanwhile.
      this.#known(followed, profile);
      logger.info({ function: key, tookMs: Math.round(profile.tookMs) }, 'measured on this machine');
    } catch (error) {
      if (error instanceof CpuError && error.code === 'stopping') return; // Somebody came: later.
      followed.isWanted = false;
      logger.warn({ function: key, err: error }, 'could not be measured; its pool stays as it is configured');
    }
  }
}
