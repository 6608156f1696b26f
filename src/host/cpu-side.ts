/** The CPU pools of this host as the scheduler sees them, with their measurement, prediction and configuration. */
import { join } from 'node:path';
import { createCpuPools, heldUpMs, type CpuPools, type PoolFacts, type RowsMix } from '../cpu/index.ts';
import { sessionBytesOf } from '../hardware/index.ts';
import type { CpuOffer, CpuPlace } from '../schedule/index.ts';
import type { FrameMemory } from '../tensor/index.ts';
import type { HostConfig } from './config.ts';
import { PoolsController } from './pools-controller.ts';
import { keepPoolsInStep, rowsMaxOf, threadsOf } from './pools-in-step.ts';
import { PoolsProfiler } from './pools-profiler.ts';
import type { HostRecords } from './records.ts';
import { cpuRefusal } from './live/index.ts';
import type { FunctionVersion, Registry } from './types.ts';
import { rowsJoinedMax, versionOf } from './versions.ts';

/** Invocations closer together than this leave no room for a measurement between them. */
const quietMs = 30_000;
/** A little more than the time for an answer to go out and the next call to come in. */
const handedAheadMs = 2;

export interface CpuSideOptions {
  readonly config: HostConfig;
  readonly registry: Registry;
  readonly records: HostRecords;
  readonly replies: FrameMemory;
  /** A function's measured figures have changed, and with them the pools' offer. */
  readonly onFacts: (facts: PoolFacts) => void;
  readonly onRowsMix: (mix: RowsMix) => void;
}

export class CpuSide {
  readonly pools: CpuPools;
  readonly #options: CpuSideOptions;
  readonly #facts = new Map<string, PoolFacts>();
  readonly #profiler: PoolsProfiler;
  readonly #controller: PoolsController;

  constructor(options: CpuSideOptions) {
    this.#options = options;
    const { config, registry, records, replies, onFacts, onRowsMix } = options;
    const { logger, statistics, history } = records;
    const pools = createCpuPools({
      cores: config.cpu.cores,
      blankInstances: config.cpu.blankInstances,
      memoryBytes: config.cpu.memoryBytes,
      loadsBytes: config.memory.parts.loads,
      replies,
      modelsOffline: config.cpu.modelNetwork === 'off',
      cacheFolder: join(config.dataDir, 'cache', 'weights'),
      onFacts: (known) => {
        this.#facts.set(known.key, known);
        onFacts(known);
      },
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
    [this.pools, this.#profiler, this.#controller] = [pools, profiler, controller];
  }

  /**
   * Cores without a lease, and the memory of all functions. With every core leased, runs without one share all cores: a
   * function is never without any.
   */
  place(): CpuPlace {
    const { coresShared, memoryBytes } = this.pools.resources();
    return { cores: Math.max(1, coresShared), memoryBytes, aheadMs: handedAheadMs, holdMsMax: heldUpMs };
  }

  /** The offer of a version's pool to the scheduler; unmeasured figures are left undefined, and learnt. */
  readonly offer = (key: string): CpuOffer | null => {
    const { registry, config } = this.#options;
    const version = versionOf(registry, key);
    if (version === undefined) return null;
    const predicted = this.#controller.predictCpu(key);
    const { loadMs, slots = 0, sessionBytes: bytes = sessionBytesOf(version.modelBytes) } = this.#facts.get(key) ?? {};
    // How many may share a run.
    // While others have leased cores, its threads share those that are left.
    const threads = Math.min(predicted?.cores ?? threadsOf(version, config), this.place().cores);
    const cores = threads / rowsJoinedMax(version);
    return { latencyMs: predicted?.serviceMs, cores, loadMs, bytes, slots };
  };

  /** Why the pools can never run the version, as things are; undefined if they can. */
  readonly refusal = (version: FunctionVersion): string | undefined => {
    const { slots = 0, sessionBytes: bytes = sessionBytesOf(version.modelBytes) } = this.#facts.get(version.key) ?? {};
    const place = this.place();
    const cores = Math.min(threadsOf(version, this.#options.config), place.cores);
    return slots > 0 ? undefined : cpuRefusal(version.key, { bytes, cores }, place);
  };

  /** The same for a model that nobody has published yet. */
  refusalOfSize(name: string, modelBytes: number): string | undefined {
    return cpuRefusal(name, { bytes: sessionBytesOf(modelBytes), cores: 1 }, this.place());
  }

  async stop(graceMs: number): Promise<void> {
    this.#controller.close();
    await this.#profiler.close();
    await this.pools.stop(graceMs);
  }
}
