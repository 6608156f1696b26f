/**
 * Decodes a coded pack, as the kernel does (src/gpu/kernels/decode.cu): the reference for it, and the proof of each
 * pack that is coded.
 */
import { Check, checkOf, unitCheck } from './check.ts';
import { joined } from './elements.ts';
import { aligned, words32 } from './encode.ts';
import {
  CodingError,
  elementBytes,
  forms,
  groupElements,
  header,
  headerBytes,
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

/** What a launch has to know of a coded pack beside its bytes. */
export interface CodedPack {
  readonly units: number;
  /** Bytes of the pack. */
  readonly bytes: number;
  /** Of everything but the units' own words, which have checks there. */
  readonly check: number;
}

/** Bytes of the directory, by the header alone: it stands in front of all units. @throws CodingError */
export function directoryBytes(coded: Uint8Array): number {
  const words = coded.byteLength >= headerBytes ? words32(aligned(coded), 0, headerWords) : [];
  if (words[header.magic] !== magic) throw new CodingError(`${coded.byteLength} bytes are no coded pack`);
  return 4 * (headerWords + words[header.units]! * unitWords + words[header.tables]! * tableWords);
}

/**
 * @param coded at least the directory @param codedBytes of the whole pack, with what may follow it
 * @throws CodingError for what is no coded pack, or has a directory that was changed
 */
export function describeCoded(coded: Uint8Array, codedBytes = coded.byteLength): CodedPack {
  const bytes = directoryBytes(coded);
  if (bytes > coded.byteLength) throw new CodingError(`the pack's directory of ${bytes} bytes does not fit`);
  const directory = words32(aligned(coded), 0, bytes / 4).slice();
  const check = directory[header.check]!;
  directory[header.check] = 0;
  if (checkOf(directory) !== check) throw new CodingError('the check of the directory is wrong');
  if (4 * directory[header.words]! > codedBytes)
    throw new CodingError(`${codedBytes} bytes are not all of the coded pack`);
  return { units: directory[header.units]!, bytes: directory[header.bytes]!, check };
}

/** The bytes that were coded. @throws CodingError if any bit is not as it was written */
export function decodePack(coded: Uint8Array): Uint8Array<ArrayBuffer> {
  const { units, bytes } = describeCoded(coded);
  const given = aligned(coded);
  const words = words32(given, 0, Math.floor(given.byteLength / 4));
  const out = new Uint8Array(bytes);
  for (let index = 0; index < units; index++) {
    const unit = unitAt(words, index);
    checkBounds(unit, index, words, bytes);
    const found = unit.form === forms.raw ? copyRaw(unit, words, out) : decodeUnit(unit, words, out, units);
    if (found !== unit.check) throw new CodingError(`the check of unit ${index} is wrong`);
  }
  return out;
}

function unitAt(words: Uint32Array, index: number): Unit {
  const at = headerWords + index * unitWords;
  const [kind, count, byteOffset, firstWord, halfWords, check] = words.subarray(at, at + unitWords);
  return {
    form: (kind! & 255) as Form,
    table: kind! >>> 8,
    count: count!,
    byteOffset: byteOffset!,
    firstWord: firstWord!,
    halfWords: halfWords!,
    check: check!,
  };
}

/** Whatever a directory says, nothing outside of the pack is read or written. */
function checkBounds(unit: Unit, index: number, words: Uint32Array, bytes: number): void {
  const { form, table, count, byteOffset, firstWord, halfWords } = unit;
  const isRaw = form === forms.raw;
  const outBytes = isRaw ? count : count * elementBytes(form);
  const heldWords = isRaw ? Math.ceil(count / 4) : planeWords(form, count / groupElements) + Math.ceil(halfWords / 2);
  const isWhole =
    form <= forms.f16In32 &&
    table < Math.max(1, words[header.tables]!) &&
    count <= (isRaw ? rawUnitBytes : unitElements) &&
    byteOffset % (isRaw ? 4 : 16) === 0 &&
    (isRaw || count % groupElements === 0) &&
    byteOffset + outBytes <= bytes &&
    firstWord + heldWords <= words.length;
  if (!isWhole) throw new CodingError(`unit ${index} lies outside of its pack`);
}

/** Returns the check of what was read. */
function copyRaw({ count, byteOffset, firstWord }: Unit, words: Uint32Array, out: Uint8Array): number {
  const held = words.subarray(firstWord, firstWord + Math.ceil(count / 4));
  out.set(new Uint8Array(held.buffer, held.byteOffset, count), byteOffset);
  return unitCheck(new Check(held), new Check());
}

/** Returns the check of what was read. */
function decodeUnit(unit: Unit, words: Uint32Array, out: Uint8Array, units: number): number {
  const { form, count, firstWord, halfWords } = unit;
  const groups = count / groupElements;
  const [planes, codes] = [new Check(), new Check()];
  const held = words.subarray(firstWord, firstWord + planeWords(form, groups));
  const codesAt = words.byteOffset + 4 * (firstWord + held.length);
  const halves = new Uint16Array(words.buffer, codesAt, Math.ceil(halfWords / 2) * 2);
  const tableAt = words.byteOffset + 4 * (headerWords + units * unitWords + unit.table * tableWords);
  const table = new Uint16Array(words.buffer, tableAt, tableEntries);
  const at = out.byteOffset + unit.byteOffset;
  const values =
    elementBytes(form) === 4 ? new Uint32Array(out.buffer, at, count) : new Uint16Array(out.buffer, at, count);
  const bits = new Uint32Array(lanes);
  const available = new Int32Array(lanes);
  const entries = new Uint16Array(lanes * groupElements);
  let cursor = 0;
  for (let first = 0; first < groups; first += lanes) {
    const last = Math.min(lanes, groups - first);
    for (let pair = 0; pair < groupElements; pair += 2) {
      for (let lane = 0; lane < last; lane++) {
        if (available[lane]! >= 16) continue;
        const word = halves[Math.min(cursor++, halves.length - 1)]!;
        codes.add(lane, word);
        bits[lane]! |= word << available[lane]!;
        available[lane]! += 16;
      }
      for (let lane = 0; lane < last; lane++) {
        for (let place = pair; place < pair + 2; place++) {
          const entry = table[bits[lane]! & 255]!;
          entries[lane * groupElements + place] = entry;
          bits[lane]! >>>= entry >>> 8;
          available[lane]! -= entry >>> 8;
        }
      }
    }
    checkPlanes(form, held, groups, first, planes);
    for (let lane = 0; lane < last; lane++) {
      for (let place = 0; place < groupElements; place++) {
        const group = first + lane;
        const exponent = entries[lane * groupElements + place]! & 255;
        values[group * groupElements + place] = joined(form, exponent, restOf(form, held, groups, group, place));
      }
    }
  }
  if (halfWords % 2 === 1) codes.add(0, halves[halfWords]!);
  // A wrong code may have left words out, or have taken too many.
  return cursor === halfWords ? unitCheck(planes, codes) : ~unit.check;
}

/** The words of a step of 32 groups, as lanes read them. */
function checkPlanes(form: Form, held: Uint32Array, groups: number, first: number, check: Check): void {
  const last = Math.min(lanes, groups - first);
  for (let lane = 0; lane < last; lane++) {
    check.add(lane, held[first + lane]!);
    if (form !== forms.f32) continue;
    check.add(lane, held[groups + first + lane]!);
    check.add(lane, held[2 * groups + first + lane]!);
  }
  if (!isF16(form)) return;
  const at = groups + 12 * (first / lanes);
  for (let lane = 0; lane < 12 && at + lane < held.length; lane++) check.add(lane, held[at + lane]!);
}

/** The bits of an element that are not coded. */
function restOf(form: Form, held: Uint32Array, groups: number, group: number, place: number): number {
  const low = held[group]!;
  if (form === forms.f32) {
    const [middle, high] = [held[groups + group]!, held[2 * groups + group]!];
    if (place === 0) return low & 0xffffff;
    if (place === 1) return (low >>> 24) | ((middle & 0xffff) << 8);
    if (place === 2) return (middle >>> 16) | ((high & 0xff) << 16);
    return high >>> 8;
  }
  const eight = (low >>> (8 * place)) & 255;
  if (!isF16(form)) return eight;
  const bit = 12 * group;
  const word = groups + (bit >>> 5);
  // A group's 12 bits may lie in two words.
  const twelve = (held[word]! >>> (bit & 31)) | ((bit & 31) > 20 ? held[word + 1]! << (32 - (bit & 31)) : 0);
  return eight | (((twelve >>> (3 * place)) & 7) << 8);
}
