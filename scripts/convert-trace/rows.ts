/** Traces as CSV with a row for each invocation, of which only some columns count. */
import { shown, TraceError, traceError, type TracePlace } from '../../src/replay/traces/error.ts';
import { readLines } from '../../src/replay/traces/lines.ts';
import { numbering } from '../../src/replay/traces/recorded.ts';
import { InvocationSorter } from '../../src/replay/traces/sorter.ts';
import type { Trace } from '../../src/replay/types.ts';

/** What a row says of its invocation. */
export interface Row {
  readonly atMs: number;
  readonly name: string;
  readonly durationMs?: number;
}

/**
 * Reads the wanted columns, wherever the header has them. The trace begins with its earliest invocation: times may be
 * seconds since 1970.
 *
 * @throws TraceError with file, line and field
 */
export async function readRows(
  file: string,
  columns: readonly string[],
  rowOf: (fields: readonly string[], line: number) => Row,
): Promise<Trace> {
  const rows = new RowCollector();
  let header: readonly string[] | undefined;
  let places: readonly number[] = [];
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
    rows.add(rowOf(wanted, line));
  });
  if (header === undefined) throw new TraceError(`${file} is empty`);
  return rows.finish();
}

/** Makes a trace of rows in any order that begins with the earliest. */
export class RowCollector {
  readonly #sorter = new InvocationSorter();
  readonly #names: string[] = [];
  readonly #indexOf = numbering(this.#names);
  #firstMs = Infinity;

  add({ atMs, name, durationMs = NaN }: Row): void {
    this.#firstMs = Math.min(this.#firstMs, atMs);
    this.#sorter.add(atMs, this.#indexOf(name), durationMs);
  }

  finish(): Trace {
    const firstMs = this.#firstMs;
    const invocations = this.#sorter.finish();
    return {
      functionNames: this.#names,
      *invocations() {
        for (const { arrivalMs, ...rest } of invocations()) yield { ...rest, arrivalMs: arrivalMs - firstMs };
      },
    };
  }
}

export function secondsOf(text: string, place: TracePlace): number {
  const seconds = text === '' ? NaN : Number(text);
  if (!Number.isFinite(seconds)) throw traceError(place, `${shown(text)} is not a number of seconds`);
  return seconds;
}
