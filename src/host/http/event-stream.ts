/**
 * `GET /api/events`: server-sent events of what goes on: `tick` with the last whole second, `happening` at once. The clock
 * runs only while somebody listens, and one that does not read is cut off instead of being remembered.
 */
import { happeningAnswer, tickOf, type ViewSources } from '../dashboard/index.ts';
import { HostError } from '../errors.ts';
import type { Exchange } from './exchange.ts';
import type { HostContext } from './host-context.ts';

const listenersMax = 100;
/** What a client may leave unread. */
const unreadBytesMax = 1024 * 1024;

/** Ticks tell again what was counted this long before: a page that has just asked for the history has missed the ticks since its answer. */
const overlapMs = 5000;

export class EventStreams {
  readonly #sources: ViewSources;
  readonly #open = new Set<Exchange>();
  #timer: NodeJS.Timeout | undefined;
  #silence: (() => void) | undefined;

  constructor(sources: ViewSources) {
    this.#sources = sources;
  }

  /** Takes the exchange over; it ends when the client leaves or the host stops. */
  add(exchange: Exchange): void {
    if (this.#open.size >= listenersMax) {
      throw new HostError('too-many-requests', `${listenersMax} clients listen to the events already`);
    }
    const { outgoing } = exchange;
    outgoing.writeHead(200, {
      'Content-Type': 'text/event-stream',
      'Cache-Control': 'no-store',
      'X-Request-ID': exchange.requestId,
      'X-Call-Id': exchange.callId,
    });
    // Proxies and clients see at once that the stream is open, and come back after two seconds if it breaks.
    outgoing.write('retry: 2000\n\n');
    this.#open.add(exchange);
    outgoing.once('close', () => this.#remove(exchange));
    this.#listen();
  }

  /** Ends every stream. */
  close(): void {
    for (const { outgoing } of this.#open) outgoing.end();
    this.#open.clear();
    this.#rest();
  }

  #listen(): void {
    if (this.#timer !== undefined) return;
    let toldToMs = Date.now();
    this.#timer = setInterval(() => {
      const tick = tickOf(this.#sources, Date.now(), toldToMs - overlapMs);
      toldToMs = tick.atMs + 1000;
      this.#send('tick', tick);
    }, 1000);
    this.#timer.unref();
    this.#silence = this.#sources.history.happenings.listen((happening) =>
      this.#send('happening', happeningAnswer(happening)),
    );
  }

  #remove(exchange: Exchange): void {
    this.#open.delete(exchange);
    if (this.#open.size === 0) this.#rest();
  }

  #rest(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    this.#silence?.();
    this.#silence = undefined;
  }

  #send(event: string, data: object): void {
    const text = `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
    for (const { outgoing } of this.#open) {
      if (outgoing.writableLength > unreadBytesMax) outgoing.destroy();
      else outgoing.write(text);
    }
  }
}

/** `GET /api/events` */
export function events(context: HostContext, exchange: Exchange): void {
  if (exchange.method === 'HEAD') {
    exchange.send(200, ['Content-Type', 'text/event-stream'], []);
    return;
  }
  if (context.lifecycle.phase === 'draining') throw new HostError('draining', 'the host is shutting down');
  context.events.add(exchange);
}
