/**
 * Supervises the GPU process: starts it, surveys the GPUs, restarts it after it died, ends it when a run does not end.
 * gpu-functions.ts has the functions on it, live-scheduler.ts the invocations.
 */
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { LeasedCores } from '../../cpu/index.ts';
import {
  GpuError,
  Rechecks,
  startGpuProcess,
  type GpuClient,
  type GpuProcessInfo,
  type GpuProcessState,
  type ProgramPrecision,
} from '../../gpu/index.ts';
import type { Join } from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { HostConfig } from '../config/config.ts';
import type { RecordedColdStart } from '../dashboard/index.ts';
import type { GpuReport, LiveScheduler, RanOnGpu, WhyNot } from '../../live/index.ts';
import type { Statistics } from '../records/statistics.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { BatchTimes } from './batch-times.ts';
import { ColdStarts } from './cold-starts.ts';
import { whyNotOnGpu, type GpuFunctionRecord } from './function-state.ts';
import { GpuFunctions } from './gpu-functions.ts';
import { emptyInputs } from './input-shapes.ts';
import { machineOf, schedulerGpusOf } from './machine.ts';
import { parseLayerProfile } from '../../profile/index.ts';
import { ProfileStore } from './plans.ts';
import { cachedAnswer } from './cached-answer.ts';
import { eventOf } from './function-events.ts';
import { runLimits } from './run-limits.ts';
import type { GpuRuntime } from './prepare.ts';
import { shippedPlans } from './shipped-plans.ts';
import { Verdicts } from './verdicts.ts';
import type { FrameMemory } from '../../tensor/index.ts';
import { getOrMake, given } from '../../tools/index.ts';

export interface GpuHostOptions {
  /** `hybridCores` is 0 if `hybrid` is 'off'. */
  readonly settings: Omit<HostConfig['gpu'], 'use' | 'policy' | 'policyParts'>;
  readonly dataDir: string;
  readonly registry: Registry;
  readonly logger: Logger;
  /** Bytes pinned at a time. */
  readonly slabBytes?: number | undefined;
  /** Gets the GPUs as places once they are known. */
  readonly live: LiveScheduler;
  /**
   * Dedicated cores for as many threads of plans over GPU and CPU as there are; the others run on any core. Returned if
   * there is no GPU, and at the end.
   */
  readonly hybridLease: LeasedCores;
  /** Of the plans that ship with the project. */
  readonly plansFolder: string;
  /** Where the driver's libraries are, if not the system's. */
  readonly environment?: Readonly<Record<string, string>> | undefined;
  /** In which outputs count while they arrive from the GPU process. */
  readonly answers?: FrameMemory | undefined;
  /** Replaces the GPU process's own check in tests. */
  readonly check?: GpuClient['check'] | undefined;
  readonly statistics: Pick<Statistics, 'of' | 'loaded'>;
  readonly onDown?: ((reason: string) => void) | undefined;
  readonly onUp?: (() => void) | undefined;
}

export type GpuStatus = 'starting' | 'up' | 'restarting' | 'unavailable' | 'stopped';

/** The first restart is immediate; pauses grow while the process keeps dying. */
const restartDelaysMs = [0, 500, 2000, 10_000, 60_000];
/** After this long without a death the next one counts as the first. */
const steadyMs = 60_000;

/** Of reads into pinned memory, until the first has shown it. */
const presumedDiskGBps = 1;

/** Longest that a view of the host waits for the engine's memory state. */
const stateWaitMs = 2000;

export class GpuHost {
  readonly #options: GpuHostOptions;
  readonly #client: GpuClient;
  readonly #functions: GpuFunctions;
  readonly #rechecks: Rechecks;
  readonly #opening: Promise<void>;
  readonly #limited = runLimits({
    limitMs: (key) => this.#runLimitMs(key),
    onOver: (key, limitMs) => {
      const reason = `a run of function '${key}' did not end within ${limitMs / 1000} s`;
      this.#functions.tell(key, { kind: 'run hung', reason });
      this.#client.kill(reason);
    },
  });
  #info: GpuProcessInfo | undefined;
  #runtime: GpuRuntime | undefined;
  #status: GpuStatus = 'starting';
  #reason: string | undefined;
  #deaths = 0;
  #lastUpMs = 0;
  #restartTimer: NodeJS.Timeout | undefined;
  #hostBytes: number;
  restarts = 0;
  readonly #stateAnswer = cachedAnswer(() => this.state(), stateWaitMs);
  readonly #coldStarts = new ColdStarts();

  constructor(options: GpuHostOptions) {
    this.#options = options;
    const { settings, dataDir, slabBytes, environment, logger, registry, answers } = options;
    const { gpuBytes, hostBytes } = settings;
    this.#hostBytes = hostBytes;
    this.#client = startGpuProcess({
      hostBytes,
      cacheFolder: join(dataDir, 'cache', 'gpu'),
      hybridCores: settings.hybridCores,
      hybridCoreNumbers: options.hybridLease.cores,
      without: settings.without,
      coding: settings.coding,
      ...given({ gpuBytes, slabBytes, environment, answers }),
      log: (line) => logger.info({ process: 'gpu' }, line),
    });
    this.#client.onDown((reason) => this.#down(reason));
    this.#functions = new GpuFunctions({
      client: this.#client,
      check: options.check ?? ((key, asked) => this.#client.check(key, asked)),
      registry,
      logger,
      dataDir,
      settings,
      shippedPlans: shippedPlans(options.plansFolder),
      whenIdle: () => options.live.gpusIdle(),
      onPinned: (version) => void this.load(version).catch(() => undefined),
    });
    this.#rechecks = new Rechecks({
      every: settings.recheckEvery,
      check: (call) => this.#functions.calls.recheck(call),
    });
    this.#opening = this.#open();
  }

  get status(): GpuStatus {
    return this.#status;
  }

  /** Why there is none, or why it is being restarted. */
  get reason(): string | undefined {
    return this.#reason;
  }

  get info(): GpuProcessInfo | undefined {
    return this.#info;
  }

  get live(): LiveScheduler {
    return this.#options.live;
  }

  get pid(): number {
    return this.#client.pid;
  }

  /** How long the GPU process has answered nothing. */
  get silentMs(): number {
    return this.#client.silentMs;
  }

  /** The record of a function on the GPUs; undefined for one that is not ready. */
  record(key: string): GpuFunctionRecord | undefined {
    return this.#functions.record(key);
  }

  records(): Iterable<GpuFunctionRecord> {
    return this.#functions.records();
  }

  /** Why this version may not use a GPU now; undefined if it may. */
  whyNot(key: string): WhyNot | undefined {
    const why = this.#reason ?? 'it ended';
    switch (this.#status) {
      case 'starting':
        return { reason: 'starting', words: 'the GPU process is starting' };
      case 'restarting':
        return { reason: 'restarting', words: `the GPU process is restarting: ${why}` };
      case 'unavailable':
        return { reason: 'unavailable', words: `there is no GPU: ${why}` };
      case 'stopped':
        return { reason: 'stopping', words: 'the host is stopping' };
      case 'up': {
        const record = this.#functions.record(key);
        const words = record === undefined ? 'it is not ready' : whyNotOnGpu(record, performance.now());
        return words === undefined ? undefined : { reason: record?.state.kind ?? 'absent', words };
      }
    }
  }

  coldCauseOf(key: string): string | undefined {
    return this.#functions.record(key)?.coldCause;
  }

  /** 'fp16, 0.0007 off': the difference is relative to an output's largest value. Undefined for 32 bits. */
  precisionText(key: string): string | undefined {
    const { precision = 'exact', difference } = this.#functions.precision(key) ?? {};
    if (precision === 'exact') return undefined;
    return difference === undefined ? precision : `${precision}, ${Number(difference.toPrecision(2))} off`;
  }

  /** Called by the live scheduler. */
  report(key: string, report: GpuReport): void {
    // A run that succeeds tells something only after some that failed.
    if (report.kind === 'run succeeded' && this.#functions.record(key)?.breaker === undefined) return;
    const event = eventOf(report);
    if (event !== undefined) this.#functions.tell(key, event);
  }

  ran(version: FunctionVersion, ran: RanOnGpu, inputs: readonly Tensor[]): void {
    const { key, name } = version;
    const { result, gpu, start, ahead, queueMs, loadMs, inferMs, why } = ran;
    this.#rechecks.consider({ key, inputs, outputs: result.outputs });
    const { statistics } = this.#options;
    const counts = statistics.of(version);
    const observedMs = queueMs + loadMs + inferMs;
    if (observedMs > 0 && why.predictedMs !== undefined)
      counts.gpuPredictionError.observe(Math.abs(why.predictedMs / observedMs - 1));
    if (start === 'warm' && ahead === undefined) return;
    // A load ordered ahead of the run is not part of the run's own load.
    statistics.loaded(counts, loadMs + (ahead?.loadMs ?? 0), result.loadedBytes + (ahead?.bytes ?? 0));
    this.#coldStarts.record(name, this.#info?.devices[gpu]?.name ?? '', this.coldCauseOf(key) ?? 'first use', ran);
  }

  keepsOff(key: string, inputs: readonly Tensor[]): WhyNot | undefined {
    // Before the process is there, the sizes of calls are remembered.
    const mayCome = this.#status === 'starting' || this.#status === 'restarting';
    return this.#status === 'up' || mayCome ? this.#functions.calls.keepsOff(key, inputs) : undefined;
  }

  joinOf(key: string, inputs: readonly Tensor[]): Join | undefined {
    return this.#status === 'up' ? this.#functions.calls.joinOf(key, inputs) : undefined;
  }

  wantsInputs(key: string): boolean {
    const kind = this.#functions.record(key)?.state.kind;
    return kind === 'undecided' || kind === 'unsized';
  }

  /** The newest first. */
  coldStarts(): readonly RecordedColdStart[] {
    return this.#coldStarts.all;
  }

  /**
   * Loads the function's weights to a GPU: one run with made-up inputs, which counts nowhere. Resolves to false if no
   * GPU can take them now. A function that was refused is tried again first.
   */
  async load(version: FunctionVersion): Promise<boolean> {
    this.#functions.askFor(version.key);
    await this.planned(version.key);
    const shapes = this.#functions.calls.shapesOf(version.key);
    const { metadata } = version;
    if (this.whyNot(version.key) !== undefined || metadata === undefined || shapes === undefined) return false;
    return (await this.live.runOnGpu(version, emptyInputs(metadata, shapes))).kind === 'gpu';
  }

  /** A run may load weights, and wait for compilation. */
  #runLimitMs(key: string): number | undefined {
    const timeouts = this.#functions.version(key)?.settings.timeouts;
    return timeouts && timeouts.loadMs + timeouts.inferMs;
  }

  /** Pinned host memory has more or less room for weights from now on. */
  setHostBytes(bytes: number): void {
    const isLess = bytes < this.#hostBytes;
    this.#hostBytes = bytes;
    // What goes for it goes first; what has room then is ordered last.
    if (isLess) this.live.resizeHost(bytes);
    void this.#client
      .resizeHost(bytes)
      .catch((error: unknown) => this.#options.logger.warn({ err: error }, 'pinned host memory keeps its size'))
      .then(() => this.live.resizeHost(this.#hostBytes));
  }

  /** Resolves when everything that was registered so far is planned or refused. */
  async settled(): Promise<void> {
    await this.#opening;
    await this.#functions.settled();
  }

  /** Resolves when this function is planned or refused, at once where it is. */
  async planned(key: string): Promise<void> {
    if (this.#status === 'up' || this.#status === 'starting') await this.#functions.planned(key);
  }

  async state(): Promise<GpuProcessState | undefined> {
    return this.#status === 'up' ? await this.#client.state().catch(() => undefined) : undefined;
  }

  /** The engine's latest answer, for callers that must not wait. */
  get lastState(): GpuProcessState | undefined {
    return this.#stateAnswer.last();
  }

  /** As {@link state}, requested once for all callers; if the process does not answer, its latest answer. */
  freshState(): Promise<GpuProcessState | undefined> {
    return this.#stateAnswer.fresh();
  }

  async close(): Promise<void> {
    this.#status = 'stopped';
    clearTimeout(this.#restartTimer);
    this.live.lost();
    await this.#client.stop();
    this.#options.hybridLease[Symbol.dispose]();
    await this.#opening;
    await this.#functions.close();
    await this.#rechecks.settled();
  }

  async #open(): Promise<void> {
    const { logger } = this.#options;
    try {
      this.#info = await this.#client.ready;
    } catch (error) {
      if (this.#isStopped()) return;
      // It found no GPU; or it was ended before it could report, and may succeed the next time.
      if (error instanceof GpuError && error.code === 'died') this.#down(error.message);
      else await this.#giveUp((error as Error).message);
      return;
    }
    try {
      this.#runtime = await this.#survey(this.#info);
    } catch (error) {
      // If the process has ended meanwhile, the next one is surveyed.
      logger.warn({ err: error }, 'the GPUs could not be surveyed');
      if (this.#status === 'starting') await this.#giveUp((error as Error).message);
      return;
    }
    // It may have just ended, or been stopped.
    if (this.#status !== 'starting') return;
    this.#isUp(this.#runtime);
    logger.info({ gpus: this.#info.devices.map(({ name }) => name) }, 'the GPU process is up');
  }

  async #giveUp(reason: string): Promise<void> {
    clearTimeout(this.#restartTimer);
    this.#status = 'unavailable';
    this.#reason = reason;
    this.#options.logger.info({ reason }, 'no GPU: the CPU pools serve everything');
    this.#options.hybridLease[Symbol.dispose]();
    await this.#functions.close();
  }

  /** The facts about these GPUs that the planners and the scheduler need, measured if no driver reports them. */
  async #survey(info: GpuProcessInfo): Promise<GpuRuntime> {
    const { dataDir, settings } = this.#options;
    // The engine has most of the memory; timed buffers must fit beside it.
    const spareBytes = Math.min(...info.devices.map(({ totalBytes, limitBytes }) => totalBytes - limitBytes));
    const copyBytes = Math.max(65_536, Math.min(64 * 2 ** 20, Math.floor(spareBytes / 8)));
    const machine = machineOf(info, await this.#client.topology(copyBytes), settings.topology);
    const names = info.devices.map(({ name }) => name).join(', ');
    const without = settings.without.map((capability) => `; without ${capability}`).join('');
    const coded = settings.coding === 'off' ? '' : '; coded layers';
    const driver = `${names}; driver ${info.driverVersion}; ${info.compilerVersion}${without}${coded}`;
    const host = { capacityBytes: this.#hostBytes, diskGBps: presumedDiskGBps, runner: this.#client };
    this.live.setGpus(schedulerGpusOf(machine), this.#limited(this.#client), host);
    const runtimes = new Map<ProgramPrecision, GpuRuntime>();
    const inPrecision = (precision: ProgramPrecision): GpuRuntime =>
      getOrMake(runtimes, precision, () => made(precision));
    // Measurements and comparisons in another precision, or with what is left out now, do not count.
    const made = (precision: ProgramPrecision): GpuRuntime => {
      const identity = precision === 'exact' ? driver : `${driver}; ${precision}`;
      return {
        machine,
        precision,
        inPrecision,
        machineName: identity,
        isEmulated: info.isEmulated,
        profiles: new ProfileStore(join(dataDir, 'plans', 'profiles'), identity, parseLayerProfile),
        verdicts: new Verdicts(join(dataDir, 'plans', 'checks'), `${identity}; engine ${info.engineVersion}`),
        batchTimes: new BatchTimes(join(dataDir, 'plans', 'batches'), `${identity}; engine ${info.engineVersion}`),
        scheduler: this.live,
      };
    };
    return inPrecision(settings.precision);
  }

  #isUp(runtime: GpuRuntime): void {
    this.#status = 'up';
    this.#reason = undefined;
    this.#lastUpMs = performance.now();
    this.live.back();
    this.#functions.up(runtime);
  }

  #down(reason: string): void {
    if (this.#isStopped() || this.#status === 'unavailable') return;
    // A process that did not even come up adds to the deaths before.
    if (this.#status === 'up' && performance.now() - this.#lastUpMs > steadyMs) this.#deaths = 0;
    this.#status = 'restarting';
    this.#reason = reason;
    this.#functions.down(reason);
    this.live.lost();
    this.#options.onDown?.(reason);
    // A process that dies while it is surveyed is reported twice.
    clearTimeout(this.#restartTimer);
    const delayMs = restartDelaysMs[Math.min(this.#deaths, restartDelaysMs.length - 1)]!;
    this.#deaths++;
    this.#options.logger.error({ reason, delayMs }, 'the GPU process is down; the CPU pools carry the load');
    this.#restartTimer = setTimeout(() => void this.#restart(), delayMs);
  }

  async #restart(): Promise<void> {
    let runtime: GpuRuntime;
    try {
      const info = await this.#client.reopen();
      this.#info = info;
      runtime = this.#runtime ??= await this.#survey(info);
    } catch (error) {
      if (this.#isStopped()) return;
      // GPUs that have never come up in so many tries do not exist; others may come back.
      if (this.#runtime === undefined && this.#deaths >= restartDelaysMs.length)
        await this.#giveUp((error as Error).message);
      else this.#down((error as Error).message);
      return;
    }
    if (this.#isStopped()) return;
    this.restarts++;
    this.#isUp(runtime);
    this.#options.onUp?.();
    this.#options.logger.info('the GPU process is up again');
  }

  #isStopped(): boolean {
    return this.#status === 'stopped';
  }
}
