import { totalmem } from 'node:os';
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { ArrivalPrediction, LeasedCores } from '../../cpu/index.ts';
import { readGpuDriver } from '../../hardware/index.ts';
import type { CpuOffer } from '../../schedule/index.ts';
import { packageRoot } from '../config-options.ts';
import type { HostConfig } from '../config.ts';
import type { History } from '../history/index.ts';
import type { Statistics } from '../statistics.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import type { GpuHost } from './gpu-host.ts';

/** What a CPU pool is taken for while nothing is known of it: usable, and no faster than it may turn out to be. */
const unknownPoolMs = 1000;

export interface OpenGpusOptions {
  readonly config: Pick<HostConfig, 'gpu' | 'cpu' | 'dataDir'>;
  readonly registry: Registry;
  readonly statistics: Statistics;
  readonly history: History;
  readonly logger: Logger;
  readonly predictCpu: (key: string) => ArrivalPrediction | undefined;
  /** Cores that no pool has until they are given back. */
  readonly leaseCores: (count: number) => LeasedCores;
}

/** What the scheduler is told of a CPU pool. */
export function cpuOfferOf(predicted: ArrivalPrediction | undefined): CpuOffer {
  return { latencyMs: predicted?.serviceMs ?? unknownPoolMs, cores: predicted?.cores ?? 1 };
}

/** Undefined where there is no driver, or the configuration wants none. */
export async function openGpus(options: OpenGpusOptions): Promise<GpuHost | undefined> {
  const { config, registry, statistics, history, logger, predictCpu, leaseCores } = options;
  const named = process.env['TURNTABLE_LIBCUDA'];
  if (config.gpu.use === 'off' || (named === undefined && readGpuDriver().library === undefined)) return undefined;
  // The engine and its operators take a tenth of a second to load, which a host without a GPU need not spend.
  const { GpuHost } = await import('./gpu-host.ts');
  const versionOf = (key: string): FunctionVersion | undefined => {
    const at = key.lastIndexOf('@');
    return registry.find(key.slice(0, at), key.slice(at + 1));
  };
  const hybridCores = config.gpu.hybrid === 'off' ? 0 : config.gpu.hybridCores;
  return new GpuHost({
    dataDir: config.dataDir,
    registry,
    logger,
    hostBytes: config.gpu.hostBytes ?? Math.floor(totalmem() / 2),
    gpuBytes: config.gpu.gpuBytes,
    mode: config.gpu.mode,
    policy: config.gpu.policy,
    cpuCores: config.cpu.cores,
    iterations: config.gpu.profileIterations,
    plansFolder: join(packageRoot, 'plans'),
    hybrid: config.gpu.hybrid,
    hybridCores: { count: hybridCores, lease: leaseCores(hybridCores) },
    cpuOffer: (key) => cpuOfferOf(predictCpu(key)),
    onEvicted: ({ key, gpu, bytes, cause, ageMs }) => {
      const version = versionOf(key);
      if (version === undefined) return;
      statistics.evicted(statistics.of(version), `gpu ${cause}`, ageMs);
      history.happenings.add({
        kind: 'eviction',
        functionName: version.name,
        cause: `${evictionWords[cause]}, ${Math.round(bytes / 1024)} KiB`,
        ageMs,
        where: `GPU ${gpu}`,
      });
    },
    onDown: (reason) => {
      history.happenings.add({ kind: 'host', level: 'warning', message: `The GPU process is down: ${reason}` });
    },
    onUp: () => {
      history.happenings.add({ kind: 'host', level: 'info', message: 'The GPU process is up again' });
    },
  });
}

const evictionWords = {
  capacity: 'room for another function, all of it',
  trim: 'room for another function, a suffix of its layers',
  migration: 'another GPU has it too, and the room was needed',
  unload: 'it was unloaded, replaced or removed',
  'plan-changed': 'its plan has other layers now',
  'gpu-lost': 'the GPU process went down',
  'out-of-memory': 'the GPU had less room than was reckoned with',
  profiling: 'room for timing a function that is new here',
} as const;
