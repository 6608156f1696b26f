import type { CpuProfile } from '../../src/cpu/index.ts';

const batches = [1, 2, 4, 8, 16];
const threads = [1, 2, 4];

/** Milliseconds of an instance alone: more threads help, less and less. */
export const aloneMs = (count: number, batch: number): number => (4 + 6 * batch) / count ** 0.7;

/** Four cores: one request is fastest on all of them; a batch of 16 is done first by four instances. */
export const fourCoreProfile: CpuProfile = {
  format: 3,
  provenance: 'measured',
  machine: { processor: 'a processor', cores: 4, onnxRuntime: '1.30.0' },
  modelSha256: 'ab',
  dimensions: {},
  session: { arena: true, spinning: false },
  ended: 'whole',
  measuredAt: '2026-01-01T00:00:00Z',
  tookMs: 1000,
  exhaustiveMs: 1e6,
  startMs: 300,
  pool: { unit: 'ms', threads, batches, latency: threads.map((t) => batches.map((b) => aloneMs(t, b))) },
  spread: threads.map(() => batches.map(() => 0.01)),
  service: {
    unit: 'ms',
    configurations: [
      { concurrency: 1, threads: 1, serviceTime: [10] },
      { concurrency: 1, threads: 4, serviceTime: [aloneMs(4, 1)] },
      { concurrency: 4, threads: 1, serviceTime: [10, 10.5, 11, 12] },
    ],
  },
  variation: [],
  dispatchMs: 0,
  idle: [],
  lists: [
    { batch: 16, groups: [{ instances: 4, threads: 1, batch: 4 }], latencyMs: 30, expectedMs: 28, aheadShare: 1 },
    { batch: 16, groups: [{ instances: 1, threads: 4, batch: 16 }], latencyMs: 38, expectedMs: 37.9, aheadShare: 1 },
  ],
};
