import { expect, test } from 'vitest';
import { Popularity } from './learnt.ts';

test('counts and values derived from them keep their proportions however long they are kept', () => {
  const popularity = new Popularity();
  popularity.grow(2);
  let kept = 0;
  popularity.onScale((factor) => (kept *= factor));
  popularity.use(0);
  kept = popularity.count(0);
  const ratios: number[] = [];
  // One use in four is of the second; a use counts twice as much after 16 arrivals, so this is far beyond any number.
  for (let arrival = 0; arrival < 40_000; arrival++) {
    popularity.use(arrival % 4 === 3 ? 1 : 0);
    if (arrival % 4 === 3) ratios.push(popularity.count(0) / popularity.count(1));
  }
  expect(Number.isFinite(popularity.count(0))).toBe(true);
  // Three uses, of which the last is one arrival older than the other's.
  const step = 2 ** (1 / 16);
  const expected = 1 / step + 1 / step ** 2 + 1 / step ** 3;
  for (const ratio of ratios.slice(100)) expect(ratio).toBeCloseTo(expected, 3);
  expect(kept).toBe(0);
});

test('an older use counts half of a new one after eight arrivals for each function', () => {
  const popularity = new Popularity();
  popularity.grow(3);
  popularity.use(0);
  for (let arrival = 0; arrival < 23; arrival++) popularity.use(1);
  popularity.use(2);
  expect(popularity.count(0) / popularity.count(2)).toBeCloseTo(0.5, 12);
});

test('expected uses go by the latest use among functions that are used alike, else by their counts', () => {
  const popularity = new Popularity();
  popularity.grow(50);
  for (let arrival = 0; arrival < 5000; arrival++) popularity.use((arrival * 37) % 50);
  // Used twice in a row, which is chance as far as the others tell.
  popularity.use(3);
  popularity.use(3);
  const alike = popularity.expected(3);
  for (let arrival = 0; arrival < 50; arrival++) popularity.use((arrival * 37) % 50);
  expect(popularity.expected(4)).toBeGreaterThan(alike);
  expect(popularity.expected(3) / popularity.expected(4)).toBeLessThan(1.1);
  for (let arrival = 0; arrival < 5000; arrival++) popularity.use(arrival % 2 === 0 ? 3 : arrival % 50);
  expect(popularity.expected(3) / popularity.expected(4)).toBeGreaterThan(15);
});
