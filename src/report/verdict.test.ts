import { describe, expect, test } from 'vitest';
import { verdictOf, type Judged } from './verdict.ts';

const row = { requests: 50, goodput: 0.5 };
const replay = {
  requests: 1000,
  goodput: 0.5,
  p99_ms: 80,
  shed: 0,
  failed: 0,
  cold_start_rate: 0.01,
  partial_start_rate: 0,
  queue_mean_ms: 30,
  failures_by_reason: {},
  gpus: [{ gpu: 0, utilisation: 0.4 }],
  timeline: [],
  per_minute: [row, row],
};
const verdict = (changes: object): string => verdictOf({ ...replay, ...changes } as unknown as Judged);

describe('the verdict of a replay', () => {
  test('is enough from 99% on', () => {
    expect(verdict({ goodput: 0.99 })).toBe(
      'Enough: 99.0% of 1,000 requests were answered within their SLO, p99 80 ms.',
    );
    expect(verdict({ goodput: 0.9899 })).toMatch(/^Not enough: /);
    expect(verdict({ requests: 0, goodput: null })).toBe('No request was replayed.');
  });

  test.each([
    [
      'GPUs without time',
      { gpus: [{ utilisation: 0.8 }, { utilisation: 0.98 }] },
      '500 came late: the GPUs execute 89.0%',
    ],
    ['weights on their way', { partial_start_rate: 0.3 }, '31.0% waited for weights'],
    [
      'weights on disk',
      { partial_start_rate: 0.3, host_memory: { exceeded: true, disk_reads: 200 } },
      '200 loads came from disk',
    ],
    ['a wait that neither explains', {}, 'the mean wait for a turn is 30 ms'],
    ['what was refused', { shed: 400 }, '400 were shed: '],
    [
      'what failed',
      { failed: 400, failures_by_reason: { 'gpu-lost': 100, nowhere: 300 } },
      "400 failed, most for 'nowhere'",
    ],
    [
      'a beginning with empty memory',
      {
        per_minute: [
          { requests: 500, goodput: 0 },
          { requests: 500, goodput: 0.998 },
        ],
        partial_start_rate: 0.3,
      },
      '500 came late, nearly all while memory was filled: 99.8% in the second half',
    ],
  ])('names %s', (_, changes, said) => {
    expect(verdict(changes)).toContain(said);
  });
});
