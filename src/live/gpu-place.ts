/** The GPUs as a place: carries out the scheduler's actions with the GPU process, in order. */
import type { LoadResult } from '../gpu/index.ts';
import {
  variantNamed,
  type Action,
  type LoadOrder,
  type SchedulerEvent,
  type FunctionId,
  type GpuId,
} from '../schedule/index.ts';
import { dataBytes, joinInputs, rowsOf, splitOutputs, type Tensor } from '../tensor/index.ts';
import { Cancellation } from '../tools/index.ts';
import { wholePlan } from '../plan/index.ts';
import { BusyShare } from './busy.ts';
import { PendingFrees } from './pending-frees.ts';
import type { LiveFunction } from './live-function.ts';
import { ShortRuns } from './short-runs.ts';
import { gpuErrorCode, type GpuRunner, type RanOnGpu, type Why } from './types.ts';

type Run = Extract<Action, { readonly kind: 'run' }>;
type Load = Extract<Action, { readonly kind: 'load' | 'grow' }>;

export interface GpuPlaceOptions {
  readonly gpuCount: number;
  readonly runner: GpuRunner;
  readonly now: () => number;
  readonly tell: (event: SchedulerEvent) => void;
  /** A function's predicted times have changed. */
  readonly onCorrected: (fn: LiveFunction) => void;
  readonly onArrived: (fn: LiveFunction, gpu: GpuId) => void;
  /** Makes more room than the scheduler thought necessary. Resolves when it is free. */
  readonly makeRoom: (gpu: GpuId, asking: LiveFunction) => Promise<void>;
  /** Has the function in host memory until the result is disposed of; undefined: it will not be there. */
  readonly holdInHost: (fn: LiveFunction) => Promise<Disposable | undefined>;
  readonly isForCaller: (error: unknown) => error is Error;
  readonly onDefect: (message: string) => void;
}

/** How a run on a GPU ended; `abandoned`: the scheduler has placed the invocation elsewhere. */
export type GpuRunEnd =
  /** By call. */
  | { readonly kind: 'ran'; readonly ran: readonly RanOnGpu[] }
  | { readonly kind: 'abandoned' }
  /** The run succeeded, but the host had no memory for its outputs. */
  | { readonly kind: 'unanswered'; readonly error: Error }
  | { readonly kind: 'failed'; readonly error: unknown };

export interface GpuRunEvents {
  /** The GPU is free for the next run; called once, and before `ended` unless the run failed. */
  readonly laneFree: () => void;
  /** For a run that failed or was abandoned before that, called before the GPU is reported idle. */
  readonly ended: (end: GpuRunEnd) => void;
}

/** One of the calls that share a run. */
export interface GpuCall {
  readonly tensors: readonly Tensor[];
  readonly arrivalMs: number;
  readonly why: Why;
}

/** One run or load that was ordered of the GPU process; the result of an abandoned one is ignored. */
interface Order {
  readonly kind: 'run' | 'load' | 'grow';
  readonly functionIndex: FunctionId;
  readonly gpu: GpuId;
  readonly cancellation: Cancellation;
  /** Called when it has ended. */
  readonly over: (() => void)[];
  abandoned: boolean;
  /** A run whose GPU is free again: only its answer is still to come, and the scheduler does not know it any more. */
  isLaneFree: boolean;
  /** A load whose function has run meanwhile: everything has arrived, although the process has not said so yet. */
  isOutrun: boolean;
}

export class GpuPlace {
  readonly #options: GpuPlaceOptions;
  /** Runs and loads that are in flight. */
  readonly #orders = new Set<Order>();
  readonly #frees: PendingFrees;
  readonly #busy: readonly BusyShare[];
  readonly #short: readonly ShortRuns[];
  /** By GPU: when the latest run was answered. */
  readonly #answeredMs: number[] = [];
  isUp = false;
  #idleWaiters: (() => void)[] = [];

  constructor(options: GpuPlaceOptions) {
    this.#options = options;
    const { gpuCount, onDefect } = options;
    this.#busy = Array.from({ length: gpuCount }, () => new BusyShare());
    this.#short = Array.from({ length: gpuCount }, () => new ShortRuns());
    this.#frees = new PendingFrees((gpu, key, error) => {
      if (this.isUp) onDefect(`${key} could not free bytes of GPU ${gpu}: ${String(error)}`);
    });
  }

  utilization(gpu: GpuId): number {
    return this.#busy[gpu]?.share(this.#options.now()) ?? 0;
  }

  /** @param calls that share the run */
  async run(
    action: Run,
    fn: LiveFunction,
    calls: readonly GpuCall[],
    { laneFree, ended }: GpuRunEvents,
  ): Promise<void> {
    const order = this.#open('run', fn.index, action.gpu);
    const free = (): void => {
      if (order.abandoned || order.isLaneFree) return;
      order.isLaneFree = true;
      // On a busy machine the process's answer to an earlier load may come after its answer to the run.
      if (this.#outrun(fn.index, action.gpu))
        this.#options.tell({ kind: 'loaded', gpu: action.gpu, functionIndex: fn.index });
      laneFree();
    };
    const attempt = async (): Promise<GpuRunEnd> => {
      try {
        return { kind: 'ran', ran: await this.#attempt(action, fn, calls, order, free) };
      } catch (error) {
        if (order.abandoned) return { kind: 'abandoned' };
        return this.#options.isForCaller(error) ? { kind: 'unanswered', error } : { kind: 'failed', error };
      }
    };
    let end = await attempt();
    if (end.kind === 'failed' && gpuErrorCode(end.error) === 'out-of-memory') {
      // Memory is fragmented, or another program uses the GPU: more room helps once, or not at all.
      await this.#options.makeRoom(action.gpu, fn);
      end = order.abandoned ? { kind: 'abandoned' } : await attempt();
    }
    if (end.kind === 'failed' && gpuErrorCode(end.error) === 'host-memory') {
      // Its read was refused, for want of a free range.
      using held = await this.#options.holdInHost(fn);
      if (order.abandoned) end = { kind: 'abandoned' };
      else if (held !== undefined) end = await attempt();
    }
    this.#close(order);
    if (end.kind === 'ran' || end.kind === 'unanswered') free();
    // It may order the invocations that waited for this GPU.
    ended(end);
    this.#wakeIfIdle();
  }

  /** Resolves when nothing runs or loads on any GPU. */
  async idle(): Promise<void> {
    if (this.#orders.size > 0) await new Promise<void>((resolve) => this.#idleWaiters.push(resolve));
  }

  #wakeIfIdle(): void {
    if (this.#orders.size === 0) for (const wake of this.#idleWaiters.splice(0)) wake();
  }

  async #attempt(
    { gpu, start, load, plan: variant }: Run,
    fn: LiveFunction,
    calls: readonly GpuCall[],
    order: Order,
    free: () => void,
  ): Promise<RanOnGpu[]> {
    const { now, runner } = this.#options;
    const { plans } = fn;
    if (plans === undefined) throw new Error('its plans are gone');
    // The scheduler hears of one lost GPU after the other, and may choose one that it is about to hear of.
    if (!this.isUp) throw new Error('the GPU process is gone');
    const plan = plans.planOf(gpu, load?.way.mode ?? plans.mode, variant);
    if (load !== null) fn.loadOrderedMs[gpu] = now();
    this.#arriving(fn, gpu);
    const batch = batchOf(fn, calls);
    const inputBytes = batch.inputs.reduce((sum, tensor) => sum + dataBytes(tensor), 0);
    // The layer trace of a cold start is kept for the dashboard.
    const trace = start !== 'warm' || fn.ahead[gpu] !== undefined;
    // Calls that wait can share a run, where the function's may.
    const mayBeShort = !trace && (variant ?? wholePlan) === wholePlan && fn.joined === undefined;
    const shortMs = mayBeShort ? fn.warmTimes.shortMs(inputBytes) : undefined;
    const startedMs = now();
    let freeMs: number | undefined;
    const noted = (): void => {
      freeMs = now();
      free();
    };
    const running = runner.run(fn.key, batch.inputs, {
      gpu,
      plan,
      variant,
      trace,
      signal: order.cancellation,
      onLaneFree: shortMs === undefined ? noted : undefined,
    });
    // It is on its way to the process: what the scheduler orders now comes behind it.
    const over = shortMs === undefined ? undefined : this.#short[gpu]!.ordered(shortMs, free);
    const result = await running.finally(over);
    if (order.abandoned) throw new Error('it was abandoned');
    const { waitMs, gpuMs } = result.timings;
    const answeredMs = now();
    // Of a short run the process says nothing before its answer: it holds the GPU from the answer before to its own.
    const sinceMs = shortMs === undefined ? startedMs : Math.max(startedMs, this.#answeredMs[gpu] ?? startedMs);
    const overheadMs = (freeMs ?? answeredMs) - sinceMs - gpuMs;
    this.#answeredMs[gpu] = answeredMs;
    this.#busy[gpu]?.add(answeredMs, gpuMs);
    if (result.start === 'warm' && !result.fromDisk) fn.warmTimes.ran(inputBytes, gpuMs);
    const outputs = batch.outputsOf(result.outputs);
    // A joined run's time over that of a single run tells about the single run.
    // Reading from disk says nothing about a later start, nor about the way to the process.
    if (!result.fromDisk) this.#correct(fn, gpu, variant, result.start, load, gpuMs / batch.share, overheadMs);
    const offer = plans.offers[gpu];
    const profiledMs = offer && variantNamed(offer, variant).warmMs * batch.share;
    const warmMs = Math.min(profiledMs === undefined ? gpuMs : fn.correction.warmMs(profiledMs), gpuMs);
    const ahead = fn.ahead[gpu];
    fn.ahead[gpu] = undefined;
    const isWarm = start === 'warm' && result.start === 'warm';
    return calls.map(({ arrivalMs, why }, call) => {
      // If the load was ordered while the invocation waited for the GPU, it has waited for the load since then.
      const orderedMs = start === 'warm' ? startedMs : Math.max(arrivalMs, fn.loadOrderedMs[gpu] ?? startedMs);
      return {
        kind: 'gpu',
        result: calls.length === 1 ? result : { ...result, outputs: outputs[call]! },
        gpu,
        start,
        mode: plan.instead ?? { mode: plan.mode },
        variant,
        queueMs: orderedMs - arrivalMs + (sinceMs - startedMs) + waitMs,
        loadMs: startedMs - orderedMs + (isWarm ? 0 : gpuMs - warmMs),
        inferMs: isWarm ? gpuMs : warmMs,
        batchSize: calls.length,
        batchRows: batch.rows,
        ahead,
        why,
      };
    });
  }

  /** A start whose load began before it, or that found some layers, says nothing about a cold one. */
  #correct(
    fn: LiveFunction,
    gpu: GpuId,
    variant: string | undefined,
    found: RanOnGpu['result']['start'],
    load: LoadOrder | null,
    gpuMs: number,
    overheadMs: number,
  ): void {
    const top = fn.plans?.offers[gpu];
    const offer = top && variantNamed(top, variant);
    if (offer === undefined) return;
    if (fn.correction.observeOverhead(Math.max(0, overheadMs), offer.warmMs)) this.#options.onCorrected(fn);
    if (found === 'partial' || (found === 'cold' && load === null)) return;
    const way = offer.ways.find(({ mode }) => mode === load?.way.mode) ?? offer.ways[0];
    const profiledMs = found === 'warm' ? offer.warmMs : (way.coldMs[0] ?? 0);
    if (fn.correction.observe(found, gpuMs, profiledMs)) this.#options.onCorrected(fn);
  }

  /** For a waiting invocation, or for a larger variant: runs in the meantime do not need it. */
  async load(action: Load, fn: LiveFunction): Promise<void> {
    const { kind, gpu, load, plan: variant } = action;
    const { now, runner, tell } = this.#options;
    const order = this.#open(kind, fn.index, gpu);
    if (kind === 'load') fn.loadOrderedMs[gpu] = now();
    try {
      if (fn.plans === undefined || !this.isUp) throw new Error('its plans, or the GPU process, are gone');
      this.#arriving(fn, gpu);
      const beganMs = now();
      const signal = order.cancellation;
      const plan = fn.plans.planOf(gpu, load.way.mode, variant);
      const named = variant === undefined ? {} : { variant };
      const bring = (): Promise<LoadResult> => runner.load(fn.key, { gpu, plan, signal, ...named });
      const { bytes } = await bring().catch(async (error: unknown) => {
        using held = gpuErrorCode(error) === 'host-memory' ? await this.#options.holdInHost(fn) : undefined;
        if (held === undefined || order.abandoned) throw error;
        return await bring();
      });
      if (kind === 'load' && !order.isOutrun) fn.ahead[gpu] = { bytes, loadMs: now() - beganMs };
    } catch {
      // The run behind it finds the missing layers, and reports its own error if there is one.
    }
    this.#close(order);
    if (!order.abandoned && !order.isOutrun) tell({ kind: 'loaded', gpu, functionIndex: fn.index });
    this.#wakeIfIdle();
  }

  #arriving(fn: LiveFunction, gpu: GpuId): void {
    if (fn.sinceMs[gpu] !== undefined) return;
    fn.sinceMs[gpu] = this.#options.now();
    this.#options.onArrived(fn, gpu);
  }

  trim(fn: LiveFunction, gpu: GpuId, prefix: number): void {
    if (prefix <= (fn.offers[gpu]?.shared?.layers ?? 0)) {
      fn.sinceMs[gpu] = undefined;
      fn.ahead[gpu] = undefined;
    }
    // A lost process has freed everything already.
    if (this.isUp) this.#frees.add(gpu, fn.key, this.#options.runner.trim(fn.key, gpu, prefix));
  }

  /** Layers that it shares with others, or has shared, go for all of them. */
  release(fn: LiveFunction, gpu: GpuId, layers: readonly number[]): void {
    if (this.isUp) this.#frees.add(gpu, fn.key, this.#options.runner.release(fn.key, gpu, layers));
  }

  shrink(fn: LiveFunction, gpu: GpuId, variant: string): void {
    // A lost process has freed everything already, and a withdrawal all of the function.
    if (!this.isUp || fn.plans === undefined) return;
    const { layers } = fn.plans.planOf(gpu, fn.plans.mode, variant);
    const loaded = layers.flatMap(({ method }, layer) => (method === 'load' ? [layer] : []));
    this.#frees.add(gpu, fn.key, this.#options.runner.keep(fn.key, gpu, loaded));
  }

  /** The scheduler has placed elsewhere what was ordered for the function there. */
  abandon(functionIndex: FunctionId, gpu: GpuId): void {
    for (const order of this.#orders) {
      if (order.functionIndex !== functionIndex || order.gpu !== gpu || order.isLaneFree) continue;
      order.abandoned = true;
      order.cancellation.abort();
    }
  }

  /** Whether any layers of the function are being loaded to the GPU. */
  isBusyWith(functionIndex: FunctionId, gpu: GpuId): boolean {
    for (const order of this.#orders) {
      if (order.functionIndex === functionIndex && order.gpu === gpu && !order.abandoned) return true;
    }
    return false;
  }

  /** Resolves when nothing runs or loads for the function, and its pending frees are done. */
  async quiet(functionIndex: FunctionId): Promise<void> {
    const orders = [...this.#orders].filter((order) => order.functionIndex === functionIndex);
    await Promise.all(orders.map((order) => new Promise<void>((resolve) => order.over.push(resolve))));
    await this.#frees.over();
  }

  /** Resolves when everything that was to be freed is free. */
  async freed(): Promise<void> {
    await this.#frees.over();
  }

  /** The process is gone, with all its runs and loads. */
  lost(): void {
    this.isUp = false;
    for (const order of this.#orders) if (!order.isLaneFree) order.abandoned = true;
    this.#frees.lost();
  }

  #open(kind: Order['kind'], functionIndex: FunctionId, gpu: GpuId): Order {
    const state = { abandoned: false, isLaneFree: false, isOutrun: false };
    const order: Order = { kind, functionIndex, gpu, cancellation: new Cancellation(), over: [], ...state };
    this.#orders.add(order);
    return order;
  }

  #close(order: Order): void {
    this.#orders.delete(order);
    for (const tell of order.over) tell();
  }

  /** A run of the function has ended there. Returns whether one of its loads was still unanswered. */
  #outrun(functionIndex: FunctionId, gpu: GpuId): boolean {
    for (const order of this.#orders) {
      if (order.kind !== 'load' || order.functionIndex !== functionIndex || order.gpu !== gpu) continue;
      if (order.abandoned || order.isOutrun) continue;
      order.isOutrun = true;
      return true;
    }
    return false;
  }
}

interface Batch {
  readonly inputs: readonly Tensor[];
  /** Of calls that share it, without those that pad it. */
  readonly rows?: number;
  /** Time of its run over that of a single one. */
  readonly share: number;
  /** Outputs by call. @throws Error if the outputs do not have a row for each row */
  outputsOf(outputs: readonly Tensor[]): readonly (readonly Tensor[])[];
}

/** Joins calls into one run: in the smallest size that has room for them, padded. */
function batchOf({ joined }: LiveFunction, calls: readonly GpuCall[]): Batch {
  const [first] = calls;
  if (calls.length === 1) return { inputs: first!.tensors, share: 1, outputsOf: (outputs) => [outputs] };
  const rows = calls.map(({ tensors }) => rowsOf(tensors) ?? 0);
  const given = rows.reduce((sum, each) => sum + each, 0);
  const { rows: size, share } = joined?.shares.find((each) => each.rows >= given) ?? { rows: given, share: 1 };
  return {
    inputs: joinInputs(
      calls.map(({ tensors }) => ({ inputs: tensors, outputs: undefined })),
      size,
    ),
    rows: given,
    share,
    outputsOf: (outputs) => {
      const parts = splitOutputs(outputs, rows, size);
      if (parts === undefined) throw new Error(`its outputs have no row for each of ${size} joined rows`);
      return parts;
    },
  };
}
