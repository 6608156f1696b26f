/** The interface between traces, the simulator, live replay and reports. Types only. */
import type { Start, Given, FunctionId, GpuId } from '../schedule/index.ts';

/** One invocation of a trace. A trace yields them in order of arrival, and is never wholly in memory. */
export interface TraceInvocation {
  /** Milliseconds from the start of the trace. */
  readonly arrivalMs: number;
  /** Index into the trace's function names. */
  readonly functionIndex: Given<FunctionId>;
  /** Running time recorded in the trace, if it has one. */
  readonly durationMs?: number;
  /** Its own SLO, if it differs from the function's. */
  readonly sloMs?: number;
}

/** A trace: its functions, and its invocations in order of arrival. */
export interface Trace {
  /** Grows while a trace is read whose format does not list its functions first. */
  readonly functionNames: readonly string[];
  invocations(): Iterable<TraceInvocation>;
}

/** Where an invocation ran, or why it did not. */
export type OutcomePlacement =
  | { readonly kind: 'gpu'; readonly gpu: Given<GpuId>; readonly residency: Start }
  | { readonly kind: 'cpu'; readonly coldStart?: boolean }
  /** On another machine, behind the queue. */
  | { readonly kind: 'worker' }
  | { readonly kind: 'shed' }
  | { readonly kind: 'failed'; readonly reason: string };

/** How one invocation ended. Instants in milliseconds from the start of the trace. */
export interface Outcome {
  /** Number of the invocation in the replay, from 0 in order of arrival; those of a warm-up count. */
  readonly sequence: number;
  readonly functionIndex: Given<FunctionId>;
  readonly arrivalMs: number;
  /** When the answer was there; for a shed or failed one, when that was decided. */
  readonly endMs: number;
  /** Time before its first activity. */
  readonly queueMs: number;
  readonly sloMs: number;
  readonly placement: OutcomePlacement;
  /** The scheduler's predicted end when it chose the place; left out if nothing was predicted. */
  readonly predictedEndMs?: number | undefined;
}

/** One eviction, with its cause ('capacity', 'trim', 'migration', 'unload', ...). */
export interface EvictionRecord {
  readonly atMs: number;
  /** A GPU, a session on the CPU, or pinned host memory; undefined: the host that tells it does not say. */
  readonly from: Given<GpuId> | 'cpu' | 'host' | undefined;
  readonly functionIndex: Given<FunctionId>;
  readonly bytes: number;
  readonly cause: string;
}

/** Weights were read from disk into pinned host memory. */
export interface StageRecord {
  readonly atMs: number;
  readonly functionIndex: Given<FunctionId>;
  readonly bytes: number;
}

/** A resident function changed its plan variant: a smaller one frees GPU memory, a larger one takes more. */
export interface PlanChangeRecord {
  readonly atMs: number;
  readonly functionIndex: Given<FunctionId>;
  readonly direction: 'smaller' | 'larger';
}

/** A function on the CPU got another list of instances, or would have: there were too few cores, or too little memory. */
export interface ListChangeRecord {
  readonly atMs: number;
  readonly functionIndex: Given<FunctionId>;
  readonly outcome: 'done' | 'refused';
  /** The load that called for it. */
  readonly cause: string;
}

/**
 * Receives what happens in a replay; a report is built from this alone. A record is valid during the call only: the
 * same object may be used for the next one.
 */
export interface ReplayObserver {
  /** Calls that arrive earlier are warm-up; left out: none is. */
  readonly measuredFromMs?: number;
  outcome(outcome: Outcome): void;
  eviction(record: EvictionRecord): void;
  /** Optional, for observers that ignore plan variants. */
  planChange?(record: PlanChangeRecord): void;
  listChange?(record: ListChangeRecord): void;
  /** Optional, for observers that ignore tiers. */
  stage?(record: StageRecord): void;
  /** A GPU's execution lane was busy for this interval. */
  busy(gpu: Given<GpuId>, fromMs: number, toMs: number): void;
}
