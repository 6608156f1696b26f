/** Opens a trace in another format than Turntable's own, which its first line names. */
import { shown, TraceError } from '../../src/replay/traces/error.ts';
import { readLines } from '../../src/replay/traces/lines.ts';
import type { Trace } from '../../src/replay/types.ts';
import { azure2019Columns, readAzure2019 } from './azure-2019.ts';
import { azure2021Header, readAzure2021 } from './azure-2021.ts';
import {
  azureLlmHeader,
  burstGptColumns,
  dealTrace,
  isBurstGptHeader,
  mooncakeFields,
  readAzureLlm,
  readBurstGpt,
  readMooncake,
} from './llm.ts';
import { placeTable, type PlaceOptions } from './place.ts';

export interface ForeignTrace extends Trace {
  readonly format: TraceFormat;
  /** What a replay of it does not tell, or what was read otherwise than it stands there: sentences. */
  readonly warnings: readonly string[];
}

export type TraceFormat = 'azure-2019' | 'azure-2021' | 'azure-llm' | 'burst-gpt' | 'mooncake';

export interface ForeignOptions extends PlaceOptions {
  /**
   * So many functions. Those of 2019 are folded onto them, most invoked first. Calls of a language model trace, which
   * has no functions, are assigned to them at random with equal probability.
   */
  readonly functions?: number;
}

/** Detects the format of a trace file from its first line. Throws TraceError for an unknown one. */
async function formatOf(file: string): Promise<TraceFormat> {
  let first: string | undefined;
  await readLines(file, (buffer, start, end) => {
    first = buffer.toString('utf8', start, end);
    return 'stop';
  });
  if (first === undefined) throw new TraceError(`${file} is empty`);
  if (first.startsWith(`${azure2019Columns.join(',')},`)) return 'azure-2019';
  if (first === azure2021Header) return 'azure-2021';
  if (first === azureLlmHeader) return 'azure-llm';
  if (isBurstGptHeader(first)) return 'burst-gpt';
  if (mooncakeFields.every((field) => Object.hasOwn(fieldsOf(first!), field))) return 'mooncake';
  throw new TraceError(
    `${file}, line 1: ${shown(first)} begins no trace: Azure Functions 2019 begins with '${azure2019Columns.join(',')}', ` +
      `2021 with '${azure2021Header}', Azure's LLM inference with '${azureLlmHeader}', ` +
      `BurstGPT with '${burstGptColumns.join(',')}', Mooncake with an object with '${mooncakeFields.join("', '")}'`,
  );
}

function fieldsOf(line: string): object {
  try {
    return Object(JSON.parse(line)) as object;
  } catch {
    return {};
  }
}

/**
 * Reads the file once, from its first to its last line; the needed data is kept in a compact form, on disk if it is
 * large.
 *
 * @throws TraceError with file, line and field, or for options that this format has no use for
 */
export async function openForeign(file: string, options: ForeignOptions = {}): Promise<ForeignTrace> {
  const format = await formatOf(file);
  const { functions, seed = 0, ...placing } = options;
  if (format === 'azure-2019') {
    const { emptyCells, ...table } = await readAzure2019(file);
    const counted = emptyCells.toLocaleString('en-US');
    const warnings = emptyCells === 0 ? [] : [`empty minutes in the trace, which count as no invocation: ${counted}.`];
    return { ...placeTable(table, options), format, warnings };
  }
  if (Object.values(placing).some((value) => value !== undefined)) {
    throw new TraceError(
      `${file} has the instant of each call: replay takes --from, --duration and --rate; arrivals are placed in ` +
        'minutes of Azure Functions 2019 alone',
    );
  }
  if (format === 'azure-2021') {
    if (functions !== undefined) throw new TraceError(`${file} names its functions: replay folds them`);
    return { ...(await readAzure2021(file)), format, warnings: [] };
  }
  const read = await readers[format](file);
  return { ...(functions === undefined ? read : dealTrace(read, functions, seed)), format, warnings: read.warnings };
}

const readers = { 'azure-llm': readAzureLlm, 'burst-gpt': readBurstGpt, mooncake: readMooncake } as const;
