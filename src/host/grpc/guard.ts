/**
 * What comes before the handlers of gRPC: the key and the rate limit, checked on the metadata before a byte of a message
 * is read, and the account of bytes. The bytes of a message pass here on their way to grpc-js, which gathers without a
 * limit but that of one message. Compressed messages are inflated here, where each byte is counted as it comes.
 */
import type { Http2Session, Http2Stream, IncomingHttpHeaders, ServerHttp2Stream } from 'node:http2';
import { constants } from 'node:http2';
import { Server, ServerInterceptingCall, type ServerInterceptor } from '@grpc/grpc-js';
import type { Asking, RouteScope } from '../access/access.ts';
import { HostError, toHostError } from '../errors.ts';
import { openDecoder, type Decoder } from '../limits/decoders.ts';
import type { HeldBytes } from '../limits/in-flight.ts';
import { SpentBuffers } from '../../tensor/index.ts';
import { formatDuration } from '../../tools/index.ts';
import { Gathering, tooLarge } from '../limits/gathering.ts';
import { paceBytesMin, type Watch, type Watches } from '../limits/watches.ts';
import { account, askingOf, type GrpcContext } from './call.ts';
import { letIn } from './guarded-call.ts';
import { entryBytes } from './infer-wire.ts';
import { headBytes, LongReply, longReplyOf } from './long-reply.ts';
import { serviceError } from './status.ts';

/** A request as the server's methods parse it: no handler sees this, the guard unwraps it. */
type Parsed =
  | { readonly kind: 'message'; readonly message: unknown; readonly bytes: number }
  | { readonly kind: 'malformed'; readonly reason: string };

type Registered<Request, Response> = Parameters<typeof Server.prototype.register<Request, Response>>;

/** A server whose methods, of all its services, parse into {@link Parsed}: grpc-js answers a throw with INTERNAL. */
export class ParsingServer extends Server {
  override register<Request, Response>(
    ...[path, handler, serialize, deserialize, type]: Registered<Request, Response>
  ): boolean {
    const parse = (bytes: Buffer): Parsed => {
      try {
        return { kind: 'message', message: deserialize(bytes), bytes: bytes.byteLength };
      } catch (error) {
        return { kind: 'malformed', reason: (error as Error).message };
      }
    };
    return super.register(...([path, handler, serialize, parse, type] as Registered<Request, Response>));
  }
}

/** What a call takes beside its messages until its stream is closed, which the reader decides: measured. */
export const streamBytes = 40 * 1024;

/** By the stream. */
const heldOf = new WeakMap<Http2Stream, HeldBytes>();

type StreamHandler = (
  interceptors: unknown,
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  flags: number,
  rawHeaders: readonly string[],
) => void;

/**
 * Counts each stream before grpc-js takes it, which makes most of what a stream costs, and closes those that the library
 * answers by itself: nobody would read what their clients go on to send. A connection whose client opens streams to reset
 * them ends: all that has arrived of it comes in one turn of the event loop, in which nobody else is served.
 */
export function countStreams(server: Server, { connections, inFlight, statistics }: GrpcContext): void {
  const library = server as unknown as { _streamHandler?: StreamHandler };
  const handle = library._streamHandler;
  if (handle === undefined) throw new Error('this version of @grpc/grpc-js takes streams elsewhere');
  /** The latest stream of each session of those opened in this turn. */
  let latestOf = new Map<Http2Session, ServerHttp2Stream>();
  library._streamHandler = (interceptors, stream, headers, flags, rawHeaders) => {
    const { session } = stream;
    if (session !== undefined) {
      const { closed, rstCode } = latestOf.get(session) ?? {};
      const isReset = closed === true && rstCode !== constants.NGHTTP2_NO_ERROR;
      if (latestOf.size === 0) setImmediate(() => (latestOf = new Map()));
      latestOf.set(session, stream);
      const error = isReset ? connections.countReset(session.socket, performance.now()) : undefined;
      if (error !== undefined) {
        stream.on('error', () => undefined);
        statistics.failed(error);
        session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from(error.message));
        session.destroy();
        return;
      }
    }
    const close = (): void => void setImmediate(() => stream.close(constants.NGHTTP2_NO_ERROR));
    const held = inFlight.held((over) => stream.once('close', over), 0);
    try {
      // HTTP/2 keeps them, and grpc-js makes metadata of them.
      held.grow(streamBytes + 2 * rawHeaders.reduce((sum, { length }) => sum + length, 0));
    } catch (error) {
      stream.on('error', () => undefined);
      statistics.failed(toHostError(error));
      const { code, details, metadata } = serviceError(error);
      const status = { ':status': 200, 'content-type': 'application/grpc', 'grpc-status': code };
      stream.respond(
        { ...status, 'grpc-message': encodeURI(details), ...metadata.toHttp2Headers() },
        { endStream: true },
      );
      close();
      return;
    }
    heldOf.set(stream, held);
    handle.call(server, interceptors, stream, headers, flags, rawHeaders);
    if (stream.headersSent) close();
  };
}

export interface GuardOptions {
  /** Of a method's path; methods of libraries (health, reflection) are open. */
  readonly scopeOf: (path: string) => RouteScope;
  readonly watches: Watches;
}

export function guard(context: GrpcContext, { scopeOf, watches }: GuardOptions): ServerInterceptor {
  const { access, connections } = context;
  const { bodyBytesMax, bodyTimeoutMs } = context.config.limits;
  return ({ path, requestStream }, call) => {
    const startMs = performance.now();
    const method = path.slice(path.lastIndexOf('/') + 1);
    const { stream, encoding } = fieldsOf(call);
    const { session } = stream;
    const held = heldOf.get(stream)!;
    let isOver = false;
    const refuse = (error: unknown): void => {
      if (isOver) return;
      isOver = true;
      account(context, { method, startMs, error });
      const { code, details, metadata } = serviceError(error);
      call.sendStatus({ code, details, metadata });
      // The client may send on; without a reset, nghttp2 would read it.
      setImmediate(() => {
        stream.close(constants.NGHTTP2_NO_ERROR);
        if (toHostError(error).code === 'too-many-connections') turnAway(session, details);
      });
    };
    const incoming = new IncomingMessages(stream, {
      bytesMax: bodyBytesMax,
      encoding,
      held,
      refuse,
      isOver: () => isOver,
      isStream: requestStream,
      timeoutMs: bodyTimeoutMs,
    });
    watches.add(incoming.watch);
    stream.once('close', () => {
      isOver = true;
      watches.remove(incoming.watch);
      incoming.close();
    });
    const bytesOf = new WeakMap<object, number>();
    const spent = new SpentBuffers();
    return new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata: (metadata, pass) => {
            try {
              if (session?.destroyed === false) connections.admit(session.socket);
              const asking: Asking = askingOf(context, metadata, () => call.getPeer());
              letIn(metadata, { keyName: access.admit(scopeOf(path), asking), held, spent, bytesOf });
            } catch (error) {
              refuse(error);
              return;
            }
            pass(metadata);
          },
          onReceiveMessage: (parsed: Parsed, pass) => {
            if (isOver) return;
            if (parsed.kind === 'malformed') {
              const what = `a message to ${method} is not well-formed protobuf of its request type`;
              refuse(new HostError('bad-request', `${what}: ${parsed.reason}`));
              return;
            }
            const { message } = parsed;
            const objectBytes = entryBytes * (entriesOf(message) ?? 0);
            const bytes = headBytes + parsed.bytes + objectBytes;
            try {
              held.grow(objectBytes);
              if (requestStream) {
                // Of streams only inference holds its messages longer than it takes to read them.
                if (method === 'ModelStreamInfer') bytesOf.set(message as object, bytes);
                else held.grow(-bytes);
              }
            } catch (error) {
              refuse(error);
              return;
            }
            pass(message);
          },
        }),
      sendMessage: (message: unknown, next) => {
        // A stream of replies waits for its reader as long as it takes.
        if (!requestStream) keepPace(stream, bodyTimeoutMs, watches, () => held.freed(spent.free()));
        next(message);
      },
    });
  };
}

const entriesOf = (message: unknown): number | undefined => (message as { readonly entries?: number }).entries;

/** A reply is written in such pieces: smaller ones take more time, larger ones tell less of what the reader takes. */
const pieceBytes = 4 * paceBytesMin;

/**
 * Cuts off a reader that takes less than {@link paceBytesMin} of a reply within the time on average, or nothing.
 *
 * @param watches with the same time
 * @param onTaken called once the system has taken the whole reply
 */
export function keepPace(stream: Http2Stream, timeoutMs: number, watches: Watches, onTaken: () => void): void {
  const write = stream.write.bind(stream) as (piece: Uint8Array, done: (error?: Error | null) => void) => boolean;
  const writeAll = (reply: Buffer | LongReply, whenDone?: (error?: Error | null) => void): boolean => {
    const done = (error?: Error | null): void => {
      whenDone?.(error);
      if ((error ?? undefined) === undefined) onTaken();
    };
    const cutOff = (): void => stream.close(constants.NGHTTP2_CANCEL);
    if (!(reply instanceof LongReply) && reply.byteLength < paceBytesMin) {
      const watch: Watch = { sinceMs: performance.now(), expire: cutOff, at: -1 };
      watches.add(watch);
      stream.once('close', () => watches.remove(watch));
      return write(reply, done);
    }
    stream.setTimeout(timeoutMs, cutOff);
    const timer = setTimeout(cutOff, (timeoutMs * pieceBytes) / paceBytesMin).unref();
    stream.once('close', () => clearTimeout(timer));
    const pieces = (reply instanceof LongReply ? reply : new LongReply([reply])).pieces(pieceBytes);
    const writeNext = (piece: Uint8Array): boolean => {
      timer.refresh();
      return write(piece, (error) => {
        const next = (error ?? undefined) === undefined ? pieces.next() : undefined;
        if (next?.done === false) {
          writeNext(next.value);
          return;
        }
        clearTimeout(timer);
        done(error);
      });
    };
    const first = pieces.next();
    return first.done === true || writeNext(first.value);
  };
  stream.write = writeAll as typeof stream.write;
}

/** Tells the client of a connection too many to come back later on another. */
function turnAway(session: Http2Session | undefined, reason: string): void {
  if (session === undefined || session.closed || session.destroyed) return;
  session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from(reason));
  session.close();
}

interface Fields {
  readonly stream: Http2Stream;
  readonly incomingEncoding: string;
  /** Makes messages with their heads of the bytes that arrive. */
  decoder: { readonly write: (bytes: Buffer) => Buffer[] };
  readonly handler: { readonly serialize: (value: unknown) => Buffer };
  /** Makes a message with its head, of which its caller takes the length, and writes it to the stream. */
  serializeMessage: (value: unknown) => Buffer | LongReply;
}

/** What grpc-js does not show of a call: only the bytes of its HTTP/2 stream tell what it holds. */
function fieldsOf(call: object): { readonly stream: Http2Stream; readonly encoding: string } {
  const fields = call as Partial<Fields>;
  const { stream, incomingEncoding: encoding, decoder, handler, serializeMessage } = fields;
  if (
    stream === undefined ||
    encoding === undefined ||
    decoder === undefined ||
    handler === undefined ||
    serializeMessage === undefined
  ) {
    throw new Error('this version of @grpc/grpc-js keeps the stream of a call elsewhere');
  }
  // It gets whole messages: its own decoder would copy each once more.
  fields.decoder = { write: (message) => [message] };
  fields.serializeMessage = (value) => longReplyOf(value, handler.serialize) ?? serializeMessage.call(fields, value);
  return { stream, encoding };
}

interface IncomingOptions {
  /** `grpc-encoding` of the client. */
  readonly encoding: string;
  readonly bytesMax: number;
  readonly held: HeldBytes;
  readonly refuse: (error: unknown) => void;
  readonly isOver: () => boolean;
  readonly isStream: boolean;
  readonly timeoutMs: number;
}

/** A message of which the head has arrived. */
interface Incoming {
  readonly isCompressed: boolean;
  /** With its head. */
  readonly bytes: number;
  readonly gathering: Gathering;
}

/** The messages of a call on their way to grpc-js, each with its head. */
class IncomingMessages {
  readonly watch: Watch;
  readonly #options: IncomingOptions;
  readonly #stream: Http2Stream;
  readonly #toLibrary: (message: Buffer) => void;
  readonly #endLibrary: () => void;
  readonly #waiting: Buffer[] = [];
  #message: Incoming | undefined;
  #inflating: { readonly decoder: Decoder; readonly gathering: Gathering } | undefined;
  #hasEnded = false;
  #freshBytes = 0;

  constructor(stream: Http2Stream, options: IncomingOptions) {
    this.#stream = stream;
    this.#options = options;
    const [onData, onEnd] = [stream.listeners('data').at(-1), stream.listeners('end').at(-1)];
    if (onData === undefined || onEnd === undefined) throw new Error('this version of @grpc/grpc-js reads otherwise');
    this.#toLibrary = onData as (message: Buffer) => void;
    this.#endLibrary = onEnd as () => void;
    stream.off('data', this.#toLibrary);
    stream.off('end', this.#endLibrary);
    stream.on('data', (chunk: Buffer) => this.#take(chunk));
    stream.on('end', () => {
      this.#hasEnded = true;
      this.#passOn();
    });
    const { timeoutMs, isStream } = options;
    this.watch = {
      sinceMs: isStream ? Infinity : performance.now(),
      // A stream that is paused waits for the host.
      expire: () => {
        if (stream.isPaused()) this.watch.sinceMs = performance.now();
        else options.refuse(tooSlow(timeoutMs, this.#freshBytes));
      },
      at: -1,
    };
  }

  close(): void {
    this.#inflating?.decoder.destroy();
    this.#inflating?.gathering.drop();
    this.#inflating = undefined;
    this.#waiting.length = 0;
    this.#message?.gathering.drop();
    this.#message = undefined;
  }

  #take(chunk: Buffer): void {
    if (this.#options.isOver()) return;
    this.#freshBytes += chunk.byteLength;
    if (this.#freshBytes >= paceBytesMin) {
      this.#freshBytes = 0;
      this.watch.sinceMs = performance.now();
    }
    this.#waiting.push(chunk);
    this.#passOn(chunk.byteLength);
  }

  #passOn(freshBytes = 0): void {
    const { held, isOver, refuse } = this.#options;
    if (isOver()) return;
    try {
      held.grow(freshBytes);
      this.#pass();
    } catch (error) {
      this.close();
      refuse(error);
    }
  }

  /** @throws HostError */
  #pass(): void {
    while (this.#inflating === undefined && this.#hasHead()) {
      const { bytes, gathering, isCompressed } = (this.#message ??= this.#begin(this.#waiting[0]!));
      const chunk = this.#waiting.shift();
      if (chunk === undefined) break;
      const part = chunk.subarray(0, bytes - gathering.bytes);
      if (part.byteLength < chunk.byteLength) this.#waiting.unshift(chunk.subarray(part.byteLength));
      gathering.add(part);
      if (gathering.bytes < bytes) continue;
      this.#message = undefined;
      if (isCompressed) this.#inflate(gathering.whole());
      else this.#toLibrary(gathering.whole());
    }
    if (this.#options.isStream) {
      if (this.#message === undefined && this.#waiting.length === 0) this.watch.sinceMs = Infinity;
      else if (this.watch.sinceMs === Infinity) this.watch.sinceMs = performance.now();
    }
    if (!this.#hasEnded) return;
    this.watch.sinceMs = Infinity;
    if (this.#inflating === undefined) this.#endLibrary();
  }

  /** Whether the next message has begun, with all of its head in the first piece. */
  #hasHead(): boolean {
    if (this.#message !== undefined) return true;
    while (this.#waiting.length > 1 && this.#waiting[0]!.byteLength < headBytes) {
      this.#waiting.unshift(Buffer.concat(this.#waiting.splice(0, 2)));
    }
    return (this.#waiting[0]?.byteLength ?? 0) >= headBytes;
  }

  /** @throws HostError */
  #begin(head: Buffer): Incoming {
    const { bytesMax, encoding, held } = this.#options;
    const flag = head.readUInt8(0);
    const size = head.readUInt32BE(1);
    if (flag > 1) throw new HostError('bad-request', `a message begins with the byte ${flag}, which must be 0 or 1`);
    if (size > bytesMax) throw tooLarge('a message', bytesMax, size);
    const bytes = headBytes + size;
    const isCompressed = flag === 1 && encodings.has(encoding);
    return { isCompressed, bytes, gathering: new Gathering('a message', bytes, bytes, held) };
  }

  #inflate(packed: Buffer): void {
    const { bytesMax, encoding, held, isOver, refuse } = this.#options;
    const what = 'an inflated message';
    const decoder = openDecoder(encoding, held)!;
    const gathering = new Gathering(what, headBytes + bytesMax, undefined, held);
    this.#inflating = { decoder, gathering };
    this.#stream.pause();
    const fail = (error: unknown): void => {
      this.close();
      refuse(error);
    };
    const add = (part: Buffer): void => {
      try {
        if (gathering.bytes + part.byteLength > headBytes + bytesMax) throw tooLarge(what, bytesMax);
        // The decoder is done with a buffer that it has filled, and makes another.
        gathering.add(part, part.byteLength === part.buffer.byteLength);
      } catch (error) {
        fail(error);
      }
    };
    decoder.on('data', add);
    decoder.once('error', (error) => {
      fail(new HostError('bad-request', `a message is not ${encoding} data: ${error.message}`));
    });
    decoder.once('end', () => {
      if (isOver()) return;
      this.#inflating = undefined;
      const message = gathering.whole();
      message.writeUInt32BE(message.byteLength - headBytes, 1);
      this.#toLibrary(message);
      this.#passOn(-packed.byteLength);
    });
    add(Buffer.alloc(headBytes));
    decoder.end(packed.subarray(headBytes));
  }
}

/** Compressions of messages that grpc-js knows. */
const encodings = new Set(['gzip', 'deflate']);

function tooSlow(timeoutMs: number, bytes: number): HostError {
  return new HostError(
    'body-timeout',
    `the message came too slowly: ${bytes} bytes within ${formatDuration(timeoutMs)}, and ${paceBytesMin} are the least`,
  );
}
