/** Service times as a queue sees them (SERF, IV-B): with so many requests running, back to back and after gaps. */
import { setTimeout as pause } from 'node:timers/promises';
import type { IdleCost } from '../predict/index.ts';
import { median, steadyMean, steadyVariation } from './samples.ts';

export interface ServiceTimesOptions<Worker> {
  /** Like instances, each on cores of its own. */
  readonly workers: readonly Worker[];
  /** The numbers of running instances that are measured, rising from 1. */
  readonly concurrencies: readonly number[];
  /** One request on one of them; milliseconds. */
  readonly run: (worker: Worker) => Promise<number>;
  /** Samples of each of these, at most. */
  readonly samples: number;
  /** No further pass begins after this long. */
  readonly limitMs: number;
  /** Numbers in [0, 1). */
  readonly random: () => number;
}

/**
 * Everything is measured in so many turns: a machine's speed varies by the second, and each measurement should get the
 * same mix.
 */
const passes = 5;
/** Mean gaps, in service times: loads of a third and of a ninth. */
const gapFactors = [2, 8];
/** After a longer gap a core has nothing more to lose. */
const gapMsMax = 100;

/**
 * By the number of running instances the mean milliseconds of a request and their variance over the squared mean; and by
 * the mean of the gaps how much longer a request takes on an instance that was idle.
 */
export async function measureServiceTimes<Worker>(options: ServiceTimesOptions<Worker>) {
  const { workers, concurrencies, run, samples, limitMs, random } = options;
  const untilMs = performance.now() + limitMs;
  const perPass = Math.max(2, Math.ceil(samples / passes));
  const busy = new Map(concurrencies.map((count) => [count, [] as number[]]));
  const after = gapFactors.map(() => [] as number[]);
  const [first] = workers;
  if (first === undefined) throw new RangeError('there is no instance to measure');
  let gapsMs: number[] = [];
  for (let pass = 0; pass < passes && (pass === 0 || performance.now() < untilMs); pass++) {
    for (const [count, times] of busy) times.push(...(await loops(workers.slice(0, count), perPass, run)));
    // All passes use the gaps of the first: their lengths belong to the result.
    if (pass === 0) {
      const serviceMs = median(busy.get(1) ?? []);
      gapsMs = gapFactors.map((factor) => Math.min(gapMsMax, factor * serviceMs));
    }
    for (const [at, gapMs] of gapsMs.entries()) {
      for (let sample = 0; sample < perPass; sample++) {
        await pause(Math.min(4 * gapMs, -Math.log(1 - random()) * gapMs));
        after[at]?.push(await run(first));
      }
    }
  }
  const busyMs = new Map(Array.from(busy, ([count, times]) => [count, steadyMean(times)]));
  const variation = new Map(Array.from(busy, ([count, times]) => [count, steadyVariation(times)]));
  const alone = busyMs.get(1) ?? Number.NaN;
  let mostMs = 0;
  const idle = gapsMs.map((gapMs, at): Omit<IdleCost, 'threads'> => {
    // Longer gaps cost no less; a measurement that says so is noise.
    mostMs = Math.max(mostMs, steadyMean(after[at] ?? []) - alone);
    return { gapMs, extraMs: mostMs };
  });
  return { busyMs, variation, idle };
}

/** Each instance runs in a loop; only runs beside which all the others were running count. */
async function loops<Worker>(
  workers: readonly Worker[],
  wanted: number,
  run: (worker: Worker) => Promise<number>,
): Promise<number[]> {
  const times: number[] = [];
  let isOver = false;
  await Promise.all(
    workers.map(async (worker) => {
      await run(worker);
      for (let count = 0; !isOver;) {
        const ms = await run(worker);
        if (isOver) return;
        times.push(ms);
        if (++count >= wanted) isOver = true;
      }
    }),
  );
  return times;
}
