/** Parses JSON from clients. A member that is `null` counts as left out, as clients generated from a schema send it. */
import { isUtf8 } from 'node:buffer';
import { JsonText, parseDocument, type JsonForm, type Steps } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';

/**
 * Parses UTF-8 JSON, with or without a byte order mark, {@link withoutNulls}. Deep nesting does not overflow the stack
 * (V8's parser keeps its own).
 * @param what names the bytes in the message: 'the body', 'the inference header'
 * @throws HostError 'bad-json'
 */
export function parseJson(bytes: Buffer, what: string): unknown {
  return withoutNulls(parseWithNulls(bytes, what));
}

function parseWithNulls(bytes: Buffer, what: string): unknown {
  const start = startOf(bytes, what);
  try {
    return JSON.parse(bytes.toString('utf8', start)) as unknown;
  } catch (error) {
    throw notJson(what, error);
  }
}

/**
 * Parses UTF-8 JSON with tensors at the places in `form`, {@link withoutNulls}; the tensors stay text.
 * @throws HostError 'bad-json'
 */
export function* parseTensorJson(bytes: Buffer, what: string, form: JsonForm): Steps<unknown> {
  const start = startOf(bytes, what);
  try {
    return withoutNulls(yield* parseDocument(bytes, form, start));
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
  return objectOf(parseJson(bytes, what), what);
}

/** {@link parseJsonObject} for a change of what is set, where `null` takes a setting back. */
export function parseJsonChange(bytes: Buffer, what: string): Record<string, unknown> {
  return objectOf(parseWithNulls(bytes, what), what);
}

function objectOf(parsed: unknown, what: string): Record<string, unknown> {
  if (!isObject(parsed)) throw new HostError('bad-json', `${what} is JSON, but not an object`);
  return parsed;
}

/** Takes the members that are `null` out of every object in `value`. Elements of arrays stay, and so does text. */
export function withoutNulls<Value>(value: Value): Value {
  // Not by recursion: a client may nest deeper than the stack.
  const open: unknown[] = [value];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (next instanceof Map) {
      for (const [key, member] of next) {
        if (isNull(member)) next.delete(key);
        else if (typeof member === 'object') open.push(member);
      }
    } else if (isObject(next) && !(next instanceof JsonText)) {
      for (const key of Object.keys(next)) {
        const member = next[key];
        if (isNull(member)) delete next[key];
        else if (typeof member === 'object') open.push(member);
      }
    } else if (Array.isArray(next)) {
      for (const item of next) if (typeof item === 'object' && item !== null) open.push(item);
    }
  }
  return value;
}

const isNull = (value: unknown): boolean => value === null || (value instanceof JsonText && textIs('null', value));

const textIs = (text: string, { bytes, start, end }: JsonText): boolean =>
  end - start === text.length && bytes.toString('latin1', start, end) === text;
