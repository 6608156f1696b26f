import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { comparisonOf, systemsOfReports } from './compare.ts';
import type { Report } from './types.ts';

interface Figures {
  readonly goodput: number;
  readonly p99: number;
  readonly seed?: number;
  readonly requests?: number;
  readonly settings?: Report['settings'];
}

/** Latencies rise evenly up to the p99, and to twice as much. */
const reportOf = ({ goodput, p99, seed = 0, requests = 10_000, settings = {} }: Figures): Report =>
  ({
    format: 'turntable-report',
    simulated: true,
    machine: 'm',
    seed,
    settings,
    requests,
    goodput,
    p99_ms: p99,
    latency_cdf: Array.from({ length: 1001 }, (_, index): [number, number] => [
      index / 1000,
      index <= 990 ? (p99 * index) / 990 : p99 * (1 + (index - 990) / 10),
    ]),
  }) as unknown as Report;

const system = (name: string, ...figures: Figures[]) => ({ name, reports: figures.map(reportOf) });
const seeded = (goodputs: readonly number[], p99s: readonly number[]): Figures[] =>
  goodputs.map((goodput, seed) => ({ goodput, p99: p99s[seed]!, seed }));

describe('a comparison', () => {
  test('a comparison tells the winner by goodput before p99, and by how much', () => {
    const { verdict, winner } = comparisonOf([
      system('lru', { goodput: 0.9, p99: 100 }),
      system('best', { goodput: 0.98, p99: 80 }),
    ]);
    expect(winner).toBe('best');
    expect(verdict).toBe(
      'best wins over lru: goodput 98.0% against 90.0%, p99 20% lower (80 ms against 100 ms). The difference is more ' +
        'than the noise of 10,000 requests with one seed.',
    );
    expect(
      comparisonOf([system('a', { goodput: 0.9, p99: 10 }), system('b', { goodput: 0.95, p99: 90 })]).verdict,
    ).toMatch(/^b wins over a: goodput 95.0% against 90.0%, p99 800% higher/);
  });

  test('a comparison goes by p99 where goodput differs by noise', () => {
    const { verdict } = comparisonOf([
      system('a', { goodput: 0.991, p99: 100 }),
      system('b', { goodput: 0.99, p99: 50 }),
    ]);
    expect(verdict).toMatch(
      /^b wins over a: p99 50% lower .*, goodput no different beyond noise \(99.0% against 99.1%\)/,
    );
  });

  test('a comparison tells no winner where the differences of seeds have no clear sign, though the means differ', () => {
    const noisy = comparisonOf([
      system('a', ...seeded([0.9, 0.96, 0.93, 0.95], [90, 80, 85, 70])),
      system('b', ...seeded([0.95, 0.94, 0.96, 0.91], [70, 86, 90, 88])),
    ]);
    expect(noisy.winner).toBeNull();
    expect(noisy.verdict).toMatch(/^None wins: . and . differ by no more than the noise of 4 seeds \(goodput /);
    // The same spread between seeds, but each seed has the same winner.
    const paired = comparisonOf([
      system('a', ...seeded([0.9, 0.96, 0.93, 0.95], [90, 80, 85, 70])),
      system('b', ...seeded([0.91, 0.97, 0.941, 0.96], [90, 80, 85, 70])),
    ]);
    expect(paired.winner).toBe('b');
  });

  test.each([
    ['rate_per_s', 50, 100],
    ['slo_ms', 20, 100],
    ['trace', 'a.csv', 'b.csv'],
    ['speed', 1, 2],
  ])('a comparison of loads that differ in %s has no winner', (setting, one, other) => {
    const { verdict, winner } = comparisonOf([
      system('a', { goodput: 0.5, p99: 10, settings: { [setting]: one } }),
      system('b', { goodput: 0.9, p99: 5, settings: { [setting]: other } }),
    ]);
    expect(winner).toBeNull();
    expect(verdict).toBe(`None wins: the reports are not of one load (${setting}: ${one}, ${other}).`);
  });

  test('a comparison of different numbers of requests has no winner', () => {
    const few = system('a', { goodput: 0.5, p99: 10, requests: 10 });
    expect(comparisonOf([few, system('b', { goodput: 0.9, p99: 5 })]).verdict).toMatch(
      /one load \(requests: 10, 10000\)/,
    );
  });

  test('a comparison does not depend on the order of systems, has no winner over an equal system, and names one that nothing beats', () => {
    const figures = fc.record({
      goodput: fc.integer({ min: 0, max: 100 }).map((percent) => percent / 100),
      p99: fc.integer({ min: 1, max: 1000 }),
    });
    const many = fc.array(fc.array(figures, { minLength: 3, maxLength: 3 }), { minLength: 2, maxLength: 4 });
    fc.assert(
      fc.property(many, (all) => {
        const systems = all.map((rows, index) => system(`s${index}`, ...rows.map((row, seed) => ({ ...row, seed }))));
        const { winner } = comparisonOf(systems);
        expect(comparisonOf(systems.toReversed()).winner).toBe(winner);
        expect(comparisonOf([...systems, { ...systems[0]!, name: 'again' }]).winner).not.toBe('s0');
        const own = all[Number(winner?.slice(1))];
        if (winner === null || own === undefined) return;
        const mean = (rows: typeof own, field: 'goodput' | 'p99'): number =>
          rows.reduce((sum, row) => sum + row[field], 0);
        const beats = all.filter(
          (rows) => mean(rows, 'goodput') > mean(own, 'goodput') && mean(rows, 'p99') < mean(own, 'p99'),
        );
        expect(beats).toEqual([]);
      }),
    );
  });
});

test('saved reports that differ in the seed alone are of one system', () => {
  const figures = { goodput: 0.9, p99: 10 };
  const reports = [
    { name: 'lru-0', report: reportOf({ ...figures, settings: { policy: 'lru' } }) },
    { name: 'best-0', report: reportOf({ ...figures, settings: { policy: 'best' } }) },
    { name: 'lru-1', report: reportOf({ ...figures, seed: 1, settings: { policy: 'lru' } }) },
    // The same seed again is a report of its own.
    { name: 'copy', report: reportOf({ ...figures, settings: { policy: 'best' } }) },
  ];
  const systems = systemsOfReports(reports).map(({ name, reports: own }) => [name, own.map(({ seed }) => seed)]);
  expect(systems).toEqual([
    ['lru-0', [0, 1]],
    ['best-0', [0]],
    ['copy', [0]],
  ]);
});
