import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { TraceError, traceError } from './error.ts';

/**
 * Receives one line: the bytes of `buffer` from `start` up to `end`, without the line break, valid during the call
 * only. Lines count from 1; `whole` is false for a last line that the file's end has cut off. 'stop' ends the reading.
 */
export type LineReader = (
  buffer: Buffer,
  start: number,
  end: number,
  line: number,
  whole: boolean,
) => 'stop' | undefined | void;

const chunkBytes = 2 ** 20;
/** A row of a day's minutes has some ten thousand bytes; a line this long is no trace. */
const lineBytesMax = 2 ** 24;

const newline = 0x0a;
const carriageReturn = 0x0d;
const byteOrderMark = Buffer.from('\uFEFF');

/**
 * Calls `onLine` with each line of a file in turn, with one chunk of it in memory at a time; a name that ends in `.gz`
 * is decompressed. Empty lines are skipped, but count.
 *
 * @throws TraceError if the file cannot be read, and whatever `onLine` throws
 */
export async function readLines(file: string, onLine: LineReader): Promise<void> {
  let line = 0;
  let rest: Buffer = Buffer.alloc(0);
  const take = (buffer: Buffer, start: number, end: number, whole: boolean): 'stop' | undefined | void => {
    line++;
    if (line === 1 && byteOrderMark.equals(buffer.subarray(start, start + 3))) start += 3;
    const bareEnd = end > start && buffer[end - 1] === carriageReturn ? end - 1 : end;
    return bareEnd > start ? onLine(buffer, start, bareEnd, line, whole) : undefined;
  };
  const stream = openBytes(file);
  try {
    for await (const chunk of stream) {
      const buffer: Buffer = rest.byteLength === 0 ? (chunk as Buffer) : Buffer.concat([rest, chunk as Buffer]);
      let start = 0;
      for (;;) {
        const end = buffer.indexOf(newline, start);
        if (end === -1) break;
        if (take(buffer, start, end, true) === 'stop') return;
        start = end + 1;
      }
      rest = buffer.subarray(start);
      if (rest.byteLength > lineBytesMax) {
        throw traceError({ file, line: line + 1 }, `the line is longer than ${lineBytesMax / 2 ** 20} MiB`);
      }
    }
  } catch (error) {
    // Errors of the system or zlib; errors of the rows have their own messages already.
    if (error instanceof Error && 'code' in error && typeof error.code === 'string') {
      throw new TraceError(`${file} cannot be read: ${error.message}`, { cause: error });
    }
    throw error;
  } finally {
    stream.destroy();
  }
  if (rest.byteLength > 0) take(rest, 0, rest.byteLength, false);
}

function openBytes(file: string): Readable {
  const bytes = createReadStream(file, { highWaterMark: chunkBytes });
  if (!file.endsWith('.gz')) return bytes;
  const unpacked = createGunzip({ chunkSize: chunkBytes });
  bytes.once('error', (error) => unpacked.destroy(error));
  unpacked.once('close', () => bytes.destroy());
  return bytes.pipe(unpacked);
}
