/** The messages that the host has sent to one process. */
import type { CpuError, InstanceSpec } from '../types.ts';
import type { LoadedModel, RunOrder, RunOutcome } from './instance-run.ts';
import type { Phase } from './protocol.ts';

/** A session inside a process. */
export interface SessionId {
  readonly number: number;
  readonly spec: InstanceSpec;
}

/** How a process ended. */
export interface Death {
  readonly reason: string;
  /**
   * The session that it was working for, or whose code threw: it may be the cause. Undefined: there was none, or the
   * host ended it.
   */
  readonly suspect: SessionId | undefined;
}

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
  readonly done: (outcome: RunOutcome) => void;
  /** When the instance first began it; undefined until then. */
  startedMs: number | undefined;
  phase: Phase;
  call: number;
}

/** Frees the session's memory. */
interface ReleaseTask extends TaskOf {
  readonly kind: 'release';
  readonly resolve: () => void;
}

/** A message that a process was sent and has not answered. */
export type Task = LoadTask | RunTask | ReleaseTask;
