/**
 * Has the list of instances of each function's pool chosen (src/cpu/profile/list-chooser.ts), and predicts what a
 * request would see there.
 */
import type { Logger } from 'pino';
import {
  ListChooser,
  lookMs,
  PoolTables,
  type ArrivalPrediction,
  type CpuPools,
  type CpuProfile,
  type ListChange,
} from '../../cpu/index.ts';
import type { HostConfig } from '../config/config.ts';
import type { Statistics } from '../records/statistics.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { versionOf } from '../rollout/versions.ts';

export interface PoolsControllerOptions {
  readonly registry: Registry;
  readonly pools: CpuPools;
  readonly statistics: Statistics;
  readonly profileOf: (key: string) => CpuProfile | undefined;
  /** Predictions are made even if it applies no configurations. */
  readonly cpu: Pick<HostConfig['cpu'], 'configure' | 'cores' | 'objective' | 'reconfigureIntervalMs'>;
  /** Most rows of a run of the version. */
  readonly batchMaxOf: (version: FunctionVersion) => number;
  /** Called for every window in which a prediction was compared with the observation. */
  readonly onChecked?: ((functionName: string, predictedMs: number, observedMs: number) => void) | undefined;
  readonly logger: Logger;
}

interface Controlled {
  readonly version: FunctionVersion;
  readonly profile: CpuProfile;
  readonly chooser: ListChooser;
}

export class PoolsController {
  readonly #options: PoolsControllerOptions;
  readonly #controlled = new Map<string, Controlled>();
  /** Recently called functions. The others need no decision, and there may be thousands of them. */
  readonly #called = new Set<string>();
  readonly #timer: NodeJS.Timeout;

  constructor(options: PoolsControllerOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.tick(performance.now()), lookMs);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** A request of the version now; undefined if the version, or its pool's configuration, was not measured. */
  predictCpu(key: string): ArrivalPrediction | undefined {
    const controlled = this.#of(key, performance.now());
    const state = controlled && this.#options.pools.state(key);
    return state && controlled.chooser.live.arrival(state);
  }

  /** How much longer a run of the version takes as one of so many on this CPU; 1 if that was not measured. */
  slowdownAt(key: string, running: number): number {
    return this.#of(key, performance.now())?.chooser.live.slowdownAt(running) ?? 1;
  }

  /** An invocation came to its pool. */
  called(key: string): void {
    this.#called.add(key);
  }

  /** A warm invocation was answered, `serviceMs` after an instance had received it. */
  answered(key: string, latencyMs: number, serviceMs: number, nowMs = performance.now()): void {
    this.#controlled.get(key)?.chooser.live.answered(latencyMs, serviceMs, nowMs);
  }

  /** Looks at every called pool. Run by its own timer; times are those of performance.now(). */
  tick(nowMs: number): void {
    const { pools, statistics, onChecked, cpu } = this.#options;
    for (const key of this.#called) {
      const state = pools.state(key);
      const controlled = state && this.#of(key, nowMs);
      if (state === undefined || controlled === undefined) {
        this.#called.delete(key);
        continue;
      }
      const { chooser, version } = controlled;
      const check = chooser.look(state, nowMs);
      if (check !== undefined) {
        statistics.of(version).predictionError.observe(check.errorRatio);
        onChecked?.(version.name, check.predictedMs, check.observedMs);
      }
      if (state.arrivalsPerSecond === 0) this.#called.delete(key);
      if (cpu.configure !== 'auto') continue;
      const change = chooser.choose(state, () => pools.coresFor(key), nowMs);
      if (change !== undefined) void this.#apply(key, chooser, change);
    }
  }

  /** Created when first asked for, and again when the version or its profile has changed. */
  #of(key: string, nowMs: number): Controlled | undefined {
    const { registry, profileOf, batchMaxOf, cpu } = this.#options;
    const version = versionOf(registry, key);
    const profile = profileOf(key);
    if (version === undefined || profile === undefined) {
      this.#controlled.delete(key);
      return undefined;
    }
    const known = this.#controlled.get(key);
    if (known?.profile === profile && known.version.settings === version.settings) return known;
    const { batching, sloMs } = version.settings;
    const { cores, objective, reconfigureIntervalMs: intervalMs } = cpu;
    const tables = new PoolTables(profile, { cores, batchMax: batchMaxOf(version), batchTimeoutMs: batching.delayMs });
    const chooser = new ListChooser(tables, { objective, sloMs, intervalMs }, nowMs);
    const controlled: Controlled = { version, profile, chooser };
    this.#controlled.set(key, controlled);
    return controlled;
  }

  /** Observers of the pools learn the result. */
  async #apply(key: string, chooser: ListChooser, { configuration, cause }: ListChange): Promise<void> {
    const { pools, logger } = this.#options;
    try {
      const { state } = await pools.configure(key, configuration, cause);
      chooser.changed(state === 'done');
    } catch (error) {
      logger.debug({ function: key, err: error }, 'not reconfigured: the function is gone, or the host is stopping');
    }
  }
}
