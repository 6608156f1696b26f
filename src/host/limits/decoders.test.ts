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

  test('inflates at most two pieces at a time, in the order of their streams, whatever becomes of the others', async () => {
    using running = countRunning();
    const { held } = account(1e9);
    const order: number[] = [];
    const streams = Array.from({ length: 12 }, (_, index) => {
      const decoder = openDecoder('gzip', held)!;
      decoder.on('error', () => undefined);
      // One in three is abandoned, one is damaged, and one is whole.
      decoder.on('data', () => {
        order.push(index);
        if (index % 3 === 0) decoder.destroy();
      });
      const packed = gzipSync(body);
      if (index % 3 === 1) packed.fill(255, packed.byteLength >> 1);
      const closed = new Promise((resolve) => decoder.once('close', resolve));
      decoder.end(packed);
      return { index, closed, decoder };
    });
    await Promise.all(streams.map(({ closed }) => closed));
    expect(running.most).toBe(2);
    // A stream of many pieces has no second one before each other stream has its first.
    const firsts = streams.map(({ index }) => order.indexOf(index));
    const second = order.indexOf(2, order.indexOf(2) + 1);
    expect(Math.max(...firsts)).toBeLessThan(second);
    expect(streams.filter(({ decoder }) => decoder.readableEnded).map(({ index }) => index)).toEqual([2, 5, 8, 11]);
    // None of them has kept its turn.
    expect((await heldFor('gzip', gzipSync(body))).size).toBe(body.byteLength);
  });

  test.each(['br', 'zstd', 'identity', 'constructor'])('of %s there is none', (encoding) => {
    const { inFlight, held } = account(1e9);
    expect(openDecoder(encoding, held)).toBeUndefined();
    expect(inFlight.bytes).toBe(0);
  });
});
