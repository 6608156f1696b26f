/**
 * Azure Functions 2021 (Zhang et al., "Faster and Cheaper Serverless Computing on Harvested Resources", SOSP 2021): a
 * row for each invocation, with the end and the duration in seconds. The order of its rows is not reliable.
 */
import { shown, traceError } from '../../src/replay/traces/error.ts';
import type { Trace } from '../../src/replay/types.ts';
import { readRows, secondsOf } from './rows.ts';

export const azure2021Header = 'app,func,end_timestamp,duration';

/**
 * Reads a file of this format. An invocation arrives at its end minus its duration; the trace begins with the
 * earliest. One that began before the instant 0 arrives then.
 *
 * @throws TraceError with file, line and field
 */
export async function readAzure2021(file: string): Promise<Trace> {
  return await readRows(file, azure2021Header.split(','), ([, name = '', end = '', duration = ''], line) => {
    if (name === '') throw traceError({ file, line, field: 'func' }, 'the name of the function is empty');
    const endS = secondsOf(end, { file, line, field: 'end_timestamp' });
    const durationS = secondsOf(duration, { file, line, field: 'duration' });
    if (durationS < 0) {
      throw traceError({ file, line, field: 'duration' }, `${shown(duration)} is less than no time`);
    }
    return { atMs: Math.max(0, (endS - durationS) * 1000), name, durationMs: durationS * 1000 };
  });
}
