/**
 * The elements of a tensor in JSON text: reads them into bytes, with one reader for each kind of datatype, and numbers
 * as their nearest doubles. Skips blanks and strings for `json-read.ts` as well.
 */
import { arrayOf, elementBytes, type DataType } from './tensor.ts';
import { TensorError } from './error.ts';
import { numberToBf16, numberToFp16 } from './half.ts';

export const quote = 0x22;
const backslash = 0x5c;

export interface Elements {
  /** Reads the element at `at` and returns the position after it. */
  read(bytes: Buffer, at: number, index: number): number;
  /** The bytes of the first `count` elements. */
  data(count: number): Uint8Array;
}

/**
 * @param textBytes size of the tensor's text
 * @param countMax elements that are read at most
 */
export function elementsOf(name: string, datatype: DataType, textBytes: number, countMax: number): Elements {
  switch (datatype) {
    case 'BYTES':
      return new TextElements(name, textBytes);
    case 'BOOL':
      return new BooleanElements(name, countMax);
    case 'INT64':
    case 'UINT64':
      return new WideElements(name, datatype, countMax);
    default:
      return new NumberElements(name, datatype, countMax);
  }
}

type NumberType = Exclude<DataType, 'BYTES' | 'BOOL' | 'INT64' | 'UINT64'>;

const integerRange = {
  UINT8: [0, 255],
  UINT16: [0, 65_535],
  UINT32: [0, 4_294_967_295],
  INT8: [-128, 127],
  INT16: [-32_768, 32_767],
  INT32: [-2_147_483_648, 2_147_483_647],
} as const satisfies Partial<Record<DataType, readonly [min: number, max: number]>>;

const specials: readonly (readonly [text: string, value: number])[] = [
  ['"NaN"', NaN],
  ['"Infinity"', Infinity],
  ['"-Infinity"', -Infinity],
  ['NaN', NaN],
  ['Infinity', Infinity],
  ['-Infinity', -Infinity],
];

class NumberElements implements Elements {
  readonly #name: string;
  readonly #datatype: NumberType;
  readonly #values: Float64Array;
  readonly #range: readonly [min: number, max: number] | undefined;
  readonly #toHalf: ((value: number) => number) | undefined;

  constructor(name: string, datatype: NumberType, countMax: number) {
    this.#name = name;
    this.#datatype = datatype;
    // Declared as one type, so that one piece of code writes all of them.
    this.#values = new arrayOf[datatype](countMax) as Float64Array;
    this.#range = datatype in integerRange ? integerRange[datatype as keyof typeof integerRange] : undefined;
    this.#toHalf = datatype === 'FP16' ? numberToFp16 : datatype === 'BF16' ? numberToBf16 : undefined;
  }

  read(bytes: Buffer, at: number, index: number): number {
    found.isSingle = this.#datatype === 'FP32';
    readNumber(bytes, at);
    found.isSingle = false;
    const { end, value } = found;
    const values = this.#values;
    const range = this.#range;
    if (range !== undefined) {
      if (end === -1 || !Number.isInteger(value) || value < range[0] || value > range[1])
        throw this.#wrong(bytes, at, index);
      values[index] = value;
      return end;
    }
    if (end === -1) return this.#special(bytes, at, index);
    const bits = this.#toHalf?.(value);
    values[index] = bits ?? value;
    // 1e400 is beyond every double, 1e39 beyond FP32.
    const isFinite = bits === undefined ? Number.isFinite(values[index]) : !isInfinite(this.#datatype, bits);
    if (!isFinite) throw this.#wrong(bytes, at, index);
    return end;
  }

  #special(bytes: Buffer, at: number, index: number): number {
    for (const [text, value] of specials) {
      if (bytes.toString('latin1', at, at + text.length) !== text) continue;
      this.#values[index] = this.#toHalf?.(value) ?? value;
      return at + text.length;
    }
    throw this.#wrong(bytes, at, index);
  }

  #wrong(bytes: Buffer, at: number, index: number): Error {
    return wrongElement(this.#name, this.#datatype, bytes, at, index);
  }

  data(count: number): Uint8Array {
    return new Uint8Array(this.#values.buffer, 0, count * elementBytes[this.#datatype]);
  }
}

function isInfinite(datatype: DataType, bits: number): boolean {
  return (bits & 0x7fff) === (datatype === 'FP16' ? 0x7c00 : 0x7f80);
}

class WideElements implements Elements {
  readonly #name: string;
  readonly #datatype: 'INT64' | 'UINT64';
  readonly #values: BigInt64Array | BigUint64Array;
  /** The same memory, low half first: making a BigInt per element would cost more than reading it. */
  readonly #halves: Uint32Array;

  constructor(name: string, datatype: 'INT64' | 'UINT64', countMax: number) {
    this.#name = name;
    this.#datatype = datatype;
    this.#values = new arrayOf[datatype](countMax);
    this.#halves = new Uint32Array(this.#values.buffer);
  }

  read(bytes: Buffer, at: number, index: number): number {
    readNumber(bytes, at);
    const { end, value, digits, isWhole, isNegative } = found;
    const isUnsigned = this.#datatype === 'UINT64';
    if (end === -1 || !Number.isInteger(value) || (isUnsigned && value < 0)) {
      throw wrongElement(this.#name, this.#datatype, bytes, at, index);
    }
    if (isWhole && digits > 15) {
      const exact = BigInt(bytes.toString('latin1', isNegative ? at + 1 : at, end));
      const wide = isNegative ? -exact : exact;
      this.#values[index] = wide;
      if (this.#values[index] !== wide) throw wrongElement(this.#name, this.#datatype, bytes, at, index);
      return end;
    }
    if (!Number.isSafeInteger(value)) {
      const shown = bytes.toString('latin1', at, Math.min(end, at + 40));
      throw new TensorError(
        `tensor '${this.#name}': element ${index} is ${shown}, beyond 2^53; write all of its digits, or send it as binary data`,
      );
    }
    const high = Math.floor(value / 2 ** 32);
    this.#halves[2 * index] = value - high * 2 ** 32;
    this.#halves[2 * index + 1] = high;
    return end;
  }

  data(count: number): Uint8Array {
    return new Uint8Array(this.#values.buffer, 0, count * 8);
  }
}

class BooleanElements implements Elements {
  readonly #name: string;
  readonly #values: Uint8Array;

  constructor(name: string, countMax: number) {
    this.#name = name;
    this.#values = new Uint8Array(countMax);
  }

  read(bytes: Buffer, at: number, index: number): number {
    const byte = bytes[at];
    const word = byte === 0x74 ? 'true' : byte === 0x66 ? 'false' : undefined;
    if (word !== undefined && bytes.toString('latin1', at, at + word.length) === word) {
      this.#values[index] = byte === 0x74 ? 1 : 0;
      return at + word.length;
    }
    readNumber(bytes, at);
    if (found.end === -1 || (found.value !== 0 && found.value !== 1)) {
      throw wrongElement(this.#name, 'BOOL', bytes, at, index);
    }
    this.#values[index] = found.value;
    return found.end;
  }

  data(count: number): Uint8Array {
    return this.#values.subarray(0, count);
  }
}

class TextElements implements Elements {
  readonly #name: string;
  /** Large enough: a string's quotes and comma take three bytes of text, its length takes four here. */
  readonly #packed: Buffer;
  #used = 0;
  /** Position of the next backslash, so that it is searched once, not for each string before it. */
  #escapeAt = -1;

  constructor(name: string, textBytes: number) {
    this.#name = name;
    this.#packed = Buffer.allocUnsafeSlow(textBytes + Math.ceil(textBytes / 3) + 8);
  }

  read(bytes: Buffer, at: number, index: number): number {
    if (bytes[at] !== quote) throw wrongElement(this.#name, 'BYTES', bytes, at, index);
    const end = endOfString(bytes, at);
    if (this.#escapeAt < at) {
      const next = bytes.indexOf(backslash, at);
      this.#escapeAt = next === -1 ? bytes.byteLength : next;
    }
    const packed = this.#packed;
    const from = this.#used + 4;
    let length = end - at - 1;
    if (this.#escapeAt > end) {
      // JSON has control characters escaped only.
      for (let each = at + 1; each < end; each++) if (bytes[each]! < 0x20) throw unexpected(bytes, each);
      bytes.copy(packed, from, at + 1, end);
    } else {
      const text = parsedText(bytes, at, end + 1) as string;
      if (/\p{Surrogate}/u.test(text)) {
        throw new TensorError(
          `tensor '${this.#name}': element ${index} has half of a surrogate pair, which is no text`,
        );
      }
      length = packed.write(text, from, 'utf8');
    }
    packed.writeUInt32LE(length, this.#used);
    this.#used = from + length;
    return end + 1;
  }

  data(): Uint8Array {
    return new Uint8Array(this.#packed.buffer, this.#packed.byteOffset, this.#used);
  }
}

/** The error for a text that is not a value of the datatype, or not JSON. */
function wrongElement(name: string, datatype: DataType, bytes: Buffer, at: number, index: number): Error {
  const is = (shown: string): TensorError =>
    new TensorError(`tensor '${name}': element ${index} is ${shown}, which is not a value of ${datatype}`);
  const byte = bytes[at];
  if (byte === 0x7b) return is('an object');
  if (byte === quote) {
    const text = parsedText(bytes, at, endOfString(bytes, at) + 1) as string;
    return is(JSON.stringify(text.slice(0, 40)));
  }
  for (const word of ['null', 'true', 'false', 'NaN', 'Infinity', '-Infinity']) {
    if (bytes.toString('latin1', at, at + word.length) === word) return is(word);
  }
  readNumber(bytes, at);
  if (found.end === -1) return unexpected(bytes, at);
  return is(bytes.toString('latin1', at, Math.min(found.end, at + 40)));
}

/** The latest number read. One shared object, since an object per number would cost more than reading it. */
const found = {
  /** Position after the number; -1 if there is none. */
  end: 0,
  /** Whether it has only digits. */
  isWhole: false,
  isNegative: false,
  digits: 0,
  value: 0,
  /** Set by the caller: the value becomes an FP32. */
  isSingle: false,
};

const tens = Float64Array.from({ length: 23 }, (_, exponent) => 10 ** exponent);

/**
 * A number with more digits than a double holds. An FP32 needs only 24 bits: if all values that the digits can stand
 * for round to the same FP32, the rest does not matter. This is four times as fast as Number().
 */
function longNumber(
  bytes: Buffer,
  start: number,
  end: number,
  digitsValue: number,
  digits: number,
  scale: number,
): number {
  if (found.isSingle && digits <= 19 && scale >= -22 && scale <= 22) {
    const value = scale < 0 ? digitsValue / tens[-scale]! : digitsValue * tens[scale]!;
    const single = Math.fround(value);
    // Each of the few operations was off by at most 2^-53 of the value.
    if (Math.fround(value * (1 + 2 ** -48)) === single && Math.fround(value * (1 - 2 ** -48)) === single) return single;
  }
  return Math.abs(Number(bytes.toString('latin1', start, end)));
}

/** Finds the JSON number at `start` and its nearest double. */
function readNumber(bytes: Buffer, start: number): void {
  let at = start;
  let value = 0;
  let digits = 0;
  let scale = 0;
  const isNegative = bytes[at] === 0x2d;
  if (isNegative) at++;
  found.end = -1;
  const first = at;
  let byte = bytes[at]!;
  while (byte >= 0x30 && byte <= 0x39) {
    value = value * 10 + (byte - 0x30);
    digits++;
    byte = bytes[++at]!;
  }
  // JSON has no leading zeros.
  if (digits === 0 || (digits > 1 && bytes[first] === 0x30)) return;
  let isWhole = true;
  if (byte === 0x2e) {
    isWhole = false;
    const point = at;
    byte = bytes[++at]!;
    while (byte >= 0x30 && byte <= 0x39) {
      value = value * 10 + (byte - 0x30);
      byte = bytes[++at]!;
    }
    scale = point + 1 - at;
    if (scale === 0) return;
    digits -= scale;
  }
  if (byte === 0x65 || byte === 0x45) {
    isWhole = false;
    byte = bytes[++at]!;
    const isBelow = byte === 0x2d;
    if (isBelow || byte === 0x2b) byte = bytes[++at]!;
    if (!(byte >= 0x30 && byte <= 0x39)) return;
    let exponent = 0;
    while (byte >= 0x30 && byte <= 0x39) {
      exponent = Math.min(exponent * 10 + (byte - 0x30), 100_000);
      byte = bytes[++at]!;
    }
    scale += isBelow ? -exponent : exponent;
  }
  // Up to 15 digits and powers of ten up to 22 are exact doubles, so their product or quotient is the nearest double.
  if (digits > 15 || scale < -22 || scale > 22) value = longNumber(bytes, start, at, value, digits, scale);
  else if (scale < 0) value /= tens[-scale]!;
  else if (scale > 0) value *= tens[scale]!;
  found.end = at;
  found.isWhole = isWhole;
  found.isNegative = isNegative;
  found.digits = digits;
  found.value = isNegative ? -value : value;
}

/** The position of the closing quote of the string that opens at `at`. */
export function endOfString(bytes: Buffer, at: number): number {
  for (let end = bytes.indexOf(quote, at + 1); end !== -1; end = bytes.indexOf(quote, end + 1)) {
    let escapes = 0;
    while (bytes[end - 1 - escapes] === backslash) escapes++;
    if (escapes % 2 === 0) return end;
  }
  throw unexpected(bytes, bytes.byteLength);
}

export function skipBlanks(bytes: Buffer, at: number): number {
  for (;;) {
    const byte = bytes[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) return at;
    at++;
  }
}

/** The JSON from `start` to before `end`. @throws SyntaxError with the place in all of the bytes */
export function parsedText(bytes: Buffer, start: number, end: number): unknown {
  const text = bytes.toString('utf8', start, end);
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    const { message } = error as SyntaxError;
    const [place, at] = / in JSON at position (\d+).*$/s.exec(message) ?? [];
    if (place === undefined) throw error;
    const before = Buffer.byteLength(text.slice(0, Number(at)));
    throw new SyntaxError(message.replace(place, ` at byte ${start + before}`), { cause: error });
  }
}

export function unexpected(bytes: Buffer, at: number): SyntaxError {
  if (at >= bytes.byteLength) return new SyntaxError('it ends in the middle of a value');
  const near = JSON.stringify(bytes.toString('utf8', at, at + 12));
  return new SyntaxError(`${near} at byte ${at} is not expected there`);
}
