/** SERF's prediction against live Poisson load (SERF, V-D). */
import { capacityPerSecond, predictService } from '../../src/plan/index.ts';
import { BenchPool, type Subject } from './subject.ts';

export interface LevelOutcome {
  readonly concurrency: number;
  readonly threads: number;
  /** Of the capacity that was measured. */
  readonly load: number;
  readonly ratePerSecond: number;
  readonly predictedMs: number;
  readonly observedMs: number;
  /** |predicted / observed - 1|. */
  readonly errorRatio: number;
}

/** Ten levels of load on the configuration of the highest capacity, at the rate that really came. */
export async function comparePredictions(
  subject: Subject,
  options: {
    readonly cores: number;
    readonly levels: number;
    readonly requests: number;
    readonly random: () => number;
    readonly progress: (text: string) => void;
  },
): Promise<LevelOutcome[]> {
  const { cores, levels, requests, random, progress } = options;
  const [best] = subject.profile.service.configurations.toSorted(
    (a, b) => capacityPerSecond(b.serviceTime) - capacityPerSecond(a.serviceTime),
  );
  if (best === undefined) throw new Error('the profile has no service times');
  const { concurrency, threads, serviceTime } = best;
  await using pool = new BenchPool(subject, cores, 1);
  await pool.configure([{ instances: concurrency, threads, batch: 1 }], 0);
  for (let warm = 0; warm < 2 * concurrency; warm++) await pool.batch(concurrency);
  const outcomes: LevelOutcome[] = [];
  for (let level = 1; level <= levels; level++) {
    // Up to 85% of what was measured: nearer to the limit a mean takes tens of thousands of requests to settle.
    const load = (0.85 * level) / levels;
    const targetPerMs = (load * capacityPerSecond(serviceTime)) / 1000;
    progress(`${subject.name}: Poisson load at ${Math.round(load * 100)}%`);
    const { observedMs, perSecond } = await poisson(pool, targetPerMs, requests, random);
    const prediction = predictService(serviceTime, perSecond);
    if (prediction.state === 'overloaded') continue;
    const { latencyMs: predictedMs } = prediction;
    const errorRatio = Math.abs(predictedMs / observedMs - 1);
    outcomes.push({ concurrency, threads, load, ratePerSecond: perSecond, predictedMs, observedMs, errorRatio });
  }
  return outcomes;
}

/** Requests at exponential gaps, whatever becomes of the ones before: an open loop. */
async function poisson(
  pool: BenchPool,
  ratePerMs: number,
  requests: number,
  random: () => number,
): Promise<{ observedMs: number; perSecond: number }> {
  const skipped = Math.ceil(requests / 10);
  const total = requests + skipped;
  let atMs = 0;
  const arrivals = Array.from({ length: total }, () => (atMs += -Math.log(1 - random()) / ratePerMs));
  const startMs = performance.now();
  const latencies: Promise<number>[] = [];
  for (const arrivalMs of arrivals) {
    const waitMs = startMs + arrivalMs - performance.now();
    // A timer fires up to a millisecond late; what was late counts from when the request was due.
    if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
    const lateMs = Math.max(0, performance.now() - startMs - arrivalMs);
    latencies.push(pool.request().then((ms) => ms + Math.min(lateMs, 1)));
  }
  const measured = (await Promise.all(latencies)).slice(skipped);
  const spanMs = (arrivals.at(-1) ?? 0) - (arrivals[skipped - 1] ?? 0);
  return {
    observedMs: measured.reduce((sum, ms) => sum + ms, 0) / measured.length,
    perSecond: (requests / spanMs) * 1000,
  };
}
