import { expect, test } from 'vitest';
import { SpentBuffers } from '../../tensor/index.ts';
import { Rechecks } from './rechecks.ts';

const call = (key: string) => ({ key, inputs: [], outputs: [] });

test('about one call in `every` is checked, and none while another check runs', async () => {
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

test('a later call is checked after a check has failed', async () => {
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

test('with `every` 0 no call is checked', () => {
  const rechecks = new Rechecks({
    every: 0,
    random: () => 0,
    check: () => Promise.reject(new Error('it was checked')),
  });
  expect(() => rechecks.consider(call('a'))).not.toThrow();
});

test('what a check reads is not freed with its call; what no check reads is', async () => {
  const finish: (() => void)[] = [];
  const rechecks = new Rechecks({ every: 1, check: () => new Promise((resolve) => void finish.push(resolve)) });
  const [checked, other] = [0, 1].map(() => ({
    name: 'x',
    datatype: 'UINT8' as const,
    shape: [1e5],
    data: Buffer.allocUnsafeSlow(1e5),
  }));
  for (const tensor of [checked!, other!]) rechecks.consider({ key: 'a', inputs: [tensor], outputs: [] });
  const spent = new SpentBuffers();
  spent.addOwn(checked!.data, other!.data);
  spent.free();
  expect([checked!.data.byteLength, other!.data.byteLength]).toEqual([1e5, 0]);
  finish.pop()?.();
  await rechecks.settled();
});
