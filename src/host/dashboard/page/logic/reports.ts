/** Reports of replays, from the JSON that `turntable replay --json` writes. */

/** The fields of a report that the page reads; the files have more. */
export interface ReplayReport {
  readonly format: string;
  readonly simulated?: boolean;
  readonly measured?: boolean;
  readonly machine: string;
  /** Absent in older reports. */
  readonly verdict?: string;
  /** What the figures do not tell; absent where there is nothing to say. */
  readonly warnings?: readonly string[];
  readonly requests: number;
  readonly requests_per_s: number;
  readonly goodput: number | null;
  readonly goodput_per_s: number;
  readonly p50_ms: number | null;
  readonly p99_ms: number | null;
  readonly cold_start_rate: number | null;
  readonly partial_start_rate: number | null;
  readonly evictions: number;
  readonly shed: number;
  readonly offloaded: number;
  readonly failed: number;
  readonly settings: Readonly<Record<string, unknown>>;
  readonly per_minute: readonly ReportRow[];
  readonly timeline: readonly ReportRow[];
  readonly models: readonly (ReportTally & { readonly model: string; readonly functions: number })[];
  readonly gpus: readonly {
    readonly gpu: number;
    readonly requests: number;
    readonly cold_starts: number;
    readonly utilisation: number;
  }[];
}

export interface ReportTally {
  readonly requests: number;
  readonly goodput: number | null;
  readonly p50_ms: number | null;
  readonly p99_ms: number | null;
  readonly cold_start_rate: number | null;
}

export interface ReportRow extends ReportTally {
  readonly start_s: number;
  readonly requests_per_s: number;
}

/** The fields of `turntable plan capacity --json` that the page shows. */
export interface CapacityReport {
  readonly format: 'turntable-capacity';
  /** The requested goodput. */
  readonly goodput: number;
  readonly answers: readonly {
    readonly machine: string;
    readonly text: string;
    readonly enough: CapacitySize | null;
    readonly runs: readonly (CapacitySize & {
      readonly goodput: number | null;
      readonly p99_ms: number | null;
      readonly cold_start_rate: number | null;
    })[];
  }[];
}

interface CapacitySize {
  readonly gpus: number;
  readonly hosts: number;
  readonly cores: number;
}

export const isCapacityReport = (json: unknown): json is CapacityReport =>
  (json as Partial<CapacityReport> | null)?.format === 'turntable-capacity';

/** @throws Error saying what the text is instead */
export function parseReport(text: string): ReplayReport {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    throw new Error('this file is not JSON; a report is what `turntable replay --json FILE` writes');
  }
  const { format } = (json ?? {}) as { readonly format?: unknown };
  if (format !== 'turntable-report') {
    throw new Error(
      format === 'turntable-sweep'
        ? 'this is the report of a sweep; open it with `turntable sweep --html`'
        : 'this JSON is not a report of `turntable replay --json`',
    );
  }
  return json as ReplayReport;
}

/** Where the figures come from; every screen with figures must show it. */
export function provenance({ simulated, machine }: ReplayReport): string {
  return `${simulated === true ? 'simulated' : 'measured'} on ${machine}`;
}

export interface Comparison {
  readonly name: string;
  readonly unit: 'share' | 'ms' | 'rate' | 'count';
  readonly better: 'more' | 'less';
  readonly values: readonly (number | null)[];
}

/** The deciding figures: a row for each, with a value for each report. */
export function compare(reports: readonly ReplayReport[]): Comparison[] {
  const row = (
    name: string,
    unit: Comparison['unit'],
    better: Comparison['better'],
    value: (report: ReplayReport) => number | null,
  ): Comparison => ({ name, unit, better, values: reports.map(value) });
  return [
    row('Goodput', 'share', 'more', ({ goodput }) => goodput),
    row('Goodput rate', 'rate', 'more', (report) => report.goodput_per_s),
    row('p50', 'ms', 'less', (report) => report.p50_ms),
    row('p99', 'ms', 'less', (report) => report.p99_ms),
    row('Cold starts', 'share', 'less', (report) => report.cold_start_rate),
    row('Partial starts', 'share', 'less', (report) => report.partial_start_rate),
    row('Evictions', 'count', 'less', ({ evictions }) => evictions),
    row('Shed', 'count', 'less', ({ shed }) => shed),
    row('To CPU pools', 'count', 'less', ({ offloaded }) => offloaded),
    row('Failed', 'count', 'less', ({ failed }) => failed),
  ];
}

/** Index of the best value; -1 if all are equal or unknown. */
export function bestOf({ better, values }: Comparison): number {
  const known = values.filter((value) => value !== null);
  if (new Set(known).size < 2) return -1;
  return values.indexOf(better === 'more' ? Math.max(...known) : Math.min(...known));
}
