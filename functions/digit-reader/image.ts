/** Greyscale images: read from a request, and brought to the one form that the model is trained on. */
import type { HandlerCall } from '../../src/cpu/index.ts';
import { InputError } from '../_shared/input-error.ts';

/** Row-major, 0 (black) to 1 (white). */
export interface GreyImage {
  readonly width: number;
  readonly height: number;
  readonly pixels: Float32Array;
}

/** The model's input is this many pixels wide and high. */
export const inputSize = 28;
/** The digit is scaled to fit a square of this size inside the input. */
const digitSize = 20;
const sideMax = 1024;
/** Least difference between paper and ink, of 1. */
const contrastMin = 0.1;
/** Ink darker than this share of the darkest counts as the digit's when its edges are looked for. */
const edgeInk = 0.25;

/** Reads a PGM file (P2 or P5), or JSON: rows of numbers, bare or in the field `image`. */
export function imageOf({ body, headers }: HandlerCall): GreyImage {
  if (body[0] === 0x50 && (body[1] === 0x32 || body[1] === 0x35)) return parsePgm(body);
  const text = new TextDecoder().decode(body);
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    if (/json/i.test(headers['content-type'] ?? '') || /^\s*[[{]/.test(text)) {
      throw new InputError(`the body is not JSON: ${(error as Error).message}`);
    }
    throw new InputError('the body is neither a PGM image (P2 or P5) nor JSON with rows of numbers');
  }
  const rows = typeof parsed === 'object' && parsed !== null && 'image' in parsed ? parsed.image : parsed;
  return imageFromRows(rows);
}

function imageFromRows(rows: unknown): GreyImage {
  if (!Array.isArray(rows) || !rows.every((row) => Array.isArray(row))) {
    throw new InputError('the image is not an array of rows of numbers');
  }
  const height = rows.length;
  const width = rows[0]?.length ?? 0;
  checkSize(width, height);
  const pixels = new Float32Array(width * height);
  let largest = 0;
  for (const [y, row] of rows.entries()) {
    if (row.length !== width) {
      throw new InputError(`row ${y} of the image has ${row.length} pixels, but row 0 has ${width}`);
    }
    for (const [x, value] of (row as unknown[]).entries()) {
      if (typeof value !== 'number' || !(value >= 0 && value <= 255)) {
        throw new InputError(`row ${y}, pixel ${x} of the image is not a number from 0 to 255`);
      }
      pixels[y * width + x] = value;
      if (value > largest) largest = value;
    }
  }
  // Numbers up to 1 are shares of white; anything larger says that the scale is 0 to 255.
  if (largest > 1) for (let index = 0; index < pixels.length; index++) pixels[index] = (pixels[index] ?? 0) / 255;
  return { width, height, pixels };
}

/** Netpbm's PGM, plain (P2) and raw (P5), one or two bytes a pixel. */
function parsePgm(bytes: Uint8Array): GreyImage {
  const raw = bytes[1] === 0x35;
  let at = 2;
  const nextNumber = (): number => {
    for (; at < bytes.length; at++) {
      if (bytes[at] === 0x23) while (at < bytes.length && bytes[at] !== 0x0a) at++;
      else if (!isSpace(bytes[at])) break;
    }
    const start = at;
    let value = 0;
    for (let digit = bytes[at]; digit !== undefined && digit >= 0x30 && digit <= 0x39; digit = bytes[++at]) {
      value = value * 10 + digit - 0x30;
      if (value > 65_535) break;
    }
    return at > start ? value : Number.NaN;
  };
  const width = nextNumber();
  const height = nextNumber();
  const white = nextNumber();
  if (!(white >= 1 && white <= 65_535) || !isSpace(bytes[at])) {
    throw new InputError('the header of the PGM image cannot be read (curl sends a file unchanged with --data-binary)');
  }
  checkSize(width, height);
  at++;
  const count = width * height;
  const pixelBytes = white > 255 ? 2 : 1;
  if (raw && bytes.length - at < count * pixelBytes) {
    const found = bytes.length - at;
    throw new InputError(
      `the PGM image is cut off: ${count * pixelBytes} bytes of pixels are announced, ${found} follow`,
    );
  }
  const pixels = new Float32Array(count);
  for (let index = 0; index < count; index++) {
    let value: number;
    if (!raw) value = nextNumber();
    else if (pixelBytes === 1) value = bytes[at++] ?? 0;
    else value = (bytes[at++] ?? 0) * 256 + (bytes[at++] ?? 0);
    if (Number.isNaN(value)) {
      throw new InputError(`the PGM image is cut off: ${count} pixels are announced, ${index} follow`);
    }
    if (value > white) throw new InputError(`pixel ${index} of the PGM image is ${value}, above its maximum ${white}`);
    pixels[index] = value / white;
  }
  return { width, height, pixels };
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || (byte !== undefined && byte >= 0x09 && byte <= 0x0d);
}

function checkSize(width: number, height: number): void {
  if (!(width >= 8 && height >= 8 && width <= sideMax && height <= sideMax)) {
    throw new InputError(`the image is ${width} x ${height} pixels, but each side must be from 8 to ${sideMax}`);
  }
}

/**
 * The ink of an image, 0 (paper) to 1, as the model takes it: {@link inputSize} rows of as many. What most of the
 * border shows is paper, so black on white and white on black are the same; the digit is cut out, scaled to one size
 * and centred by its ink. This is how the well-known sets of written digits are made, too.
 */
export function normalise(image: GreyImage): Float32Array {
  const { width, height } = image;
  const ink = inkOf(image);
  let left = width;
  let right = -1;
  let top = height;
  let bottom = -1;
  for (let y = 0; y < height; y++) {
    for (let x = 0; x < width; x++) {
      if ((ink[y * width + x] ?? 0) < edgeInk) continue;
      left = Math.min(left, x);
      right = Math.max(right, x);
      top = Math.min(top, y);
      bottom = y;
    }
  }
  const inkWidth = right - left + 1;
  const inkHeight = bottom - top + 1;
  const pixelsPerPixel = Math.max(inkWidth, inkHeight) / digitSize;
  const columns = Math.max(1, Math.round(inkWidth / pixelsPerPixel));
  const rows = Math.max(1, Math.round(inkHeight / pixelsPerPixel));

  const digit = new Float32Array(columns * rows);
  let mass = 0;
  let massX = 0;
  let massY = 0;
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const value = sampleBox(
        ink,
        width,
        height,
        left + (column * inkWidth) / columns,
        top + (row * inkHeight) / rows,
        inkWidth / columns,
        inkHeight / rows,
      );
      digit[row * columns + column] = value;
      mass += value;
      massX += value * (column + 0.5);
      massY += value * (row + 0.5);
    }
  }
  const offsetX = clamp(Math.round(inputSize / 2 - massX / mass), 0, inputSize - columns);
  const offsetY = clamp(Math.round(inputSize / 2 - massY / mass), 0, inputSize - rows);
  const input = new Float32Array(inputSize * inputSize);
  for (let row = 0; row < rows; row++) {
    const from = row * columns;
    input.set(digit.subarray(from, from + columns), (row + offsetY) * inputSize + offsetX);
  }
  return input;
}

/** Ink from paper (0) to the darkest stroke (1). @throws InputError when nothing is drawn. */
function inkOf({ width, height, pixels }: GreyImage): Float32Array {
  const border: number[] = [];
  for (let x = 0; x < width; x++) border.push(pixels[x] ?? 0, pixels[(height - 1) * width + x] ?? 0);
  for (let y = 1; y < height - 1; y++) border.push(pixels[y * width] ?? 0, pixels[y * width + width - 1] ?? 0);
  border.sort((a, b) => a - b);
  const paper = border[Math.floor(border.length / 2)] ?? 0;
  const sign = paper > 0.5 ? -1 : 1;
  let strongest = 0;
  for (const pixel of pixels) strongest = Math.max(strongest, sign * (pixel - paper));
  if (strongest < contrastMin) throw new InputError('the image is blank: nothing on it stands out from its border');
  return pixels.map((pixel) => Math.max(0, (sign * (pixel - paper)) / strongest));
}

/** Mean over a box of the image, by bilinear samples close enough together to miss no pixel. */
function sampleBox(
  ink: Float32Array,
  width: number,
  height: number,
  left: number,
  top: number,
  boxWidth: number,
  boxHeight: number,
): number {
  const stepsX = Math.ceil(boxWidth);
  const stepsY = Math.ceil(boxHeight);
  let sum = 0;
  for (let stepY = 0; stepY < stepsY; stepY++) {
    const y = clamp(top + ((stepY + 0.5) * boxHeight) / stepsY - 0.5, 0, height - 1);
    const y0 = Math.floor(y);
    const y1 = Math.min(y0 + 1, height - 1);
    for (let stepX = 0; stepX < stepsX; stepX++) {
      const x = clamp(left + ((stepX + 0.5) * boxWidth) / stepsX - 0.5, 0, width - 1);
      const x0 = Math.floor(x);
      const x1 = Math.min(x0 + 1, width - 1);
      const upper = mix(ink[y0 * width + x0] ?? 0, ink[y0 * width + x1] ?? 0, x - x0);
      const lower = mix(ink[y1 * width + x0] ?? 0, ink[y1 * width + x1] ?? 0, x - x0);
      sum += mix(upper, lower, y - y0);
    }
  }
  return sum / (stepsX * stepsY);
}

function mix(from: number, to: number, share: number): number {
  return from + (to - from) * share;
}

function clamp(value: number, low: number, high: number): number {
  return Math.max(low, Math.min(high, value));
}
