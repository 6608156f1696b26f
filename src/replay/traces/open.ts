import type { Trace } from '../types.ts';
import { TraceError } from './error.ts';
import { readRecorded } from './recorded.ts';
import { foldTrace, scaleTrace, sliceTrace, summarizeTrace } from './transform.ts';
import { formatMs } from '../../tools/index.ts';

export interface OpenTraceOptions {
  readonly seed?: number;
  /** Only invocations that arrive from here on, */
  readonly fromMs?: number;
  /** and before this. The trace begins at `fromMs`. */
  readonly toMs?: number;
  /** Scale to so many requests per second on average over the window. */
  readonly ratePerS?: number;
  /** Fold the functions onto so many, most invoked first. */
  readonly fold?: number;
}

/** A trace file, checked from its first to its last line, ready to be replayed. */
export interface OpenedTrace extends Trace {
  /** Functions in the file, before folding. */
  readonly fileFunctions: number;
  /** Approximate number of resulting invocations, for a progress bar: scaling draws them. */
  readonly requestsExpected: number;
  /** Some invocations have an SLO of their own. */
  readonly hasOwnSlo: boolean;
}

/**
 * Opens a trace file. The file is read once, here, so that errors in it are reported before a replay has begun; the
 * needed data is kept in a compact form, on disk if it is large.
 *
 * @throws TraceError with file, line and field
 */
export async function openTrace(file: string, options: OpenTraceOptions = {}): Promise<OpenedTrace> {
  const { seed = 0, fromMs = 0, toMs = Infinity, ratePerS, fold } = options;
  const source = await readRecorded(file);
  const window = fromMs === 0 && toMs === Infinity ? source : sliceTrace(source, fromMs, toMs);
  const { requests, totals, lastArrivalMs } = summarizeTrace(window);
  if (requests === 0) throw noneInWindow(file, source, fromMs, toMs);
  const rate = lastArrivalMs === 0 ? 0 : requests / (lastArrivalMs / 1000);
  const factor = ratePerS === undefined || rate === 0 ? 1 : ratePerS / rate;
  const scaled = scaleTrace(window, factor, seed);
  if (isEmpty(scaled)) throw new TraceError(`${file}: none of its invocations is left at ${ratePerS} a second`);
  return {
    ...(fold === undefined ? scaled : foldTrace(scaled, totals, fold)),
    fileFunctions: source.functionNames.length,
    requestsExpected: Math.round(requests * factor),
    hasOwnSlo: source.hasOwnSlo,
  };
}

function isEmpty(trace: Trace): boolean {
  for (const _ of trace.invocations()) return false;
  return true;
}

function noneInWindow(file: string, source: Trace, fromMs: number, toMs: number): TraceError {
  let firstMs: number | undefined;
  let lastMs = 0;
  for (const { arrivalMs } of source.invocations()) {
    firstMs ??= arrivalMs;
    lastMs = arrivalMs;
  }
  if (firstMs === undefined) return new TraceError(`${file} has no invocation`);
  const until = toMs === Infinity ? 'its end' : formatMs(toMs);
  return new TraceError(
    `${file}: no invocation falls between ${formatMs(fromMs)} and ${until}: the first comes at ${formatMs(firstMs)}, ` +
      `the last at ${formatMs(lastMs)}`,
  );
}
