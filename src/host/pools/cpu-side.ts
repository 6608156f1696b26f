/** The CPU pools of this host as a place of its scheduler, with their measurement, prediction and configuration. */
import { join } from 'node:path';
import type { RowsMix } from '../../cpu/index.ts';
import { LiveCpu, type CpuNeed } from '../../live/index.ts';
import type { FrameMemory } from '../../tensor/index.ts';
import type { CallsObserver } from '../calls/open-calls.ts';
import type { HostConfig } from '../config/config.ts';
import { PoolsController } from './pools-controller.ts';
import { keepPoolsInStep, rowsMaxOf, threadsOf } from './pools-in-step.ts';
import { PoolsProfiler } from './pools-profiler.ts';
import type { HostRecords } from '../records/records.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { versionOf } from '../rollout/versions.ts';

/** Invocations closer together than this leave no room for a measurement between them. */
const quietMs = 30_000;

export interface CpuSideOptions {
  readonly config: HostConfig;
  readonly registry: Registry;
  readonly records: HostRecords;
  readonly replies: FrameMemory;
  readonly onRowsMix: (mix: RowsMix) => void;
}

export class CpuSide {
  readonly live: LiveCpu;
  /** To be told of the calls that run elsewhere too: nothing is measured beside them. */
  readonly calls: CallsObserver;
  readonly #options: CpuSideOptions;
  readonly #profiler: PoolsProfiler;
  readonly #controller: PoolsController;

  constructor(options: CpuSideOptions) {
    this.#options = options;
    const { config, registry, records, replies, onRowsMix } = options;
    const { logger, statistics, history } = records;
    const live = new LiveCpu({
      needOf: (key) => this.#needOf(key),
      cores: config.cpu.cores,
      blankInstances: config.cpu.blankInstances,
      memoryBytes: config.cpu.memoryBytes,
      loadsBytes: config.memory.parts.loads,
      replies,
      modelsOffline: config.cpu.modelNetwork === 'off',
      cacheFolder: join(config.dataDir, 'cache', 'weights'),
      onReconfigured: (change) => records.reconfigured(change),
      log: (pid, key, line) => records.printed(pid, key, line),
      warn: (line) => logger.warn(line),
      onLoaded: (loaded) => records.loaded(loaded),
      onDiskWait: (wait) => records.waitedForDisk(wait),
      onMakesRoom: (room) => records.makesRoom(room),
      onGivenUp: (given) => records.givenUp(given),
      onRowsMix: (mix) => {
        records.rowsMixed(mix);
        onRowsMix(mix);
      },
      onStopped: (key, stopped) => records.stopped(key, stopped),
    });
    const { pools } = live;
    const profiler = new PoolsProfiler({
      registry,
      cpu: config.cpu,
      dataDir: config.dataDir,
      quietMs,
      isStopped: (key) => pools.stopped(key) !== undefined,
      logger,
    });
    const controller = new PoolsController({
      registry,
      pools,
      statistics,
      profileOf: (key) => profiler.find(key),
      cpu: config.cpu,
      batchMaxOf: (version) => rowsMaxOf(version, config),
      onChecked: (name, predictedMs, observedMs) => history.predicted(name, predictedMs, observedMs),
      logger,
    });
    pools.observe({
      arrived: (key) => {
        profiler.arrived();
        controller.called(key);
      },
      ended: () => profiler.ended(),
      answeredWarm: (key, latencyMs, serviceMs) => controller.answered(key, latencyMs, serviceMs),
    });
    keepPoolsInStep(registry, pools, config, logger);
    [this.live, this.calls, this.#profiler, this.#controller] = [live, profiler, profiler, controller];
  }

  /** Why the pools can never run the version, as things are; undefined if they can. */
  readonly refusal = (version: FunctionVersion): string | undefined =>
    this.live.refusal(version.key, {
      threads: threadsOf(version, this.#options.config),
      modelBytes: version.modelBytes,
    });

  readonly slowdownAt = (key: string, running: number): number => this.#controller.slowdownAt(key, running);

  /** The same for a model that nobody has published yet. */
  refusalOfSize(name: string, modelBytes: number): string | undefined {
    return this.live.refusal(name, { threads: 1, modelBytes });
  }

  #needOf(key: string): CpuNeed | undefined {
    const { registry, config } = this.#options;
    const version = versionOf(registry, key);
    if (version === undefined) return undefined;
    const predicted = this.#controller.predictCpu(key);
    return {
      settings: version.settings,
      threads: predicted?.cores ?? threadsOf(version, config),
      modelBytes: version.modelBytes,
      latencyMs: predicted?.serviceMs,
    };
  }

  async stop(graceMs: number): Promise<void> {
    this.#controller.close();
    await this.#profiler.close();
    await this.live.pools.stop(graceMs);
  }
}
