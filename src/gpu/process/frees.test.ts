import { expect, test } from 'vitest';
import { Frees } from './frees.ts';

const settle = (): Promise<unknown> => new Promise((resolve) => setImmediate(resolve));

test('frees of a GPU come one after the other, and what follows waits for them, even where one fails', async () => {
  const frees = new Frees();
  const seen: string[] = [];
  const held: (() => void)[] = [];
  const free = (name: string, fails = false) =>
    frees.add(0, async () => {
      seen.push(`${name} begins`);
      await new Promise<void>((resolve) => held.push(resolve));
      if (fails) throw new Error(name);
      return 1;
    });
  const one = free('one', true).catch((error: Error) => error.message);
  const other = free('other');
  void frees.over(0).then(() => seen.push('a run'));
  await frees.over(1);
  await settle();
  expect(seen).toEqual(['one begins']);
  held[0]!();
  expect(await one).toBe('one');
  await settle();
  expect(seen).toEqual(['one begins', 'other begins']);
  held[1]!();
  expect(await other).toBe(1);
  await settle();
  expect(seen).toEqual(['one begins', 'other begins', 'a run']);
});
