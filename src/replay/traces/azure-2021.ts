/**
 * Azure Functions 2021 (Zhang et al., "Faster and Cheaper Serverless Computing on Harvested Resources", SOSP 2021): a
 * row for each invocation, with the end and the duration in seconds. The order of its rows is not reliable.
 */
import { shown, TraceError, traceError } from './error.ts';
import { readLines } from './lines.ts';
import type { IndexedTrace } from './indexed-trace.ts';
import { InvocationSorter } from './sorter.ts';

export const azure2021Header = 'app,func,end_timestamp,duration';

/**
 * Reads a file of this format. An invocation arrives at its end minus its duration; one that began before the trace
 * arrives at 0.
 *
 * @throws TraceError with file, line and field
 */
export async function readAzure2021(file: string): Promise<IndexedTrace> {
  const sorter = new InvocationSorter();
  const functionNames: string[] = [];
  const indices = new Map<string, number>();
  let headerSeen = false;
  await readLines(file, (buffer, start, end, line) => {
    // Names are hex and numbers plain, so latin1, the fastest, is enough.
    const text = buffer.toString('latin1', start, end);
    if (!headerSeen) {
      if (text !== azure2021Header) {
        throw traceError({ file, line }, `the header is ${shown(text)}, not '${azure2021Header}'`);
      }
      headerSeen = true;
      return;
    }
    const [app, name, endText, durationText, ...more] = text.split(',');
    if (app === undefined || name === undefined || endText === undefined || durationText === undefined) {
      throw traceError({ file, line }, `the row has not the 4 fields ${azure2021Header}`);
    }
    if (more.length > 0) throw traceError({ file, line }, `the row has ${4 + more.length} fields instead of 4`);
    if (name === '') throw traceError({ file, line, field: 'func' }, 'the name of the function is empty');
    const endS = secondsOf(endText, { file, line, field: 'end_timestamp' });
    const durationS = secondsOf(durationText, { file, line, field: 'duration' });
    if (durationS < 0) {
      throw traceError({ file, line, field: 'duration' }, `${shown(durationText)} is less than no time`);
    }
    let index = indices.get(name);
    if (index === undefined) {
      index = functionNames.length;
      indices.set(name, index);
      functionNames.push(name);
    }
    sorter.add(Math.max(0, (endS - durationS) * 1000), index, durationS * 1000);
  });
  if (!headerSeen) throw new TraceError(`${file} is empty`);
  const { length } = sorter;
  return { functionNames, requests: length, invocations: sorter.finish() };
}

function secondsOf(text: string, place: { readonly file: string; readonly line: number; readonly field: string }) {
  const seconds = text === '' ? NaN : Number(text);
  if (!Number.isFinite(seconds)) throw traceError(place, `${shown(text)} is not a number of seconds`);
  return seconds;
}
