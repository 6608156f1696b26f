/** How long a measurement will still take, judging from its results so far. */
import { capacityPerSecond } from '../../../plan/index.ts';
import type { ServiceConfiguration } from '../../../profile/index.ts';
import type { MeasuredList } from '../predict/index.ts';

export type Measurement =
  /** One instance alone. */
  | { readonly kind: 'alone'; readonly threads: number; readonly batch: number }
  /** Like instances, one request of `batch` rows at a time, at so many levels of concurrency. */
  | { readonly kind: 'service'; readonly threads: number; readonly batch: number; readonly levels: number }
  /** The way of a request to its instance. */
  | { readonly kind: 'dispatch' }
  /** Every list of a batch. */
  | { readonly kind: 'lists'; readonly batch: number };

/** Each kind of instance starts a process. */
const startGuessMs = 500;
/** Runs of one pass of service times: of each level, and after gaps; a pass is the least that is measured. */
const passLevelRuns = 5;
const passGapRuns = 8;
const passes = 5;
const gapGuessMs = 50;
/** Runs that tell how long a request is on its way. */
const dispatchRuns = 25;
/** Loads and slow runs come on top of the time that each measurement may take. */
const budgetFactor = 2;
/** Lists that are compared for a batch: the planner's, the fat one, the thin ones; two of them are often the same. */
const listsGuess = 2;

export class RemainingTime {
  readonly #left: Map<string, Measurement>;
  readonly #samplesMax: number;
  readonly #measurementMs: number;
  /** Of one run alone, by threads and batch. */
  readonly #aloneMs = new Map<string, number>();
  #rowMs = 0;

  constructor(plan: readonly Measurement[], samplesMax: number, measurementMs: number) {
    this.#left = new Map(plan.map((measurement) => [JSON.stringify(measurement), measurement]));
    this.#samplesMax = samplesMax;
    this.#measurementMs = measurementMs;
  }

  /** A measurement is done: `runMs` is its median. */
  measured(measurement: Measurement, runMs: number): void {
    this.#left.delete(JSON.stringify(measurement));
    if (measurement.kind !== 'alone') return;
    const { threads, batch } = measurement;
    this.#aloneMs.set(`${threads} ${batch}`, runMs);
    // The time of a row at this batch on one thread. The latest measurement counts.
    if (threads === 1) this.#rowMs = runMs / batch;
  }

  /** Milliseconds; 0 before anything was measured, since the time is unknown. */
  leftMs(): number {
    if (this.#rowMs === 0) return 0;
    let sumMs = 0;
    for (const measurement of this.#left.values()) sumMs += this.estimateMs(measurement);
    return sumMs;
  }

  /** Enough for everything that is left, whatever the model, unless its runs are very slow. */
  get budgetMs(): number {
    const parts = { alone: 1, dispatch: 1, lists: listsGuess };
    let count = 0;
    for (const measurement of this.#left.values())
      count += measurement.kind === 'service' ? 2 * measurement.levels : parts[measurement.kind];
    return budgetFactor * count * this.#measurementMs;
  }

  /** Milliseconds; 0 before anything was measured. */
  estimateMs(measurement: Measurement): number {
    switch (measurement.kind) {
      case 'alone':
        return this.#sampledMs(this.#runMs(measurement.threads, measurement.batch));
      case 'service': {
        const { threads, batch, levels } = measurement;
        const runMs = this.#runMs(threads, batch);
        const passMs = (levels * passLevelRuns + passGapRuns) * runMs + passGapRuns * Math.min(gapGuessMs, 5 * runMs);
        const measuredMs = Math.max(passMs, Math.min(passes * passMs, levels * this.#measurementMs));
        return measuredMs + 2 ** (levels - 1) * startGuessMs;
      }
      case 'dispatch':
        return startGuessMs + dispatchRuns * this.#rowMs;
      case 'lists':
        return 2 * listsGuess * this.#sampledMs(this.#runMs(1, measurement.batch) / 2);
    }
  }

  #runMs(threads: number, batch: number): number {
    return this.#aloneMs.get(`${threads} ${batch}`) ?? (this.#rowMs * batch) / threads ** 0.7;
  }

  /** A warm run, then samples until there are enough or the time is over; at least three. */
  #sampledMs(runMs: number): number {
    return runMs + Math.max(3 * runMs, Math.min(this.#samplesMax * runMs, this.#measurementMs));
  }
}

/** Load levels, and requests at each for a steady mean (SERF, V-E). */
const loadLevels = 10;
const requestsPerLevel = 5000;

/**
 * How long it would take to measure every configuration under every load instead, in milliseconds: the arrival time of
 * so many requests at loads of 10, 20, ... 100% of 95% of what each configuration can answer.
 */
export function exhaustiveMs(configurations: readonly ServiceConfiguration[], lists: readonly MeasuredList[]): number {
  const capacities = [
    ...configurations.map(({ serviceTime }) => capacityPerSecond(serviceTime)),
    // Lists for single rows are configurations of the first kind.
    ...lists.filter(({ batch }) => batch > 1).map(({ batch, latencyMs }) => (batch / latencyMs) * 1000),
  ];
  let sumMs = 0;
  for (const perSecond of capacities) {
    for (let level = 1; level <= loadLevels; level++) {
      sumMs += (requestsPerLevel * 1000) / ((level / loadLevels) * 0.95 * perSecond);
    }
  }
  return sumMs;
}

/** For a person who waits for the measurement. */
export function labelOf(measurement: Measurement): string {
  switch (measurement.kind) {
    case 'alone':
      return `batch ${measurement.batch} on ${threadsText(measurement.threads)}`;
    case 'service':
      return `one ${measurement.batch === 1 ? 'row' : 'request'} at a time on ${threadsText(measurement.threads)}`;
    case 'dispatch':
      return 'the way to an instance';
    case 'lists':
      return `batch ${measurement.batch}, all instances at once`;
  }
}

function threadsText(threads: number): string {
  return threads === 1 ? '1 thread' : `${threads} threads`;
}
