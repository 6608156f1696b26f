/** The body of Triton's load request: `config` overrides settings, `file:` parameters contain the model itself. */
import { Readable } from 'node:stream';
import type { JsonForm, JsonText, Steps } from '../../tensor/index.ts';
import { HostError } from '../errors.ts';
import { isObject, parseJson, parseTensorJson, withoutNulls } from '../infer/json-body.ts';
import type { SettingsOverride } from '../types.ts';

export interface LoadRequest {
  readonly override: SettingsOverride | undefined;
  readonly files: readonly LoadFile[];
}

export interface LoadFile {
  /** The folder in Triton's repository: its version. */
  readonly version: string;
  /** Inside of that. */
  readonly path: string;
  /** Its bytes, piece by piece. */
  readonly content: () => AsyncIterable<Uint8Array>;
}

const form: JsonForm = { members: new Map([['parameters', { values: 'tensor' }]]) };

/** @throws HostError 'bad-json' | 'bad-request' */
export function* readLoadRequest(body: Buffer, name: string): Steps<LoadRequest> {
  if (body.byteLength === 0) return { override: undefined, files: [] };
  const request = yield* parseTensorJson(body, 'the body', form);
  if (!isObject(request)) throw new HostError('bad-json', 'the body is JSON, but not an object');
  const { parameters } = request;
  if (!(parameters instanceof Map)) return { override: undefined, files: [] };
  return requestIn(parameters as Map<string, JsonText>, name, textOf, decoded);
}

/** The same from parameters with unescaped values, as in gRPC. @throws HostError 'bad-request' */
export function loadRequestOf(parameters: ReadonlyMap<string, string | Buffer>, name: string): LoadRequest {
  return requestIn(parameters, name, String, (content) => Readable.from([Buffer.from(content)]));
}

function requestIn<Content>(
  parameters: ReadonlyMap<string, Content>,
  name: string,
  text: (content: Content, key: string) => string,
  bytes: (content: Content, path: string) => AsyncIterable<Uint8Array>,
): LoadRequest {
  let override: SettingsOverride | undefined;
  const files: LoadFile[] = [];
  for (const [key, content] of parameters) {
    if (key === 'config') override = readConfig(text(content, key), name);
    else if (key.startsWith('file:')) files.push(fileOf(key, (path) => bytes(content, path)));
  }
  if (files.length > 0 && override === undefined) {
    throw refused(name, "the parameters bring files without 'config', which Triton's protocol asks for with them");
  }
  return { override, files };
}

function fileOf(key: string, bytes: (path: string) => AsyncIterable<Uint8Array>): LoadFile {
  const [, version, path] = /^file:([^/]+)\/(.+)$/.exec(key) ?? [];
  if (version === undefined || path === undefined) {
    throw new HostError('bad-request', `the parameter '${key.slice(0, 80)}' is not of the form file:<version>/<file>`);
  }
  return { version, path, content: () => bytes(path) };
}

/** The bytes of a JSON string of base64, decoded piece by piece. */
async function* decoded(content: JsonText, path: string): AsyncGenerator<Uint8Array> {
  const { bytes, start, end } = content;
  if (bytes[start] !== 0x22) throw new HostError('bad-request', `the content of '${path.slice(0, 80)}' is no string`);
  // Four characters make three bytes. Slashes may be escaped; the escapes are removed first.
  const isEscaped = bytes.subarray(start, end).includes(0x5c);
  const text = isEscaped ? Buffer.from(JSON.parse(bytes.toString('utf8', start, end)) as string) : bytes;
  const [from, to] = isEscaped ? [0, text.byteLength] : [start + 1, end - 1];
  const pieceCharacters = 4 * 256 * 1024;
  for (let at = from; at < to; at += pieceCharacters) {
    const piece = text.toString('latin1', at, Math.min(to, at + pieceCharacters));
    if (!/^[A-Za-z0-9+/]*={0,2}$/.test(piece)) {
      throw new HostError('bad-request', `the content of '${path.slice(0, 80)}' is not base64`);
    }
    yield Buffer.from(piece, 'base64');
    await new Promise(setImmediate);
  }
}

function textOf(text: JsonText, key: string): string {
  const value = parseJson(text.bytes.subarray(text.start, text.end), `the parameter '${key}'`);
  if (typeof value !== 'string') throw new HostError('bad-request', `the parameter '${key}' is not a string`);
  return value;
}

/**
 * The fields of Triton's model configuration that apply here; the others describe the model, which describes itself.
 */
function readConfig(text: string, name: string): SettingsOverride {
  let config: unknown;
  try {
    config = withoutNulls(JSON.parse(text) as unknown);
  } catch {
    throw refused(name, "the parameter 'config' is not JSON");
  }
  if (!isObject(config)) throw refused(name, "the parameter 'config' is not a JSON object");
  const {
    name: named,
    platform,
    backend,
    max_batch_size: rows,
    dynamic_batching: batching,
    instance_group: groups,
  } = config;
  if (named !== undefined && named !== '' && named !== name) throw refused(name, `its config names '${shown(named)}'`);
  for (const [field, value, own] of [
    ['platform', platform, 'onnxruntime_onnx'],
    ['backend', backend, 'onnxruntime'],
  ] as const) {
    if (value !== undefined && value !== '' && value !== own)
      throw refused(name, `its ${field} '${shown(value)}' is not '${own}'`);
  }
  const rowsMax = wholeNumber(name, 'max_batch_size', rows, 0);
  const delayUs = isObject(batching)
    ? wholeNumber(name, 'dynamic_batching.max_queue_delay_microseconds', batching['max_queue_delay_microseconds'], 0)
    : undefined;
  const [group] = Array.isArray(groups) ? (groups as unknown[]) : [];
  const instances = isObject(group) ? wholeNumber(name, 'instance_group.count', group['count'], 1) : undefined;
  return {
    ...(rowsMax === undefined || rowsMax === 0 ? {} : { rowsMax }),
    ...(isObject(batching)
      ? { batchMax: Math.min(4096, Math.max(1, rowsMax ?? 1)), delayMs: (delayUs ?? 0) / 1000 }
      : {}),
    ...(instances === undefined ? {} : { instancesMax: Math.min(4096, instances) }),
  };
}

/** Protobuf's JSON writes 64-bit numbers as strings, and so do its users. */
function wholeNumber(name: string, field: string, value: unknown, least: number): number | undefined {
  if (value === undefined) return undefined;
  const number = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number) && number >= least && number < 2 ** 31) return number;
  throw refused(name, `its ${field} ${JSON.stringify(value).slice(0, 40)} is not a whole number of at least ${least}`);
}

/** In the words that Triton's clients look for. */
function refused(name: string, reason: string): HostError {
  return new HostError('bad-request', `failed to load '${name.slice(0, 80)}': ${reason}`);
}

function shown(value: unknown): string {
  return (typeof value === 'string' ? value : JSON.stringify(value)).slice(0, 80);
}
