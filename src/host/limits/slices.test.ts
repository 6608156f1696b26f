import fc from 'fast-check';
import { expect, test, vi } from 'vitest';
import { Exposition } from '../metrics/exposition.ts';
import { jsonInSlices, mapInSlices, Slices } from './slices.ts';
import { Histogram } from '../records/statistics.ts';

/** Blocks the event loop, as making something large does. */
function work(ms: number): void {
  const untilMs = performance.now() + ms;
  while (performance.now() < untilMs);
}

test('JSON in slices equals JSON.stringify', async () => {
  await fc.assert(
    fc.asyncProperty(fc.oneof(fc.dictionary(fc.string(), fc.jsonValue()), fc.array(fc.jsonValue())), async (value) => {
      expect(await jsonInSlices(value)).toBe(JSON.stringify(value));
    }),
  );
  const gaps = { a: undefined, b: [undefined, 1, () => 2], c: { d: undefined }, e: new Date(0) };
  expect(await jsonInSlices(gaps)).toBe(JSON.stringify(gaps));
});

test('other events run while a long list is written', async () => {
  let turns = 0;
  const other = setInterval(() => turns++, 1);
  const made = await mapInSlices([1, 2, 3, 4, 5, 6], (item) => {
    work(10);
    return item * 2;
  });
  clearInterval(other);
  expect(made).toEqual([2, 4, 6, 8, 10, 12]);
  expect(turns).toBeGreaterThanOrEqual(4);
});

test('a slice is over after some milliseconds, and a rest begins the next', async () => {
  let nowMs = 0;
  using _clock = vi.spyOn(performance, 'now').mockImplementation(() => nowMs);
  const slices = new Slices();
  expect(slices.isOver).toBe(false);
  nowMs += 20;
  expect(slices.isOver).toBe(true);
  await slices.rest();
  expect(slices.isOver).toBe(false);
});

test('series are written as Prometheus reads them: counters added up, gauges as last set, labels escaped', async () => {
  const exposition = new Exposition();
  exposition.counter('calls_total', 'Calls', (add) => {
    add({ function: 'a' }, 1);
    add({ function: 'a' }, 2);
    add({ function: 'say "hi"\\\n' }, 1);
  });
  exposition.gauge('level', 'Level', (set) => {
    set({}, 1);
    set({}, 2.5);
  });
  const seconds = new Histogram([0.1, 1]);
  seconds.observe(0.05);
  seconds.observe(0.5);
  seconds.observe(5);
  exposition.histogram('seconds', 'Seconds', () => [
    { labels: { function: 'a' }, histogram: seconds },
    { labels: {}, histogram: new Histogram([1]) },
  ]);
  expect((await exposition.text()).split('\n')).toEqual([
    '# HELP calls_total Calls',
    '# TYPE calls_total counter',
    'calls_total{function="a"} 3',
    'calls_total{function="say \\"hi\\"\\\\\\n"} 1',
    '# HELP level Level',
    '# TYPE level gauge',
    'level 2.5',
    '# HELP seconds Seconds',
    '# TYPE seconds histogram',
    'seconds_bucket{function="a",le="0.1"} 1',
    'seconds_bucket{function="a",le="1"} 2',
    'seconds_bucket{function="a",le="+Inf"} 3',
    'seconds_sum{function="a"} 5.55',
    'seconds_count{function="a"} 3',
    'seconds_bucket{le="1"} 0',
    'seconds_bucket{le="+Inf"} 0',
    'seconds_sum 0',
    'seconds_count 0',
    '',
  ]);
});
