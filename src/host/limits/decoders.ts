/** Decompressors of bodies and messages: what they keep themselves counts as held, like what they put out. */
import { createGunzip, createInflate, type Gunzip, type Inflate } from 'node:zlib';
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
  return decoder;
}
