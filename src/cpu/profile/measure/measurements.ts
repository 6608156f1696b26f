/** The measurements of a profile: their names, and how long all of them may take. */
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

/** One measurement of samples stops after this long, but not before three of them. */
export const measurementMs = 1500;
/** Loads and slow runs come on top of the time that each measurement may take. */
const budgetFactor = 2;
/** Lists that are compared for a batch: the planner's, the fat one, the thin ones; two of them are often the same. */
const listsGuess = 2;

/** Enough for all of them, whatever the model, unless its runs are very slow. */
export function budgetMsOf(plan: readonly Measurement[]): number {
  const parts = { alone: 1, dispatch: 1, lists: listsGuess };
  const count = plan.reduce((sum, each) => sum + (each.kind === 'service' ? 2 * each.levels : parts[each.kind]), 0);
  return budgetFactor * count * measurementMs;
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
