/** Huffman codes of at most eight bits for bytes, and the table that decodes one symbol by one look-up. */
import { codeBitsMax, tableEntries } from './form.ts';

interface Package {
  readonly count: number;
  readonly symbols: readonly number[];
}

/** What a symbol is coded as: its bits, to be read from the lowest on. */
export interface Codes {
  /** By symbol; of a symbol that does not occur, 0. */
  readonly bits: Uint8Array;
  readonly lengths: Uint8Array;
  /** By the next eight bits: the symbol, and above it the length of its code. */
  readonly table: Uint16Array;
}

/** The shortest lengths of at most eight bits, by the package-merge algorithm (Larmore and Hirschberg, 1990). */
function lengthsOf(counts: ArrayLike<number>): Uint8Array {
  const lengths = new Uint8Array(tableEntries);
  const byCount = (a: Package, b: Package): number => a.count - b.count;
  const single: Package[] = [];
  for (let symbol = 0; symbol < tableEntries; symbol++)
    if (counts[symbol]! > 0) single.push({ count: counts[symbol]!, symbols: [symbol] });
  // A symbol that is alone needs no bits.
  if (single.length < 2) return lengths;
  single.sort(byCount);
  let packages: Package[] = [];
  for (let level = 0; level < codeBitsMax; level++) {
    const pairs: Package[] = [];
    for (let index = 0; index + 1 < packages.length; index += 2) {
      const [a, b] = [packages[index]!, packages[index + 1]!];
      pairs.push({ count: a.count + b.count, symbols: [...a.symbols, ...b.symbols] });
    }
    packages = [...single, ...pairs].sort(byCount);
  }
  for (const { symbols } of packages.slice(0, 2 * single.length - 2)) for (const symbol of symbols) lengths[symbol]!++;
  return lengths;
}

/** @param counts how often each byte occurs */
export function codesOf(counts: ArrayLike<number>): Codes {
  const lengths = lengthsOf(counts);
  const bits = new Uint8Array(tableEntries);
  const table = new Uint16Array(tableEntries);
  let code = 0;
  for (let length = 1; length <= codeBitsMax; length++, code <<= 1) {
    for (let symbol = 0; symbol < tableEntries; symbol++) {
      if (lengths[symbol] !== length) continue;
      bits[symbol] = reversed(code++, length);
      for (let at = bits[symbol]!; at < tableEntries; at += 1 << length) table[at] = symbol | (length << 8);
    }
  }
  const alone = [...lengths.keys()].find((symbol) => counts[symbol]! > 0);
  if (alone !== undefined && lengths[alone] === 0) table.fill(alone);
  return { bits, lengths, table };
}

function reversed(code: number, length: number): number {
  let result = 0;
  for (let bit = 0; bit < length; bit++) if ((code >> bit) & 1) result |= 1 << (length - 1 - bit);
  return result;
}
