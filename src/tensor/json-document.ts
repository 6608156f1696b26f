/**
 * JSON that contains tensors. The document is parsed as JSON.parse does; the tensors stay text until their datatype is
 * known. JSON.parse would make doubles of them: too narrow for 64-bit integers, and too slow for a hundred megabytes.
 */
import type { Steps } from './steps.ts';

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

const quote = 0x22;
const backslash = 0x5c;
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
    for (const pauseAt = Math.min(byteLength, at + strideBytes); at < pauseAt; at++) {
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

function parsed({ bytes, start, end }: JsonText): unknown {
  if (end - start > otherBytesMax) {
    throw new SyntaxError(
      `the value at byte ${start} is over the ${otherBytesMax} bytes that one besides the tensors may have`,
    );
  }
  return JSON.parse(bytes.toString('utf8', start, end)) as unknown;
}

const isInScalar = (byte: number): boolean =>
  byte > 0x20 && byte !== comma && byte !== closeArray && byte !== closeObject && byte !== colon && byte !== quote;

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

export function unexpected(bytes: Buffer, at: number): SyntaxError {
  if (at >= bytes.byteLength) return new SyntaxError('it ends in the middle of a value');
  const near = JSON.stringify(bytes.toString('utf8', at, at + 12));
  return new SyntaxError(`${near} at byte ${at} is not expected there`);
}
