/** What goes into the live scheduler and what comes out of it. Nothing here runs. */
import type { GpuRunOptions, RunResult } from '../../gpu/index.ts';
import type { ColdStartMode, ColdStartPlan } from '../../plan/index.ts';
import type {
  BatchShare,
  CpuOffer,
  CpuPlace,
  EvictionCause,
  GpuOffer,
  Join,
  Observation,
  PlaceReason,
  Policy,
  Start,
  WorkersOffer,
} from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';

/** A function's plans on the GPUs, as its offers stand for them. */
export interface FunctionPlans {
  readonly mode: ColdStartMode;
  /** A GPU does not hold all of its weights: each run reads some from host memory. */
  readonly isTooLarge: boolean;
  /** By GPU. */
  readonly offers: readonly GpuOffer[];
  /** The plan that a way of an offer stands for. */
  planOf(gpu: number, mode: string, variant?: string): ColdStartPlan;
}

/** What is asked of the GPU process. */
export interface GpuRunner {
  run(key: string, inputs: readonly Tensor[], options: GpuRunOptions): Promise<RunResult>;
  load(key: string, options: Omit<GpuRunOptions, 'trace'>): Promise<number>;
  trim(key: string, gpu: number, layers: number): Promise<number>;
  /** Frees the layers that this variant does not have. Resolves with the bytes freed. */
  keep(key: string, gpu: number, variant: string): Promise<number>;
}

/** How a function wants to be scheduled. */
export interface ScheduledSettings {
  readonly sloMs: number;
  /** 1 is the highest. */
  readonly priority: number;
  /** Undefined: as the host has it. */
  readonly admission?: Policy['admission'] | undefined;
}

/** Why no GPU may be used for a function, or for a call of it, now. */
export interface WhyNot {
  /** For counting. */
  readonly reason: string;
  readonly words: string;
}

/** What an invocation asks for itself, where that is not what its function does. */
export interface InvocationWish {
  /** Counted from its arrival here. */
  readonly sloMs?: number | undefined;
  /** 1 is the highest. */
  readonly priority?: number | undefined;
  /** Aborted when the client is gone: a waiting invocation leaves, a running one is finished. */
  readonly signal?: AbortSignal | undefined;
  /** Instant (performance.now()) after which it is not worth starting. */
  readonly deadlineMs?: number | undefined;
  /** No GPU is to have it, though its function may use them. */
  readonly keptOff?: WhyNot | undefined;
  /** With which calls of its function it may share a run on a GPU; undefined: with none. */
  readonly join?: Join | undefined;
}

/** Sizes in which calls of a function are joined on a GPU. */
export interface JoinedSizes {
  /** The plan variant that was timed: under others nothing is joined. */
  readonly variant: string | undefined;
  readonly shares: readonly BatchShare[];
}

/** Why an invocation runs where it does, in numbers; words.ts has the words. */
export interface Why {
  readonly reason: PlaceReason;
  /** From its arrival here to its answer, as expected when the place was chosen. */
  readonly predictedMs: number;
  /** The best of the other places that were weighed: a GPU, `cpuPlace`, `workersPlace` or `noPlace`. */
  readonly otherPlace: number;
  /** From its arrival to its answer there; Infinity where it could not run there. */
  readonly otherMs: number;
  readonly sloMs: number;
  /** Places that refused it before, with what they said. */
  readonly refusals: readonly string[];
  readonly keptOff?: WhyNot | undefined;
}

/** A load of weights that was on its way before the run began. */
export interface LoadAhead {
  readonly bytes: number;
  readonly loadMs: number;
}

export interface RanOnGpu {
  readonly kind: 'gpu';
  readonly result: RunResult;
  readonly gpu: number;
  readonly start: Start;
  readonly mode: string;
  /** The plan variant that it ran under; undefined for a function with a single plan that has no name. */
  readonly variant: string | undefined;
  /** From its arrival until the GPU was its own. */
  readonly queueMs: number;
  /** What it waited for weights while the GPU was its own. */
  readonly loadMs: number;
  readonly inferMs: number;
  /** Calls that shared the run. */
  readonly batchSize: number;
  /** What a load that was ordered ahead of the run has brought. */
  readonly ahead: LoadAhead | undefined;
  readonly why: Why;
}

/** To be run there by the caller, who tells how it ended: exactly one of both is to be called, once. */
interface Lease {
  /** From its arrival until it could start, loads that others made of its session left out. */
  readonly queueMs: number;
  /** Of the wait, what such a load took; 0: there was none. */
  readonly loadMs: number;
  readonly why: Why;
  /** It ran, or failed for a reason that no other place would mend. */
  done(observed?: Observation): void;
  /** The place could not: resolves with another one. */
  elsewhere(refusal: string): Promise<Placed>;
}

/** What becomes of an invocation. */
export type Placed =
  | RanOnGpu
  | (Lease & { readonly kind: 'cpu' })
  | (Lease & { readonly kind: 'workers' })
  /** It would have missed its SLO everywhere. */
  | { readonly kind: 'shed'; readonly predictedMs: number; readonly sloMs: number }
  /** No place takes it. */
  | { readonly kind: 'nowhere'; readonly refusals: readonly string[] };

/** No GPU ran it. */
export interface RanElsewhere {
  readonly kind: 'elsewhere';
  /** What a GPU that tried said. */
  readonly refusal: string | undefined;
}

/** Of evictions that the scheduler did not ask for. */
export type OwnCause = 'out-of-memory' | 'profiling' | 'unload' | 'failed-run';

export interface GpuEviction {
  readonly key: string;
  readonly gpu: number;
  readonly bytes: number;
  readonly cause: EvictionCause | OwnCause;
  /** The function that needed the room, where one did. */
  readonly by: string | undefined;
  /** Nothing of it is left there. */
  readonly isWhole: boolean;
  /** How long some of it had been there. */
  readonly ageMs: number;
}

/** Told to whoever keeps the records of functions on the GPUs. */
export type GpuNews =
  | { readonly kind: 'run succeeded' }
  | { readonly kind: 'run failed'; readonly error: unknown }
  | { readonly kind: 'arrived'; readonly gpu: number }
  | { readonly kind: 'evicted'; readonly eviction: GpuEviction };

export interface LiveSchedulerOptions {
  readonly policy: Policy;
  /** null: this host runs nothing on its CPU. */
  readonly cpu: CpuPlace | null;
  /** What the CPU pool of a function promises now; null where it has none. */
  readonly cpuOffer: (key: string) => CpuOffer | null;
  /** What the workers promise for a function now; null where none takes it. `ownMs`: what its runs take on this CPU. */
  readonly workersOffer?: ((key: string, ownMs: number | undefined) => WorkersOffer | null) | undefined;
  /** The session of a function on the CPU is to be closed: another needs its room. */
  readonly evictCpu?: ((key: string) => void) | undefined;
  /** Invocations of a function that may wait; more are refused. */
  readonly waitingMax?: number | undefined;
  readonly onGpuNews?: ((key: string, news: GpuNews) => void) | undefined;
  readonly onDefect?: ((message: string) => void) | undefined;
  /** Milliseconds that never go back. */
  readonly now?: (() => number) | undefined;
}

/** What a GPU has of a function. */
export interface GpuResident {
  /** Layers of the variant, counted from the first; those on their way included. */
  readonly prefix: number;
  /** The prefix that is everything. */
  readonly whole: number;
  readonly bytes: number;
  /** The plan variant; undefined where nothing is there, or for a single plan that has no name. */
  readonly variant: string | undefined;
}

/** Priorities of the protocol count down from 1, those of the scheduler up. */
export const toSchedulerPriority = (priority: number): number => -priority;

/** More wait for this function than may. */
export class QueueFullError extends Error {
  override readonly name = 'QueueFullError';
}

/** The caller is gone, or its deadline has passed, before a place had begun. */
export class LeftError extends Error {
  override readonly name = 'LeftError';
  readonly why: 'cancelled' | 'deadline';
  constructor(cause: 'cancelled' | 'deadline') {
    super(cause === 'cancelled' ? 'the client is gone' : 'the deadline passed while the invocation waited for a place');
    this.why = cause;
  }
}

/** By its name: the class itself would bring the engine, which a host without a GPU never loads. */
export const gpuErrorCode = (error: unknown): string | undefined =>
  error instanceof Error && error.name === 'GpuError' && 'code' in error ? String(error.code) : undefined;
