/**
 * A log per function: the host's records about it, its handler's output, and the starts and ends of its instances. Kept
 * in memory, with limits per function and in total.
 */
import type { Logger } from 'pino';
import { eventText } from '../dashboard/event-text.ts';
import type { EventLog } from '../history/index.ts';
import { fieldsText } from './logger.ts';

export interface LogEntry {
  /** Increases over all functions. */
  readonly seq: number;
  readonly atMs: number;
  /** `handler`: output of the handler, or of other code in its process. `instance`: its loads and ends. */
  readonly source: 'host' | 'handler' | 'instance';
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  /** Null for a line about the function as a whole. */
  readonly version: string | null;
  readonly text: string;
}

/** An entry as clients get it: `GET /functions/{name}/log`. */
export type LogLine = Omit<LogEntry, 'atMs'> & { readonly at: string };

export type NewLogEntry = Pick<LogEntry, 'source' | 'level' | 'text'>;
type Listener = (entry: LogEntry) => void;

interface Kept {
  entries: LogEntry[];
  bytes: number;
  /** The current second, the entries in it, and how many exceeded the limit. */
  secondMs: number;
  taken: number;
  leftOut: number;
}

/** Limits for one function: entries kept, and entries per second, because refused calls come by the thousand. */
const entriesMax = 500;
const perSecondMax = 100;
const textCharactersMax = 4000;
/** Limit for all functions together; the function that was silent longest is dropped first. */
const bytesMaxDefault = 32 * 2 ** 20;

export class FunctionLog {
  /** In order of the latest entry, the newest last. */
  readonly #functions = new Map<string, Kept>();
  readonly #listeners = new Map<string, Set<Listener>>();
  readonly #bytesMax: number;
  readonly #now: () => number;
  #bytes = 0;
  #seq = 0;

  constructor({ bytesMax = bytesMaxDefault, now = Date.now }: { bytesMax?: number; now?: () => number } = {}) {
    this.#bytesMax = bytesMax;
    this.#now = now;
  }

  /** @param key `name`, or `name@version` */
  add(key: string, entry: NewLogEntry): void {
    this.addIfRoom(key, () => entry);
  }

  /** @param make only called if the entry is kept */
  addIfRoom(key: string, make: () => NewLogEntry): void {
    const [name = '', version] = key.split('@', 2);
    const kept = this.#functions.get(name) ?? { entries: [], bytes: 0, secondMs: 0, taken: 0, leftOut: 0 };
    this.#functions.delete(name);
    this.#functions.set(name, kept);
    const nowMs = this.#now();
    if (nowMs - kept.secondMs >= 1000) {
      const { leftOut } = kept;
      Object.assign(kept, { secondMs: nowMs, taken: 0, leftOut: 0 });
      if (leftOut > 0) {
        const text = `${leftOut} lines were left out: more than ${perSecondMax} a second`;
        this.#keep(name, kept, undefined, { source: 'host', level: 'warn', text });
      }
    }
    kept.taken++;
    if (kept.taken > perSecondMax) kept.leftOut++;
    else this.#keep(name, kept, version, make());
  }

  /** The newest last. @param count of the newest */
  of(name: string, count = entriesMax): readonly LogEntry[] {
    return count === 0 ? [] : (this.#functions.get(name)?.entries.slice(-count) ?? []);
  }

  forget(name: string): void {
    this.#bytes -= this.#functions.get(name)?.bytes ?? 0;
    this.#functions.delete(name);
  }

  /** Returns the function that stops listening. */
  listen(name: string, listener: Listener): () => void {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(name) === listeners) this.#listeners.delete(name);
    };
  }

  #keep(name: string, kept: Kept, version: string | undefined, { source, level, text }: NewLogEntry): void {
    const entry: LogEntry = {
      seq: ++this.#seq,
      atMs: this.#now(),
      source,
      level,
      version: version ?? null,
      text: text.length > textCharactersMax ? `${text.slice(0, textCharactersMax)}...` : text,
    };
    kept.entries.push(entry);
    this.#count(kept, sizeOf(entry));
    while (kept.entries.length > entriesMax) {
      const [oldest] = kept.entries.splice(0, 1);
      if (oldest !== undefined) this.#count(kept, -sizeOf(oldest));
    }
    for (const silent of this.#functions.keys()) {
      if (this.#bytes <= this.#bytesMax || silent === name) break;
      this.forget(silent);
    }
    for (const listener of this.#listeners.get(name) ?? []) listener(entry);
  }

  #count(kept: Kept, bytes: number): void {
    kept.bytes += bytes;
    this.#bytes += bytes;
  }
}

const sizeOf = ({ text }: LogEntry): number => 100 + 2 * text.length;

/**
 * The same logger, but records about a function (those with a field `function`) also go to that function's log,
 * whatever the level of the host's own log.
 */
export function withFunctionLog(logger: Logger, log: FunctionLog): Logger {
  const taking = (level: LogEntry['level']) => {
    return (fields: unknown, message?: string): void => {
      take(log, level, fields, message);
      if (message === undefined) logger[level](fields);
      else logger[level](fields, message);
    };
  };
  const own: Partial<Record<string | symbol, unknown>> = {
    info: taking('info'),
    warn: taking('warn'),
    error: taking('error'),
  };
  return new Proxy(logger, {
    get(target, property) {
      const value: unknown = own[property] ?? Reflect.get(target, property, target);
      return typeof value === 'function' && own[property] === undefined ? (value.bind(target) as unknown) : value;
    },
  });
}

function take(log: FunctionLog, level: LogEntry['level'], given: unknown, message = ''): void {
  if (typeof given !== 'object' || given === null || !('function' in given)) return;
  const { function: key } = given;
  if (typeof key !== 'string') return;
  log.addIfRoom(key, () => ({ source: 'host', level, text: textOf(given, message) }));
}

function textOf(given: object, message: string): string {
  const {
    function: _,
    err,
    error,
    callId,
    ...fields
  } = given as Record<'function' | 'err' | 'error' | 'callId', unknown>;
  // The error comes first; most callers give their calls no id.
  const what = typeof error === 'string' ? `${message}: ${error}` : message;
  const other = 'requestId' in fields && fields.requestId === callId ? fields : { ...fields, callId };
  const stack = err instanceof Error ? `\n${err.stack ?? err.message}` : '';
  return [what, ...fieldsText(other)].join(' ') + stack;
}

/** Logs events that the host does not log itself: cold starts, late answers, and evictions from GPUs. */
export function logEvents(eventLog: EventLog, log: FunctionLog): void {
  eventLog.listen((event) => {
    const { kind } = event;
    // Instances of the CPU pool have logged their own.
    const isTold = kind === 'eviction' && event.where.startsWith('GPU');
    if (kind !== 'cold-start' && kind !== 'slo-breach' && !isTold) return;
    const { text, level } = eventText(event);
    log.add(event.functionName, { source: 'host', level: level === 'warning' ? 'warn' : 'info', text });
  });
}
