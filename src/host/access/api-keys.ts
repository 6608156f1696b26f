/**
 * API keys in the configuration. An entry is `NAME:SCOPES:sha256:HEX`, such as `ci:publish+read:sha256:9f86d0...`, so
 * that the file does not contain the key. `turntable key` makes both. A plain key is accepted too and has all scopes.
 */
import { createHash, randomBytes, timingSafeEqual } from 'node:crypto';

/**
 * invoke: call functions; publish: change what is served; read: everything else, including metrics and the dashboard.
 */
export const scopes = ['invoke', 'publish', 'read'] as const;
export type Scope = (typeof scopes)[number];

export interface ApiKey {
  /** For the log. */
  readonly name: string;
  readonly scopes: ReadonlySet<Scope>;
  readonly digest: Buffer;
  readonly isPlain: boolean;
}

const entryForm = /^([A-Za-z0-9][A-Za-z0-9_.-]{0,63}):([a-z+]+):sha256:([0-9a-f]{64})$/;

/**
 * Reads entries of `apiKeys`.
 *
 * @throws RangeError with a sentence that names the entry by its name or number, never by its text
 */
export function parseApiKeys(entries: readonly string[]): ApiKey[] {
  const keys = entries.map((entry, index) => parseEntry(entry, `key ${index + 1}`));
  const twice = keys.find(({ name }, index) => keys.findIndex((other) => other.name === name) < index);
  if (twice !== undefined) throw new RangeError(`two keys have the name '${twice.name}'`);
  return keys;
}

/** Why {@link parseApiKeys} would refuse them. */
export function apiKeysProblem(entries: readonly string[]): string | undefined {
  try {
    parseApiKeys(entries);
    return undefined;
  } catch (error) {
    return (error as RangeError).message;
  }
}

function parseEntry(entry: string, number: string): ApiKey {
  const [, name, listed, hex] = entryForm.exec(entry) ?? [];
  if (name !== undefined && listed !== undefined && hex !== undefined) {
    return { name, scopes: new Set(parseScopes(listed, name)), digest: Buffer.from(hex, 'hex'), isPlain: false };
  }
  if (entry.includes(':sha256:')) {
    throw new RangeError(`${number} is not NAME:SCOPES:sha256: and 64 lower-case hexadecimal digits`);
  }
  return { name: number, scopes: new Set(scopes), digest: digestOf(entry), isPlain: true };
}

/** @param text such as `publish+read` */
function parseScopes(text: string, name: string): Scope[] {
  return text.split('+').map((each) => {
    const scope = scopes.find((known) => known === each);
    if (scope === undefined) {
      throw new RangeError(`key '${name}' has the scope '${each.slice(0, 20)}', which is none of ${scopes.join(', ')}`);
    }
    return scope;
  });
}

/** The key with this text. All keys are compared, so that the time reveals neither a prefix nor which key matched. */
export function findApiKey(keys: readonly ApiKey[], text: string): ApiKey | undefined {
  const given = digestOf(text);
  let found: ApiKey | undefined;
  for (const key of keys) if (timingSafeEqual(key.digest, given)) found = key;
  return found;
}

/** A new key of 256 random bits: with that many, a plain SHA-256 of it reveals nothing. */
export function newApiKey(): string {
  return `tt_${randomBytes(32).toString('base64url')}`;
}

/**
 * The entry of `apiKeys` for this key.
 *
 * @throws RangeError if the name or a scope is not allowed
 */
export function apiKeyEntry(name: string, granted: readonly string[], key: string): string {
  const entry = `${name}:${granted.join('+')}:sha256:${digestOf(key).toString('hex')}`;
  if (!entryForm.test(entry)) {
    throw new RangeError(
      `the name '${name.slice(0, 80)}' is not made of at most 64 letters, digits, dots, dashes and underscores`,
    );
  }
  parseApiKeys([entry]);
  return entry;
}

function digestOf(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
