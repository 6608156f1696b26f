/**
 * Chooses the configuration of each function's pool, and predicts what a request would see there: it connects the batch
 * size estimator and the prediction to the pools.
 *
 * Every interval, for a function with requests, it chooses
 *   1. the best configuration for the rate of arrivals, if the queue is about as deep as predicted;
 *   2. else, if requests queue up (they come in bursts, or faster than any configuration answers them singly), the one
 *      that finishes a batch of the estimated size first;
 *   3. the current one, unless the other is predicted to be better by a tenth, and to save its calls, in as long as the
 *      current one has lasted, more time than the new instances take to start.
 */
import type { Logger } from 'pino';
import {
  BatchEstimator,
  coresOf,
  groupsText,
  instanceMs,
  instancesOf,
  LivePrediction,
  missingThreads,
  PoolTable,
  sameGroups,
  type Slowdowns,
  type ArrivalPrediction,
  type Candidate,
  type CpuPools,
  type CpuProfile,
  type PoolObjective,
  type PoolState,
} from '../../cpu/index.ts';
import type { HostConfig } from '../config/config.ts';
import type { Statistics } from '../records/statistics.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { versionOf } from '../rollout/versions.ts';
import { getOrMake } from '../../tools/index.ts';

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

/** Interval of looking at the pools. */
const tickMs = 500;
/** A change must be predicted to be this much better. */
const gainMin = 1.1;
/** How often the interval is doubled after configurations that failed: each try holds cores, and starts processes. */
const patienceMax = 5;
/** A queue this much deeper than predicted is no coincidence. */
const depthFactor = 2;

interface Controlled {
  readonly version: FunctionVersion;
  readonly profile: CpuProfile;
  readonly live: LivePrediction;
  readonly estimator: BatchEstimator;
  decidedAtMs: number;
  /** When it began, or its configuration last changed: the current one may be expected to last as long again. */
  changedAtMs: number;
  /** Configurations in a row that were refused or could not be started. */
  failures: number;
  checkedAtMs: number;
  /** For fewer cores than the machine has. */
  readonly tables: Map<number, PoolTable>;
  /** The configuration at the start of the observation window. */
  inForce: string | undefined;
}

/** The chosen configuration, and why. */
interface Decision {
  readonly candidate: Candidate;
  readonly cause: string;
}

export class PoolsController {
  readonly #options: PoolsControllerOptions;
  readonly #controlled = new Map<string, Controlled>();
  /** Recently called functions. The others need no decision, and there may be thousands of them. */
  readonly #called = new Set<string>();
  readonly #timer: NodeJS.Timeout;

  constructor(options: PoolsControllerOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.tick(performance.now()), tickMs);
    this.#timer.unref();
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** A request of the version now; undefined if the version, or its pool's configuration, was not measured. */
  predictCpu(key: string): ArrivalPrediction | undefined {
    const state = this.#options.pools.state(key);
    const controlled = this.#of(key, performance.now());
    if (state === undefined || controlled === undefined) return undefined;
    return controlled.live.arrival({
      groups: state.configuration?.groups,
      waiting: state.queueLength,
      running: state.inFlight,
      arrivalsPerSecond: state.arrivalsPerSecond,
    });
  }

  /** How much longer a run of the version takes as one of so many on this CPU; 1 if that was not measured. */
  slowdownAt(key: string, running: number): number {
    return this.#of(key, performance.now())?.live.slowdownAt(running) ?? 1;
  }

  /** An invocation came to its pool. */
  called(key: string): void {
    this.#called.add(key);
  }

  /** A warm invocation was answered, `serviceMs` after an instance had received it. */
  answered(key: string, latencyMs: number, serviceMs: number, nowMs = performance.now()): void {
    this.#controlled.get(key)?.live.answered(latencyMs, serviceMs, nowMs);
  }

  /** Looks at every called pool. Run by its own timer; times are those of performance.now(). */
  tick(nowMs: number): void {
    for (const key of this.#called) {
      const state = this.#options.pools.state(key);
      const controlled = state && this.#of(key, nowMs);
      if (state === undefined || controlled === undefined) {
        this.#called.delete(key);
        continue;
      }
      this.#check(controlled, state, nowMs);
      controlled.estimator.observe(state.queueDepth);
      if (state.arrivalsPerSecond === 0) this.#called.delete(key);
      const isConfiguring = this.#options.cpu.configure === 'auto';
      if (!isConfiguring || state.starting !== undefined || state.arrivalsPerSecond === 0) continue;
      const waitMs = this.#options.cpu.reconfigureIntervalMs * 2 ** Math.min(controlled.failures, patienceMax);
      if (nowMs - controlled.decidedAtMs < waitMs) continue;
      controlled.decidedAtMs = nowMs;
      this.#apply(controlled, state, nowMs);
    }
  }

  /** Created when first asked for, and again when the version or its profile has changed. */
  #of(key: string, nowMs: number): Controlled | undefined {
    const { registry, profileOf, batchMaxOf } = this.#options;
    const { cores } = this.#options.cpu;
    const version = versionOf(registry, key);
    const profile = profileOf(key);
    if (version === undefined || profile === undefined) {
      this.#controlled.delete(key);
      return undefined;
    }
    const known = this.#controlled.get(key);
    if (known?.profile === profile && known.version.settings === version.settings) return known;
    const batchMax = batchMaxOf(version);
    const table = new PoolTable(profile, { cores, batchMax, batchTimeoutMs: version.settings.batching.delayMs });
    const controlled: Controlled = {
      version,
      profile,
      live: new LivePrediction(table, nowMs),
      estimator: new BatchEstimator(),
      decidedAtMs: nowMs,
      changedAtMs: nowMs,
      failures: 0,
      checkedAtMs: nowMs,
      tables: new Map([[cores, table]]),
      inForce: undefined,
    };
    this.#controlled.set(key, controlled);
    return controlled;
  }

  /** Compares prediction and observation, window by window; a change of configuration begins a new window. */
  #check(controlled: Controlled, state: PoolState, nowMs: number): void {
    const { live } = controlled;
    const groups = state.configuration?.groups;
    const inForce = groups === undefined ? undefined : groupsText(groups);
    if (inForce !== controlled.inForce) {
      controlled.inForce = inForce;
      controlled.checkedAtMs = nowMs;
      live.restart(nowMs);
      return;
    }
    if (nowMs - controlled.checkedAtMs < this.#options.cpu.reconfigureIntervalMs) return;
    controlled.checkedAtMs = nowMs;
    const check = live.check(groups === undefined ? undefined : live.table.find(groups), nowMs);
    if (check === undefined) return;
    this.#options.statistics.of(controlled.version).predictionError.observe(check.errorRatio);
    this.#options.onChecked?.(controlled.version.name, check.predictedMs, check.observedMs);
  }

  #apply(controlled: Controlled, state: PoolState, nowMs: number): void {
    const { pools, logger } = this.#options;
    const decision = this.#decide(controlled, state, nowMs);
    if (decision === undefined) return;
    controlled.changedAtMs = nowMs;
    const { candidate, cause } = decision;
    const { key } = state;
    const { pool } = controlled.profile;
    const groups = candidate.groups.map((group) => {
      const latencyMs = instanceMs(pool, group.threads, group.batch);
      return { ...group, ...(latencyMs === undefined ? undefined : { latencyMs }) };
    });
    const batchTimeoutMs = candidate.kind === 'unbatched' ? 0 : controlled.version.settings.batching.delayMs;
    // Observers of the pools learn the result; a failed change is decided again, later each time.
    const noteOutcome = async (): Promise<void> => {
      const { state: outcome } = await pools.configure(key, { groups, batchTimeoutMs }, { cause });
      if (outcome === 'done') controlled.failures = 0;
      else controlled.failures++;
    };
    noteOutcome().catch((error: unknown) => {
      logger.debug({ function: key, err: error }, 'not reconfigured: the function is gone, or the host is stopping');
    });
  }

  /** Undefined: no change. */
  #decide(controlled: Controlled, state: PoolState, nowMs: number): Decision | undefined {
    const { live, profile, version, estimator, tables } = controlled;
    const budget = Math.min(this.#options.cpu.cores, this.#options.pools.coresFor(state.key));
    // More functions are called than there are cores, and this one needs only part of a core: it shares.
    if (budget === 0) return undefined;
    const table = getOrMake(tables, budget, () => new PoolTable(profile, { ...live.table.options, cores: budget }));
    const { sloMs } = version.settings;
    const { slowdowns } = live;
    const objective: PoolObjective =
      this.#options.cpu.objective === 'cores' ? { kind: 'cores', sloMs } : { kind: 'latency' };
    const rate = state.arrivalsPerSecond;
    const best = table.best(rate, objective, slowdowns);
    const expectedDepth = best?.prediction.state === 'stable' ? (rate * best.prediction.latencyMs) / 1000 : Infinity;
    const current = state.configuration && table.find(state.configuration.groups);
    const fits = state.configuration === undefined || coresOf(state.configuration.groups) <= budget;

    const isAsPredicted = estimator.depth <= depthFactor * expectedDepth + 1 || estimator.smoothedBatch === 1;
    if (best !== undefined && isAsPredicted) {
      const isSame = current !== undefined && sameGroups(current.groups, best.candidate.groups);
      if (isSame) return undefined;
      const lastsMs = Math.max(this.#options.cpu.reconfigureIntervalMs, nowMs - controlled.changedAtMs);
      if (fits && !this.#isWorthwhile(table, slowdowns, current, best.candidate, state, lastsMs)) return undefined;
      return { candidate: best.candidate, cause: `${Number(rate.toPrecision(3))} requests/s` };
    }
    // If no configuration keeps up, the queue will grow further: the one that finishes twice the cores' rows first
    // answers the most.
    const batch = Math.max(estimator.smoothedBatch, best === undefined ? 2 * budget : 1);
    const fastest = table.fastestForBatch(batch, objective, slowdowns) ?? (best && { candidate: best.candidate });
    if (fastest === undefined) return undefined;
    if (current !== undefined && fits && sameGroups(current.groups, fastest.candidate.groups)) return undefined;
    return { candidate: fastest.candidate, cause: `batches of ${batch}` };
  }

  /** @param current undefined: on demand, or not measured. Then all the time of its calls might be saved. */
  #isWorthwhile(
    table: PoolTable,
    slowdowns: Slowdowns,
    current: Candidate | undefined,
    other: Candidate,
    { arrivalsPerSecond: rate, configuration, startMs = 0 }: PoolState,
    lastsMs: number,
  ): boolean {
    if (this.#options.cpu.objective === 'cores' && current !== undefined && other.cores < current.cores) return true;
    const now = current && table.predict(current, rate, slowdowns);
    const then = table.predict(other, rate, slowdowns);
    if (now?.state === 'overloaded' || then.state === 'overloaded') return true;
    if (now !== undefined && now.latencyMs < gainMin * then.latencyMs) return false;
    const has = instancesOf(configuration ?? { groups: [] }).map(({ threads }) => threads);
    const started = missingThreads(has, instancesOf(other));
    const savedMs = now === undefined ? then.latencyMs : now.latencyMs - then.latencyMs;
    return savedMs * rate * (lastsMs / 1000) >= startMs * started.length;
  }
}
