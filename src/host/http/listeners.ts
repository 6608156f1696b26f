/** Clients that listen to server-sent events. One that does not read is cut off instead of being remembered. */
import { HostError } from '../errors.ts';
import type { Exchange } from './exchange.ts';

const listenersMax = 100;
/** What a client may leave unread. */
const unreadBytesMax = 1024 * 1024;

export class Listeners {
  readonly #open = new Set<Exchange>();
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
    this.#open.add(exchange);
    outgoing.once('close', () => {
      this.#open.delete(exchange);
      onGone();
    });
  }

  /** @param to undefined: every client */
  send(event: string, data: object, to?: Exchange): void {
    const text = `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
    for (const { outgoing } of to === undefined ? this.#open : [to]) {
      if (outgoing.writableLength > unreadBytesMax) outgoing.destroy();
      else outgoing.write(text);
    }
  }

  /** Ends every stream. */
  close(): void {
    for (const { outgoing } of this.#open) outgoing.end();
    this.#open.clear();
  }
}
