import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodePack, describeCoded } from './decode.ts';
import { encodePack, entropyBits, type PackedWeight } from './encode.ts';
import { isExactlyF16, joined, split } from './elements.ts';
import { CodingError, forms, unitElements, type Form } from './form.ts';
import { fp16ToNumber } from '../tensor/index.ts';
import { codesOf } from './huffman.ts';
import { trainedLike } from '../../test/support/trained-like.ts';

const floatTypes = ['FP32', 'BF16', 'FP16'] as const;
const isRefused = (coded: Uint8Array): boolean => {
  try {
    decodePack(coded);
    return false;
  } catch (error) {
    if (error instanceof CodingError) return true;
    throw error;
  }
};

const whole = (datatype: string, bytes: number): PackedWeight[] => [{ datatype, byteOffset: 0, bytes }];

/** The float nearest to zero, subnormal and infinite numbers, and NaNs with bits of their own. */
const oddBits = [0, 1, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001, 0x00400000, 0x33800000, 0x477fe000];

describe('a coded pack', () => {
  test.each(floatTypes)(
    '%s weights drawn from a normal distribution come back bit for bit, and are smaller',
    (datatype) => {
      for (const elements of [unitElements, 3 * unitElements + 130, 70_000]) {
        const pack = trainedLike({ datatype, elements, deviation: 0.02, seed: elements });
        const coded = encodePack(pack, whole(datatype, pack.byteLength))!;
        expect(Buffer.compare(decodePack(coded), pack)).toBe(0);
        expect(coded.byteLength).toBeLessThan({ FP32: 0.87, BF16: 0.71, FP16: 0.92 }[datatype] * pack.byteLength);
        expect(describeCoded(coded).bytes).toBe(pack.byteLength);
      }
    },
  );

  test.each([
    ['BF16', 0.36],
    ['FP16', 0.45],
  ] as const)('FP32 weights that were made from %s take as much as those', (datatype, share) => {
    const elements = 70_001;
    const narrow = trainedLike({ datatype, elements, deviation: 0.02, seed: 5 });
    const wide = new Uint32Array(elements);
    const values = new Uint16Array(narrow.buffer, narrow.byteOffset, elements);
    const form = datatype === 'BF16' ? forms.bf16 : forms.f16;
    const parts = { exponents: new Uint8Array(elements), rests: new Uint32Array(elements) };
    split(form, values, parts);
    const wideForm = datatype === 'BF16' ? forms.bf16In32 : forms.f16In32;
    for (let i = 0; i < elements; i++) wide[i] = joined(wideForm, parts.exponents[i]!, parts.rests[i]!);
    const pack = new Uint8Array(wide.buffer);
    const coded = encodePack(pack, whole('FP32', pack.byteLength))!;
    expect(Buffer.compare(decodePack(coded), pack)).toBe(0);
    expect(coded.byteLength / pack.byteLength).toBeLessThan(share);
  });

  test('any bytes come back, whatever their weights are', () => {
    const weight = fc.record({
      datatype: fc.constantFrom(...floatTypes, 'INT8'),
      skipped: fc.integer({ min: 0, max: 40 }),
      bytes: fc.integer({ min: 0, max: 3000 }),
      spread: fc.integer({ min: 0, max: 12 }),
    });
    fc.assert(
      fc.property(
        fc.array(weight, { maxLength: 5 }),
        fc.integer(),
        fc.integer({ min: 0, max: 9 }),
        (given, seed, tail) => {
          const weights: PackedWeight[] = [];
          let at = 0;
          for (const { datatype, skipped, bytes } of given) {
            at += skipped;
            weights.push({ datatype, byteOffset: at, bytes });
            at += bytes;
          }
          const pack = new Uint8Array(at + tail);
          let state = seed >>> 0;
          for (let index = 0; index < pack.length; index++) {
            state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
            // Few values, so that some is gained.
            pack[index] = (state >>> 24) & ((1 << (given[0]?.spread ?? 0)) - 1);
          }
          const coded = encodePack(pack, weights);
          if (coded === undefined) return;
          expect(Buffer.compare(decodePack(coded), pack)).toBe(0);
          expect(coded.byteLength).toBeLessThanOrEqual(0.95 * pack.byteLength);
        },
      ),
    );
  });

  test('odd floats come back with their bits: zeros of both signs, subnormal and infinite numbers, NaNs', () => {
    for (const datatype of ['FP32', 'BF16', 'FP16'] as const) {
      const pack = trainedLike({ datatype, elements: unitElements, deviation: 0.02, seed: 9 });
      const values = new Uint32Array(pack.buffer, pack.byteOffset, pack.byteLength / 4);
      for (const [index, bits] of oddBits.entries()) values[index * 97] = bits;
      expect(Buffer.compare(decodePack(encodePack(pack, whole(datatype, pack.byteLength))!), pack)).toBe(0);
    }
  });

  test('what gains less than 5% stays as it is', () => {
    const random = new Uint8Array(100_000).map((_, index) => Math.imul(index + 1, 0x9e3779b1) >>> 24);
    expect(encodePack(random, whole('FP32', random.byteLength))).toBeUndefined();
    expect(encodePack(random, whole('INT8', random.byteLength))).toBeUndefined();
    expect(encodePack(new Uint8Array(0), [])).toBeUndefined();
  });

  test.each([
    // Every bit of the directory, and of what follows some that share no period with words of the form.
    ['FP32', 1600, 11],
    ['BF16', 4000, 29],
    ['FP16', 9000, 89],
  ] as const)('each flipped bit of %s weights is found', (datatype, elements, step) => {
    const floats = trainedLike({ datatype, elements, deviation: 0.02, seed: 3 });
    // Bytes that are not coded stand behind them.
    const pack = new Uint8Array(floats.byteLength + 37).fill(99);
    pack.set(floats);
    const coded = encodePack(pack, whole(datatype, floats.byteLength))!;
    const missed: number[] = [];
    for (let bit = 0; bit < 8 * coded.byteLength; bit += bit < 5000 ? 1 : step) {
      coded[bit >> 3]! ^= 1 << (bit & 7);
      if (!isRefused(coded)) missed.push(bit);
      coded[bit >> 3]! ^= 1 << (bit & 7);
    }
    expect(missed).toEqual([]);
    expect(Buffer.compare(decodePack(coded), pack)).toBe(0);
  });

  test('a pack that is cut off, and bytes that are none, are refused by their size', () => {
    const pack = trainedLike({ datatype: 'FP32', elements: 1600, deviation: 0.02, seed: 3 });
    const coded = encodePack(pack, whole('FP32', pack.byteLength))!;
    expect(() => decodePack(coded.subarray(0, coded.length - 4))).toThrow(
      `${coded.length - 4} bytes are not all of the coded pack`,
    );
    expect(() => describeCoded(new Uint8Array(7))).toThrow('7 bytes are no coded pack');
  });
});

test('a weight that ends past its pack is refused', () => {
  expect(() => encodePack(new Uint8Array(16), whole('FP32', 32))).toThrow('ends past its pack of 16 bytes');
});

test('codes have at most eight bits, and take little more than any code could', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(100_000), { minLength: 256, maxLength: 256 }), (counts) => {
      const { lengths, table } = codesOf(counts);
      const bits = counts.reduce((sum, count, symbol) => sum + count * lengths[symbol]!, 0);
      expect(Math.max(...lengths)).toBeLessThanOrEqual(8);
      // A code of eight bits for each would do.
      expect(bits).toBeLessThanOrEqual(8 * counts.reduce((sum, count) => sum + count, 0));
      const found = new Uint32Array(256);
      for (const entry of table) found[entry & 255]! += Number(entry >> 8 === lengths[entry & 255]);
      expect([...found]).toEqual([...lengths].map((length) => (length === 0 ? 0 : 2 ** (8 - length))));
    }),
  );
  const geometric = Array.from({ length: 256 }, (_, symbol) => Math.floor(2 ** (20 - 2 * Math.abs(symbol - 120))));
  const { lengths } = codesOf(geometric);
  const bits = geometric.reduce((sum, count, symbol) => sum + count * lengths[symbol]!, 0);
  expect(bits).toBeLessThan(1.1 * entropyBits(geometric));
});

test('an element is its exponent and its rest, in each form', () => {
  const parts = { exponents: new Uint8Array(1), rests: new Uint32Array(1) };
  const changed: string[] = [];
  const check = (form: Form, values: Uint32Array | Uint16Array): void => {
    split(form, values, parts);
    if (joined(form, parts.exponents[0]!, parts.rests[0]!) !== values[0]) changed.push(`${values[0]} as ${form}`);
  };
  for (let bits = 0; bits < 65_536; bits++) {
    check(forms.bf16, Uint16Array.of(bits));
    check(forms.f16, Uint16Array.of(bits));
    check(forms.bf16In32, Uint32Array.of(bits << 16));
    // Each f16 that is no NaN, as a float of 32 bits.
    split(forms.f16, Uint16Array.of(bits), parts);
    if (parts.exponents[0] === 31 && parts.rests[0]! >> 1 > 0) continue;
    const wide = joined(forms.f16In32, parts.exponents[0]!, parts.rests[0]!);
    if (!isExactlyF16(wide) || Math.fround(fp16ToNumber(bits)) !== numberOf(wide)) changed.push(`f16 ${bits}`);
    check(forms.f16In32, Uint32Array.of(wide));
  }
  for (const bits of oddBits) check(forms.f32, Uint32Array.of(bits));
  expect(changed).toEqual([]);
  expect([0x3f800001, 0x7fc00000, 0x47800000, 0x33000000].map(isExactlyF16)).toEqual([false, false, false, false]);
});

const numberOf = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0]!;
