/** How the table of the worst hours judges, and whether each row matches its name. */
import { expect, test } from 'vitest';
import type { Hour } from '../../bench/hours/row.ts';
import { drawnRows } from '../../bench/hours/drawn.ts';
import { hoursRows, smallScale } from '../../bench/hours/rows.ts';
import { systems } from '../../bench/hours/systems.ts';
import { verdictOf, type PlayedSystem } from '../../bench/hours/verdict.ts';
import { benchmark } from '../../bench/hours.ts';

const played = (name: string, goodput: number, p99Ms: number, knowsFuture = false): PlayedSystem => {
  const hour = { goodput, p99Ms, p99MsBySeed: [p99Ms] } as unknown as Hour;
  return { name, knowsFuture, hour };
};

const bySeed = (name: string, p99MsBySeed: readonly number[]): PlayedSystem => ({
  name,
  knowsFuture: false,
  hour: { goodput: 1, p99MsBySeed } as unknown as Hour,
});

test('a gap in p99 counts if best is behind with every seed, not if one seed has it ahead', () => {
  expect(verdictOf([bySeed('best', [110, 120, 130]), bySeed('modulo', [100, 100, 100])])).toMatchObject({
    isBehind: true,
    text: 'p99 20% behind modulo (by seed 10 to 30%)',
  });
  expect(verdictOf([bySeed('best', [99, 120, 130]), bySeed('modulo', [100, 100, 100])])?.isBehind).toBe(false);
});

test('best is behind by the goodput of the best rival, even where another rival has the best p99', () => {
  const verdict = verdictOf([played('best', 0.9, 100), played('lru', 0.93, 104), played('modulo', 0.9, 90)]);
  expect(verdict).toMatchObject({ isBehind: true, text: '3.0 points behind lru, p99 11% behind modulo' });
  expect(verdict?.pointsBehind).toBeCloseTo(3);
});

test('a rival that answers fewer calls in time is not ahead by its p99', () => {
  expect(verdictOf([played('best', 0.9, 100), played('lru', 0.5, 10)])?.isBehind).toBe(false);
});

test('a policy that knows the future is not a rival', () => {
  expect(verdictOf([played('best', 0.9, 100), played('oracle', 1, 10, true), played('lru', 0.9, 100)])).toMatchObject({
    isBehind: false,
    text: 'not behind',
  });
});

test('if no call is answered, best is not behind', () => {
  expect(verdictOf([played('best', 0, Infinity), played('lru', 0, Infinity)])?.isBehind).toBe(false);
});

test('rows and systems have unique names, and a single row can be run', async () => {
  const names = hoursRows(smallScale).map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
  expect(new Set(systems.map(({ name }) => name)).size).toBe(systems.length);
  const options = { small: true, seed: 1, progress: () => undefined, rows: ['burst'] };
  const { tables } = await benchmark.run(options);
  expect(tables[0]?.rows.map(([name]) => name)).toEqual(['burst']);
});

const drawnScale = { scenes: 3, requests: 100, warmup: 30 };

test('a seed draws the same scenes again, and another seed others', () => {
  const loads = (seed: number): string[] => drawnRows(drawnScale, seed).map(({ load }) => load);
  expect(loads(1)).toEqual(loads(1));
  expect(new Set([...loads(1), ...loads(2)]).size).toBe(2 * drawnScale.scenes);
});

test('every function of a drawn scene has an SLO and a class', () => {
  for (const { name, trace, sloMsOf, classOf } of drawnRows(drawnScale, 3)) {
    for (const index of trace(1).functionNames.keys()) {
      expect(sloMsOf(index), `${name}, function ${index}`).toBeGreaterThan(0);
      expect(classOf?.(index)).toMatch(/cold starts$/);
    }
  }
});

test('every row and drawn scene arrives in order and measures some requests', async () => {
  for (const { name, trace, warmup } of [...hoursRows(smallScale), ...drawnRows(drawnScale, 1)]) {
    let count = 0;
    let lastMs = 0;
    for (const { arrivalMs } of trace(1).invocations()) {
      expect(arrivalMs, name).toBeGreaterThanOrEqual(lastMs);
      lastMs = arrivalMs;
      count++;
    }
    expect(count, name).toBeGreaterThan(warmup);
  }
});
