/**
 * The GPUs of this host, from the start of the GPU process to its end: every ready function is registered there in the background, its
 * layers are measured when nothing waits, and from then on the scheduler has it. Until then, and whenever the process is down, the
 * CPU pools carry everything.
 */
import { join } from 'node:path';
import type { Logger } from 'pino';
import {
  GpuError,
  startGpuProcess,
  type GpuClient,
  type GpuCoverage,
  type GpuProcessInfo,
  type GpuProcessState,
  type InputShapes,
} from '../../gpu/index.ts';
import type { Machine } from '../../hardware/index.ts';
import type { ColdStartMode } from '../../plan/index.ts';
import type { LayerProfile } from '../../profile/index.ts';
import { policies, type CpuOffer, type PolicyName, type SchedulerGpu } from '../../schedule/index.ts';
import { elementBytes, type Tensor } from '../../tensor/index.ts';
import type { RecordedColdStart } from '../dashboard/index.ts';
import type { FunctionVersion, ModelMetadata, Registry } from '../types.ts';
import { machineOf } from './machine.ts';
import { forgetPlans, makePlans, ProfileShelf, structureOf, writePlans } from './plan-book.ts';
import { GpuShell } from './shell.ts';
import type { GpuOutcome, ShellEviction } from './shell-types.ts';

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
  readonly cpuOffer: (key: string) => CpuOffer;
  /** Repetitions of each measurement of a layer. */
  readonly iterations: number;
  /** Where the driver's libraries are, for another one than the system's. */
  readonly environment?: Readonly<Record<string, string>> | undefined;
  readonly onEvicted?: ((eviction: ShellEviction) => void) | undefined;
  readonly onDown?: ((reason: string) => void) | undefined;
  readonly onUp?: (() => void) | undefined;
}

/** Where a function stands with the GPUs. */
export type GpuStanding =
  | { readonly status: 'waiting' }
  | { readonly status: 'planned'; readonly mode: string; readonly weightBytes: number }
  /** Served by the CPU pool for good; the reason names the operator. */
  | { readonly status: 'refused'; readonly reason: string };

export type GpuStatus = 'starting' | 'up' | 'restarting' | 'unavailable' | 'stopped';

/** The first restart comes at once; a process that dies again and again is left longer and longer. */
const restartDelaysMs = [0, 500, 2000, 10_000, 60_000];
/** Timelines of large models are hundreds of kilobytes as JSON. */
const coldStartsKept = 40;
/** After so long without dying the next death counts as the first one. */
const steadyMs = 60_000;

export class GpuHost {
  readonly #options: GpuHostOptions;
  readonly #client: GpuClient;
  readonly #standings = new Map<string, GpuStanding>();
  readonly #known = new Map<string, FunctionVersion>();
  #info: GpuProcessInfo | undefined;
  #machine: Machine | undefined;
  #shell: GpuShell | undefined;
  #shelf: ProfileShelf | undefined;
  #status: GpuStatus = 'starting';
  #reason: string | undefined;
  /** Registrations go one after the other, behind what came before. */
  #work: Promise<void> = Promise.resolve();
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
    const { dataDir, hostBytes, gpuBytes, slabBytes, environment, logger, registry } = options;
    this.#client = startGpuProcess({
      hostBytes,
      cacheFolder: join(dataDir, 'cache', 'gpu'),
      ...(gpuBytes === undefined ? {} : { gpuBytes }),
      ...(slabBytes === undefined ? {} : { slabBytes }),
      ...(environment === undefined ? {} : { environment }),
      log: (line) => logger.info({ process: 'gpu' }, line),
    });
    this.#client.onDown((reason) => this.#down(reason));
    this.#enqueue(() => this.#open());
    registry.onChange(({ before, after }) => this.#changed(before, after));
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
    return this.#shell;
  }

  /** The GPUs as the scheduler sees them; none before they are up for the first time. */
  get schedulerGpus(): readonly SchedulerGpu[] {
    const machine = this.#machine;
    if (machine === undefined) return [];
    return machine.gpus.map((gpu) => ({
      capacityBytes: Math.floor(gpu.memoryBytes * weightShare),
      switch: gpu.switch,
      linkGBps: gpu.linkGBps,
      uplinkGBps: machine.switches[gpu.switch]!.uplinkGBps,
    }));
  }

  get pid(): number {
    return this.#client.pid;
  }

  standing(key: string): GpuStanding | undefined {
    return this.#standings.get(key);
  }

  /** Whether an invocation of this version can be shown to the scheduler now. */
  takes(key: string): boolean {
    return this.#status === 'up' && this.#shell?.has(key) === true;
  }

  /** @throws GpuError */
  async invoke(version: FunctionVersion, inputs: readonly Tensor[], signal?: AbortSignal): Promise<GpuOutcome> {
    const shell = this.#shell;
    if (shell === undefined) return { kind: 'offload', reason: 'the GPU process is starting', done: () => undefined };
    this.#inFlight++;
    try {
      const outcome = await shell.invoke(version.key, inputs, signal);
      if (outcome.kind !== 'ran') return outcome;
      this.#record(version, outcome);
      return { ...outcome, result: { ...outcome.result, outputs: inOrder(outcome.result.outputs, version.metadata) } };
    } finally {
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
    const shell = this.#shell;
    if (shell === undefined || !this.takes(version.key) || version.metadata === undefined) return false;
    const outcome = await shell.preload(version.key, emptyInputs(version.metadata));
    if (outcome.kind === 'offload') outcome.done();
    return outcome.kind === 'ran';
  }

  async unload(version: FunctionVersion): Promise<void> {
    await this.#shell?.unload(version.key);
  }

  /** Resolves when everything that was registered so far is planned or refused. */
  async settled(): Promise<void> {
    await this.#work;
  }

  /** Resolves when this function is planned or refused, at once where it is. */
  async planned(key: string): Promise<void> {
    if (this.#standings.get(key)?.status === 'waiting') await this.#work;
  }

  async state(): Promise<GpuProcessState | undefined> {
    return this.#status === 'up' ? await this.#client.state().catch(() => undefined) : undefined;
  }

  /** What the engine said last, for who must not wait. */
  get lastState(): GpuProcessState | undefined {
    return this.#lastState;
  }

  /** As {@link state}, asked for once where several ask at the same time. */
  async freshState(): Promise<GpuProcessState | undefined> {
    this.#asking ??= this.state().finally(() => (this.#asking = undefined));
    this.#lastState = await this.#asking;
    return this.#lastState;
  }

  async close(): Promise<void> {
    this.#status = 'stopped';
    clearTimeout(this.#restartTimer);
    this.#shell?.close();
    for (const wake of this.#idleWaiters.splice(0)) wake();
    await this.#client.stop();
    await this.#work;
  }

  async #open(): Promise<void> {
    try {
      this.#info = await this.#client.ready;
    } catch (error) {
      this.#status = 'unavailable';
      this.#reason = (error as Error).message;
      this.#options.logger.info({ reason: this.#reason }, 'no GPU: the CPU pools serve everything');
      return;
    }
    const { dataDir, policy, cpuCores, cpuOffer, logger, onEvicted } = this.#options;
    // The engine has most of the memory already; what is timed must fit beside it.
    const spareBytes = Math.min(...this.#info.devices.map(({ totalBytes, limitBytes }) => totalBytes - limitBytes));
    const copyBytes = Math.max(65_536, Math.min(64 * 2 ** 20, Math.floor(spareBytes / 8)));
    const topology = await this.#client.topology(copyBytes);
    this.#machine = machineOf(this.#info, topology);
    this.#shelf = new ProfileShelf(
      join(dataDir, 'plans', 'profiles'),
      `${this.#info.devices.map(({ name }) => name).join(', ')}; driver ${this.#info.driverVersion}; ${this.#info.compilerVersion}`,
    );
    this.#shell = new GpuShell({
      gpus: this.schedulerGpus,
      policy: policies[policy],
      cpuCores,
      runner: this.#client,
      cpuOffer,
      ...(onEvicted === undefined ? {} : { onEvicted }),
      onDefect: (message) => logger.error(message),
    });
    if (this.#isStopped()) return;
    this.#status = 'up';
    this.#lastUpMs = performance.now();
    logger.info({ gpus: this.#info.devices.map(({ name }) => name) }, 'the GPU process is up');
  }

  #changed(before: FunctionVersion | undefined, after: FunctionVersion | undefined): void {
    if (this.#status === 'unavailable' || this.#status === 'stopped') return;
    const known = after === undefined ? undefined : this.#known.get(after.key);
    const isReady = after?.state.status === 'ready';
    if (before !== undefined && (after === undefined || !isReady)) this.#forget(before.key);
    if (!isReady) return;
    if (known !== undefined && known.modelSha256 === after.modelSha256 && known.modelPath === after.modelPath) {
      this.#known.set(after.key, after);
      this.#offerAgain(after);
      return;
    }
    if (known !== undefined) this.#forget(after.key);
    this.#known.set(after.key, after);
    this.#standings.set(after.key, { status: 'waiting' });
    this.#enqueue(() => this.#register(after));
  }

  #forget(key: string): void {
    if (!this.#known.delete(key)) return;
    this.#standings.delete(key);
    this.#enqueue(async () => {
      await forgetPlans(join(this.#options.dataDir, 'plans'), key);
      await this.#shell?.remove(key);
      await this.#client.unregister(key);
    });
  }

  /** Another SLO, another pin: the plans stand. */
  #offerAgain(version: FunctionVersion): void {
    const plans = this.#shell?.plansOf(version.key);
    if (plans !== undefined) this.#shell?.offer(version.key, plans, version.settings);
  }

  async #register(version: FunctionVersion): Promise<void> {
    const { key, metadata } = version;
    if (this.#known.get(key) !== version || this.#status === 'unavailable' || this.#isStopped()) return;
    if (version.handlerPath !== undefined) {
      this.#standings.set(key, {
        status: 'refused',
        reason: 'its handler runs in the CPU pool, and its model beside it',
      });
      return;
    }
    if (metadata === undefined) return;
    const shapes = shapesOf(metadata);
    try {
      const coverage = await this.#client.register({ key, modelPath: version.modelPath, shapes });
      if (!coverage.covered) {
        const [first] = coverage.obstacles;
        const more = coverage.obstacles.length > 1 ? `, and ${coverage.obstacles.length - 1} more` : '';
        const reason =
          first === undefined ? 'it is not covered' : `${first.operator} (${first.node}): ${first.reason}${more}`;
        this.#standings.set(key, { status: 'refused', reason });
        this.#options.logger.info({ function: key, reason }, 'stays on the CPU pool');
        return;
      }
      const profile = await this.#profile(version, coverage, shapes);
      if (this.#known.get(key) === undefined || this.#machine === undefined) return;
      const plans = makePlans(profile, this.#machine, this.#options.mode);
      await writePlans(join(this.#options.dataDir, 'plans'), key, plans);
      this.#shell?.offer(key, plans, this.#known.get(key)!.settings);
      this.#standings.set(key, { status: 'planned', mode: plans.mode, weightBytes: coverage.weightBytes });
      if (version.settings.pinned) void this.load(version).catch(() => undefined);
    } catch (error) {
      if (this.#isStopped()) return;
      const reason = (error as Error).message;
      // A process that died meanwhile is restarted, and the function with it.
      if (
        error instanceof GpuError &&
        error.retriable &&
        error.code !== 'out-of-memory' &&
        error.code !== 'host-memory'
      ) {
        this.#known.delete(key);
        this.#enqueue(async () => {
          if (this.#options.registry.find(version.name, version.version) === version) this.#changed(undefined, version);
        });
        return;
      }
      this.#standings.set(key, { status: 'refused', reason });
      this.#options.logger.warn({ function: key, reason }, 'could not be planned for the GPUs');
    }
  }

  async #profile(
    version: FunctionVersion,
    coverage: Extract<GpuCoverage, { covered: true }>,
    shapes: InputShapes,
  ): Promise<LayerProfile> {
    const structure = structureOf(coverage, shapes);
    const kept = await this.#shelf!.find(structure);
    if (kept !== undefined) return kept;
    // What is measured beside other work is neither here nor there.
    if (this.#inFlight > 0) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
    const measured = await this.#client.measure(version.key, { gpu: 0, iterations: this.#options.iterations });
    await this.#client.evict(version.key, 0);
    await this.#shelf!.keep(structure, version.name, { unit: measured.unit, layers: measured.layers });
    return measured;
  }

  #down(reason: string): void {
    if (this.#isStopped() || this.#status === 'unavailable') return;
    this.#status = 'restarting';
    this.#reason = reason;
    this.#shell?.lost();
    this.#options.onDown?.(reason);
    if (performance.now() - this.#lastUpMs > steadyMs) this.#deaths = 0;
    const delayMs = restartDelaysMs[Math.min(this.#deaths, restartDelaysMs.length - 1)]!;
    this.#deaths++;
    this.#options.logger.error({ reason, delayMs }, 'the GPU process is down; the CPU pools carry the load');
    this.#restartTimer = setTimeout(() => void this.#restart(), delayMs);
  }

  async #restart(): Promise<void> {
    try {
      await this.#client.restart();
    } catch (error) {
      if (!this.#isStopped()) this.#down((error as Error).message);
      return;
    }
    if (this.#isStopped()) return;
    this.restarts++;
    this.#status = 'up';
    this.#reason = undefined;
    this.#lastUpMs = performance.now();
    this.#shell?.back();
    this.#options.onUp?.();
    this.#options.logger.info('the GPU process is up again');
  }

  #isStopped(): boolean {
    return this.#status === 'stopped';
  }

  #enqueue(work: () => Promise<void>): void {
    this.#work = this.#work.then(work).catch((error: unknown) => {
      if (!this.#isStopped()) this.#options.logger.warn({ err: error }, 'background work for the GPUs failed');
    });
  }
}

/** Of a GPU's bytes for the engine; the rest is for activations, constants, and weights passing through. */
const weightShare = 0.85;

/** The shapes that a function is compiled and measured for; others are compiled when they come. */
function shapesOf({ inputs }: ModelMetadata): InputShapes {
  return Object.fromEntries(
    inputs.map(({ name, shape, dimensionNames }) => [
      name,
      shape.map((size, axis) => {
        if (size !== -1) return size;
        if (axis === 0) return 1;
        const dimension = dimensionNames[axis];
        return dimension !== undefined && /seq|token|length/i.test(dimension) ? 128 : shape.length === 4 ? 224 : 1;
      }),
    ]),
  );
}

function emptyInputs(metadata: ModelMetadata): Tensor[] {
  const shapes = shapesOf(metadata);
  return metadata.inputs.map(({ name, datatype }) => {
    const shape = [...shapes[name]!];
    const elements = shape.reduce((product, size) => product * size, 1);
    return { name, datatype, shape, data: new Uint8Array(elements * elementBytes[datatype]) };
  });
}

/** As the model names its outputs, one after the other. */
function inOrder(outputs: readonly Tensor[], metadata: ModelMetadata | undefined): readonly Tensor[] {
  if (metadata === undefined) return outputs;
  const byName = new Map(outputs.map((output) => [output.name, output]));
  return metadata.outputs.flatMap(({ name }) => byName.get(name) ?? []);
}
