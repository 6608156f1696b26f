/**
 * Reads JSON that contains tensors. The document is parsed as JSON.parse does; the tensors stay text until their datatype
 * is known. JSON.parse would make doubles of them: too narrow for 64-bit integers, and too slow for a hundred megabytes.
 *
 * A tensor is a flat or nested array of numbers, booleans or strings, row-major. JSON has no numbers for NaN and the
 * infinities: they may be strings, as in protobuf's JSON mapping, or bare, as Python writes them.
 */
import { TensorError } from './error.ts';
import { elementsOf, endOfString, parsedText, skipBlanks, unexpected, quote } from './json-elements.ts';
import type { Steps } from './steps.ts';
import { elementBytes, elementCount, type Tensor, type DataType } from './tensor.ts';

/** Where tensors are in a document. */
export type JsonForm =
  | 'tensor'
  | { readonly members: ReadonlyMap<string, JsonForm> }
  | { readonly items: JsonForm }
  /** An object whose every member is one, returned as a Map since the names are data. */
  | { readonly values: JsonForm };

/** The text of a value: bytes from `start` to before `end`. */
export class JsonText {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;

  constructor(bytes: Buffer, start: number, end: number) {
    this.bytes = bytes;
    this.start = start;
    this.end = end;
  }
}

/** Limit of other text: JSON.parse cannot be interrupted, and takes 20 ms for this much. */
const otherBytesMax = 2 * 1024 * 1024;

/** Bytes between two points where the work may be interrupted. */
const strideBytes = 64 * 1024;
/** Up to this size, a document without tensors (the header of a binary request, say) goes to JSON.parse as a whole. */
const plainBytesMax = 4096;

/**
 * Parses UTF-8 text; each tensor becomes a {@link JsonText}.
 * @throws SyntaxError as JSON.parse; errors inside a tensor are found when it is read
 */
export function* parseDocument(bytes: Buffer, form: JsonForm, start = 0): Steps<unknown> {
  if (bytes.byteLength - start <= plainBytesMax) {
    const text = bytes.toString('utf8', start);
    if (!mayHoldTensors(text, form)) {
      try {
        return JSON.parse(text) as unknown;
      } catch {
        // The parser below names the place.
      }
    }
  }
  const parser = new Parser(bytes, start);
  const value = yield* parser.value(form);
  parser.blanks();
  if (parser.at < bytes.byteLength) throw unexpected(bytes, parser.at);
  return value;
}

/** Whether the text names a member that may be a tensor or a map of tensors. A backslash may hide a name. */
function mayHoldTensors(text: string, form: JsonForm): boolean {
  if (form === 'tensor' || 'values' in form || text.includes('\\')) return true;
  if ('items' in form) return mayHoldTensors(text, form.items);
  for (const [name, member] of form.members) {
    const isNamed = text.includes(`"${name}"`);
    if (isNamed && mayHoldTensors(text, member)) return true;
  }
  return false;
}

const comma = 0x2c;
const colon = 0x3a;
const openArray = 0x5b;
const closeArray = 0x5d;
const openObject = 0x7b;
const closeObject = 0x7d;

class Parser {
  readonly #bytes: Buffer;
  at: number;
  /** Open arrays and objects at `at`, of the value being skipped. */
  #depth = 0;

  constructor(bytes: Buffer, at: number) {
    this.#bytes = bytes;
    this.at = at;
  }

  blanks(): void {
    this.at = skipBlanks(this.#bytes, this.at);
  }

  *value(form: JsonForm | undefined): Steps<unknown> {
    this.blanks();
    if (form !== undefined && form !== 'tensor') {
      const first = this.#bytes[this.at];
      if ('items' in form && first === openArray) return yield* this.#array(form.items);
      if ('members' in form && first === openObject) return yield* this.#object(form.members);
      if ('values' in form && first === openObject) return yield* this.#map(form.values);
    }
    const start = this.at;
    while (!this.#skip()) yield;
    const text = new JsonText(this.#bytes, start, this.at);
    return form === 'tensor' ? text : parsed(text);
  }

  *#array(form: JsonForm): Steps<unknown[]> {
    const items: unknown[] = [];
    for (let more = this.#open(closeArray); more; more = this.#next(closeArray)) {
      items.push(yield* this.value(form));
      yield;
    }
    return items;
  }

  *#map(form: JsonForm): Steps<Map<string, unknown>> {
    const values = new Map<string, unknown>();
    for (let more = this.#open(closeObject); more; more = this.#next(closeObject)) {
      values.set(this.#key(), yield* this.value(form));
      yield;
    }
    return values;
  }

  *#object(members: ReadonlyMap<string, JsonForm>): Steps<object> {
    const values: [string, unknown][] = [];
    for (let more = this.#open(closeObject); more; more = this.#next(closeObject)) {
      const key = this.#key();
      values.push([key, yield* this.value(members.get(key))]);
    }
    // Defines each as an own property, __proto__ included.
    return Object.fromEntries(values);
  }

  #key(): string {
    this.blanks();
    const start = this.at;
    if (this.#bytes[start] !== quote) throw unexpected(this.#bytes, start);
    this.at = endOfString(this.#bytes, start) + 1;
    const key = parsed(new JsonText(this.#bytes, start, this.at)) as string;
    this.blanks();
    if (this.#bytes[this.at] !== colon) throw unexpected(this.#bytes, this.at);
    this.at++;
    return key;
  }

  /** Moves past an opening bracket; whether anything follows before the closing one. */
  #open(close: number): boolean {
    this.at++;
    this.blanks();
    if (this.#bytes[this.at] !== close) return true;
    this.at++;
    return false;
  }

  #next(close: number): boolean {
    this.blanks();
    const byte = this.#bytes[this.at];
    if (byte !== comma && byte !== close) throw unexpected(this.#bytes, this.at);
    this.at++;
    return byte === comma;
  }

  /** Skips a value by its brackets and quotes alone; false if it has to be called again for the rest. */
  #skip(): boolean {
    const bytes = this.#bytes;
    const { byteLength } = bytes;
    let { at } = this;
    if (this.#depth === 0) {
      const first = bytes[at];
      if (first === quote) {
        this.at = endOfString(bytes, at) + 1;
        return true;
      }
      if (first !== openArray && first !== openObject) {
        while (at < byteLength && isInScalar(bytes[at]!)) at++;
        if (at === this.at) throw unexpected(bytes, at);
        this.at = at;
        return true;
      }
    }
    let depth = this.#depth;
    // Rows of numbers are long, or all are short: short ones are passed more cheaply byte by byte.
    let areRowsLong = true;
    for (const pauseAt = Math.min(byteLength, at + strideBytes); at < pauseAt; at++) {
      if (areRowsLong && depth > 0) {
        const from = at;
        at = endOfPlain(bytes, at, pauseAt);
        if (at === pauseAt) break;
        // Two brackets may stand together before the first number.
        areRowsLong = at - from >= longRowBytes || bytes[at] === openArray;
      }
      const byte = bytes[at]!;
      // All numbers, commas and blanks are below the brackets.
      if (byte < openArray && byte !== quote) continue;
      if (byte === quote) at = endOfString(bytes, at);
      else if (byte === openArray || byte === openObject) depth++;
      else if ((byte === closeArray || byte === closeObject) && --depth === 0) {
        this.#depth = 0;
        this.at = at + 1;
        return true;
      }
    }
    if (at >= byteLength) throw unexpected(bytes, byteLength);
    this.#depth = depth;
    this.at = at;
    return false;
  }
}

/** Native searches for each kind of byte cost as much as this many bytes one by one. */
const longRowBytes = 256;
const bounds = [closeArray, openArray, quote, openObject, closeObject];

/** The position of the first bracket, brace or quote from `at` to before `end`; `end` if there is none. */
function endOfPlain(bytes: Buffer, at: number, end: number): number {
  let plain = bytes.subarray(at, end);
  for (const bound of bounds) {
    const found = plain.indexOf(bound);
    if (found !== -1) plain = plain.subarray(0, found);
  }
  return at + plain.byteLength;
}

function parsed({ bytes, start, end }: JsonText): unknown {
  if (end - start > otherBytesMax) {
    throw new SyntaxError(
      `the value at byte ${start} is over the ${otherBytesMax} bytes that one besides the tensors may have`,
    );
  }
  return parsedText(bytes, start, end);
}

const isInScalar = (byte: number): boolean =>
  byte > 0x20 && byte !== comma && byte !== closeArray && byte !== closeObject && byte !== colon && byte !== quote;

/** Elements between two points where the work may be interrupted. */
const strideElements = 8192;
/** No tensor has more dimensions. */
const rankMax = 16;

/**
 * Reads a tensor of a known shape, flat or nested to that shape.
 * @param grow is told bytes of its elements before they are read; what it throws is thrown
 * @throws TensorError naming the tensor, and the element that is not a value of the datatype; SyntaxError for text that
 * is not JSON
 */
export function* tensorFromJson(
  name: string,
  datatype: DataType,
  shape: readonly number[],
  text: JsonText,
  grow?: Grow,
): Steps<Tensor> {
  const { bytes, start } = text;
  if (bytes[start] !== openArray) throw new TensorError(`tensor '${name}': 'data' is not an array`);
  const { count, sizes, data } = yield* readNested(name, datatype, text, shape, grow);
  const expected = elementCount(shape);
  const isNested = sizes.length > 1;
  // A size of 0 ends the nesting: [2,0,3] is [[],[]].
  const isWhole = sizes.length === shape.length || count === 0;
  if (isNested && !(isWhole && sizes.every((size, dimension) => size === shape[dimension])))
    throw misshapen(name, shape);
  if (count !== expected) {
    throw new TensorError(
      `tensor '${name}' has ${count} elements of data, but its shape [${shape.join(',')}] takes ${expected}`,
    );
  }
  return { name, datatype, shape, data };
}

/** Reads a tensor whose shape is that of its nesting; a bare number is a scalar. Empty arrays end the shape. */
export function* nestedTensorFromJson(name: string, datatype: DataType, text: JsonText, grow?: Grow): Steps<Tensor> {
  const { sizes, data } = yield* readNested(name, datatype, text, undefined, grow);
  return { name, datatype, shape: sizes, data };
}

export type Grow = (bytes: number) => void;

interface Nested {
  readonly sizes: readonly number[];
  readonly count: number;
  readonly data: Uint8Array;
}

/** Each element takes at least one byte of text, and one byte separates two elements. */
function countMaxOf({ start, end }: JsonText, shape?: readonly number[]): number {
  const textMax = Math.floor((end - start) / 2) + 1;
  return shape === undefined ? textMax : Math.min(textMax, elementCount(shape));
}

function* readNested(
  name: string,
  datatype: DataType,
  text: JsonText,
  shape: readonly number[] | undefined,
  grow: Grow | undefined,
  countMax = countMaxOf(text, shape),
): Steps<Nested> {
  const { bytes, start, end } = text;
  // Of BYTES, the length of the text to come is the best that is known.
  const strideBytes = datatype === 'BYTES' ? 0 : strideElements * elementBytes[datatype];
  if (end - start > strideElements) grow?.(datatype === 'BYTES' ? end - start : strideBytes);
  const elements = elementsOf(name, datatype, end - start, countMax);
  const depthMax = shape === undefined ? rankMax : Math.max(1, shape.length);
  const sizes: number[] = [];
  /** Members so far of each open array, outermost first. */
  const open: number[] = [];
  /** Depth of the elements; unknown while all arrays are empty. */
  let rank: number | undefined;
  let count = 0;
  let strides = 0;
  let at = start;
  do {
    at = skipBlanks(bytes, at);
    if (bytes[at] === openArray) {
      if (open.length >= (rank ?? depthMax)) throw rank === undefined ? tooDeep(name, shape) : misshapen(name, shape);
      open.push(0);
      at = skipBlanks(bytes, at + 1);
      if (bytes[at] !== closeArray) continue;
    } else {
      // More than the shape takes: how many they are, or what else is wrong with them, is for the message.
      if (count === countMax) return yield* readNested(name, datatype, text, shape, grow, countMaxOf(text));
      rank ??= open.length;
      if (rank !== open.length || sizes.length > rank) throw misshapen(name, shape);
      at = elements.read(bytes, at, count++);
      if (rank > 0) open[rank - 1]!++;
    }
    // After an element, or before the end of an empty array.
    at = skipBlanks(bytes, at);
    while (open.length > 0 && bytes[at] === closeArray) {
      const size = open.pop()!;
      const depth = open.length;
      if ((sizes[depth] ??= size) !== size) throw misshapen(name, shape);
      if (depth > 0) open[depth - 1]!++;
      at = skipBlanks(bytes, at + 1);
    }
    if (open.length === 0) break;
    if (bytes[at] !== comma) throw unexpected(bytes, at);
    at++;
    if (++strides % strideElements === 0) {
      grow?.(strideBytes);
      yield;
    }
  } while (at < end);
  if (open.length > 0 || at < end) throw unexpected(bytes, at);
  if (rank !== undefined && sizes.length > rank) throw misshapen(name, shape);
  return { sizes, count, data: elements.data(count) };
}

const misshapen = (name: string, shape: readonly number[] | undefined): TensorError =>
  new TensorError(
    shape === undefined
      ? `tensor '${name}': 'data' is ragged: its arrays of one depth differ in size`
      : `tensor '${name}': 'data' does not have the shape [${shape.join(',')}]`,
  );

const tooDeep = (name: string, shape: readonly number[] | undefined): TensorError =>
  new TensorError(
    `tensor '${name}': 'data' is nested deeper than ${shape === undefined ? `${rankMax} dimensions` : `its shape [${shape.join(',')}]`}`,
  );
