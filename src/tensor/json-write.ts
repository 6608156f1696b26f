/** Writes tensors as JSON text: a flat or nested array of their elements, row-major, every value exact. */
import { isUtf8 } from 'node:buffer';
import { TensorError } from './error.ts';
import { bf16ToNumber, fp16ToNumber } from './half.ts';
import type { Steps } from './steps.ts';
import { bytesElements, elementCount, elements, type Tensor } from './tensor.ts';

/** Elements that are formatted in one step. */
const strideElements = 4096;
/** Text is collected up to this length, then encoded. */
const partCharacters = 64 * 1024;

/** Collects text in parts to be sent in turn, so that no part is too long to encode at once. */
export class TextParts {
  readonly #bytesMax: number;
  readonly #refuse: () => Error;
  readonly #grow: ((bytes: number) => void) | undefined;
  readonly #parts: Buffer[] = [];
  #text = '';
  #bytes = 0;

  /**
   * @param refuse makes the error for a text of more than `bytesMax`
   * @param grow is told the bytes of each part; what it throws is thrown
   */
  constructor(bytesMax: number, refuse: () => Error, grow?: (bytes: number) => void) {
    this.#grow = grow;
    this.#bytesMax = bytesMax;
    this.#refuse = refuse;
  }

  add(text: string): void {
    this.#text += text;
    if (this.#text.length >= partCharacters) this.#flush();
  }

  /** The whole text. A short one stays a string, which Node writes together with the headers. */
  parts(): [string | Buffer, ...Buffer[]] {
    const [first, ...rest] = this.#parts;
    if (first === undefined) return [this.#text];
    const last = Buffer.from(this.#text, 'utf8');
    return [first, ...rest, last];
  }

  #flush(): void {
    const part = Buffer.from(this.#text, 'utf8');
    this.#bytes += part.byteLength;
    if (this.#bytes > this.#bytesMax) throw this.#refuse();
    this.#grow?.(part.byteLength);
    this.#parts.push(part);
    this.#text = '';
  }
}

/**
 * Writes the elements, nested to the tensor's shape or flat. JSON has no numbers for NaN and the infinities: they
 * become the strings "NaN", "Infinity" and "-Infinity", as in protobuf's JSON mapping.
 * @throws TensorError for a BYTES element that is not UTF-8, for which JSON has no form
 */
export function* writeTensor(into: TextParts, tensor: Tensor, nested: boolean): Steps<void> {
  const { shape } = tensor;
  const text = sourceOf(tensor);
  if (!nested || shape.length === 1) {
    into.add('[');
    yield* writeRange(into, text, 0, elementCount(shape));
    into.add(']');
    return;
  }
  yield* writeNested(into, text, shape);
}

/** The text of the elements in a range of indices, with commas between them. */
type ElementsText = (from: number, to: number) => string;

function* writeRange(into: TextParts, text: ElementsText, from: number, to: number): Steps<void> {
  for (let at = from; at < to; at += strideElements) {
    if (at > from) into.add(',');
    into.add(text(at, Math.min(to, at + strideElements)));
    yield;
  }
}

function* writeNested(into: TextParts, text: ElementsText, shape: readonly number[]): Steps<void> {
  const columns = shape.at(-1);
  if (columns === undefined) {
    into.add(text(0, 1));
    return;
  }
  let at = 0;
  function* write(depth: number): Steps<void> {
    into.add('[');
    if (depth === shape.length - 1) {
      if (columns! > strideElements) yield* writeRange(into, text, at, at + columns!);
      else if (columns! > 0) into.add(text(at, at + columns!));
      at += columns!;
    } else {
      for (let index = 0; index < shape[depth]!; index++) {
        if (index > 0) into.add(',');
        yield* write(depth + 1);
        if (index % 256 === 255) yield;
      }
    }
    into.add(']');
  }
  yield* write(0);
}

/**
 * Reads elements by ranges: if the bytes are not aligned, as is common in a frame, only one stride is copied at a time.
 */
function sourceOf(tensor: Tensor): ElementsText {
  switch (tensor.datatype) {
    case 'BYTES': {
      const texts = bytesElements(tensor);
      // Called in order, each element once.
      return (from, to) => {
        const parts: string[] = [];
        for (let index = from; index < to; index++) parts.push(textOf(tensor.name, index, texts.next().value));
        return parts.join();
      };
    }
    case 'BOOL':
      return (from, to) => Array.from(tensor.data.subarray(from, to), (element) => element !== 0).join();
    case 'FP16':
    case 'BF16': {
      const toNumber = tensor.datatype === 'FP16' ? fp16ToNumber : bf16ToNumber;
      return (from, to) => numbersText(Float64Array.from(elements(tensor, from, to) as Uint16Array, toNumber));
    }
    case 'FP32':
    case 'FP64':
      return (from, to) => numbersText(elements(tensor, from, to) as Float64Array);
    default:
      return (from, to) => elements(tensor, from, to).join();
  }
}

function numbersText(values: Float64Array): string {
  for (const value of values) {
    // NaN and infinities, and the zero whose sign String() drops.
    if (value - value !== 0 || (value === 0 && Object.is(value, -0))) return Array.from(values, numberText).join();
  }
  // Of an array of numbers JSON.stringify takes half the time of a typed array's join, for the same text.
  return JSON.stringify(Array.from(values)).slice(1, -1);
}

function numberText(value: number): string {
  if (!Number.isFinite(value)) return `"${value}"`;
  return Object.is(value, -0) ? '-0.0' : String(value);
}

function textOf(name: string, index: number, element: Uint8Array | void): string {
  if (element === undefined || !isUtf8(element)) {
    throw new TensorError(
      `tensor '${name}': element ${index} is not UTF-8, for which JSON has no form; ask for it as binary data`,
    );
  }
  return JSON.stringify(Buffer.from(element.buffer, element.byteOffset, element.byteLength).toString('utf8'));
}
