/**
 * Traces of calls to language models: Azure's of 2023 and 2024 (Patel et al., "Splitwise", ISCA 2024; Stojkovic et al.,
 * "DynamoLLM", HPCA 2025), BurstGPT (Wang et al., KDD 2025) and Mooncake (Qin et al., FAST 2025). Each row is a call
 * with its instant and its tokens. A replay uses the instants: a function's run takes as long as its model, whatever the
 * tokens were. A warning says so.
 */
import { basename } from 'node:path';
import { deriveSeed, Xoshiro } from '../../src/replay/generate/random.ts';
import { shown, traceError, type TracePlace } from '../../src/replay/traces/error.ts';
import { readLines } from '../../src/replay/traces/lines.ts';
import type { Trace } from '../../src/replay/types.ts';
import { readRows, RowCollector, secondsOf } from './rows.ts';

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

/** Of each line of Mooncake's JSON Lines; the blocks of the prompt, which it has besides, are left out. */
export const mooncakeFields = ['timestamp', 'input_length', 'output_length'] as const;

export function isBurstGptHeader(line: string): boolean {
  const columns = line.split(',');
  return burstGptColumns.every((column) => columns.includes(column));
}

/** A trace as the reader of its format gives it. */
export interface ReadTrace extends Trace {
  /** What a replay of it does not tell, or what was read otherwise than it stands there: sentences. */
  readonly warnings: readonly string[];
}

/** What the calls of a trace generate, for a warning. */
class Generated {
  #calls = 0;
  #tokens = 0;
  #most = 0;

  add(tokens: number): void {
    this.#calls++;
    this.#tokens += tokens;
    this.#most = Math.max(this.#most, tokens);
  }

  warnings(): string[] {
    if (this.#calls === 0) return [];
    const mean = Math.round(this.#tokens / this.#calls).toLocaleString('en-US');
    return [
      `tokens are ignored: each call is one run of its model here. The calls of this trace generate ${mean} tokens on ` +
        `average and ${this.#most.toLocaleString('en-US')} at most, and a language model takes a run for each.`,
    ];
  }
}

/**
 * Assigns the calls to `count` functions at random: these traces know when calls came, but not of which function.
 */
export function dealTrace(trace: Trace, count: number, seed: number): Trace {
  return {
    functionNames: Array.from({ length: count }, (_, index) => `function-${index}`),
    *invocations() {
      const random = new Xoshiro(deriveSeed(seed, 0xdea1));
      for (const invocation of trace.invocations()) yield { ...invocation, functionIndex: random.below(count) };
    },
  };
}

const nameOfFile = (file: string): string => basename(file).replace(/\.(csv|jsonl?)(\.gz)?$/, '');

/**
 * Reads a file of Azure's LLM traces: one function, with the file's name. The trace begins with its earliest call.
 *
 * @throws TraceError with file, line and field
 */
export async function readAzureLlm(file: string): Promise<ReadTrace> {
  const name = nameOfFile(file);
  const generated = new Generated();
  const trace = await readRows(file, azureLlmHeader.split(','), (fields, line) => {
    tokensOf(fields[1]!, { file, line, field: 'ContextTokens' });
    generated.add(tokensOf(fields[2]!, { file, line, field: 'GeneratedTokens' }));
    return { atMs: instantOf(fields[0]!, { file, line, field: 'TIMESTAMP' }), name };
  });
  return { ...trace, warnings: generated.warnings() };
}

/**
 * Reads a file of BurstGPT: a function for each model and kind of log, such as "ChatGPT, API log". Failed calls
 * (without response tokens) count, since they were made. The trace begins with its earliest call.
 *
 * @throws TraceError with file, line and field
 */
export async function readBurstGpt(file: string): Promise<ReadTrace> {
  const generated = new Generated();
  const trace = await readRows(file, burstGptColumns, (fields, line) => {
    const [timestamp = '', model = '', request = '', response = '', total = '', log = ''] = fields;
    tokensOf(request, { file, line, field: 'Request tokens' });
    generated.add(tokensOf(response, { file, line, field: 'Response tokens' }));
    tokensOf(total, { file, line, field: 'Total tokens' });
    if (model === '') throw traceError({ file, line, field: 'Model' }, 'the name of the model is empty');
    const seconds = secondsOf(timestamp, { file, line, field: 'Timestamp' });
    if (seconds < 0) throw traceError({ file, line, field: 'Timestamp' }, `${shown(timestamp)} is less than no time`);
    return { atMs: seconds * 1000, name: `${model}, ${log}` };
  });
  return { ...trace, warnings: generated.warnings() };
}

/**
 * Reads JSON Lines of Mooncake's, with instants in milliseconds: one function, with the file's name. The trace begins
 * with its earliest call.
 *
 * @throws TraceError with file, line and field
 */
export async function readMooncake(file: string): Promise<ReadTrace> {
  const rows = new RowCollector();
  const generated = new Generated();
  const name = nameOfFile(file);
  await readLines(file, (buffer, start, end, line) => {
    const text = buffer.toString('utf8', start, end);
    let fields: Record<string, unknown>;
    try {
      fields = Object(JSON.parse(text)) as Record<string, unknown>;
    } catch {
      throw traceError({ file, line }, `${shown(text)} is not JSON`);
    }
    const [atMs = 0, , tokens = 0] = mooncakeFields.map((field) => {
      const value = fields[field];
      if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value;
      const found = value === undefined ? 'nothing' : shown(JSON.stringify(value));
      const what = field === 'timestamp' ? 'milliseconds' : 'tokens';
      throw traceError({ file, line, field }, `${found} is not a number of ${what}`);
    });
    generated.add(tokens);
    rows.add({ atMs, name });
  });
  return { ...rows.finish(), warnings: generated.warnings() };
}

/**
 * '2023-11-16 18:15:46.6805900', or in 2024 '2024-05-10 00:00:00.009930+00:00', in milliseconds since 1970; or seconds
 * since then, as tools write them.
 */
function instantOf(text: string, place: TracePlace): number {
  if (/^\d+(\.\d*)?$/.test(text)) return Number(text) * 1000;
  const [, day, time, fraction = '', zone = 'Z'] =
    /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?$/.exec(text) ?? [];
  const wholeMs = Date.parse(`${day}T${time}${zone}`);
  if (Number.isNaN(wholeMs)) {
    throw traceError(place, `${shown(text)} is not an instant such as '2023-11-16 18:15:46.6805900'`);
  }
  return wholeMs + Number(`0${fraction}`) * 1000;
}

function tokensOf(text: string, place: TracePlace): number {
  if (!/^\d+(\.0*)?$/.test(text)) throw traceError(place, `${shown(text)} is not a number of tokens`);
  return Number(text);
}
