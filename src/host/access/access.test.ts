import { describe, expect, test } from 'vitest';
import { Access, type Asking } from './access.ts';
import { apiKeyEntry, apiKeysProblem, newApiKey, parseApiKeys, type Scope } from './api-keys.ts';
import type { HostError } from '../errors.ts';

const address = '192.0.2.7';
const withKey = (key: string, from = address): Asking => ({ authorization: `Bearer ${key}`, address: from });
const from = (other: string): Asking => ({ authorization: undefined, address: other });

function access(
  apiKeys: readonly string[],
  options: { apiKeysFor?: readonly Scope[]; perKey?: number; perAddress?: number; now?: () => number } = {},
): Access {
  const { apiKeysFor = ['publish'], perKey = 0, perAddress = 0, now = (): number => 0 } = options;
  return new Access({ apiKeys, apiKeysFor, rate: { perKey, perAddress } }, now);
}

/** Code of the refusal, and its Retry-After; undefined: it was admitted. */
function refusal(act: () => unknown): [string, number | undefined] | undefined {
  try {
    act();
    return undefined;
  } catch (error) {
    const { code, retryAfterS } = error as HostError;
    return [code, retryAfterS];
  }
}

describe('API keys', () => {
  const key = newApiKey();
  const entry = apiKeyEntry('ci', ['publish', 'read'], key);

  test('an entry holds the name, the scopes and a hash, and not the key', () => {
    expect(entry).toMatch(/^ci:publish\+read:sha256:[0-9a-f]{64}$/);
    expect(entry).not.toContain(key);
    expect(parseApiKeys([entry])).toMatchObject([{ name: 'ci', isPlain: false, scopes: new Set(['publish', 'read']) }]);
  });

  test('two generated keys share only their prefix', () => {
    expect(newApiKey()).not.toBe(newApiKey());
    expect(newApiKey()).toMatch(/^tt_[\w-]{43}$/);
  });

  test.each([
    ['ci:publish:sha256:12', 'key 1 is not NAME:SCOPES:sha256: and 64 lower-case hexadecimal digits'],
    [entry.replace('read', 'write'), "key 'ci' has the scope 'write', which is none of invoke, publish, read"],
  ])('an entry that is not right is refused without its text', (wrong, problem) => {
    expect(apiKeysProblem([wrong])).toBe(problem);
  });

  test('two entries of one name are refused, since the log could not tell them apart', () => {
    expect(apiKeysProblem([entry, apiKeyEntry('ci', ['read'], newApiKey())])).toBe("two keys have the name 'ci'");
  });

  test('a key opens what its scopes name, and nothing else', () => {
    const gate = access([entry], { apiKeysFor: ['invoke', 'read'] });
    expect(gate.admit('publish', withKey(key))).toBe('ci');
    expect(gate.admit('read', withKey(key))).toBe('ci');
    expect(() => gate.admit('invoke', withKey(key))).toThrow(
      "the API key 'ci' may not call functions: its scopes are publish and read",
    );
    expect(refusal(() => gate.admit('read', withKey(`${key}x`)))).toEqual(['unauthorized', undefined]);
    expect(refusal(() => gate.admit('read', from(address)))).toEqual(['unauthorized', undefined]);
    expect(gate.admit('open', from(address))).toBeUndefined();
  });

  test('if only publishing needs a key, anyone may call and read, and an unknown Authorization header is no failure', () => {
    const gate = access([entry]);
    expect(gate.admit('invoke', from(address))).toBeUndefined();
    expect(gate.admit('read', { authorization: 'Basic Zm9v', address })).toBeUndefined();
    expect(refusal(() => gate.admit('publish', { authorization: 'Basic Zm9v', address }))).toEqual([
      'unauthorized',
      undefined,
    ]);
  });

  test('a plain key has all scopes, and a number for a name', () => {
    const gate = access(['a-plain-key'], { apiKeysFor: ['invoke', 'read'] });
    for (const scope of ['invoke', 'publish', 'read'] as const)
      expect(gate.admit(scope, withKey('a-plain-key'))).toBe('key 1');
  });
});

describe('the limit of rate', () => {
  test('the limit of rate takes as many requests at once as it allows a second, then one each interval, and says when', () => {
    let nowMs = 0;
    const gate = access([], { perAddress: 4, now: () => nowMs });
    const ask = (): [string, number | undefined] | undefined => refusal(() => gate.admit('invoke', from(address)));
    expect([ask(), ask(), ask(), ask()]).toEqual([undefined, undefined, undefined, undefined]);
    expect(ask()).toEqual(['rate-limited', 1]);
    nowMs = 250;
    expect([ask(), ask()]).toEqual([undefined, ['rate-limited', 1]]);
    nowMs = 10_000;
    expect([ask(), ask(), ask(), ask(), ask()?.[0]]).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
      'rate-limited',
    ]);
  });

  test('the limit of rate counts each address apart', () => {
    const gate = access([], { perAddress: 1 });
    const ask = (other: string): boolean => refusal(() => gate.admit('read', from(other))) === undefined;
    expect([ask('192.0.2.1'), ask('192.0.2.2'), ask('192.0.2.1')]).toEqual([true, true, false]);
  });

  test('a key has its own limit from every address, and a wrong key counts for its address', () => {
    const [key, other] = [newApiKey(), newApiKey()];
    const entries = [apiKeyEntry('a', ['invoke'], key), apiKeyEntry('b', ['invoke'], other)];
    const gate = access(entries, { perKey: 2, perAddress: 1 });
    const ask = (asking: Asking): string | undefined => refusal(() => gate.admit('publish', asking))?.[0];
    expect([ask(withKey(key, '192.0.2.1')), ask(withKey(key, '192.0.2.2'))]).toEqual(['forbidden', 'forbidden']);
    expect([ask(withKey(key, '192.0.2.3')), ask(withKey(other, '192.0.2.3'))]).toEqual(['rate-limited', 'forbidden']);
    expect([ask(withKey('guess-one')), ask(withKey('guess-two'))]).toEqual(['unauthorized', 'rate-limited']);
  });

  test('the limit of rate does not count health checks', () => {
    const gate = access([], { perAddress: 1 });
    for (let each = 0; each < 10; each++) gate.admit('open', from(address));
    expect(gate.admit('read', from(address))).toBeUndefined();
  });
});
