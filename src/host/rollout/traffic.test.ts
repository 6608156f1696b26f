import { describe, expect, test } from 'vitest';
import { allTo, divided, moved, parseTraffic, primaryOf, versionFor, withoutVersion, type Traffic } from './traffic.ts';

const split = (one: number, two: number, more: Partial<Traffic> = {}): Traffic => ({
  ...allTo('1'),
  shares: [
    { version: '1', percent: one },
    { version: '2', percent: two },
  ],
  ...more,
});
const noHeaders = (): undefined => undefined;

describe('dividing calls', () => {
  test('dividing calls gives each version its share of any 100 calls in a row, to one call', () => {
    const traffic = split(90, 10);
    for (const start of [0, 37, 1000, 123_456]) {
      let second = 0;
      for (let call = start; call < start + 100; call++) {
        if (versionFor(traffic, 'f', noHeaders, call) === '2') second++;
      }
      expect(Math.abs(second - 10)).toBeLessThanOrEqual(1);
    }
  });

  test('dividing calls sends the same key to the same version, and a growing share keeps the keys that it has', () => {
    const before = split(90, 10, { key: 'x-user' });
    const after = split(70, 30, { key: 'x-user' });
    let [few, more, lost] = [0, 0, 0];
    for (let user = 0; user < 2000; user++) {
      const headerOf = (name: string): string | undefined => (name === 'x-user' ? `user ${user}` : undefined);
      const version = versionFor(before, 'f', headerOf, user);
      expect(versionFor(before, 'f', headerOf, user + 1)).toBe(version);
      const later = versionFor(after, 'f', headerOf, 0);
      if (version === '2') few++;
      if (later === '2') more++;
      if (version === '2' && later !== '2') lost++;
    }
    expect(lost).toBe(0);
    expect([few / 20, more / 20].map(Math.round)).toEqual([9, 29]);
  });
});

describe('a version that leaves', () => {
  test('a version that leaves leaves its share to the others in their proportion', () => {
    const shares = [
      { version: '1', percent: 60 },
      { version: '2', percent: 20 },
      { version: '3', percent: 20 },
    ];
    const left = withoutVersion({ ...allTo('1'), shares, before: '3' }, '3');
    expect(left?.before).toBeUndefined();
    expect(left?.shares).toEqual([
      { version: '1', percent: 75 },
      { version: '2', percent: 25 },
    ]);
    expect(withoutVersion(allTo('1'), '1')).toBeUndefined();
  });

  test('a version that leaves gives its share back to the version that it came from', () => {
    expect(moved(split(90, 10), '2', '1').shares).toEqual([{ version: '1', percent: 100 }]);
    expect(moved(allTo('2'), '2', '1').shares).toEqual([{ version: '1', percent: 100 }]);
  });

  test('the version that served most before is remembered when another one does', () => {
    expect(divided(allTo('1'), { shares: split(50, 50).shares }).before).toBeUndefined();
    expect(divided(split(50, 50), allTo('2')).before).toBe('1');
    expect(primaryOf(split(50, 50))).toBe('1');
  });
});

describe('the body of a change', () => {
  test('the body of a change keeps what it leaves out', () => {
    const now = split(90, 10, { key: 'x-user' });
    expect(parseTraffic({ key: null }, now)).toEqual({ ...now, key: undefined });
    expect(parseTraffic({ shares: { 1: 100, 2: 0 } }, now)).toEqual({ ...now, shares: allTo('1').shares });
    expect(parseTraffic({ shadow: null, headers: null }, now)).toEqual(now);
  });

  test.each([
    [{ share: {} }, "unknown field 'share'"],
    [{ shares: { 1: 50, 2: 40 } }, 'the shares add up to 90, but must make 100'],
    [{ shares: { 1: 150, 2: -50 } }, 'the share 150 is not a percentage from 0 to 100'],
    [{ shares: [90, 10] }, '\'shares\' is not an object such as {"1": 90, "2": 10}'],
    [{ key: 'x user' }, "'key' is not the name of a header"],
    [{ headers: [] }, "'headers' is gone: no header's value chooses a version any more. Call the version alone"],
    [
      { shadow: { version: '2', percent: 10 } },
      "'shadow' is gone: calls are no longer copied to a version. Give the version a small share",
    ],
    [{ fallback: 1 }, "'fallback' is not true or false"],
  ])('%j is refused by name', (body, sentence) => {
    expect(() => parseTraffic(body, allTo('1'))).toThrow(sentence);
  });
});
