import type { ReadTrace, Trace } from '../types.ts';
import { azure2019Columns, readAzure2019 } from './azure-2019.ts';
import { azure2021Header, readAzure2021 } from './azure-2021.ts';
import { shown, TraceError } from './error.ts';
import { readFirstLine } from './lines.ts';
import { factorForRate, minuteMs, placeInMinutes, type PlaceOptions } from './place.ts';
import type { MinuteTable } from './minute-table.ts';
import { readRecorded, traceFormat } from './recorded.ts';
import {
  azureLlmHeader,
  burstGptColumns,
  isBurstGptHeader,
  mooncakeFields,
  readAzureLlm,
  readBurstGpt,
  readMooncake,
} from './llm.ts';
import { dealTrace, foldTrace, scaleTrace, sliceTrace, summarizeTrace } from './transform.ts';
import { formatMs, given } from '../../tools/index.ts';

export type TraceFormat = 'azure-2019' | 'azure-2021' | 'azure-llm' | 'burst-gpt' | 'mooncake' | 'turntable';

export interface OpenTraceOptions extends Pick<PlaceOptions, 'placement'> {
  readonly seed?: number;
  /** Only invocations that arrive from here on, */
  readonly fromMs?: number;
  /** and before this. The trace begins at `fromMs`. */
  readonly toMs?: number;
  /** Scale to so many requests per second on average over the window. */
  readonly ratePerS?: number;
  /**
   * Fold the functions onto so many, most invoked first. Calls of a language model trace, which has no functions, are
   * assigned to so many at random with equal probability.
   */
  readonly fold?: number;
  /**
   * Treat a table of minutes as the DeepPlan artifact's client does: the rate is the mean over the whole file, not the
   * window, scaled counts are rounded down, and arrivals are drawn by minstd_rand with seed 0 (placement 'artifact').
   */
  readonly asArtifact?: boolean;
}

/** A trace file, checked from its first to its last line, ready to be replayed. */
export interface OpenedTrace extends Trace {
  readonly format: TraceFormat;
  /** Functions in the file, before folding. */
  readonly fileFunctions: number;
  /** Approximate number of resulting invocations, for a progress bar: scaling draws them. */
  readonly requestsExpected: number;
  /** Some invocations have an SLO of their own. */
  readonly hasOwnSlo: boolean;
  /** As in `ReadTrace`. */
  readonly warnings: readonly string[];
}

/** Detects the format of a trace file from its first line. Throws TraceError for an unknown one. */
export async function traceFormatOf(file: string): Promise<TraceFormat> {
  const first = await readFirstLine(file);
  if (first === undefined) throw new TraceError(`${file} is empty`);
  if (first.startsWith(`${azure2019Columns.join(',')},`)) return 'azure-2019';
  if (first === azure2021Header) return 'azure-2021';
  if (first === azureLlmHeader) return 'azure-llm';
  if (isBurstGptHeader(first)) return 'burst-gpt';
  if (first.startsWith('{')) {
    const fields = fieldsOf(first);
    // One that cannot be read is told by its reader.
    if (fields === undefined || Object.hasOwn(fields, 'format')) return 'turntable';
    if (mooncakeFields.every((field) => Object.hasOwn(fields, field))) return 'mooncake';
  }
  throw new TraceError(
    `${file}, line 1: ${shown(first)} begins no trace: Azure Functions 2019 begins with '${azure2019Columns.join(',')}', ` +
      `2021 with '${azure2021Header}', Azure's LLM inference with '${azureLlmHeader}', ` +
      `BurstGPT with '${burstGptColumns.join(',')}', Mooncake with an object with ` +
      `'${mooncakeFields.join("', '")}', Turntable's own with '{"format":"${traceFormat}"'`,
  );
}

function fieldsOf(line: string): object | undefined {
  try {
    return Object(JSON.parse(line)) as object;
  } catch {
    return undefined;
  }
}

/**
 * Opens a trace file of any of these formats. The file is read once, here, so that errors in it are reported before a
 * replay has begun; the needed data is kept in a compact form, on disk if it is large.
 *
 * @throws TraceError with file, line and field
 */
export async function openTrace(file: string, options: OpenTraceOptions = {}): Promise<OpenedTrace> {
  const format = await traceFormatOf(file);
  let open: (options: OpenTraceOptions) => OpenedTrace;
  if (format === 'azure-2019') {
    const { emptyCells, ...table } = await readAzure2019(file);
    const counted = emptyCells.toLocaleString('en-US');
    const warnings = emptyCells === 0 ? [] : [`empty minutes in the trace, which count as no invocation: ${counted}.`];
    open = (chosen) => ({ ...openTable(table, chosen), warnings });
  } else {
    const read = await readers[format](file);
    open = (chosen) => openInvocations(read, format, chosen);
  }
  const opened = open(options);
  if (isEmpty(opened)) throw nothingLeft(file, options, open);
  return opened;
}

function isEmpty(trace: Trace): boolean {
  for (const _ of trace.invocations()) return false;
  return true;
}

/** Why no invocation is left of a trace. */
function nothingLeft(
  file: string,
  { fromMs = 0, toMs = Infinity, ratePerS, ...others }: OpenTraceOptions,
  open: (options: OpenTraceOptions) => OpenedTrace,
): TraceError {
  if (!isEmpty(open({ ...others, fromMs, toMs }))) {
    return new TraceError(`${file}: none of its invocations is left at ${ratePerS} a second`);
  }
  let [firstMs, lastMs] = [Infinity, 0];
  for (const { arrivalMs } of open(others).invocations()) {
    firstMs = Math.min(firstMs, arrivalMs);
    lastMs = arrivalMs;
  }
  if (firstMs === Infinity) return new TraceError(`${file} has no invocation`);
  const until = toMs === Infinity ? 'its end' : formatMs(toMs);
  return new TraceError(
    `${file}: no invocation falls between ${formatMs(fromMs)} and ${until}: the first comes at ${formatMs(firstMs)}, ` +
      `the last at ${formatMs(lastMs)}`,
  );
}

const readers = {
  'azure-2021': readAzure2021,
  'azure-llm': readAzureLlm,
  'burst-gpt': readBurstGpt,
  mooncake: readMooncake,
  turntable: readRecorded,
} as const satisfies Record<Exclude<TraceFormat, 'azure-2019'>, (file: string) => Promise<ReadTrace>>;

/** Opens a table of counts as if it had been read from a file of 2019. */
export function openTable(table: MinuteTable, options: OpenTraceOptions = {}): OpenedTrace {
  const { fromMs = 0, toMs = Infinity, ratePerS, fold, asArtifact = false } = options;
  const fromMinute = Math.min(table.minutes, Math.floor(fromMs / minuteMs));
  const toMinute = Math.min(table.minutes, Math.ceil(toMs / minuteMs));
  const window = windowOf(table, fromMinute, toMinute);
  const requests = window.totals.reduce((sum, total) => sum + total, 0);
  const factor = ratePerS === undefined ? 1 : factorForRate(asArtifact ? table : window, ratePerS);
  const trace = placeInMinutes(table, {
    ...options,
    factor,
    fromMinute,
    toMinute,
    ...given({ fold }),
    ...(asArtifact ? { placement: 'artifact', rounding: 'truncate' } : undefined),
  });
  return {
    ...trace,
    format: 'azure-2019',
    fileFunctions: table.functionNames.length,
    requestsExpected: Math.round(requests * factor),
    hasOwnSlo: false,
    warnings: [],
  };
}

/** Totals over a part of the minutes. */
function windowOf(
  table: MinuteTable,
  fromMinute: number,
  toMinute: number,
): Pick<MinuteTable, 'totals' | 'minutes'> {
  const minutes = Math.max(0, toMinute - fromMinute);
  if (minutes === table.minutes) return table;
  const totals = new Float64Array(table.functionNames.length);
  for (let minute = fromMinute; minute < toMinute; minute++) {
    table.readMinute(minute, (functionIndex, count) => {
      totals[functionIndex]! += count;
    });
  }
  return { totals, minutes };
}

function openInvocations(source: ReadTrace, format: TraceFormat, options: OpenTraceOptions): OpenedTrace {
  const { seed = 0, fromMs = 0, toMs = Infinity, ratePerS, fold } = options;
  const window = fromMs === 0 && toMs === Infinity ? source : sliceTrace(source, fromMs, toMs);
  const { requests, totals, lastArrivalMs } = summarizeTrace(window);
  const rate = lastArrivalMs === 0 ? 0 : requests / (lastArrivalMs / 1000);
  const factor = ratePerS === undefined || rate === 0 ? 1 : ratePerS / rate;
  let trace = scaleTrace(window, factor, seed);
  const namesNoFunctions = format === 'azure-llm' || format === 'burst-gpt' || format === 'mooncake';
  if (fold !== undefined) {
    trace = namesNoFunctions ? dealTrace(trace, fold, seed) : foldTrace(trace, totals, fold);
  }
  return {
    ...trace,
    format,
    fileFunctions: source.functionNames.length,
    requestsExpected: Math.round(requests * factor),
    hasOwnSlo: source.hasOwnSlo ?? false,
    warnings: source.warnings ?? [],
  };
}
