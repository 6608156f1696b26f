/**
 * What the dashboard's API says, for the host that writes it and the page that reads it. Times of day are milliseconds
 * since 1970, everything else carries its unit in its name. Nothing here runs.
 */

/** Counts of one step of time or of a whole span. */
export interface TrafficCounts {
  /** Arrivals; the rest counts ends. */
  readonly offered: number;
  readonly in_slo: number;
  readonly late: number;
  readonly shed: number;
  readonly failed: number;
  readonly cold: number;
  readonly gpuWarm: number;
  readonly gpuCold: number;
  readonly cpu: number;
  readonly remote: number;
}

export type TrafficColumns = { readonly [Name in keyof TrafficCounts]: readonly number[] } & {
  /** Beginning of each step. */
  readonly atMs: readonly number[];
  readonly p50Ms: readonly (number | null)[];
  readonly p99Ms: readonly (number | null)[];
};

/** `GET /api/history?range=15m[&function=name]` */
export interface HistoryAnswer {
  readonly stepMs: number;
  readonly fromMs: number;
  readonly toMs: number;
  /** Where the span's counts begin: its start, or the host's. Rates are over the time from here on. */
  readonly sinceMs: number;
  readonly columns: TrafficColumns;
  readonly totals: TrafficTotals;
}

export interface TrafficTotals extends TrafficCounts {
  readonly p50Ms: number | null;
  readonly p99Ms: number | null;
}

/** How far a function is on the GPUs, and in words why they may not be used for it now; null where they may. */
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

/** What of one version of a function is where, and what came of it. */
export interface PlacedVersion {
  readonly name: string;
  readonly version: string;
  readonly state: 'ready' | 'elsewhere' | 'validating' | 'unavailable';
  /** Where its model is now. */
  readonly residency: 'gpu' | 'loading' | 'cpu' | 'cold';
  readonly gpuBytes: number;
  /** The GPUs that have some of it. */
  readonly gpus: readonly number[];
  /** Null where the host drives no GPU. */
  readonly gpuState: GpuStateAnswer | null;
  /** Why its latest cold start on a GPU was one, or the next will be; null where the host drives no GPU. */
  readonly coldCause: string | null;
  readonly hostBytes: number;
  /** Answers since the start of the host that waited for no load. */
  readonly hits: number;
  /** Answers that did. */
  readonly coldStarts: number;
  /** By cause; those from GPUs begin with 'gpu '. */
  readonly evictions: Readonly<Record<string, number>>;
  /** Answers from elsewhere than usual, by `from to reason`: 'gpu cpu slo'. */
  readonly overflows: Readonly<Record<string, number>>;
  readonly plan: string;
  readonly waiting: number;
  readonly instances: number;
  /** 0: never. */
  readonly lastUseMs: number;
}

/** A row of `GET /api/functions?range=15m`: of the version that serves. */
export interface FunctionRow extends PlacedVersion {
  readonly reason: string | null;
  readonly sloMs: number;
  readonly pinned: boolean;
  readonly priority: number;
  readonly source: 'folder' | 'upload';
  readonly description: string;
  readonly totals: TrafficTotals;
  /** Answered within the SLO, of all that ended; null where nothing did. */
  readonly goodputShare: number | null;
  readonly requestsPerSecond: number;
  readonly coldShare: number | null;
  readonly diskBytes: number;
  /** Calls over HTTP since the host started, by their status: 400s of clients are in no other number here. */
  readonly statuses: readonly { readonly status: number; readonly count: number }[];
}

export interface FunctionsAnswer {
  readonly rangeMs: number;
  readonly atMs: number;
  readonly functions: readonly FunctionRow[];
  /** Versions that do not serve under their function's name, but have something on a GPU or in host memory. */
  readonly others: readonly PlacedVersion[];
}

/** `GET /api/functions/{name}?range=1h` */
export interface FunctionAnswer {
  readonly row: FunctionRow;
  readonly versions: readonly string[];
  readonly history: HistoryAnswer;
  /** Of the mean answer of each step, the milliseconds that each part took. */
  readonly parts: AnswerParts;
  readonly latencies: { readonly boundsMs: readonly number[]; readonly counts: readonly number[] };
  readonly events: readonly EventAnswer[];
  readonly prediction: readonly PredictionPoint[];
  /** One command that calls it. */
  readonly curl: string;
  readonly handler: boolean;
  readonly example: string | null;
  readonly inputs: readonly TensorAnswer[];
  readonly outputs: readonly TensorAnswer[];
}

export type AnswerParts = Readonly<
  Record<'partQueue' | 'partLoad' | 'partHandler' | 'partModel' | 'partHost', readonly number[]>
>;

export interface TensorAnswer {
  readonly name: string;
  readonly datatype: string;
  /** -1 or a name where it varies. */
  readonly shape: readonly (number | string)[];
}

export interface PredictionPoint {
  readonly atMs: number;
  readonly predictedMs: number;
  readonly observedMs: number;
}

/** Something worth telling: `kind` says which, `text` says it in words. */
export interface EventAnswer {
  readonly atMs: number;
  readonly kind: string;
  readonly functionName: string | null;
  readonly text: string;
  readonly level: 'info' | 'warning';
}

/** Calls that missed their SLO: late ones by what took the most of their time, the others by how they ended. */
export interface MissCauses {
  /** Waited for a turn. */
  readonly queue: number;
  /** Waited for weights. */
  readonly load: number;
  readonly handler: number;
  /** The run of the model. */
  readonly model: number;
  /** Reading and writing of bodies, and all else. */
  readonly host: number;
  readonly shed: number;
  readonly failed: number;
}

export interface TroubleRow {
  readonly name: string;
  readonly sloMs: number;
  readonly ended: number;
  readonly missed: number;
  readonly goodputShare: number;
  readonly causes: MissCauses;
  /** Calls that ended by the client's own mistake or leaving; none of the other numbers has them. */
  readonly clientErrors: number;
}

/** `GET /api/trouble?range=15m` */
export interface TroubleAnswer {
  readonly rangeMs: number;
  readonly atMs: number;
  readonly functions: number;
  /** Functions of which a call ended within the range, */
  readonly called: number;
  /** and those of them that answered under 99% of it within their SLO. */
  readonly missing: number;
  /** Calls of all functions that ended by the client's own mistake or leaving, and the function with most of them. */
  readonly refused: { readonly calls: number; readonly functions: number; readonly most: string | null };
  /** At most five, those with the most missed calls first. */
  readonly worst: readonly TroubleRow[];
}

/** `GET /api/errors?range=15m`: requests of any path that were refused or failed. */
export interface ErrorsAnswer {
  readonly stepMs: number;
  readonly columns: {
    readonly atMs: readonly number[];
    /** With a status of 400 to 499. */
    readonly client: readonly number[];
    /** With 500 and above. */
    readonly host: readonly number[];
  };
  /** The most frequent first. */
  readonly causes: readonly {
    readonly status: number;
    /** As the reply header `X-Turntable-Error` has it. */
    readonly code: string;
    /** When a client meets it. */
    readonly when: string;
    readonly count: number;
    /** Of the latest one. */
    readonly lastMs: number;
  }[];
}

/** `GET /api/memory` */
export interface MemoryAnswer {
  readonly gpus: readonly GpuMemory[];
  readonly host: {
    readonly totalBytes: number;
    readonly residents: readonly Resident[];
  };
  readonly disk: { readonly residents: readonly Resident[] };
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

/** `GET /api/machine`: how busy everything is that runs models; shares from 0 to 1. */
export interface MachineAnswer {
  readonly atMs: number;
  readonly cores: {
    /** Those that the host may use for models. */
    readonly total: number;
    /** Threads of instances that run something, at most the cores. */
    readonly busy: number;
    /** That belong to one function's instances alone. */
    readonly leased: number;
    /** Instances of the CPU pools that run something now, of all that are there. */
    readonly busyInstances: number;
    readonly instances: number;
  };
  readonly memory: { readonly usedBytes: number; readonly totalBytes: number };
  readonly gpus: readonly {
    readonly index: number;
    readonly name: string;
    /** Of the latest 10 seconds, in which it executed or waited for a load. */
    readonly busyShare: number;
    readonly usedBytes: number;
    readonly capacityBytes: number;
    /** Copies between it and the host in the last five seconds; `share` of the speed measured for the busier way. */
    readonly link: {
      readonly fromHostBytesPerSecond: number;
      readonly toHostBytesPerSecond: number;
      readonly share: number;
    } | null;
    /** With something on it, */
    readonly functions: number;
    /** and of these, with more on its way over a link. */
    readonly loading: number;
  }[];
  readonly waiting: number;
  readonly inFlight: number;
  /** Queues that are not empty, the longest first. */
  readonly queues: readonly { readonly functionName: string; readonly version: string; readonly waiting: number }[];
  /** 'off' where the host was given no Redis. */
  readonly redis: 'up' | 'down' | 'off';
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
    /** Of all cores of the machine, by anybody. */
    readonly cores: readonly number[];
    readonly waiting: readonly number[];
    readonly inFlight: readonly number[];
    readonly atWorkers: readonly number[];
    /** Of each GPU. */
    readonly gpus: readonly (readonly number[])[];
    /** Of each GPU's link, bytes a second both ways. */
    readonly links: readonly (readonly number[])[];
  };
}

/** The second that begins at `atMs`. */
export interface SecondTotals extends TrafficTotals {
  readonly atMs: number;
}

/** Server-sent event `tick` of `GET /api/events`: the last whole second. */
export interface TickEvent extends SecondTotals {
  /** Seconds before this one in which something was counted since shortly before the last tick, in order. */
  readonly earlier: readonly SecondTotals[];
  readonly waiting: number;
  readonly inFlight: number;
  /** Name of the host's fleet; null where it is in none. */
  readonly fleet: string | null;
}

/** Begin and end, milliseconds from the start. */
export type SpanAnswer = readonly [number, number];

export interface AnatomyLayer {
  readonly name: string;
  readonly method: 'load' | 'dha';
  readonly link: number | null;
  readonly copyMs: SpanAnswer | null;
  readonly migrationMs: SpanAnswer | null;
  readonly executionMs: SpanAnswer;
  readonly fromHost: boolean;
  readonly stallMs: number;
}

export interface AnatomyMode {
  /** baseline, pipeswitch, dha, pt, pt+dha or interleave. */
  readonly mode: string;
  readonly latencyMs: number;
  readonly stallMs: number;
  readonly gpuBytes: number;
  readonly layers: readonly AnatomyLayer[];
}

export interface AnatomyAnswer {
  readonly model: string;
  readonly machine: string;
  /** Where the times come from. */
  readonly provenance: string;
  readonly modes: readonly AnatomyMode[];
}

export interface AnatomyChoices {
  readonly models: readonly string[];
  readonly machines: readonly string[];
}

/** A cold start of this host's GPUs. */
export interface ColdStartAnswer {
  readonly id: number;
  readonly atMs: number;
  readonly functionName: string;
  readonly gpu: number;
  readonly mode: string;
  readonly latencyMs: number;
  /** Those that a load ahead of the run had brought included. */
  readonly loadedBytes: number;
  /** What the run waited for weights, its own and those on their way when it began. */
  readonly stallMs: number;
  /** Of the load that was ordered ahead of the run; 0: there was none. */
  readonly aheadMs: number;
  /** Why the weights were not there. */
  readonly cause: string;
}

/** `GET /api/anatomy/recorded`: the latest ones, the newest first. */
export interface RecordedColdStarts {
  readonly coldStarts: readonly ColdStartAnswer[];
}

/** `GET /functions/{name}/log` */
export interface LogAnswer {
  readonly name: string;
  readonly lines: readonly LogLine[];
}

export interface LogLine {
  /** Counts up over all functions. */
  readonly seq: number;
  readonly at: string;
  readonly source: 'host' | 'handler' | 'instance';
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  /** Null where it concerns the function as a whole. */
  readonly version: string | null;
  readonly text: string;
}

/** `GET /api/replays` */
export interface ReplaysAnswer {
  /** What can be chosen. */
  readonly arrivals: readonly string[];
  readonly traces: readonly string[];
  /** The newest first. */
  readonly runs: readonly ReplayRun[];
}

export interface ReplayRun {
  readonly id: string;
  readonly name: string;
  readonly state: 'waiting' | 'running' | 'done' | 'failed';
  readonly startedAtMs: number;
  /** The command, to be repeated in a shell. */
  readonly command: string;
  /** Why it failed. */
  readonly reason: string | null;
}
