/** Cold starts, and graphs over a GPU and cores, as lanes of bars. No code. */

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
