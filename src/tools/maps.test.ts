import { describe, expect, it } from 'vitest';
import { append, getOrMake, SharedValues } from './maps.ts';

describe('maps', () => {
  it('a value is made once, and a list grows by its key', () => {
    const made = new Map<string, number[]>();
    expect(getOrMake(made, 'a', () => [1])).toBe(getOrMake(made, 'a', () => [2]));
    append(made, 'a', 3);
    append(made, 'b', 4);
    expect([...made]).toEqual([
      ['a', [1, 3]],
      ['b', [4]],
    ]);
  });

  it('users share a value until the last one leaves, and a failed value is made again', async () => {
    const shared = new SharedValues<number>();
    let makings = 0;
    const make = (): Promise<number> => Promise.resolve(++makings);
    await expect(shared.take('a', () => Promise.reject(new Error('not now')))).rejects.toThrow('not now');
    expect(await Promise.all([shared.take('a', make), shared.take('a', make)])).toEqual([1, 1]);
    expect([shared.leave('a'), await shared.leave('a'), shared.leave('a')]).toEqual([undefined, 1, undefined]);
    expect(await shared.take('a', make)).toBe(2);
  });
});
