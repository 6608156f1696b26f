/** Simulates a running host: the same arrivals, with its scheduler's inputs. */
import {
  runSimulation,
  type EvictionRecord,
  type LiveAnswer,
  type PlanChangeRecord,
  type ReplayObserver,
  type TraceInvocation,
} from '../../src/replay/index.ts';
import type { HostScheduler, OfferedFunction } from './host-scheduler.ts';

export interface SimulatedHost {
  readonly scheduler: HostScheduler;
  /** The invoked functions, and others that are on a GPU. */
  readonly functions: ReadonlyMap<string, OfferedFunction>;
  /** The host's function for a trace's function. */
  readonly nameOf: (functionIndex: number) => string;
}

/** Gap between the arrivals that load the initially resident functions onto the GPUs: no call waits. */
const preludeGapFactor = 2;

/**
 * Simulates the measured replay. The observer gets each invocation under its own sequence and arrival, with the instant
 * of the answer as a client of the simulated host would see it. Functions that were on a GPU when the replay began are
 * invoked first, the least recently used first; the observer does not hear of that.
 *
 * @param answers by sequence
 */
export function simulateHost(
  answers: readonly LiveAnswer[],
  { scheduler, functions, nameOf }: SimulatedHost,
  observer: ReplayObserver,
): void {
  const numbers = numbersOf(functions);
  const names: string[] = [];
  for (const [name, number] of numbers) names[number] = name;
  const traceIndices = new Map(answers.map(({ outcome: { functionIndex } }) => [nameOf(functionIndex), functionIndex]));
  const inOrder = answers.toSorted((one, other) => one.outcome.arrivalMs - other.outcome.arrivalMs);
  const { resident, gapMs } = preludeOf(functions);
  const offsetMs = (resident.length + 1) * gapMs;

  function* invocations(): Generator<TraceInvocation> {
    for (const [index, { name }] of resident.entries()) {
      yield { arrivalMs: index * gapMs, functionIndex: numbers.get(name)! };
    }
    for (const { outcome } of inOrder) {
      const { arrivalMs, functionIndex, sloMs } = outcome;
      yield { arrivalMs: offsetMs + arrivalMs, functionIndex: numbers.get(nameOf(functionIndex))!, sloMs };
    }
  }
  /** Passes on what happened during the replay to one of its functions, in its own numbers. */
  const replayed = <Kind extends EvictionRecord | PlanChangeRecord>(record: Kind, pass: (own: Kind) => void): void => {
    const functionIndex = traceIndices.get(names[record.functionIndex]!);
    if (record.atMs < offsetMs || functionIndex === undefined) return;
    pass({ ...record, functionIndex, atMs: record.atMs - offsetMs });
  };
  runSimulation(
    { functionNames: names, invocations },
    {
      gpus: scheduler.gpus,
      policy: scheduler.policy,
      cpu: { cores: scheduler.cpuCores, memoryBytes: Infinity },
      sheetOf: (_, name) => functions.get(name)!.sheet,
      observer: {
        outcome: ({ sequence, endMs, queueMs, placement, predictedEndMs }) => {
          const answer = inOrder[sequence - resident.length];
          if (answer === undefined) return;
          const { outcome } = answer;
          const predicted = predictedEndMs === undefined ? undefined : { predictedEndMs: predictedEndMs - offsetMs };
          observer.outcome({ ...outcome, endMs: endMs - offsetMs, queueMs, placement, ...predicted });
        },
        eviction: (record) => replayed(record, (own) => observer.eviction(own)),
        planChange: (record) => replayed(record, (own) => observer.planChange?.(own)),
        busy: (gpu, fromMs, toMs) => {
          if (toMs > offsetMs) observer.busy(gpu, Math.max(0, fromMs - offsetMs), toMs - offsetMs);
        },
      },
    },
  );
}

/** The scheduler's own numbers, since one of its routings uses them; unknown functions get numbers after those. */
function numbersOf(functions: ReadonlyMap<string, OfferedFunction>): ReadonlyMap<string, number> {
  let next = 0;
  for (const { index } of functions.values()) next = Math.max(next, (index ?? -1) + 1);
  return new Map(Array.from(functions, ([name, { index }]) => [name, index ?? next++]));
}

function preludeOf(functions: ReadonlyMap<string, OfferedFunction>): {
  readonly resident: readonly OfferedFunction[];
  readonly gapMs: number;
} {
  const resident = [...functions.values()]
    .filter(({ residents }) => residents.length > 0)
    .toSorted((one, other) => (other.idleMs ?? Infinity) - (one.idleMs ?? Infinity));
  let coldMs = 1;
  for (const { sheet } of resident) {
    for (const offer of sheet.gpus) {
      for (const way of offer?.ways ?? []) coldMs = Math.max(coldMs, way.coldMs[0] ?? 0);
    }
  }
  return { resident, gapMs: preludeGapFactor * coldMs };
}
