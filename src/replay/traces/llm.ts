/**
 * Traces of calls to language models: Azure's of 2023 and 2024 (Patel et al., "Splitwise", ISCA 2024; Stojkovic et al.,
 * "DynamoLLM", HPCA 2025) and BurstGPT (Wang et al., KDD 2025). Each row is a call with its instant and its tokens. A
 * replay uses the instants: a function's run takes as long as its model, whatever the tokens were.
 */
import { basename } from 'node:path';
import type { Trace } from '../types.ts';
import { shown, traceError, type TracePlace } from './error.ts';
import { readRows, secondsOf } from './rows.ts';

export const azureLlmHeader = 'TIMESTAMP,ContextTokens,GeneratedTokens';
/** Later releases of BurstGPT have 'Session ID' and 'Elapsed time' between these. */
export const burstGptColumns = [
  'Timestamp',
  'Model',
  'Request tokens',
  'Response tokens',
  'Total tokens',
  'Log Type',
] as const;

export function isBurstGptHeader(line: string): boolean {
  const columns = line.split(',');
  return burstGptColumns.every((column) => columns.includes(column));
}

/**
 * Reads a file of Azure's LLM traces: one function, with the file's name. The trace begins with its earliest call.
 *
 * @throws TraceError with file, line and field
 */
export async function readAzureLlm(file: string): Promise<Trace> {
  const name = basename(file).replace(/\.csv(\.gz)?$/, '');
  return await readRows(file, azureLlmHeader.split(','), (fields, line) => {
    tokensOf(fields[1]!, { file, line, field: 'ContextTokens' });
    tokensOf(fields[2]!, { file, line, field: 'GeneratedTokens' });
    return { atMs: instantOf(fields[0]!, { file, line, field: 'TIMESTAMP' }), name };
  }, { fromFirst: true });
}

/**
 * Reads a file of BurstGPT: a function for each model and kind of log, such as "ChatGPT, API log". Failed calls
 * (without response tokens) count, since they were made. The trace begins with its earliest call.
 *
 * @throws TraceError with file, line and field
 */
export async function readBurstGpt(file: string): Promise<Trace> {
  return await readRows(file, burstGptColumns, (fields, line) => {
    const [timestamp = '', model = '', request = '', response = '', total = '', log = ''] = fields;
    tokensOf(request, { file, line, field: 'Request tokens' });
    tokensOf(response, { file, line, field: 'Response tokens' });
    tokensOf(total, { file, line, field: 'Total tokens' });
    if (model === '') throw traceError({ file, line, field: 'Model' }, 'the name of the model is empty');
    const seconds = secondsOf(timestamp, { file, line, field: 'Timestamp' });
    if (seconds < 0) throw traceError({ file, line, field: 'Timestamp' }, `${shown(timestamp)} is less than no time`);
    return { atMs: seconds * 1000, name: `${model}, ${log}` };
  }, { fromFirst: true });
}

/** '2023-11-16 18:15:46.6805900', or in 2024 '2024-05-10 00:00:00.009930+00:00', in milliseconds since 1970. */
function instantOf(text: string, place: TracePlace): number {
  const [, day, time, fraction = '', zone = 'Z'] =
    /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?$/.exec(text) ?? [];
  const wholeMs = Date.parse(`${day}T${time}${zone}`);
  if (Number.isNaN(wholeMs)) {
    throw traceError(place, `${shown(text)} is not an instant such as '2023-11-16 18:15:46.6805900'`);
  }
  return wholeMs + Number(`0${fraction}`) * 1000;
}

function tokensOf(text: string, place: TracePlace): void {
  if (!/^\d+(\.0*)?$/.test(text)) throw traceError(place, `${shown(text)} is not a number of tokens`);
}
