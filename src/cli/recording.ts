/** `turntable serve --record`: the host's traffic as a trace in Turntable's own format. */
import { join } from 'node:path';
import { placementText, type InvocationRecord, type InvocationRecorder } from '../host/index.ts';
import { TraceError, TraceWriter, type TraceLine } from '../replay/index.ts';
import { CliError } from './error.ts';
import { given, makeFolders, type Log } from '../tools/index.ts';

export interface Recording extends InvocationRecorder {
  readonly file: string;
  /** Writes the rest, and logs the counts. */
  close(): Promise<void>;
}

/** A new file for each start of the host, named by the time, so that no recording is overwritten. */
export async function startRecording(folder: string, log: Log, now: Date = new Date()): Promise<Recording> {
  const startMs = performance.now();
  const file = join(folder, `${now.toISOString().replaceAll(/[-:]/g, '').replace('.', '-')}.jsonl`);
  let writer: TraceWriter;
  try {
    await makeFolders(folder);
    writer = await TraceWriter.create(file, { recorded_at: now.toISOString() });
  } catch (error) {
    const reason =
      error instanceof TraceError ? error.message : `${folder} cannot be made: ${(error as Error).message}`;
    throw new CliError(`the traffic cannot be recorded: ${reason}`, { cause: error });
  }
  return {
    file,
    record: (record) => writer.write(traceLine(record, startMs)),
    async close() {
      try {
        await writer.close();
      } catch (error) {
        log.error({ err: error }, 'the recording is not whole');
        return;
      }
      const { written, dropped } = writer.counts;
      log.info({ file, invocations: written }, 'recorded');
      if (dropped > 0) log.warn({ file, dropped }, 'invocations were left out because the disk did not keep up');
    },
  };
}

/** To microseconds: the host's clock is read no finer. */
function rounded(milliseconds: number): number {
  return Math.round(milliseconds * 1000) / 1000;
}

function traceLine(record: InvocationRecord, startMs: number): TraceLine {
  const { functionName, arrivalMs, latencyMs, sloMs, outcome, ran } = record;
  const timings = ran?.result.timings;
  const durationMs = timings && timings.preprocessMs + timings.inferMs + timings.postprocessMs;
  return {
    arrival_ms: rounded(Math.max(0, arrivalMs - startMs)),
    function: functionName,
    ...(durationMs === undefined ? undefined : { duration_ms: rounded(durationMs) }),
    latency_ms: rounded(latencyMs),
    slo_ms: sloMs,
    ...given({ outcome, placement: ran && placementText(ran.placement) }),
  };
}
