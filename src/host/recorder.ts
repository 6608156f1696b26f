import type { RanOn } from './placement.ts';
import type { Outcome } from './statistics.ts';

/** One invocation that has ended, as a recording of the traffic keeps it. */
export interface InvocationRecord {
  readonly functionName: string;
  readonly version: string;
  /** Instant (performance.now()) at which the request arrived. */
  readonly arrivalMs: number;
  /** From then to the end. */
  readonly latencyMs: number;
  readonly sloMs: number;
  /** Undefined where the client's own input or leaving was the cause of its end. */
  readonly outcome: Outcome | undefined;
  /** Running time alone, without waiting and loading; undefined where there was no answer. */
  readonly durationMs?: number;
  /** Of that, in the function's handler. */
  readonly handlerMs?: number;
  /** As `X-Turntable-Placement` says it. */
  readonly placement?: string;
  readonly gpu?: number | undefined;
  /** Why it ran elsewhere than it would have otherwise, in one word. */
  readonly overflow?: string | undefined;
  /** What the scheduler expected from arrival to answer. */
  readonly predictedMs?: number | undefined;
  /** Why its weights were not there, for one that waited for them. */
  readonly coldCause?: string | undefined;
  /** Where it was answered. */
  readonly ranOn?: RanOn;
  /** It waited for weights, */
  readonly cold?: boolean;
  /** for this long; 0 when it did not. */
  readonly loadMs?: number;
  readonly queueMs?: number;
}

/** Takes what the host's traffic was. Called on the path of every request: it must neither wait nor throw. */
export interface InvocationRecorder {
  record(record: InvocationRecord): void;
}

/** Several recorders as one. */
export function recordersOf(...recorders: readonly (InvocationRecorder | undefined)[]): InvocationRecorder {
  const present = recorders.filter((recorder) => recorder !== undefined);
  return {
    record: (record) => {
      for (const recorder of present) recorder.record(record);
    },
  };
}
