/** The interface between the host and the CPU pools: what runs, its inputs and outputs. Types only. */
import type { ModelOpening } from '../onnx/index.ts';
import type { PoolConfiguration } from '../schedule/index.ts';
import type { Tensor } from '../tensor/index.ts';
import type { FunctionReply, HandlerCall } from './instance/handler.ts';

export type { PoolConfiguration, PoolGroup } from '../schedule/index.ts';

/** What an instance needs to load a function. */
export interface InstanceSpec {
  /** `name@version`, unique among everything a host serves. */
  readonly key: string;
  /** Absolute path of the ONNX file; external data lies beside it. */
  readonly modelPath: string;
  /** Absolute path of a JavaScript module with the handler, already compiled from TypeScript where needed. */
  readonly handlerPath?: string;
  /** Names of the model's inputs, for instances that run a handler without having loaded the model. */
  readonly inputNames?: readonly string[];
  /** How the model is opened; default: its file as it is. */
  readonly opening?: ModelOpening;
  /** Intra-op threads of the session, while the pool runs on demand; a {@link PoolConfiguration} brings its own. */
  readonly threads: number;
  /**
   * Identifies the bytes of the model and of its external data, for example by their sha256. Instances with the same
   * identity share the memory of their weights. Without it each loads the weights for itself.
   */
  readonly modelIdentity?: string;
  /**
   * Bytes of the model's file and its external data: the basis for the size of a session until one has been measured.
   */
  readonly modelBytes?: number;
  /** What runs of it keep beside the session, by its graph: counts until it has been measured. */
  readonly runBytes?: number;
  /** `own`: it shares no process with other functions. Default `shared`. */
  readonly isolation?: 'own' | 'shared';
}

/**
 * `none`: the configuration is active already. `scale`: instances were added or ended. `switch`: a new set took over.
 */
export type ReconfigurationKind = 'none' | 'scale' | 'switch';

/** How `CpuPools.configure` ended. */
export type Reconfiguration = {
  readonly kind: ReconfigurationKind;
  /** From the call until the outcome was known; old instances then drain in the background. */
  readonly ms: number;
  /** The active configuration; undefined: on demand. */
  readonly configuration: PoolConfiguration | undefined;
} & (
  | { readonly state: 'done' }
  /** It cannot run now on this machine or with this model: `reason` in one sentence. Nothing was started. */
  | { readonly state: 'refused'; readonly reason: string }
  /** An instance could not be started; the previous configuration is still active. */
  | { readonly state: 'failed'; readonly reason: string }
);

/**
 * Why an instance ended: its function was idle, another function needed room, it was unloaded, another configuration
 * took over, or it died.
 */
export type GiveUpCause = 'idle' | 'room' | 'unload' | 'reconfigured' | 'died';

/** Sent to observers of pools' configurations. */
export type Reconfigured = Reconfiguration & {
  readonly key: string;
  /** As given to `CpuPools.configure`; `unload` or `idle` if the pool released its instances. */
  readonly cause: string;
  readonly from: PoolConfiguration | undefined;
  /** What was asked for. */
  readonly to: PoolConfiguration | undefined;
};

/** Limits of one function's pool. */
export interface PoolLimits {
  /** Instances that are loaded ahead and kept however idle: 1 for a pinned function, else 0. */
  readonly instancesMin: number;
  /** Most instances at once. */
  readonly instancesMax: number;
  /** Most requests that one run of the model may serve; 1 where its batch dimension is fixed to 1. */
  readonly batchMax: number;
  /** Rows that every run must have, where the model's batch dimension is fixed to them. */
  readonly batchFixed?: number;
  /** Longest that a request waits for others to share its run. 0: only those that already wait are joined. */
  readonly batchDelayMs: number;
  /** Instances beyond `instancesMin` are released after this long without work. */
  readonly idleMs: number;
  /** Wall-clock limit of one handler step (preprocess or postprocess). */
  readonly handlerTimeoutMs: number;
  /** Wall-clock limit of loading a model into an instance. */
  readonly loadTimeoutMs: number;
  /** Wall-clock limit of one run of the model. */
  readonly inferTimeoutMs: number;
}

/** A plain HTTP request, as a handler's `preprocess` receives it. */
export type HandlerRequest = Omit<HandlerCall, 'text' | 'json'>;

/** What a handler's `postprocess` returns. */
export type HandlerResponse = Omit<FunctionReply, 'text' | 'json'>;

export type PoolInput =
  | { readonly kind: 'tensors'; readonly tensors: readonly Tensor[]; readonly outputs?: readonly string[] }
  | { readonly kind: 'request'; readonly request: HandlerRequest };

export type PoolOutput =
  | { readonly kind: 'tensors'; readonly tensors: readonly Tensor[] }
  | { readonly kind: 'response'; readonly response: HandlerResponse };

/** Where the time of one invocation went, in milliseconds. */
export interface PoolTimings {
  /** From its arrival until it was sent to an instance, less the load that it waited for. */
  readonly queueMs: number;
  /** Time it waited for an instance to load the model; 0 when one was warm. */
  readonly loadMs: number;
  readonly preprocessMs: number;
  /** The model's run, as the instance measured it; shared by all requests of a batch. */
  readonly inferMs: number;
  readonly postprocessMs: number;
  /** How much of handler and model together others had the cores; undefined where that is not measured. */
  readonly coreWaitMs?: number;
}

export interface PoolResult {
  readonly output: PoolOutput;
  readonly timings: PoolTimings;
  /** True when the invocation waited for a load. */
  readonly coldStart: boolean;
  /** Requests that shared the run. */
  readonly batchSize: number;
  /** Rows of that run; undefined if the request had it alone. */
  readonly batchRows?: number | undefined;
  /** Process id of the instance, for logs. */
  readonly instancePid: number;
  /** {@link InvokeOptions.runModel} ran the model; `inferMs` is then how long the instance waited for that. */
  readonly modelElsewhere?: true | undefined;
}

/**
 * Runs the model of one invocation in place of its instance, on the results of the handler's `preprocess`. Resolves to
 * all outputs of the model, in its order, or to undefined if the instance should run it after all. If it rejects, the
 * invocation rejects with the same error. An invocation whose instance died meanwhile calls it once more.
 */
export type RunModel = (inputs: readonly Tensor[]) => Promise<readonly Tensor[] | undefined>;

/** A handler's call to another function: to run its model on tensors, or its handler on a request. */
export interface OtherCall {
  readonly name: string;
  readonly input: PoolInput;
}

/** `error`: with a code and a status of the host's catalogue. */
export type OtherAnswer =
  PoolOutput | { readonly kind: 'error'; readonly code: string; readonly status: number; readonly message: string };

/** Calls other functions for a handler. Resolves when all have answered, to one answer for each; never rejects. */
export type InvokeOthers = (calls: readonly OtherCall[]) => Promise<readonly OtherAnswer[]>;

/** What a call waits for, or what is done with it; `away`: at a worker or another host. */
export type CallStage = 'turn' | 'load' | 'handler' | 'model' | 'away';

/** Is told of a call's stages as they begin. */
export interface CallStages {
  enter(stage: CallStage): void;
}

export interface InvokeOptions {
  /** Instant (performance.now()) after which the invocation is refused instead of started. */
  readonly deadlineMs?: number | undefined;
  /** 1 is the highest. For a worker that runs it instead: a pool takes calls in the order in which it is handed them. */
  readonly priority?: number;
  /**
   * Aborted when the client is gone: a waiting invocation is dropped; a running one is finished and its answer dropped.
   */
  readonly signal?: AbortSignal | undefined;
  /**
   * For a request to a handler: runs its model elsewhere. Both halves of the handler run in one instance, which serves
   * other calls meanwhile.
   */
  readonly runModel?: RunModel;
  /** For a request to a handler: calls other functions for it; its instance serves other calls meanwhile. */
  readonly invokeOthers?: InvokeOthers;
  readonly stages?: CallStages | undefined;
}

export interface LoadOptions {
  /** An instance with the handler alone is enough: the model runs elsewhere. */
  readonly handlerOnly?: boolean;
}

/** Every failure of a pool, by a code that the host's catalogue maps to a status. */
export type CpuErrorCode =
  | 'instance-died'
  | 'model-load-failed'
  | 'inference-failed'
  | 'inference-input'
  | 'inference-timeout'
  | 'handler-failed'
  | 'handler-input'
  | 'handler-timeout'
  | 'queue-full'
  | 'too-many-requests'
  | 'deadline-passed'
  | 'cancelled'
  | 'unknown-function'
  | 'stopping';

export class CpuError extends Error {
  override readonly name = 'CpuError';
  readonly code: CpuErrorCode;
  /** For handler errors: the status that the handler asked for. */
  readonly status: number | undefined;
  constructor(code: CpuErrorCode, message: string, status?: number) {
    super(message);
    this.code = code;
    this.status = status;
  }
}

/** One function's pool, for `/metrics`, statistics and `doctor`. Reading it is never a use. */
export interface PoolState {
  readonly key: string;
  readonly instances: readonly {
    readonly pid: number;
    readonly state: 'loading' | 'idle' | 'busy';
    readonly threads: number;
    /** Cores that it owns alone, by the operating system's numbers; none while the pool runs on demand. */
    readonly cores: readonly number[];
    /** Other functions may share its process. Absent: it has its own. */
    readonly isShared?: true;
    /** What its session takes, as measured or expected; with its process, if that is its own. */
    readonly bytes: number;
    /** Absent: true. False while it has only run the handler of a model that runs elsewhere. */
    readonly holdsModel?: boolean;
  }[];
  readonly queueLength: number;
  readonly inFlight: number;
  /** The active configuration, which new requests go to. Undefined: instances come and go on demand. */
  readonly configuration: PoolConfiguration | undefined;
  /** Being started beside it. */
  readonly starting: PoolConfiguration | undefined;
  /** Requests per second over the last {@link arrivalWindowMs}; each part of a cut request counts. */
  readonly arrivalsPerSecond: number;
  /**
   * Rows that wait or run (with a fixed batch: requests), averaged over time with exponential weights and a time
   * constant of one second.
   */
  readonly queueDepth: number;
  /**
   * Smoothed time of an instance's start in milliseconds: from taking a process, blank if there was one, until it was
   * ready. Undefined before the first.
   */
  readonly startMs: number | undefined;
}

/** A function that gets no process, because it has killed the ones before. */
export interface Stopped {
  /** In a row. */
  readonly crashes: number;
  /** How the last process ended, and what it was doing: 'it was ended by SIGSEGV in a run of the model'. */
  readonly reason: string;
  /** When it gets another one (performance.now()); Infinity: when it is loaded. */
  readonly untilMs: number;
}

/** `4 of its processes in a row crashed, ...`: completes 'it cannot serve: '. */
export function stoppedText({ crashes, reason, untilMs }: Stopped, nowMs: number): string {
  const again =
    untilMs === Infinity
      ? 'it gets no other until it is loaded anew or another version is published'
      : `it gets another one in ${Math.max(0, Math.ceil((untilMs - nowMs) / 1000))} s`;
  return `${crashes} processes in a row died of it, the last one because ${reason}; ${again}`;
}

/** The window of {@link PoolState.arrivalsPerSecond}, in milliseconds. */
export const arrivalWindowMs = 10_000;

/** Measured figures of one function; sent whenever one has changed. */
export interface PoolFacts {
  readonly key: string;
  /** What its sessions and handlers hold now, by proportional set size; 0: nothing is loaded. */
  readonly bytes: number;
  /** How many sessions beyond the first that is. */
  readonly spares: number;
  /** Expected size of a session, with its process where that would be its own. */
  readonly sessionBytes: number;
  /** Time to load a session into a running process, smoothed; undefined before the first. */
  readonly loadMs: number | undefined;
  /** The instances on cores of their own that are ready, with the calls that each takes at once. */
  readonly list: PoolConfiguration | undefined;
  /** Calls that share a run, and so its cores, on demand. */
  readonly callsPerRun: number;
  readonly isPinned: boolean;
}

/** A pool makes a session that nobody ordered, and there is no room for it. */
export interface RoomWanted {
  readonly key: string;
  /** 0: it wants none any more. */
  readonly bytes: number;
  /** What it wants room for; its calls wait for its first session. See `room-wanted` of the scheduler's events. */
  readonly purpose: 'first' | 'spare' | 'list';
}

/** Nothing has used a function's sessions for long, or one of those beyond the first. */
export interface IdleSession {
  readonly key: string;
  readonly isSpare: boolean;
}

/** What all functions share. */
export interface PoolsResources {
  /** `cpu.memory`. */
  readonly memoryBytes: number;
  /** Memory that the processes of all functions hold, by proportional set size. */
  readonly memoryUsedBytes: number;
  /** All cores, and the cores without a lease. */
  readonly cores: number;
  readonly coresUnleased: number;
}

export interface LeasedCores extends Disposable {
  /** The operating system's numbers. */
  readonly cores: readonly number[];
}

/** Called for every invocation that the pools of this machine run. */
export interface PoolsObserver {
  arrived(key: string): void;
  /** It was answered, or failed. */
  ended(): void;
  /**
   * It was answered by an instance that was ready: `latencyMs` since it came to the pool, `serviceMs` since it came to
   * the instance.
   */
  answeredWarm(key: string, latencyMs: number, serviceMs: number): void;
}
