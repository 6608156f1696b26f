/** Runs of the chaos benchmark add up: the findings of each are in the sum. */
import { expect, test } from 'vitest';
import { benchmark } from '../../bench/chaos.ts';
import type { FaultsPiece } from '../../bench/chaos/faults.ts';
import type { SteadyPiece } from '../../bench/chaos/steady.ts';

const run: FaultsPiece = {
  scene: 'faults',
  seed: 1,
  seconds: 100,
  workers: 2,
  clientsOfEachHost: 8,
  faults: 3,
  calls: { cpu: 1000, gpu: 500 },
  placements: { cpu: 1000, gpu: 500 },
  refusals: { 'disk-full': 2 },
  troubles: { lost: 0, doubled: 0, hung: 0, wrong: 0 },
  sentAgain: 4,
  flushed: 1,
  calledBackTwice: 0,
  outages: [{ fault: 'host killed', times: 3, longestMs: 900, stream: 'cpu' }],
  details: [],
  missing: [],
};

const sizes = {
  memoryBytes: 2 ** 28,
  hostMemoryBytes: 2 ** 26,
  descriptors: 90,
  processes: 4,
  temporaryFiles: 0,
  dataFiles: 10,
};
const steady: SteadyPiece = { scene: 'steady', cycles: 100, loads: 500, seconds: 50, sizes: [sizes, sizes, sizes] };

/** As read back from a file. */
const sumOf = (pieces: readonly object[]) => benchmark.sum!(JSON.parse(JSON.stringify(pieces)) as object[]);
const isMet = (pieces: readonly object[], aim: string): boolean | undefined =>
  sumOf(pieces).aims?.find((each) => each.aim === aim)?.met;

test('calls and faults of two runs are added, and the longest outage of each fault is kept', () => {
  const other: FaultsPiece = {
    ...run,
    seed: 2,
    calls: { cpu: 10, publications: 5 },
    outages: [
      { fault: 'host killed', times: 1, longestMs: 1200.4, stream: 'gpu' },
      { fault: 'disk full', times: 2, longestMs: 50, stream: 'publications' },
    ],
  };
  const { tables, figures, settings, pieces } = sumOf([run, other]);
  expect(figures).toMatchObject({ calls: 1515, faults: 6, callsPerSecond: 1515 / 200 });
  expect(settings).toMatchObject({ runs: 2, seeds: '1 2' });
  expect(tables[0]?.rows).toEqual(
    expect.arrayContaining([
      ['of these cpu', '1010'],
      ['of these publications', '5'],
      ['told to come again: disk-full', '4'],
      ['sent again', '8'],
    ]),
  );
  expect(tables[1]?.rows).toEqual([
    ['host killed', '4', '1200', 'gpu'],
    ['disk full', '2', '50', 'publications'],
  ]);
  expect(pieces).toEqual([run, other]);
});

test('a call lost in one of many runs misses the aim of the sum, and is reported with its seed', () => {
  const lossy: FaultsPiece = {
    ...run,
    seed: 7,
    troubles: { ...run.troubles, lost: 1 },
    details: ['lost at 3.0 s: cpu'],
  };
  expect(isMet([run, run], 'no call is lost')).toBe(true);
  expect(isMet([run, lossy, run], 'no call is lost')).toBe(false);
  expect(sumOf([run, lossy]).tables.at(-1)?.rows).toEqual([['7', 'lost at 3.0 s: cpu']]);
});

test('a host that grew in one run is not hidden by one that shrank in another', () => {
  const grown: SteadyPiece = { ...steady, sizes: [sizes, sizes, { ...sizes, processes: 9 }] };
  const shrunk: SteadyPiece = { ...steady, sizes: [{ ...sizes, processes: 9 }, sizes, sizes] };
  expect(isMet([steady, steady], 'processes stay flat')).toBe(true);
  expect(isMet([shrunk, grown, steady], 'processes stay flat')).toBe(false);
  expect(sumOf([run, steady, steady]).figures).toMatchObject({ calls: 1500, cycles: 200, loads: 1000 });
});

const endsWith = (last: Partial<typeof sizes>): SteadyPiece => ({
  ...steady,
  sizes: [sizes, sizes, { ...sizes, ...last }],
});

test('one more process does not miss the memory aim, growth of the host does', () => {
  const aims = ['MiB of the host stay flat', 'MiB of each other process stay flat'];
  const metBy = (last: Partial<typeof sizes>): unknown[] => aims.map((aim) => isMet([endsWith(last)], aim));
  expect(metBy({ memoryBytes: 2 ** 28 + 2 ** 26, processes: 5 })).toEqual([true, true]);
  expect(metBy({ memoryBytes: 2 ** 28 + 2 ** 26, hostMemoryBytes: 2 ** 27 })).toEqual([false, true]);
  expect(metBy({ memoryBytes: 2 ** 28 + 2 ** 26 })).toEqual([true, false]);
});
