/** Puts together what measures, predicts and configures the pools of a host. */
import type { Logger } from 'pino';
import type { ArrivalPrediction, CpuPools } from '../cpu/index.ts';
import type { HostConfig } from './config.ts';
import { PoolsController } from './pools-controller.ts';
import { observedPools } from './pools-observed.ts';
import { PoolsProfiler } from './pools-profiler.ts';
import type { Statistics } from './statistics.ts';
import type { FunctionVersion, Registry } from './types.ts';

/** Invocations that come this shortly after each other leave no room for a measurement between them. */
const quietMs = 30_000;

export interface PoolsPrediction {
  /** The pools to invoke through. */
  readonly pools: CpuPools;
  /** See {@link PoolsController.predictCpu}. */
  readonly predictCpu: (key: string) => ArrivalPrediction | undefined;
  readonly close: () => Promise<void>;
}

export function createPoolsPrediction(options: {
  readonly pools: CpuPools;
  readonly registry: Registry;
  readonly statistics: Statistics;
  readonly config: Pick<HostConfig, 'cpu' | 'dataDir'>;
  readonly batchMaxOf: (version: FunctionVersion) => number;
  readonly onChecked?: (functionName: string, predictedMs: number, observedMs: number) => void;
  readonly logger: Logger;
}): PoolsPrediction {
  const { pools, registry, statistics, config, batchMaxOf, logger } = options;
  const { cores, profiling, profilingBudgetMs, configure, objective, reconfigureIntervalMs } = config.cpu;
  const profiler = new PoolsProfiler({
    registry,
    dataDir: config.dataDir,
    cores,
    isMeasuring: profiling === 'background',
    budgetMs: profilingBudgetMs,
    quietMs,
    logger,
  });
  const controller = new PoolsController({
    registry,
    pools,
    statistics,
    profileOf: (key) => profiler.find(key),
    isConfiguring: configure === 'auto',
    objective,
    cores,
    intervalMs: reconfigureIntervalMs,
    batchMaxOf,
    onChecked: options.onChecked,
    logger,
  });
  return {
    pools: observedPools(pools, {
      arrived: (key) => {
        profiler.arrived();
        controller.called(key);
      },
      ended: () => profiler.ended(),
      answeredWarm: (key, latencyMs, serviceMs) => controller.answered(key, latencyMs, serviceMs),
    }),
    predictCpu: (key) => controller.predictCpu(key),
    close: async () => {
      controller.close();
      await profiler.close();
    },
  };
}
