/**
 * A replay's report: the same form in files (`--json`) and in memory, for a simulation and for a live host, so that the
 * two can be compared. Milliseconds are from the arrival to the answer; a percentile is null if nothing was answered.
 */

import type { FleetRow } from '../hosts/record.ts';
import type { PredictionRow, SloRow, Tally } from './tally.ts';

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
  readonly evictions: number;
}

export type SettingValue = string | number | boolean | null | readonly string[];

export interface Report extends Tally {
  readonly format: 'turntable-report';
  readonly version: 1;
  /** Exactly one of the two. */
  readonly simulated?: true;
  readonly measured?: true;
  /** Whether the machine was enough, and what was missing, as a sentence; absent in older reports. */
  readonly verdict?: string;
  /** What the figures do not tell, as sentences; absent where there is nothing to say, and in older reports. */
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
  readonly evictions_by_cause: Readonly<Record<string, number>>;
  readonly failures_by_reason: Readonly<Record<string, number>>;
  /**
   * Changes of resident functions to a smaller plan variant instead of an eviction, and back to a larger one; absent in
   * older reports.
   */
  readonly plan_changes?: { readonly smaller: number; readonly larger: number };
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

/** One point of a sweep. */
export interface SweepRun {
  /** Functions in all. */
  readonly instances: number;
  readonly plan: string;
  readonly policy: string;
  readonly report: Omit<Report, 'functions' | 'timeline' | 'per_minute'>;
}

export interface SweepReport {
  readonly format: 'turntable-sweep';
  readonly version: 1;
  readonly simulated: true;
  /** As in a report. */
  readonly warnings?: readonly string[];
  readonly machine: string;
  readonly seed: number | null;
  /** Null if functions or invocations have SLOs of their own. */
  readonly slo_ms: number | null;
  readonly settings: Readonly<Record<string, SettingValue>>;
  readonly runs: readonly SweepRun[];
}
