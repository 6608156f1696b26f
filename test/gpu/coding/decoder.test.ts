import { expect, test } from 'vitest';
import { decodePack, describeCoded, encodePack, type PackedWeight } from '../../../src/coding/index.ts';
import type { Cuda } from '../../../src/gpu/driver/types.ts';
import { Decoder } from '../../../src/gpu/engine/decoder.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { trainedLike } from '../../support/trained-like.ts';

const withCuda = sharedEmulatedCuda({ devices: 1 });

/** Decodes by the kernel. */
class Bench {
  readonly #cuda: Cuda;
  readonly #decoder: Decoder;

  constructor(cuda: Cuda, decoder: Decoder) {
    this.#cuda = cuda;
    this.#decoder = decoder;
  }

  static async with(cuda: Cuda, work: (bench: Bench) => Promise<void>): Promise<void> {
    const decoder = await Decoder.load(cuda, cuda.devices[0]!);
    try {
      await work(new Bench(cuda, decoder));
    } finally {
      decoder.release();
    }
  }

  /** @param given bytes that arrive on the GPU, in place of those that were coded */
  async decode(coded: Uint8Array, given = coded): Promise<{ bytes: Buffer; failed: boolean }> {
    const [device] = this.#cuda.devices;
    const pack = describeCoded(coded);
    using host = this.#cuda.allocateHost(coded.byteLength);
    using out = this.#cuda.allocateHost(pack.bytes);
    using flag = this.#cuda.allocateHost(4);
    using there = device!.allocate(coded.byteLength);
    using to = device!.allocate(pack.bytes);
    using stream = device!.createStream();
    host.view(0, coded.byteLength).set(given);
    flag.view(0, 4).fill(0);
    stream.copy(there.address, host.address, coded.byteLength);
    const order = { coded: there.address, codedBytes: coded.byteLength, pack, to: to.address, failed: flag.address };
    this.#decoder.decode(stream, order);
    stream.copy(out.address, to.address, pack.bytes);
    await stream.finished();
    return { bytes: Buffer.from(out.view(0, pack.bytes)), failed: flag.view(0, 4)[0] === 1 };
  }
}

/** Weights of all kinds in one pack, each at a multiple of 256 bytes. */
function mixedPack(elements: number): { readonly pack: Uint8Array; readonly weights: PackedWeight[] } {
  const narrow = trainedLike({ datatype: 'BF16', elements, deviation: 0.05, seed: 4 });
  const wideOfBf16 = Uint32Array.from(new Uint16Array(narrow.buffer), (bits) => bits << 16);
  // Powers of two and a half times them are f16 as well.
  const wideOfF16 = Float32Array.from({ length: elements }, (_, index) => (1 + (index % 4) / 4) * 2 ** -(index % 20));
  wideOfF16.set([0, -0, Infinity, -Infinity, 2 ** -24, -3 * 2 ** -24, 65_504]);
  const parts = [
    ['FP32', trainedLike({ datatype: 'FP32', elements, deviation: 0.02, seed: 1 })],
    ['INT8', new Uint8Array(elements + 3).map((_, index) => index)],
    ['BF16', trainedLike({ datatype: 'BF16', elements, deviation: 0.02, seed: 2 })],
    ['FP16', trainedLike({ datatype: 'FP16', elements, deviation: 0.02, seed: 3 })],
    ['FP32', new Uint8Array(wideOfBf16.buffer)],
    ['FP32', new Uint8Array(wideOfF16.buffer)],
  ] as const;
  const weights: PackedWeight[] = [];
  let at = 0;
  for (const [datatype, bytes] of parts) {
    weights.push({ datatype, byteOffset: at, bytes: bytes.byteLength });
    at = Math.ceil((at + bytes.byteLength) / 256) * 256;
  }
  const pack = new Uint8Array(at);
  for (const [index, [, bytes]] of parts.entries()) pack.set(bytes, weights[index]!.byteOffset);
  return { pack, weights };
}

test.skipIf(emulatorMissing)(
  'the kernel decodes every form bit for bit, whatever remains of the last unit',
  async () => {
    await withCuda((cuda) =>
      Bench.with(cuda, async (bench) => {
        for (const elements of [3000, 8192, 8192 + 4, 20_001]) {
          const { pack, weights } = mixedPack(elements);
          const coded = encodePack(pack, weights)!;
          const { bytes, failed } = await bench.decode(coded);
          expect(failed).toBe(false);
          expect(bytes.equals(pack)).toBe(true);
          expect(bytes.equals(decodePack(coded))).toBe(true);
        }
      }),
    );
  },
);

test.skipIf(emulatorMissing)(
  'the kernel finds flipped bits, writes nothing beside the layer, and stays alive',
  async () => {
    await withCuda((cuda) =>
      Bench.with(cuda, async (bench) => {
        const { pack, weights } = mixedPack(3000);
        const coded = encodePack(pack, weights)!;
        const missed: number[] = [];
        // Every bit of the header and the first unit; then some that share no period with words of the form.
        for (let bit = 0; bit < 8 * coded.byteLength; bit += bit < 8 * 64 ? 1 : 4001) {
          const flipped = coded.slice();
          flipped[bit >> 3]! ^= 1 << (bit & 7);
          if (!(await bench.decode(coded, flipped)).failed) missed.push(bit);
        }
        expect(missed).toEqual([]);
        expect((await bench.decode(coded)).bytes.equals(pack)).toBe(true);
      }),
    );
  },
);

function codedOf(seed: number): Uint8Array {
  const pack = trainedLike({ datatype: 'FP32', elements: 4096, deviation: 0.02, seed });
  return encodePack(pack, [{ datatype: 'FP32', byteOffset: 0, bytes: pack.byteLength }])!;
}

test.skipIf(emulatorMissing)(
  'the kernel refuses the bytes of another pack, though their checks are right',
  async () => {
    await withCuda((cuda) =>
      Bench.with(cuda, async (bench) => {
        const [one, other] = [codedOf(1), codedOf(2)];
        const given = new Uint8Array(one.byteLength);
        given.set(other.subarray(0, given.byteLength));
        expect((await bench.decode(one, given)).failed).toBe(true);
      }),
    );
  },
);
