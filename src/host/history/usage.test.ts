import type { CpuInfo } from 'node:os';
import { expect, test } from 'vitest';
import { Usage } from './usage.ts';

const core = (user: number, idle: number): CpuInfo => ({
  model: '',
  speed: 0,
  times: { user, nice: 0, sys: 0, idle, irq: 0 },
});

const link = (fromHost: number, toHost: number) => [{ gpu: 0, fromHost, toHost }];

test('a sample has the busy share of all cores, the part of it that is our own, and the rate of each link, and an hour of samples is kept', () => {
  const readings = [
    [core(0, 0), core(0, 0)],
    [core(100, 0), core(50, 50)],
  ];
  const counted = [link(1000, 10), link(6000, 20), link(500, 20)];
  const own = [1000, 1050, undefined];
  const usage = new Usage(
    () => ({
      memoryUsedBytes: 0,
      waiting: 3,
      inFlight: 2,
      atWorkers: 1,
      gpus: [0.5],
      linkBytes: counted.shift() ?? [],
    }),
    undefined,
    () => readings.shift() ?? [core(100, 100), core(50, 150)],
    () => own.shift(),
  );
  usage.sample(1000);
  usage.sample(6000);
  expect(usage.samples).toEqual([
    {
      atMs: 1000,
      cores: 0.75,
      ownCores: 0.25,
      heldBack: 0,
      loopDelayMs: 0,
      memoryUsedBytes: 0,
      waiting: 3,
      inFlight: 2,
      atWorkers: 1,
      gpus: [0.5],
      links: [],
    },
    {
      atMs: 6000,
      cores: 0,
      ownCores: null,
      heldBack: 0,
      loopDelayMs: 0,
      memoryUsedBytes: 0,
      waiting: 3,
      inFlight: 2,
      atWorkers: 1,
      gpus: [0.5],
      links: link(1000, 2),
    },
  ]);
  // A restarted GPU process counts from zero.
  usage.sample(7000);
  expect(usage.samples.at(-1)?.links).toEqual(link(500, 0));
  for (let index = 0; index < 1000; index++) usage.sample(10_000 + index);
  expect(usage.samples).toHaveLength(720);
  expect(usage.samples.at(-1)?.atMs).toBe(10_999);
  usage.close();
});

test('the machine was full where a sample since then has full cores, and in no older sample', () => {
  const busy: CpuInfo[][] = [[core(0, 0)], [core(100, 0)], [core(100, 100)], [core(100, 200)]];
  const usage = new Usage(
    () => ({ memoryUsedBytes: 0, waiting: 0, inFlight: 0, atWorkers: 0, gpus: [], linkBytes: [] }),
    undefined,
    () => busy.shift()!,
    () => undefined,
  );
  usage.close();
  expect(usage.busiest(1000, 5000).isFull).toBe(false);
  usage.sample(5000);
  expect(usage.busiest(100, 5100).isFull).toBe(true);
  usage.sample(10_000);
  // A call that began before this sample met the one before it.
  expect(usage.busiest(6000, 10_100).isFull).toBe(true);
  expect(usage.busiest(100, 10_100).isFull).toBe(false);
  usage.sample(15_000);
  expect(usage.busiest(6000, 15_100).isFull).toBe(false);
});

test('a quota of cores that is used up in a fifth of its periods makes the machine full', () => {
  const periods = [
    { all: 100, stopped: 50 },
    { all: 150, stopped: 59 },
    { all: 200, stopped: 69 },
  ];
  const usage = new Usage(
    () => ({ memoryUsedBytes: 0, waiting: 0, inFlight: 0, atWorkers: 0, gpus: [], linkBytes: [] }),
    undefined,
    () => [core(0, 100)],
    () => undefined,
    () => periods.shift(),
  );
  usage.close();
  usage.sample(5000);
  expect(usage.samples[0]?.heldBack).toBe(0.18);
  expect(usage.busiest(100, 5100).isFull).toBe(false);
  usage.sample(10_000);
  expect(usage.busiest(100, 10_100).isFull).toBe(true);
});

test('a neighbour that has begun since the latest sample is seen by the next late call, and looked for no more than five times a second', () => {
  const readings = [[core(0, 0)], [core(0, 100)], [core(95, 105)]];
  const usage = new Usage(
    () => ({ memoryUsedBytes: 0, waiting: 0, inFlight: 0, atWorkers: 0, gpus: [], linkBytes: [] }),
    undefined,
    () => readings.shift()!,
    () => undefined,
  );
  usage.close();
  usage.sample(5000);
  expect(usage.busiest(100, 5199).isFull).toBe(false);
  expect(readings).toHaveLength(1);
  expect(usage.busiest(100, 6000).isFull).toBe(true);
  expect(usage.busiest(100, 6100).isFull).toBe(true);
  expect(readings).toHaveLength(0);
});
