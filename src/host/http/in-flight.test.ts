import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { RequestTurns } from './in-flight.ts';

test('requests that come at once are begun in their order, 32 in each turn of the event loop', async () => {
  const turns = new RequestTurns();
  const begun: number[] = [];
  for (let request = 0; request < 100; request++) turns.begin(() => begun.push(request));
  const counts = [begun.length];
  while (begun.length < 100) {
    await nextTurn();
    counts.push(begun.length);
  }
  expect(counts).toEqual([32, 64, 96, 100]);
  expect(begun).toEqual(Array.from({ length: 100 }, (_, request) => request));
  // The next one, by itself, waits for nobody.
  await nextTurn();
  turns.begin(() => begun.push(100));
  expect(begun.at(-1)).toBe(100);
});

test('one that comes while others wait is begun after them', async () => {
  const turns = new RequestTurns();
  const begun: number[] = [];
  for (let request = 0; request < 40; request++) turns.begin(() => begun.push(request));
  await nextTurn();
  turns.begin(() => begun.push(40));
  await nextTurn();
  expect(begun).toEqual(Array.from({ length: 41 }, (_, request) => request));
});
