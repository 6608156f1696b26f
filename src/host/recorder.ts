import type { Outcome } from './statistics.ts';

/** One invocation that has ended, as a recording of the traffic keeps it. */
export interface InvocationRecord {
  readonly functionName: string;
  /** Instant (performance.now()) at which the request arrived. */
  readonly arrivalMs: number;
  /** From then to the end. */
  readonly latencyMs: number;
  readonly sloMs: number;
  /** Undefined where the client's own input or leaving was the cause of its end. */
  readonly outcome: Outcome | undefined;
  /** Running time alone, without waiting and loading; undefined where there was no answer. */
  readonly durationMs?: number;
  /** As `X-Turntable-Placement` says it. */
  readonly placement?: string;
}

/** Takes what the host's traffic was. Called on the path of every request: it must neither wait nor throw. */
export interface InvocationRecorder {
  record(record: InvocationRecord): void;
}
