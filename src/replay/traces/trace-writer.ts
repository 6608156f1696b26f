import { createWriteStream, type WriteStream } from 'node:fs';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { finished, pipeline } from 'node:stream/promises';
import type { Trace } from '../types.ts';
import { TraceError } from './error.ts';
import { traceFormat, traceVersion, type TraceHeading, type TraceLine } from './recorded.ts';
import { given } from '../../tools/index.ts';

/** Lines are buffered up to so many characters before they go to the file, */
const flushCharacters = 2 ** 16;
/** and for no longer than this, so that a killed host loses a second at most. */
const flushMs = 1000;
/** Most bytes that may wait for a slow disk. Beyond that, invocations are dropped and counted. */
const backlogBytesMax = 2 ** 26;

/** Writes a trace in Turntable's own format while calls happen: a call costs a line of JSON, and never waits. */
export class TraceWriter {
  readonly #stream: WriteStream;
  readonly #timer: NodeJS.Timeout;
  #lines = '';
  #written = 0;
  #dropped = 0;
  #error: Error | undefined;

  private constructor(stream: WriteStream, heading: Partial<TraceHeading>) {
    this.#stream = stream;
    stream.on('error', (error) => {
      this.#error ??= error;
    });
    this.#lines = headingLine(heading);
    this.#timer = setInterval(() => this.#flush(), flushMs);
    this.#timer.unref();
  }

  /** Creates the file. Throws TraceError if it exists already or cannot be written. */
  static async create(file: string, heading: Partial<TraceHeading> = {}): Promise<TraceWriter> {
    const stream = createWriteStream(file, { flags: 'wx' });
    try {
      await once(stream, 'open');
    } catch (error) {
      throw new TraceError(`${file} cannot be written: ${(error as Error).message}`, { cause: error });
    }
    return new TraceWriter(stream, heading);
  }

  /** Invocations written, and those left out because the disk was too slow or has failed. */
  get counts(): { readonly written: number; readonly dropped: number } {
    return { written: this.#written, dropped: this.#dropped };
  }

  write(line: TraceLine): void {
    if (this.#error !== undefined || this.#stream.writableLength > backlogBytesMax) {
      this.#dropped++;
      return;
    }
    this.#written++;
    this.#lines += `${JSON.stringify(line)}\n`;
    if (this.#lines.length >= flushCharacters) this.#flush();
  }

  #flush(): void {
    if (this.#lines === '' || this.#error !== undefined) return;
    this.#stream.write(this.#lines);
    this.#lines = '';
  }

  /** Writes the rest. Throws TraceError if not everything reached the file. */
  async close(): Promise<void> {
    clearInterval(this.#timer);
    this.#flush();
    try {
      if (this.#error !== undefined) throw this.#error;
      this.#stream.end();
      await finished(this.#stream);
    } catch (error) {
      const file = String(this.#stream.path);
      throw new TraceError(`the trace ${file} is incomplete: ${(error as Error).message}`, { cause: error });
    }
  }
}

function headingLine(heading: Partial<TraceHeading>): string {
  return `${JSON.stringify({ format: traceFormat, version: traceVersion, ...heading })}\n`;
}

/** Writes a whole trace in Turntable's own format; functions keep their positions. */
export async function writeTrace(file: string, trace: Trace, description?: string): Promise<void> {
  function* lines(): Generator<string> {
    let chunk = headingLine({
      ...given({ description }),
      functions: trace.functionNames,
    });
    for (const { arrivalMs, functionIndex, durationMs, sloMs } of trace.invocations()) {
      const line: TraceLine = {
        arrival_ms: arrivalMs,
        function: trace.functionNames[functionIndex] ?? '',
        ...given({ duration_ms: durationMs, slo_ms: sloMs }),
      };
      chunk += `${JSON.stringify(line)}\n`;
      if (chunk.length < flushCharacters) continue;
      yield chunk;
      chunk = '';
    }
    yield chunk;
  }
  await pipeline(Readable.from(lines()), createWriteStream(file));
}
