/**
 * Which list of instances a function's load calls for: the batch size estimator, the prediction, and the rule by which a
 * change is worth it. The pools of a host and those of a replay run this code, each on its own clock.
 *
 * Every interval, for a function with requests, it chooses
 *   1. the best list for the rate of arrivals, if the queue is about as deep as predicted;
 *   2. else, if requests queue up (they come in bursts, or faster than any list answers them singly), the one that
 *      finishes a batch of the estimated size first;
 *   3. the current one, unless the other is predicted to be better by a tenth, and to save its calls, in as long as the
 *      current one has lasted, more time than the new instances take to start.
 */
import { coresIn } from '../../schedule/index.ts';
import { getOrMake } from '../../tools/index.ts';
import { instancesOf, missingThreads } from '../pool/configuration.ts';
import type { PoolConfiguration, PoolState } from '../types.ts';
import { BatchEstimator } from './estimator.ts';
import {
  groupsText,
  instanceMs,
  LivePrediction,
  PoolTable,
  sameGroups,
  type Candidate,
  type CpuProfile,
  type PoolObjective,
  type PoolTableOptions,
  type PredictionCheck,
} from './predict/index.ts';

/** What decides beside the load. */
export interface ListRules {
  /** What is looked for, and within which SLO. */
  readonly objective: 'latency' | 'cores';
  readonly sloMs: number;
  /** Least time between two changes. */
  readonly intervalMs: number;
}

/** What it looks at: see {@link PoolState}. */
export type ListLoad = Pick<
  PoolState,
  'configuration' | 'starting' | 'arrivalsPerSecond' | 'queueDepth' | 'queueLength' | 'inFlight' | 'startMs'
>;

/** The chosen list, and why. */
export interface ListChange {
  readonly configuration: PoolConfiguration;
  readonly cause: string;
}

/** Interval of {@link ListChooser.look}. */
export const lookMs = 500;
/** A change must be predicted to be this much better. */
const gainMin = 1.1;
/** How often the interval is doubled after changes that failed: each try holds cores, and starts processes. */
const patienceMax = 5;
/** A queue this much deeper than predicted is no coincidence. */
const depthFactor = 2;

/** One table for each number of cores, for functions whose profile and options are the same. */
export class PoolTables {
  readonly largest: PoolTable;
  readonly #byCores: Map<number, PoolTable>;

  /** @param options for all cores of the machine */
  constructor(profile: CpuProfile, options: PoolTableOptions) {
    this.largest = new PoolTable(profile, options);
    this.#byCores = new Map([[options.cores, this.largest]]);
  }

  of(cores: number): PoolTable {
    const { profile, options } = this.largest;
    return getOrMake(this.#byCores, cores, () => new PoolTable(profile, { ...options, cores }));
  }
}

/** For one function. Instants are those of the caller's clock. */
export class ListChooser {
  readonly live: LivePrediction;
  readonly #tables: PoolTables;
  readonly #rules: ListRules;
  readonly #estimator = new BatchEstimator();
  #decidedAtMs: number;
  /** When it began, or its list last changed: the current one may be expected to last as long again. */
  #changedAtMs: number;
  /** Changes in a row that were refused or failed. */
  #failures = 0;
  #checkedAtMs: number;
  /** The list at the start of the observation window. */
  #inForce: string | undefined;

  constructor(tables: PoolTables, rules: ListRules, nowMs: number) {
    this.#tables = tables;
    this.#rules = rules;
    this.live = new LivePrediction(tables.largest, nowMs);
    this.#decidedAtMs = this.#changedAtMs = this.#checkedAtMs = nowMs;
  }

  /** Looks at the load. Returns what its predictions are worth, once in an interval. */
  look({ configuration, queueDepth }: ListLoad, nowMs: number): PredictionCheck | undefined {
    this.#estimator.observe(queueDepth);
    const groups = configuration?.groups;
    const inForce = groups && groupsText(groups);
    const { live } = this;
    // A change begins a new window.
    if (inForce !== this.#inForce) {
      this.#inForce = inForce;
      this.#checkedAtMs = nowMs;
      live.restart(nowMs);
      return undefined;
    }
    if (nowMs - this.#checkedAtMs < this.#rules.intervalMs) return undefined;
    this.#checkedAtMs = nowMs;
    return live.check(groups && live.table.find(groups), nowMs);
  }

  /**
   * What to change to, after a {@link look}; undefined: nothing. Its outcome is to be reported by {@link changed}.
   *
   * @param coresFor asked for the function's share of the cores, where it decides
   */
  choose(load: ListLoad, coresFor: () => number, nowMs: number): ListChange | undefined {
    if (load.starting !== undefined || load.arrivalsPerSecond === 0) return undefined;
    const waitMs = this.#rules.intervalMs * 2 ** Math.min(this.#failures, patienceMax);
    if (nowMs - this.#decidedAtMs < waitMs) return undefined;
    this.#decidedAtMs = nowMs;
    const budget = Math.min(this.#tables.largest.options.cores, coresFor());
    // More functions are called than there are cores, and this one needs only part of a core: it shares.
    const chosen = budget === 0 ? undefined : this.#decide(load, this.#tables.of(budget), nowMs);
    if (chosen === undefined) return undefined;
    this.#changedAtMs = nowMs;
    const { profile, options } = this.#tables.largest;
    const groups = chosen.candidate.groups.map((group) => {
      const latencyMs = instanceMs(profile.pool, group.threads, group.batch);
      return { ...group, ...(latencyMs === undefined ? undefined : { latencyMs }) };
    });
    const batchTimeoutMs = chosen.candidate.kind === 'unbatched' ? 0 : options.batchTimeoutMs;
    return { configuration: { groups, batchTimeoutMs }, cause: chosen.cause };
  }

  /** A change was made, or not: then the next is decided later each time. */
  changed(isDone: boolean): void {
    this.#failures = isDone ? 0 : this.#failures + 1;
  }

  /** Undefined: no change. */
  #decide(
    load: ListLoad,
    table: PoolTable,
    nowMs: number,
  ): { readonly candidate: Candidate; readonly cause: string } | undefined {
    const { configuration, arrivalsPerSecond: rate } = load;
    const { sloMs, intervalMs } = this.#rules;
    const { slowdowns } = this.live;
    const objective: PoolObjective = this.#rules.objective === 'cores' ? { kind: 'cores', sloMs } : { kind: 'latency' };
    const best = table.best(rate, objective, slowdowns);
    const expectedDepth = best?.prediction.state === 'stable' ? (rate * best.prediction.latencyMs) / 1000 : Infinity;
    const current = configuration && table.find(configuration.groups);
    const fits = configuration === undefined || coresIn(configuration) <= table.options.cores;

    const { depth, smoothedBatch } = this.#estimator;
    const isAsPredicted = depth <= depthFactor * expectedDepth + 1 || smoothedBatch === 1;
    if (best !== undefined && isAsPredicted) {
      const isSame = current !== undefined && sameGroups(current.groups, best.candidate.groups);
      if (isSame) return undefined;
      const lastsMs = Math.max(intervalMs, nowMs - this.#changedAtMs);
      if (fits && !this.#isWorthwhile(table, current, best.candidate, load, lastsMs)) return undefined;
      return { candidate: best.candidate, cause: `${Number(rate.toPrecision(3))} requests/s` };
    }
    // If no list keeps up, the queue will grow further: the one that finishes twice the cores' rows first answers the
    // most.
    const batch = Math.max(smoothedBatch, best === undefined ? 2 * table.options.cores : 1);
    const fastest = table.fastestForBatch(batch, objective, slowdowns) ?? best;
    if (fastest === undefined) return undefined;
    if (current !== undefined && fits && sameGroups(current.groups, fastest.candidate.groups)) return undefined;
    return { candidate: fastest.candidate, cause: `batches of ${batch}` };
  }

  /** @param current undefined: on demand, or not measured. Then all the time of its calls might be saved. */
  #isWorthwhile(
    table: PoolTable,
    current: Candidate | undefined,
    other: Candidate,
    { arrivalsPerSecond: rate, configuration, startMs = 0 }: ListLoad,
    lastsMs: number,
  ): boolean {
    const { slowdowns } = this.live;
    if (this.#rules.objective === 'cores' && current !== undefined && other.cores < current.cores) return true;
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
