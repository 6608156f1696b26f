/** Explains how a measured replay and its simulation differ, from both outcomes of every invocation. Pure. */
import { count, getOrMake } from '../tools/index.ts';
import type { ServiceFactors } from './live-simulation.ts';
import type { LiveAnswer } from './live.ts';
import { finite, rounded, sortedRecord } from './report/tally.ts';
import { Sketch } from './report/sketch.ts';
import type { Outcome, OutcomePlacement } from './types.ts';

/** Where an invocation ran and how much it found there, without the number of the GPU. */
export const startKinds = ['warm', 'partial', 'cold', 'cpu'] as const;
export type StartKind = (typeof startKinds)[number];

export type ServiceRow = ReturnType<typeof serviceRow>;
export type LiveDifferences = ReturnType<typeof differencesOf>;

/** An invocation that was placed differently. */
export interface Displaced {
  readonly request: number;
  readonly function: string;
  readonly at_ms: number;
  readonly measured: string;
  readonly simulated: string;
}

/**
 * @param answers measured, of the same invocations as `simulated`; both by sequence, without the warm-up @param nameOf
 * the trace's function
 */
export function differencesOf(
  answers: readonly LiveAnswer[],
  simulated: ReadonlyMap<number, Outcome>,
  nameOf: (functionIndex: number) => string,
) {
  const placements = new Map<string, { readonly measured: string; readonly simulated: string; requests: number }>();
  const functions = new Map<string, FunctionCounts>();
  const reasons = new Map<string, number>();
  const lateMs = new Sketch({ exactMax: 2 ** 16, precisionBits: 9 });
  const counts = { placed: 0, gpu: 0, start: 0, processor: 0 };
  let first: Displaced | null = null;
  for (const { outcome, sentMs, overflowReason } of answers) {
    lateMs.record(sentMs - outcome.arrivalMs);
    if (overflowReason !== undefined) count(reasons, overflowReason.replaceAll(/\d+(?:\.\d+)?/g, 'N'));
    const other = simulated.get(outcome.sequence);
    if (other === undefined) continue;
    const [here, there] = [placeText(outcome.placement), placeText(other.placement)];
    const name = nameOf(outcome.functionIndex);
    const row = getOrMake(functions, name, (): FunctionCounts => ({
      requests: 0,
      differently: 0,
      measured: new Map(),
      simulated: new Map(),
    }));
    row.requests++;
    count(row.measured, here);
    count(row.simulated, there);
    getOrMake(placements, `${here}\n${there}`, () => ({ measured: here, simulated: there, requests: 0 })).requests++;
    if (here === there) continue;
    row.differently++;
    counts.placed++;
    counts[distance(outcome.placement, other.placement)]++;
    first ??= {
      request: outcome.sequence,
      function: name,
      at_ms: rounded(outcome.arrivalMs),
      measured: here,
      simulated: there,
    };
  }
  const pairs = answers.flatMap((answer): Pair[] => {
    const other = simulated.get(answer.outcome.sequence);
    return other === undefined ? [] : [{ answer, other }];
  });
  return {
    requests: answers.length,
    /** Another processor, another start, or the same on another GPU. */
    placed_differently: counts.placed,
    on_another_gpu: counts.gpu,
    with_another_start: counts.start,
    /** GPU in one, CPU pool in the other, or no answer. */
    on_another_processor: counts.processor,
    /** Before it, all placements were the same. */
    first,
    /** Requests by their pair of places ("gpu0 warm", "cpu", "shed", "failed"); the most frequent first. */
    placements: [...placements.values()].toSorted((one, two) => two.requests - one.requests),
    service: startKinds.map((start) => serviceRow(start, pairs)),
    latency: latencyParts(pairs),
    sent_late_p50_ms: finite(lateMs.quantile(0.5)),
    sent_late_p99_ms: finite(lateMs.quantile(0.99)),
    sent_late_max_ms: finite(lateMs.max),
    /** Why the host ran requests on its CPU pools, with digits removed; the most frequent first. */
    overflow_reasons: Object.fromEntries([...reasons].toSorted(([, one], [, two]) => two - one)),
    /** Functions with requests placed differently, most such requests first. */
    functions: Array.from(functions, ([name, { requests, differently, measured, simulated: foretold }]) => ({
      function: name,
      requests,
      placed_differently: differently,
      /** Requests by where they ran. */
      measured: sortedRecord(measured),
      simulated: sortedRecord(foretold),
    }))
      .filter(({ placed_differently: differently }) => differently > 0)
      .toSorted((one, two) => two.placed_differently - one.placed_differently),
  };
}

interface Pair {
  readonly answer: LiveAnswer;
  readonly other: Outcome;
}

interface FunctionCounts {
  requests: number;
  differently: number;
  readonly measured: Map<string, number>;
  readonly simulated: Map<string, number>;
}

/** Ratio of observed to simulated service times: 1 if nothing can be compared. */
export function serviceFactors(rows: readonly ServiceRow[]): ServiceFactors {
  const factor = (...starts: readonly StartKind[]): number => {
    let [measuredMs, simulatedMs] = [0, 0];
    for (const { start, both, measured_mean_ms: measured, simulated_mean_ms: simulated } of rows) {
      if (!starts.includes(start) || measured === null || simulated === null) continue;
      measuredMs += both * measured;
      simulatedMs += both * simulated;
    }
    return measuredMs > 0 && simulatedMs > 0 ? measuredMs / simulatedMs : 1;
  };
  return { warm: factor('warm'), cold: factor('partial', 'cold'), cpu: factor('cpu') };
}

export function startOf(placement: OutcomePlacement): StartKind | undefined {
  if (placement.kind === 'gpu') return placement.residency;
  return placement.kind === 'cpu' ? 'cpu' : undefined;
}

function placeText(placement: OutcomePlacement): string {
  return placement.kind === 'gpu' ? `gpu${placement.gpu} ${placement.residency}` : placement.kind;
}

/** How different two placements are. */
function distance(one: OutcomePlacement, other: OutcomePlacement): 'gpu' | 'start' | 'processor' {
  if (one.kind !== 'gpu' || other.kind !== 'gpu') return 'processor';
  return one.residency === other.residency ? 'gpu' : 'start';
}

const servedMs = ({ loadMs, inferenceMs }: LiveAnswer): number => loadMs + inferenceMs;
const simulatedServedMs = ({ arrivalMs, endMs, queueMs }: Outcome): number => endMs - arrivalMs - queueMs;

/** Requests that began like this in the measurement, in the simulation, and in both; the milliseconds are of these. */
function serviceRow(start: StartKind, pairs: readonly Pair[]) {
  let [measured, simulated, both, measuredMs, simulatedMs] = [0, 0, 0, 0, 0];
  for (const { answer, other } of pairs) {
    const isMeasured = startOf(answer.outcome.placement) === start;
    const isSimulated = startOf(other.placement) === start;
    if (isMeasured) measured++;
    if (isSimulated) simulated++;
    if (!isMeasured || !isSimulated) continue;
    both++;
    measuredMs += servedMs(answer);
    simulatedMs += simulatedServedMs(other);
  }
  return {
    start,
    measured,
    simulated,
    both,
    /** From their first activity to the end of their execution. */
    measured_mean_ms: finite(measuredMs / both),
    simulated_mean_ms: finite(simulatedMs / both),
    /** Of the means. */
    ratio: simulatedMs > 0 ? finite(measuredMs / simulatedMs) : null,
  };
}

/** The parts of the mean latency of requests answered in both, milliseconds. */
function latencyParts(pairs: readonly Pair[]) {
  const answered = pairs.filter(
    ({ answer, other }) => startOf(answer.outcome.placement) !== undefined && startOf(other.placement) !== undefined,
  );
  const mean = (partMs: (pair: Pair) => number): number | null => {
    let sumMs = 0;
    for (const pair of answered) sumMs += partMs(pair);
    return finite(sumMs / answered.length);
  };
  return {
    requests: answered.length,
    measured_mean_ms: mean(({ answer: { outcome } }) => outcome.endMs - outcome.arrivalMs),
    simulated_mean_ms: mean(({ other }) => other.endMs - other.arrivalMs),
    /** The parts of the difference; they add up to it. */
    difference: {
      /** Sent later than they were due. */
      sent_late_ms: mean(({ answer: { outcome, sentMs } }) => sentMs - outcome.arrivalMs),
      /** Between client and host, and in the client. */
      transport_ms: mean(({ answer: { outcome, sentMs, hostMs } }) => outcome.endMs - sentMs - hostMs),
      /** In the host, besides queueing, loading and executing. */
      host_ms: mean(({ answer }) => answer.hostMs - answer.outcome.queueMs - servedMs(answer)),
      queued_longer_ms: mean(({ answer: { outcome }, other }) => outcome.queueMs - other.queueMs),
      served_longer_ms: mean(({ answer, other }) => servedMs(answer) - simulatedServedMs(other)),
    },
  };
}
