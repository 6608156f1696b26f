import { expect, test } from 'vitest';
import { Rechecks } from './rechecks.ts';

const call = (key: string) => ({ key, inputs: [], outputs: [] });

test('one call of so many is checked, and none while another is', async () => {
  const checked: string[] = [];
  const draws = [0.5, 0.05, 0.01, 0.02, 0.99];
  const finish: (() => void)[] = [];
  const rechecks = new Rechecks({
    every: 10,
    random: () => draws.shift()!,
    check: async ({ key }) => {
      checked.push(key);
      await new Promise<void>((resolve) => void finish.push(resolve));
    },
  });
  for (const key of ['a', 'b', 'c']) rechecks.consider(call(key));
  expect(checked).toEqual(['b']);
  finish.pop()?.();
  await rechecks.settled();
  for (const key of ['d', 'e']) rechecks.consider(call(key));
  expect(checked).toEqual(['b', 'd']);
});

test('a check that fails holds up no later one', async () => {
  let count = 0;
  const rechecks = new Rechecks({
    every: 1,
    check: async () => {
      count++;
      await Promise.reject(new Error('the GPU process died'));
    },
  });
  rechecks.consider(call('a'));
  await rechecks.settled();
  rechecks.consider(call('b'));
  await rechecks.settled();
  expect(count).toBe(2);
});

test('a share of 0 checks nothing', () => {
  const rechecks = new Rechecks({
    every: 0,
    random: () => 0,
    check: () => Promise.reject(new Error('it was checked')),
  });
  expect(() => rechecks.consider(call('a'))).not.toThrow();
});
