import { describe, expect, test } from 'vitest';
import { Gathering } from './gathering.ts';

describe.each([undefined, 3_000_000])('a body of 3 MB in 30 pieces, %s announced', (expected) => {
  const gathered = () => {
    let held = expected ?? 0;
    const gathering = new Gathering('the body', 64e6, expected, { grow: (bytes) => (held += bytes) });
    for (let piece = 0; piece < 30; piece++) gathering.add(Buffer.alloc(100_000, piece));
    return { gathering, held: () => held };
  };

  test('is whole, and counts as held once', () => {
    const { gathering, held } = gathered();
    const whole = gathering.whole();
    expect(held()).toBe(3_000_000);
    expect(whole.equals(Buffer.concat(Array.from({ length: 30 }, (_, piece) => Buffer.alloc(100_000, piece))))).toBe(
      true,
    );
    gathering.drop();
    expect(whole.byteLength).toBe(3_000_000);
    expect(held()).toBe(3_000_000);
  });

  test('is freed at once when it is dropped', () => {
    const { gathering, held } = gathered();
    const before = process.memoryUsage().arrayBuffers;
    gathering.drop();
    expect(process.memoryUsage().arrayBuffers).toBeLessThanOrEqual(before - 3_000_000);
    expect(held()).toBe(expected ?? 0);
  });
});

test('a piece that arrived is not freed with the rest: it may share its memory', () => {
  const arrived = Buffer.alloc(1000, 1);
  const gathering = new Gathering('the body', 1e6, undefined, { grow: () => undefined });
  gathering.add(arrived.subarray(0, 500));
  gathering.drop();
  expect(arrived.byteLength).toBe(1000);
});

test('a spent piece is freed as soon as it is copied', () => {
  const gathering = new Gathering('the body', 64e6, undefined, { grow: () => undefined });
  gathering.add(Buffer.alloc(5));
  const pieces = Array.from({ length: 30 }, (_, piece) => Buffer.alloc(100_000, piece));
  const expected = Buffer.concat([Buffer.alloc(5), ...pieces]);
  for (const piece of pieces) gathering.add(piece, true);
  expect(pieces.map(({ byteLength }) => byteLength)).toEqual(pieces.map(() => 0));
  expect(gathering.whole().equals(expected)).toBe(true);
});
