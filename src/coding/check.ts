/**
 * The check of coded words: for each lane, a polynomial of its words in an odd number, modulo 2^32; the lanes' values
 * are added, each times an odd number. So one word that differs, by whichever bits, always changes the result; several
 * do so but for one case in 2^32. A GPU needs one multiplication a word.
 */
import { lanes } from './form.ts';

export const checkStart = 0x811c9dc5;
export const checkFactor = 0x9e3779b1;
const laneFactor = 0x85ebca77;

/** Of a unit's codes: another value than that of the same words among what is not coded. */
const codesFactor = 0xc2b2ae3d;

export class Check {
  /** In signed numbers, which are faster in JavaScript. */
  readonly #lanes = new Int32Array(lanes).fill(checkStart);

  /** @param words that lanes read in turn */
  constructor(words: ArrayLike<number> = []) {
    for (let index = 0; index < words.length; index++) this.add(index % lanes, words[index]!);
  }

  add(lane: number, word: number): void {
    this.#lanes[lane] = (Math.imul(this.#lanes[lane]!, checkFactor) + word) | 0;
  }

  get value(): number {
    let sum = 0;
    // The factors are odd: an odd number times an odd number.
    for (let lane = 0; lane < lanes; lane++)
      sum = (sum + Math.imul(this.#lanes[lane]!, Math.imul(2 * lane + 1, laneFactor))) >>> 0;
    return sum;
  }
}

export const checkOf = (words: ArrayLike<number>): number => new Check(words).value;

/** The check of a unit: of what is not coded, and of its codes. */
export const unitCheck = (planes: Check, codes: Check): number =>
  (planes.value + Math.imul(codes.value, codesFactor)) >>> 0;
