/** Inputs and outputs of the live scheduler. Types and plain data only. */
import { CpuError, type CallStages } from '../cpu/index.ts';
import type { GpuRunOptions, LoadResult, RunResult } from '../gpu/index.ts';
import type { ColdStartMode, ColdStartPlan } from '../plan/index.ts';
import type {
  BatchShare,
  CpuOffer,
  CpuPlace,
  EvictionCause,
  GpuOffer,
  Join,
  Observation,
  PlaceId,
  PlaceReason,
  Policy,
  Start,
  Lanes,
  SideId,
  SideOffer,
  Given,
  GpuId,
} from '../schedule/index.ts';
import type { Tensor } from '../tensor/index.ts';

/** A function's plans on the GPUs, as named by its offers. */
export interface FunctionPlans {
  readonly mode: ColdStartMode;
  /** No GPU holds all of its weights: each run reads some from host memory. */
  readonly isTooLarge: boolean;
  /** By GPU. */
  readonly offers: readonly GpuOffer[];
  /** The plan that a load option of an offer stands for. */
  planOf(gpu: Given<GpuId>, mode: string, variant?: string): ColdStartPlan;
}

/** Requests to the GPU process. What `trim`, `release` and `keep` free is free for the runs and loads after them. */
export interface GpuRunner {
  run(key: string, inputs: readonly Tensor[], options: GpuRunOptions): Promise<RunResult>;
  load(key: string, options: Omit<GpuRunOptions, 'trace'>): Promise<LoadResult>;
  trim(key: string, gpu: Given<GpuId>, layers: number): Promise<number>;
  /** Frees layers for all functions that have them. */
  release(key: string, gpu: Given<GpuId>, layers: readonly number[]): Promise<number>;
  /** Frees the function's other layers. Resolves with the bytes freed. */
  keep(key: string, gpu: Given<GpuId>, layers: readonly number[]): Promise<number>;
}

/** Settings by which a function is scheduled. */
export interface ScheduledSettings {
  readonly sloMs: number;
  /** 1 is the highest. */
  readonly priority: number;
  /** Undefined: the host's setting. */
  readonly admission?: Policy['admission'] | undefined;
}

/** Why a function, or one of its calls, may not use GPUs now. */
export interface WhyNot {
  /** For counting. */
  readonly reason: string;
  readonly words: string;
}

/** An invocation's own settings, where they differ from its function's. */
export interface InvocationTerms {
  readonly sloMs?: number | undefined;
  /** Instant (performance.now()) from which its SLO counts. Default: now. */
  readonly sinceMs?: number;
  /** 1 is the highest. */
  readonly priority?: number | undefined;
  /** Aborted when the client is gone: a waiting invocation leaves, a running one is finished. */
  readonly signal?: AbortSignal | undefined;
  /** Instant (performance.now()) after which it is not started any more. */
  readonly deadlineMs?: number | undefined;
  /** No GPU may run it, though its function may use them. */
  readonly keptOff?: WhyNot | undefined;
  /** It must run on a GPU, whatever its SLO and the other places promise. */
  readonly isForGpus?: boolean;
  /** Which calls of its function may share a run on a GPU with it; undefined: none. */
  readonly join?: Join | undefined;
  readonly stages?: CallStages | undefined;
}

/** Sizes in which calls of a function are joined on a GPU. */
export interface JoinedSizes {
  /** The plan variant that was timed; under other variants nothing is joined. */
  readonly variant: string | undefined;
  readonly shares: readonly BatchShare[];
}

/** Why an invocation runs where it does, in numbers; words.ts turns them into text. */
export interface Why {
  readonly reason: PlaceReason;
  /**
   * From {@link InvocationTerms.sinceMs} to its answer, as predicted when the place was chosen; undefined: nothing was
   * known.
   */
  readonly predictedMs: number | undefined;
  /** The best of the other places that were weighed; undefined where none was. */
  readonly otherPlace: PlaceId | undefined;
  /** The same for an answer there; Infinity where it could not run there. */
  readonly otherMs: number;
  readonly sloMs: number;
  /** Places that refused it before, with their messages. */
  readonly refusals: readonly string[];
  readonly keptOff?: WhyNot | undefined;
}

/** A load of weights that had begun before the run. */
export interface LoadAhead {
  readonly bytes: number;
  readonly loadMs: number;
}

export interface RanOnGpu {
  readonly kind: 'gpu';
  readonly result: RunResult;
  readonly gpu: Given<GpuId>;
  readonly start: Start;
  /** How missing weights came, and why not as set. */
  readonly mode: { readonly mode: string; readonly why?: string };
  /** The plan variant that it ran under; undefined for a function with a single plan that has no name. */
  readonly variant: string | undefined;
  /** From its arrival until it had the GPU. */
  readonly queueMs: number;
  /** How long it waited for weights while it had the GPU. */
  readonly loadMs: number;
  readonly inferMs: number;
  /** Calls that shared the run. */
  readonly batchSize: number;
  /** Their rows together; undefined if the call had the run alone. */
  readonly batchRows?: number | undefined;
  /** What a load ordered before the run has loaded. */
  readonly ahead: LoadAhead | undefined;
  readonly why: Why;
}

/** The caller runs it there and reports how it ended, once. */
export interface Lease {
  /** From its arrival until it could start, except loads of its session by others. */
  readonly queueMs: number;
  /** How long of the wait such a load took; 0: there was none. */
  readonly loadMs: number;
  readonly why: Why;
  /** It ran, or failed for a reason that no other place would change. */
  done(observed?: Observation): void;
}

/** Of a place beside this machine's GPUs and CPU: the caller calls exactly one of both methods. */
export interface OtherLease extends Lease {
  readonly kind: 'other';
  readonly place: SideId;
  /** The place could not run it: resolves with another place. */
  elsewhere(refusal: string): Promise<Placed>;
}

/** The result of asking for a place. */
export type Placed =
  | RanOnGpu
  | (Lease & { readonly kind: 'cpu' })
  | OtherLease
  /** It would have missed its SLO everywhere. */
  | {
      readonly kind: 'shed';
      readonly predictedMs: number;
      readonly sloMs: number;
      /** After this long another call can be taken, as far as is known. */
      readonly retryMs: number;
    }
  /** No place takes it. */
  | { readonly kind: 'nowhere'; readonly refusals: readonly string[] };

/** No GPU ran it. */
export interface RanElsewhere {
  readonly kind: 'elsewhere';
  /** The message of a GPU that tried. */
  readonly refusal: string | undefined;
}

/** Causes of evictions that the scheduler did not order. */
export type OwnCause = 'out-of-memory' | 'profiling' | 'unload' | 'failed-run';

export interface GpuEviction {
  readonly key: string;
  readonly gpu: Given<GpuId>;
  readonly bytes: number;
  readonly cause: EvictionCause | OwnCause;
  /** The function that needed the room, if there was one. */
  readonly by: string | undefined;
  /** No layers are left there. */
  readonly isWhole: boolean;
  /** How long layers of it had been there. */
  readonly ageMs: number;
}

/** News for the records of functions on the GPUs. */
export type GpuReport =
  | { readonly kind: 'run succeeded' }
  | { readonly kind: 'run failed'; readonly error: unknown }
  | { readonly kind: 'arrived'; readonly gpu: Given<GpuId> }
  | { readonly kind: 'evicted'; readonly eviction: GpuEviction };

/** A place beside the GPUs and this machine's CPU. */
export interface LivePlace {
  readonly id: SideId;
  /** To send a call there and back, beside its run. */
  readonly roundTripMs: number;
  /** What a new scheduler runs calls on there, as the place is now. */
  lanes(): Lanes;
  /** Its current offer for a function; null if it does not take it. @param ownMs time of the function's runs on this CPU */
  offer(key: string, ownMs: number | undefined): SideOffer | null;
  /** From now on it tells what its lanes are to be set to when it has changed; null: it is gone. */
  follow(changed: (to: object | null) => void): void;
}

/** A function's sessions on the CPU are to close, or one of several. */
export interface CpuEviction {
  readonly key: string;
  readonly isSpare: boolean;
  /** Nothing has used them for long. */
  readonly isIdle: boolean;
  /** The function that gets the room. */
  readonly by: string | undefined;
}

export interface LiveSchedulerOptions {
  readonly policy: Policy;
  /** null: this host runs nothing on its CPU. */
  readonly cpu: CpuPlace | null;
  /** The current offer of a function's CPU pool; null if it has none. */
  readonly cpuOffer: (key: string) => CpuOffer | null;
  readonly others?: readonly LivePlace[] | undefined;
  readonly evictCpu?: ((eviction: CpuEviction) => void) | undefined;
  /** Make a session on the CPU for calls to come. Resolves with what the function has there when that is over. */
  readonly makeSession?: ((key: string) => Promise<{ readonly bytes: number; readonly spares: number }>) | undefined;
  /** Limit of a function's waiting invocations; more are refused. */
  readonly waitingMax?: number | undefined;
  readonly onGpuReport?: ((key: string, report: GpuReport) => void) | undefined;
  /** Whether a run on a GPU succeeded and only its answer could not be taken in: the caller gets this error. Default: never. */
  readonly isForCaller?: ((error: unknown) => error is Error) | undefined;
  readonly onDefect?: ((message: string) => void) | undefined;
  /** Milliseconds that never go back. */
  readonly now?: (() => number) | undefined;
}

/** The layers that a GPU has of a function. */
export interface GpuResident {
  /** Layers of the variant, counted from the first, including those being loaded. */
  readonly prefix: number;
  /** The prefix of all layers. */
  readonly whole: number;
  readonly bytes: number;
  /** The plan variant; undefined if nothing is there, or for a single unnamed plan. */
  readonly variant: string | undefined;
  /** What other functions have as well, which the GPU has once; undefined if nothing. */
  readonly shared: { readonly base: string; readonly bytes: number; readonly keys: readonly string[] } | undefined;
}

/** Lower ones count alike: sort keys hold a priority and milliseconds in one number of 53 bits. */
const priorityMost = 10_000;

/**
 * Priorities of the protocol count down from 1 to 2^31 - 1, those of the scheduler up. Beyond these is what no client
 * waits for.
 */
export const toSchedulerPriority = (priority: number): number =>
  priority >= 2 ** 31 ? -priorityMost - 1 : -Math.min(priority, priorityMost);

/** The caller left, or its deadline passed, before a place had begun. */
export const leftError = (code: 'cancelled' | 'deadline-passed'): CpuError =>
  new CpuError(
    code,
    code === 'cancelled' ? 'the client is gone' : 'the deadline passed while the invocation waited for a place',
  );

/** By name: importing the class would load the engine, which a host without a GPU never loads. */
export const gpuErrorCode = (error: unknown): string | undefined =>
  error instanceof Error && error.name === 'GpuError' && 'code' in error ? String(error.code) : undefined;
