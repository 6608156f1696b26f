/**
 * Weights in pinned host memory that every GPU has mapped: the source of every copy, and the memory that layers with
 * direct-host-access execute from. Memory is pinned in slabs; functions beyond the budget, the least recently used
 * first, stay on disk.
 */
import type { Cuda, DeviceAddress } from '../driver/types.ts';
import type { WeightLayout } from '../program/types.ts';
import { GpuError, type HostTier } from '../types.ts';
import { Mutex, orCancelled } from './mutex.ts';
import { PinnedPool, viewBytesMax, type PinnedPoolOptions, type PinnedRange } from './pinned-pool.ts';
import { WeightReader } from './weight-fill.ts';

/** The host side of one function's weights. */
export class HostWeights {
  readonly key: string;
  readonly layout: WeightLayout;
  readonly #store: HostStore;
  /** By layer; null for layers without weights. Empty while on disk. */
  places: (PinnedRange | null)[] = [];
  /** How many layers are filled, from the first on. */
  filledLayers = 0;
  /** Why the latest fill failed. */
  failure: GpuError | null = null;
  filling: { readonly abort: AbortController; readonly done: Promise<void> } | null = null;
  /** Its function was removed: runs and loads that begin now must not bring anything back. */
  isRemoved = false;
  /** GPUs on which the function is warm with layers that execute from here. */
  warmOn = 0;
  /** Runs and loads that read from here; while there are any, it stays. */
  #users = 0;
  /** Called when the next layer is filled, or the fill has failed. */
  readonly #waiters: (() => void)[] = [];

  constructor(store: HostStore, key: string, layout: WeightLayout) {
    this.#store = store;
    this.key = key;
    this.layout = layout;
  }

  get onDisk(): boolean {
    return this.places.length === 0;
  }

  get isFilled(): boolean {
    return !this.onDisk && this.filledLayers === this.layout.layers.length;
  }

  get inUse(): boolean {
    return this.#users > 0;
  }

  /** @throws GpuError 'unknown-function' */
  checkKept(): void {
    if (this.isRemoved) throw new GpuError('unknown-function', `function '${this.key}' was removed`);
  }

  /** Keeps the weights from being dropped until the lease is disposed. */
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

  /** Address of a layer's block. The layer must be filled or being filled, and in use. */
  address(layer: number): DeviceAddress {
    const place = this.places[layer];
    if (place === undefined || place === null) throw new RangeError(`layer ${layer} of ${this.key} has no host memory`);
    return place.address;
  }

  isLayerFilled(layer: number): boolean {
    return !this.onDisk && layer < this.filledLayers;
  }

  /** Resolves when a layer and all before it are in pinned memory. A fill must be under way or done. */
  async layerFilled(layer: number): Promise<void> {
    while (!this.isLayerFilled(layer)) {
      if (this.failure !== null) throw this.failure;
      await new Promise<void>((resolve) => this.#waiters.push(resolve));
    }
  }

  /** To be called when a layer is filled, and when the fill has failed. */
  tell(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  tier(): HostTier {
    if (this.failure !== null) return { tier: 'failed', message: this.failure.message };
    if (this.onDisk) return { tier: 'disk' };
    const { bytes } = this.layout;
    if (this.isFilled) return { tier: 'host', bytes };
    const filledBytes = this.layout.layers.slice(0, this.filledLayers).reduce((sum, layer) => sum + layer.bytes, 0);
    return { tier: 'filling', filledBytes, bytes };
  }
}

export type HostStoreState = ReturnType<HostStore['state']>;

export class HostStore implements Disposable {
  readonly #pool: PinnedPool;
  readonly #budgetBytes: number;
  /** Held while memory is found for one function, which may have to wait for pinning. */
  readonly #placing = new Mutex();
  /** In order of use, the least recent first. */
  readonly #functions = new Map<string, HostWeights>();
  readonly #onChange: (() => void)[] = [];
  #isClosed = false;

  constructor(cuda: Cuda, options: PinnedPoolOptions) {
    this.#pool = new PinnedPool(cuda, options);
    this.#budgetBytes = options.budgetBytes;
  }

  state() {
    return {
      budgetBytes: this.#budgetBytes,
      /** Pinned bytes, used or free. */
      pinnedBytes: this.#pool.pinnedBytes,
      /** Of filled and filling functions. */
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
    weights.filling?.abort.abort(new GpuError('unknown-function', `function '${weights.key}' was removed`));
    await weights.filling?.done;
    while (weights.inUse) await this.#nextChange(undefined);
    this.#drop(weights);
    // No function is left to use pinned memory. Freeing gigabytes takes seconds, for which the thread must not block.
    await this.#pool.trimAside(() => this.#functions.size === 0);
  }

  /**
   * Leases the weights, fills them if needed, and resolves once they have host memory; layers can then be waited for
   * one by one.
   *
   * @throws GpuError 'host-memory' if they exceed the budget beside weights in use, 'unknown-function' if the function
   * was removed
   */
  async lease(weights: HostWeights, signal?: AbortSignal): Promise<Disposable> {
    weights.checkKept();
    const lease = weights.use();
    try {
      this.#touch(weights);
      while (!(await this.#place(weights, signal))) {
        if (!this.#dropOne(weights)) {
          this.#checkFits(weights);
          await this.#nextChange(signal);
        }
      }
      // A failed fill is tried again: the file may be back.
      if (!weights.isFilled && weights.filling === null) this.#fill(weights);
      return lease;
    } catch (error) {
      lease[Symbol.dispose]();
      throw error;
    }
  }

  /** Fills the weights in the background, and keeps them only until others need the room. */
  async prefetch(weights: HostWeights, signal?: AbortSignal): Promise<void> {
    using _lease = await this.lease(weights, signal);
    const last = weights.layout.layers.length - 1;
    if (last >= 0) await weights.layerFilled(last);
  }

  /** Frees memory that is not in use: others need pinned memory. */
  trim(): boolean {
    return this.#pool.trim();
  }

  /** Some memory may have become free. */
  changed(): void {
    for (const wake of this.#onChange.splice(0)) wake();
  }

  #touch(weights: HostWeights): void {
    this.#functions.delete(weights.key);
    this.#functions.set(weights.key, weights);
  }

  #nextChange(signal: AbortSignal | undefined): Promise<void> {
    return orCancelled(new Promise((resolve) => this.#onChange.push(resolve)), signal);
  }

  #checkFits(weights: HostWeights): void {
    const budgetBytes = this.#budgetBytes;
    const isAlone = ![...this.#functions.values()].some(
      (other) => other !== weights && !other.onDisk && (other.inUse || other.filling !== null),
    );
    if (weights.layout.bytes > budgetBytes || isAlone) {
      throw new GpuError(
        'host-memory',
        `function '${weights.key}' takes ${weights.layout.bytes} bytes of pinned host memory, and the budget is ${budgetBytes}`,
      );
    }
  }

  /** Finds host memory for every layer. False if there is not enough; then nothing was taken. */
  async #place(weights: HostWeights, signal: AbortSignal | undefined): Promise<boolean> {
    // In use, they stay where they are: no turn is needed, which may come only after others were pinned.
    if (!weights.onDisk) return true;
    using _turn = await this.#placing.lock(signal);
    if (!weights.onDisk) return true;
    const places: (PinnedRange | null)[] = [];
    try {
      for (const { bytes } of weights.layout.layers) {
        const place = bytes === 0 ? null : await this.#allocate(bytes);
        if (place === undefined) return false;
        places.push(place);
      }
      weights.places = places;
      weights.filledLayers = 0;
      weights.failure = null;
      return true;
    } finally {
      if (weights.places !== places) for (const taken of places) taken?.free();
    }
  }

  async #allocate(bytes: number): Promise<PinnedRange | undefined> {
    const found = this.#pool.take(bytes);
    if (found !== undefined) return found;
    return (await this.#pool.grow(bytes)) ? this.#pool.take(bytes) : undefined;
  }

  /** Weights from which a GPU executes layers are dropped last: they are warm. */
  #dropOne(keep: HostWeights): boolean {
    const idle = [...this.#functions.values()].filter(
      (weights) => weights !== keep && !weights.onDisk && !weights.inUse && weights.filling === null,
    );
    const dropped = idle.find(({ warmOn }) => warmOn === 0) ?? idle[0];
    if (dropped !== undefined) this.#drop(dropped);
    return dropped !== undefined;
  }

  #drop(weights: HostWeights): void {
    const { places } = weights;
    weights.places = [];
    weights.filledLayers = 0;
    for (const place of places) place?.free();
    if (!this.#isClosed) this.changed();
  }

  #fill(weights: HostWeights): void {
    const abort = new AbortController();
    weights.failure = null;
    const done = fillLayers(weights, abort.signal)
      .catch((error: unknown) => {
        weights.failure = asGpuError(error);
        weights.tell();
      })
      .finally(() => {
        weights.filling = null;
        this.changed();
      });
    weights.filling = { abort, done };
  }

  /** Stops all fills. Await it before disposing. */
  async stop(): Promise<void> {
    const filling = [...this.#functions.values()].flatMap((weights) => weights.filling ?? []);
    for (const { abort } of filling) abort.abort(new GpuError('cancelled', 'the engine is being closed'));
    await Promise.all(filling.map(({ done }) => done));
  }

  [Symbol.dispose](): void {
    this.#isClosed = true;
    for (const weights of this.#functions.values()) this.#drop(weights);
    this.#functions.clear();
    this.#pool[Symbol.dispose]();
  }
}

async function fillLayers(weights: HostWeights, signal: AbortSignal): Promise<void> {
  await using reader = new WeightReader();
  for (const { index } of weights.layout.layers) {
    const place = weights.places[index];
    if (index >= weights.filledLayers && place !== undefined && place !== null) {
      for (const weight of weights.layout.weights.filter(({ layer }) => layer === index)) {
        signal.throwIfAborted();
        // Views of more than a GiB are impossible: such weights come in pieces.
        for (let at = 0; at < weight.bytes; at += viewBytesMax) {
          const bytes = Math.min(viewBytesMax, weight.bytes - at);
          const part = at === 0 && bytes === weight.bytes ? weight : piece(weight, at, bytes);
          await reader.read(part, place.view(weight.byteOffset + at, bytes), signal);
        }
      }
    }
    weights.filledLayers = Math.max(weights.filledLayers, index + 1);
    weights.tell();
  }
}

function piece(weight: WeightLayout['weights'][number], at: number, bytes: number): WeightLayout['weights'][number] {
  return { ...weight, bytes, source: { ...weight.source, byteOffset: weight.source.byteOffset + at } };
}

function asGpuError(error: unknown): GpuError {
  if (error instanceof GpuError) return error;
  return new GpuError('weights-unreadable', error instanceof Error ? error.message : String(error), { cause: error });
}
