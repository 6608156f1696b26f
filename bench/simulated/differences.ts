/** How a measured replay and its simulation differ, from both outcomes of every invocation. Pure. */
import type { LiveAnswer, Outcome, OutcomePlacement } from '../../src/replay/index.ts';

/** Where an invocation ran and how much it found there, without the number of the GPU. */
const startKinds = ['warm', 'partial', 'cold', 'disk', 'cpu'] as const;
type StartKind = (typeof startKinds)[number];

/** @param answers measured, of the same invocations as `simulated`; both by sequence, without the warm-up */
export function differencesOf(answers: readonly LiveAnswer[], simulated: ReadonlyMap<number, Outcome>) {
  const pairs = answers.flatMap((answer): Pair[] => {
    const other = simulated.get(answer.outcome.sequence);
    return other === undefined ? [] : [{ answer, other }];
  });
  const counts = { gpu: 0, start: 0, processor: 0 };
  for (const { answer, other } of pairs) {
    const distance = distanceOf(answer.outcome.placement, other.placement);
    if (distance !== undefined) counts[distance]++;
  }
  return {
    requests: answers.length,
    /** Another processor, another start, or the same on another GPU. */
    placed_differently: counts.gpu + counts.start + counts.processor,
    on_another_gpu: counts.gpu,
    with_another_start: counts.start,
    /** GPU in one, CPU pool in the other, or no answer. */
    on_another_processor: counts.processor,
    service: startKinds.map((start) => serviceRow(start, pairs)),
    latency: latencyParts(pairs),
  };
}

interface Pair {
  readonly answer: LiveAnswer;
  readonly other: Outcome;
}

function startOf(placement: OutcomePlacement): StartKind | undefined {
  if (placement.kind === 'gpu') return placement.residency;
  return placement.kind === 'cpu' ? 'cpu' : undefined;
}

/** How different two placements are; undefined: alike. */
function distanceOf(one: OutcomePlacement, other: OutcomePlacement): 'gpu' | 'start' | 'processor' | undefined {
  if (one.kind !== 'gpu' || other.kind !== 'gpu') return one.kind === other.kind ? undefined : 'processor';
  if (one.residency !== other.residency) return 'start';
  return one.gpu === other.gpu ? undefined : 'gpu';
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

/** Rounded to nanoseconds; null for the mean of nothing. */
const finite = (value: number): number | null => (Number.isFinite(value) ? Math.round(value * 1e6) / 1e6 : null);
