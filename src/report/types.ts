/**
 * The forms of reports. A replay's report is the same in files (`--json`) and in memory, for a simulation and for a live host, so that the
 * two can be compared. Milliseconds are from the arrival to the answer; a percentile is null if nothing was answered.
 */

/**
 * Counts and latencies of some invocations: all of them, those of a minute, of a function, of a model. Latencies are of
 * the answered ones, by the nearest rank.
 */
export interface Tally {
  /** Arrived. */
  readonly requests: number;
  readonly p50_ms: number | null;
  readonly p95_ms: number | null;
  readonly p99_ms: number | null;
  readonly p999_ms: number | null;
  readonly mean_ms: number | null;
  readonly max_ms: number | null;
  /** Share of the requests that were answered within their SLO. */
  readonly goodput: number | null;
  /** Answered with none of the function's layers resident before, */
  readonly cold_starts: number;
  readonly cold_start_rate: number | null;
  /** and with some of them. */
  readonly partial_starts: number;
  readonly partial_start_rate: number | null;
  /** Answered behind a read from disk: some of the function's weights were not in host memory either; absent in older reports. */
  readonly disk_starts?: number;
  readonly disk_start_rate?: number | null;
  /** Refused, or given up in the queue. */
  readonly shed: number;
  /** Answered by a CPU pool. */
  readonly offloaded: number;
  /** Answered by workers on other machines; absent in older reports. */
  readonly workers?: number;
  readonly failed: number;
  readonly evictions: number;
}

/** Results of the invocations with one SLO. */
export interface SloRow {
  readonly slo_ms: number;
  readonly requests: number;
  readonly goodput: number | null;
  readonly shed: number;
}

/** The predictions of one kind of placement. */
export interface PredictionRow {
  readonly placement: string;
  readonly requests: number;
  readonly error_mean_ms: number | null;
  readonly error_mean_share: number | null;
  readonly error_p90_share: number | null;
}

/** What a fleet's report adds to every report. */
export interface FleetRow {
  readonly hosts: number;
  readonly router: string;
  /** Share of the calls that ran on another host than the one where they arrived. */
  readonly passed: number;
  /** Calls by the reason of the choice; empty for routers other than homes. */
  readonly reasons: Readonly<Record<string, number>>;
  /** Network traffic: calls that were passed on, and content that was fetched. */
  readonly call_bytes: number;
  readonly content_bytes: number;
  /** How busy the GPUs of the busiest host were over the mean of all GPUs; null if no GPU did anything. */
  readonly imbalance: number | null;
  /** Functions whose homes a plan has changed, summed over all plans. */
  readonly moves: number;
  /** Empty for `one`, which knows no hosts. */
  readonly per_host: readonly {
    readonly host: number;
    /** Its machine and its number of GPUs; left out where all hosts are alike. */
    readonly machine?: string;
    readonly gpus?: number;
    readonly requests: number;
    readonly busy_s: number;
  }[];
  readonly failures: readonly {
    readonly host: number;
    readonly at_s: number;
    readonly back_s: number | null;
    /** Goodput in the minute before, and in the one that begins with the failure. */
    readonly goodput_before: number | null;
    readonly goodput_after: number | null;
    /** From the failure until the end of the last second within a minute with a goodput more than 1% below before. */
    readonly felt_s: number;
    /** Calls that it had under way: run elsewhere, and lost. */
    readonly rerun: number;
    readonly lost: number;
  }[];
}

export interface IntervalRow extends Tally {
  /** Seconds from the start of the measurement. */
  readonly start_s: number;
  readonly requests_per_s: number;
  /** Share of the interval that each GPU was executing. */
  readonly utilisation: readonly number[];
}

export interface FunctionRow extends Tally {
  readonly function: string;
}

export interface ModelRow extends Tally {
  readonly model: string;
  readonly functions: number;
}

export interface GpuRow {
  readonly gpu: number;
  readonly requests: number;
  readonly cold_starts: number;
  /** Null if measured: a host counts by function and cause, and does not say from which GPU. */
  readonly evictions: number | null;
  readonly utilisation: number;
}

/** Pinned host memory, from which GPUs are loaded. */
export interface HostMemoryRow {
  readonly capacity_bytes: number;
  /** Weights of all functions of the replay together. */
  readonly functions_bytes: number;
  /** Capacity of the disk behind it; null if unknown. */
  readonly disk_capacity_bytes: number | null;
  /** They do not fit together: some are read from disk again and again. */
  readonly exceeded: boolean;
  readonly disk_reads: number;
  readonly disk_read_bytes: number;
  /** Functions that were there when the replay began; absent if that was all, or if it is not known. */
  readonly filled_functions?: number;
  readonly evictions: number;
}

export type SettingValue = string | number | boolean | null | readonly string[];

export interface Report extends Tally {
  readonly format: 'turntable-report';
  readonly version: 1;
  /** Exactly one of the two. */
  readonly simulated?: true;
  readonly measured?: true;
  /** A sentence that says whether the machine was enough, or what it lacked; absent in older reports. */
  readonly verdict?: string;
  /** Sentences about what the figures leave out; absent if there are none, and in older reports. */
  readonly warnings?: readonly string[];
  /** The machine preset of a simulation, or the measured machine. */
  readonly machine: string;
  readonly seed: number | null;
  readonly settings: Readonly<Record<string, SettingValue>>;
  /** Requests before the measurement began; they count nowhere else. */
  readonly warmup_requests: number;
  /** From the first arrival measured to the last answer. */
  readonly duration_s: number;
  readonly requests_per_s: number;
  /** Answers within the SLO per second. */
  readonly goodput_per_s: number;
  readonly queue_mean_ms: number | null;
  readonly queue_p99_ms: number | null;
  /** The distribution of latencies: shares of the answered requests, and the latency that each does not exceed. */
  readonly latency_cdf?: readonly (readonly [share: number, ms: number])[];
  readonly evictions_by_cause: Readonly<Record<string, number>>;
  readonly failures_by_reason: Readonly<Record<string, number>>;
  /**
   * Changes of resident functions to a smaller plan variant instead of an eviction, and back to a larger one; absent in
   * older reports.
   */
  readonly plan_changes?: { readonly smaller: number; readonly larger: number };
  /**
   * Changes of functions' lists of instances on the CPU with their load, and such as had too few cores or too little
   * memory; absent where there were none.
   */
  readonly list_changes?: { readonly done: number; readonly refused: number };
  /** By placement; absent in older reports, empty if nothing was predicted. */
  readonly predictions?: readonly PredictionRow[];
  /** By SLO; absent in older reports, empty if all have the same. */
  readonly slos?: readonly SloRow[];
  /** Absent if host memory was no part of the replay. */
  readonly host_memory?: HostMemoryRow;
  /** Absent if one machine was replayed. */
  readonly fleet?: FleetRow;
  /**
   * The largest error of a percentile in this report, as a share of itself; percentiles of the whole are more precise.
   */
  readonly percentile_error: number;
  readonly gpus: readonly GpuRow[];
  readonly models: readonly ModelRow[];
  /** A row for each minute, or for two, four, ... of a trace of more than two days. */
  readonly minutes_per_row: number;
  readonly per_minute: readonly IntervalRow[];
  /** The same in finer steps, for a trace of ten minutes at most. */
  readonly seconds_per_step: number | null;
  readonly timeline: readonly IntervalRow[];
  readonly functions: readonly FunctionRow[];
}

/** A report without its long lists. */
export type ReportSummary = Omit<Report, 'functions' | 'timeline' | 'per_minute' | 'latency_cdf'>;

/** One point of a sweep. */
export interface SweepRun {
  /** The value of the option; of functions, how many there are. */
  readonly at: number | string;
  readonly system: string;
  readonly report: ReportSummary;
}

export interface SweepReport {
  readonly format: 'turntable-sweep';
  readonly version: 2;
  readonly simulated: true;
  /** As in a report. */
  readonly warnings?: readonly string[];
  /** From where on each system is too slow, as a sentence. */
  readonly verdict: string;
  readonly machine: string;
  readonly seed: number | null;
  /** The option that takes a value after the other. */
  readonly over: string;
  /** Null if functions or invocations have SLOs of their own. */
  readonly slo_ms: number | null;
  readonly settings: Readonly<Record<string, SettingValue>>;
  readonly runs: readonly SweepRun[];
}

/** One system of a comparison. */
export interface ComparedSystem {
  readonly name: string;
  readonly report: Report;
  /** The same replay with each seed, that of the report first. */
  readonly seeds: readonly SeedFigures[];
}

export interface SeedFigures {
  readonly seed: number | null;
  readonly requests: number;
  readonly goodput: number | null;
  readonly p99_ms: number | null;
}

export interface Comparison {
  readonly format: 'turntable-comparison';
  readonly version: 1;
  /** Which system wins and by how much, or why none does, as a sentence. */
  readonly verdict: string;
  readonly winner: string | null;
  readonly systems: readonly ComparedSystem[];
}
