/**
 * Which configuration is best at which load: SERF's configuration reference table (SERF, IV-D), with Packrat's batches
 * in it.
 */
import { getOrMake } from '../../../tools/index.ts';
import type { PoolGroup } from '../../types.ts';
import { batchCapacityPerSecond, simulateBatches } from './batch-simulation.ts';
import { candidatesOf, leastDivided, sameGroups, type BatchedCandidate, type Candidate } from './candidates.ts';
import type { CpuProfile } from './cpu-profile.ts';
import { predictUnbatched, type PoolPrediction } from './service-latency.ts';

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

/** The configuration that finishes a batch first. */
export interface BatchChoice {
  readonly candidate: Candidate;
  /** Milliseconds until its last row is done. */
  readonly latencyMs: number;
}

interface TimedCandidate extends BatchChoice {
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
  readonly #best = new Map<string, Choice | undefined>();

  constructor(profile: CpuProfile, options: PoolTableOptions) {
    this.profile = profile;
    this.options = options;
    this.candidates = candidatesOf(profile, options.cores, options.batchMax);
  }

  /** The candidate with these groups, where the profile has it. */
  find(groups: readonly PoolGroup[]): Candidate | undefined {
    return this.candidates.find((candidate) => sameGroups(candidate.groups, groups));
  }

  /** What a candidate does at a rate; the latency includes the dispatch. */
  predict(candidate: Candidate, ratePerSecond: number): PoolPrediction {
    const prediction = this.#queued(candidate, ratePerSecond);
    const { dispatchMs } = this.profile;
    if (prediction.state === 'overloaded' || dispatchMs === 0) return prediction;
    return { ...prediction, latencyMs: prediction.latencyMs + dispatchMs };
  }

  #queued(candidate: Candidate, ratePerSecond: number): PoolPrediction {
    if (candidate.kind === 'unbatched')
      return predictUnbatched(candidate, this.profile.idle, Math.max(0, ratePerSecond));
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
  best(ratePerSecond: number, objective: PoolObjective): Choice | undefined {
    const level = Math.round(levelOf(ratePerSecond));
    const key = `${level} ${objective.kind} ${objective.kind === 'cores' ? objective.sloMs : ''}`;
    if (!this.#best.has(key)) {
      const rate = rateOf(level);
      const choices = this.candidates.map((candidate) => ({ candidate, prediction: this.predict(candidate, rate) }));
      this.#best.set(key, bestOf(choices, objective));
    }
    const best = this.#best.get(key);
    if (best === undefined) return undefined;
    return { candidate: best.candidate, prediction: this.predict(best.candidate, ratePerSecond) };
  }

  /**
   * The candidate that finishes `batch` rows first that come all at once (Packrat's question): among the lists that
   * were measured side by side for it, if there are any, else among all candidates in as many runs as needed. Undefined
   * if the profile has none.
   *
   * Side-by-side measurements include the messages of every part and how instances slow each other down. The list of
   * the fewest instances is replaced only by one that is clearly faster: of two equals it depends on no other instance.
   */
  fastestForBatch(batch: number, objective: PoolObjective): BatchChoice | undefined {
    const measured = this.profile.lists.flatMap(({ batch: rows, groups, latencyMs, aheadShare }) => {
      const candidate = rows === batch ? this.find(groups) : undefined;
      return candidate === undefined ? [] : [{ candidate, latencyMs, aheadShare }];
    });
    const timed = measured.length > 0 ? measured : this.#inRounds(batch);
    if (objective.kind === 'cores') {
      const within = timed.filter(({ latencyMs }) => latencyMs <= objective.sloMs * sloShare);
      // prettier-ignore
      const least = leastBy(within, ({ candidate }) => candidate.cores, ({ latencyMs }) => latencyMs);
      if (least !== undefined) return choiceOf(least);
    }
    const fewest = timed[leastDivided(timed.map(({ candidate }) => candidate))];
    if (fewest === undefined) return undefined;
    const faster = timed.filter(
      ({ latencyMs, aheadShare }) => latencyMs * gainMin <= fewest.latencyMs && aheadShare >= aheadShareMin,
    );
    // prettier-ignore
    return choiceOf(leastBy(faster, ({ latencyMs }) => latencyMs, ({ candidate }) => candidate.cores) ?? fewest);
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

function choiceOf({ candidate, latencyMs }: TimedCandidate): BatchChoice {
  return { candidate, latencyMs };
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
