/** Request bodies: whole for invocations, streamed for uploads; limited in size and time. */
import type { Readable } from 'node:stream';
import { HostError } from '../errors.ts';
import { formatDuration } from '../../tools/index.ts';
import type { Exchange } from './exchange.ts';
import { openDecoder } from '../limits/decoders.ts';
import { Gathering, tooLarge } from '../limits/gathering.ts';
import { paceBytesMin, Watches, type Watch } from '../limits/watches.ts';

/** Node reads so much of a socket at once. */
const oneReadBytesMax = 64 * 1024;

export class Bodies {
  readonly #timeoutMs: number;
  readonly #watches: Watches;

  /** @param options.timeoutMs a whole body must arrive within this; a stream must not pause for longer */
  constructor({ timeoutMs }: { readonly timeoutMs: number }) {
    this.#timeoutMs = timeoutMs;
    this.#watches = new Watches(timeoutMs);
  }

  close(): void {
    this.#watches.close();
  }

  /**
   * Reads the whole body, decompressed according to `Content-Encoding`. All bodies together count against the memory
   * limit as they arrive.
   *
   * @throws HostError 'body-too-large' (from Content-Length, before anything is read), 'body-timeout', 'client-gone',
   *   'unsupported-media-type', 'bad-request', 'too-many-requests'
   */
  async read(exchange: Exchange, bytesMax: number): Promise<Buffer> {
    const { incoming, held } = exchange;
    const encoding = incoming.headers['content-encoding']?.toLowerCase();
    if (encoding !== undefined && encoding !== 'identity') return this.#decoded(exchange, encoding, bytesMax);
    const expected = begin(exchange, bytesMax);
    if (expected !== undefined) held.grow(expected);
    if (expected !== undefined && expected <= oneReadBytesMax) {
      // A small body comes in one packet with its headers, and Node hands it over before the next promise goes on. Its
      // end comes some turns later.
      await Promise.resolve();
      if (incoming.readableLength === expected) {
        const body = incoming.read() as Buffer | null;
        // So that Node sees the end of the request.
        incoming.resume();
        return body ?? Buffer.alloc(0);
      }
    }
    return await this.#gather(exchange, incoming, new Gathering('the body', bytesMax, expected, held));
  }

  async #decoded(exchange: Exchange, encoding: string, bytesMax: number): Promise<Buffer> {
    const { incoming, held } = exchange;
    const decoder = openDecoder(encoding, held);
    if (decoder === undefined) {
      throw new HostError('unsupported-media-type', 'the Content-Encoding is not one of gzip, deflate and identity');
    }
    try {
      begin(exchange, bytesMax);
      return await this.#gather(
        exchange,
        incoming.pipe(decoder),
        new Gathering('the decompressed body', bytesMax, undefined, held),
      );
    } catch (error) {
      if (error instanceof HostError) throw error;
      throw new HostError('bad-request', `the body is not ${encoding} data: ${(error as Error).message}`, {
        cause: error,
      });
    } finally {
      incoming.unpipe(decoder);
      decoder.destroy();
    }
  }

  /** @param source the request, or its decompressor */
  #gather(exchange: Exchange, source: Readable, gathering: Gathering): Promise<Buffer> {
    const { incoming } = exchange;
    return new Promise((resolve, reject) => {
      const fail = (error: unknown): void => {
        source.pause();
        gathering.drop();
        this.#watches.remove(watch);
        source.off('data', onData);
        source.off('end', onEnd);
        source.off('error', fail);
        incoming.off('close', onClose);
        reject(error);
      };
      const onData = (chunk: Buffer): void => {
        try {
          // A decoder fills its buffer piece by piece; with the last of them it is done with it, and makes another. The
          // parser of HTTP makes one for each piece.
          const ofBytes = source === incoming ? chunk.byteLength : chunk.byteOffset + chunk.byteLength;
          gathering.add(chunk, ofBytes === chunk.buffer.byteLength);
        } catch (error) {
          fail(error);
        }
      };
      // The listeners end with the request: removing each costs as much as adding it did.
      const onEnd = (): void => {
        this.#watches.remove(watch);
        resolve(gathering.whole());
      };
      // A request that has arrived closes before all of it is decompressed.
      const onClose = (): void => {
        if (!incoming.complete) fail(gone());
      };
      const watch: Watch = {
        sinceMs: performance.now(),
        expire: () => fail(timedOut(this.#timeoutMs, gathering.bytes)),
        at: -1,
      };
      this.#watches.add(watch);
      source.on('data', onData);
      source.on('end', onEnd);
      // A stream keeps what comes before it was first asked, and one such piece makes Node stop reading from the socket.
      if (source === incoming) source.read(0);
      else source.on('error', fail);
      incoming.on('close', onClose);
    });
  }

  /**
   * The body in pieces, with back pressure by the reader. It may take as long as it likes while it moves: a client that
   * brings less than {@link paceBytesMin} within the time limit is cut off.
   *
   * @throws HostError (while iterating) as {@link read} does
   */
  async *stream(exchange: Exchange, bytesMax: number): AsyncGenerator<Uint8Array> {
    const { incoming } = exchange;
    if (!['identity', undefined].includes(incoming.headers['content-encoding']?.toLowerCase())) {
      throw new HostError('unsupported-media-type', 'an upload with a Content-Encoding is not taken; send it as it is');
    }
    begin(exchange, bytesMax);
    const chunks: Buffer[] = [];
    let bytes = 0;
    // Since the last progress: bytes that the client has sent, and how long we waited for it.
    let [freshBytes, waitedMs] = [0, 0];
    let ended = false;
    let failure: HostError | undefined;
    let wake: (() => void) | undefined;
    const onData = (chunk: Buffer): void => {
      incoming.pause();
      chunks.push(chunk);
      wake?.();
    };
    const onEnd = (): void => {
      ended = true;
      wake?.();
    };
    const onClose = (): void => {
      failure ??= gone();
      wake?.();
    };
    const watch: Watch = {
      sinceMs: 0,
      expire: () => {
        failure ??= freshBytes === 0 ? timedOut(this.#timeoutMs, bytes) : tooSlow(this.#timeoutMs, freshBytes);
        wake?.();
      },
      at: -1,
    };
    incoming.on('data', onData);
    incoming.on('end', onEnd);
    incoming.on('close', onClose);
    try {
      for (;;) {
        const chunk = chunks.shift();
        if (chunk !== undefined) {
          bytes += chunk.byteLength;
          freshBytes += chunk.byteLength;
          if (freshBytes >= paceBytesMin) [freshBytes, waitedMs] = [0, 0];
          if (bytes > bytesMax) throw tooLarge('the body', bytesMax);
          yield chunk;
        } else if (ended) return;
        else if (failure !== undefined) throw failure;
        else {
          await new Promise<void>((resolve) => {
            wake = resolve;
            watch.sinceMs = performance.now() - waitedMs;
            this.#watches.add(watch);
            incoming.resume();
          });
          this.#watches.remove(watch);
          waitedMs = performance.now() - watch.sinceMs;
        }
      }
    } finally {
      this.#watches.remove(watch);
      incoming.off('data', onData);
      incoming.off('end', onEnd);
      incoming.off('close', onClose);
    }
  }
}

/** Refuses a body that announces to be too large, and tells a waiting client to go ahead. Returns the bytes to come. */
function begin({ incoming, outgoing }: Exchange, bytesMax: number): number | undefined {
  const header = incoming.headers['content-length'];
  const length = header === undefined ? undefined : Number(header);
  if (length !== undefined && length > bytesMax) throw tooLarge('the body', bytesMax, length);
  // Clients of HTTP/1.0 take it for the answer.
  if (incoming.headers.expect !== undefined && incoming.httpVersion !== '1.0') outgoing.writeContinue();
  return length;
}

function timedOut(timeoutMs: number, bytes: number): HostError {
  return new HostError(
    'body-timeout',
    `the body stopped arriving after ${bytes} bytes and ${formatDuration(timeoutMs)}`,
  );
}

function tooSlow(timeoutMs: number, bytes: number): HostError {
  return new HostError(
    'body-timeout',
    `the body came too slowly: ${bytes} bytes within ${formatDuration(timeoutMs)}, and ${paceBytesMin} ` +
      'are the least',
  );
}

function gone(): HostError {
  return new HostError('client-gone', 'the client closed the connection before its body was complete');
}
