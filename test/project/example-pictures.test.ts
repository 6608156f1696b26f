/** The pictures of the examples beside PIL's and torchvision's: by the definitions, and by numbers worked out by hand. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { encode } from 'jpeg-js';
import { expect, test } from 'vitest';
import { preprocess } from '../../examples/image-classification/handler.ts';
import { cropCentre, decodePicture, resize, resizeShorter } from '../../examples/image-classification/picture.ts';
import type { HandlerCall } from '../../src/cpu/index.ts';
import { packageRoot } from '../../src/host/config/options.ts';

type Size = readonly [width: number, height: number];

/** A picture of which each channel has a row of values, repeated. */
const ofRow = (values: readonly number[], height = 1) => ({
  width: values.length,
  height,
  data: Uint8Array.from(
    Array.from({ length: height }, () => values.flatMap((value) => [value, value, value, 255])).flat(),
  ),
});

const redOf = ({ data }: { readonly data: Uint8Array }): number[] => [...data].filter((_, at) => at % 4 === 0);

/** By the definition: means weighted by a triangle that is as wide as two output pixels, or two input pixels. */
function definedRow(values: readonly number[], size: number): number[] {
  const scale = values.length / size;
  const reach = Math.max(1, scale);
  return Array.from({ length: size }, (_, at) => {
    const weights = values.map((_value, from) => Math.max(0, 1 - Math.abs(from + 0.5 - (at + 0.5) * scale) / reach));
    const sum = weights.reduce((total, weight) => total + weight, 0);
    return Math.round(values.reduce((total, value, from) => total + value * weights[from]!, 0) / sum);
  });
}

/** Red in the first quarter, green right of it, blue below. */
function photo(orientation: number, isLittle: boolean): Uint8Array {
  const [width, height] = [64, 32];
  const data = new Uint8Array(4 * width * height).fill(255);
  for (let at = 0; at < width * height; at++) {
    const [isRight, isBelow] = [at % width >= 32, Math.floor(at / width) >= 16];
    data.set([isRight || isBelow ? 0 : 255, isRight && !isBelow ? 255 : 0, isBelow && !isRight ? 255 : 0], 4 * at);
  }
  const jpeg = new Uint8Array(encode({ width, height, data: Buffer.from(data) }, 95).data);
  const segment = new DataView(new ArrayBuffer(4 + 6 + 8 + 2 + 12 + 4));
  segment.setUint16(0, 0xffe1);
  segment.setUint16(2, segment.byteLength - 2);
  new TextEncoder().encodeInto('Exif', new Uint8Array(segment.buffer, 4));
  segment.setUint16(10, isLittle ? 0x4949 : 0x4d4d);
  segment.setUint16(12, 42, isLittle);
  segment.setUint32(14, 8, isLittle);
  segment.setUint16(18, 1, isLittle);
  segment.setUint16(20, 0x0112, isLittle);
  segment.setUint16(22, 3, isLittle);
  segment.setUint32(24, 1, isLittle);
  segment.setUint16(28, orientation, isLittle);
  return Buffer.concat([jpeg.subarray(0, 2), new Uint8Array(segment.buffer), jpeg.subarray(2)]);
}

test.each([
  [
    [0, 0, 0, 0, 80, 80, 80, 80],
    [0, 10, 70, 80],
  ],
  [
    [0, 90, 180, 254],
    [27, 135, 232],
  ],
  [
    [0, 100],
    [0, 25, 75, 100],
  ],
])('the row %j becomes %j, whichever side it is', (row, wanted) => {
  expect(redOf(resize(ofRow(row), wanted.length, 1))).toEqual(wanted);
  const column = { ...ofRow(row), width: 1, height: row.length };
  expect(redOf(resize(column, 1, wanted.length))).toEqual(wanted);
});

test('any size is scaled by the definition of the bilinear filter with antialias, first the rows, then the columns', () => {
  const side = fc.integer({ min: 1, max: 12 });
  fc.assert(
    fc.property(
      fc.tuple(side, side),
      fc.tuple(side, side),
      fc.infiniteStream(fc.integer({ min: 0, max: 255 })),
      ([width, height], [outWidth, outHeight], stream) => {
        const values = [...stream.take(width * height)];
        const picture = {
          width,
          height,
          data: Uint8Array.from(values.flatMap((value) => [value, 255 - value, 7, 255])),
        };
        const rows = Array.from({ length: height }, (_, y) =>
          definedRow(values.slice(y * width, (y + 1) * width), outWidth),
        );
        const columns = Array.from({ length: outWidth }, (_, x) =>
          definedRow(
            rows.map((row) => row[x]!),
            outHeight,
          ),
        );
        const wanted = Array.from(
          { length: outHeight * outWidth },
          (_, at) => columns[at % outWidth]![Math.floor(at / outWidth)]!,
        );
        const scaled = resize(picture, outWidth, outHeight);
        // PIL's weights are fixed-point numbers: a half may round the other way.
        for (const [at, red] of redOf(scaled).entries()) expect(Math.abs(red - wanted[at]!)).toBeLessThanOrEqual(1);
        expect(scaled.data.filter((value, at) => at % 4 === 2 && value !== 7)).toHaveLength(0);
      },
    ),
  );
});

test.each<[from: Size, to: Size, corner: Size]>([
  [
    [500, 375],
    [341, 256],
    [58, 16],
  ],
  [
    [375, 500],
    [256, 341],
    [16, 58],
  ],
  [
    [503, 375],
    [343, 256],
    [60, 16],
  ],
  [
    [64, 64],
    [256, 256],
    [16, 16],
  ],
])('%j is resized to %j, and 224 are cut out at %j', ([width, height], [outWidth, outHeight], [left, top]) => {
  const { width: wide, height: high } = resizeShorter({ width, height, data: new Uint8Array(4 * width * height) }, 256);
  expect([wide, high]).toEqual([outWidth, outHeight]);
  const marked = new Uint8Array(4 * outWidth * outHeight);
  marked[4 * (top * outWidth + left)] = 9;
  expect(cropCentre({ width: outWidth, height: outHeight, data: marked }, 224).data[0]).toBe(9);
});

/** EXIF 2.3, 4.6.4: the sides at which row 0 and column 0 of what is stored are to be seen. */
const sides = [
  ['top', 'left'],
  ['top', 'right'],
  ['bottom', 'right'],
  ['bottom', 'left'],
  ['left', 'top'],
  ['right', 'top'],
  ['right', 'bottom'],
  ['left', 'bottom'],
] as const;

test.each(sides.map(([row, column], index) => [index + 1, row, column] as const))(
  'orientation %d has the first row at the %s and the first column at the %s',
  (orientation, rowSide, columnSide) => {
    for (const isLittle of [true, false]) {
      const { width, height, data } = decodePicture(photo(orientation, isLittle));
      expect([width, height]).toEqual(orientation < 5 ? [64, 32] : [32, 64]);
      /** The strongest channel in the quarter at these sides. */
      const seenAt = (...at: readonly string[]): number => {
        const x = at.includes('left') ? width / 4 : (3 * width) / 4;
        const y = at.includes('top') ? height / 4 : (3 * height) / 4;
        const pixel = [...data.subarray(4 * (y * width + x), 4 * (y * width + x) + 3)];
        return pixel.indexOf(Math.max(...pixel));
      };
      const opposite = { top: 'bottom', bottom: 'top', left: 'right', right: 'left' } as const;
      expect(seenAt(rowSide, columnSide)).toBe(0);
      expect(seenAt(rowSide, opposite[columnSide])).toBe(1);
      expect(seenAt(opposite[rowSide], columnSide)).toBe(2);
    }
  },
);

test('a photo of one colour is that colour, normalized, in each of the 224 x 224 values of a channel', () => {
  const data = Buffer.from(Array.from({ length: 80 * 40 }, () => [200, 120, 40, 255]).flat());
  const body = new Uint8Array(encode({ width: 80, height: 40, data }, 95).data);
  const [mean, deviation] = [
    [0.485, 0.456, 0.406],
    [0.229, 0.224, 0.225],
  ];
  const pixel = decodePicture(body).data;
  const [tensor] = preprocess({ body } as HandlerCall);
  expect(tensor).toMatchObject({ datatype: 'FP32', shape: [1, 3, 224, 224] });
  for (const channel of [0, 1, 2]) {
    const wanted = Math.fround((pixel[channel]! / 255 - mean[channel]!) / deviation[channel]!);
    const plane = (tensor!.data as Float32Array).subarray(channel * 224 * 224, (channel + 1) * 224 * 224);
    expect(new Set(plane)).toEqual(new Set([wanted]));
  }
});

test('both examples with pictures have the same reader', () => {
  const [one, other] = ['image-classification', 'detection'].map((name) =>
    readFileSync(join(packageRoot, 'examples', name, 'picture.ts'), 'utf8').replace(/examples\/[a-z-]+/, ''),
  );
  expect(one).toBe(other);
});
