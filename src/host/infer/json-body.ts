/** Parses JSON from clients. */
import { isUtf8 } from 'node:buffer';
import { parseDocument, type JsonForm, type Steps } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';

/**
 * Parses UTF-8 JSON, with or without a byte order mark. Deep nesting does not overflow the stack (V8's parser keeps its
 * own).
 * @param what names the bytes in the message: 'the body', 'the inference header'
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
 * Parses UTF-8 JSON with tensors at the places in `form`; the tensors stay text.
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

/** Offset of the text, after the byte order mark. */
function startOf(bytes: Buffer, what: string): number {
  const start = bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf ? 3 : 0;
  if (bytes.byteLength === start) throw new HostError('bad-json', `${what} is empty, where JSON is expected`);
  if (!isUtf8(bytes)) throw new HostError('bad-json', `${what} is not UTF-8`);
  return start;
}

/** A parser's SyntaxError as an error for the client; other errors stay as they are. */
export function notJson(what: string, error: unknown): unknown {
  if (!(error instanceof SyntaxError)) return error;
  const reason = error.message.replaceAll(/\s+/g, ' ').slice(0, 160);
  return new HostError('bad-json', `${what} is not JSON: ${reason}`, { cause: error });
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Map);
}

/** {@link parseJson} that refuses anything but an object. */
export function parseJsonObject(bytes: Buffer, what: string): Record<string, unknown> {
  const parsed = parseJson(bytes, what);
  if (!isObject(parsed)) throw new HostError('bad-json', `${what} is JSON, but not an object`);
  return parsed;
}
