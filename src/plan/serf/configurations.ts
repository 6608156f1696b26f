import type { ServiceConfiguration, ServiceProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { capacityPerSecond, predictService, type ServicePrediction } from './predict.ts';

export interface SerfOptions {
  /**
   * Machines of the cluster. They are divided into serving units, each with the machines that a configuration uses for
   * one request, and share the load equally (SERF, IV-C). Default: one unit of every configuration, whatever its size.
   */
  readonly machines?: number;
}

/** The prediction for one configuration under one load. */
export interface ConfigurationPrediction {
  readonly configuration: ServiceConfiguration;
  /** Serving units that share the load; 0 if the machines are too few for one. */
  readonly units: number;
  readonly prediction: ServicePrediction;
}

/** One line of the configuration reference table (SERF, IV-D). */
export interface LoadLevel {
  readonly ratePerSecond: number;
  /** The configuration with the lowest latency; undefined if all are overloaded. */
  readonly best: ConfigurationPrediction | undefined;
  /** All of them, in the order of the profile. */
  readonly all: readonly ConfigurationPrediction[];
}

/**
 * The best configuration for each load: inter-node, intra-node and service parallelism together (SERF, IV-D). Of
 * equally fast ones the one with fewest threads.
 * @param ratesPerSecond requests per second that arrive at the whole cluster
 */
export function serfTable(
  profile: ServiceProfile,
  ratesPerSecond: readonly number[],
  { machines }: SerfOptions = {},
): LoadLevel[] {
  return ratesPerSecond.map((ratePerSecond) => {
    const all = profile.configurations.map((configuration) =>
      predictConfiguration(configuration, ratePerSecond, unitsOf(configuration, machines)),
    );
    return { ratePerSecond, best: fastest(all), all };
  });
}

/** Default load levels of a table: `count` of them, evenly up to 95% of the highest capacity of any configuration. */
export function evenLoadLevels(profile: ServiceProfile, count: number, { machines }: SerfOptions = {}): number[] {
  const most = Math.max(
    ...profile.configurations.map(
      (configuration) => capacityPerSecond(configuration.serviceTime) * unitsOf(configuration, machines),
    ),
  );
  return Array.from({ length: count }, (_, index) => Number((((index + 1) / count) * 0.95 * most).toPrecision(4)));
}

export interface LeastResourcesOptions {
  /** Requests per second that arrive at the whole cluster. */
  readonly ratePerSecond: number;
  /** Limit of the mean latency, in milliseconds. */
  readonly sloMs: number;
  /** Machines available. */
  readonly machines: number;
}

export interface ResourceChoice extends ConfigurationPrediction {
  /** Machines used: units times nodes. */
  readonly machines: number;
  /** Threads over all those machines that work when every unit is full. */
  readonly threads: number;
}

/**
 * The least resources that meet an SLO (SERF, IV-E): fewest machines, among those fewest threads, among those the
 * lowest latency. Undefined if all machines together do not meet it.
 *
 * Assumes that a unit with less load is never slower, which holds wherever requests slow each other down.
 */
export function leastResources(profile: ServiceProfile, options: LeastResourcesOptions): ResourceChoice | undefined {
  const { ratePerSecond, sloMs, machines } = options;
  if (!(sloMs > 0)) throw new PlanError(`the SLO is ${sloMs}, but must be above 0 ms`);
  if (!Number.isInteger(machines) || machines < 1) {
    throw new PlanError(`machines is ${machines}, but must be a whole number of 1 or more`);
  }
  let best: ResourceChoice | undefined;
  for (const configuration of profile.configurations) {
    const { concurrency, threads, nodes = 1 } = configuration;
    const mostUnits = unitsOf(configuration, best?.machines ?? machines);
    const candidate = leastUnits(configuration, ratePerSecond, sloMs, mostUnits);
    if (candidate === undefined) continue;
    const taken = candidate.units * nodes;
    const choice = { ...candidate, machines: taken, threads: taken * concurrency * threads };
    if (best === undefined || compareChoices(choice, best) < 0) best = choice;
  }
  return best;
}

/** By bisection: there may be thousands of machines. */
function leastUnits(
  configuration: ServiceConfiguration,
  ratePerSecond: number,
  sloMs: number,
  mostUnits: number,
): ConfigurationPrediction | undefined {
  let found: ConfigurationPrediction | undefined;
  let low = 1;
  let high = mostUnits;
  while (low <= high) {
    // First tries all of them: if they are not enough, no other number is.
    const units = found === undefined ? mostUnits : Math.floor((low + high) / 2);
    const candidate = predictConfiguration(configuration, ratePerSecond, units);
    if (latencyOf(candidate) <= sloMs) {
      found = candidate;
      high = units - 1;
    } else {
      if (found === undefined) return undefined;
      low = units + 1;
    }
  }
  return found;
}

function compareChoices(a: ResourceChoice, b: ResourceChoice): number {
  return a.machines - b.machines || a.threads - b.threads || latencyOf(a) - latencyOf(b);
}

function unitsOf({ nodes = 1 }: ServiceConfiguration, machines: number | undefined): number {
  return machines === undefined ? 1 : Math.floor(machines / nodes);
}

function predictConfiguration(
  configuration: ServiceConfiguration,
  ratePerSecond: number,
  units: number,
): ConfigurationPrediction {
  const prediction: ServicePrediction =
    units === 0
      ? { state: 'overloaded', utilisation: Infinity }
      : predictService(configuration.serviceTime, ratePerSecond / units);
  return { configuration, units, prediction };
}

function fastest(all: readonly ConfigurationPrediction[]): ConfigurationPrediction | undefined {
  const stable = all.filter(({ prediction }) => prediction.state === 'stable');
  return stable.sort((a, b) => latencyOf(a) - latencyOf(b) || threadsOf(a) - threadsOf(b))[0];
}

function latencyOf({ prediction }: ConfigurationPrediction): number {
  return prediction.state === 'stable' ? prediction.latencyMs : Infinity;
}

function threadsOf({ configuration: { concurrency, threads, nodes = 1 }, units }: ConfigurationPrediction): number {
  return concurrency * threads * nodes * units;
}
