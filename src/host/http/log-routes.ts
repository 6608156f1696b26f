/** `GET /functions/{name}/log`: what there is to read about a function; with `follow=true` also what comes. */
import { HostError } from '../errors.ts';
import type { FunctionLog, LogEntry } from '../function-log.ts';
import type { Exchange } from './exchange.ts';
import { versionAsked, type HostContext } from './host-context.ts';
import { Listeners } from './listeners.ts';

const linesDefault = 100;
/** Proxies close connections on which nothing moves. */
const pingMs = 15_000;

/** Clients that follow the logs of functions. */
export class LogStreams {
  readonly #log: FunctionLog;
  readonly #listeners = new Listeners('logs');
  #timer: NodeJS.Timeout | undefined;

  constructor(log: FunctionLog) {
    this.#log = log;
  }

  /** Sends the newest lines, then each that comes. Takes the exchange over. */
  follow(exchange: Exchange, name: string, lines: number): void {
    const send = (entry: LogEntry): void => this.#listeners.send('line', lineOf(entry), exchange);
    this.#listeners.add(exchange, () => {
      silence();
      if (this.#listeners.size === 0) this.#rest();
    });
    this.#listeners.sendFirst('line', this.#log.of(name, lines).map(lineOf), exchange);
    const silence = this.#log.listen(name, send);
    this.#timer ??= setInterval(() => this.#listeners.send('ping', {}), pingMs).unref();
  }

  close(): void {
    this.#listeners.close();
    this.#rest();
  }

  #rest(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
  }
}

/** `GET /functions/{name}/log[?lines=100][&follow=true]` */
export function functionLog(context: HostContext, exchange: Exchange): void {
  const { name } = versionAsked(context, exchange);
  const query = exchange.query();
  const lines = linesAsked(query.get('lines'));
  const follow = query.get('follow') ?? 'false';
  if (follow !== 'true' && follow !== 'false') {
    throw new HostError('bad-request', `follow is '${follow.slice(0, 40)}', but must be true or false`);
  }
  if (follow === 'false' || exchange.method === 'HEAD') {
    exchange.json(200, { name, lines: context.functionLog.of(name, lines).map(lineOf) });
    return;
  }
  if (context.lifecycle.phase === 'draining') throw new HostError('draining', 'the host is shutting down');
  context.logs.follow(exchange, name, lines);
}

function linesAsked(text: string | null): number {
  const lines = Number(text ?? linesDefault);
  if (text === '' || !Number.isInteger(lines) || lines < 0) {
    throw new HostError('bad-request', `lines is '${String(text).slice(0, 40)}', but must be a whole number`);
  }
  return lines;
}

const lineOf = ({ seq, atMs, source, level, version, text }: LogEntry): object => ({
  seq,
  at: new Date(atMs).toISOString(),
  source,
  level,
  version,
  text,
});
