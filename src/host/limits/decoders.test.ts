import { once } from 'node:events';
import { deflateSync, gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { openDecoder } from './decoders.ts';
import { Gathering } from './gathering.ts';
import { InFlightBytes } from './in-flight.ts';

const mebibyte = 2 ** 20;
const account = (bytesMax: number) => {
  const inFlight = new InFlightBytes(bytesMax);
  return { inFlight, held: inFlight.held(() => undefined, 0) };
};

/** Decompresses into a gathering; resolves to the most that was held meanwhile, and to what is held afterwards. */
async function heldFor(
  encoding: string,
  packed: Buffer,
): Promise<{ mostBytes: number; afterBytes: number; size: number }> {
  const { inFlight, held } = account(1e9);
  const decoder = openDecoder(encoding, held)!;
  const gathering = new Gathering('the body', 1e9, undefined, held);
  let mostBytes = inFlight.bytes;
  decoder.on('data', (chunk: Buffer) => {
    gathering.add(chunk);
    mostBytes = Math.max(mostBytes, inFlight.bytes);
  });
  decoder.end(packed);
  await once(decoder, 'close');
  return { mostBytes, afterBytes: inFlight.bytes, size: gathering.bytes };
}

const body = Buffer.alloc(20 * mebibyte, 'turntable');

describe('a decompressor', () => {
  test.each([
    ['gzip', gzipSync(body)],
    ['x-gzip', gzipSync(body)],
    ['deflate', deflateSync(body)],
  ])('of %s counts with its buffer until it is closed', async (encoding, packed) => {
    const { mostBytes, afterBytes, size } = await heldFor(encoding, packed);
    expect(size).toBe(body.byteLength);
    expect(afterBytes).toBe(size);
    expect(mostBytes).toBeGreaterThan(size);
    expect(mostBytes).toBeLessThan(size + mebibyte);
  });

  test('is not made where there is no room for it', () => {
    const { inFlight, held } = account(64 * 1024);
    expect(() => openDecoder('gzip', held)).toThrow('over the limit of 65536');
    expect(inFlight.bytes).toBe(0);
  });

  test('that is destroyed before its end gives back what it kept, and not what it put out', async () => {
    const { inFlight, held } = account(1e9);
    const decoder = openDecoder('gzip', held)!;
    held.grow(5 * mebibyte);
    decoder.destroy();
    await once(decoder, 'close');
    expect(inFlight.bytes).toBe(5 * mebibyte);
    held.grow(-5 * mebibyte);
    expect(inFlight.bytes).toBe(0);
  });

  test.each(['br', 'zstd', 'identity', 'constructor'])('of %s there is none', (encoding) => {
    const { inFlight, held } = account(1e9);
    expect(openDecoder(encoding, held)).toBeUndefined();
    expect(inFlight.bytes).toBe(0);
  });
});
