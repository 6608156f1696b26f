import { join } from 'node:path';
import type { CpuPools } from '../../cpu/index.ts';
import { hasGpuDriver } from '../../hardware/index.ts';
import { packageRoot } from '../config/options.ts';
import type { HostConfig } from '../config/config.ts';
import type { LiveScheduler } from '../../live/index.ts';
import type { FrameMemory } from '../../tensor/index.ts';
import type { HostRecords } from '../records/records.ts';
import type { Registry } from '../types.ts';
import type { GpuHost } from './gpu-host.ts';

/** What the GPUs need of their host. */
export interface OpenGpusOptions {
  readonly config: Pick<HostConfig, 'gpu' | 'cpu' | 'dataDir'>;
  readonly registry: Registry;
  readonly records: HostRecords;
  readonly live: LiveScheduler;
  readonly pools: CpuPools;
  readonly answers: FrameMemory;
}

/** Opens the GPUs of a host. Undefined if the machine has no driver, or `gpu.use` is off. */
export async function openGpus(options: OpenGpusOptions): Promise<GpuHost | undefined> {
  const { config, registry, records, live, pools, answers } = options;
  const { statistics, history, logger } = records;
  if (config.gpu.use === 'off' || !hasGpuDriver()) return undefined;
  // The engine and its operators take a tenth of a second to load, which a host without a GPU saves.
  const { GpuHost } = await import('./gpu-host.ts');
  const settings = { ...config.gpu, hybridCores: config.gpu.hybrid === 'off' ? 0 : config.gpu.hybridCores };
  return new GpuHost({
    settings,
    dataDir: config.dataDir,
    registry,
    logger,
    live,
    answers,
    plansFolder: join(packageRoot, 'plans'),
    hybridLease: pools.leaseCores('plans over GPU and CPU', settings.hybridCores),
    statistics,
    onDown: (reason) => {
      history.eventLog.add({
        kind: 'host',
        level: 'warning',
        message: `The GPU process is down: ${reason}`,
        gpuDown: reason,
      });
    },
    onUp: () => {
      history.eventLog.add({ kind: 'host', level: 'info', message: 'The GPU process is up again' });
    },
  });
}
