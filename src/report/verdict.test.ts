import { describe, expect, test } from 'vitest';
import { verdictOf, type HopelessFunction, type Judged } from './verdict.ts';

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
const verdict = (changes: object, ...hopeless: readonly HopelessFunction[]): string =>
  verdictOf({ ...replay, ...changes } as unknown as Judged, hopeless);

describe('the verdict of a replay', () => {
  test('the verdict of a replay is enough from 99% on', () => {
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
      { partial_start_rate: 0.3, disk_starts: 300, host_memory: { exceeded: true, disk_reads: 40 } },
      '300 calls waited for 40 reads from disk, so more host memory or a faster disk is needed',
    ],
    [
      'a disk that few of the late calls waited for, and links that the others did',
      { partial_start_rate: 0.3, disk_starts: 30, host_memory: { exceeded: true, disk_reads: 30 } },
      '31.0% waited for weights',
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
  ])('the verdict of a replay names %s', (_, changes, said) => {
    expect(verdict(changes)).toContain(said);
  });

  const times = { name: 'bert-base/0', requests: 1000, sloMs: 5, warmMs: 9.5 };
  const none = { goodput: 0, shed: 1000, settings: { policy: 'lru' } };
  test.each([
    ['a run above the SLO', none, times, /All 1,000 were refused, .* takes 9.5 ms .* SLO of 5 ms .*best-effort/],
    ['a late run', { ...none, shed: 0 }, times, /All 1,000 came late, because a run of 'bert-base\/0' .*in time\.$/],
    ['no place', { ...none, shed: 0, failed: 1000 }, { ...times, warmMs: Infinity }, /no GPU has memory for it/],
    ['no GPU', { ...none, gpus: [] }, { ...times, warmMs: Infinity }, /the machine has no GPU, and --cpu offers/],
    ['a part', { goodput: 0.5 }, { ...times, requests: 300 }, /300 of them came late, because a run/],
    ['a small part', { goodput: 0.5 }, { ...times, requests: 200 }, /the mean wait for a turn/],
    ['a function that could be in time', none, { ...times, sloMs: 30 }, /1,000 were shed: the mean wait/],
  ])('the verdict of a replay says why functions could have no call in time: %s', (_, changes, hopeless, said) => {
    expect(verdict(changes, hopeless)).toMatch(said);
  });
});
