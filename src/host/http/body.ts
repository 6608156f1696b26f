/** Request bodies: whole for invocations, streamed for uploads; bounded in size and in time. */
import { promisify } from 'node:util';
import { gunzip, inflate } from 'node:zlib';
import { HostError } from '../errors.ts';
import { formatDuration } from '../config-units.ts';
import type { Exchange } from './exchange.ts';

const gunzipAsync = promisify(gunzip);
const inflateAsync = promisify(inflate);

interface Watch {
  sinceMs: number;
  readonly expire: () => void;
}

export interface BodiesOptions {
  /** A whole body must arrive within this; a stream must not pause for longer. */
  readonly timeoutMs: number;
}

export class Bodies {
  readonly #timeoutMs: number;
  /** One interval for all requests: a timer of its own would cost each of them more than its body does. */
  readonly #watched = new Set<Watch>();
  readonly #sweep: NodeJS.Timeout;

  constructor({ timeoutMs }: BodiesOptions) {
    this.#timeoutMs = timeoutMs;
    this.#sweep = setInterval(() => this.#expire(), Math.min(1000, Math.max(10, timeoutMs / 4)));
    this.#sweep.unref();
  }

  close(): void {
    clearInterval(this.#sweep);
  }

  #expire(): void {
    const oldestMs = performance.now() - this.#timeoutMs;
    for (const watch of this.#watched) if (watch.sinceMs < oldestMs) watch.expire();
  }

  /**
   * The whole body, decompressed where `Content-Encoding` says so.
   *
   * @throws HostError 'body-too-large' (from Content-Length, before anything is read), 'body-timeout', 'client-gone',
   *   'unsupported-media-type', 'bad-request'
   */
  async read(exchange: Exchange, bytesMax: number): Promise<Buffer> {
    const encoding = exchange.incoming.headers['content-encoding']?.toLowerCase();
    if (encoding === undefined || encoding === 'identity') return this.#gather(exchange, bytesMax);
    const decode = encoding === 'gzip' || encoding === 'x-gzip' ? gunzipAsync : encoding === 'deflate' && inflateAsync;
    if (decode === false) {
      throw new HostError('unsupported-media-type', `the Content-Encoding is not one of gzip, deflate and identity`);
    }
    const packed = await this.#gather(exchange, bytesMax);
    try {
      return await decode(packed, { maxOutputLength: bytesMax });
    } catch (error) {
      if (error instanceof RangeError || (error as NodeJS.ErrnoException).code === 'ERR_BUFFER_TOO_LARGE') {
        throw tooLarge('the decompressed body', bytesMax);
      }
      throw new HostError('bad-request', `the body is not ${encoding} data: ${(error as Error).message}`, {
        cause: error,
      });
    }
  }

  #gather(exchange: Exchange, bytesMax: number): Promise<Buffer> {
    const { incoming } = exchange;
    begin(exchange, bytesMax);
    return new Promise((resolve, reject) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      const settle = (): void => {
        this.#watched.delete(watch);
        incoming.off('data', onData);
        incoming.off('end', onEnd);
        incoming.off('close', onClose);
      };
      const onData = (chunk: Buffer): void => {
        bytes += chunk.byteLength;
        if (bytes > bytesMax) {
          incoming.pause();
          settle();
          reject(tooLarge('the body', bytesMax));
        } else chunks.push(chunk);
      };
      const onEnd = (): void => {
        settle();
        const [only] = chunks;
        resolve(chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks, bytes));
      };
      const onClose = (): void => {
        settle();
        reject(gone());
      };
      const watch: Watch = {
        sinceMs: performance.now(),
        expire: () => {
          settle();
          reject(timedOut(this.#timeoutMs, bytes));
        },
      };
      this.#watched.add(watch);
      incoming.on('data', onData);
      incoming.on('end', onEnd);
      incoming.on('close', onClose);
    });
  }

  /**
   * The body in pieces, with the reader's pace as back pressure. It may take as long as it likes as long as it moves.
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
        failure ??= timedOut(this.#timeoutMs, bytes);
        wake?.();
      },
    };
    incoming.on('data', onData);
    incoming.on('end', onEnd);
    incoming.on('close', onClose);
    try {
      for (;;) {
        const chunk = chunks.shift();
        if (chunk !== undefined) {
          bytes += chunk.byteLength;
          if (bytes > bytesMax) throw tooLarge('the body', bytesMax);
          yield chunk;
        } else if (ended) return;
        else if (failure !== undefined) throw failure;
        else {
          await new Promise<void>((resolve) => {
            wake = resolve;
            watch.sinceMs = performance.now();
            this.#watched.add(watch);
            incoming.resume();
          });
          this.#watched.delete(watch);
        }
      }
    } finally {
      this.#watched.delete(watch);
      incoming.off('data', onData);
      incoming.off('end', onEnd);
      incoming.off('close', onClose);
    }
  }
}

/** Refuses what is too large by its own account, and tells a client that waits for it to go ahead. */
function begin({ incoming, outgoing }: Exchange, bytesMax: number): void {
  const length = incoming.headers['content-length'];
  if (length !== undefined && Number(length) > bytesMax) throw tooLarge('the body', bytesMax, Number(length));
  if (incoming.headers.expect !== undefined) outgoing.writeContinue();
}

function tooLarge(what: string, bytesMax: number, bytes?: number): HostError {
  const size = bytes === undefined ? '' : ` (${bytes} bytes)`;
  return new HostError('body-too-large', `${what}${size} is over the limit of ${bytesMax} bytes`);
}

function timedOut(timeoutMs: number, bytes: number): HostError {
  return new HostError(
    'body-timeout',
    `the body stopped arriving after ${bytes} bytes and ${formatDuration(timeoutMs)}`,
  );
}

function gone(): HostError {
  return new HostError('client-gone', 'the client closed the connection before its body was complete');
}
