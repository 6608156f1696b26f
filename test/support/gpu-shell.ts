/**
 * The live scheduler with a fake GPU process, which keeps its own account of residency and refuses what has no room.
 */
import {
  GpuError,
  type GpuErrorCode,
  type GpuRunOptions,
  type LoadResult,
  type RunResult,
  type Staged,
} from '../../src/gpu/index.ts';
import {
  LiveScheduler,
  type FunctionPlans,
  type GpuEviction,
  type GpuRunner,
  type HostRunner,
  type InvocationTerms,
  type Placed,
  type ScheduledSettings,
} from '../../src/live/index.ts';
import type { ColdStartPlan } from '../../src/plan/index.ts';
import { policies, type GpuOffer, type Policy } from '../../src/schedule/index.ts';
import { elements, tensorOf, type Tensor } from '../../src/tensor/index.ts';
import type { CancelSignal } from '../../src/tools/index.ts';

export const layerBytes = 10;
export const layerCount = 4;
export const wholeBytes = layerBytes * layerCount;
export const warmMs = 2;
export const layerMs = 5;
/** Two functions and a half. */
const capacityBytes = 100;

const planOf = (primary: number, loaded: readonly number[]): ColdStartPlan => ({
  mode: 'pipeswitch',
  primary,
  secondaries: [],
  bytesGpu: loaded.length * layerBytes,
  layers: Array.from({ length: layerCount }, (_, layer) =>
    loaded.includes(layer)
      ? ({ name: `layer ${layer}`, method: 'load', link: 0 } as const)
      : ({ name: `layer ${layer}`, method: 'dha', link: null } as const),
  ),
});

/** The layers of each plan variant; those of the smaller one are not the first ones of the larger. */
const variantLayers: Readonly<Record<string, readonly number[]>> = { gpu: [0, 1, 2, 3], memory: [0, 2] };
/** @param executed of a function without variants, the last layers, which stay in host memory */
const layersOf = (variant: string | undefined, executed = 0): readonly number[] =>
  variantLayers[variant ?? 'gpu']!.filter((layer) => layer < layerCount - executed);
const variantWarmMs = (variant: string | undefined): number => (variant === 'memory' ? 2 * warmMs : warmMs);

function offerOf(link: number, variant: string | undefined, executed = 0): GpuOffer {
  const count = layersOf(variant, executed).length;
  const prefixes = Array.from({ length: count + 1 }, (_, prefix) => prefix);
  const missing = prefixes.map((prefix) => count - prefix);
  return {
    ...(variant === undefined ? {} : { plan: variant }),
    warmMs: variantWarmMs(variant),
    prefixBytes: prefixes.map((prefix) => prefix * layerBytes),
    overlapPrefix: Math.floor(count / 2),
    ways: [
      {
        mode: 'pipeswitch',
        coldMs: missing.map((layers) => variantWarmMs(variant) + layers * layerMs),
        transfers: [
          {
            link,
            bytes: missing.map((layers) => layers * layerBytes),
            ms: missing.map((layers) => layers * layerMs),
            tailMs: missing.map(() => warmMs / layerCount),
          },
        ],
      },
    ],
  };
}

/** @param executed how many of the last layers are executed from host memory; none of those with variants */
export function plansFor(gpuCount: number, hasVariants = false, executed = 0): FunctionPlans {
  const offers = Array.from({ length: gpuCount }, (_, link) =>
    hasVariants ? { ...offerOf(link, 'gpu'), smaller: offerOf(link, 'memory') } : offerOf(link, undefined, executed),
  );
  return {
    mode: 'pipeswitch',
    isTooLarge: false,
    offers,
    planOf: (gpu, _mode, variant) => planOf(gpu, layersOf(variant, hasVariants ? 0 : executed)),
  };
}

/** Layers that a run or load brings to its GPU. */
const loadedBy = ({ layers }: ColdStartPlan): readonly number[] =>
  [...layers.keys()].filter((layer) => layers[layer]!.method === 'load');

/** The host had no memory for an answer. */
export class NoMemory extends Error {}

/** Answers with its inputs, keeps its own account of GPUs and host memory, and refuses what has no room. */
class MadeUpProcess implements GpuRunner, HostRunner {
  readonly resident: Map<string, ReadonlySet<number>>[];
  /** Outcomes of the next runs; success if empty. After {@link NoMemory} the outputs of a success did not arrive. */
  readonly failures: (GpuErrorCode | NoMemory)[] = [];
  readonly orders: string[] = [];
  /** By function, its layers in host memory; undefined: all is there. */
  readonly inHost: Map<string, Set<number>> | undefined;
  hostBytesMax: number;
  /** What becomes of the next reads. */
  readonly unread: (GpuErrorCode | 'refused')[] = [];
  /** Of runs with inputs. */
  readonly rows: number[] = [];
  /** By function and GPU, when all its weights are there. */
  readonly #completeMs = new Map<string, number>();
  readonly #inFlight = new Set<(error: Error) => void>();
  #deaths = 0;
  /** By GPU, the latest free. */
  readonly #freed: Promise<unknown>[] = [];
  /** By GPU, runs under way that the scheduler counts as over. */
  readonly #countedAsOver: Set<Promise<unknown>>[];
  readonly #capacityBytes: number;
  overfull: string | undefined;
  /** Actual over profiled durations. */
  stretch = 1;
  /** Time of a read from disk. */
  diskMs = 0;
  /** Delay between the end of a load and its answer. */
  loadAnswerMs = 0;
  /** How long outputs are on their way. */
  outputMs = 0;
  finished = 0;
  aborted = 0;

  constructor(gpuCount: number, bytes = capacityBytes, hostBytes?: number) {
    this.inHost = hostBytes === undefined ? undefined : new Map();
    this.hostBytesMax = hostBytes ?? Infinity;
    this.resident = Array.from({ length: gpuCount }, () => new Map());
    this.#countedAsOver = Array.from({ length: gpuCount }, () => new Set());
    this.#capacityBytes = bytes;
  }

  bytes(gpu: number): number {
    return [...this.resident[gpu]!.values()].reduce((sum, layers) => sum + layers.size * layerBytes, 0);
  }

  run(key: string, inputs: readonly Tensor[], options: GpuRunOptions): Promise<RunResult> {
    const running = this.#run(key, inputs, options);
    if (options.onLaneFree !== undefined) return running;
    const runs = this.#countedAsOver[options.gpu]!;
    const over: Promise<unknown> = running.catch(() => undefined).then(() => runs.delete(over));
    runs.add(over);
    return running;
  }

  async #run(
    key: string,
    inputs: readonly Tensor[],
    { gpu, plan, variant, signal, onLaneFree }: GpuRunOptions,
  ): Promise<RunResult> {
    this.orders.push(`run ${key} on ${gpu}${variant === undefined ? '' : ` under ${variant}`}`);
    if (inputs.length > 0) this.rows.push(inputs[0]!.shape[0]!);
    const deaths = this.#deaths;
    await this.#freed[gpu];
    this.#mustLive(deaths);
    const loaded = loadedBy(plan);
    const failure = this.failures.shift();
    if (typeof failure === 'string') {
      await this.#pass(1, signal);
      // It got part of the way before it failed.
      if (!this.resident[gpu]!.has(key)) this.resident[gpu]!.set(key, new Set(loaded.slice(0, 1)));
      throw new GpuError(failure, failure);
    }
    const executed = plan.layers.flatMap(({ method }, layer) => (method === 'dha' ? [layer] : []));
    this.#mustBeInHost(key, executed);
    const layers = loaded.length;
    const missing = this.#bring(key, gpu, loaded);
    // A larger plan's load in progress does not matter to this one.
    const completeMs = variant === 'memory' ? 0 : (this.#completeMs.get(`${key} ${gpu}`) ?? 0);
    const leftMs = Math.max(0, completeMs - performance.now());
    const gpuMs = this.stretch * (variantWarmMs(variant) + Math.max(missing * layerMs, leftMs));
    await this.#pass(gpuMs, signal);
    if (this.outputMs > 0) {
      onLaneFree?.();
      await this.#pass(this.outputMs, signal);
    }
    this.finished++;
    if (failure !== undefined) throw failure;
    const start = missing === 0 ? 'warm' : missing === layers ? 'cold' : 'partial';
    const loadedBytes = missing * layerBytes;
    const timings = { waitMs: 0, gpuMs, totalMs: gpuMs };
    return { outputs: inputs, start, loadedBytes, fromDisk: false, graph: false, timings };
  }

  async load(
    key: string,
    { gpu, plan, variant, signal }: Pick<GpuRunOptions, 'gpu' | 'plan' | 'variant' | 'signal'>,
  ): Promise<LoadResult> {
    this.orders.push(`load ${key} to ${gpu}${variant === undefined ? '' : ` under ${variant}`}`);
    const deaths = this.#deaths;
    await this.#freed[gpu];
    this.#mustLive(deaths);
    const missing = this.#bring(key, gpu, loadedBy(plan));
    this.#completeMs.set(`${key} ${gpu}`, performance.now() + missing * layerMs);
    await this.#pass(missing * layerMs + this.loadAnswerMs, signal);
    return { bytes: missing * layerBytes, fromDisk: false };
  }

  hostBytes(): number {
    return [...(this.inHost?.values() ?? [])].reduce((sum, layers) => sum + layers.size * layerBytes, 0);
  }

  async stage(key: string, layers: readonly number[]): Promise<Staged> {
    this.orders.push(`stage ${key}`);
    const there = this.inHost!.get(key) ?? new Set();
    const missing = layers.filter((layer) => !there.has(layer));
    const bytes = missing.length * layerBytes;
    const failure = this.unread.shift();
    if (failure === 'refused' || this.hostBytes() + bytes > this.hostBytesMax)
      return { kind: 'refused', largestFreeBytes: 0 };
    this.inHost!.set(key, there);
    for (const layer of missing) there.add(layer);
    await this.#pass(this.diskMs, undefined);
    if (failure === undefined) return { kind: 'staged', bytes, ms: this.diskMs, isCached: false };
    for (const layer of missing) there.delete(layer);
    throw new GpuError(failure, failure);
  }

  drop(key: string, layers: readonly number[]): Promise<number> {
    this.orders.push(`drop ${key}`);
    for (const layer of layers) this.inHost!.get(key)?.delete(layer);
    return Promise.resolve(layers.length * layerBytes);
  }

  trim(key: string, gpu: number, layers: number): Promise<number> {
    this.orders.push(`trim ${key} on ${gpu} to ${layers}`);
    return this.#free(key, gpu, (had) => had.slice(0, layers));
  }

  release(key: string, gpu: number): Promise<number> {
    throw new Error(`${key} shares nothing on GPU ${gpu}`);
  }

  keep(key: string, gpu: number, kept: readonly number[]): Promise<number> {
    this.orders.push(`keep ${kept.join()} of ${key} on ${gpu}`);
    return this.#free(key, gpu, (had) => had.filter((layer) => kept.includes(layer)));
  }

  /** Later runs and loads on this GPU wait for it. */
  #free(key: string, gpu: number, keptOf: (had: readonly number[]) => readonly number[]): Promise<number> {
    const runs = [...this.#countedAsOver[gpu]!];
    const before = this.#freed[gpu];
    const free = async (): Promise<number> => {
      await Promise.all([before, ...runs]);
      await this.#pass(1, undefined);
      return this.#leave(key, gpu, keptOf(this.#layers(key, gpu)));
    };
    const freed = free();
    this.#freed[gpu] = freed.catch(() => undefined);
    return freed;
  }

  #layers(key: string, gpu: number): number[] {
    return [...(this.resident[gpu]!.get(key) ?? [])].toSorted((a, b) => a - b);
  }

  #leave(key: string, gpu: number, layers: readonly number[]): number {
    const had = this.#layers(key, gpu).length;
    if (layers.length === 0) this.resident[gpu]!.delete(key);
    else this.resident[gpu]!.set(key, new Set(layers));
    return (had - layers.length) * layerBytes;
  }

  /** @param deaths when the request came */
  #mustLive(deaths: number): void {
    if (deaths !== this.#deaths) throw new GpuError('died', 'the GPU process died');
  }

  die(): void {
    this.#deaths++;
    for (const resident of this.resident) resident.clear();
    this.inHost?.clear();
    for (const reject of this.#inFlight) reject(new GpuError('died', 'the GPU process died'));
  }

  /** As the engine: layers that are being read count. */
  #mustBeInHost(key: string, layers: readonly number[]): void {
    if (this.inHost === undefined) return;
    for (const layer of layers)
      if (this.inHost.get(key)?.has(layer) !== true)
        throw new GpuError('host-memory', `layer ${layer} of ${key} is not in host memory`);
  }

  /** Returns how many layers were missing. */
  #bring(key: string, gpu: number, wanted: readonly number[]): number {
    const had = this.#layers(key, gpu);
    this.#mustBeInHost(
      key,
      wanted.filter((layer) => !had.includes(layer)),
    );
    const layers = new Set([...had, ...wanted]);
    this.resident[gpu]!.set(key, layers);
    if (this.bytes(gpu) > this.#capacityBytes) {
      this.overfull ??= `GPU ${gpu} holds ${[...this.resident[gpu]!.keys()].join(' ')}`;
    }
    return layers.size - had.length;
  }

  #pass(ms: number, signal: CancelSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const over = (): void => {
        clearTimeout(timer);
        this.#inFlight.delete(fail);
        signal?.removeEventListener('abort', abort);
      };
      const fail = (error: Error): void => {
        over();
        reject(error);
      };
      const abort = (): void => {
        this.aborted++;
        fail(new GpuError('cancelled', 'cancelled'));
      };
      const timer = setTimeout(() => {
        over();
        resolve();
      }, ms);
      this.#inFlight.add(fail);
      signal?.addEventListener('abort', abort, { once: true });
    });
  }
}

interface Setting {
  readonly gpuCount?: number;
  readonly policy?: Policy;
  readonly functions?: number;
  readonly cpuMs?: number | 'unknown';
  readonly bytes?: number;
  /** Of pinned host memory; left out: everything is there. */
  readonly hostBytes?: number | undefined;
  readonly hasVariants?: boolean;
  readonly cpuCores?: number;
  readonly waitingMax?: number;
}

export const settings = { sloMs: 100, priority: 100, pinned: false };
export const gpuOnly: Policy = { ...policies.best, offload: 'never' };

export class Bench {
  process: MadeUpProcess;
  readonly shell: LiveScheduler;
  readonly evictions: GpuEviction[] = [];
  readonly news: string[] = [];
  readonly defects: string[] = [];
  plans: FunctionPlans;
  readonly settings: ScheduledSettings[] = [];
  readonly outcomes: (Placed | Error)[] = [];
  readonly preloads: boolean[] = [];
  arrived = 0;
  /** That wait to be in host memory. */
  holds = 0;

  constructor({
    gpuCount = 1,
    policy = gpuOnly,
    functions = 3,
    cpuMs = 50,
    bytes = capacityBytes,
    hostBytes,
    hasVariants = false,
    cpuCores = 4,
    waitingMax = Infinity,
  }: Setting = {}) {
    this.process = new MadeUpProcess(gpuCount, bytes, hostBytes);
    this.plans = plansFor(gpuCount, hasVariants);
    const gpu = { capacityBytes: bytes, switch: 0, linkGBps: 1, uplinkGBps: 2 };
    this.shell = new LiveScheduler({
      policy,
      cpu: { cores: cpuCores, memoryBytes: Infinity },
      waitingMax,
      cpuOffer: () => ({ latencyMs: cpuMs === 'unknown' ? undefined : cpuMs, cores: 1 }),
      onGpuReport: (_key, news) => {
        this.news.push(news.kind);
        if (news.kind === 'evicted') this.evictions.push(news.eviction);
      },
      isForCaller: (error) => error instanceof NoMemory,
      onDefect: (message) => this.defects.push(message),
    });
    if (gpuCount === 0) return;
    this.shell.setGpus(
      Array.from({ length: gpuCount }, () => gpu),
      this.process,
      hostBytes === undefined ? undefined : { capacityBytes: hostBytes, diskGBps: 1e-6, runner: this.process },
    );
    for (let index = 0; index < functions; index++) this.offer(index);
  }

  /** For a host that was started without GPUs. */
  bringGpus(gpuCount: number): void {
    this.process = new MadeUpProcess(gpuCount);
    this.plans = plansFor(gpuCount, false);
    const gpu = { capacityBytes, switch: 0, linkGBps: 1, uplinkGBps: 2 };
    this.shell.setGpus(
      Array.from({ length: gpuCount }, () => gpu),
      this.process,
    );
  }

  /** The GPU process knows the function, and its plan executes so many of its layers from host memory. */
  offer(index: number, changes: Partial<typeof settings> = {}, executed = 0): void {
    const { pinned, ...scheduled } = { ...settings, ...changes };
    this.settings[index] = scheduled;
    const version = { key: `f${index}@1`, settings: scheduled };
    if (this.process.inHost !== undefined)
      this.shell.functions.registered(
        version,
        Array.from({ length: layerCount }, () => ({ bytes: layerBytes })),
      );
    const plans = executed === 0 ? this.plans : plansFor(this.shell.gpus.length, false, executed);
    this.shell.functions.offer(version, plans, pinned);
  }

  /** The outcome comes later; calls on the CPU pool take their time there. */
  arrive(index: number, signal?: AbortSignal, terms?: InvocationTerms): void {
    this.arrived++;
    const scheduled = (this.settings[index] ??= { sloMs: 100, priority: 100 });
    void this.#collect(this.shell.submit({ key: `f${index}@1`, settings: scheduled }, [], { ...terms, signal }));
  }

  /** The calls of the function can share runs of up to four rows. */
  join(index: number): void {
    const shares = [
      { rows: 2, share: 1.2 },
      { rows: 4, share: 1.5 },
    ];
    this.shell.functions.join(`f${index}@1`, { variant: this.plans.offers[0]!.plan, shares });
  }

  /** A call that can share a run, with a unique row: its outcome must be that row. */
  arriveJoined(index: number, signal?: AbortSignal): void {
    const row = this.arrived++;
    const scheduled = (this.settings[index] ??= { sloMs: 100, priority: 100 });
    const inputs = [tensorOf('x', 'FP32', [1, 1], new Float32Array([row]))];
    const terms = { join: { key: 'x', rows: 1 }, signal };
    const placed = this.shell.submit({ key: `f${index}@1`, settings: scheduled }, inputs, terms);
    const check = async (): Promise<void> => {
      const ended = await placed;
      const [output] = ended.kind === 'gpu' ? ended.result.outputs : inputs;
      const found = [...elements(output!)].join();
      if (found !== String(row)) this.defects.push(`row ${row} has the answer ${found}`);
    };
    check().catch(() => undefined);
    void this.#collect(placed);
  }

  /** The next process is up, and knows all functions. */
  back(): void {
    this.shell.back();
    if (this.process.inHost === undefined) return;
    for (const key of this.shell.keys())
      this.shell.functions.registered({ key, settings: this.settings[Number(key.slice(1, -2))]! });
  }

  /** As the host does: the process forgets the function as well. */
  async remove(index: number): Promise<void> {
    const key = `f${index}@1`;
    await this.shell.functions.remove(key);
    this.process.inHost?.delete(key);
  }

  resizeHost(bytes: number): void {
    this.process.hostBytesMax = bytes;
    this.shell.resizeHost(bytes);
  }

  preload(index: number): void {
    const load = async (): Promise<void> =>
      void this.preloads.push(
        (await this.shell.runOnGpu({ key: `f${index}@1`, settings: this.settings[index]! }, [])).kind === 'gpu',
      );
    void load();
  }

  async #collect(outcome: Promise<Placed>): Promise<void> {
    try {
      const ended = await outcome;
      this.outcomes.push(ended);
      if (ended.kind === 'cpu') setTimeout(() => ended.done({ runMs: 20 }), 20);
    } catch (error) {
      this.outcomes.push(error as Error);
    }
  }

  kinds(): string[] {
    return this.outcomes.map((outcome) => (outcome instanceof Error ? outcome.message : outcome.kind));
  }

  /** Differences between what the scheduler believes to be on a GPU and what is there. */
  disagreements(): string[] {
    return this.process.resident.flatMap((resident, gpu) => {
      const found = [...this.shell.keys()].flatMap((key) => {
        const believed = this.shell.resident(key, gpu).prefix;
        const layers = resident.get(key)?.size ?? 0;
        return believed === layers ? [] : [`${key} has ${layers} layers on GPU ${gpu}, not ${believed}`];
      });
      const believed = this.shell.residentBytes(gpu);
      if (believed !== this.process.bytes(gpu))
        found.push(`GPU ${gpu} has ${this.process.bytes(gpu)}, not ${believed}`);
      if (this.shell.hostBytes !== this.process.hostBytes())
        found.push(`host memory has ${this.process.hostBytes()}, not ${this.shell.hostBytes}`);
      if (this.process.overfull !== undefined) found.push(this.process.overfull);
      return found;
    });
  }
}
