/**
 * The GPUs of this host, from the start of the GPU process to its end. Functions get there by their registrations
 * (registrations.ts), invocations by the scheduler (shell.ts); what is not there yet, and everything while the process is down, is
 * carried by the CPU pools.
 */
import { join } from 'node:path';
import type { Logger } from 'pino';
import type { LeasedCores } from '../../cpu/index.ts';
import {
  GpuError,
  startGpuProcess,
  type GpuClient,
  type GpuProcessInfo,
  type GpuProcessState,
} from '../../gpu/index.ts';
import type { Machine } from '../../hardware/index.ts';
import type { ColdStartMode } from '../../plan/index.ts';
import { policies, type CpuOffer, type PolicyName, type SchedulerGpu } from '../../schedule/index.ts';
import type { Tensor } from '../../tensor/index.ts';
import type { RecordedColdStart } from '../dashboard/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { FailureBook } from './failures.ts';
import { emptyInputs, inOrder } from './input-shapes.ts';
import type { LadderKind } from './ladders.ts';
import { machineOf } from './machine.ts';
import { ProfileShelf } from './plan-book.ts';
import { RunLimits } from './run-limits.ts';
import { Registrations, type GpuGround, type GpuStanding } from './registrations.ts';
import { GpuShell } from './shell.ts';
import { ShippedPlans } from './shipped-plans.ts';
import type { GpuOutcome, GpuWish, ShellEviction } from './shell-types.ts';

export interface GpuHostOptions {
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
  readonly policy: PolicyName;
  readonly cpuCores: number;
  /** Which plans over GPU and CPU functions get. */
  readonly hybrid: LadderKind;
  /** Cores for them, which are given back when there is no GPU, and at the end. */
  readonly hybridCores: HybridCores;
  readonly cpuOffer: (key: string) => CpuOffer;
  /** Repetitions of each measurement of a layer. */
  readonly iterations: number;
  /** Of the plans that ship with the project. */
  readonly plansFolder: string;
  /** Where the driver's libraries are, for another one than the system's. */
  readonly environment?: Readonly<Record<string, string>> | undefined;
  readonly onEvicted?: ((eviction: ShellEviction) => void) | undefined;
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
/** Timelines of large models are hundreds of kilobytes as JSON. */
const coldStartsKept = 40;
/** After so long without dying the next death counts as the first one. */
const steadyMs = 60_000;

/** Whoever looks at the host waits so long for what the engine says of its memory. */
const stateWaitMs = 2000;

export class GpuHost {
  readonly #options: GpuHostOptions;
  readonly #client: GpuClient;
  readonly #registrations: Registrations;
  readonly #opening: Promise<void>;
  readonly #failures = new FailureBook();
  readonly #runLimits = new RunLimits({
    limitMs: (key) => this.#runLimitMs(key),
    onOver: (key, limitMs) => {
      const reason = `a run of function '${key}' did not end within ${limitMs / 1000} s`;
      this.#failures.hung(key, reason);
      this.#client.kill(reason);
    },
  });
  #info: GpuProcessInfo | undefined;
  #ground: GpuGround | undefined;
  #status: GpuStatus = 'starting';
  #reason: string | undefined;
  #inFlight = 0;
  #deaths = 0;
  #lastUpMs = 0;
  #restartTimer: NodeJS.Timeout | undefined;
  #idleWaiters: (() => void)[] = [];
  restarts = 0;
  #lastState: GpuProcessState | undefined;
  #asking: Promise<GpuProcessState | undefined> | undefined;
  readonly #coldStarts: RecordedColdStart[] = [];
  #nextColdStart = 1;

  constructor(options: GpuHostOptions) {
    this.#options = options;
    const { dataDir, hostBytes, gpuBytes, slabBytes, environment, logger, registry, hybridCores } = options;
    this.#client = startGpuProcess({
      hostBytes,
      cacheFolder: join(dataDir, 'cache', 'gpu'),
      hybridCores: hybridCores.count,
      hybridCoreNumbers: hybridCores.lease.cores,
      ...(gpuBytes === undefined ? {} : { gpuBytes }),
      ...(slabBytes === undefined ? {} : { slabBytes }),
      ...(environment === undefined ? {} : { environment }),
      log: (line) => logger.info({ process: 'gpu' }, line),
    });
    this.#client.onDown((reason) => this.#down(reason));
    this.#registrations = new Registrations({
      client: this.#client,
      registry,
      logger,
      dataDir,
      mode: options.mode,
      iterations: options.iterations,
      ladder: { kind: options.hybrid, cores: hybridCores.count },
      shippedPlans: new ShippedPlans(options.plansFolder),
      whenIdle: () => this.#whenIdle(),
      onPinned: (version) => void this.load(version).catch(() => undefined),
    });
    registry.onChange(({ before, after }) => {
      if (before !== undefined && before.modelSha256 !== after?.modelSha256) this.#failures.forget(before.key);
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

  get shell(): GpuShell | undefined {
    return this.#ground?.shell;
  }

  /** The GPUs as the scheduler sees them; none before they are up for the first time. */
  get schedulerGpus(): readonly SchedulerGpu[] {
    return this.#ground === undefined ? [] : schedulerGpusOf(this.#ground.machine);
  }

  get pid(): number {
    return this.#client.pid;
  }

  standing(key: string): GpuStanding | undefined {
    return this.#registrations.standing(key);
  }

  /** Why an invocation of this version cannot be shown to the scheduler now, in words for the caller; undefined where it can. */
  whyNot(key: string): string | undefined {
    switch (this.#status) {
      case 'starting':
        return 'the GPU process is starting';
      case 'restarting':
        return `the GPU process is restarting: ${this.#reason ?? 'it ended'}`;
      case 'unavailable':
        return `there is no GPU: ${this.#reason ?? 'none was found'}`;
      case 'stopped':
        return 'the host is stopping';
      case 'up':
        return this.#registrations.isPresent(key) ? this.#failures.whyNot(key) : this.#whyAbsent(key);
    }
  }

  #whyAbsent(key: string): string {
    const standing = this.#registrations.standing(key);
    switch (standing?.status) {
      case undefined:
      case 'waiting':
        return 'not planned yet';
      case 'planned':
        return 'the GPU process was restarted and does not have it again yet';
      case 'refused':
        return `refused: ${standing.reason}`;
    }
  }

  /** Functions whose runs fail and that are left to the CPU pool for now, with the reason. */
  get failing(): ReadonlyMap<string, string> {
    return new Map(this.#failures.paused());
  }

  /** @throws GpuError */
  async invoke(
    version: FunctionVersion,
    inputs: readonly Tensor[],
    signal?: AbortSignal,
    wish?: GpuWish,
  ): Promise<GpuOutcome> {
    const { shell } = this;
    // It may have gone since it was asked for.
    const reason = this.whyNot(version.key);
    if (shell === undefined || reason !== undefined) {
      return { kind: 'offload', reason: reason ?? 'the GPU process is starting', done: () => undefined };
    }
    const { key } = version;
    this.#inFlight++;
    this.#failures.begin(key);
    try {
      const outcome = await shell.invoke(key, inputs, signal, wish);
      if (outcome.kind !== 'ran') return outcome;
      this.#record(version, outcome);
      return { ...outcome, result: { ...outcome.result, outputs: inOrder(outcome.result.outputs, version.metadata) } };
    } catch (error) {
      if (!(error instanceof GpuError) || error.code !== 'invalid') throw error;
      // The input's fault or the function's: where the CPU pool answers it was not the input's.
      const done = (isAnswered?: boolean): void => {
        if (isAnswered === true) this.#failures.failed(key, error.message);
      };
      return { kind: 'offload', reason: `gpu refused it: ${error.message}`, done };
    } finally {
      this.#failures.ended(key);
      this.#inFlight--;
      if (this.#inFlight === 0) for (const wake of this.#idleWaiters.splice(0)) wake();
    }
  }

  /** The newest first. */
  coldStarts(): readonly RecordedColdStart[] {
    return this.#coldStarts;
  }

  #record({ name }: FunctionVersion, { result, gpu, mode }: Extract<GpuOutcome, { kind: 'ran' }>): void {
    const { timeline, loadedBytes } = result;
    if (timeline === undefined) return;
    const gpuName = this.#info?.devices[gpu]?.name ?? '';
    const id = this.#nextColdStart++;
    this.#coldStarts.unshift({ id, atMs: Date.now(), functionName: name, gpu, gpuName, mode, loadedBytes, timeline });
    if (this.#coldStarts.length > coldStartsKept) this.#coldStarts.pop();
  }

  /**
   * Has the function's weights on a GPU: one run with made-up inputs, counted nowhere. Resolves to false where no GPU can have
   * them now.
   */
  async load(version: FunctionVersion): Promise<boolean> {
    await this.planned(version.key);
    const { shell } = this;
    if (shell === undefined || this.whyNot(version.key) !== undefined || version.metadata === undefined) return false;
    const outcome = await shell.preload(version.key, emptyInputs(version.metadata));
    if (outcome.kind === 'offload') outcome.done();
    return outcome.kind === 'ran';
  }

  /** A run brings weights along, and waits for whatever of it is still to be compiled. */
  #runLimitMs(key: string): number | undefined {
    const at = key.lastIndexOf('@');
    const timeouts = this.#options.registry.find(key.slice(0, at), key.slice(at + 1))?.settings.timeouts;
    return timeouts && timeouts.loadMs + timeouts.inferMs;
  }

  async unload(version: FunctionVersion): Promise<void> {
    await this.shell?.unload(version.key);
  }

  /** Resolves when everything that was registered so far is planned or refused. */
  async settled(): Promise<void> {
    await this.#opening;
    await this.#registrations.settled();
  }

  /** Resolves when this function is planned or refused, at once where it is. */
  async planned(key: string): Promise<void> {
    if (this.#status === 'up' || this.#status === 'starting') await this.#registrations.planned(key);
  }

  async state(): Promise<GpuProcessState | undefined> {
    return this.#status === 'up' ? await this.#client.state().catch(() => undefined) : undefined;
  }

  /** What the engine said last, for who must not wait. */
  get lastState(): GpuProcessState | undefined {
    return this.#lastState;
  }

  /** As {@link state}, asked for once where several ask at the same time; of a process that does not answer, what it said last. */
  freshState(): Promise<GpuProcessState | undefined> {
    this.#asking ??= this.#ask();
    return this.#asking;
  }

  #ask(): Promise<GpuProcessState | undefined> {
    return new Promise((resolve) => {
      const late = setTimeout(() => resolve(this.#lastState), stateWaitMs);
      const take = async (): Promise<void> => {
        this.#lastState = await this.state();
        clearTimeout(late);
        // Until now whoever asked was not kept waiting a second time.
        this.#asking = undefined;
        resolve(this.#lastState);
      };
      void take();
    });
  }

  async close(): Promise<void> {
    this.#status = 'stopped';
    clearTimeout(this.#restartTimer);
    this.shell?.close();
    for (const wake of this.#idleWaiters.splice(0)) wake();
    await this.#client.stop();
    this.#options.hybridCores.lease[Symbol.dispose]();
    await this.#opening;
    await this.#registrations.close();
  }

  /** Resolves when no invocation is with the scheduler. */
  async #whenIdle(): Promise<void> {
    if (this.#inFlight > 0) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
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
      this.#ground = await this.#survey(this.#info);
    } catch (error) {
      // Where the process has ended meanwhile the next one is surveyed.
      logger.warn({ err: error }, 'the GPUs could not be surveyed');
      if (this.#status === 'starting') await this.#giveUp((error as Error).message);
      return;
    }
    // It may have ended, or been stopped, just now.
    if (this.#status !== 'starting') return;
    this.#isUp(this.#ground);
    logger.info({ gpus: this.#info.devices.map(({ name }) => name) }, 'the GPU process is up');
  }

  async #giveUp(reason: string): Promise<void> {
    clearTimeout(this.#restartTimer);
    this.#status = 'unavailable';
    this.#reason = reason;
    this.#options.logger.info({ reason }, 'no GPU: the CPU pools serve everything');
    this.#options.hybridCores.lease[Symbol.dispose]();
    await this.#registrations.close();
  }

  /** What the planners and the scheduler need to know of these GPUs, measured where no driver tells. */
  async #survey(info: GpuProcessInfo): Promise<GpuGround> {
    const { dataDir, policy, cpuCores, cpuOffer, logger, onEvicted } = this.#options;
    // The engine has most of the memory already; what is timed must fit beside it.
    const spareBytes = Math.min(...info.devices.map(({ totalBytes, limitBytes }) => totalBytes - limitBytes));
    const copyBytes = Math.max(65_536, Math.min(64 * 2 ** 20, Math.floor(spareBytes / 8)));
    const machine = machineOf(info, await this.#client.topology(copyBytes));
    const names = info.devices.map(({ name }) => name).join(', ');
    const identity = `${names}; driver ${info.driverVersion}; ${info.compilerVersion}`;
    return {
      machine,
      machineName: identity,
      shelf: new ProfileShelf(join(dataDir, 'plans', 'profiles'), identity),
      shell: new GpuShell({
        gpus: schedulerGpusOf(machine),
        policy: policies[policy],
        cpuCores,
        runner: this.#failures.watch(this.#runLimits.watch(this.#client)),
        cpuOffer,
        ...(onEvicted === undefined ? {} : { onEvicted }),
        onDefect: (message) => logger.error(message),
      }),
    };
  }

  #isUp(ground: GpuGround): void {
    this.#status = 'up';
    this.#reason = undefined;
    this.#lastUpMs = performance.now();
    ground.shell.back();
    this.#registrations.up(ground);
  }

  #down(reason: string): void {
    if (this.#isStopped() || this.#status === 'unavailable') return;
    // Those that did not even come up add to the ones before.
    if (this.#status === 'up' && performance.now() - this.#lastUpMs > steadyMs) this.#deaths = 0;
    this.#status = 'restarting';
    this.#reason = reason;
    this.#registrations.down();
    this.shell?.lost();
    this.#options.onDown?.(reason);
    // One that dies while it is surveyed is told of twice.
    clearTimeout(this.#restartTimer);
    const delayMs = restartDelaysMs[Math.min(this.#deaths, restartDelaysMs.length - 1)]!;
    this.#deaths++;
    this.#options.logger.error({ reason, delayMs }, 'the GPU process is down; the CPU pools carry the load');
    this.#restartTimer = setTimeout(() => void this.#restart(), delayMs);
  }

  async #restart(): Promise<void> {
    let ground: GpuGround;
    try {
      const info = await this.#client.reopen();
      this.#info = info;
      ground = this.#ground ??= await this.#survey(info);
    } catch (error) {
      if (this.#isStopped()) return;
      // What has never come up in so many tries is not there; what has been may come back.
      if (this.#ground === undefined && this.#deaths >= restartDelaysMs.length)
        await this.#giveUp((error as Error).message);
      else this.#down((error as Error).message);
      return;
    }
    if (this.#isStopped()) return;
    this.restarts++;
    this.#isUp(ground);
    this.#options.onUp?.();
    this.#options.logger.info('the GPU process is up again');
  }

  #isStopped(): boolean {
    return this.#status === 'stopped';
  }
}

/** Of a GPU's bytes for the engine; the rest is for activations, constants, and weights passing through. */
const weightShare = 0.85;

function schedulerGpusOf({ gpus, switches }: Machine): SchedulerGpu[] {
  return gpus.map((gpu) => ({
    capacityBytes: Math.floor(gpu.memoryBytes * weightShare),
    switch: gpu.switch,
    linkGBps: gpu.linkGBps,
    uplinkGBps: switches[gpu.switch]!.uplinkGBps,
  }));
}
