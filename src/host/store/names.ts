/** Rules for names that become folders on disk and parts of URLs. */
import { HostError } from '../errors.ts';

/** Every name that Triton and MLServer take and that is one folder; not hidden, and no flag of a command. */
const namePattern = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const versionPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
/** Fifteen digits are exact as a number; sixteen might not be. */
const integerVersionPattern = /^(?:0|[1-9][0-9]{0,14})$/;
const sha256Pattern = /^[0-9a-f]{64}$/;

/** The model file of every upload. */
export const uploadedModel = 'model.onnx';

/** The compiled handler of a version that brings one. Only who may write to the store puts it there, never an upload. */
export const handlerFile = '.handler.mjs';

export function isFunctionName(name: string): boolean {
  return namePattern.test(name);
}

export function isVersion(version: string): boolean {
  return versionPattern.test(version);
}

export function isSha256(text: string): boolean {
  return sha256Pattern.test(text);
}

/** The sentence that refuses a name. */
export function notFunctionName(name: string): string {
  return `${quoted(name)} is not a function name: 1 to 128 letters, digits, '.', '_' or '-', starting with a letter, digit or '_'`;
}

/** Throws HostError 'bad-name'. */
export function checkFunctionName(name: string): void {
  if (isFunctionName(name)) return;
  throw new HostError('bad-name', notFunctionName(name));
}

/** Throws HostError 'bad-name'. */
export function checkVersion(version: string): void {
  if (isVersion(version)) return;
  throw new HostError(
    'bad-name',
    `${quoted(version)} is not a version: 1 to 64 letters, digits, '.', '_' or '-', starting with a letter or digit`,
  );
}

export function unknownVersion(name: string, version: string): HostError {
  return new HostError('unknown-version', `function '${name}' has no version ${quoted(version)}`);
}

export function unknownFunction(name: string): HostError {
  return new HostError('unknown-function', `no function '${name}' is registered`);
}

/** Throws HostError 'bad-request'. */
export function checkSha256(sha256: string): void {
  if (isSha256(sha256)) return;
  throw new HostError('bad-request', `${quoted(sha256)} is not a sha256: 64 lower-case hexadecimal digits`);
}

/**
 * Checks the name of an uploaded file: a relative path that stays below the model's folder, and has only one spelling,
 * so that two names are never one file. Throws HostError 'bad-request'.
 */
export function checkFilename(filename: string): void {
  const reason = filenameProblem(filename);
  if (reason !== undefined) throw new HostError('bad-request', `the file name ${quoted(filename)} ${reason}`);
}

function filenameProblem(filename: string): string | undefined {
  if (filename === '' || Buffer.byteLength(filename) > 1024) return 'is empty or longer than 1024 bytes';
  // eslint-disable-next-line no-control-regex -- control characters are what is looked for
  if (/[\u0000-\u001f\u007f\\]/.test(filename)) return 'has a backslash or control character';
  if (filename.startsWith('/')) return 'is absolute; it must be relative to the model';
  const parts = filename.split('/');
  if (parts.some((part) => part === '' || part === '.' || part === '..')) {
    return "has an empty, '.' or '..' part; it must stay in the model's folder";
  }
  if (filename.toLowerCase() === handlerFile) return "is the store's own: an upload brings no handler";
  if (parts.some((part) => Buffer.byteLength(part) > 255)) return 'has a part longer than 255 bytes';
  return undefined;
}

/** 1 + the highest version that is a whole number of up to fifteen digits; '1' without one. Never one of `versions`. */
export function nextVersion(versions: Iterable<string>): string {
  const taken = new Set(versions);
  let highest = 0;
  for (const version of taken) {
    if (integerVersionPattern.test(version)) highest = Math.max(highest, Number(version));
  }
  // Assigned numbers beyond fifteen digits do not count as the highest.
  let next = highest + 1;
  while (taken.has(String(next))) next++;
  return String(next);
}

/** Text from a sender for an error message: escaped and at most a line long. */
export function quoted(text: string): string {
  const shown = text.length > 80 ? `${text.slice(0, 77)}...` : text;
  return `'${JSON.stringify(shown).slice(1, -1)}'`;
}
