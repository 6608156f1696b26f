/**
 * Measures functions in the background while nobody wants anything of the machine, and keeps the profiles at hand.
 *
 * A measurement takes every core, so it begins only when no invocation has come for a while and the machine has nothing
 * else to do, and ends at once when one comes: its processes are killed and what they had measured is lost. It is tried
 * again when the machine is quiet again, a few times.
 */
import { loadavg } from 'node:os';
import type { Logger } from 'pino';
import {
  CpuError,
  measureCpu,
  measuredOn,
  poolSockets,
  ProfileFiles,
  resolveSizes,
  type CpuProfile,
} from '../cpu/index.ts';
import type { FunctionVersion, Registry } from './types.ts';

export interface PoolsProfilerOptions {
  readonly registry: Registry;
  readonly dataDir: string;
  readonly cores: number;
  /** Whether functions without a profile are measured; profiles that are there are used in any case. */
  readonly isMeasuring: boolean;
  /** No measurement of a function is begun after this long. */
  readonly budgetMs: number;
  /** No invocation for this long: the machine is quiet. */
  readonly quietMs: number;
  /** Runnable processes for each core, averaged over a minute, above which the machine is at work for somebody else. */
  readonly otherLoadMax?: number;
  readonly logger: Logger;
  /** A profile has become known. */
  readonly onProfile?: (version: FunctionVersion, profile: CpuProfile) => void;
}

/** How often quiet is looked for. */
const lookIntervalMs = 1000;
/** Attempts that traffic may break off before a function waits for the next start of the host. */
const attemptsMax = 5;
const otherLoadDefault = 0.7;

export class PoolsProfiler {
  readonly #options: PoolsProfilerOptions;
  readonly #files: ProfileFiles;
  readonly #profiles = new Map<string, CpuProfile>();
  /** Versions without a profile, and how often their measurement was begun. */
  readonly #wanted = new Map<string, { readonly version: FunctionVersion; attempts: number }>();
  readonly #timer: NodeJS.Timeout;
  #lastArrivalMs = performance.now();
  #inFlight = 0;
  #running: { readonly controller: AbortController; readonly ended: Promise<void> } | undefined;
  #closed = false;

  constructor(options: PoolsProfilerOptions) {
    this.#options = options;
    this.#files = new ProfileFiles(options.dataDir);
    options.registry.onChange(({ before, after }) => {
      if (before !== undefined && after?.modelSha256 !== before.modelSha256) this.#forget(before.key);
      if (after?.state.status === 'ready' && before?.state.status !== 'ready') void this.#take(after);
    });
    this.#timer = setInterval(() => this.#look(), lookIntervalMs);
    this.#timer.unref();
  }

  /** What is known of a version's cost. */
  find(key: string): CpuProfile | undefined {
    return this.#profiles.get(key);
  }

  /** An invocation came: whatever is being measured gives way. */
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
    this.#running?.controller.abort();
    await this.#running?.ended;
  }

  #forget(key: string): void {
    this.#profiles.delete(key);
    this.#wanted.delete(key);
  }

  async #take(version: FunctionVersion): Promise<void> {
    const inputs = version.metadata?.inputs;
    if (inputs === undefined) return;
    const { modelSha256, key } = version;
    const machine = measuredOn(this.#cores());
    const profile = await this.#files.find({ machine, modelSha256, dimensions: resolveSizes(inputs, {}) });
    if (this.#options.registry.find(version.name, version.version)?.modelSha256 !== modelSha256) return;
    if (profile === undefined) this.#wanted.set(key, { version, attempts: 0 });
    else this.#known(version, profile);
  }

  #known(version: FunctionVersion, profile: CpuProfile): void {
    this.#wanted.delete(version.key);
    this.#profiles.set(version.key, profile);
    this.#options.onProfile?.(version, profile);
  }

  #cores(): number {
    return poolSockets(this.#options.cores).flat().length;
  }

  #look(): void {
    const { isMeasuring, quietMs, cores, otherLoadMax = otherLoadDefault } = this.#options;
    if (!isMeasuring || this.#closed || this.#running !== undefined || this.#inFlight > 0) return;
    if (performance.now() - this.#lastArrivalMs < quietMs) return;
    if ((loadavg()[0] ?? 0) > otherLoadMax * cores) return;
    const [next] = [...this.#wanted.values()].sort((a, b) => a.attempts - b.attempts);
    if (next === undefined || next.attempts >= attemptsMax) return;
    next.attempts++;
    const controller = new AbortController();
    const ended = this.#measure(next.version, controller.signal).finally(() => {
      this.#running = undefined;
    });
    this.#running = { controller, ended };
  }

  async #measure(version: FunctionVersion, signal: AbortSignal): Promise<void> {
    const { logger, budgetMs, cores } = this.#options;
    const { key, modelPath, modelSha256, metadata, settings } = version;
    try {
      const profile = await measureCpu({
        modelPath,
        modelSha256,
        inputs: metadata?.inputs ?? [],
        sockets: poolSockets(cores),
        batchMax: settings.batching.batchMax,
        budgetMs,
        signal,
      });
      await this.#files.keep(profile);
      if (!this.#wanted.has(key)) return; // Removed or replaced meanwhile.
      this.#known(version, profile);
      logger.info({ function: key, tookMs: Math.round(profile.tookMs) }, 'measured on this machine');
    } catch (error) {
      if (error instanceof CpuError && error.code === 'stopping') return; // Somebody came: later.
      this.#wanted.delete(key);
      logger.warn({ function: key, err: error }, 'could not be measured; its pool stays as it is configured');
    }
  }
}
