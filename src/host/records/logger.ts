/** Structured logs: one JSON object a line, or the same fields formatted for a terminal. */
import type { Writable } from 'node:stream';
import { pino, type Logger } from 'pino';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';

export function createLogger({ level, format }: HostConfig['log'], out: Writable = process.stderr): Logger {
  const options = { level, base: null, timestamp: pino.stdTimeFunctions.isoTime };
  return pino(options, { write: lineWriter(out, format === 'json' ? (line) => line : readableLine) });
}

/** Bytes that may wait for the log's reader. Lines beyond them are lost, since a stalled reader must cost no more memory. */
const waitingBytesMax = 2 ** 20;

/** pino writes whole lines, one per write. */
function lineWriter(out: Writable, form: (json: string) => string): (line: string) => void {
  let lost = 0;
  return (line) => {
    if (out.writableLength > waitingBytesMax) {
      lost++;
      return;
    }
    if (lost > 0) {
      const words = 'lines of the log were lost, because its reader did not take them';
      const entry = { level: pino.levels.values['warn'], time: new Date().toISOString(), lost, msg: words };
      lost = 0;
      out.write(form(`${JSON.stringify(entry)}\n`));
    }
    out.write(form(line));
  };
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
  const line = [time.slice(11, 23), label.padEnd(5), escaped(msg ?? ''), ...fieldsText(fields)].join(' ');
  return `${line}${stack.split('\n').map(escaped).join('\n')}\n`;
}

/** Functions print what clients send: a terminal must show controls (C0, C1, changes of direction), not obey them. */
function escaped(text: string): string {
  return text.replaceAll(/[\p{Cc}\u2028-\u202e\u2066-\u2069]/gu, (control) => {
    const named = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[control];
    return named ?? `\\u${control.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
}

/** `status=503 reason="out of memory"`; undefined fields are left out. */
export function fieldsText(fields: object): string[] {
  return Object.entries(fields).flatMap(([name, value]) => {
    if (value === undefined) return [];
    const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
    return [`${name}=${escaped(/\s/.test(text) ? JSON.stringify(text) : text)}`];
  });
}

/** Changes the log level of a running host, in the terms of Triton's log settings. */
export class Logging {
  readonly #logger: Logger;
  /** Whether successes are logged as well; cached, because reading the level for each request costs time. */
  logsSuccess: boolean;

  constructor(logger: Logger) {
    this.#logger = logger;
    this.logsSuccess = logger.isLevelEnabled('debug');
  }

  settings(): Readonly<Record<string, boolean | number | string>> {
    const logs = (level: string): boolean => this.#logger.isLevelEnabled(level);
    return {
      log_file: '',
      log_info: logs('info'),
      log_warning: logs('warn'),
      log_error: logs('error'),
      log_verbose_level: logs('debug') ? 1 : 0,
      log_format: 'default',
    };
  }

  /**
   * Each level includes the more severe ones, so the least severe one that is on decides.
   *
   * @throws HostError 'bad-request'
   */
  change(given: Readonly<Record<string, unknown>>): void {
    const asked = { ...this.settings(), ...given } as Readonly<Record<string, unknown>>;
    for (const key of ['log_info', 'log_warning', 'log_error']) {
      if (typeof asked[key] !== 'boolean') throw new HostError('bad-request', `'${key}' is not true or false`);
    }
    const verbose = asked['log_verbose_level'];
    if (typeof verbose !== 'number' || !Number.isSafeInteger(verbose) || verbose < 0) {
      throw new HostError('bad-request', "'log_verbose_level' is not a whole number of at least 0");
    }
    for (const [key, only] of [
      ['log_file', ''],
      ['log_format', 'default'],
    ] as const) {
      if (asked[key] !== only) {
        throw new HostError(
          'bad-request',
          `'${key}' cannot be changed while the host runs: it logs to its standard error`,
        );
      }
    }
    this.#logger.level =
      verbose > 0
        ? 'debug'
        : asked['log_info'] === true
          ? 'info'
          : asked['log_warning'] === true
            ? 'warn'
            : asked['log_error'] === true
              ? 'error'
              : 'silent';
    this.logsSuccess = this.#logger.isLevelEnabled('debug');
  }
}
