/**
 * The form of a coded pack: 32-bit little-endian words, so that a GPU reads it as it lies.
 *
 * | Words              | Hold                                                                              |
 * | ------------------ | --------------------------------------------------------------------------------- |
 * | {@link headerWords}| the magic word, the units, the tables, the bytes of the pack, the words of the form, the directory's check |
 * | 8 for each unit    | {@link Unit}                                                                      |
 * | 128 for each table | 256 entries of 16 bits: the symbol, and above it the length of its code           |
 * | the rest           | what the units hold, one after the other                                          |
 *
 * A unit of floats holds groups of four elements. First come the groups' bits that are not coded, in planes of one
 * word for each group; then the codes of the exponents, as 16-bit words in the order in which the 32 lanes of a warp
 * ask for them: before each two symbols, every lane that has fewer than 16 bits takes the next word, the lowest lane
 * first. So a lane needs no offset of its own.
 */

/** Elements of a unit: 8 KiB of exponents. A warp decodes it on its own. */
export const unitElements = 8192;
/** Bytes of a unit that is not coded. */
export const rawUnitBytes = 32_768;
export const lanes = 32;
/** Elements that a lane decodes before the next lane's. */
export const groupElements = 4;
export const codeBitsMax = 8;
export const tableEntries = 2 ** codeBitsMax;
export const headerWords = 8;
export const headerBytes = 4 * headerWords;
export const unitWords = 8;
export const tableWords = tableEntries / 2;
/** Places in the header. */
export const header = { magic: 0, units: 1, tables: 2, bytes: 3, words: 4, check: 5 } as const;
export const magic = 0x31435454;

/** How the elements of a unit are coded; the numbers stand in the form, and in the kernel. */
export const forms = {
  raw: 0,
  f32: 1,
  bf16: 2,
  f16: 3,
  /** Floats of 32 bits that are exactly bf16. */
  bf16In32: 4,
  /** Floats of 32 bits that are exactly f16, and no NaN: conversions change NaNs. */
  f16In32: 5,
} as const;
export type Form = (typeof forms)[keyof typeof forms];

export interface Unit {
  readonly form: Form;
  readonly table: number;
  /** Elements, a multiple of {@link groupElements}; of a raw unit, bytes. */
  readonly count: number;
  /** Where its bytes belong in the pack. */
  readonly byteOffset: number;
  /** Where it begins in the form. */
  readonly firstWord: number;
  /** Its codes, without one that fills the last word. */
  readonly halfWords: number;
  /** Of all its words. */
  readonly check: number;
}

/** Bytes of an element in the pack. */
export const elementBytes = (form: Form): number => (form === forms.bf16 || form === forms.f16 ? 2 : 4);

export const isF16 = (form: Form): boolean => form === forms.f16 || form === forms.f16In32;

/** Words of what is not coded of so many groups. */
export function planeWords(form: Form, groups: number): number {
  if (form === forms.f32) return 3 * groups;
  // Of an f16, 8 bits are in the first plane, and 3 in a second one, which has 12 bits for each group.
  return isF16(form) ? groups + Math.ceil((12 * groups) / 32) : groups;
}

/** A pack cannot be decoded: its bytes are not those that were coded. */
export class CodingError extends Error {
  override readonly name = 'CodingError';
}
