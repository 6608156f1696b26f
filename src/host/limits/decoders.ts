/** Decompressors of bodies and messages: what they keep themselves counts as held, like what they put out. */
import type { TransformCallback } from 'node:stream';
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
 * Pieces that are inflated at once, in their order. Sixty streams gave the threads of libuv's pool so much to do that the
 * event loop got no core for a tenth of a second.
 */
const turns = new Semaphore(2);
/**
 * A piece, as it was sent; at most a thousand times as much comes out. 30 MB that hardly shrink took 2.5 s in pieces of
 * 1 KiB, 0.34 in these, and 0.32 without turns.
 */
const pieceBytes = 16 * 1024;

/** Has each piece wait for its turn, so that a small body does not wait for all of a large one. */
function takeTurns(decoder: Decoder): void {
  const transform = decoder._transform.bind(decoder);
  const inTurn = async (piece: Buffer, encoding: BufferEncoding): Promise<Error | null | undefined> => {
    using _turn = await turns.lock();
    if (decoder.destroyed) return undefined;
    return await new Promise((resolve) => {
      const closed = (): void => resolve(undefined);
      decoder.once('close', closed);
      transform(piece, encoding, (error) => {
        decoder.off('close', closed);
        resolve(error);
      });
    });
  };
  const inTurns = async (chunk: Buffer, encoding: BufferEncoding, done: TransformCallback): Promise<void> => {
    let at = 0;
    do {
      const error = await inTurn(chunk.subarray(at, (at += pieceBytes)), encoding);
      if (error) {
        done(error);
        return;
      }
    } while (at < chunk.byteLength && !decoder.destroyed);
    done();
  };
  decoder._transform = (chunk: Buffer, encoding, done): void => void inTurns(chunk, encoding, done);
}
