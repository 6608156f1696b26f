/** Clients that listen to server-sent events. One that does not read is cut off instead of being remembered. */
import { HostError } from '../errors.ts';
import type { Exchange } from './exchange.ts';

const listenersMax = 100;
/** What a client may leave unread, beside what it asked for to begin with. */
const unreadBytesMax = 1024 * 1024;

export class Listeners {
  /** With what each may leave unread. */
  readonly #open = new Map<Exchange, number>();
  readonly #what: string;

  /** @param what they listen to, for the one who is refused */
  constructor(what: string) {
    this.#what = what;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Takes the exchange over; it ends when the client leaves or the host stops. */
  add(exchange: Exchange, onGone: () => void): void {
    if (this.#open.size >= listenersMax) {
      throw new HostError('too-many-requests', `${listenersMax} clients listen to ${this.#what} already`);
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
    this.#open.set(exchange, unreadBytesMax);
    outgoing.once('close', () => {
      this.#open.delete(exchange);
      onGone();
    });
  }

  /** What a client gets first, however long that is: it is not sent until the client could have read some of it. */
  sendFirst(event: string, all: readonly object[], to: Exchange): void {
    const text = all.map((data) => textOf(event, data)).join('');
    this.#open.set(to, unreadBytesMax + Buffer.byteLength(text));
    if (text !== '') to.outgoing.write(text);
  }

  /** @param to undefined: every client */
  send(event: string, data: object, to?: Exchange): void {
    const text = textOf(event, data);
    for (const exchange of to === undefined ? this.#open.keys() : [to]) {
      const { outgoing } = exchange;
      if (outgoing.writableLength > (this.#open.get(exchange) ?? 0)) outgoing.destroy();
      else outgoing.write(text);
    }
  }

  /** Ends every stream. */
  close(): void {
    for (const { outgoing } of this.#open.keys()) outgoing.end();
    this.#open.clear();
  }
}

const textOf = (event: string, data: object): string => `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
