/** Functions on four V100s of a fake GPU process: the start of tests of their preparation. */
import { join } from 'node:path';
import { parseLayerProfile } from '../../../src/profile/index.ts';
import { loadMachine } from '../../../src/hardware/index.ts';
import { createLogger } from '../../../src/host/records/logger.ts';
import { GpuFunctions, type GpuFunctionsOptions } from '../../../src/host/gpu/gpu-functions.ts';
import { ProfileStore } from '../../../src/host/gpu/plans.ts';
import type { GpuRuntime } from '../../../src/host/gpu/prepare.ts';
import { shippedPlans } from '../../../src/host/gpu/shipped-plans.ts';
import { BatchTimes } from '../../../src/host/gpu/batch-times.ts';
import { Verdicts } from '../../../src/host/gpu/verdicts.ts';
import { LiveScheduler, type GpuRunner } from '../../../src/live/index.ts';
import { policies } from '../../../src/schedule/index.ts';
import { FakeStore } from '../../host/fake-store.ts';

export interface GpuBench {
  readonly functions: GpuFunctions;
  readonly runtime: GpuRuntime;
  readonly store: FakeStore;
  readonly close: () => Promise<void>;
}

interface GpuBenchOptions {
  readonly dataDir: string;
  readonly client: GpuFunctionsOptions['client'];
  /** Of each GPU; default: that of a V100. */
  readonly capacityBytes?: number;
  readonly runner?: GpuRunner;
  readonly cpuLatencyMs?: number;
  readonly settings?: Partial<GpuFunctionsOptions['settings']>;
  readonly functions?: Partial<GpuFunctionsOptions>;
}

/** Every comparison agrees, and nothing else runs, unless `functions` says otherwise. */
export function gpuBench({
  dataDir,
  client,
  capacityBytes,
  runner,
  cpuLatencyMs,
  settings,
  ...rest
}: GpuBenchOptions): GpuBench {
  const machine = loadMachine('p3.8xlarge');
  const scheduler = new LiveScheduler({
    policy: policies.best,
    cpu: { cores: 2, memoryBytes: Infinity },
    cpuOffer: () => ({ latencyMs: cpuLatencyMs ?? 100, cores: 1 }),
  });
  const gpus = machine.gpus.map(({ memoryBytes, switch: pciSwitch, linkGBps }) => ({
    capacityBytes: capacityBytes ?? memoryBytes,
    switch: pciSwitch,
    linkGBps,
    uplinkGBps: 12,
  }));
  scheduler.setGpus(gpus, runner ?? ({} as GpuRunner));
  const store = new FakeStore();
  const functions = new GpuFunctions({
    client,
    registry: store,
    logger: createLogger({ level: 'silent', format: 'json' }),
    dataDir,
    settings: { mode: 'dha', profileIterations: 1, precision: 'exact', hybrid: 'off', hybridCores: 0, ...settings },
    shippedPlans: shippedPlans(join(dataDir, 'none')),
    whenIdle: () => Promise.resolve(),
    check: () => Promise.resolve({ kind: 'agreed', inputs: 'drawn', precision: 'fp32', tolerance: 1e-3 }),
    onPinned: () => undefined,
    ...rest.functions,
  });
  const machineName = 'four V100';
  const profiles = new ProfileStore(join(dataDir, 'profiles'), machineName, parseLayerProfile);
  const verdicts = new Verdicts(join(dataDir, 'checks'), machineName);
  const batchTimes = new BatchTimes(join(dataDir, 'batches'), machineName);
  const close = async (): Promise<void> => {
    scheduler.close();
    await functions.close();
  };
  const runtime: GpuRuntime = {
    machine,
    precision: 'exact',
    inPrecision: () => runtime,
    machineName,
    isEmulated: true,
    profiles,
    verdicts,
    batchTimes,
    scheduler,
  };
  return {
    functions,
    runtime,
    store,
    close,
  };
}
