import { once } from 'node:events';
import { createGunzip, deflateSync, gzipSync, type Gunzip } from 'node:zlib';
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

interface Handle {
  write(...piece: unknown[]): void;
  /** Called when a chunk is inflated. */
  cb: () => void;
}

/** Counts the handles of zlib that make a piece on another thread. */
function countRunning() {
  const { _handle: handle } = createGunzip() as unknown as { readonly _handle: Handle };
  const prototype = Object.getPrototypeOf(handle) as Handle;
  const write: (this: Handle, ...piece: unknown[]) => void = Reflect.get(prototype, 'write');
  const running = new Set<Handle>();
  const known = new WeakSet<Handle>();
  const counted = { most: 0, [Symbol.dispose]: () => void Object.assign(prototype, { write }) };
  Object.assign(prototype, {
    write(this: Handle & Record<PropertyKey, unknown>, ...piece: unknown[]): void {
      running.add(this);
      counted.most = Math.max(counted.most, running.size);
      const { cb } = this;
      this.cb = () => {
        running.delete(this);
        cb();
      };
      if (!known.has(this)) {
        known.add(this);
        const owner = Reflect.ownKeys(this).find((key) => String(key) === 'Symbol(owner_symbol)')!;
        const decoder = this[owner] as Gunzip;
        decoder.prependListener('data', () => running.delete(this));
        decoder.once('close', () => running.delete(this));
      }
      write.apply(this, piece);
    },
  });
  return counted;
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

  test('inflates at most two pieces at a time, whatever becomes of the others, and a small body waits for no large one', async () => {
    using running = countRunning();
    const { held } = account(1e9);
    const ended: number[] = [];
    const small = 12;
    const closed = Array.from({ length: small + 1 }, async (_, index) => {
      const decoder = openDecoder('gzip', held)!;
      let size = 0;
      decoder.on('error', () => undefined);
      // One in three is abandoned, one is damaged, and one is whole.
      decoder.on('data', ({ byteLength }: Buffer) => {
        size += byteLength;
        if (index % 3 === 0 && index !== small) decoder.destroy();
      });
      decoder.on('end', () => {
        expect(size).toBe(index === small ? 3 : body.byteLength);
        ended.push(index);
      });
      const packed = gzipSync(index === small ? 'one' : body);
      if (index % 3 === 1) packed.fill(255, packed.byteLength >> 1);
      decoder.end(packed);
      await new Promise((resolve) => decoder.once('close', resolve));
    });
    await Promise.all(closed);
    expect(running.most).toBe(2);
    expect(ended[0]).toBe(small);
    expect(ended.toSorted((a, b) => a - b)).toEqual([2, 5, 8, 11, small]);
    // None of them has kept its turn.
    expect((await heldFor('gzip', gzipSync(body))).size).toBe(body.byteLength);
  });

  test.each(['br', 'zstd', 'identity', 'constructor'])('of %s there is none', (encoding) => {
    const { inFlight, held } = account(1e9);
    expect(openDecoder(encoding, held)).toBeUndefined();
    expect(inFlight.bytes).toBe(0);
  });
});
