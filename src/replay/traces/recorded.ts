/**
 * Turntable's own traces: JSON Lines, first a heading and then one line for each invocation, as in
 * `traces/trace.schema.json`. A host's recording is in the order in which invocations ended, because an invocation is
 * fully known only then; a generated trace is in the order of arrival.
 */
import { getOrMake } from '../../tools/index.ts';
import type { Trace } from '../types.ts';
import { shown, TraceError, traceError, type TracePlace } from './error.ts';
import { readLines } from './lines.ts';
import { InvocationSorter } from './sorter.ts';

export const traceFormat = 'turntable-trace';
export const traceVersion = 1;

/** Said of a first line in another format, of which the converter reads some. */
const beginsNoTrace =
  `begins no trace of Turntable's, as '{"format":"${traceFormat}"' does; scripts/convert-trace.ts converts traces of ` +
  'Azure Functions, Azure LLM inference, BurstGPT and Mooncake';

/** The first line. */
export interface TraceHeading {
  readonly format: typeof traceFormat;
  readonly version: typeof traceVersion;
  /** What the trace is and where it comes from. */
  readonly description?: string;
  /** When a recording began: ISO 8601, UTC. */
  readonly recorded_at?: string;
  /** In the order of their positions, which routing by position depends on; by default the order of appearance. */
  readonly functions?: readonly string[];
}

/** How an invocation ended, named as in the host's metrics. */
export type RecordedOutcome = 'in_slo' | 'late' | 'shed' | 'failed';

/** Every other line. Replay reads arrival, function, duration and SLO; the rest is for people and other tools. */
export interface TraceLine {
  /** Milliseconds from the start of the trace. */
  readonly arrival_ms: number;
  readonly function: string;
  /** The running time alone, without waiting and loading. */
  readonly duration_ms?: number;
  /** From arrival to answer. */
  readonly latency_ms?: number;
  readonly slo_ms?: number;
  readonly outcome?: RecordedOutcome;
  /** Where it ran, as in `X-Turntable-Placement`. */
  readonly placement?: string;
}

/** Numbers names in the order in which they first come, and adds each new one to `names`. */
export function numbering(names: string[]): (name: string) => number {
  const numbers = new Map<string, number>();
  return (name) => getOrMake(numbers, name, () => names.push(name) - 1);
}

/**
 * Reads a file of this format and sorts it by arrival. A last line without a line break that is no JSON is skipped: a
 * recording ends like that when its host is killed.
 *
 * @throws TraceError with file, line and field
 */
export async function readRecorded(file: string): Promise<Trace & { readonly hasOwnSlo: boolean }> {
  const sorter = new InvocationSorter();
  const functionNames: string[] = [];
  const indexOf = numbering(functionNames);
  let heading: TraceHeading | undefined;
  let hasOwnSlo = false;
  await readLines(file, (buffer, start, end, line, whole) => {
    let value: unknown;
    try {
      value = JSON.parse(buffer.toString('utf8', start, end));
    } catch {
      if (!whole && heading !== undefined) return;
      const problem = heading === undefined ? beginsNoTrace : 'is not JSON';
      throw traceError({ file, line }, `${shown(buffer.toString('utf8', start, end))} ${problem}`);
    }
    if (typeof value !== 'object' || value === null) throw traceError({ file, line }, 'the line is no JSON object');
    const fields = value as Record<string, unknown>;
    if (heading === undefined) {
      if (!Object.hasOwn(fields, 'format')) throw traceError({ file, line }, `${text(value)} ${beginsNoTrace}`);
      heading = readHeading(fields, { file, line });
      for (const name of heading.functions ?? []) indexOf(name);
      return;
    }
    const { arrival_ms: arrivalMs, function: name, duration_ms: durationMs, slo_ms: sloMs } = fields;
    if (!isFiniteNumber(arrivalMs) || arrivalMs < 0) {
      throw traceError({ file, line, field: 'arrival_ms' }, `${text(arrivalMs)} is not a number of milliseconds`);
    }
    if (typeof name !== 'string' || name === '') {
      throw traceError({ file, line, field: 'function' }, `${text(name)} is not the name of a function`);
    }
    if (durationMs !== undefined && (!isFiniteNumber(durationMs) || durationMs < 0)) {
      throw traceError({ file, line, field: 'duration_ms' }, `${text(durationMs)} is not a number of milliseconds`);
    }
    if (sloMs !== undefined && (typeof sloMs !== 'number' || !(sloMs > 0))) {
      throw traceError({ file, line, field: 'slo_ms' }, `${text(sloMs)} is not a number of milliseconds above 0`);
    }
    if (sloMs !== undefined) hasOwnSlo = true;
    sorter.add(arrivalMs, indexOf(name), durationMs ?? NaN, sloMs ?? NaN);
  });
  if (heading === undefined) throw new TraceError(`${file} is empty`);
  return { functionNames, invocations: sorter.finish(), hasOwnSlo };
}

function readHeading(fields: Record<string, unknown>, place: TracePlace): TraceHeading {
  if (fields['format'] !== traceFormat) {
    throw traceError({ ...place, field: 'format' }, `${text(fields['format'])} is not "${traceFormat}"`);
  }
  if (fields['version'] !== traceVersion) {
    throw traceError(
      { ...place, field: 'version' },
      `this Turntable reads version ${traceVersion} of the format, not ${text(fields['version'])}`,
    );
  }
  const names = fields['functions'];
  const named = Array.isArray(names) && names.every((name) => typeof name === 'string' && name !== '');
  if (names !== undefined && !named) {
    throw traceError({ ...place, field: 'functions' }, `${text(names)} is not a list of names`);
  }
  return fields as unknown as TraceHeading;
}

/** JSON may hold 1e400, which is read as Infinity. */
const isFiniteNumber = (value: unknown): value is number => Number.isFinite(value);

function text(value: unknown): string {
  if (value === undefined) return 'nothing';
  return shown(typeof value === 'number' ? String(value) : JSON.stringify(value));
}
