import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeAll, describe, expect, test } from 'vitest';
import { handlerCall, openFunction, type OpenFunction } from '../../functions/_training/call-function.ts';
import * as handler from '../../functions/digit-reader/handler.ts';
import type { DigitAnswer } from '../../functions/digit-reader/handler.ts';
import { heldOutDigits, pgmOf } from '../../functions/digit-reader/held-out.ts';
import { imageOf, inputSize, normalise, type GreyImage } from '../../functions/digit-reader/image.ts';
import { joinBatch, rowsOf } from './batches.ts';

const folder = join(import.meta.dirname, '../../functions/digit-reader');
const example = (digit: number): Buffer => readFileSync(join(folder, 'examples', `${digit}.pgm`));

let digitReader: OpenFunction;
beforeAll(async () => {
  digitReader = await openFunction(folder, handler);
});
const ask = async (body: string | Uint8Array, headers?: Record<string, string>): Promise<DigitAnswer> =>
  (await digitReader.call(body, headers)) as DigitAnswer;

/** The rows of an image as numbers from 0 to `white`. */
function rowsOfImage({ width, height, pixels }: GreyImage, white: number): number[][] {
  return Array.from({ length: height }, (_, y) =>
    Array.from(pixels.subarray(y * width, (y + 1) * width), (pixel) => Math.round(pixel * 255) * (white / 255)),
  );
}

/** The image with another edge length, each pixel repeated. */
function enlarged({ width, height, pixels }: GreyImage, times: number): GreyImage {
  const wide = width * times;
  const large = new Float32Array(wide * height * times);
  for (let index = 0; index < large.length; index++) {
    const y = Math.floor(index / wide / times);
    large[index] = pixels[y * width + Math.floor((index % wide) / times)] ?? 0;
  }
  return { width: wide, height: height * times, pixels: large };
}

describe('what it answers', () => {
  test('at least 97% of 500 digits drawn with a seed that training never used are read correctly', async () => {
    let right = 0;
    let all = 0;
    for (const { digit, image } of heldOutDigits(50)) {
      if ((await ask(pgmOf(image))).digit === digit) right++;
      all++;
    }
    expect(all).toBe(500);
    expect(right / all).toBeGreaterThanOrEqual(0.97);
  });

  test.each([0, 1, 2, 3, 4, 5, 6, 7, 8, 9])('the example of a %i is read correctly and confidently', async (digit) => {
    const answer = await ask(example(digit));
    expect(answer.digit).toBe(digit);
    expect(answer.confidence).toBe(answer.scores[digit]);
    expect(answer.confidence).toBeGreaterThan(0.5);
    expect(answer.scores.reduce((sum, score) => sum + score)).toBeCloseTo(1, 2);
  });

  test('every form of the same image gets the same answer', async () => {
    const image = imageOf(handlerCall(example(3)));
    const plainPgm = `P2 # drawn\n${image.width} ${image.height}\n255\n${rowsOfImage(image, 255).flat().map(Math.round).join(' ')}\n`;
    const wide = Uint8Array.from(
      rowsOfImage(image, 255)
        .flat()
        .flatMap((grey) => [Math.round(grey), Math.round(grey)]),
    );
    const wantedScores = (await ask(example(3))).scores.map((score) => expect.closeTo(score, 3) as number);
    for (const body of [
      plainPgm,
      Buffer.concat([Buffer.from(`P5 ${image.width} ${image.height} 65535\n`), wide]),
      JSON.stringify(rowsOfImage(image, 255)),
      JSON.stringify(rowsOfImage(image, 1)),
      JSON.stringify({ image: rowsOfImage(image, 255) }),
    ]) {
      expect((await ask(body)).scores, body.slice(0, 20).toString()).toEqual(wantedScores);
    }
  });

  test('white on black, and a larger scan with the digit in a corner, are read too', async () => {
    for (let digit = 0; digit < 10; digit++) {
      const image = imageOf(handlerCall(example(digit)));
      const negative = { ...image, pixels: image.pixels.map((pixel) => 1 - pixel) };
      expect((await ask(pgmOf(negative))).digit).toBe(digit);
      const digitOnly = enlarged(image, 4);
      const side = digitOnly.width * 3;
      const scan = { width: side, height: side, pixels: new Float32Array(side * side).fill(0.95) };
      for (let y = 0; y < digitOnly.height; y++) {
        scan.pixels.set(digitOnly.pixels.subarray(y * digitOnly.width, (y + 1) * digitOnly.width), y * side);
      }
      expect((await ask(pgmOf(scan))).digit).toBe(digit);
    }
  });
});

describe('what it refuses', () => {
  const blank = Array.from({ length: 28 }, () => Array.from({ length: 28 }, () => 255));
  const oddRow = blank.with(3, [1, 2]);
  const oddPixel = blank.with(2, blank[0]?.with(5, 256) ?? []);
  test.each([
    ['nothing', '', /neither a PGM image .* nor JSON/],
    ['text', 'seven', /neither a PGM image .* nor JSON/],
    ['broken JSON', '[[0, 1', /^the body is not JSON: /],
    ['a blank image', JSON.stringify(blank), /blank/],
    ['a row of another length', JSON.stringify(oddRow), /^row 3 of the image has 2 pixels, but row 0 has 28$/],
    [
      'a pixel that is no grey',
      JSON.stringify(oddPixel),
      /^row 2, pixel 5 of the image is not a number from 0 to 255$/,
    ],
    ['numbers without rows', '[1,2,3]', /not an array of rows/],
    ['no image', '{"digit": 7}', /not an array of rows/],
    ['an empty image', '[]', /^the image is 0 x 0 pixels/],
    ['a PGM that is cut off', example(1).subarray(0, 300), /cut off: 784 bytes of pixels are announced, 287 follow/],
    ['a plain PGM that is cut off', 'P2 8 8 255 1 2 3', /cut off: 64 pixels are announced, 3 follow/],
    ['a PGM whose line ends were stripped', 'P528 2825', /header of the PGM image cannot be read .*--data-binary/],
    ['a PGM that is far too large', 'P5 100000 100000 255\n', /100000 x 100000 pixels|header of the PGM/],
    ['a plain PGM above its maximum', `P2 8 8 9 ${'10 '.repeat(64)}`, /^pixel 0 of the PGM image is 10, above/],
  ])('%s is refused with 400', async (_, body, message) => {
    await expect(ask(body)).rejects.toMatchObject({ status: 400, message: expect.stringMatching(message) as string });
  });

  test('a PGM file of any bytes becomes a whole input, or is refused with 400', () => {
    const pgm = fc
      .tuple(fc.constantFrom('P5', 'P2'), fc.nat(40), fc.nat(40), fc.nat(70_000), fc.uint8Array({ maxLength: 1700 }))
      .map(([kind, width, height, white, bytes]) =>
        Buffer.concat([Buffer.from(`${kind} ${width} ${height} ${white}\n`), bytes]),
      );
    fc.assert(
      fc.property(pgm, (body) => {
        expect([400, inputSize * inputSize]).toContain(outcomeOf(body));
      }),
    );
  });
});

/** The size of an image's tensor, or the status of its refusal. */
function outcomeOf(body: Uint8Array): unknown {
  try {
    return handler.preprocess(handlerCall(body))[0]?.data.length;
  } catch (error) {
    return (error as { status?: unknown }).status;
  }
}

describe('its input', () => {
  test('is ink from 0 to 1 with its centre in the middle, wherever the digit was drawn', () => {
    for (const { image } of heldOutDigits(5)) {
      const input = normalise(image);
      let mass = 0;
      let massX = 0;
      let massY = 0;
      for (const [at, ink] of input.entries()) {
        mass += ink;
        massX += ink * ((at % inputSize) + 0.5);
        massY += ink * (Math.floor(at / inputSize) + 0.5);
      }
      expect(Math.min(...input)).toBeGreaterThanOrEqual(0);
      expect(Math.max(...input)).toBeLessThanOrEqual(1);
      expect(Math.abs(massX / mass - inputSize / 2)).toBeLessThan(1);
      expect(Math.abs(massY / mass - inputSize / 2)).toBeLessThan(1);
    }
  });
});

describe('its model', () => {
  test('is small enough to be kept with the code', () => {
    expect(statSync(join(folder, 'model.onnx')).size).toBeLessThanOrEqual(100_000);
  });

  test('an answer does not depend on the rest of its batch', async () => {
    const requests = Array.from({ length: 10 }, (_, digit) => handler.preprocess(handlerCall(example(digit))));
    const alone = await Promise.all(
      requests.map(async (tensors) => rowsOf(await digitReader.run(tensors), 'scores')[0]),
    );
    const together = rowsOf(await digitReader.run(joinBatch(requests)), 'scores');
    expect(together).toHaveLength(10);
    for (const [row, scores] of together.entries()) {
      for (const [digit, score] of scores.entries()) expect(score).toBeCloseTo(alone[row]?.[digit] ?? Number.NaN, 5);
    }
  });
});
