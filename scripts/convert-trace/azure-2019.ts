/**
 * Azure Functions 2019 (Shahrad et al., "Serverless in the Wild", USENIX ATC 2020), the files
 * `invocations_per_function_md.anon.dNN.csv`: a row for each function, a column for each minute of a day.
 */
import { shown, TraceError, traceError } from '../../src/replay/traces/error.ts';
import { readLines } from '../../src/replay/traces/lines.ts';
import { MinuteTableBuilder, type MinuteTable } from './minute-table.ts';

export const azure2019Columns = ['HashOwner', 'HashApp', 'HashFunction', 'Trigger'] as const;

/** A month: with more, the header is no list of minutes. */
const minutesMax = 31 * 24 * 60;
const comma = 0x2c;
const zero = 0x30;

/**
 * Reads a file of this format, once, and stores its counts by minute, on disk if they are many. Tools that fill gaps
 * write counts as 3.0 and leave minutes empty: those count as 0.
 *
 * @throws TraceError with file, line and field
 */
export async function readAzure2019(file: string): Promise<MinuteTable & { readonly emptyCells: number }> {
  let builder: MinuteTableBuilder | undefined;
  let minutes = 0;
  let emptyCells = 0;
  await readLines(file, (buffer, start, end, line) => {
    if (builder === undefined) {
      minutes = readHeader(file, buffer.toString('utf8', start, end), line);
      builder = new MinuteTableBuilder(minutes);
    } else {
      emptyCells += readRow(file, builder, minutes, buffer, start, end, line);
    }
  });
  if (builder === undefined) throw new TraceError(`${file} is empty`);
  return { ...builder.finish(), emptyCells };
}

function readHeader(file: string, header: string, line: number): number {
  const titles = header.split(',');
  for (const [index, title] of azure2019Columns.entries()) {
    if (titles[index] !== title) {
      const found = shown(titles[index] ?? '');
      throw traceError({ file, line, field: `column ${index + 1}` }, `the title is ${found}, not '${title}'`);
    }
  }
  const minutes = titles.length - azure2019Columns.length;
  if (minutes === 0) throw traceError({ file, line }, 'there is no column for a minute');
  if (minutes > minutesMax) {
    throw traceError({ file, line }, `there are ${minutes} minutes, more than the ${minutesMax} of a month`);
  }
  for (let minute = 1; minute <= minutes; minute++) {
    const title = titles[azure2019Columns.length + minute - 1]!;
    if (title !== String(minute)) {
      const field = `column ${azure2019Columns.length + minute}`;
      throw traceError({ file, line, field }, `the title is ${shown(title)}, not the minute '${minute}'`);
    }
  }
  return minutes;
}

function readRow(
  file: string,
  builder: MinuteTableBuilder,
  minutes: number,
  buffer: Buffer,
  start: number,
  end: number,
  line: number,
): number {
  let emptyCells = 0;
  let at = start;
  let name = '';
  for (const column of azure2019Columns) {
    const fieldEnd = buffer.indexOf(comma, at);
    if (fieldEnd === -1 || fieldEnd >= end) {
      throw traceError({ file, line, field: column }, 'the row ends here, before its first minute');
    }
    if (column === 'HashFunction') name = buffer.toString('utf8', at, fieldEnd);
    at = fieldEnd + 1;
  }
  if (name === '') throw traceError({ file, line, field: 'HashFunction' }, 'the name of the function is empty');
  builder.beginFunction(name);
  for (let minute = 0; minute < minutes; minute++) {
    if (at > end) {
      throw traceError({ file, line }, `the row has ${minute} minutes, but the header has ${minutes}`);
    }
    const first = at;
    let count = 0;
    for (;;) {
      const byte = at < end ? buffer[at]! : comma;
      if (byte === comma) break;
      const digit = byte - zero;
      if (digit < 0 || digit > 9) {
        const written = fieldText(buffer, first, end);
        const read = countOf(written);
        if (read === undefined) {
          const field = `minute ${minute + 1}`;
          throw traceError({ file, line, field }, `${shown(written)} is not a whole number of invocations`);
        }
        if (read === 'empty') emptyCells++;
        count = read === 'empty' ? 0 : read;
        at = first + Buffer.byteLength(written);
        break;
      }
      count = count * 10 + digit;
      at++;
    }
    if (at === first) emptyCells++;
    if (count > Number.MAX_SAFE_INTEGER) {
      throw traceError(
        { file, line, field: `minute ${minute + 1}` },
        `${shown(fieldText(buffer, first, end))} is more than a count can be`,
      );
    }
    if (count > 0) builder.add(minute, count);
    at++;
  }
  if (at <= end) {
    throw traceError({ file, line }, `the row has more than the ${minutes} minutes of the header`);
  }
  return emptyCells;
}

/** A whole number in any notation, such as 3.0, 1e3 or one in quotes, or a gap as tools write it. */
function countOf(written: string): number | 'empty' | undefined {
  const text = written
    .trim()
    .replace(/^"(.*)"$/, '$1')
    .trim();
  if (/^(|nan|null|none|na|n\/a|<na>)$/i.test(text)) return 'empty';
  const count = /^\+?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) ? Number(text) : NaN;
  return Number.isInteger(count) ? count : undefined;
}

function fieldText(buffer: Buffer, start: number, end: number): string {
  const fieldEnd = buffer.indexOf(comma, start);
  return buffer.toString('utf8', start, fieldEnd === -1 || fieldEnd > end ? end : fieldEnd);
}
