/**
 * Which configuration is best at which load: SERF's configuration reference table (SERF, IV-D), with Packrat's batches
 * in it.
 */
import { predictService, type ServicePrediction } from '../../../plan/index.ts';
import { instancesIn } from '../../../schedule/index.ts';
import { getOrMake } from '../../../tools/index.ts';
import type { PoolGroup } from '../../types.ts';
import { batchCapacityPerSecond, simulateBatches } from './batch-simulation.ts';
import {
  candidatesOf,
  leastDivided,
  sameGroups,
  type BatchedCandidate,
  type Candidate,
  type UnbatchedCandidate,
} from './candidates.ts';
import type { CpuProfile } from './cpu-profile.ts';
import { idleExtraMs } from './idle-cost.ts';
import { Slowdowns, type PoolPrediction } from './slowdowns.ts';

/** Lowest predicted latency, or fewest cores whose predicted latency is within the SLO. */
export type PoolObjective = { readonly kind: 'latency' } | { readonly kind: 'cores'; readonly sloMs: number };

export interface PoolTableOptions {
  /** Cores that the pool may take. */
  readonly cores: number;
  /** Most rows that one run may have. */
  readonly batchMax: number;
  /** Longest that a request waits for a batch to fill. */
  readonly batchTimeoutMs: number;
}

export interface Choice {
  readonly candidate: Candidate;
  readonly prediction: PoolPrediction;
}

interface TimedCandidate {
  readonly candidate: Candidate;
  /** Milliseconds until the last row of a batch is done. */
  readonly latencyMs: number;
  /** The share of measured turns in which it was faster than the list of the fewest instances. */
  readonly aheadShare: number;
}

/** Ratio of two neighbouring load levels: finer than any measured arrival rate. */
const levelRatio = 1.15;
/**
 * Rows in several rounds take several messages there and back through the one dispatcher, which no single run shows.
 */
const roundsFactor = 1.1;
/**
 * A list is preferred to the one of the fewest instances if it is this much faster, in this share of the turns: winning
 * eight of ten turns by chance happens once in twenty times.
 */
const gainMin = 1.07;
const aheadShareMin = 0.8;
const simulatedRequests = 1500;
const simulationSeed = 20_190_601;
/**
 * Share of the SLO that the mean may take: arrivals come in bursts, and half of all requests take longer than the mean.
 */
const sloShare = 0.8;

/**
 * Each load level is predicted when it is first asked for, and then looked up: all of them at once would block the
 * thread for tens of milliseconds.
 */
export class PoolTable {
  readonly candidates: readonly Candidate[];
  readonly profile: CpuProfile;
  readonly options: PoolTableOptions;
  readonly #levels = new Map<Candidate, Map<number, PoolPrediction>>();

  constructor(profile: CpuProfile, options: PoolTableOptions) {
    this.profile = profile;
    this.options = options;
    this.candidates = candidatesOf(profile, options.cores, options.batchMax);
  }

  /** The candidate with these groups, where the profile has it. */
  find(groups: readonly PoolGroup[]): Candidate | undefined {
    return this.candidates.find((candidate) => sameGroups(candidate.groups, groups));
  }

  /** What a candidate does at a rate, on a machine that is slower by these factors; the latency includes the dispatch. */
  predict(candidate: Candidate, ratePerSecond: number, slowdowns = asProfiled): PoolPrediction {
    const rate = Math.max(0, ratePerSecond);
    const factor = slowdowns.at(instancesIn(candidate));
    // A queue in which everything takes f times as long is the profiled one at f times the rate, seen on a clock that is
    // f times as slow.
    const prediction =
      candidate.kind === 'unbatched'
        ? this.service(candidate, rate, slowdowns)
        : scaled(this.#gathered(candidate, rate * factor), factor);
    if (prediction.state === 'overloaded') return prediction;
    return { ...prediction, latencyMs: prediction.latencyMs + factor * this.profile.dispatchMs };
  }

  /** SERF's queue with the function's own service times: idle instances slow down, and run times vary. */
  service(
    { serviceTimeMs, variation, groups }: UnbatchedCandidate,
    rate: number,
    slowdowns: Slowdowns,
  ): ServicePrediction {
    const times = serviceTimeMs.map((timeMs, index) => timeMs * slowdowns.at(index + 1));
    const idle = (gapMs: number): number =>
      slowdowns.idle * idleExtraMs(this.profile.idle, groups[0]?.threads ?? 1, gapMs);
    return predictService(times, rate, { variation, idleExtraMs: idle });
  }

  #gathered(candidate: BatchedCandidate, ratePerSecond: number): PoolPrediction {
    // Linear between two levels, so that predictions do not jump.
    const level = levelOf(ratePerSecond);
    const low = this.#atLevel(candidate, Math.floor(level));
    const high = this.#atLevel(candidate, Math.ceil(level));
    if (low.state === 'overloaded' || high.state === 'overloaded') {
      return ratePerSecond < 0.98 * batchCapacityPerSecond(candidate) ? low : { state: 'overloaded' };
    }
    const share = level - Math.floor(level);
    const between = (a: number, b: number): number => a + (b - a) * share;
    return {
      state: 'stable',
      latencyMs: between(low.latencyMs, high.latencyMs),
      serviceMs: between(low.serviceMs, high.serviceMs),
    };
  }

  /**
   * The best candidate at a rate; undefined if every one is overloaded. For the objective `cores`, if none is within
   * the SLO, the one with the lowest latency.
   */
  best(ratePerSecond: number, objective: PoolObjective, slowdowns = asProfiled): Choice | undefined {
    const choices = this.candidates.map((candidate) => ({
      candidate,
      prediction: this.predict(candidate, ratePerSecond, slowdowns),
    }));
    return bestOf(choices, objective);
  }

  /**
   * The candidate that finishes `batch` rows first that come all at once (Packrat's question): among the lists that
   * were measured side by side for it, if there are any, else among all candidates in as many runs as needed. Undefined
   * if the profile has none.
   *
   * Side-by-side measurements include the messages of every part and how instances slow each other down. The list of
   * the fewest instances is replaced only by one that is clearly faster: of two equals it depends on no other instance.
   */
  fastestForBatch(batch: number, objective: PoolObjective, slowdowns = asProfiled): TimedCandidate | undefined {
    const measured = this.profile.lists.flatMap(({ batch: rows, groups, latencyMs, aheadShare }) => {
      const candidate = rows === batch ? this.find(groups) : undefined;
      return candidate === undefined ? [] : [{ candidate, latencyMs, aheadShare }];
    });
    const timed = measured.length > 0 ? measured : this.#inRounds(batch);
    if (objective.kind === 'cores') {
      const within = timed.filter(
        ({ candidate, latencyMs }) => latencyMs * slowdowns.at(instancesIn(candidate)) <= objective.sloMs * sloShare,
      );
      // prettier-ignore
      const least = leastBy(within, ({ candidate }) => candidate.cores, ({ latencyMs }) => latencyMs);
      if (least !== undefined) return least;
    }
    const fewest = timed[leastDivided(timed.map(({ candidate }) => candidate))];
    if (fewest === undefined) return undefined;
    const faster = timed.filter(
      ({ latencyMs, aheadShare }) => latencyMs * gainMin <= fewest.latencyMs && aheadShare >= aheadShareMin,
    );
    // prettier-ignore
    return leastBy(faster, ({ latencyMs }) => latencyMs, ({ candidate }) => candidate.cores) ?? fewest;
  }

  /** How long each candidate takes for so many rows, in several runs if needed. */
  #inRounds(batch: number): TimedCandidate[] {
    return this.candidates.flatMap((candidate): TimedCandidate[] => {
      const isBatched = candidate.kind === 'batched';
      const rowsAtOnce = isBatched ? candidate.batch : candidate.serviceTimeMs.length;
      // A larger list was not measured with fewer rows.
      if (isBatched && rowsAtOnce > batch) return [];
      const runMs = isBatched ? candidate.latencyMs : (candidate.serviceTimeMs.at(-1) ?? Infinity);
      const rounds = Math.ceil(batch / rowsAtOnce);
      return [{ candidate, latencyMs: rounds * runMs * (rounds === 1 ? 1 : roundsFactor), aheadShare: 1 }];
    });
  }

  #atLevel(candidate: BatchedCandidate, level: number): PoolPrediction {
    const levels = getOrMake(this.#levels, candidate, () => new Map<number, PoolPrediction>());
    return getOrMake(levels, level, () =>
      simulateBatches(this.profile.pool, candidate, {
        ratePerSecond: rateOf(level),
        timeoutMs: this.options.batchTimeoutMs,
        idle: this.profile.idle,
        requests: simulatedRequests,
        seed: simulationSeed,
      }),
    );
  }
}

const asProfiled = new Slowdowns(1);

function scaled(prediction: PoolPrediction, factor: number): PoolPrediction {
  if (prediction.state === 'overloaded') return prediction;
  return { state: 'stable', latencyMs: prediction.latencyMs * factor, serviceMs: prediction.serviceMs * factor };
}

function bestOf(choices: readonly Choice[], objective: PoolObjective): Choice | undefined {
  const latencyOf = ({ prediction }: Choice): number =>
    prediction.state === 'stable' ? prediction.latencyMs : Infinity;
  const stable = choices.filter(({ prediction }) => prediction.state === 'stable');
  const coresOf = ({ candidate }: Choice): number => candidate.cores;
  if (objective.kind === 'cores') {
    const soon = stable.filter((choice) => latencyOf(choice) <= objective.sloMs * sloShare);
    const within = leastBy(soon, coresOf, latencyOf);
    if (within !== undefined) return within;
  }
  return leastBy(stable, latencyOf, coresOf);
}

function leastBy<Value>(
  values: readonly Value[],
  first: (value: Value) => number,
  second: (value: Value) => number,
): Value | undefined {
  return values.toSorted((a, b) => first(a) - first(b) || second(a) - second(b))[0];
}

/** Levels go on below one request a second; anything rarer than every quarter of an hour is the lowest level. */
const leastRate = 0.001;

function levelOf(ratePerSecond: number): number {
  return Math.log(Math.max(ratePerSecond, leastRate)) / Math.log(levelRatio);
}

function rateOf(level: number): number {
  return levelRatio ** level;
}
