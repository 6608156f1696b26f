/** Compares a measured replay with its simulation under the host's own scheduler settings. */
import { ReportBuilder, type LiveAnswer, type Outcome, type ReportContext } from '../../src/replay/index.ts';
import { differencesOf } from './differences.ts';
import { simulateHost, type SimulatedHost } from './simulation.ts';

export type BesideSimulator = ReturnType<typeof besideSimulator>;

export interface BesideOptions {
  readonly host: SimulatedHost;
  /** Requests at the beginning that are not counted. */
  readonly warmupRequests: number;
  readonly context: Omit<ReportContext, 'kind'>;
}

/** @param answers of all requests, by sequence */
export function besideSimulator(answers: readonly LiveAnswer[], { host, warmupRequests, context }: BesideOptions) {
  const counted = answers.slice(warmupRequests);
  // A request that is due at this instant counts.
  const builder = new ReportBuilder({ fromMs: counted[0]?.outcome.arrivalMs ?? 0 });
  const outcomes = new Map<number, Outcome>();
  simulateHost(answers, host, {
    outcome: (outcome) => {
      outcomes.set(outcome.sequence, outcome);
      builder.outcome(outcome);
    },
    eviction: (record) => builder.eviction(record),
    planChange: (record) => builder.planChange(record),
    busy: (gpu, fromMs, toMs) => builder.busy(gpu, fromMs, toMs),
  });
  return {
    /** With the GPUs, the policy and the offers that the host had when the replay began. */
    simulated: builder.finish({ ...context, kind: 'simulated', gpuCount: host.scheduler.gpus.length }),
    differences: differencesOf(counted, outcomes),
  };
}
