/** What goes into the live shell and what comes out of it. Nothing here runs. */
import type { RunResult } from '../../gpu/index.ts';
import type { ColdStartPlan } from '../../plan/index.ts';
import type { CpuOffer, EvictionCause, Policy, SchedulerEvent, SchedulerGpu, Start } from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';

/** What the shell needs of the GPU process. */
export interface GpuRunner {
  run(
    key: string,
    inputs: readonly Tensor[],
    options: {
      readonly gpu: number;
      readonly plan: ColdStartPlan;
      /** The rung of the function's ladder to run under; its only plan where it is left out. */
      readonly rung?: string;
      readonly signal?: AbortSignal;
      readonly trace?: boolean;
    },
  ): Promise<RunResult>;
  load(
    key: string,
    options: {
      readonly gpu: number;
      readonly plan: ColdStartPlan;
      readonly rung?: string;
      readonly signal?: AbortSignal;
    },
  ): Promise<number>;
  trim(key: string, gpu: number, layers: number): Promise<number>;
  /** Gives back the layers that this rung of the function does not have. Resolves with the bytes that are free then. */
  keep(key: string, gpu: number, rung: string): Promise<number>;
}

/** What an invocation asks for itself, where that is not what its function does. */
export interface GpuWish {
  /** Counted from its arrival here. */
  readonly sloMs?: number | undefined;
  /** 1 is the highest. */
  readonly priority?: number | undefined;
}

/** Priorities of the protocol count down from 1, those of the scheduler up. */
export const toSchedulerPriority = (priority: number): number => -priority;

/** An invocation as the scheduler is told of it. */
export function arrivalOf(invocation: number, functionIndex: number, { sloMs, priority }: GpuWish): SchedulerEvent {
  return {
    kind: 'arrival',
    invocation,
    functionIndex,
    ...(sloMs === undefined ? {} : { sloMs }),
    ...(priority === undefined ? {} : { priority: toSchedulerPriority(priority) }),
  };
}

/** How an invocation that was shown to the shell ended there. */
export type GpuOutcome =
  | {
      readonly kind: 'ran';
      readonly result: RunResult;
      readonly gpu: number;
      readonly start: Start;
      readonly mode: string;
      /** The rung of its ladder that it ran under; undefined for a function with a single plan that has no name. */
      readonly rung: string | undefined;
      /** From its arrival until the GPU was its own. */
      readonly queueMs: number;
      /** What it waited for weights while the GPU was its own. */
      readonly loadMs: number;
      readonly inferMs: number;
      /** What the scheduler had expected from arrival to answer, when it started. */
      readonly predictedMs: number;
    }
  /** To be run by the CPU pool. `done` is called when that has ended, and told whether with an answer. */
  | { readonly kind: 'offload'; readonly reason: string; readonly done: (isAnswered?: boolean) => void }
  | { readonly kind: 'shed'; readonly reason: string };

/** Of evictions that the scheduler did not ask for. */
export type OwnCause = 'out-of-memory' | 'profiling';

export interface ShellEviction {
  readonly key: string;
  readonly gpu: number;
  readonly bytes: number;
  readonly cause: EvictionCause | OwnCause;
  /** How long some of it had been there. */
  readonly ageMs: number;
}

export interface ShellOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  readonly cpuCores: number;
  readonly runner: GpuRunner;
  /** What the CPU pool of a function promises now. */
  readonly cpuOffer: (key: string) => CpuOffer;
  readonly onEvicted?: (eviction: ShellEviction) => void;
  readonly onDefect?: (message: string) => void;
  /** Milliseconds that never go back. */
  readonly now?: () => number;
}

/** What the scheduler has decided so far. */
export interface ShellCounts {
  /** Executions that found everything, some of it, or nothing on the GPU. */
  readonly starts: Record<Start, number>;
  readonly offloaded: number;
  readonly shed: number;
  readonly evictions: ReadonlyMap<ShellEviction['cause'], number>;
  /** Resident functions that went to a smaller plan for room, and to a larger one with the room that there was. */
  readonly shrinks: number;
  readonly growths: number;
}

/** What a GPU has of a function. */
export interface ShellResident {
  /** Layers of the rung, counted from the first; those on their way included. */
  readonly prefix: number;
  /** The prefix that is everything. */
  readonly whole: number;
  readonly bytes: number;
  /** The rung of its ladder; undefined where nothing is there, or for a single plan that has no name. */
  readonly rung: string | undefined;
}
