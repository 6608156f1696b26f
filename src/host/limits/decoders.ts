/** Decompressors of bodies and messages: what they keep themselves counts as held, like what they put out. */
import { createGunzip, createInflate, type Gunzip, type Inflate } from 'node:zlib';
import { Semaphore } from '../../tools/index.ts';
import type { HeldBytes } from './in-flight.ts';

export type Decoder = Gunzip | Inflate;

const pieces = { chunkSize: 64 * 1024 };
/** The buffer for its next piece, its window and its tables. */
const decoderBytes = 2 * pieces.chunkSize;

/** Brotli is not among them: its decoder keeps up to 16 MiB of what it has put out, for a body of a few bytes too. */
const decoders: Readonly<Record<string, () => Decoder>> = {
  gzip: () => createGunzip(pieces),
  'x-gzip': () => createGunzip(pieces),
  deflate: () => createInflate(pieces),
};

/**
 * Undefined: there is no such encoding. It is over when it is destroyed.
 *
 * @throws HostError 'too-many-requests' before it is made, if there is no room for it
 */
export function openDecoder(encoding: string, held: HeldBytes): Decoder | undefined {
  if (!Object.hasOwn(decoders, encoding)) return undefined;
  held.grow(decoderBytes);
  const decoder = decoders[encoding]!();
  decoder.once('close', () => held.grow(-decoderBytes, true));
  takeTurns(decoder);
  return decoder;
}

/**
 * Pieces that are inflated at once, in their order. The event loop must copy each before its stream inflates the next;
 * with sixty streams the threads of libuv's pool had so much to do meanwhile that it got no core for a tenth of a second.
 */
const turns = new Semaphore(2);

/** What is used of a handle of zlib: it makes one piece, of up to {@link pieces} bytes, on another thread. */
interface Handle {
  write(...piece: unknown[]): void;
}

/** Has each piece wait for its turn. */
function takeTurns(decoder: Decoder): void {
  // Node's own field; there is no public one.
  const { _handle: handle } = decoder as { readonly _handle?: Handle };
  if (handle === undefined) return;
  let lease: Disposable | undefined;
  const over = (): void => {
    lease?.[Symbol.dispose]();
    lease = undefined;
  };
  const write = handle.write.bind(handle);
  const push = decoder.push.bind(decoder);
  const transform = decoder._transform.bind(decoder);
  const inTurn = async (piece: readonly unknown[]): Promise<void> => {
    lease = await turns.lock();
    // Its handle is closed by then.
    if (decoder.destroyed) over();
    else write(...piece);
  };
  handle.write = (...piece): void => void inTurn(piece);
  decoder.push = (made: Buffer | null): boolean => {
    over();
    return push(made);
  };
  decoder._transform = (chunk, encoding, done): void =>
    transform(chunk, encoding, (...result) => {
      over();
      done(...result);
    });
  decoder.once('close', over);
}
