/** Traces as CSV with a row for each invocation, of which only some columns count. */
import { getOrMake } from '../../tools/index.ts';
import type { Trace } from '../types.ts';
import { shown, TraceError, traceError, type TracePlace } from './error.ts';
import { readLines } from './lines.ts';
import { InvocationSorter } from './sorter.ts';

/** What a row says of its invocation. */
export interface Row {
  readonly atMs: number;
  readonly name: string;
  readonly durationMs?: number;
}

/** Numbers names in the order in which they first come, and adds each new one to `names`. */
export function numbering(names: string[]): (name: string) => number {
  const numbers = new Map<string, number>();
  return (name) => getOrMake(numbers, name, () => names.push(name) - 1);
}

/**
 * Reads the wanted columns, wherever the header has them. With `fromFirst` the trace begins with its earliest
 * invocation.
 *
 * @throws TraceError with file, line and field
 */
export async function readRows(
  file: string,
  columns: readonly string[],
  rowOf: (fields: readonly string[], line: number) => Row,
  { fromFirst = false } = {},
): Promise<Trace> {
  const sorter = new InvocationSorter();
  const functionNames: string[] = [];
  const indexOf = numbering(functionNames);
  let header: readonly string[] | undefined;
  let places: readonly number[] = [];
  let firstMs = Infinity;
  await readLines(file, (buffer, start, end, line) => {
    const fields = buffer.toString('utf8', start, end).split(',');
    if (header === undefined) {
      header = fields;
      places = columns.map((column) => fields.indexOf(column));
      const missing = columns.filter((_, index) => places[index] === -1);
      if (missing.length > 0) throw traceError({ file, line }, `the header has no column '${missing.join("', '")}'`);
      return;
    }
    if (fields.length !== header.length) {
      throw traceError({ file, line }, `the row has ${fields.length} fields instead of ${header.length}`);
    }
    const wanted = places.map((place) => fields[place]!.trim());
    const { atMs, name, durationMs = NaN } = rowOf(wanted, line);
    firstMs = Math.min(firstMs, atMs);
    sorter.add(atMs, indexOf(name), durationMs);
  });
  if (header === undefined) throw new TraceError(`${file} is empty`);
  const trace = { functionNames, invocations: sorter.finish() };
  if (!fromFirst) return trace;
  return {
    ...trace,
    *invocations() {
      for (const { arrivalMs, ...rest } of trace.invocations()) yield { ...rest, arrivalMs: arrivalMs - firstMs };
    },
  };
}

export function secondsOf(text: string, place: TracePlace): number {
  const seconds = text === '' ? NaN : Number(text);
  if (!Number.isFinite(seconds)) throw traceError(place, `${shown(text)} is not a number of seconds`);
  return seconds;
}
