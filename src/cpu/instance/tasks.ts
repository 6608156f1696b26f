/** The messages that the host has sent to one process, and what becomes of them. */
import type { Tensor } from '../../tensor/index.ts';
import type { CallHeader, FromInstance, Joining, Phase, RunResult } from './protocol.ts';
import type { CallStages, CpuError, InstanceSpec, InvokeOthers, PoolLimits, RunModel } from '../types.ts';

/** A session inside a process. */
export interface SessionId {
  readonly number: number;
  readonly spec: InstanceSpec;
  /** So many more runs than before: calls have left a run with others; fewer: they go on as one. */
  readonly divided: (more: number) => void;
  /** A run leaves the process, to wait for its model or for other functions, or is back. */
  readonly moved: (isAway: boolean) => void;
  /** Its process has worked for another session for half of the time after which it is ended. */
  readonly endangered: () => void;
}

/** How a process ended. */
export interface Death {
  readonly reason: string;
  /**
   * The session that it was working for, or whose code threw: it may be the cause. Undefined: there was none, or the
   * host ended it.
   */
  readonly suspect: SessionId | undefined;
  /** Set if the code that ran for the suspect ended the process. */
  readonly crash: Crash | undefined;
}

/** A process ended by a fault of its own code, not by the host, by the kernel for want of memory, or by a signal. */
export interface Crash {
  /** What it was doing: 'in a run of the model'. */
  readonly during: string;
  /** It was working on one call, or on none. */
  readonly isOfOneCall: boolean;
  /** The processor refused a division of whole numbers in a run of the model: by zero, or of the least one by -1. */
  readonly isDivision: boolean;
}

/** Lines that an instance, or the handler in it, wrote to its standard output and error. */
export type InstanceLog = (pid: number | undefined, key: string | undefined, line: string) => void;

/** `loadTimeoutMs`: for a model that is loaded at its first run. `batchMax`: rows of calls that come back together. */
export type RunLimits = Pick<PoolLimits, 'handlerTimeoutMs' | 'loadTimeoutMs' | 'inferTimeoutMs' | 'batchMax'>;

/** A call that an instance is given. */
export interface OrderedCall {
  readonly call: CallHeader;
  /** Runs its model in place of the instance. */
  readonly modelRun?: { readonly run: RunModel } | undefined;
  /** Calls other functions for its handler. */
  readonly invokeOthers?: InvokeOthers | undefined;
  /** Told when it enters the next step. */
  readonly stages?: CallStages | undefined;
}

/** The work that an instance is given. */
export interface RunOrder {
  /** Whether calls with like inputs may share a run of the model. */
  readonly join: Joining;
  readonly calls: readonly OrderedCall[];
  /** The calls' tensors, in their order. */
  readonly tensors: readonly Tensor[];
  readonly limits: RunLimits;
}

/**
 * Called for each of the runs that orders became, with its calls: those that waited for the host have their own, which
 * calls of other orders of the session may share.
 */
export type RunDone = (outcome: RunOutcome, calls: readonly OrderedCall[]) => void;

/** How a run ended. `startedMs` (performance.now()) is when the instance began it. */
export type RunOutcome =
  | { readonly kind: 'ran'; readonly startedMs: number; readonly result: RunResult }
  /**
   * The instance died. `suspect`: it was working on this run, which may have killed it. `isDivision`: see {@link Crash},
   * of a suspect.
   */
  | { readonly kind: 'died'; readonly reason: string; readonly suspect: boolean; readonly isDivision: boolean }
  /**
   * The instance was stopped because a step took too long: a step of `call`, of those of the run, or the model's run for
   * all of them (-1).
   */
  | { readonly kind: 'timeout'; readonly error: CpuError; readonly call: number };

/** How a load ended; `loadMs` by the instance's own clock. */
export type LoadedModel = Omit<FromInstance & { readonly op: 'loaded' }, 'op'>;

interface TaskOf {
  isLong: boolean;
  readonly session: SessionId;
}

export interface LoadTask extends TaskOf {
  readonly kind: 'load';
  readonly limitMs: number;
  hasBegun: boolean;
  readonly resolve: (loaded: LoadedModel) => void;
  readonly reject: (error: CpuError) => void;
}

export interface RunTask extends TaskOf {
  readonly kind: 'run';
  readonly order: RunOrder;
  /** Those that are in the run now. */
  calls: readonly OrderedCall[];
  readonly done: RunDone;
  /** When the instance first began it; undefined until then. */
  startedMs: number | undefined;
  phase: Phase;
  call: OrderedCall | undefined;
}

/** Frees the session's memory. */
interface ReleaseTask extends TaskOf {
  readonly kind: 'release';
  readonly resolve: () => void;
}

/** A message that a process was sent and has not answered. */
export type Task = LoadTask | RunTask | ReleaseTask;
