import { expect, test } from 'vitest';
import { functionsAnswer, type ViewSources } from '../../src/host/dashboard/index.ts';
import { divideMemory } from '../../src/hardware/index.ts';
import { History, Usage } from '../../src/host/history/index.ts';
import { Statistics } from '../../src/host/records/statistics.ts';
import { FakeStore, functionVersion } from '../host/fake-store.ts';

test('replaced versions are listed as long as they hold memory, so that the bytes add up', async () => {
  const registry = new FakeStore();
  for (const version of ['1', '2', '3']) registry.put(functionVersion('product', { version }));
  const bytes = new Map([
    ['product@1', 10],
    ['product@3', 200],
  ]);
  const presence = (key: string) => ({
    state: { kind: 'planned' as const, whyNot: null },
    bytes: bytes.get(key) ?? 0,
    loading: false,
    gpus: [0],
    coldCause: 'first use',
    pinnedBytes: 0,
    plan: 'dha',
  });
  const sources = {
    registry,
    pools: { states: () => [] } as unknown as ViewSources['pools'],
    outOfService: { stopped: () => undefined },
    statistics: new Statistics(),
    history: new History(),
    memory: { ...divideMemory(1e9, 'host'), kills: [], used: () => ({ parts: {}, processes: [] }) },
    dependencies: { troubled: () => [], disk: undefined },
    usage: new Usage(() => ({ memoryUsedBytes: 0, waiting: 0, inFlight: 0, atWorkers: 0, gpus: [], linkBytes: [] })),
    open: { overdue: () => new Map() },
    workers: () => [],
    redis: () => undefined,
    gpus: {
      presence,
      process: () => ({ pid: process.pid, silentMs: 0 }),
      busyShares: () => [],
      linkBytes: () => [],
      linkSpeed: () => undefined,
      waiting: () => 0,
      refresh: () => Promise.resolve(),
      memory: () => [],
      hostTier: () => [],
      coldStarts: () => [],
    },
  };
  const { functions, others } = await functionsAnswer(sources, 60_000, Date.now());
  expect(functions).toMatchObject([{ name: 'product', version: '3', residency: 'gpu', gpuBytes: 200 }]);
  expect(others).toMatchObject([{ name: 'product', version: '1', residency: 'gpu', gpuBytes: 10 }]);
});
