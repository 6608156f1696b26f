import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { RequestTurns } from './in-flight.ts';

test('requests of a path that come at once are begun in their order, 32 in each turn of the event loop', async () => {
  const turns = new RequestTurns();
  const begun: number[] = [];
  for (let request = 0; request < 100; request++) turns.begin('/a', () => begun.push(request));
  const counts = [begun.length];
  while (begun.length < 100) {
    await nextTurn();
    counts.push(begun.length);
  }
  expect(counts).toEqual([32, 64, 96, 100]);
  expect(begun).toEqual(Array.from({ length: 100 }, (_, request) => request));
  // A single next one does not wait.
  await nextTurn();
  turns.begin('/a', () => begun.push(100));
  expect(begun.at(-1)).toBe(100);
});

test('a request that comes while others of its path wait is begun after them', async () => {
  const turns = new RequestTurns();
  const begun: number[] = [];
  for (let request = 0; request < 40; request++) turns.begin('/a', () => begun.push(request));
  await nextTurn();
  turns.begin('/a', () => begun.push(40));
  await nextTurn();
  expect(begun).toEqual(Array.from({ length: 41 }, (_, request) => request));
});

test('a request of another path is begun in the next turn, whatever waits', async () => {
  const turns = new RequestTurns();
  const begun: string[] = [];
  for (let request = 0; request < 1000; request++) turns.begin(`/flood?${request}`, () => begun.push('flood'));
  turns.begin('/quiet', () => begun.push('quiet'));
  await nextTurn();
  expect(begun).toHaveLength(64);
  expect(begun.indexOf('quiet')).toBe(33);
  while (begun.length < 1001) await nextTurn();
  expect(begun.filter((path) => path === 'flood')).toHaveLength(1000);
});
