import { expect, test } from 'vitest';
import type { FunctionRow, MachineAnswer, TroubleAnswer } from '../host/index.ts';
import { topText } from './top.ts';

const link = { fromHostBytesPerSecond: 1.2e9, toHostBytesPerSecond: 3e6, share: 0.1 };
const machine: MachineAnswer = {
  atMs: 0,
  inFlight: 3,
  waiting: 2,
  cores: { total: 4, busy: 1, leased: 2, instances: 3, busyInstances: 1 },
  memory: { usedBytes: 2e9, totalBytes: 8e9 },
  gpus: [
    {
      index: 0,
      name: 'NVIDIA H100',
      busyShare: 0.53,
      usedBytes: 40e9,
      capacityBytes: 80e9,
      link,
      functions: 14,
      loading: 2,
    },
    {
      index: 1,
      name: 'evil\u001b[2J',
      busyShare: 0,
      usedBytes: 0,
      capacityBytes: 80e9,
      link: null,
      functions: 0,
      loading: 0,
    },
  ],
  queues: [],
  redis: 'up',
  calledAs: 'turntable',
  workers: [{ name: 'lab-7', cores: 8, outstanding: 1, backlogMs: 40, draining: true, functions: 2 }],
  usage: { atMs: [0], cores: [1], ownCores: [0.1], waiting: [], inFlight: [], atWorkers: [], gpus: [], links: [] },
};

const trouble: TroubleAnswer = {
  rangeMs: 60_000,
  atMs: 0,
  functions: 3,
  called: 2,
  missing: 1,
  few: 0,
  dependencies: [{ dependency: 'redis', state: 'down', text: 'Redis is down: workers get no work.' }],
  overdue: { calls: 2, oldestMs: 24_000 },
  refused: { calls: 0, functions: 0, most: null },
  limited: ['9 requests were over a limit (429 rate-limited), the latest: the API key a.'],
  worst: [
    {
      name: 'slow',
      sloMs: 100,
      ended: 100,
      missed: 12,
      goodputShare: 0.88,
      causes: [{ cause: 'load', words: 'waited for the model', calls: 10 }],
      overdue: { calls: 2, oldestMs: 24_000 },
      sinceMs: 0,
      lastMs: 0,
      lateMs: 1200,
      unexplainedMs: 0,
      facts: 'evicted 4 times for good: 2 GB of 2 GB used',
      advice: 'Pin it.',
      clientErrors: 0,
    },
  ],
};

function row(name: string, totals: Partial<FunctionRow['totals']>, rest: Partial<FunctionRow> = {}): FunctionRow {
  const none = { in_slo: 0, late: 0, shed: 0, failed: 0, cold: 0, p50Ms: null, p99Ms: null };
  const idle = { state: 'ready', residency: 'cold', gpus: [], instances: 0, waiting: 0, reason: null };
  return {
    ...idle,
    name,
    sloMs: 100,
    requestsPerSecond: 0,
    ...rest,
    totals: { ...none, ...totals },
  } as unknown as FunctionRow;
}

test('each GPU and worker has a line, and each function its place and the outcome of its calls', () => {
  const functions = [
    row(
      'slow',
      { in_slo: 88, late: 10, shed: 2, cold: 4, p50Ms: 20, p99Ms: 340 },
      { requestsPerSecond: 1.66, gpus: [0, 1], instances: 1, residency: 'loading', waiting: 2 },
    ),
    row('good', { in_slo: 100, p50Ms: 1.5, p99Ms: 3 }, { instances: 2 }),
    row('broken', {}, { state: 'unavailable', reason: 'no model' }),
  ];
  const lines = topText({ machine, rangeMs: 60_000, functions, trouble }, 'http://host').split('\n');
  expect(lines[0]).toMatch(/ 1 of 3 functions miss their SLO$/);
  expect(lines.slice(1, 10)).toEqual([
    'calls  200 in 1 min 0 s, 1.7/s; 3 in flight, 2 wait; 2 overdue, the oldest 24 s old',
    'cores  [###.......] 1 of 4 busy, 2 leased; the machine is 100% busy: 10% by Turntable, 90% by others',
    'memory [###.......] 2 GB of 8 GB (cpu.memory) in 3 instances',
    'gpu 0  [#####.....] 53% busy, 40 GB of 80 GB; link 1.2 GB/s in, 3 MB/s out, 10% busy; 14 functions, 2 loading; NVIDIA H100',
    'gpu 1  [..........] 0% busy, 0 B of 80 GB; 0 functions, 0 loading; evil [2J',
    'worker lab-7  8 cores, 1 call of this host, 40 ms of work, draining',
    'Redis is down: workers get no work.',
    '9 requests were over a limit (429 rate-limited), the latest: the API key a.',
    'slow: waited for the model: evicted 4 times for good: 2 GB of 2 GB used. Pin it.',
  ]);
  const cells = lines.slice(11).map((line) => line.trim().split(/ {2,}/));
  expect(cells.slice(1)).toEqual([
    [
      'slow',
      '1.7',
      '20 ms',
      '340 ms',
      '100 ms',
      '88%',
      '10 late, 2 shed',
      '4',
      '2',
      'gpu 0, 1; cpu, 1 instance, loading',
    ],
    ['good', '0', '1.5 ms', '3 ms', '100 ms', '100%', '0', '0', '0', 'cpu, 2 instances'],
    ['broken', '0', '-', '-', '100 ms', '-', '0', '0', '0', 'unavailable: no model'],
  ]);
  expect(topText({ machine, rangeMs: 60_000, functions, trouble }, 'http://host', 1).split('\n')).toHaveLength(13);
});
