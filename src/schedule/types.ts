/** What goes into the scheduler and what comes out. Functions, invocations and GPUs are numbers. */
import type { FunctionId, Given, GpuId, InvocationId, SideId } from './ids.ts';
import type { LoadOption, OfferSheet } from './offer.ts';

/** A GPU as the scheduler sees it. */
export interface SchedulerGpu {
  /** For weights. */
  readonly capacityBytes: number;
  /** PCIe switch that its link hangs on. */
  readonly switch: number;
  readonly linkGBps: number;
  /** What all links of the switch carry together. */
  readonly uplinkGBps: number;
}

/** The places beside the GPUs that run invocations. Each may be absent. */
export interface CpuPlace {
  /** Shared by invocations; a function's own leased instances (`slots` of its offer) use none of them. */
  readonly cores: number;
  /** For sessions, and what the processes that hold them take beside. */
  readonly memoryBytes: number;
  /** How much of it is taken by what is no session: processes, and what runs and handlers allocate. Default 0. */
  readonly takenBytes?: number;
  /**
   * Milliseconds of work handed to a core ahead, so that it does not idle while an answer goes out and the next call
   * comes in. Runs of 0.1 ms are handed over sixteen at a time; longer runs one by one. Default 0.
   */
  readonly aheadMs?: number;
  /**
   * A run that has held its cores longer than this shares them from then on: other functions' invocations start beside
   * it, and the operating system divides the time. A handler that hangs then delays no other function. Its own function
   * gets no more runs at once than before. Default: a run holds its cores to its end.
   */
  readonly holdMsMax?: number;
}

/** Other machines behind a queue. */
export interface WorkersPlace {
  /** Invocations that they run at once. */
  readonly slots: number;
  /** Time to send a call there and back, beside the run. */
  readonly roundTripMs: number;
}

/** Pinned host memory, from which GPUs are loaded and read, and the disk behind it. */
export interface HostTier {
  readonly capacityBytes: number;
  /** Bandwidth from the disk into host memory, until reads have shown it. */
  readonly diskGBps: number;
}

/** How long a read took, and whether the file was in the page cache. */
export interface StageObservation {
  readonly ms: number;
  readonly isCached: boolean;
}

/** A GPU by its number, or a place beside the GPUs. */
export type PlaceId = GpuId | SideId;

/**
 * Why a place was chosen. `resident`: some of the function is there. `room`: the function is absent everywhere and
 * costs least here. `copy`: it is elsewhere too, and the wait there costs more than a second copy. `earliest`: the
 * policy wants the earliest end. `slo`: the GPUs would miss the SLO, this place would not. `by-number`: the policy goes
 * by the function's number. `only`: no other place can. `bringing`: it is late
 * everywhere, and runs so that the calls behind it find their function there.
 */
export type PlaceReason = 'resident' | 'room' | 'copy' | 'earliest' | 'slo' | 'by-number' | 'only' | 'bringing';

/** A decision about an invocation, to explain it. Instants as in the events; Infinity: never. */
export interface Decision {
  readonly reason: PlaceReason;
  /** When it was expected to end at the place chosen, at the time of the choice. */
  readonly chosenEndMs: number;
  /** The best of the other places that were weighed, and when it would have ended there; undefined where none was. */
  readonly otherPlace: PlaceId | undefined;
  readonly otherEndMs: number;
}

/** How long a run took, as far as its place knows; learnt where an offer leaves it open. */
export interface Observation {
  readonly runMs?: number;
  /** Core time of the run within `runMs`; the rest is the way to the process and back. */
  readonly coreMs?: number;
  readonly loadMs?: number | undefined;
  /** Bytes of the session. */
  readonly bytes?: number;
}

/** What allows an invocation to share a run with others of its function. */
export interface Join {
  /** Calls with the same key can be joined; never ''. */
  readonly key: string;
  /** Rows that it adds to the run. */
  readonly rows: number;
}

/** An invocation that shares the run of another one. */
export interface Companion {
  readonly invocation: InvocationId;
  readonly decision: Decision;
}

/**
 * What a place wants room for. `first`: a function's first session, for which the least valuable ones go, now or as soon
 * as nothing runs in them. `spare`: a further one, for which only spare ones go, now or not at all. `list`: instances that
 * will take over from those the function has, for which spare ones go and then those worth less than its own.
 */
export type RoomPurpose = 'first' | 'spare' | 'list';

export type SchedulerEvent =
  /**
   * The caller chooses the number: a small integer, free to be used again once the invocation has ended (it was shed or
   * failed, or the caller reported `finished` or `departed`).
   */
  | {
      readonly kind: 'arrival';
      readonly invocation: Given<InvocationId>;
      readonly functionIndex: Given<FunctionId>;
      /** Its own objective and priority, where they are not the function's. */
      readonly sloMs?: number | undefined;
      readonly priority?: number | undefined;
      /** It must not run on a GPU, though its function has offers for them. */
      readonly isKeptOffGpus?: boolean;
      /** It must run on a GPU, however late: it has no SLO, and goes nowhere else. */
      readonly isForGpus?: boolean | undefined;
      readonly join?: Join | undefined;
    }
  /**
   * A run has ended, successfully or not, at any place. Reported for the action's invocation alone: its companions end
   * with it.
   */
  | { readonly kind: 'finished'; readonly invocation: Given<InvocationId>; readonly observed?: Observation | undefined }
  /**
   * A place could not run the invocation (no memory, a process that died). It and its companions are placed again,
   * elsewhere if another place can take them.
   */
  | { readonly kind: 'refused'; readonly invocation: Given<InvocationId> }
  /** Everything that a `run`, `load` or `grow` ordered has arrived on the GPU. */
  | { readonly kind: 'loaded'; readonly gpu: Given<GpuId>; readonly functionIndex: Given<FunctionId> }
  /** The instant that a `wake` asked for. */
  | { readonly kind: 'wake' }
  /** The caller of a waiting invocation has gone. A running one is only reported as `finished`. */
  | { readonly kind: 'departed'; readonly invocation: Given<InvocationId> }
  /** Everything that a `stage` ordered is in host memory. */
  | {
      readonly kind: 'staged';
      readonly functionIndex: Given<FunctionId>;
      readonly observed?: StageObservation | undefined;
    }
  /** The place has no room for a `stage`: what is free is in pieces. One more function goes, and it is ordered again. */
  | { readonly kind: 'stage-refused'; readonly functionIndex: Given<FunctionId> }
  /** What a `stage` ordered cannot be read. It is ordered again for a later call. */
  | { readonly kind: 'stage-failed'; readonly functionIndex: Given<FunctionId> }
  /**
   * The place uses the function without the scheduler's order: to check it, to measure it. It is to be in host memory, at
   * the cost of what is worth less, and stays there until it is held no more.
   */
  | { readonly kind: 'host-held'; readonly functionIndex: Given<FunctionId>; readonly isHeld: boolean }
  /** All that was in host memory is gone, with what the GPUs had; reported behind the loss of these. */
  | { readonly kind: 'host-lost' }
  /** Host memory has more or less room for weights than before. */
  | { readonly kind: 'host-changed'; readonly capacityBytes: number }
  /**
   * What host memory holds when the scheduler begins, as far as there is room: functions that are known, with their
   * shares of the calls until then.
   */
  | {
      readonly kind: 'host-filled';
      readonly functions: readonly { readonly functionIndex: Given<FunctionId>; readonly share: number }[];
    }
  /**
   * What a function's sessions take, where that has changed without the scheduler's order: loaded by hand, or ended by
   * itself. 0: it has none. `spares`: how many it has beyond the first; default 0.
   */
  | {
      readonly kind: 'session';
      readonly functionIndex: Given<FunctionId>;
      readonly bytes: number;
      readonly spares?: number | undefined;
    }
  /**
   * The place makes sessions without the scheduler's order, and has no room for so many bytes. 0 bytes: it wants none any
   * more.
   */
  | {
      readonly kind: 'room-wanted';
      readonly functionIndex: Given<FunctionId>;
      readonly bytes: number;
      readonly purpose: RoomPurpose;
    }
  /**
   * Nothing has used the function's sessions for as long as they are to stay, or one of those beyond the first
   * (`isSpare`). They are closed unless a run has just been ordered.
   */
  | { readonly kind: 'session-idle'; readonly functionIndex: Given<FunctionId>; readonly isSpare: boolean }
  /**
   * The place uses a GPU's memory without the scheduler's order, and is to have so many bytes free there: what is idle goes,
   * but for what is `spared`. Fewer are free where that is all.
   */
  | {
      readonly kind: 'gpu-room-wanted';
      readonly gpu: Given<GpuId>;
      readonly bytes: number;
      readonly spared: readonly Given<FunctionId>[];
    }
  /** The place has changed; null: it is gone, and its waiting invocations are placed again. */
  | { readonly kind: 'place-changed'; readonly place: SideId; readonly to: object | null }
  | { readonly kind: 'gpu-lost'; readonly gpu: Given<GpuId> }
  | { readonly kind: 'gpu-back'; readonly gpu: Given<GpuId> }
  | { readonly kind: 'function-added'; readonly functionIndex: Given<FunctionId>; readonly sheet: OfferSheet }
  /** A new profile, a new plan, another SLO, a pool that has become faster. */
  | { readonly kind: 'sheet-changed'; readonly functionIndex: Given<FunctionId>; readonly sheet: OfferSheet }
  | { readonly kind: 'function-removed'; readonly functionIndex: Given<FunctionId> };

/**
 * What an invocation's function had on the GPU when the scheduler turned to it. `disk`: something of it was missing in
 * host memory as well, and the invocation waited for the read.
 */
export type Start = 'warm' | 'partial' | 'cold' | 'disk';

export interface LoadOrder {
  readonly way: LoadOption;
  /** Layers of the function that are there already; the load option's tables are indexed by it. */
  readonly prefix: number;
}

/** Why sessions on the CPU are closed: for room, with their function, or since nothing has used them for long. */
export type SessionCause = 'capacity' | 'unload' | 'idle';

export type Action =
  /** Execute now; where a load is given, start it as well and execute behind it. */
  | {
      readonly kind: 'run';
      readonly invocation: InvocationId;
      readonly functionIndex: FunctionId;
      readonly gpu: GpuId;
      readonly start: Start;
      readonly load: LoadOrder | null;
      readonly predictedEndMs: number;
      readonly decision: Decision;
      /** The name of the plan variant to run under; undefined for a function with a single unnamed plan. */
      readonly plan: string | undefined;
      /** Invocations that are joined into the run; undefined: it runs alone. */
      readonly companions: readonly Companion[] | undefined;
    }
  /** Load for an invocation that still waits for the GPU. */
  | {
      readonly kind: 'load';
      readonly invocation: InvocationId;
      readonly functionIndex: FunctionId;
      readonly gpu: GpuId;
      readonly load: LoadOrder;
      readonly plan: string | undefined;
    }
  /**
   * Load the layers that a larger plan has beyond the resident one. No call waits for it: until it is `loaded`, runs go
   * on under the smaller plan. The missing layers are no suffix, so the order's tables have one entry, for exactly
   * these layers.
   */
  | {
      readonly kind: 'grow';
      readonly functionIndex: FunctionId;
      readonly gpu: GpuId;
      readonly plan: string;
      readonly load: LoadOrder;
    }
  /** Keep only the layers of this smaller plan, and run under it from now on. Precedes the loads, as evictions do. */
  | {
      readonly kind: 'shrink';
      readonly functionIndex: FunctionId;
      readonly gpu: GpuId;
      readonly plan: string;
      /** That are given back. */
      readonly bytes: number;
    }
  /**
   * Keep no more than the prefix. Evictions precede the loads that need their room. With a `base`, layers go that
   * functions share by that name, of which this is one, or was; without, only what the function has of its own.
   */
  | {
      readonly kind: 'evict';
      readonly functionIndex: FunctionId;
      readonly gpu: GpuId;
      readonly prefix: number;
      readonly bytes: number;
      readonly cause: EvictionCause;
      readonly base?: string | undefined;
    }
  /** Abort a load and its run, because a GPU that takes part is gone. The run's invocation will be placed again. */
  | { readonly kind: 'abandon'; readonly functionIndex: FunctionId; readonly gpu: GpuId }
  /**
   * Execute now at a place beside the GPUs; its lanes are free: cores of the CPU, or a slot of the workers. With `loads`,
   * its session has room and is to be made first.
   */
  | {
      readonly kind: 'run-beside';
      readonly place: SideId;
      readonly invocation: InvocationId;
      readonly functionIndex: FunctionId;
      readonly loads: boolean;
      /** Undefined: no run there has been observed yet. */
      readonly predictedEndMs: number | undefined;
      readonly decision: Decision;
    }
  /**
   * Make a function's session on the CPU, on idle cores; no call waits for it. A `session` reports the end, also of one
   * that could not be made (0 bytes).
   */
  | { readonly kind: 'make-session'; readonly functionIndex: FunctionId }
  /**
   * Close a function's sessions on the CPU; nothing runs in them. `isSpare`: only one of several, with what runs in it
   * first. Precedes the run that needs its room.
   */
  | {
      readonly kind: 'evict-cpu';
      readonly functionIndex: FunctionId;
      readonly bytes: number;
      readonly cause: SessionCause;
      readonly isSpare?: true;
    }
  /**
   * Read what is missing of a function from disk into pinned host memory; `staged` reports the end. Loads to GPUs may be
   * ordered before that: they copy what has been read.
   */
  | {
      readonly kind: 'stage';
      readonly functionIndex: FunctionId;
      readonly bytes: number;
      /** That are missing, as its blocks name them. */
      readonly layers: readonly number[];
    }
  /** Free so much of a function's pinned host memory. It may still be on GPUs, but executes from none of that. */
  | {
      readonly kind: 'evict-host';
      readonly functionIndex: FunctionId;
      readonly bytes: number;
      /** Layers of the block that goes. */
      readonly layers: readonly number[];
      /** It goes for all functions that have these layers. */
      readonly isShared?: boolean;
      readonly cause: 'capacity' | 'unload';
    }
  /** The invocation waits for this place; a later action may name another one. */
  | {
      readonly kind: 'wait';
      readonly invocation: InvocationId;
      readonly place: PlaceId;
      readonly predictedEndMs: number;
      readonly decision: Decision;
    }
  | { readonly kind: 'wake'; readonly atMs: number }
  /**
   * @param predictedEndMs when it would have ended at the best place
   * @param trialMs when a call of the function is let through next, if all of them would be late
   */
  | {
      readonly kind: 'shed';
      readonly invocation: InvocationId;
      readonly predictedEndMs: number;
      readonly trialMs?: number;
    }
  | { readonly kind: 'fail'; readonly invocation: InvocationId; readonly reason: FailReason };

/**
 * `capacity`: the whole function, for room. `trim`: a suffix of its layers, for room. `migration`: for room, and
 * another GPU has the function as well. `unload`: the function was removed. `plan-changed`: its plan has other layers
 * now. `gpu-lost`: with the GPU. `host`: host memory needed the room of what the function executes from there.
 */
export type EvictionCause = 'capacity' | 'trim' | 'migration' | 'unload' | 'plan-changed' | 'gpu-lost' | 'host';

/** `nowhere`: no GPU that is up can hold it, and no other place takes it. */
export type FailReason = 'nowhere' | 'removed';
