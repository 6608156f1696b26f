/** Codes a pack: the exponents of its floats by Huffman codes, everything else as it is. */
import { Check, checkOf, unitCheck } from './check.ts';
import { leastGain } from './choice.ts';
import { isExactlyF16, split } from './elements.ts';
import {
  elementBytes,
  forms,
  groupElements,
  header,
  headerWords,
  isF16,
  lanes,
  magic,
  planeWords,
  rawUnitBytes,
  tableEntries,
  tableWords,
  unitElements,
  unitWords,
  type Form,
  type Unit,
} from './form.ts';
import { codesOf, type Codes } from './huffman.ts';

/** A weight in a pack. */
export interface PackedWeight {
  /** Open Inference names: 'FP32', 'BF16', 'FP16'; all others stay as they are. */
  readonly datatype: string;
  readonly byteOffset: number;
  readonly bytes: number;
}

/** Bytes of the pack that are coded alike. */
interface Part {
  readonly form: Form;
  readonly byteOffset: number;
  /** Elements, a multiple of {@link groupElements}; of a raw part, bytes. */
  readonly count: number;
}

/** A part with as many elements has a table of its own; the others of a form share one. */
const ownTableElements = 65_536;
/** Offsets are numbers of 32 bits. */
const packBytesMax = 2 ** 32 - 1;

/** The pack's bytes, coded. Undefined where that would gain less than 5% of them. */
export function encodePack(pack: Uint8Array, weights: readonly PackedWeight[]): Uint8Array<ArrayBuffer> | undefined {
  if (pack.byteLength > packBytesMax) return undefined;
  const bytes = aligned(pack);
  const parts = partsOf(bytes, weights);
  if (parts.every(({ form }) => form === forms.raw)) return undefined;
  const coded = new Encoder(bytes, parts).encode();
  return coded.byteLength > (1 - leastGain) * pack.byteLength ? undefined : coded;
}

/** The same bytes where numbers of 32 bits can be read. */
export function aligned(bytes: Uint8Array): Uint8Array {
  return bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
}

export const words32 = ({ buffer, byteOffset }: Uint8Array, from: number, length: number): Uint32Array =>
  new Uint32Array(buffer, byteOffset + from, length);

function valuesOf(pack: Uint8Array, { form, byteOffset }: Part, first: number, count: number) {
  const at = pack.byteOffset + byteOffset + first * elementBytes(form);
  return elementBytes(form) === 4 ? new Uint32Array(pack.buffer, at, count) : new Uint16Array(pack.buffer, at, count);
}

/** Cuts a pack into floats that gain by coding, and everything else. */
function partsOf(pack: Uint8Array, weights: readonly PackedWeight[]): Part[] {
  const parts: Part[] = [];
  let at = 0;
  const raw = (end: number): void => {
    if (end > at) parts.push({ form: forms.raw, byteOffset: at, count: end - at });
    at = Math.max(at, end);
  };
  const inOrder = weights.toSorted((a, b) => a.byteOffset - b.byteOffset);
  for (const weight of inOrder) {
    const part = codedPart(pack, weight);
    if (part === undefined || weight.byteOffset < at) continue;
    raw(part.byteOffset);
    parts.push(part);
    at += part.count * elementBytes(part.form);
  }
  raw(pack.byteLength);
  return parts;
}

function codedPart(pack: Uint8Array, { datatype, byteOffset, bytes }: PackedWeight): Part | undefined {
  if (byteOffset + bytes > pack.byteLength)
    throw new RangeError(`a weight ends past its pack of ${pack.byteLength} bytes`);
  // A lane writes a group by one instruction.
  if (byteOffset % 16 !== 0) return undefined;
  const wide =
    datatype === 'FP32' ? forms.f32 : datatype === 'BF16' ? forms.bf16 : datatype === 'FP16' ? forms.f16 : undefined;
  if (wide === undefined) return undefined;
  const count = Math.floor(bytes / elementBytes(wide) / groupElements) * groupElements;
  if (count === 0) return undefined;
  const values = valuesOf(pack, { form: wide, byteOffset, count }, 0, count);
  const form = wide === forms.f32 ? narrowest(values) : wide;
  const part = { form, byteOffset, count };
  const restBits = 32 * planeWords(form, count / groupElements);
  const codedBits = restBits + entropyBits(countsOf(pack, part));
  return codedBits > (1 - leastGain) * 8 * count * elementBytes(form) ? undefined : part;
}

/** Floats of 32 bits that were made from 16 are coded as those. */
function narrowest(values: ArrayLike<number>): Form {
  let [isBf16, isHalf] = [true, true];
  for (let index = 0; index < values.length && (isBf16 || isHalf); index++) {
    const value = values[index]!;
    isBf16 &&= (value & 0xffff) === 0;
    isHalf &&= isExactlyF16(value);
  }
  return isBf16 ? forms.bf16In32 : isHalf ? forms.f16In32 : forms.f32;
}

function countsOf(pack: Uint8Array, part: Part): Float64Array {
  const counts = new Float64Array(tableEntries);
  const parts = { exponents: new Uint8Array(unitElements), rests: new Uint32Array(unitElements) };
  for (let first = 0; first < part.count; first += unitElements) {
    const count = Math.min(unitElements, part.count - first);
    split(part.form, valuesOf(pack, part, first, count), parts);
    for (let index = 0; index < count; index++) counts[parts.exponents[index]!]!++;
  }
  return counts;
}

/** The least bits of any code for symbols that occur so often. */
export function entropyBits(counts: ArrayLike<number>): number {
  let [total, bits] = [0, 0];
  for (let symbol = 0; symbol < counts.length; symbol++) total += counts[symbol]!;
  for (let symbol = 0; symbol < counts.length; symbol++)
    if (counts[symbol]! > 0) bits -= counts[symbol]! * Math.log2(counts[symbol]! / total);
  return bits;
}

class Encoder {
  readonly #pack: Uint8Array;
  readonly #parts: readonly Part[];
  readonly #units: Unit[] = [];
  /** By part. */
  readonly #tables: number[] = [];
  readonly #codes: Codes[] = [];
  #out: Uint32Array<ArrayBuffer>;
  #at = 0;
  // Of the unit being coded.
  readonly #split = { exponents: new Uint8Array(unitElements), rests: new Uint32Array(unitElements) };
  /** By lane: its codes as words of 16 bits. */
  readonly #laneWords = Array.from({ length: lanes }, () => new Uint16Array(unitElements / lanes));
  readonly #available = new Int32Array(lanes);
  readonly #taken = new Int32Array(lanes);

  constructor(pack: Uint8Array, parts: readonly Part[]) {
    this.#pack = pack;
    this.#parts = parts;
    const units = parts.reduce((sum, { form, count }) => sum + Math.ceil(count / unitSize(form)), 0);
    const tables = this.#makeTables();
    this.#at = headerWords + units * unitWords + tables * tableWords;
    // An f16 has 11 bits beside its code of 8 bits at most; and lanes take words ahead.
    this.#out = new Uint32Array(this.#at + Math.ceil((19 / 16) * (pack.byteLength / 4)) + 64 * units);
  }

  encode(): Uint8Array<ArrayBuffer> {
    for (const [index, part] of this.#parts.entries()) {
      const size = unitSize(part.form);
      for (let first = 0; first < part.count; first += size) {
        const count = Math.min(size, part.count - first);
        this.#units.push(part.form === forms.raw ? this.#raw(part, first, count) : this.#coded(index, first, count));
      }
    }
    this.#writeDirectory();
    return new Uint8Array(this.#out.buffer).slice(0, 4 * this.#at);
  }

  #makeTables(): number {
    const counts: Float64Array[] = [];
    const shared = new Map<Form, number>();
    for (const part of this.#parts) {
      if (part.form === forms.raw) {
        this.#tables.push(0);
        continue;
      }
      const own = countsOf(this.#pack, part);
      let table = part.count >= ownTableElements ? undefined : shared.get(part.form);
      if (table === undefined) {
        table = counts.push(own) - 1;
        if (part.count < ownTableElements) shared.set(part.form, table);
      } else {
        for (const [symbol, count] of own.entries()) counts[table]![symbol]! += count;
      }
      this.#tables.push(table);
    }
    for (const each of counts) this.#codes.push(codesOf(each));
    return counts.length;
  }

  #raw({ form, byteOffset }: Part, first: number, count: number): Unit {
    const firstWord = this.#at;
    const whole = Math.floor(count / 4);
    const from = byteOffset + first;
    this.#out.set(words32(this.#pack, from, whole), firstWord);
    this.#at += whole;
    if (count % 4 > 0) {
      const rest = new Uint8Array(4);
      rest.set(this.#pack.subarray(from + 4 * whole, from + count));
      this.#out[this.#at++] = words32(rest, 0, 1)[0]!;
    }
    const check = unitCheck(new Check(this.#out.subarray(firstWord, this.#at)), new Check());
    return { form, table: 0, count, byteOffset: from, firstWord, halfWords: 0, check };
  }

  #coded(partIndex: number, first: number, count: number): Unit {
    const part = this.#parts[partIndex]!;
    const { form } = part;
    const table = this.#tables[partIndex]!;
    split(form, valuesOf(this.#pack, part, first, count), this.#split);
    const firstWord = this.#at;
    const [planes, codes] = [new Check(), new Check()];
    this.#writePlanes(form, count / groupElements, planes);
    const halfWords = this.#writeCodes(this.#codes[table]!, count / groupElements, codes);
    const byteOffset = part.byteOffset + first * elementBytes(form);
    return { form, table, count, byteOffset, firstWord, halfWords, check: unitCheck(planes, codes) };
  }

  #writePlanes(form: Form, groups: number, check: Check): void {
    const { rests } = this.#split;
    const out = this.#out;
    const at = this.#at;
    this.#at += planeWords(form, groups);
    const upper = at + groups;
    for (let group = 0; group < groups; group++) {
      const lane = group % lanes;
      const element = group * groupElements;
      const [a, b, c, d] = [rests[element]!, rests[element + 1]!, rests[element + 2]!, rests[element + 3]!];
      if (form === forms.f32) {
        out[at + group] = a | (b << 24);
        out[at + groups + group] = (b >>> 8) | (c << 16);
        out[at + 2 * groups + group] = (c >>> 16) | (d << 8);
        for (let plane = 0; plane < 3; plane++) check.add(lane, out[at + plane * groups + group]!);
        continue;
      }
      out[at + group] = (a & 255) | ((b & 255) << 8) | ((c & 255) << 16) | ((d & 255) << 24);
      if (isF16(form)) {
        const three = (a >>> 8) | ((b >>> 8) << 3) | ((c >>> 8) << 6) | ((d >>> 8) << 9);
        const bit = 12 * group;
        out[upper + (bit >>> 5)]! |= three << (bit & 31);
        if ((bit & 31) > 20) out[upper + (bit >>> 5) + 1]! |= three >>> (32 - (bit & 31));
      }
    }
    if (form === forms.f32) return;
    // As a warp reads them: a step of 32 groups has 12 words of the second plane.
    const last = at + planeWords(form, groups);
    for (let step = 0; step * lanes < groups; step++) {
      for (let lane = 0; lane < lanes && step * lanes + lane < groups; lane++)
        check.add(lane, out[at + step * lanes + lane]!);
      if (!isF16(form)) continue;
      for (let lane = 0; lane < 12 && upper + 12 * step + lane < last; lane++)
        check.add(lane, out[upper + 12 * step + lane]!);
    }
  }

  /** Returns the words of 16 bits. */
  #writeCodes({ bits, lengths }: Codes, groups: number, check: Check): number {
    const { exponents } = this.#split;
    const laneWords = this.#laneWords;
    for (let lane = 0; lane < lanes; lane++) {
      const words = laneWords[lane]!;
      let [held, heldBits, written] = [0, 0, 0];
      for (let group = lane; group < groups; group += lanes) {
        for (let element = group * groupElements; element < (group + 1) * groupElements; element++) {
          const symbol = exponents[element]!;
          held |= bits[symbol]! << heldBits;
          heldBits += lengths[symbol]!;
          if (heldBits < 16) continue;
          words[written++] = held;
          held >>>= 16;
          heldBits -= 16;
        }
      }
      words[written++] = held;
      // A lane takes a word ahead of what it needs.
      if (written < words.length) words[written] = 0;
    }
    const available = this.#available.fill(0);
    const taken = this.#taken.fill(0);
    const halves = new Uint16Array(this.#out.buffer, 4 * this.#at);
    let halfWords = 0;
    for (let step = 0; step * lanes < groups; step++) {
      const last = Math.min(lanes, groups - step * lanes);
      for (let pair = 0; pair < groupElements; pair += 2) {
        for (let lane = 0; lane < last; lane++) {
          if (available[lane]! >= 16) continue;
          const word = laneWords[lane]![taken[lane]!++]!;
          halves[halfWords++] = word;
          check.add(lane, word);
          available[lane]! += 16;
        }
        for (let lane = 0; lane < last; lane++) {
          const element = (step * lanes + lane) * groupElements + pair;
          available[lane]! -= lengths[exponents[element]!]! + lengths[exponents[element + 1]!]!;
        }
      }
    }
    // Of a last word that is half full, the other half is checked as well.
    if (halfWords % 2 === 1) check.add(0, 0);
    this.#at += Math.ceil(halfWords / 2);
    return halfWords;
  }

  #writeDirectory(): void {
    const out = this.#out;
    out[header.magic] = magic;
    out[header.units] = this.#units.length;
    out[header.tables] = this.#codes.length;
    out[header.bytes] = this.#pack.byteLength;
    out[header.words] = this.#at;
    for (const [index, unit] of this.#units.entries()) {
      const at = headerWords + index * unitWords;
      const { form, table, count, byteOffset, firstWord, halfWords, check } = unit;
      out.set([form | (table << 8), count, byteOffset, firstWord, halfWords, check], at);
      out[at + unitWords - 1] = checkOf(out.subarray(at, at + unitWords - 1));
    }
    const tablesAt = headerWords + this.#units.length * unitWords;
    for (const [index, { table }] of this.#codes.entries())
      new Uint16Array(out.buffer, 4 * (tablesAt + index * tableWords), tableEntries).set(table);
    out[header.check] = checkOf(out.subarray(0, tablesAt + this.#codes.length * tableWords));
  }
}

const unitSize = (form: Form): number => (form === forms.raw ? rawUnitBytes : unitElements);
