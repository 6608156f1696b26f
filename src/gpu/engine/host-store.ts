/**
 * Weights in pinned host memory that every GPU has mapped: the source of every copy, and the memory that layers with
 * direct-host-access execute from. Memory is pinned in slabs. The store decides nothing: layers come when they are
 * ordered (`stage`) and go when they are ordered (`drop`), and an order without room is refused.
 */
import type { Cuda, DeviceAddress } from '../driver/types.ts';
import { hostBytes, type WeightLayout } from '../program/types.ts';
import { asGpuError, GpuError, type HostTier, type Staged } from '../types.ts';
import { Mutex, orCancelled } from './mutex.ts';
import { PinnedPool, viewBytesMax, type PinnedPoolOptions, type PinnedRange } from './pinned-pool.ts';
import { WeightReader } from './weight-fill.ts';

/** Of `process.resourceUsage().fsRead`. */
const fsBlockBytes = 512;
/** A read counts as one from the page cache where less than this share of it came from the disk. */
const uncachedShare = 0.5;

/** The host side of one function's weights. */
export class HostWeights {
  readonly key: string;
  readonly layout: WeightLayout;
  readonly #store: HostStore;
  /** By layer; null for those without weights, and those on disk. */
  readonly places: (PinnedRange | null)[];
  /** Layers whose bytes have been read. */
  readonly #filled = new Set<number>();
  /** Why the latest read failed. */
  failure: GpuError | null = null;
  /** Its function was removed: runs and loads that begin now must not bring anything back. */
  isRemoved = false;
  /** Runs and loads that read from here; while there are any, what is here stays. */
  #users = 0;
  /** Orders to read it that have no memory yet. */
  #placing = 0;
  /** Called when the next layer is filled, a read has its memory or none, or it has failed. */
  readonly #waiters: (() => void)[] = [];

  constructor(store: HostStore, key: string, layout: WeightLayout) {
    this.#store = store;
    this.key = key;
    this.layout = layout;
    this.places = layout.layers.map(() => null);
  }

  get inUse(): boolean {
    return this.#users > 0;
  }

  /** Layers with weights. */
  get all(): number[] {
    return this.layout.layers.flatMap(({ index, bytes }) => (bytes > 0 ? [index] : []));
  }

  /** @throws GpuError 'unknown-function' */
  checkKept(): void {
    if (this.isRemoved) throw new GpuError('unknown-function', `function '${this.key}' was removed`);
  }

  /**
   * Keeps the weights here until the lease is disposed. These layers must be here, or on their way from the disk.
   *
   * @throws GpuError 'host-memory' if one is not, with the reason if it could not be read
   */
  async lease(layers: readonly number[], signal?: AbortSignal): Promise<Disposable> {
    while (this.#placing > 0 && layers.some((layer) => this.places[layer] === null))
      await orCancelled(new Promise<void>((resolve) => this.#waiters.push(resolve)), signal);
    this.checkKept();
    for (const layer of layers) this.#checkHas(layer);
    return this.use();
  }

  /** As {@link lease}, for a caller that has memory for its layers. */
  use(): Disposable {
    this.#users++;
    let isOver = false;
    return {
      [Symbol.dispose]: () => {
        if (isOver) return;
        isOver = true;
        this.#users--;
        this.#store.changed();
      },
    };
  }

  /** Address of a layer's block. */
  address(layer: number): DeviceAddress {
    this.#checkHas(layer);
    return this.places[layer]!.address;
  }

  #checkHas(layer: number): void {
    if (this.places[layer] !== null) return;
    if (this.failure !== null) throw this.failure;
    throw new GpuError('host-memory', `layer ${layer} of function '${this.key}' is not in pinned host memory`);
  }

  /** Whether its bytes are here. */
  isFilled(layer: number): boolean {
    return this.#filled.has(layer);
  }

  areFilled(layers: Iterable<number>): boolean {
    for (const layer of layers) if (!this.#filled.has(layer)) return false;
    return true;
  }

  /** Resolves when a layer's bytes are here. @throws GpuError if it is not on its way, or cannot be read */
  async layerFilled(layer: number): Promise<void> {
    while (!this.#filled.has(layer)) {
      this.#checkHas(layer);
      await new Promise<void>((resolve) => this.#waiters.push(resolve));
    }
  }

  /** An order to read it is about to find memory; runs and loads that come meanwhile wait for that. */
  placing(): Disposable {
    this.#placing++;
    return {
      [Symbol.dispose]: () => {
        this.#placing--;
        this.#wake();
      },
    };
  }

  filled(layer: number): void {
    this.#filled.add(layer);
    this.#wake();
  }

  /** The layers that were not read have no memory any more. */
  failed(layers: readonly number[], failure: GpuError): void {
    this.failure = failure;
    this.free(layers.filter((layer) => !this.#filled.has(layer)));
    this.#wake();
  }

  /** Returns the bytes that were freed. */
  free(layers: readonly number[]): number {
    let bytes = 0;
    for (const layer of layers) {
      const place = this.places[layer];
      if (place === undefined || place === null) continue;
      place.free();
      this.places[layer] = null;
      this.#filled.delete(layer);
      bytes += hostBytes(this.layout.layers[layer]!);
    }
    return bytes;
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  tier(): HostTier {
    const bytesOf = (isCounted: (layer: number) => boolean): number =>
      this.layout.layers.reduce((sum, layer) => sum + (isCounted(layer.index) ? hostBytes(layer) : 0), 0);
    return {
      bytes: bytesOf((layer) => this.places[layer] !== null),
      filledBytes: bytesOf((layer) => this.#filled.has(layer)),
      failure: this.failure?.message ?? null,
    };
  }
}

export type HostStoreState = ReturnType<HostStore['state']>;

/** An order that has begun. */
interface Order {
  readonly weights: HostWeights;
  readonly done: Promise<unknown>;
}

export class HostStore implements Disposable {
  readonly #pool: PinnedPool;
  /** Held while memory is found for one function, which may have to wait for pinning. */
  readonly #placing = new Mutex();
  /** The disk reads one function after the other. */
  readonly #reading = new Mutex();
  readonly #functions = new Map<string, HostWeights>();
  readonly #drops = new Set<Order>();
  readonly #reads = new Set<Order & { readonly abort: AbortController }>();
  readonly #onChange: (() => void)[] = [];

  constructor(cuda: Cuda, options: PinnedPoolOptions) {
    this.#pool = new PinnedPool(cuda, options);
  }

  state() {
    return {
      budgetBytes: this.#pool.budgetBytes,
      /** Pinned bytes, used or free. */
      pinnedBytes: this.#pool.pinnedBytes,
      /** Of layers that are here, or on their way from the disk. */
      usedBytes: this.#pool.usedBytes,
      functions: [...this.#functions.values()].map((weights) => ({ key: weights.key, host: weights.tier() })),
    };
  }

  /** Registers a function's weights, which stay on disk. */
  add(weights: HostWeights): void {
    this.#functions.set(weights.key, weights);
  }

  /** Forgets a function and frees its bytes, once nothing uses them. */
  async remove(weights: HostWeights): Promise<void> {
    this.#functions.delete(weights.key);
    const reads = [...this.#reads].filter((read) => read.weights === weights);
    for (const { abort } of reads)
      abort.abort(new GpuError('unknown-function', `function '${weights.key}' was removed`));
    await Promise.all(reads.map(({ done }) => done));
    await this.drop(weights, weights.all);
    // No function is left to use pinned memory. Freeing gigabytes takes seconds, for which the thread must not block.
    await this.#pool.trimAside(() => this.#functions.size === 0);
  }

  /**
   * Reads layers that are not here from disk. Runs and loads may lease them from now on: they wait layer by layer.
   * Refused where there is no room for all of them, once what was to be dropped is gone.
   *
   * @throws GpuError 'weights-unreadable'; 'unknown-function' if the function was removed
   */
  async stage(weights: HostWeights, layers: readonly number[]): Promise<Staged> {
    weights.checkKept();
    const abort = new AbortController();
    const work = this.#stage(weights, layers, abort.signal);
    const read = { weights, abort, done: work.catch(() => undefined) };
    this.#reads.add(read);
    try {
      return await work;
    } finally {
      this.#reads.delete(read);
      this.changed();
    }
  }

  async #stage(weights: HostWeights, layers: readonly number[], signal: AbortSignal): Promise<Staged> {
    const missing = await this.#find(weights, layers, signal);
    if (missing === undefined) return { kind: 'refused', largestFreeBytes: this.#pool.largestFreeBytes };
    weights.failure = null;
    try {
      weights.checkKept();
      // Nothing of it is dropped meanwhile.
      using _use = weights.use();
      using _turn = await this.#reading.lock(signal);
      const [beganMs, readBefore] = [performance.now(), process.resourceUsage().fsRead];
      const bytes = await readLayers(weights, missing, signal);
      const readBytes = (process.resourceUsage().fsRead - readBefore) * fsBlockBytes;
      return { kind: 'staged', bytes, ms: performance.now() - beganMs, isCached: readBytes < uncachedShare * bytes };
    } catch (error) {
      const failure = signal.aborted ? (signal.reason as GpuError) : asGpuError(error, 'weights-unreadable');
      weights.failed(missing, failure);
      throw failure;
    }
  }

  /** Frees layers, once no run or load that has begun reads from the function's memory. Resolves with the bytes. */
  async drop(weights: HostWeights, layers: readonly number[]): Promise<number> {
    const dropped = async (): Promise<number> => {
      while (weights.inUse) await this.#nextChange(undefined);
      return weights.free(layers);
    };
    const drop = { weights, done: dropped() };
    this.#drops.add(drop);
    try {
      const bytes = await drop.done;
      await this.#pool.shrink();
      return bytes;
    } finally {
      this.#drops.delete(drop);
      this.changed();
    }
  }

  /** Pins no more than this from now on. What is in use stays until it is dropped. */
  async resize(budgetBytes: number): Promise<void> {
    this.#pool.resize(budgetBytes);
    await this.#pool.shrink();
  }

  /** Frees memory that is not in use: others need pinned memory. */
  trim(): boolean {
    return this.#pool.trim();
  }

  /** Some memory may have become free. */
  changed(): void {
    for (const wake of this.#onChange.splice(0)) wake();
  }

  #nextChange(signal: AbortSignal | undefined): Promise<void> {
    return orCancelled(new Promise((resolve) => this.#onChange.push(resolve)), signal);
  }

  /** As {@link #place}, once what was to be dropped before is gone. */
  async #find(
    weights: HostWeights,
    layers: readonly number[],
    signal: AbortSignal,
  ): Promise<readonly number[] | undefined> {
    using _placing = weights.placing();
    for (;;) {
      const found = await this.#place(weights, layers, signal);
      if (found !== undefined || this.#drops.size === 0) return found;
      await this.#nextChange(signal);
    }
  }

  /** Finds host memory for all layers that have none, and returns these. Undefined: there is not enough, or not yet. */
  async #place(
    weights: HostWeights,
    layers: readonly number[],
    signal: AbortSignal,
  ): Promise<readonly number[] | undefined> {
    using _turn = await this.#placing.lock(signal);
    // What is to be dropped of it goes before it is read again.
    for (const drop of this.#drops) if (drop.weights === weights) return undefined;
    const sizeOf = (layer: number): number => hostBytes(weights.layout.layers[layer]!);
    const missing = layers.filter((layer) => sizeOf(layer) > 0 && weights.places[layer] === null);
    const bytes = missing.reduce((sum, layer) => sum + sizeOf(layer), 0);
    // Slabs may be there of a larger budget.
    if (bytes > 0 && this.#pool.usedBytes + bytes > this.#pool.budgetBytes) return undefined;
    const taken: PinnedRange[] = [];
    try {
      for (const layer of missing) {
        let place = this.#pool.take(sizeOf(layer));
        if (place === undefined && (await this.#pool.grow(sizeOf(layer)))) place = this.#pool.take(sizeOf(layer));
        if (place === undefined) return undefined;
        taken.push(place);
      }
      signal.throwIfAborted();
      for (const [at, layer] of missing.entries()) weights.places[layer] = taken[at]!;
      taken.length = 0;
      return missing;
    } finally {
      for (const place of taken) place.free();
    }
  }

  /** Stops all reads. Await it before disposing. */
  async stop(): Promise<void> {
    const reads = [...this.#reads];
    for (const { abort } of reads) abort.abort(new GpuError('cancelled', 'the engine is being closed'));
    await Promise.all(reads.map(({ done }) => done));
  }

  [Symbol.dispose](): void {
    for (const weights of this.#functions.values()) weights.free(weights.all);
    this.#functions.clear();
    this.#pool[Symbol.dispose]();
  }
}

/** Resolves with the bytes that were read. */
async function readLayers(weights: HostWeights, layers: readonly number[], signal: AbortSignal): Promise<number> {
  await using reader = new WeightReader();
  let bytesRead = 0;
  for (const layer of layers) {
    const place = weights.places[layer]!;
    for (const weight of filesOf(weights.layout, layer)) {
      signal.throwIfAborted();
      // Views of more than a GiB are impossible: such weights come in pieces.
      for (let at = 0; at < weight.bytes; at += viewBytesMax) {
        const bytes = Math.min(viewBytesMax, weight.bytes - at);
        const part = at === 0 && bytes === weight.bytes ? weight : piece(weight, at, bytes);
        await reader.read(part, place.view(weight.byteOffset + at, bytes), signal);
      }
    }
    bytesRead += hostBytes(weights.layout.layers[layer]!);
    weights.filled(layer);
  }
  return bytesRead;
}

/** What is read of a layer, and to where in its place. */
function filesOf({ layers, weights }: WeightLayout, layer: number): WeightLayout['weights'] {
  const { name, coded } = layers[layer]!;
  if (coded === undefined) return weights.filter((weight) => weight.layer === layer);
  const { source, codedBytes: bytes } = coded;
  return [{ name, datatype: 'UINT8', shape: [bytes], bytes, layer, byteOffset: 0, source }];
}

function piece(weight: WeightLayout['weights'][number], at: number, bytes: number): WeightLayout['weights'][number] {
  return { ...weight, bytes, source: { ...weight.source, byteOffset: weight.source.byteOffset + at } };
}
