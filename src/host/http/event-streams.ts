/**
 * Clients that listen to server-sent events. One that does not read is cut off instead of being remembered; and a new one
 * always gets in, so that nobody locks the operator out.
 */
import { eventAnswer, tickOf, type ViewSources } from '../dashboard/index.ts';
import type { FunctionLog, LogEntry, LogLine } from '../records/function-log.ts';
import { getOrMake } from '../../tools/index.ts';
import type { Exchange } from './exchange.ts';
import { whileHalfClosed } from './half-closed.ts';

const listenersMax = 100;
/** What a client may leave unread, beside what it asked for at the start, and for how long it may read nothing. */
const unreadBytesMax = 1024 * 1024;
const unreadMsMax = 30_000;

interface Listener {
  unreadMax: number;
  /** Instant (performance.now()) since which bytes wait for it; undefined if none do. */
  unreadSinceMs: number | undefined;
}

abstract class Listeners {
  /** In the order in which they came. */
  readonly #open = new Map<Exchange, Listener>();
  #rest: (() => void) | undefined;

  /** Called with the first client; returns a function that is called after the last one. */
  protected abstract begin(): () => void;

  /** Takes the exchange over; it ends when the client leaves or the host stops. */
  add(exchange: Exchange, onGone?: () => void): void {
    if (this.#open.size >= listenersMax) this.#cutOffOldest();
    const { outgoing } = exchange;
    outgoing.writeHead(200, {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-store',
      // nginx keeps what comes over HTTP/1.0, its default, until it has 4 KiB.
      'X-Accel-Buffering': 'no',
      'X-Request-ID': exchange.requestId,
      'X-Call-Id': exchange.callId,
    });
    // Proxies and clients see at once that the stream is open, and reconnect after two seconds if it breaks.
    outgoing.write('retry: 2000\n\n');
    this.#open.set(exchange, { unreadMax: unreadBytesMax, unreadSinceMs: undefined });
    outgoing.on('drain', () => {
      const listener = this.#open.get(exchange);
      if (listener !== undefined) listener.unreadSinceMs = undefined;
    });
    whileHalfClosed(outgoing.req.socket, () => void outgoing.write(':\n\n'));
    outgoing.once('close', () => {
      this.#open.delete(exchange);
      onGone?.();
      if (this.#open.size === 0) this.#end();
    });
    this.#rest ??= this.begin();
  }

  /** The first event for a client, of any length: it is not sent until the client could have read some of it. */
  protected sendFirst(event: string, all: readonly object[], to: Exchange): void {
    const text = all.map((data) => textOf(event, data)).join('');
    const listener = this.#open.get(to);
    if (listener !== undefined) listener.unreadMax = unreadBytesMax + Buffer.byteLength(text);
    if (text !== '') to.outgoing.write(text);
  }

  /** @param to undefined: every client */
  protected send(event: string, data: object, to?: Exchange): void {
    const text = textOf(event, data);
    for (const exchange of to === undefined ? this.#open.keys() : [to]) {
      const { outgoing } = exchange;
      const listener = this.#open.get(exchange);
      const nowMs = performance.now();
      const { unreadMax = 0, unreadSinceMs = nowMs } = listener ?? {};
      if (outgoing.writableLength > unreadMax || nowMs - unreadSinceMs > unreadMsMax) outgoing.destroy();
      else if (!outgoing.write(text) && listener !== undefined) listener.unreadSinceMs ??= nowMs;
    }
  }

  /** Of the address that has the most: whoever opens many loses their own. */
  #cutOffOldest(): void {
    const byAddress = new Map<string, Exchange[]>();
    for (const exchange of this.#open.keys()) getOrMake(byAddress, exchange.address, () => []).push(exchange);
    const most = [...byAddress.values()].reduce((one, other) => (other.length > one.length ? other : one));
    const [oldest] = most;
    if (oldest === undefined) return;
    this.#open.delete(oldest);
    oldest.outgoing.destroy();
  }

  /** Ends every stream. */
  close(): void {
    for (const { outgoing } of this.#open.keys()) outgoing.end();
    this.#open.clear();
    this.#end();
  }

  #end(): void {
    this.#rest?.();
    this.#rest = undefined;
  }
}

const textOf = (event: string, data: object): string => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;

/** Ticks repeat the counts of this long before: a page that has just fetched the history has missed the ticks since. */
const overlapMs = 5000;

/** Current events: `tick` with the last whole second, `event` at once. */
export class EventStreams extends Listeners {
  readonly #sources: ViewSources;

  constructor(sources: ViewSources) {
    super();
    this.#sources = sources;
  }

  protected begin(): () => void {
    let toldToMs = Date.now();
    const timer = setInterval(() => {
      const tick = tickOf(this.#sources, Date.now(), toldToMs - overlapMs);
      toldToMs = tick.atMs + 1000;
      this.send('tick', tick);
    }, 1000).unref();
    const silence = this.#sources.history.eventLog.listen((event) => this.send('event', eventAnswer(event)));
    return () => {
      clearInterval(timer);
      silence();
    };
  }
}

/** Proxies close idle connections. */
const pingMs = 15_000;

/** The logs of functions. */
export class LogStreams extends Listeners {
  readonly #log: FunctionLog;

  constructor(log: FunctionLog) {
    super();
    this.#log = log;
  }

  protected begin(): () => void {
    const timer = setInterval(() => this.send('ping', {}), pingMs).unref();
    return () => clearInterval(timer);
  }

  /** Sends the newest lines, then each new one. Takes the exchange over. */
  follow(exchange: Exchange, name: string, lines: number): void {
    this.add(exchange, () => silence());
    this.sendFirst('line', this.#log.of(name, lines).map(lineOf), exchange);
    const silence = this.#log.listen(name, (entry) => this.send('line', lineOf(entry), exchange));
  }
}

/** A line of a log as clients get it. */
export const lineOf = ({ seq, atMs, source, level, version, text }: LogEntry): LogLine => ({
  seq,
  at: new Date(atMs).toISOString(),
  source,
  level,
  version,
  text,
});
