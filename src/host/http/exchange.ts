/** One HTTP request and its reply, on Node's own objects: Response and header maps would cost a third of the path. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { createGzip } from 'node:zlib';
import { setMaxListeners } from 'node:events';
import type { ReadableContent } from '../../store/index.ts';
import { HostError, toHostError } from '../errors.ts';
import type { HeaderList } from '../calls/infer.ts';
import { bytesOf, type ReplyPart } from '../infer/answer.ts';
import type { Connections } from '../limits/connections.ts';
import type { HeldBytes, InFlightBytes } from '../limits/in-flight.ts';
import type { Statistics } from '../records/statistics.ts';
import { paceBytesMin } from '../limits/watches.ts';
import type { FunctionVersion } from '../types.ts';
import { arrivalMsOf } from './request-turns.ts';
import type { Lifecycle } from './lifecycle.ts';
import type { Lists } from './lists.ts';
import { bytesToKeep, Lent, type SpentBuffers } from '../../tensor/index.ts';
import { getOrMake, missingUnit, parseDurationMs } from '../../tools/index.ts';
import { hasMoved, takesAtOnce, unsent } from './unsent.ts';

export type { HeaderList } from '../calls/infer.ts';

/**
 * The rest of a refused body is drained up to these limits, so that a client that still writes gets the reply instead
 * of a reset.
 */
const drainMsMax = 30_000;
const drainIdleMsMax = 5000;
/**
 * Text of a size between these is compressed for clients that accept it; compressing longer text would take seconds of
 * a core.
 */
const compressedBytesMin = 8 * 1024;
const compressedBytesMax = 8 * 1024 * 1024;
/** A body up to this is read to its end after an early reply, and the connection kept. */
const keepBytesMax = 64 * 1024;
const idLengthMax = 200;
/** Replies from this size on count as held until they are sent, but for files that all clients share. */
const countedReplyBytesMin = 64 * 1024;
/** Files are sent in such pieces. */
const pieceBytes = 4 * paceBytesMin;
/** What a compressor keeps itself. */
const encoderBytes = 320 * 1024;

/** What all exchanges of a host share. */
export interface ExchangeMeans {
  readonly lifecycle: Lifecycle;
  /** A client that reads less than {@link paceBytesMin} of its reply within this time is cut off. */
  readonly stallMs: number;
  readonly inFlight: InFlightBytes;
  readonly connections: Connections;
  /** See {@link Exchange.list}. */
  readonly lists: Lists;
}

export class Exchange {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /** Instant (performance.now()); see {@link arrivalMsOf}. */
  readonly arrivalMs: number;
  /** Path parameters, percent-decoded once. */
  readonly param: (name: string) => string | undefined;
  readonly requestId: string;
  /** An asynchronous call replaces it by its own. */
  callId: string;
  /** W3C trace context, where the client sent a well-formed one. */
  readonly traceparent: string | undefined;
  /** The called function, once it is known to exist; for metrics and logs. */
  called: FunctionVersion | undefined;
  /** Name of the request's API key; for the log. */
  keyName: string | undefined;

  /** Set when the rest of the body is not worth waiting for: the connection is closed with the reply. */
  abandoned = false;
  /** Bytes of the reply's body, once it is sent. */
  sentBytes = 0;
  readonly #means: ExchangeMeans;
  #held: HeldBytes | undefined;
  /** What the reply is made of, and how much of it counts as held. */
  #replyBytes = 0;
  #heldReplyBytes = 0;

  constructor(
    incoming: IncomingMessage,
    outgoing: ServerResponse,
    means: ExchangeMeans,
    param: (name: string) => string | undefined,
  ) {
    this.incoming = incoming;
    this.outgoing = outgoing;
    this.#means = means;
    this.arrivalMs = arrivalMsOf(incoming);
    this.param = param;
    const requestId = idOf(incoming.headers['x-request-id']);
    const callId = idOf(incoming.headers['x-call-id']);
    this.requestId = requestId ?? callId ?? randomUUID();
    this.callId = callId ?? this.requestId;
    this.traceparent = traceparentOf(incoming.headers['traceparent']);
  }

  /** A path parameter that the route declares. */
  pathParam(name: string): string {
    const value = this.param(name);
    if (value === undefined) throw new HostError('internal', `the route has no parameter '${name}'`);
    return value;
  }

  /** Counts it as a call of this version. */
  begin(version: FunctionVersion, statistics: Pick<Statistics, 'callBegun'>): FunctionVersion {
    if (this.called === undefined) statistics.callBegun(version.name);
    return (this.called = version);
  }

  /** For {@link Access}. */
  get authorization(): string | undefined {
    return this.incoming.headers.authorization;
  }

  get address(): string {
    return this.#means.connections.addressOf(this.incoming.socket.remoteAddress ?? '', (name) => this.header(name));
  }

  get functionName(): string | undefined {
    return this.called?.name;
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

  /** Whether the client prefers not to wait (RFC 7240). */
  get prefersAsync(): boolean {
    const prefer = this.header('prefer');
    return prefer !== undefined && prefer.split(/[,;]/).some((part) => part.trim().toLowerCase() === 'respond-async');
  }

  /** Memory that this request holds until its reply is sent. */
  get held(): HeldBytes {
    return (this.#held ??= this.#means.inFlight.held((over) => this.outgoing.once('close', over)));
  }

  /** Counts tensors that are made of its body. @throws HostError 'too-many-requests' */
  readonly growRequest = (bytes: number): void => this.held.grow(bytes);

  /**
   * Counts what its reply is made of, before {@link send}.
   *
   * @throws HostError 'too-many-requests'
   */
  readonly growReply = (bytes: number): void => {
    this.#replyBytes += bytes;
    if (this.#replyBytes >= countedReplyBytesMin) this.#holdReply(this.#replyBytes);
  };

  /** Frees this once the system has taken all of the reply. */
  freeOnceSent(spent: SpentBuffers): void {
    this.outgoing.once('finish', () => this.held.freed(spent.free()));
  }

  #holdReply(bytes: number): void {
    // What an operator asks for is answered when calls have taken all.
    this.held.grow(bytes - this.#heldReplyBytes, true, this.functionName === undefined);
    this.#heldReplyBytes = bytes;
  }

  /** Whether the client has hung up. */
  get gone(): boolean {
    return this.outgoing.destroyed || this.incoming.socket.destroyed;
  }

  /**
   * Sends the whole reply. A request body that has not arrived by then is drained: briefly if the connection can be
   * kept, else within limits before it is closed.
   *
   * @throws HostError 'too-many-requests' if a large reply does not fit beside all else that is in flight
   */
  send(status: number, headers: HeaderList, parts: readonly ReplyPart[]): void {
    const { outgoing } = this;
    if (this.gone || outgoing.headersSent) return;
    const bytes = bytesOf(parts);
    const isCounted = bytes >= countedReplyBytesMin && this.functionName !== undefined;
    if (isCounted || this.#heldReplyBytes > 0) this.#holdReply(bytes);
    headers.push('X-Request-ID', this.requestId, 'X-Call-Id', this.callId);
    if (this.traceparent !== undefined) headers.push('traceparent', this.traceparent);
    this.sentBytes = bytes;
    if (status !== 204 && status !== 304) headers.push('Content-Length', String(this.sentBytes));
    const rest = this.abandoned ? 'none' : this.#unreadBody();
    const lingers = rest === 'long';
    if (lingers || this.abandoned || this.#means.lifecycle.phase === 'draining') headers.push('Connection', 'close');
    outgoing.writeHead(status, headers);
    // Node drains a short rest and keeps the connection, but with a time limit for the sender.
    if (rest === 'short') closeUnlessComplete(this.incoming);
    // One system call for all of it; ending the reply lifts the cork.
    outgoing.cork();
    const lent = parts.filter((part) => part instanceof Lent);
    const isInPlace = lent.length > 0 && !lingers && outgoing.socket !== null && takesAtOnce(outgoing.socket, bytes);
    const written = parts.map((part) => (isInPlace && part instanceof Lent ? part.use() : asWritten(part)));
    const last = written.length - 1;
    for (let index = 0; index < last; index++) outgoing.write(written[index]);
    if (!lingers) {
      outgoing.end(written[last]);
      const giveBack = (): void => lent.forEach((part) => part.end());
      if (outgoing.writableLength === 0) giveBack();
      else {
        outgoing.once('close', giveBack);
        this.#cutOffWhenSlow();
      }
      return;
    }
    if (last >= 0) outgoing.write(written[last]);
    outgoing.uncork();
    this.#drainThenEnd();
  }

  /**
   * Sends a part of a content in pieces, at the reader's pace; they are read into the same memory one after the other. A
   * client that reads too slowly is cut off. So is one whose reply fails in the middle, since its status has been sent.
   *
   * @throws HostError 'too-many-requests'
   */
  async sendContent(
    status: number,
    headers: HeaderList,
    content: ReadableContent,
    from: number,
    bytes: number,
  ): Promise<void> {
    const { outgoing } = this;
    if (this.gone || outgoing.headersSent) return;
    const piece = Math.min(pieceBytes, bytes);
    this.held.grow(piece, false, true);
    headers.push('X-Request-ID', this.requestId, 'X-Call-Id', this.callId, 'Content-Length', bytes);
    if (this.#means.lifecycle.phase === 'draining') headers.push('Connection', 'close');
    const { socket } = this.incoming;
    const cutOff = (): void => void socket.destroy();
    const timer = setTimeout(cutOff, (this.#means.stallMs * pieceBytes) / paceBytesMin).unref();
    try {
      outgoing.writeHead(status, headers);
      const memory = Buffer.allocUnsafeSlow(piece);
      for (let at = 0; at < bytes && !this.gone;) {
        const bytesRead = await content.readAt(memory.subarray(0, Math.min(piece, bytes - at)), from + at);
        if (bytesRead === 0) throw new HostError('internal', 'a stored file has become shorter');
        at += bytesRead;
        timer.refresh();
        await new Promise<void>((resolve) => {
          outgoing.once('close', resolve);
          outgoing.write(memory.subarray(0, bytesRead), () => {
            outgoing.off('close', resolve);
            resolve();
          });
        });
      }
      outgoing.end();
    } catch (error) {
      if (!outgoing.headersSent) throw error;
      cutOff();
    } finally {
      clearTimeout(timer);
    }
  }

  /** A JSON reply, with a final line break for terminals. */
  json(status: number, value: unknown, headers: HeaderList = []): void {
    headers.push('Content-Type', 'application/json');
    this.sendText(status, headers, [`${JSON.stringify(value)}\n`]);
  }

  /** A value that grows with the number of functions. */
  async list(make: () => Promise<object>): Promise<void> {
    const made = await this.#means.lists.of(this.url, make);
    if (this.gone) return;
    made.read((over) => this.outgoing.once('close', over));
    this.sendText(200, ['Content-Type', 'application/json'], [made.json], true);
  }

  text(status: number, contentType: string, text: string): void {
    this.sendText(status, ['Content-Type', contentType], [text]);
  }

  /**
   * {@link send}, compressed if that is worth it and the client accepts it. Other threads compress.
   *
   * @param isCounted the parts are counted as held elsewhere
   * @throws HostError 'too-many-requests'
   */
  sendText(status: number, headers: HeaderList, parts: readonly ReplyPart[], isCounted = false): void {
    const bytes = bytesOf(parts);
    const isWorth = bytes >= compressedBytesMin && bytes <= compressedBytesMax;
    if (isWorth) headers.push('Vary', 'Accept-Encoding');
    if (!isWorth || !acceptsGzip(this.incoming.headers['accept-encoding']) || this.method === 'HEAD') {
      if (bytes >= countedReplyBytesMin && !isCounted) this.#holdReply(bytes);
      this.send(status, headers, parts);
      return;
    }
    this.#holdReply((isCounted ? 0 : bytes) + encoderBytes);
    // For counting and logging this request before the text is compressed.
    this.outgoing.statusCode = status;
    const encoder = createGzip(gzipOptions);
    const packed: Buffer[] = [];
    encoder.on('data', (chunk: Buffer) => packed.push(chunk));
    encoder.once('end', () => {
      try {
        this.send(status, [...headers, 'Content-Encoding', 'gzip'], packed);
      } catch (error) {
        sendError(this, toHostError(error));
      }
    });
    encoder.once('error', () => this.send(status, headers, parts));
    for (const part of parts) encoder.write(asWritten(part));
    encoder.end();
  }

  /** How much of the request's body may still follow: a long rest costs the connection. */
  #unreadBody(): 'none' | 'short' | 'long' {
    const { incoming } = this;
    if (incoming.complete) return 'none';
    const length = incoming.headers['content-length'];
    if (length === undefined) return incoming.headers['transfer-encoding'] === undefined ? 'none' : 'long';
    if (length === '0') return 'none';
    // Without a '100 Continue' the client may never send the body, and Node would take its next request for it.
    return Number(length) > keepBytesMax || incoming.headers.expect !== undefined ? 'long' : 'short';
  }

  /** Unread bytes stay in memory, so the client has to read at a least pace. */
  #cutOffWhenSlow(): void {
    const { outgoing } = this;
    const arm = (socket: Socket): void => {
      let before = unsent(socket);
      const look = setInterval(() => {
        const now = unsent(socket);
        if (!hasMoved(before, now)) socket.destroy();
        before = now;
      }, this.#means.stallMs).unref();
      const over = (): void => clearInterval(look);
      outgoing.once('finish', over);
      outgoing.once('close', over);
    };
    if (outgoing.socket !== null) arm(outgoing.socket);
    // Pipelined: it is not this reply's turn yet, and the one before it may take its time.
    else outgoing.once('socket', arm);
  }

  #drainThenEnd(): void {
    const { incoming, outgoing } = this;
    const end = (): void => {
      clearTimeout(timer);
      clearTimeout(idle);
      incoming.off('data', onData);
      outgoing.end();
    };
    const onData = (): void => void idle.refresh();
    const timer = setTimeout(end, drainMsMax).unref();
    const idle = setTimeout(end, drainIdleMsMax).unref();
    incoming.on('data', onData);
    incoming.once('end', end);
    incoming.once('close', end);
    incoming.resume();
  }
}

/** A long text that waits for its reader would be in memory twice: as it is, and as the bytes of it that Node writes. */
const asWritten = (part: ReplyPart): string | Uint8Array =>
  typeof part !== 'string' ? bytesToKeep(part) : part.length >= countedReplyBytesMin ? Buffer.from(part) : part;

/** Fast ones: a reply is compressed once, for one client. */
const gzipOptions = { level: 4 };

/** Whether the client takes gzip; a quality of 0 means no. */
const acceptsGzip = (header = ''): boolean =>
  header
    .toLowerCase()
    .split(',')
    .filter((part) => !/;\s*q=0(\.0+)?\s*$/.test(part))
    .some((part) => ['gzip', '*'].includes(part.split(';', 1)[0]!.trim()));

function closeUnlessComplete(incoming: IncomingMessage): void {
  const timer = setTimeout(() => incoming.socket.destroySoon(), drainIdleMsMax);
  timer.unref();
  incoming.once('close', () => clearTimeout(timer));
}

/** An error as the client gets it. */
export function sendError(exchange: Exchange, error: HostError, headers: HeaderList = []): void {
  headers.push('X-Turntable-Error', error.code);
  // Of a connection too many, or out of files, this one goes as well.
  if (error.code === 'body-timeout' || error.code === 'too-many-connections') exchange.abandoned = true;
  if (error.retryAfterS !== undefined) headers.push('Retry-After', error.retryAfterS);
  exchange.json(error.status, { error: error.message }, headers);
}

/** An id that can be echoed. It must be ASCII, because Node writes headers as UTF-8 when text follows them. */
function idOf(header: string | string[] | undefined): string | undefined {
  if (typeof header !== 'string' || header.length > idLengthMax) return undefined;
  return /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(header) ? header : undefined;
}

/** The version ff and ids of zeros are invalid, and only versions after 00 may have more fields. */
const wellFormedTrace =
  /^(?!ff|00.{53}-)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]{0,100})?$/;

function traceparentOf(header: string | string[] | undefined): string | undefined {
  return typeof header === 'string' && wellFormedTrace.test(header) ? header : undefined;
}

/** Signals of client connections. */
const controllers = new WeakMap<Socket, AbortController>();

/**
 * Aborted when the client's connection closes. All requests of a connection share one signal, since they end with it,
 * and making an AbortController for each would cost 2 µs: a tenth of a bare request.
 */
export function clientSignal(socket: Socket): AbortSignal {
  return getOrMake(controllers, socket, () => {
    const made = new AbortController();
    // Pipelined requests wait at the same time, and each listens.
    setMaxListeners(0, made.signal);
    if (socket.destroyed) made.abort();
    else socket.once('close', () => made.abort());
    return made;
  }).signal;
}

// Request headers shared by synchronous and asynchronous calls.

/** @throws HostError 'bad-request' */
export function sloAsked(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const sloMs = parseDurationMs(header);
  if (sloMs === undefined || sloMs <= 0) {
    const asked = missingUnit(header);
    throw new HostError(
      'bad-request',
      `the header X-Turntable-SLO is not a duration such as '100ms' or '1.5s'${asked === undefined ? '' : `; ${asked}`}`,
    );
  }
  return sloMs;
}

/** The request's headers, as a handler gets them. */
export function plainHeaders(exchange: Exchange): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const name of Object.keys(exchange.incoming.headers)) headers[name] = exchange.header(name) ?? '';
  // The body that goes with them is decompressed already.
  delete headers['content-encoding'];
  return headers;
}
