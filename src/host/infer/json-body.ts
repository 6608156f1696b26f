/** JSON that a client sent. */
import { isUtf8 } from 'node:buffer';
import { parseDocument, type JsonForm, type Steps } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';

/**
 * Parses UTF-8 JSON, with or without a byte order mark. However deep it is nested, parsing does not overflow the stack
 * (V8's parser keeps its own).
 *
 * @param what how the bytes are called in the message: 'the body', 'the inference header'
 * @throws HostError 'bad-json'
 */
export function parseJson(bytes: Buffer, what: string): unknown {
  const start = startOf(bytes, what);
  try {
    return JSON.parse(bytes.toString('utf8', start)) as unknown;
  } catch (error) {
    throw notJson(what, error);
  }
}

/**
 * Parses UTF-8 JSON in which tensors stand where `form` says; they stay text.
 *
 * @throws HostError 'bad-json'
 */
export function* parseTensorJson(bytes: Buffer, what: string, form: JsonForm): Steps<unknown> {
  const start = startOf(bytes, what);
  try {
    return yield* parseDocument(bytes, form, start);
  } catch (error) {
    throw notJson(what, error);
  }
}

/** Where the text begins. */
function startOf(bytes: Buffer, what: string): number {
  const start = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  if (bytes.byteLength === start) throw new HostError('bad-json', `${what} is empty, where JSON is expected`);
  if (!isUtf8(bytes)) throw new HostError('bad-json', `${what} is not UTF-8`);
  return start;
}

/** What a parser threw, as the client is told it; anything but a SyntaxError stays what it is. */
export function notJson(what: string, error: unknown): unknown {
  if (!(error instanceof SyntaxError)) return error;
  const reason = error.message.replaceAll(/\s+/g, ' ').slice(0, 160);
  return new HostError('bad-json', `${what} is not JSON: ${reason}`, { cause: error });
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Map);
}

/** {@link parseJson}, where only an object will do. */
export function parseJsonObject(bytes: Buffer, what: string): Record<string, unknown> {
  const parsed = parseJson(bytes, what);
  if (!isObject(parsed)) throw new HostError('bad-json', `${what} is JSON, but not an object`);
  return parsed;
}
