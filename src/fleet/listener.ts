/** Where other members reach this one: greets each connection, then answers its requests one after the other. */
import { once } from 'node:events';
import type { AddressInfo, Server, Socket } from 'node:net';
import type { Message } from '../tensor/index.ts';
import { Connection } from './connection.ts';
import { listenerFor, whyNotFrom, type MemberTls } from './tls.ts';
import type { Greeting, Hello } from './types.ts';

/** Answers a request of another member. @param signal aborts when that member gives it up */
export type Serve = (request: Message<object>, from: string, signal: AbortSignal) => Promise<Message<object>>;

export interface ListenerOptions {
  readonly host: string;
  /** 0: any that is free. */
  readonly port: number;
  readonly tls: MemberTls | undefined;
  readonly connectionsMax: number;
  /** An answer of which the other end reads nothing for this long ends its connection. */
  readonly stallMs: number;
  readonly greet: (hello: Hello) => Greeting;
  readonly serve: Serve;
}

/** A connection that says nothing for this long after it was opened is closed. */
const helloMs = 10_000;
const none = [] as const;

export class MemberListener {
  readonly #options: ListenerOptions;
  readonly #server: Server;
  /** Each connection, and whether it has a request. */
  readonly #connections = new Map<Connection, boolean>();
  #isClosing = false;

  private constructor(options: ListenerOptions) {
    this.#options = options;
    this.#server = listenerFor(options.tls, (socket) => this.#accept(socket));
    this.#server.maxConnections = options.connectionsMax;
  }

  /** Rejects with the error of `listen`, such as EADDRINUSE. */
  static async listen(options: ListenerOptions): Promise<MemberListener> {
    const listener = new MemberListener(options);
    const { host, port } = options;
    listener.#server.listen({ host, port });
    await once(listener.#server, 'listening');
    return listener;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Requests under way are answered first, within `graceMs`; new connections are refused at once. */
  hangUp(graceMs: number): void {
    this.#isClosing = true;
    for (const [connection, isBusy] of this.#connections) if (!isBusy) this.#end(connection);
    setTimeout(() => this.close(), graceMs).unref();
  }

  close(): void {
    this.#isClosing = true;
    this.#server.close();
    for (const connection of this.#connections.keys()) this.#end(connection);
  }

  #end(connection: Connection): void {
    connection.destroy(new Error('the host is shutting down'));
  }

  #accept(socket: Socket): void {
    if (this.#isClosing) {
      socket.destroy();
      return;
    }
    const gone = new AbortController();
    let from: string | undefined;
    const connection: Connection = new Connection(socket, {
      message: (message) => {
        if (from === undefined) from = this.#greet(connection, message.header);
        else void this.#answer(connection, message, from, gone.signal);
      },
      ended: () => {
        this.#connections.delete(connection);
        gone.abort();
      },
    });
    this.#connections.set(connection, false);
    socket.setTimeout(helloMs, () => {
      // Bytes that the other end does not read stay in memory, so there is a time limit.
      if (from === undefined || socket.writableLength > 0) socket.destroy();
      else socket.setTimeout(0);
    });
  }

  /** The name of the member at the other end; undefined: it is refused. */
  #greet(connection: Connection, header: object): string | undefined {
    const { tls, greet } = this.#options;
    const hello = header as Partial<Hello>;
    const { from = '', to = '', fleet = '', format = 0 } = hello;
    const refused = whyNotFrom(tls, connection.socket, from);
    const greeting = refused === undefined ? greet({ from, to, fleet, format }) : { refused };
    connection.send({ header: greeting, tensors: none });
    if ('refused' in greeting) {
      connection.socket.destroySoon();
      return undefined;
    }
    connection.socket.setTimeout(0);
    return from;
  }

  async #answer(connection: Connection, request: Message<object>, from: string, signal: AbortSignal): Promise<void> {
    const { serve, stallMs } = this.#options;
    this.#connections.set(connection, true);
    const answer = await serve(request, from, signal);
    if (!connection.isUp) return;
    this.#connections.set(connection, false);
    connection.send(answer);
    const { socket } = connection;
    if (socket.writableLength > 0) socket.setTimeout(stallMs);
    if (this.#isClosing) socket.destroySoon();
  }
}
