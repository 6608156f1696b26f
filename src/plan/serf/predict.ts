import { PlanError } from '../plan-error.ts';

/** The prediction of the M/D_interf/c queue; times in milliseconds. */
export type ServicePrediction =
  | {
      readonly state: 'stable';
      /** Mean time from arrival to answer: waiting and service (Equation 12). */
      readonly latencyMs: number;
      /** Mean time in the queue (Equation 10). */
      readonly waitMs: number;
      /** Mean time of running, slowed down by concurrent requests (Equation 11). */
      readonly serviceMs: number;
      /** Load over capacity: rho, below 1. */
      readonly utilisation: number;
      /** Share of time without any request: p0 (Equation 3). */
      readonly idleProbability: number;
      /** Share of requests that find all c running, and wait. */
      readonly waitProbability: number;
      /** What {@link ServiceOptions.idleExtraMs} adds to the mean service time. */
      readonly idleMs: number;
    }
  /**
   * Requests arrive at least as fast as they can be answered: the queue grows without limit, and there is no latency.
   */
  | { readonly state: 'overloaded'; readonly utilisation: number };

/** How a real service differs from the paper's. */
export interface ServiceOptions {
  /**
   * Variance of the service times over their squared mean, which the paper takes as 0. The wait is longer by it (Pollaczek
   * and Khinchin for one instance; a usual approximation for several).
   */
  readonly variation?: number;
  /**
   * How much longer a request takes on an instance that was idle for so long on average. Service times are those of
   * back-to-back requests; this is added for the share that finds an instance idle.
   */
  readonly idleExtraMs?: (gapMs: number) => number;
}

/**
 * Mean latency of a service that runs at most c requests at once, each slower the more of them run (SERF, IV-C).
 * Assumes Poisson arrivals, and service times that depend only on the number of running requests.
 *
 * With rho_i = lambda / mu_i and rho = lambda / (c mu_c), the states of the M/M_interf/c queue have the probabilities
 * p_n = p_0 (rho_1 ... rho_n) / n! up to c and p_c rho^(n-c) beyond (Equation 1). Its waiting time (Equation 6) is
 * halved and corrected as Cosmetatos does for M/D/c (Equations 7 to 10):
 *
 *   wait    = 1/2 (1 + f(c) (1 - rho) / rho) p_c / lambda rho / (1 - rho)^2,  f(c) = (c - 1) (sqrt(4 + 5c) - 2) / 16c
 *   service = sum over i = 1..c of p_(i-1) / mu_i, and all states from c on count with 1 / mu_c  (Equation 11)
 *
 * Off by up to 3% from a simulation if service times grow smoothly; by more, and too high, if they jump at the last
 * running request (3 times at c = 4: 11%).
 *
 * @param serviceTimeMs milliseconds of a request while 1, 2, ... c requests run; c is its length
 * @param ratePerSecond lambda, requests per second
 */
export function predictService(
  serviceTimeMs: readonly number[],
  ratePerSecond: number,
  { variation = 0, idleExtraMs }: ServiceOptions = {},
): ServicePrediction {
  const plain = predictSteady(serviceTimeMs, ratePerSecond);
  if (plain.state === 'overloaded') return plain;
  const gapMs = idleGapMs(serviceTimeMs.length, plain.utilisation, ratePerSecond);
  const idleMs = idleExtraMs === undefined ? 0 : (1 - plain.waitProbability) * idleExtraMs(gapMs);
  const slowed =
    idleMs === 0
      ? plain
      : predictSteady(
          serviceTimeMs.map((timeMs) => timeMs + idleMs),
          ratePerSecond,
        );
  // This close to the capacity hardly any instance is ever idle.
  const found = slowed.state === 'overloaded' ? plain : slowed;
  const waitMs = found.waitMs * (1 + variation);
  return { ...found, waitMs, latencyMs: waitMs + found.serviceMs, idleMs: slowed.state === 'overloaded' ? 0 : idleMs };
}

/** Mean time that each of `instances` is idle for each request that it gets, milliseconds. */
export function idleGapMs(instances: number, utilisation: number, ratePerSecond: number): number {
  return ratePerSecond > 0 ? (1000 * instances * (1 - utilisation)) / ratePerSecond : Infinity;
}

/** The formula alone. */
function predictSteady(serviceTimeMs: readonly number[], ratePerSecond: number): ServicePrediction {
  const concurrency = serviceTimeMs.length;
  checkService(serviceTimeMs, ratePerSecond);
  const rate = ratePerSecond / 1000; // per millisecond, as the service times are
  const utilisation = ratePerSecond / capacityPerSecond(serviceTimeMs);
  if (utilisation >= 1) return { state: 'overloaded', utilisation };
  const [firstMs = 0] = serviceTimeMs;
  if (rate === 0) {
    const empty = { utilisation: 0, idleProbability: 1, waitProbability: 0, idleMs: 0 };
    return { state: 'stable', latencyMs: firstMs, waitMs: 0, serviceMs: firstMs, ...empty };
  }
  const states = stateProbabilities(serviceTimeMs, rate, utilisation);
  const busy = states[concurrency] ?? 0; // P(n >= c), which is p_c / (1 - rho)
  const perCenter = busy / (rate * (1 - utilisation)); // p_c / lambda / (1 - rho)^2
  const waitMs = 0.5 * (utilisation + cosmetatosFactor(concurrency) * (1 - utilisation)) * perCenter;
  let serviceMs = busy * (serviceTimeMs[concurrency - 1] ?? 0);
  for (const [index, timeMs] of serviceTimeMs.entries()) serviceMs += (states[index] ?? 0) * timeMs;
  return {
    state: 'stable',
    latencyMs: waitMs + serviceMs,
    waitMs,
    serviceMs,
    utilisation,
    idleProbability: states[0] ?? 0,
    waitProbability: busy,
    idleMs: 0,
  };
}

/** Highest rate of answers, with c running requests: c mu_c per second. No higher rate is stable. */
export function capacityPerSecond(serviceTimeMs: readonly number[]): number {
  return (serviceTimeMs.length / (serviceTimeMs.at(-1) ?? Infinity)) * 1000;
}

/** Equation 8: how far the waiting time of many servers is from half that of exponential ones. */
export function cosmetatosFactor(concurrency: number): number {
  return ((concurrency - 1) * (Math.sqrt(4 + 5 * concurrency) - 2)) / (16 * concurrency);
}

/**
 * Equations 1 to 3: the probabilities of 0, 1, ... c - 1 requests in the system, then that of c or more. The products
 * grow like e^c, so they are kept as logarithms until they are divided by their sum.
 */
function stateProbabilities(serviceTimeMs: readonly number[], rate: number, utilisation: number): Float64Array {
  const concurrency = serviceTimeMs.length;
  const logs = new Float64Array(concurrency + 1);
  for (let n = 1; n <= concurrency; n++) {
    logs[n] = (logs[n - 1] ?? 0) + Math.log((rate * (serviceTimeMs[n - 1] ?? 0)) / n);
  }
  logs[concurrency] = (logs[concurrency] ?? 0) - Math.log1p(-utilisation);
  const largest = Math.max(...logs);
  const weights = logs.map((log) => Math.exp(log - largest));
  const sum = weights.reduce((total, weight) => total + weight, 0);
  return weights.map((weight) => weight / sum);
}

/** @throws PlanError for a service or a rate that no queue can have */
export function checkService(serviceTimeMs: readonly number[], ratePerSecond: number): void {
  if (serviceTimeMs.length === 0)
    throw new PlanError('there is no service time: one is needed for each running request');
  const wrong = serviceTimeMs.findIndex((timeMs) => !(timeMs > 0) || !Number.isFinite(timeMs));
  if (wrong >= 0) {
    throw new PlanError(
      `the service time with ${wrong + 1} running is ${serviceTimeMs[wrong]}, but must be above 0 ms`,
    );
  }
  if (!(ratePerSecond >= 0) || !Number.isFinite(ratePerSecond)) {
    throw new PlanError(`the rate is ${ratePerSecond}, but must be 0 or more requests per second`);
  }
}
