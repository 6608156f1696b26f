/** The seam between traces, the simulator, live replay and reports. Nothing here runs. */

/** One invocation of a trace. A trace yields them in order of arrival, and never sits whole in memory. */
export interface TraceInvocation {
  /** Milliseconds from the start of the trace. */
  readonly arrivalMs: number;
  /** Index into the trace's function names. */
  readonly functionIndex: number;
  /** Running time that the trace itself recorded, where it did. */
  readonly durationMs?: number;
  /** Its own objective, where it is not the function's. */
  readonly sloMs?: number;
}

/** A trace: its functions, and its invocations in order of arrival. */
export interface Trace {
  /** Grows while a trace is read whose format does not list its functions first. */
  readonly functionNames: readonly string[];
  invocations(): AsyncIterable<TraceInvocation> | Iterable<TraceInvocation>;
}

/** Where an invocation ran, or why it did not. */
export type OutcomePlacement =
  | { readonly kind: 'gpu'; readonly gpu: number; readonly residency: 'warm' | 'partial' | 'cold' }
  | { readonly kind: 'cpu'; readonly coldStart?: boolean }
  /** On another machine, behind the queue. */
  | { readonly kind: 'worker' }
  | { readonly kind: 'shed' }
  | { readonly kind: 'failed'; readonly reason: string };

/** How one invocation ended. Instants in milliseconds from the start of the trace. */
export interface Outcome {
  /** Which invocation of those replayed it was, from 0 in order of arrival; those of a warm-up count. */
  readonly sequence: number;
  readonly functionIndex: number;
  readonly arrivalMs: number;
  /** When the answer was there; for a shed or failed one, when that was decided. */
  readonly endMs: number;
  /** Time it waited before anything was done for it. */
  readonly queueMs: number;
  readonly sloMs: number;
  readonly placement: OutcomePlacement;
  /** When the scheduler expected it to end when it chose the place; left out where nothing was predicted. */
  readonly predictedEndMs?: number | undefined;
}

/** One eviction, with its cause ('capacity', 'trim', 'migration', 'unload', ...). */
export interface EvictionRecord {
  readonly atMs: number;
  /** -1: a session on the CPU; -2: weights in pinned host memory. */
  readonly gpu: number;
  readonly functionIndex: number;
  readonly bytes: number;
  readonly cause: string;
}

/** Weights were read from disk into pinned host memory. */
export interface StageRecord {
  readonly atMs: number;
  readonly functionIndex: number;
  readonly bytes: number;
}

/** A resident function went on under another plan of its ladder: a smaller one gives GPU memory back, a larger one takes some. */
export interface PlanChangeRecord {
  readonly atMs: number;
  readonly functionIndex: number;
  readonly direction: 'smaller' | 'larger';
}

/**
 * What a replay tells while it runs; a report is built of it, and nothing else. A record is the observer's for the call
 * alone: the next one may be told with the same object.
 */
export interface ReplayObserver {
  outcome(outcome: Outcome): void;
  eviction(record: EvictionRecord): void;
  /** Left out by observers that do not care for ladders. */
  planChange?(record: PlanChangeRecord): void;
  /** Left out by observers that do not care for tiers. */
  stage?(record: StageRecord): void;
  /** A GPU's execution lane was busy for this interval. */
  busy(gpu: number, fromMs: number, toMs: number): void;
}
