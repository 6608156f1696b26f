/** Requests between hosts: from whom, to whom, how often, and when they are accepted. */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Seal } from './seal.ts';

const minuteMs = 60_000;
const request = { to: 'b:1', method: 'POST', path: '/v2/fleet/content' };
const body = Buffer.from('{}');
const [mine, theirs] = [new Seal('lab', 'a secret of the fleet'), new Seal('lab', 'a secret of the fleet')];
const header = (nowMs: number): string => mine.authorization('a:1', request, [body], nowMs);

test('a signed request tells who sent it and the hash of its body', () => {
  const bodySha256 = createHash('sha256').update(body).digest('hex');
  expect(theirs.sender(header(1000), request, 1000, 0)).toEqual({ from: 'a:1', bodySha256 });
});

test('two equal requests at the same moment are both accepted, each of them once', () => {
  const [one, other] = [header(1000), header(1000)];
  expect(theirs.sender(one, request, 1000, 0)).toMatchObject({ from: 'a:1' });
  expect(theirs.sender(other, request, 1000, 0)).toMatchObject({ from: 'a:1' });
  expect(theirs.sender(one, request, 1001, 0)).toEqual({ refused: 'it has come before' });
});

test('a signature is not accepted twice while it is valid', () => {
  // Accepted at the last moment: with two generations of memory it is still known at the end.
  for (const laterMs of [1, minuteMs / 2, minuteMs, 2 * minuteMs]) {
    const seal = new Seal('lab', 'a secret of the fleet');
    const signedMs = 10 * minuteMs;
    const early = header(signedMs);
    expect(seal.sender(early, request, signedMs - minuteMs, 0)).toMatchObject({ from: 'a:1' });
    for (let nowMs = signedMs - minuteMs; nowMs < signedMs - minuteMs + laterMs; nowMs += minuteMs / 4) {
      seal.sender(header(nowMs), request, nowMs, 0);
    }
    expect(seal.sender(early, request, signedMs - minuteMs + laterMs, 0)).toEqual({ refused: 'it has come before' });
  }
  expect(theirs.sender(header(0), request, minuteMs + 1, 0)).toEqual({ refused: 'it was signed too long ago' });
});

test('a process that has started again refuses each request that an earlier one may have accepted', () => {
  fc.assert(
    fc.property(fc.integer({ min: 0, max: minuteMs }), fc.integer({ min: 0, max: minuteMs }), (signedMs, laterMs) => {
      const [before, after] = [new Seal('lab', 'a secret of the fleet'), new Seal('lab', 'a secret of the fleet')];
      const signed = header(signedMs);
      const endMs = signedMs + laterMs;
      expect(before.sender(signed, request, endMs, 0)).toMatchObject({ from: 'a:1' });
      const refused = 'it was signed before this host started: send it again';
      expect(after.sender(signed, request, endMs, endMs + 1)).toEqual({ refused });
      expect(after.sender(header(endMs + 1), request, endMs + 1, endMs + 1)).toMatchObject({ from: 'a:1' });
    }),
  );
});

test('a signature is valid for one host, method and path', () => {
  const others = [{ to: 'c:1' }, { method: 'GET' }, { path: '/v2/fleet/content?x' }];
  for (const other of others) {
    expect(theirs.sender(header(1000), { ...request, ...other }, 1000, 0)).toHaveProperty('refused');
  }
  expect(theirs.sender(header(1000).replace('a%3A1', 'd%3A1'), request, 1000, 0)).toHaveProperty('refused');
  expect(new Seal('lab', 'another secret').sender(header(1000), request, 1000, 0)).toHaveProperty('refused');
});
