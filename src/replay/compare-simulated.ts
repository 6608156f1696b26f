/**
 * Compares a measured replay with its simulation under the host's own scheduler settings, and explains the difference.
 */
import type { GpuOffer, OfferSheet } from '../schedule/index.ts';
import { differencesOf, serviceFactors, type LiveDifferences } from './live-differences.ts';
import type { OfferedFunction } from './live-scheduler.ts';
import { simulateHost, type Observed, type SimulatedHost } from './live-simulation.ts';
import type { LiveAnswer } from './live.ts';
import { ReportBuilder, type ReportContext } from './report/builder.ts';
import { tallyFields, type Tally } from './report/tally.ts';
import type { Report } from './report/types.ts';
import type { Outcome, ReplayObserver } from './types.ts';

/**
 * What a simulation takes from the measurement: nothing but arrivals; also when requests left; also how long they were
 * served.
 */
type StepGiven = 'nothing' | 'departures' | 'departures and service times';

export type SimulatedStep = ReturnType<typeof stepOf>;

export type BesideSimulator = ReturnType<typeof besideSimulator>;

/** The report of a live replay: the measured one, with the simulated one inside. */
export interface LiveReport extends Report {
  readonly beside_simulator?: BesideSimulator;
}

export interface BesideOptions {
  readonly host: SimulatedHost;
  /** The same functions, read again after the replay. */
  readonly functionsAfter: ReadonlyMap<string, OfferedFunction>;
  /** Requests at the beginning that are not counted. */
  readonly warmupRequests: number;
  readonly context: Omit<ReportContext, 'kind'>;
}

/** @param answers of all requests, by sequence */
export function besideSimulator(
  answers: readonly LiveAnswer[],
  measured: Report,
  { host, functionsAfter, warmupRequests, context }: BesideOptions,
) {
  const counted = answers.slice(warmupRequests);
  const nameOf = (index: number): string => context.functionNames[index] ?? `#${index}`;
  const run = (observed: Observed): { report: Report; differences: LiveDifferences } => {
    const builder = new ReportBuilder({ fromMs: fromMsOf(counted) });
    const outcomes = new Map<number, Outcome>();
    simulateHost(answers, host, collecting(builder, outcomes), observed);
    const report = builder.finish({ ...context, kind: 'simulated', gpuCount: host.scheduler.gpus.length });
    return { report, differences: differencesOf(counted, outcomes, nameOf) };
  };
  const foretold = run({ arrivals: 'due' });
  const factors = serviceFactors(foretold.differences.service);
  const asSent = run({ arrivals: 'sent' });
  const asServed = run({ arrivals: 'sent', factors });
  return {
    /** The host's GPUs are emulated on a CPU: its times mean nothing. */
    emulated: host.scheduler.isEmulated,
    /** With the GPUs, the policy and the offers that the host had when the replay began. */
    simulated: foretold.report,
    /** The simulation repeated, each time with more observed values in place of predicted ones. */
    steps: [
      stepOf('nothing', foretold),
      stepOf('departures', asSent),
      stepOf('departures and service times', asServed),
    ],
    differences: foretold.differences,
    /** Observed over simulated service times. */
    service_factors: factors,
    expectations_moved: expectationsMoved(host, functionsAfter, answers),
    /** Changes of functions on GPUs to another plan variant. */
    plan_changes: {
      measured: measured.plan_changes ?? noPlanChanges,
      simulated: foretold.report.plan_changes ?? noPlanChanges,
    },
    /** From GPUs, by cause. */
    gpu_evictions: {
      measured: gpuCauses(measured.evictions_by_cause),
      simulated: foretold.report.evictions_by_cause,
    },
    /** Functions on a GPU when the replay began; the simulation invokes them first. */
    resident_at_start: [...host.functions.values()].filter(({ residents }) => residents.length > 0).length,
  };
}

const noPlanChanges = { smaller: 0, larger: 0 };

/** A request that is due at this instant counts. */
const fromMsOf = ([first]: readonly LiveAnswer[]): number => first?.outcome.arrivalMs ?? 0;

function collecting(builder: ReportBuilder, outcomes: Map<number, Outcome>): ReplayObserver {
  return {
    outcome: (outcome) => {
      outcomes.set(outcome.sequence, outcome);
      builder.outcome(outcome);
    },
    eviction: (record) => builder.eviction(record),
    planChange: (record) => builder.planChange(record),
    busy: (gpu, fromMs, toMs) => builder.busy(gpu, fromMs, toMs),
  };
}

function stepOf(
  given: StepGiven,
  { report, differences }: { readonly report: Report; readonly differences: LiveDifferences },
) {
  // Without the workers: a live replay beside the simulator has none.
  const tally = Object.fromEntries(
    tallyFields.flatMap((field) => (field === 'workers' ? [] : [[field, report[field]]])),
  );
  return { given, placed_differently: differences.placed_differently, ...(tally as unknown as Tally) };
}

const gpuPrefix = 'gpu ';

/** A host's eviction causes begin with 'gpu' for GPUs, and not for its CPU pools. */
function gpuCauses(causes: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(
    Object.entries(causes)
      .filter(([cause]) => cause.startsWith(gpuPrefix))
      .map(([cause, count]) => [cause.slice(gpuPrefix.length), count]),
  );
}

const overGpus = ({ gpus }: OfferSheet, msOf: (offer: GpuOffer) => number): number =>
  gpus.reduce((total, offer) => total + (offer === null ? 0 : msOf(offer)), 0);

/**
 * The scheduler's expectations after the replay, relative to those before, since they follow its observations: for the
 * invoked functions the ratio of the sums of their sheets' times.
 */
function expectationsMoved(
  { functions, nameOf }: SimulatedHost,
  after: ReadonlyMap<string, OfferedFunction>,
  answers: readonly LiveAnswer[],
): Readonly<Record<'warm' | 'cold' | 'cpu', number | null>> {
  const names = new Set(answers.map(({ outcome: { functionIndex } }) => nameOf(functionIndex)));
  const ratio = (msOf: (sheet: OfferSheet) => number): number | null => {
    let [beforeMs, afterMs] = [0, 0];
    for (const name of names) {
      const [before, now] = [functions.get(name), after.get(name)];
      if (before === undefined || now === undefined) continue;
      beforeMs += msOf(before.sheet);
      afterMs += msOf(now.sheet);
    }
    return beforeMs > 0 ? Math.round((1000 * afterMs) / beforeMs) / 1000 : null;
  };
  return {
    warm: ratio((sheet) => overGpus(sheet, ({ warmMs }) => warmMs)),
    cold: ratio((sheet) => overGpus(sheet, ({ ways: [way] }) => way.coldMs[0] ?? 0)),
    cpu: ratio(({ cpu }) => cpu?.latencyMs ?? 0),
  };
}
