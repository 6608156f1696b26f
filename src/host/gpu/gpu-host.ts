/**
 * Guards the GPU process: starts it, surveys the GPUs, restarts it after it died, ends it when a run does not end.
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
import type { StatedTopology } from '../../hardware/index.ts';
import type { ColdStartMode } from '../../plan/index.ts';
import type { Join } from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { RecordedColdStart } from '../dashboard/index.ts';
import type { GpuNews, LiveScheduler, RanOnGpu, WhyNot } from '../live/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { BatchTimes } from './batch-times.ts';
import { ColdStarts } from './cold-starts.ts';
import { coldCauseWords, whyNotOnGpu, type GpuFunctionRecord } from './function-state.ts';
import { GpuFunctions } from './gpu-functions.ts';
import { emptyInputs } from './input-shapes.ts';
import type { VariantKind } from './variants/index.ts';
import { machineOf, schedulerGpusOf } from './machine.ts';
import { parseLayerProfile } from '../../profile/index.ts';
import { ProfileStore } from './plans.ts';
import { Latest } from './latest.ts';
import { eventOf } from './news.ts';
import { RunLimits } from './run-limits.ts';
import type { GpuRuntime } from './prepare.ts';
import { ShippedPlans } from './shipped-plans.ts';
import { Verdicts } from './verdicts.ts';
import { given } from '../../tools/index.ts';

export interface GpuHostOptions {
  /** Instead of what is concluded from measured bandwidths. */
  readonly topology?: StatedTopology | undefined;
  readonly dataDir: string;
  readonly registry: Registry;
  readonly logger: Logger;
  /** Pinned host memory for weights. */
  readonly hostBytes: number;
  /** Of each GPU; most of what is free where it is left out. */
  readonly gpuBytes?: number | undefined;
  /** Bytes pinned at a time. */
  readonly slabBytes?: number | undefined;
  readonly mode: ColdStartMode;
  /** Has the GPUs as places once they are known. */
  readonly live: LiveScheduler;
  /** Which plans over GPU and CPU functions get. */
  readonly hybrid: VariantKind;
  /** Cores for them, which are given back when there is no GPU, and at the end. */
  readonly hybridCores: HybridCores;
  /** Repetitions of each measurement of a layer. */
  readonly iterations: number;
  /** What models of 32-bit floats are computed in. Default 'exact'. */
  readonly precision?: ProgramPrecision | undefined;
  /** Of the plans that ship with the project. */
  readonly plansFolder: string;
  /** Where the driver's libraries are, for another one than the system's. */
  readonly environment?: Readonly<Record<string, string>> | undefined;
  /** One of so many answers of GPUs is held against that of ONNX Runtime; 0: none. */
  readonly recheckEvery: number;
  /** Instead of the GPU process's own: a test decides. */
  readonly check?: GpuClient['check'] | undefined;
  readonly onRan?: ((version: FunctionVersion, ran: RanOnGpu) => void) | undefined;
  readonly onDown?: ((reason: string) => void) | undefined;
  readonly onUp?: (() => void) | undefined;
}

/** What plans over GPU and CPU have for the CPU's share. */
export interface HybridCores {
  /** Threads, each as one core to the plans. */
  readonly count: number;
  /** Cores of their own, for as many of the threads as there are; the others run wherever there is room. */
  readonly lease: LeasedCores;
}

export type GpuStatus = 'starting' | 'up' | 'restarting' | 'unavailable' | 'stopped';

/** The first restart comes at once; a process that dies again and again is left longer and longer. */
const restartDelaysMs = [0, 500, 2000, 10_000, 60_000];
/** After so long without dying the next death counts as the first one. */
const steadyMs = 60_000;

/** Whoever looks at the host waits so long for what the engine says of its memory. */
const stateWaitMs = 2000;

export class GpuHost {
  readonly #options: GpuHostOptions;
  readonly #client: GpuClient;
  readonly #functions: GpuFunctions;
  readonly #rechecks: Rechecks;
  readonly #opening: Promise<void>;
  readonly #runLimits = new RunLimits({
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
  restarts = 0;
  readonly #latest = new Latest(() => this.state(), stateWaitMs);
  readonly #coldStarts = new ColdStarts();

  constructor(options: GpuHostOptions) {
    this.#options = options;
    const { dataDir, hostBytes, gpuBytes, slabBytes, environment, logger, registry, hybridCores } = options;
    this.#client = startGpuProcess({
      hostBytes,
      cacheFolder: join(dataDir, 'cache', 'gpu'),
      hybridCores: hybridCores.count,
      hybridCoreNumbers: hybridCores.lease.cores,
      ...given({ gpuBytes, slabBytes, environment }),
      log: (line) => logger.info({ process: 'gpu' }, line),
    });
    this.#client.onDown((reason) => this.#down(reason));
    this.#functions = new GpuFunctions({
      client: this.#client,
      check: options.check ?? ((key, asked) => this.#client.check(key, asked)),
      registry,
      logger,
      dataDir,
      mode: options.mode,
      iterations: options.iterations,
      precision: options.precision ?? 'exact',
      variants: { kind: options.hybrid, cores: hybridCores.count },
      shippedPlans: new ShippedPlans(options.plansFolder),
      whenIdle: () => options.live.gpusIdle(),
      onPinned: (version) => void this.load(version).catch(() => undefined),
    });
    this.#rechecks = new Rechecks({
      every: options.recheckEvery,
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

  /** What is known of a function on the GPUs; undefined for one that is not ready. */
  record(key: string): GpuFunctionRecord | undefined {
    return this.#functions.record(key);
  }

  records(): Iterable<GpuFunctionRecord> {
    return this.#functions.records();
  }

  /** Why no GPU may be used for this version now; undefined where one may. */
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
    const record = this.#functions.record(key);
    return record && coldCauseWords(record.coldCause);
  }

  /** Told by the live scheduler. */
  news(key: string, news: GpuNews): void {
    const event = eventOf(news);
    if (event !== undefined) this.#functions.tell(key, event);
  }

  ran(version: FunctionVersion, ran: RanOnGpu, inputs: readonly Tensor[]): void {
    const { key } = version;
    const gpuName = this.#info?.devices[ran.gpu]?.name ?? '';
    this.#coldStarts.record(version.name, gpuName, this.coldCauseOf(key) ?? 'first use', ran);
    this.#rechecks.consider({ key, inputs, outputs: ran.result.outputs });
    this.#options.onRan?.(version, ran);
  }

  keepsOff(key: string, inputs: readonly Tensor[]): WhyNot | undefined {
    return this.#status === 'up' ? this.#functions.calls.keepsOff(key, inputs) : undefined;
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
   * Has the function's weights on a GPU: one run with made-up inputs, counted nowhere. Resolves to false where no GPU
   * can have them now.
   */
  async load(version: FunctionVersion): Promise<boolean> {
    await this.planned(version.key);
    const shapes = this.#functions.calls.shapesOf(version.key);
    const { metadata } = version;
    if (this.whyNot(version.key) !== undefined || metadata === undefined || shapes === undefined) return false;
    return (await this.live.runOnGpu(version, emptyInputs(metadata, shapes))).kind === 'gpu';
  }

  /** A run brings weights along, and waits for whatever of it is still to be compiled. */
  #runLimitMs(key: string): number | undefined {
    const at = key.lastIndexOf('@');
    const timeouts = this.#options.registry.find(key.slice(0, at), key.slice(at + 1))?.settings.timeouts;
    return timeouts && timeouts.loadMs + timeouts.inferMs;
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

  /** What the engine said last, for who must not wait. */
  get lastState(): GpuProcessState | undefined {
    return this.#latest.last;
  }

  /** As {@link state}, asked for once for all that ask; of a process that does not answer, what it said last. */
  freshState(): Promise<GpuProcessState | undefined> {
    return this.#latest.fresh();
  }

  async close(): Promise<void> {
    this.#status = 'stopped';
    clearTimeout(this.#restartTimer);
    this.live.lost();
    await this.#client.stop();
    this.#options.hybridCores.lease[Symbol.dispose]();
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
      // It found no GPU; or it was ended before it could say what it found, and may fare better the next time.
      if (error instanceof GpuError && error.code === 'died') this.#down(error.message);
      else await this.#giveUp((error as Error).message);
      return;
    }
    try {
      this.#runtime = await this.#survey(this.#info);
    } catch (error) {
      // Where the process has ended meanwhile the next one is surveyed.
      logger.warn({ err: error }, 'the GPUs could not be surveyed');
      if (this.#status === 'starting') await this.#giveUp((error as Error).message);
      return;
    }
    // It may have ended, or been stopped, just now.
    if (this.#status !== 'starting') return;
    this.#isUp(this.#runtime);
    logger.info({ gpus: this.#info.devices.map(({ name }) => name) }, 'the GPU process is up');
  }

  async #giveUp(reason: string): Promise<void> {
    clearTimeout(this.#restartTimer);
    this.#status = 'unavailable';
    this.#reason = reason;
    this.#options.logger.info({ reason }, 'no GPU: the CPU pools serve everything');
    this.#options.hybridCores.lease[Symbol.dispose]();
    await this.#functions.close();
  }

  /** What the planners and the scheduler need to know of these GPUs, measured where no driver tells. */
  async #survey(info: GpuProcessInfo): Promise<GpuRuntime> {
    const { dataDir, precision = 'exact' } = this.#options;
    // The engine has most of the memory; what is timed must fit beside it.
    const spareBytes = Math.min(...info.devices.map(({ totalBytes, limitBytes }) => totalBytes - limitBytes));
    const copyBytes = Math.max(65_536, Math.min(64 * 2 ** 20, Math.floor(spareBytes / 8)));
    const machine = machineOf(info, await this.#client.topology(copyBytes), this.#options.topology);
    const names = info.devices.map(({ name }) => name).join(', ');
    const driver = `${names}; driver ${info.driverVersion}; ${info.compilerVersion}`;
    // What was measured and compared in another precision counts for nothing.
    const identity = precision === 'exact' ? driver : `${driver}; ${precision}`;
    this.live.setGpus(schedulerGpusOf(machine), this.#runLimits.watch(this.#client));
    return {
      machine,
      machineName: identity,
      profiles: new ProfileStore(join(dataDir, 'plans', 'profiles'), identity, parseLayerProfile),
      verdicts: new Verdicts(join(dataDir, 'plans', 'checks'), `${identity}; engine ${info.engineVersion}`),
      batchTimes: new BatchTimes(join(dataDir, 'plans', 'batches'), `${identity}; engine ${info.engineVersion}`),
      scheduler: this.live,
    };
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
    // Those that did not even come up add to the ones before.
    if (this.#status === 'up' && performance.now() - this.#lastUpMs > steadyMs) this.#deaths = 0;
    this.#status = 'restarting';
    this.#reason = reason;
    this.#functions.down(reason);
    this.live.lost();
    this.#options.onDown?.(reason);
    // One that dies while it is surveyed is told of twice.
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
      // What has never come up in so many tries is not there; what has been may come back.
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
