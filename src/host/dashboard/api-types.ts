/**
 * Types of the dashboard's API, shared by the host and the page. Times of day are milliseconds since 1970; all other
 * units are in the names. No code.
 */
import type { CountName, HistorySpan, PartName } from '../history/ring.ts';
import type { DependencyTrouble } from '../dependencies.ts';
import type { MissCause } from '../calls/miss-causes.ts';

/** Columns of equal length, one entry a step; latencies are null in steps in which no call ended. */
export type TrafficColumns = Readonly<Record<CountName, readonly number[]>> & {
  /** Start of each step. */
  readonly atMs: readonly number[];
  readonly p50Ms: readonly (number | null)[];
  readonly p99Ms: readonly (number | null)[];
};

/** `GET /api/history?range=15m[&function=name]` */
export interface HistoryAnswer extends HistorySpan {
  /** Where the span's counts begin: its start, or the host's. Rates are over the time from here on. */
  readonly sinceMs: number;
  readonly columns: TrafficColumns;
  readonly totals: TrafficTotals;
}

/** Counts of one step of time or of a whole span. */
export interface TrafficTotals extends Readonly<Record<CountName, number>> {
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
}

/** The state of a function on the GPUs, and why they cannot run it now; null if they can. */
export interface GpuStateAnswer {
  readonly kind:
    | 'absent'
    | 'registering'
    | 'measuring'
    | 'checking'
    | 'planned'
    | 'resident'
    | 'undecided'
    | 'unsized'
    | 'disagreed'
    | 'paused'
    | 'refused'
    | 'lost';
  readonly whyNot: string | null;
}

/** Where one version of a function is loaded, and how its calls went. */
export interface PlacedVersion {
  readonly name: string;
  readonly version: string;
  readonly state: 'ready' | 'elsewhere' | 'validating' | 'unavailable';
  /** Why it is unavailable; null if it is not. */
  readonly reason: string | null;
  /** Why its latest instance died; null if none has. */
  readonly lastDeath: string | null;
  /** Where its model is now. */
  readonly residency: 'gpu' | 'loading' | 'cpu' | 'cold';
  readonly gpuBytes: number;
  /** The GPUs that have some of it. */
  readonly gpus: readonly number[];
  /** Null on a host without GPUs. */
  readonly gpuState: GpuStateAnswer | null;
  /** Why its latest cold start on a GPU was cold, or its next one will be; null on a host without GPUs. */
  readonly coldCause: string | null;
  readonly hostBytes: number;
  /** Answers since the host started that waited for no load. */
  readonly hits: number;
  /** Answers that did wait. */
  readonly coldStarts: number;
  /** Of these, those that waited for weights from disk. */
  readonly diskStarts: number;
  /** Counts by cause; causes of GPU evictions begin with 'gpu '. */
  readonly evictions: Readonly<Record<string, number>>;
  /** Answers from another place than usual, by `from to reason`: 'gpu cpu slo'. */
  readonly overflows: Readonly<Record<string, number>>;
  /** Calls that were late at every place, and ran so that the calls behind them find the function there. */
  readonly brought: number;
  readonly plan: string;
  /** Whether its calls share runs; null if it does not want to join any. */
  readonly rows: { readonly state: string; readonly why: string } | null;
  readonly waiting: number;
  readonly instances: number;
  /** 0: never. */
  readonly lastUseMs: number;
}

/** A row of `GET /api/functions?range=15m`: the version that serves. */
export interface FunctionRow extends PlacedVersion {
  readonly sloMs: number;
  readonly pinned: boolean;
  readonly priority: number;
  readonly source: 'folder' | 'upload';
  readonly description: string;
  readonly totals: TrafficTotals;
  /** Share of ended calls that were answered within the SLO; null if none ended. */
  readonly goodputShare: number | null;
  readonly requestsPerSecond: number;
  readonly coldShare: number | null;
  readonly diskBytes: number;
  /** Calls over HTTP since the host started, by status. Only this field counts a client's 400s. */
  readonly statuses: readonly { readonly status: number; readonly count: number }[];
}

export interface FunctionsAnswer {
  readonly rangeMs: number;
  readonly atMs: number;
  readonly functions: readonly FunctionRow[];
  /** Versions that do not serve under their function's name, but have weights on a GPU or in host memory. */
  readonly others: readonly PlacedVersion[];
  /** Sentences about the whole host that an operator should read. */
  readonly notes: readonly string[];
}

/** `GET /api/functions/{name}?range=1h` */
export interface FunctionAnswer {
  readonly row: FunctionRow;
  readonly versions: readonly string[];
  readonly history: HistoryAnswer;
  /** Why its calls missed the SLO within the range; null if under 1% of them did. */
  readonly trouble: TroubleRow | null;
  /** Milliseconds that each part of the mean answer took, for each step. */
  readonly parts: AnswerParts;
  readonly latencies: { readonly boundsMs: readonly number[]; readonly counts: readonly number[] };
  readonly events: readonly EventAnswer[];
  readonly prediction: readonly PredictionPoint[];
  /** A command that calls it. */
  readonly curl: string;
  /** The words for `turntable` on this host's machine, such as `node bin/turntable.js`. */
  readonly calledAs: string;
  readonly handler: boolean;
  readonly example: string | null;
  readonly inputs: readonly TensorAnswer[];
  readonly outputs: readonly TensorAnswer[];
}

export type AnswerParts = Readonly<Record<PartName, readonly number[]>>;

export interface TensorAnswer {
  readonly name: string;
  readonly datatype: string;
  /** -1 or a name for a varying size. */
  readonly shape: readonly (number | string)[];
}

/** Means over one window. */
export interface PredictionPoint {
  readonly atMs: number;
  readonly predictedMs: number;
  readonly observedMs: number;
}

/** An event: `kind` for programs, `text` for people. */
export interface EventAnswer {
  readonly atMs: number;
  readonly kind: string;
  readonly functionName: string | null;
  readonly text: string;
  readonly level: 'info' | 'warning';
}

/** Missed calls of one cause. */
export interface MissedBy {
  readonly cause: MissCause;
  /** 'waited for a turn' */
  readonly words: string;
  readonly calls: number;
}

export interface TroubleRow {
  readonly name: string;
  readonly sloMs: number;
  readonly ended: number;
  readonly missed: number;
  readonly goodputShare: number;
  /** The largest first. */
  readonly causes: readonly MissedBy[];
  /** Calls that are open and have passed their SLO; they are among `missed`. */
  readonly overdue: { readonly calls: number; readonly oldestMs: number };
  /** When the first and the last of the missed calls ended, in steps of some seconds; null while none has. */
  readonly sinceMs: number | null;
  readonly lastMs: number | null;
  /** Time of its ended calls beyond the SLO, and as much of it as nothing that was measured explains. */
  readonly lateMs: number;
  readonly unexplainedMs: number;
  /** What was measured that explains the largest cause: 'evicted 12 times for big-3: up to 709 MB of 700 MB used'. */
  readonly facts: string;
  /** What to do; null where nothing measured says so. */
  readonly advice: string | null;
  /** Calls that ended by the client's mistake or disconnect; the other numbers do not include them. */
  readonly clientErrors: number;
}

/** `GET /api/trouble?range=15m` */
export interface TroubleAnswer {
  readonly rangeMs: number;
  readonly atMs: number;
  readonly functions: number;
  /** Functions with a call that ended within the range, */
  readonly called: number;
  /** and those of them with enough calls to judge that answered under 99% within their SLO. */
  readonly missing: number;
  /** Missed calls of all other functions: too few to say that these miss their SLO. */
  readonly few: number;
  /** What this host depends on and does not get; `text`: 'Redis is down: ...'. */
  readonly dependencies: readonly DependencyTrouble[];
  /** Open calls of all functions that have passed their SLO. */
  readonly overdue: { readonly calls: number; readonly oldestMs: number };
  /**
   * Calls of all functions that ended by the client's mistake or disconnect, and the function with the most of them.
   */
  readonly refused: { readonly calls: number; readonly functions: number; readonly most: string | null };
  /** A sentence for each limit that requests were over: '60 requests were over a limit (429 rate-limited), ...'. */
  readonly limited: readonly string[];
  /** At most five, the one with the most missed calls first. */
  readonly worst: readonly TroubleRow[];
}

/** `GET /api/errors?range=15m`: refused and failed requests of any path. */
export interface ErrorsAnswer {
  readonly stepMs: number;
  readonly columns: {
    readonly atMs: readonly number[];
    /** Status 400 to 499. */
    readonly client: readonly number[];
    /** Status 500 and above. */
    readonly host: readonly number[];
  };
  /** The most frequent first. */
  readonly causes: readonly {
    readonly status: number;
    /** As in the reply header `X-Turntable-Error`. */
    readonly code: string;
    /** What leads to this error. */
    readonly when: string;
    readonly count: number;
    /** Time of the latest one. */
    readonly lastMs: number;
  }[];
}

/** `GET /api/memory` */
export interface MemoryAnswer {
  readonly gpus: readonly GpuMemory[];
  readonly host: {
    /** What this host may use. */
    readonly totalBytes: number;
    /** How it is divided, what is used most first: `bytes` is the limit of each. */
    readonly parts: readonly {
      readonly part: string;
      readonly words: string;
      readonly bytes: number;
      readonly usedBytes: number;
    }[];
    /** The host and its children with what they have in memory (RES of `top`), the largest first. */
    readonly processes: readonly { readonly pid: number; readonly words: string; readonly bytes: number }[];
    /** Processes that the kernel ended for lack of memory, the newest first, with what was done about it. */
    readonly kills: readonly { readonly atMs: number; readonly text: string }[];
    /** What the part `sessions` holds: processes of the CPU pools with their models. */
    readonly sessions: readonly Resident[];
    /** What the part `pinned` holds: weights for GPUs. */
    readonly pinned: readonly Resident[];
  };
  /** The data folder's disk; null where the system does not tell. */
  readonly disk: {
    readonly totalBytes: number | null;
    readonly freeBytes: number | null;
    /**
     * Bytes of published versions that one alone has, and that several have, once; of what is prepared of them for CPU
     * instances, and for GPUs.
     */
    readonly parts: {
      readonly own: number;
      readonly shared: number;
      readonly cpuCache: number;
      readonly gpuCache: number;
    } | null;
    /** `bytes`: those that no other version has. */
    readonly residents: readonly (Resident & { readonly sharedBytes: number })[];
  };
}

export interface GpuMemory {
  readonly index: number;
  readonly name: string;
  readonly uuid: string;
  readonly capacityBytes: number;
  readonly residents: readonly Resident[];
}

export interface Resident {
  readonly functionName: string;
  readonly version: string;
  readonly bytes: number;
  /** 'warm', 'partial 40%', 'loading', 'idle', 'busy' */
  readonly state: string;
  /** 0: never. */
  readonly lastUseMs: number;
  /** Why it is there. */
  readonly why: string;
}

/** `GET /api/machine`: how busy cores, GPUs, queues and workers are; shares from 0 to 1. */
export interface MachineAnswer {
  readonly atMs: number;
  readonly cores: {
    /** Cores that the host may use for models. */
    readonly total: number;
    /** Threads of running instances, at most the cores. */
    readonly busy: number;
    /** Cores leased to instances of a single function. */
    readonly leased: number;
    /** Instances of the CPU pools that run a call now. */
    readonly busyInstances: number;
    readonly instances: number;
  };
  readonly memory: { readonly usedBytes: number; readonly totalBytes: number };
  readonly gpus: readonly {
    readonly index: number;
    readonly name: string;
    /** Share of the latest 10 seconds in which the GPU executed or waited for a load. */
    readonly busyShare: number;
    readonly usedBytes: number;
    readonly capacityBytes: number;
    /** Copies between GPU and host in the last five seconds; `share` of the measured speed, of the busier direction. */
    readonly link: {
      readonly fromHostBytesPerSecond: number;
      readonly toHostBytesPerSecond: number;
      readonly share: number;
    } | null;
    /** Functions with weights on it, */
    readonly functions: number;
    /** and those of them with more weights on their way. */
    readonly loading: number;
  }[];
  readonly waiting: number;
  readonly inFlight: number;
  /** Queues that are not empty, the longest first. */
  readonly queues: readonly { readonly functionName: string; readonly version: string; readonly waiting: number }[];
  /** 'off' on a host without Redis. */
  readonly redis: 'up' | 'evicting' | 'full' | 'read-only' | 'down' | 'off';
  /** The words for `turntable` on this host's machine. */
  readonly calledAs: string;
  readonly workers: readonly {
    readonly name: string;
    readonly cores: number;
    readonly outstanding: number;
    readonly backlogMs: number;
    readonly draining: boolean;
    readonly functions: number;
  }[];
  /** The last hour, every five seconds. */
  readonly usage: {
    readonly atMs: readonly number[];
    /** Busy share of all cores of the machine, whichever process uses them. */
    readonly cores: readonly number[];
    /** The part of it that this host and its processes use. */
    readonly ownCores: readonly (number | null)[];
    readonly waiting: readonly number[];
    readonly inFlight: readonly number[];
    readonly atWorkers: readonly number[];
    /** For each GPU. */
    readonly gpus: readonly (readonly number[])[];
    /** For each GPU's link: bytes a second, both directions. */
    readonly links: readonly (readonly number[])[];
  };
}

/** Totals of the second that begins at `atMs`. */
export interface SecondTotals extends TrafficTotals {
  readonly atMs: number;
}

/** Server-sent event `tick` of `GET /api/events`: the last whole second. */
export interface TickEvent extends SecondTotals {
  /** Earlier seconds that were counted in since shortly before the last tick, in order. */
  readonly earlier: readonly SecondTotals[];
  readonly waiting: number;
  readonly inFlight: number;
  /** Name of the host's fleet; null without a fleet. */
  readonly fleet: string | null;
}

/** `GET /api/anatomy`: the timelines of a cold start in every mode. */
export interface AnatomyAnswer {
  /** Where the times come from. */
  readonly provenance: string;
  readonly timelines: readonly PlanTimeline[];
}

/** What `plan deepplan --html` and `plan chrion --html` write for the page. */
export interface PlanReport extends AnatomyAnswer {
  readonly format: 'turntable-plan';
  readonly version: 1;
  readonly name: string;
}

/** A cold start in one mode, or a graph over a GPU and cores; milliseconds from its start. */
export interface PlanTimeline {
  readonly name: string;
  readonly latencyMs: number;
  /** Beside the latency. */
  readonly note: string;
  readonly lanes: readonly TimelineLane[];
}

export type BarLook = 'copy' | 'migration' | 'gpu' | 'host' | 'stall' | 'call' | 'cpu' | 'to-gpu' | 'to-cpu';

export interface TimelineBar {
  readonly look: BarLook;
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
}

export interface TimelineLane {
  readonly name: string;
  readonly bars: readonly TimelineBar[];
}

export interface AnatomyChoices {
  readonly models: readonly string[];
  readonly machines: readonly string[];
}

/** A cold start on this host's GPUs. */
export interface ColdStartAnswer {
  readonly id: number;
  readonly atMs: number;
  readonly functionName: string;
  readonly gpu: number;
  readonly mode: string;
  readonly latencyMs: number;
  /** Includes the bytes that a load ahead of the run brought. */
  readonly loadedBytes: number;
  /** How long the run waited for weights: its own, and those on their way when it began. */
  readonly stallMs: number;
  /** Duration of a load ahead of the run; 0 if there was none. */
  readonly aheadMs: number;
  /** Why the weights were missing. */
  readonly cause: string;
}

/** `GET /api/anatomy/recorded`: recorded cold starts, the newest first. */
export interface RecordedColdStarts {
  readonly coldStarts: readonly ColdStartAnswer[];
}

/** `GET /functions/{name}/log` */
export interface LogAnswer {
  readonly name: string;
  readonly lines: readonly LogLine[];
}

export interface LogLine {
  /** Increases over all functions. */
  readonly seq: number;
  readonly at: string;
  /** `handler`: output of the handler, or of other code in its process. `instance`: its loads and ends. */
  readonly source: 'host' | 'handler' | 'instance';
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  /** Null for a line about the function as a whole. */
  readonly version: string | null;
  readonly text: string;
}
