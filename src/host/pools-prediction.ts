/** Puts together what measures, predicts and configures the pools of a host. */
import type { Logger } from 'pino';
import type { ArrivalPrediction, CpuPools, PoolResult } from '../cpu/index.ts';
import type { HostConfig } from './config.ts';
import { PoolsController } from './pools-controller.ts';
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

/** Told of every invocation that the pools of this machine run. */
export interface PoolsObserver {
  arrived(key: string): void;
  /** It was answered, or failed. */
  ended(): void;
  /**
   * It was answered by an instance that was ready: `latencyMs` after it had come to the pool, `serviceMs` after it had
   * come to the instance.
   */
  answeredWarm(key: string, latencyMs: number, serviceMs: number): void;
}

/** The same pools, observed: whoever invokes, nobody is missed. */
export function observedPools(pools: CpuPools, observer: PoolsObserver): CpuPools {
  return {
    invoke: (key, input, options) => {
      const startMs = performance.now();
      observer.arrived(key);
      const answered = pools.invoke(key, input, options);
      const ended = (result?: PoolResult): void => {
        // What its model took elsewhere says nothing of this pool.
        if (result !== undefined && !result.coldStart && result.modelElsewhere !== true) {
          const latencyMs = performance.now() - startMs;
          observer.answeredWarm(key, latencyMs, latencyMs - result.timings.queueMs);
        }
        observer.ended();
      };
      // The caller waits for the pool's own promise, and is answered after the observer.
      void answered.then(ended, () => ended());
      return answered;
    },
    started: () => pools.started(),
    register: (spec, limits) => pools.register(spec, limits),
    unregister: (key) => pools.unregister(key),
    load: (key, options) => pools.load(key, options),
    unload: (key) => pools.unload(key),
    configure: (key, configuration, options) => pools.configure(key, configuration, options),
    coresFor: (key) => pools.coresFor(key),
    leaseCores: (owner, count) => pools.leaseCores(owner, count),
    evict: (key) => pools.evict(key),
    state: (key) => pools.state(key),
    states: () => pools.states(),
    resources: () => pools.resources(),
    stop: (graceMs) => pools.stop(graceMs),
  };
}
