/** Prediction for a running pool: the service of an arrival now, and how accurate the predictions have been. */
import type { PoolState } from '../../types.ts';
import { idleGapMs } from '../../../plan/index.ts';
import { instancesIn } from '../../../schedule/index.ts';
import { alikeRuns, runsMax, type Run } from './alike-runs.ts';
import type { Candidate, UnbatchedCandidate } from './candidates.ts';
import { idleExtraMs, type IdleCost } from './idle-cost.ts';
import type { PoolTable } from './pool-table.ts';
import { slowdownBeside, Slowdowns, type PoolPrediction } from './slowdowns.ts';

/** The state of a pool at an instant. */
export type PoolSnapshot = Pick<PoolState, 'configuration' | 'queueLength' | 'inFlight' | 'arrivalsPerSecond'>;

/** What a request that arrives now would take once an instance has it. */
export interface ArrivalPrediction {
  readonly serviceMs: number;
  /** Cores that its run takes. */
  readonly cores: number;
}

/** A window with fewer answers says little about a mean. */
const windowAnswersMin = 20;
/** The machine's speed changes by the second: later runs of a window say more of what comes. */
const sliceSeconds = 2;

/** One comparison of prediction and observation. */
export interface PredictionCheck {
  readonly predictedMs: number;
  readonly observedMs: number;
  /** |predicted / observed - 1|. */
  readonly errorRatio: number;
}

export class LivePrediction {
  readonly table: PoolTable;
  /**
   * By how many ran at once. Latency is not compared: near a pool's capacity it says more about the load than about the
   * pool.
   */
  readonly slowdowns: Slowdowns;
  #answers = 0;
  #latencySumMs = 0;
  #serviceSumMs = 0;
  #sinceMs: number;
  readonly #runs: Run[] = [];

  constructor(table: PoolTable, nowMs: number) {
    this.table = table;
    this.slowdowns = new Slowdowns(Math.max(1, ...table.candidates.map(instancesIn)));
    this.#sinceMs = nowMs;
  }

  /** What a candidate does at a rate, as slow as the machine was. */
  predict(candidate: Candidate, ratePerSecond: number): PoolPrediction {
    return this.table.predict(candidate, ratePerSecond, this.slowdowns);
  }

  /**
   * The service of a request that arrives now. The current queue counts: a request that finds an instance free runs
   * beside as few others as run now, whatever the mean says.
   *
   * Undefined if the profile does not cover the configuration, and for an on-demand pool without any candidate.
   */
  arrival(pool: PoolSnapshot): ArrivalPrediction | undefined {
    const candidate = pool.configuration === undefined ? this.#onDemand() : this.table.find(pool.configuration.groups);
    if (candidate === undefined) return undefined;
    const [{ threads } = { threads: 1 }] = candidate.groups;
    if (candidate.kind === 'unbatched')
      return {
        serviceMs: unbatchedServiceMs(candidate, this.table.profile.idle, pool, this.slowdowns),
        cores: threads,
      };
    const mean = this.predict(candidate, pool.arrivalsPerSecond);
    return { serviceMs: mean.state === 'stable' ? mean.serviceMs : this.#fullMs(candidate), cores: threads };
  }

  /** How much longer than alone a run takes as one of so many; 1 if the profile does not say. */
  slowdownAt(running: number): number {
    const candidate = this.#onDemand();
    if (candidate?.kind !== 'unbatched') return 1;
    return slowdownBeside(candidate.serviceTimeMs, running, (count) => this.slowdowns.at(count));
  }

  /**
   * An answer came at an instant: milliseconds from arrival, and from when an instance had it. Calls that waited for a
   * start must not be reported: a steady state has none.
   */
  answered(latencyMs: number, serviceMs: number, nowMs: number): void {
    this.#answers++;
    this.#latencySumMs += latencyMs;
    this.#serviceSumMs += serviceMs;
    if (this.#runs.length < runsMax) {
      this.#runs.push({ arrivedMs: nowMs - latencyMs, fromMs: nowMs - serviceMs, toMs: nowMs });
    }
  }

  /**
   * Ends a window with one configuration: compares the predicted mean for the window's rate with the observed mean, and
   * corrects. Undefined, without a correction, if the window had too few answers; undefined too if the pool was
   * predicted to be overloaded, where there is no mean.
   */
  check(candidate: Candidate | undefined, nowMs: number): PredictionCheck | undefined {
    const answers = this.#answers;
    const observedMs = this.#latencySumMs / answers;
    const serviceMs = this.#serviceSumMs / answers;
    const seconds = (nowMs - this.#sinceMs) / 1000;
    const runs = this.#runs.splice(0);
    this.restart(nowMs);
    if (seconds <= 0) return undefined;
    if (candidate === undefined || answers < windowAnswersMin) {
      this.slowdowns.pass(seconds);
      return undefined;
    }
    const rate = answers / seconds;
    const predicted = this.predict(candidate, rate);
    if (candidate.kind === 'unbatched') this.#learn(candidate, runs, rate, seconds);
    else {
      this.slowdowns.pass(seconds);
      const count = instancesIn(candidate);
      const profiledMs = predicted.state === 'stable' ? predicted.serviceMs : this.#fullMs(candidate);
      const beyond = Math.log(serviceMs / profiledMs);
      const shares = Array.from({ length: count }, (_, index) => Number(index === count - 1));
      const beyondProfile = beyond + Math.log(this.slowdowns.at(count));
      this.slowdowns.observe({ beyond, beyondProfile, shares, idleShare: 0, answers });
    }
    if (predicted.state === 'overloaded') return undefined;
    const { latencyMs: predictedMs } = predicted;
    return { predictedMs, observedMs, errorRatio: Math.abs(predictedMs / observedMs - 1) };
  }

  /**
   * A run's speed changes whenever another begins or ends. So what a request takes while k run is found from the
   * milliseconds that it had with 1, 2, ... at once: each as a part of the whole, they add up to one request.
   */
  #learn({ serviceTimeMs, groups }: UnbatchedCandidate, runs: readonly Run[], rate: number, seconds: number): void {
    const { slowdowns } = this;
    const concurrency = serviceTimeMs.length;
    const gapMs = gapMsOf(serviceTimeMs.at(-1)! * slowdowns.at(concurrency), concurrency, rate);
    const extraMs = idleExtraMs(this.table.profile.idle, groups[0]?.threads ?? 1, gapMs);
    const slices = Math.max(1, Math.round(seconds / sliceSeconds));
    for (const alike of alikeRuns(runs, concurrency, slices)) {
      slowdowns.pass(seconds / slices);
      for (const { spentMs, count, wasIdle } of alike) {
        const meanMs = sumOf(spentMs) / count;
        if (!(meanMs > 0)) continue;
        const idleMs = wasIdle ? Math.min(meanMs / 2, extraMs * slowdowns.idle) : 0;
        const atWork = 1 - idleMs / meanMs;
        const profiled = spentMs.map((ms, index) => (atWork * ms) / count / serviceTimeMs[index]!);
        const parts = profiled.map((part, index) => part / slowdowns.at(index + 1));
        const whole = sumOf(parts);
        slowdowns.observe({
          beyond: Math.log(whole),
          beyondProfile: Math.log(sumOf(profiled)),
          shares: parts.map((part) => part / whole),
          idleShare: idleMs / meanMs / atWork,
          answers: count,
        });
      }
    }
  }

  /** Milliseconds of a request while every instance is at work. */
  #fullMs(candidate: Candidate): number {
    const profiledMs = candidate.kind === 'batched' ? candidate.latencyMs : (candidate.serviceTimeMs.at(-1) ?? 0);
    return profiledMs * this.slowdowns.at(instancesIn(candidate));
  }

  /** Restarts the window: the configuration changed, and answers of two configurations say nothing about either. */
  restart(nowMs: number): void {
    this.#answers = 0;
    this.#latencySumMs = 0;
    this.#serviceSumMs = 0;
    this.#sinceMs = nowMs;
    this.#runs.length = 0;
  }

  /** The candidate closest to a pool on demand: instances of the fewest threads, one for each core. */
  #onDemand(): Candidate | undefined {
    const { candidates } = this.table;
    const single = candidates.find(({ kind }) => kind === 'unbatched');
    const alike = candidates.filter(
      ({ kind, groups }) => kind === 'unbatched' && groups[0]?.threads === single?.groups[0]?.threads,
    );
    return alike.toSorted((a, b) => b.cores - a.cores)[0] ?? candidates[0];
  }
}

/** On an instance that was idle, beside those that run; behind a queue, with all of them at work. */
function unbatchedServiceMs(
  { serviceTimeMs, groups }: UnbatchedCandidate,
  costs: readonly IdleCost[],
  { queueLength, inFlight, arrivalsPerSecond }: PoolSnapshot,
  slowdowns: Slowdowns,
): number {
  const concurrency = serviceTimeMs.length;
  const fullMs = (serviceTimeMs.at(-1) ?? 0) * slowdowns.at(concurrency);
  if (inFlight >= concurrency || queueLength > 0) return fullMs;
  const gapMs = gapMsOf(fullMs, concurrency, arrivalsPerSecond);
  const extraMs = slowdowns.idle * idleExtraMs(costs, groups[0]?.threads ?? 1, gapMs);
  return serviceTimeMs[inFlight]! * slowdowns.at(inFlight + 1) + extraMs;
}

/** Mean gap of an instance between two requests. */
function gapMsOf(fullMs: number, concurrency: number, ratePerSecond: number): number {
  return idleGapMs(concurrency, Math.min(1, (ratePerSecond * fullMs) / 1000 / concurrency), ratePerSecond);
}

const sumOf = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0);
