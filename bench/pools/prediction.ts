/** SERF's prediction against live Poisson load (SERF, V-D). */
import { setTimeout as pause } from 'node:timers/promises';
import { LivePrediction, PoolTable, type Candidate, type PoolPrediction } from '../../src/cpu/index.ts';
import { capacityPerSecond } from '../../src/plan/index.ts';
import { drawArrivals } from './arrivals.ts';
import { BenchPool, type Subject } from './subject.ts';

export interface LevelOutcome {
  readonly concurrency: number;
  readonly threads: number;
  /** Relative to the measured capacity. */
  readonly load: number;
  readonly ratePerSecond: number;
  readonly requests: number;
  readonly observedMs: number;
  /** By the profile, measured minutes before. */
  readonly predictedMs: number;
  /** Corrected by the service times of earlier loads by how many ran at once, as a host does it. Infinity: overloaded. */
  readonly correctedMs: number;
  /** The same arrivals once more; undefined at most loads. */
  readonly againMs: number | undefined;
  /**
   * Corrected by the service times of this load itself: the rest is the error of the queue's formula. Infinity if they
   * left the pool less than a twentieth of its time: so few requests reach no steady state then.
   */
  readonly knownServiceMs: number;
}

/** Levels of load on the configuration with the highest capacity. */
export async function comparePredictions(
  subject: Subject,
  options: {
    readonly cores: number;
    readonly levels: number;
    /** Duration of each level. */
    readonly levelMs: number;
    readonly random: () => number;
    readonly progress: (text: string) => void;
  },
): Promise<LevelOutcome[]> {
  const { cores, levels, levelMs, random, progress } = options;
  const table = new PoolTable(subject.profile, { cores, batchMax: 1, batchTimeoutMs: 0 });
  const [candidate] = table.candidates
    .filter((each) => each.kind === 'unbatched')
    .toSorted((a, b) => capacityPerSecond(b.serviceTimeMs) - capacityPerSecond(a.serviceTimeMs));
  if (candidate === undefined) throw new Error('the profile has no service times');
  const { serviceTimeMs, groups } = candidate;
  await using pool = new BenchPool(subject, cores, 1);
  await pool.configure(groups, 0);
  const arrivalsAt = (load: number): { ratePerSecond: number; arrivals: number[] } => {
    const ratePerSecond = load * capacityPerSecond(serviceTimeMs);
    const count = Math.max(leastRequests, Math.round((ratePerSecond * levelMs) / 1000));
    return { ratePerSecond, arrivals: drawArrivals(serviceTimeMs, ratePerSecond, count, random) };
  };
  // What a host would have observed before.
  const live = new LivePrediction(table, performance.now());
  progress(`${subject.name}: Poisson load, warming up`);
  watch(live, candidate, await openLoop(pool, arrivalsAt(warmLoad).arrivals));
  const outcomes: LevelOutcome[] = [];
  for (let level = 1; level <= levels; level++) {
    // Up to 85% of the measured capacity: nearer to the limit a mean takes tens of thousands of requests to settle.
    const load = (0.85 * level) / levels;
    progress(`${subject.name}: Poisson load at ${Math.round(load * 100)}%`);
    const { ratePerSecond, arrivals } = arrivalsAt(load);
    const predictedMs = latencyOf(table.predict(candidate, ratePerSecond));
    const correctedMs = latencyOf(live.predict(candidate, ratePerSecond));
    const run = await openLoop(pool, arrivals);
    // Two equal runs differ too: no prediction can be nearer than that.
    const again = level % againEvery === 1 ? await openLoop(pool, arrivals) : undefined;
    for (const each of [run, again]) if (each !== undefined) watch(live, candidate, each);
    const known = new LivePrediction(table, 0);
    for (let turn = 0; turn < knownTurns; turn++) watch(known, candidate, run);
    outcomes.push({
      concurrency: serviceTimeMs.length,
      threads: groups[0]?.threads ?? 1,
      load,
      ratePerSecond,
      requests: arrivals.length,
      observedMs: meanMs(run),
      againMs: again && meanMs(again),
      predictedMs,
      correctedMs,
      knownServiceMs:
        load * known.slowdowns.at(serviceTimeMs.length) > steadyLoadMax
          ? Infinity
          : latencyOf(known.predict(candidate, ratePerSecond)),
    });
  }
  return outcomes;
}

/** One load in so many runs twice. */
const againEvery = 3;
/** At low rates a level takes longer instead. */
const leastRequests = 50;
const warmLoad = 0.4;
const steadyLoadMax = 0.95;
/** Until the correction by the one run has settled. */
const knownTurns = 20;

interface LoadRun {
  /** `atMs`: when it was there, from the run's start. */
  readonly answers: readonly { readonly latencyMs: number; readonly serviceMs: number; readonly atMs: number }[];
  readonly tookMs: number;
}

/** Gives a run to a prediction, as one window of observation. */
function watch(prediction: LivePrediction, candidate: Candidate, { answers, tookMs }: LoadRun): void {
  prediction.restart(0);
  for (const { latencyMs, serviceMs, atMs } of answers) prediction.answered(latencyMs, serviceMs, atMs);
  prediction.check(candidate, tookMs);
}

const meanMs = ({ answers }: LoadRun): number =>
  answers.reduce((sum, { latencyMs }) => sum + latencyMs, 0) / answers.length;

function latencyOf(prediction: PoolPrediction): number {
  return prediction.state === 'stable' ? prediction.latencyMs : Infinity;
}

/** Sends each request at its instant, whatever the state of earlier ones; latencies count from the actual sending. */
async function openLoop(pool: BenchPool, arrivals: readonly number[]): Promise<LoadRun> {
  const startMs = performance.now();
  const answers: Promise<LoadRun['answers'][number]>[] = [];
  const request = async (): Promise<LoadRun['answers'][number]> => {
    const answer = await pool.timedRequest();
    return { ...answer, atMs: performance.now() - startMs };
  };
  for (const arrivalMs of arrivals) {
    const waitMs = startMs + arrivalMs - performance.now();
    if (waitMs > 0) await pause(waitMs);
    answers.push(request());
  }
  const tookMs = performance.now() - startMs;
  return { answers: await Promise.all(answers), tookMs };
}
