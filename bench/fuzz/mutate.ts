/** Damages valid inputs slightly: bytes, and JSON values. Drawn from a seed. */
import type { RandomSource } from '../../src/replay/index.ts';

const inputBytesMax = 64 * 1024;
const numbers = [0, -1, 1, 0.5, 255, 256, 65_535, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 53, -(2 ** 53), 1e308, -1e-300];
const texts = [
  '',
  ' ',
  '\u0000',
  'NaN',
  '../../etc/passwd',
  '__proto__',
  'a'.repeat(300),
  '💥',
  '\ud800',
  '-1',
  '1e999',
  '%00',
];
const bytes = [0, 1, 0x22, 0x2c, 0x3a, 0x5b, 0x5d, 0x7b, 0x7d, 0x7f, 0x80, 0xff];

/** One to four changes to one of these. */
export function mutateBytes(corpus: readonly Buffer[], random: RandomSource): Buffer {
  let input = pick(corpus, random);
  for (let changes = 1 + random.below(4); changes > 0; changes--) input = changeBytes(input, corpus, random);
  return input.subarray(0, inputBytesMax);
}

function changeBytes(input: Buffer, corpus: readonly Buffer[], random: RandomSource): Buffer {
  const at = random.below(input.length + 1);
  const until = Math.min(input.length, at + random.below(32));
  const replaced = (by: Uint8Array): Buffer => Buffer.concat([input.subarray(0, at), by, input.subarray(until)]);
  switch (random.below(8)) {
    case 0:
      return input.subarray(0, at);
    case 1:
      return replaced(Buffer.alloc(0));
    case 2:
      return replaced(Buffer.from([pick(bytes, random)]));
    case 3:
      return replaced(Buffer.from(pick([...texts, ...numbers.map(String)], random)));
    case 4: {
      const other = pick(corpus, random);
      return replaced(other.subarray(random.below(other.length + 1)));
    }
    case 5:
      return replaced(Buffer.concat([input.subarray(at, until), input.subarray(at, until)]));
    case 6: {
      const width = Buffer.alloc(8);
      width.writeBigInt64LE(BigInt(Math.trunc(Math.min(2 ** 53, Math.max(-(2 ** 53), pick(numbers, random))))));
      return overwritten(input, at, width.subarray(0, 1 << random.below(4)));
    }
    default:
      return overwritten(input, at, Buffer.from([(input[at] ?? 0) ^ (1 << random.below(8))]));
  }
}

function overwritten(input: Buffer, at: number, by: Buffer): Buffer {
  const copy = Buffer.from(input);
  by.copy(copy, at);
  return copy;
}

/** Damages mostly the values of JSON, and now and then its text. */
export function mutateText(corpus: readonly Buffer[], random: RandomSource): Buffer {
  if (random.below(4) === 0) return mutateBytes(corpus, random);
  const seed = corpus[random.below(corpus.length)]!;
  let value: unknown;
  try {
    value = JSON.parse(seed.toString());
  } catch {
    return mutateBytes(corpus, random);
  }
  return Buffer.from(JSON.stringify(mutateJson(value, random)) ?? 'null');
}

/** The value with one to three of its parts replaced, removed, duplicated or moved. */
export function mutateJson(value: unknown, random: RandomSource): unknown {
  let mutated = structuredClone(value);
  for (let changes = 1 + random.below(3); changes > 0; changes--) mutated = changeJson(mutated, random);
  return mutated;
}

function changeJson(value: unknown, random: RandomSource): unknown {
  const isTree = typeof value === 'object' && value !== null;
  const keys = isTree ? Object.keys(value) : [];
  if (keys.length === 0 || random.below(6) === 0) return oddValue(random);
  const tree = value as Record<string, unknown>;
  const key = pick(keys, random);
  switch (random.below(6)) {
    case 0:
      if (Array.isArray(value)) value.splice(Number(key), 1);
      else delete tree[key];
      return value;
    case 1:
      if (Array.isArray(value)) value.push(structuredClone(tree[key]));
      else {
        const copy = { value: tree[key], enumerable: true, configurable: true, writable: true };
        // Not by assignment: '__proto__' must be an ordinary name.
        Object.defineProperty(tree, pick(texts, random), copy);
      }
      return value;
    case 2:
      tree[key] = structuredClone(tree[pick(keys, random)]);
      return value;
    default:
      tree[key] = changeJson(tree[key], random);
      return value;
  }
}

function oddValue(random: RandomSource): unknown {
  switch (random.below(7)) {
    case 0:
      return null;
    case 1:
      return pick(numbers, random);
    case 2:
      return pick(texts, random);
    case 3:
      return [];
    case 4:
      return {};
    case 5:
      return random.below(2) === 0;
    default:
      return Array.from({ length: random.below(50) }, () => pick(numbers, random));
  }
}

export function pick<Item>(items: readonly Item[], random: RandomSource): Item {
  const item = items[random.below(items.length)];
  if (item === undefined) throw new RangeError('there is nothing to pick from');
  return item;
}
