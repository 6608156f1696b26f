/** Structured logs: one JSON object a line, or the same fields set for reading at a terminal. */
import { Writable } from 'node:stream';
import { pino, type Logger } from 'pino';
import type { HostConfig } from './config.ts';

export function createLogger(
  { level, format }: HostConfig['log'],
  out: NodeJS.WritableStream = process.stderr,
): Logger {
  const options = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime };
  return format === 'json' ? pino(options, out) : pino(options, readable(out));
}

/** pino writes whole lines, one a write. */
function readable(out: NodeJS.WritableStream): Writable {
  return new Writable({
    decodeStrings: false,
    write(line: string | Buffer, _encoding, done) {
      out.write(`${readableLine(String(line))}\n`);
      done();
    },
  });
}

/** `12:30:01.250 warn  request failed function=resnet50 status=503` */
export function readableLine(json: string): string {
  const { time, level, msg, err, ...fields } = JSON.parse(json) as Record<string, unknown> & {
    level: number;
    time: string;
    msg?: string;
  };
  const stack = typeof err === 'object' && err !== null && 'stack' in err ? `\n${String(err.stack)}` : '';
  const label = pino.levels.labels[level] ?? String(level);
  return [time.slice(11, 23), label.padEnd(5), msg ?? '', ...fieldsText(fields)].join(' ') + stack;
}

/** `status=503 reason="out of memory"`; what is undefined is left out. */
export function fieldsText(fields: object): string[] {
  return Object.entries(fields).flatMap(([name, value]) => {
    if (value === undefined) return [];
    const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
    return [`${name}=${/\s/.test(text) ? JSON.stringify(text) : text}`];
  });
}
