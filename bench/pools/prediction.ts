/** SERF's prediction against live Poisson load (SERF, V-D). */
import { setTimeout as pause } from 'node:timers/promises';
import {
  LivePrediction,
  measureServiceTimes,
  PoolTable,
  predictUnbatched,
  type PoolPrediction,
  type UnbatchedCandidate,
} from '../../src/cpu/index.ts';
import { capacityPerSecond } from '../../src/plan/index.ts';
import { drawArrivals } from './arrivals.ts';
import { BenchPool, type Subject } from './subject.ts';

export interface LevelOutcome {
  readonly concurrency: number;
  readonly threads: number;
  /** Of the capacity that was measured. */
  readonly load: number;
  readonly ratePerSecond: number;
  readonly requests: number;
  readonly observedMs: number;
  /** By the profile, measured minutes before. */
  readonly predictedMs: number;
  /** The same, corrected by what came at the levels before, as a host corrects it. */
  readonly correctedMs: number;
  /** By service times that were measured just before and after the load, through the same pool; Infinity: overloaded. */
  readonly besideMs: number;
}

/** Ten levels of load on the configuration of the highest capacity. */
export async function comparePredictions(
  subject: Subject,
  options: {
    readonly cores: number;
    readonly levels: number;
    /** How long requests come at each level. */
    readonly levelMs: number;
    readonly samples: number;
    readonly random: () => number;
    readonly progress: (text: string) => void;
  },
): Promise<LevelOutcome[]> {
  const { cores, levels, levelMs, samples, random, progress } = options;
  const table = new PoolTable(subject.profile, { cores, batchMax: 1, batchTimeoutMs: 0 });
  const candidate = table.candidates
    .filter((each) => each.kind === 'unbatched')
    .toSorted((a, b) => capacityPerSecond(b.serviceTimeMs) - capacityPerSecond(a.serviceTimeMs))[0];
  if (candidate === undefined) throw new Error('the profile has no service times');
  const { serviceTimeMs, groups } = candidate;
  const concurrency = serviceTimeMs.length;
  const threads = groups[0]?.threads ?? 1;
  await using pool = new BenchPool(subject, cores, 1);
  await pool.configure(groups, 0);
  for (let warm = 0; warm < 10; warm++) await pool.batch(concurrency);
  const live = new LivePrediction(table, performance.now());
  const outcomes: LevelOutcome[] = [];
  let before = await serviceNow(pool, candidate, samples, random);
  for (let level = 1; level <= levels; level++) {
    // Up to 85% of what was measured: nearer to the limit a mean takes tens of thousands of requests to settle.
    const load = (0.85 * level) / levels;
    const ratePerSecond = load * capacityPerSecond(serviceTimeMs);
    progress(`${subject.name}: Poisson load at ${Math.round(load * 100)}%`);
    const requests = Math.max(leastRequests, Math.round((ratePerSecond * levelMs) / 1000));
    const arrivals = drawArrivals(serviceTimeMs, ratePerSecond, requests, random);
    const predictedMs = latencyOf(table.predict(candidate, ratePerSecond));
    const correctedMs = latencyOf(live.predict(candidate, ratePerSecond));
    live.restart(performance.now());
    const latenciesMs = await openLoop(pool, arrivals);
    for (const latencyMs of latenciesMs) live.answered(latencyMs);
    live.check(candidate, performance.now());
    const after = await serviceNow(pool, candidate, samples, random);
    outcomes.push({
      concurrency,
      threads,
      load,
      ratePerSecond,
      requests,
      observedMs: latenciesMs.reduce((sum, ms) => sum + ms, 0) / latenciesMs.length,
      predictedMs,
      correctedMs,
      besideMs: (latencyOf(before(ratePerSecond)) + latencyOf(after(ratePerSecond))) / 2,
    });
    before = after;
  }
  return outcomes;
}

/** Where requests come slowly a level takes longer instead. */
const leastRequests = 50;

/** The prediction by service times as they are just now. */
async function serviceNow(
  pool: BenchPool,
  candidate: UnbatchedCandidate,
  samples: number,
  random: () => number,
): Promise<(ratePerSecond: number) => PoolPrediction> {
  const count = candidate.serviceTimeMs.length;
  const { busyMs, idle } = await measureServiceTimes({
    workers: Array.from({ length: count }, () => pool),
    concurrencies: candidate.serviceTimeMs.map((_, index) => index + 1),
    run: async (worker) => await worker.request(),
    samples,
    limitMs: 2000,
    random,
  });
  const threads = candidate.groups[0]?.threads ?? 1;
  let most = 0;
  const serviceTimeMs = candidate.serviceTimeMs.map(
    (ms, index) => (most = Math.max(most, busyMs.get(index + 1) ?? ms)),
  );
  const costs = idle.map(({ gapMs, extraMs }) => ({ threads, gapMs, extraMs }));
  return (ratePerSecond) => predictUnbatched({ ...candidate, serviceTimeMs }, costs, ratePerSecond);
}

function latencyOf(prediction: PoolPrediction): number {
  return prediction.state === 'stable' ? prediction.latencyMs : Infinity;
}

/** Sends each request at its instant, whatever becomes of those before; milliseconds of each, from when it was really sent. */
async function openLoop(pool: BenchPool, arrivals: readonly number[]): Promise<number[]> {
  const startMs = performance.now();
  const latencies: Promise<number>[] = [];
  for (const arrivalMs of arrivals) {
    const waitMs = startMs + arrivalMs - performance.now();
    if (waitMs > 0) await pause(waitMs);
    latencies.push(pool.request());
  }
  return await Promise.all(latencies);
}
