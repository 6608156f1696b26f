/** Drawn digits that training never sees: the seed is another, and with it every random change of every stroke. */
import { SeededRandom } from '../_training/random.ts';
import { drawDigit } from './draw.ts';
import { inputSize, type GreyImage } from './image.ts';

const heldOutSeed = 1_000_003;

/** `perDigit` images of each digit, {@link inputSize} pixels wide and high. */
export function* heldOutDigits(perDigit: number): Generator<{ readonly digit: number; readonly image: GreyImage }> {
  const random = new SeededRandom(heldOutSeed);
  for (let round = 0; round < perDigit; round++) {
    for (let digit = 0; digit < 10; digit++) yield { digit, image: drawDigit(digit, random, inputSize) };
  }
}

/** The image as a raw PGM file with 256 greys. */
export function pgmOf({ width, height, pixels }: GreyImage): Uint8Array {
  const grey = Uint8Array.from(pixels, (pixel) => Math.round(pixel * 255));
  return Buffer.concat([Buffer.from(`P5\n${width} ${height}\n255\n`, 'latin1'), grey]);
}
