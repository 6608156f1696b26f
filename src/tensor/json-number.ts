/** Reads one number from the bytes of a JSON text, as its nearest double. */

const isDigit = (byte: number | undefined): boolean => byte !== undefined && byte >= 0x30 && byte <= 0x39;

/** The latest number read. One shared object, since an object per number would cost more than reading it. */
export const found = {
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
export function readNumber(bytes: Buffer, start: number): void {
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
    if (!isDigit(byte)) return;
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
