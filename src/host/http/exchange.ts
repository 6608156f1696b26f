/** One HTTP request and its reply, on Node's own objects: Response objects and header maps would cost a third of the path. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { HostError } from '../errors.ts';
import type { Lifecycle } from './lifecycle.ts';

/** Header names and values, alternating, as Node writes them fastest. */
export type HeaderList = (string | number)[];

/** A body that is still on its way is thrown away up to these, so that the client sees the reply and no reset. */
const drainBytesMax = 64 * 1024 * 1024;
const drainMsMax = 5000;
/** A body up to this is read to its end after an early reply, and the connection kept. */
const keepBytesMax = 64 * 1024;
const idLengthMax = 200;

export class Exchange {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /** Instant (performance.now()) at which the headers had arrived. */
  readonly arrivalMs: number;
  /** Path parameters, percent-decoded once. */
  readonly param: (name: string) => string | undefined;
  readonly requestId: string;
  /** An asynchronous call gives itself one of its own. */
  callId: string;
  /** W3C trace context, where the client sent a well-formed one. */
  readonly traceparent: string | undefined;
  /** The function that is called, once it is known to exist; for metrics and logs. */
  functionName: string | undefined;

  /** Set when the rest of the body is not worth waiting for: the connection is closed with the reply. */
  abandoned = false;
  readonly #lifecycle: Lifecycle;
  readonly #stallMs: number;

  /** @param stallMs a client that takes nothing of its reply for this long is cut off */
  constructor(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    lifecycle: Lifecycle,
    stallMs: number,
    param: (name: string) => string | undefined,
  ) {
    this.incoming = incoming;
    this.outgoing = outgoing;
    this.#lifecycle = lifecycle;
    this.#stallMs = stallMs;
    this.arrivalMs = performance.now();
    this.param = param;
    const requestId = idOf(incoming.headers['x-request-id']);
    const callId = idOf(incoming.headers['x-call-id']);
    this.requestId = requestId ?? callId ?? randomUUID();
    this.callId = callId ?? this.requestId;
    this.traceparent = traceparentOf(incoming.headers['traceparent']);
  }

  get method(): string {
    return this.incoming.method ?? 'GET';
  }

  /** Path and query as sent. */
  get url(): string {
    return this.incoming.url ?? '/';
  }

  header(name: string): string | undefined {
    const value = this.incoming.headers[name];
    return Array.isArray(value) ? value.join(', ') : value;
  }

  /** The query's parameters. */
  query(): URLSearchParams {
    const at = this.url.indexOf('?');
    return new URLSearchParams(at === -1 ? '' : this.url.slice(at + 1));
  }

  /** Whether the client has hung up. */
  get gone(): boolean {
    return this.outgoing.destroyed || this.incoming.socket.destroyed;
  }

  /**
   * Sends the whole reply. A request body that has not arrived by then is drained: shortly when the connection can be
   * kept, else within bounds before it is closed.
   */
  send(status: number, headers: HeaderList, parts: readonly (string | Uint8Array)[]): void {
    const { outgoing } = this;
    if (this.gone || outgoing.headersSent) return;
    headers.push('X-Request-ID', this.requestId, 'X-Call-Id', this.callId);
    if (this.traceparent !== undefined) headers.push('traceparent', this.traceparent);
    if (status !== 204 && status !== 304) headers.push('Content-Length', bytesOf(parts));
    const rest = this.abandoned ? 'none' : this.#unreadBody();
    const lingers = rest === 'long';
    if (lingers || this.abandoned || this.#lifecycle.phase === 'draining') headers.push('Connection', 'close');
    outgoing.writeHead(status, headers);
    // Node throws a short rest away and keeps the connection; the sender is not given for ever.
    if (rest === 'short') closeUnlessComplete(this.incoming);
    // One system call for all of it; ending the reply lifts the cork.
    outgoing.cork();
    const last = parts.length - 1;
    for (let index = 0; index < last; index++) outgoing.write(parts[index]);
    if (!lingers) {
      outgoing.end(parts[last]);
      if (outgoing.writableLength > 0) this.#cutOffWhenStalled();
      return;
    }
    if (last >= 0) outgoing.write(parts[last]);
    outgoing.uncork();
    this.#drainThenEnd();
  }

  /**
   * Sends a long body in pieces, at the reader's pace. A client that takes nothing for too long is cut off, and so is
   * one whose reply fails in the middle: its status is sent by then.
   */
  async stream(status: number, headers: HeaderList, body: Readable, bytes: number): Promise<void> {
    const { outgoing } = this;
    if (this.gone || outgoing.headersSent) {
      body.destroy();
      return;
    }
    headers.push('X-Request-ID', this.requestId, 'X-Call-Id', this.callId, 'Content-Length', bytes);
    if (this.#lifecycle.phase === 'draining') headers.push('Connection', 'close');
    outgoing.writeHead(status, headers);
    const stalled = (): void => void this.incoming.socket.destroy();
    this.incoming.socket.setTimeout(this.#stallMs, stalled);
    try {
      await pipeline(body, outgoing);
    } catch {
      this.incoming.socket.destroy();
    } finally {
      this.incoming.socket.off('timeout', stalled);
    }
  }

  /** A JSON reply, with a final line break for terminals. */
  json(status: number, value: unknown, headers: HeaderList = []): void {
    headers.push('Content-Type', 'application/json');
    this.send(status, headers, [`${JSON.stringify(value)}\n`]);
  }

  text(status: number, contentType: string, text: string): void {
    this.send(status, ['Content-Type', contentType], [text]);
  }

  /** How much of the request's body may still follow: a long one costs the connection. */
  #unreadBody(): 'none' | 'short' | 'long' {
    const { incoming } = this;
    if (incoming.complete) return 'none';
    const length = incoming.headers['content-length'];
    if (length === undefined) return incoming.headers['transfer-encoding'] === undefined ? 'none' : 'long';
    if (length === '0') return 'none';
    // Without a '100 Continue' the client may never send the body, and Node would take its next request for it.
    return Number(length) > keepBytesMax || incoming.headers.expect !== undefined ? 'long' : 'short';
  }

  /** What the client does not take stays in memory, so that it may not stay for ever. Node counts any progress. */
  #cutOffWhenStalled(): void {
    const { outgoing } = this;
    const arm = (socket: Socket): void => {
      socket.setTimeout(this.#stallMs);
      // Before Node's own listener, which sets the time that an idle connection is kept.
      outgoing.prependOnceListener('finish', () => socket.setTimeout(0));
    };
    if (outgoing.socket !== null) arm(outgoing.socket);
    // Pipelined: it is not this reply's turn yet, and the one before it may take its time.
    else outgoing.once('socket', arm);
  }

  #drainThenEnd(): void {
    const { incoming, outgoing } = this;
    let bytes = 0;
    const end = (): void => {
      clearTimeout(timer);
      incoming.off('data', count);
      outgoing.end();
    };
    const count = (chunk: Uint8Array): void => {
      bytes += chunk.byteLength;
      if (bytes > drainBytesMax) end();
    };
    const timer = setTimeout(end, drainMsMax);
    timer.unref();
    incoming.on('data', count);
    incoming.once('end', end);
    incoming.once('close', end);
    incoming.resume();
  }
}

function bytesOf(parts: readonly (string | Uint8Array)[]): number {
  let bytes = 0;
  for (const part of parts) bytes += typeof part === 'string' ? Buffer.byteLength(part) : part.byteLength;
  return bytes;
}

function closeUnlessComplete(incoming: IncomingMessage): void {
  const timer = setTimeout(() => incoming.socket.destroySoon(), drainMsMax);
  timer.unref();
  incoming.once('close', () => clearTimeout(timer));
}

/** An error as the client gets it. */
export function sendError(exchange: Exchange, error: HostError, headers: HeaderList = []): void {
  headers.push('X-Turntable-Error', error.code);
  if (error.code === 'body-timeout') exchange.abandoned = true;
  if (error.retryAfterS !== undefined) headers.push('Retry-After', error.retryAfterS);
  exchange.json(error.status, { error: error.message }, headers);
}

/** An id that can be echoed. Node writes headers as UTF-8 when text follows them, so that it must be ASCII. */
function idOf(header: string | string[] | undefined): string | undefined {
  if (typeof header !== 'string' || header.length > idLengthMax) return undefined;
  return /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(header) ? header : undefined;
}

function traceparentOf(header: string | string[] | undefined): string | undefined {
  if (typeof header !== 'string') return undefined;
  return /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]{0,100})?$/.test(header)
    ? header
    : undefined;
}
