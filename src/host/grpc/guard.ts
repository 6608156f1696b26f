/**
 * What comes before the handlers of gRPC: the key and the rate limit, checked on the metadata before a byte of a message
 * is read, and the account of bytes. The bytes of a message pass here on their way to grpc-js, which gathers without a
 * limit but that of one message. Compressed messages are inflated here, where each byte is counted as it comes.
 */
import type { Http2Session, Http2Stream } from 'node:http2';
import { constants } from 'node:http2';
import { createGunzip, createInflate, type Gunzip, type Inflate } from 'node:zlib';
import { Server, ServerInterceptingCall, type ServerInterceptor } from '@grpc/grpc-js';
import type { Asking, ClientScope } from '../access.ts';
import { HostError, toHostError } from '../errors.ts';
import type { HeldBytes } from '../in-flight.ts';
import { formatDuration } from '../../tools/index.ts';
import { paceBytesMin, type Watch, type Watches } from '../watches.ts';
import { account, askingOf, type GrpcContext } from './call.ts';
import { letIn } from './guarded-call.ts';
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

export interface GuardOptions {
  /** Of a method's path; methods of libraries (health, reflection) are open. */
  readonly scopeOf: (path: string) => ClientScope;
  readonly watches: Watches;
}

export function guard(context: GrpcContext, { scopeOf, watches }: GuardOptions): ServerInterceptor {
  const { access, connections, inFlight } = context;
  const { bodyBytesMax, bodyTimeoutMs } = context.config.limits;
  return ({ path, requestStream }, call) => {
    const startMs = performance.now();
    const method = path.slice(path.lastIndexOf('/') + 1);
    const { stream, encoding } = fieldsOf(call);
    const { session } = stream;
    const held = inFlight.held((over) => stream.once('close', over), 0);
    let isOver = false;
    const refuse = (error: unknown): void => {
      if (isOver) return;
      isOver = true;
      account(context, method, error, startMs);
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
    return new ServerInterceptingCall(call, {
      start: (next) =>
        next({
          onReceiveMetadata: (metadata, pass) => {
            try {
              if (session?.destroyed === false) connections.admit(session.socket);
              const asking: Asking = askingOf(context, metadata, () => call.getPeer());
              letIn(metadata, { keyName: access.admit(scopeOf(path), asking), held, bytesOf });
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
            const { message, bytes } = parsed;
            if (requestStream) {
              // Of streams only inference holds its messages longer than it takes to read them.
              if (method === 'ModelStreamInfer') bytesOf.set(message as object, copies * bytes);
              else held.grow(-copies * bytes);
            }
            pass(message);
          },
        }),
      sendMessage: (message: unknown, next) => {
        next(message);
        // A stream of replies waits for its reader as long as it takes.
        if (!requestStream && stream.writableLength >= paceBytesMin) {
          stream.setTimeout(bodyTimeoutMs, () => stream.close(constants.NGHTTP2_CANCEL));
        }
      },
    });
  };
}

/** Tells the client of a connection too many to come back later on another. */
function turnAway(session: Http2Session | undefined, reason: string): void {
  if (session === undefined || session.closed || session.destroyed) return;
  session.goaway(constants.NGHTTP2_ENHANCE_YOUR_CALM, 0, Buffer.from(reason));
  session.close();
}

/** A message is in memory in the pieces that arrived, and joined. */
const copies = 2;

/** What grpc-js does not show of a call: only the bytes of its HTTP/2 stream tell what it holds. */
function fieldsOf(call: object): { readonly stream: Http2Stream; readonly encoding: string } {
  const { stream, incomingEncoding: encoding } = call as { stream?: Http2Stream; incomingEncoding?: string };
  if (stream === undefined || encoding === undefined) {
    throw new Error('this version of @grpc/grpc-js keeps the stream of a call elsewhere');
  }
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

/** The messages of a call on their way to grpc-js: each with five bytes before it (a flag and its length). */
class IncomingMessages {
  readonly watch: Watch;
  readonly #options: IncomingOptions;
  readonly #stream: Http2Stream;
  readonly #encoding: string;
  readonly #toLibrary: (chunk: Buffer) => void;
  readonly #endLibrary: () => void;
  readonly #waiting: Buffer[] = [];
  #head: Buffer[] = [];
  #headBytes = 0;
  #size = 0;
  #left = 0;
  /** The pieces of a compressed message. */
  #packed: Buffer[] | undefined;
  #inflating: Gunzip | Inflate | undefined;
  #hasEnded = false;
  #freshBytes = 0;

  constructor(stream: Http2Stream, options: IncomingOptions) {
    this.#stream = stream;
    this.#options = options;
    this.#encoding = options.encoding;
    const [onData, onEnd] = [stream.listeners('data').at(-1), stream.listeners('end').at(-1)];
    if (onData === undefined || onEnd === undefined) throw new Error('this version of @grpc/grpc-js reads otherwise');
    this.#toLibrary = onData as (chunk: Buffer) => void;
    this.#endLibrary = onEnd as () => void;
    stream.off('data', this.#toLibrary);
    stream.off('end', this.#endLibrary);
    stream.on('data', (chunk: Buffer) => this.#take(chunk));
    stream.on('end', () => {
      this.#hasEnded = true;
      this.#pass();
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
    this.#inflating?.destroy();
    this.#waiting.length = 0;
    this.#packed = undefined;
  }

  #take(chunk: Buffer): void {
    if (this.#options.isOver()) return;
    this.#freshBytes += chunk.byteLength;
    if (this.#freshBytes >= paceBytesMin) {
      this.#freshBytes = 0;
      this.watch.sinceMs = performance.now();
    }
    try {
      this.#options.held.grow(chunk.byteLength);
      this.#waiting.push(chunk);
      this.#pass();
    } catch (error) {
      this.#options.refuse(error);
    }
  }

  /** @throws HostError */
  #pass(): void {
    while (this.#inflating === undefined && this.#waiting.length > 0) {
      let chunk = this.#waiting.shift()!;
      if (this.#headBytes < 5) {
        const part = chunk.subarray(0, 5 - this.#headBytes);
        this.#head.push(part);
        this.#headBytes += part.byteLength;
        chunk = chunk.subarray(part.byteLength);
        if (this.#headBytes === 5) this.#begin(Buffer.concat(this.#head));
      }
      const part = chunk.subarray(0, this.#left);
      if (part.byteLength < chunk.byteLength) this.#waiting.unshift(chunk.subarray(part.byteLength));
      this.#left -= part.byteLength;
      if (this.#packed !== undefined) this.#packed.push(part);
      else if (part.byteLength > 0) {
        if (this.#left === 0) this.#options.held.grow(this.#size);
        this.#toLibrary(part);
      }
      if (this.#headBytes === 5 && this.#left === 0) this.#end();
    }
    if (this.#options.isStream) {
      if (this.#headBytes === 0) this.watch.sinceMs = Infinity;
      else if (this.watch.sinceMs === Infinity) this.watch.sinceMs = performance.now();
    }
    if (!this.#hasEnded) return;
    this.watch.sinceMs = Infinity;
    if (this.#inflating === undefined) this.#endLibrary();
  }

  #begin(head: Buffer): void {
    const { bytesMax } = this.#options;
    const flag = head.readUInt8(0);
    this.#size = this.#left = head.readUInt32BE(1);
    if (flag > 1) throw new HostError('bad-request', `a message begins with the byte ${flag}, which must be 0 or 1`);
    if (this.#size > bytesMax) {
      throw new HostError('body-too-large', `a message of ${this.#size} bytes is over the limit of ${bytesMax} bytes`);
    }
    if (flag === 1 && decoders.has(this.#encoding)) this.#packed = [];
    else this.#toLibrary(head);
  }

  #end(): void {
    this.#head = [];
    this.#headBytes = 0;
    if (this.#packed === undefined) return;
    const { bytesMax, held, refuse } = this.#options;
    const decoder = (this.#inflating = decoders.get(this.#encoding)!());
    const packed = this.#packed.splice(0);
    const packedBytes = this.#size;
    this.#packed = undefined;
    this.#stream.pause();
    const parts: Buffer[] = [];
    let bytes = 0;
    const fail = (error: HostError): void => {
      decoder.destroy();
      refuse(error);
    };
    decoder.on('data', (part: Buffer) => {
      bytes += part.byteLength;
      try {
        if (bytes > bytesMax) throw new HostError('body-too-large', `a message inflates to over ${bytesMax} bytes`);
        held.grow(part.byteLength);
      } catch (error) {
        fail(toHostError(error));
        return;
      }
      parts.push(part);
    });
    decoder.once('error', (error) => {
      fail(new HostError('bad-request', `a message is not ${this.#encoding} data: ${error.message}`));
    });
    decoder.once('end', () => {
      if (this.#options.isOver()) return;
      try {
        held.grow(bytes - packedBytes);
        const head = Buffer.alloc(5);
        head.writeUInt32BE(bytes, 1);
        this.#inflating = undefined;
        this.#toLibrary(head);
        for (const part of parts) this.#toLibrary(part);
        this.#pass();
      } catch (error) {
        refuse(error);
      }
    });
    for (const part of packed) decoder.write(part);
    decoder.end();
  }
}

const decoders = new Map<string, () => Gunzip | Inflate>([
  ['gzip', () => createGunzip(pieces)],
  ['deflate', () => createInflate(pieces)],
]);
const pieces = { chunkSize: 64 * 1024 };

function tooSlow(timeoutMs: number, bytes: number): HostError {
  return new HostError(
    'body-timeout',
    `the message came too slowly: ${bytes} bytes within ${formatDuration(timeoutMs)}, and ${paceBytesMin} are the least`,
  );
}
