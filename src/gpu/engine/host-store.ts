/**
 * Weights in pinned host memory that every GPU has mapped: the source of every copy, and the memory that layers with
 * direct-host-access execute from. Memory is pinned in slabs. The store decides nothing: layers come when they are
 * ordered (`stage`) and go when they are ordered (`drop`), and an order without room is refused.
 */
import { CountedValues, once } from '../../tools/index.ts';
import type { Cuda, DeviceAddress } from '../driver/types.ts';
import { hostBytes, type WeightLayout } from '../program/types.ts';
import { WeightReader } from '../program/weight-reader.ts';
import { asGpuError, GpuError, type HostTier, type Staged } from '../types.ts';
import { Mutex, orCancelled } from './mutex.ts';
import { PinnedPool, viewBytesMax, type PinnedPoolOptions, type PinnedRange } from './pinned-pool.ts';

/** Of `process.resourceUsage().fsRead`. */
const fsBlockBytes = 512;
/** A read counts as one from the page cache where less than this share of it came from the disk. */
const uncachedShare = 0.5;

/** A layer in pinned memory, for all functions with the same bytes there. */
class HostLayer {
  /** Null where it has no weights, or is on disk. */
  place: PinnedRange | null = null;
  /** Its bytes have been read. */
  isFilled = false;
  readonly users = new Set<HostWeights>();
  /** Those for which it was read or was found here, and that have not given it up: it goes with the last of them. */
  readonly holders = new Set<HostWeights>();
}

/** The host side of one function's weights. */
export class HostWeights {
  readonly key: string;
  readonly layout: WeightLayout;
  /** By layer: those of equal ids have the same bytes, and so have all before them. */
  readonly ids: readonly string[];
  readonly #store: HostStore;
  readonly #layers: readonly HostLayer[];
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

  constructor(store: HostStore, key: string, layout: WeightLayout, ids: readonly string[]) {
    this.#store = store;
    this.key = key;
    this.layout = layout;
    this.ids = ids;
    this.#layers = ids.map((id) => store.layers.take(id, () => new HostLayer()));
    for (const { users } of this.#layers) users.add(this);
  }

  /** The function is removed: what no other one has goes. */
  close(): void {
    for (const [layer, id] of this.ids.entries()) {
      const { users, holders } = this.#layers[layer]!;
      users.delete(this);
      holders.delete(this);
      const [other] = users;
      if (this.#store.layers.leave(id) !== undefined) this.free([layer], true);
      else if (other !== undefined && holders.size === 0 && this.place(layer) !== null) holders.add(other);
    }
  }

  /** Where a layer is, or is being read to. */
  place(layer: number): PinnedRange | null {
    return this.#layers[layer]!.place;
  }

  setPlace(layer: number, place: PinnedRange): void {
    this.#layers[layer]!.place = place;
  }

  /** Layers that are here stay as long as this function wants them. Returns those that it did not hold before. */
  hold(layers: readonly number[]): number[] {
    const added = layers.filter((layer) => !this.#layers[layer]!.holders.has(this));
    for (const layer of added) this.#layers[layer]!.holders.add(this);
    return added;
  }

  /** Whether a run or load reads from one of these layers. */
  areInUse(layers: readonly number[], ofAll: boolean): boolean {
    if (this.inUse) return true;
    return layers.some((layer) => {
      const { users, holders } = this.#layers[layer]!;
      // Others that have it keep it.
      if (!ofAll && (holders.size > 1 || (holders.size === 1 && !holders.has(this)))) return false;
      return [...users].some(({ inUse }) => inUse);
    });
  }

  get inUse(): boolean {
    return this.#users > 0;
  }

  /** Of these, those that no other function has. */
  get own(): number[] {
    return this.all.filter((layer) => this.#layers[layer]!.users.size === 1);
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
    while (this.#isPlacing(layers) && layers.some((layer) => this.place(layer) === null))
      await orCancelled(new Promise<void>((resolve) => this.#waiters.push(resolve)), signal);
    this.checkKept();
    for (const layer of layers) this.#checkHas(layer);
    return this.use();
  }

  /** Whether memory is being found for some of these layers, for whichever function. */
  #isPlacing(layers: readonly number[]): boolean {
    return layers.some((layer) => [...this.#layers[layer]!.users].some((user) => user.#placing > 0));
  }

  /** As {@link lease}, for a caller that has memory for its layers. */
  use(): Disposable {
    this.#users++;
    const leave = once(() => {
      this.#users--;
      this.#store.changed();
    });
    return { [Symbol.dispose]: leave };
  }

  /** Address of a layer's block. */
  address(layer: number): DeviceAddress {
    return this.placed(layer).address;
  }

  /** Where a layer is, or is to be read to. @throws GpuError 'host-memory' */
  placed(layer: number): PinnedRange {
    this.#checkHas(layer);
    return this.place(layer)!;
  }

  #checkHas(layer: number): void {
    if (this.place(layer) !== null) return;
    if (this.failure !== null) throw this.failure;
    throw new GpuError('host-memory', `layer ${layer} of function '${this.key}' is not in pinned host memory`);
  }

  /** Whether its bytes are here. */
  isFilled(layer: number): boolean {
    return this.#layers[layer]!.isFilled;
  }

  areFilled(layers: Iterable<number>): boolean {
    for (const layer of layers) if (!this.isFilled(layer)) return false;
    return true;
  }

  /** Whether those with weights have memory. */
  arePlaced(layers: readonly number[]): boolean {
    return layers.every((layer) => this.layout.layers[layer]!.bytes === 0 || this.place(layer) !== null);
  }

  /** Those with weights whose bytes are not here. */
  unfilled(layers: readonly number[]): number[] {
    return layers.filter((layer) => this.layout.layers[layer]!.bytes > 0 && !this.isFilled(layer));
  }

  /** Resolves when a layer's bytes are here. @throws GpuError if it is not on its way, or cannot be read */
  async layerFilled(layer: number): Promise<void> {
    while (!this.isFilled(layer)) {
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
        this.#wakeAll(this.all);
      },
    };
  }

  filled(layer: number): void {
    this.#layers[layer]!.isFilled = true;
    this.#wakeAll([layer]);
  }

  /** The layers that were not read have no memory any more, but for those that another function is about to read. */
  failed(layers: readonly number[], failure: GpuError): void {
    this.failure = failure;
    const unread = layers.filter((layer) => !this.isFilled(layer));
    this.free(unread, false);
    this.#wakeAll(unread);
  }

  /** Gives layers up: they are freed where no other function has them. Returns the bytes. @param ofAll whoever has them */
  free(layers: readonly number[], ofAll: boolean): number {
    let bytes = 0;
    for (const layer of layers) {
      const each = this.#layers[layer]!;
      each.holders.delete(this);
      if (!ofAll && each.holders.size > 0) continue;
      each.holders.clear();
      if (each.place === null) continue;
      each.place.free();
      each.place = null;
      each.isFilled = false;
      bytes += hostBytes(this.layout.layers[layer]!);
    }
    return bytes;
  }

  #wakeAll(layers: readonly number[]): void {
    const woken = new Set<HostWeights>([this]);
    for (const layer of layers) for (const user of this.#layers[layer]!.users) woken.add(user);
    for (const weights of woken) weights.#wake();
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  /** Bytes of its filled layers that are in a set of ids, which gets the others. */
  countedBytes(counted: Set<string>): number {
    let bytes = 0;
    for (const [layer, id] of this.ids.entries()) {
      if (!this.isFilled(layer)) continue;
      if (counted.has(id)) bytes += hostBytes(this.layout.layers[layer]!);
      else counted.add(id);
    }
    return bytes;
  }

  tier(): HostTier {
    const bytesOf = (isCounted: (layer: number) => boolean): number =>
      this.layout.layers.reduce((sum, layer) => sum + (isCounted(layer.index) ? hostBytes(layer) : 0), 0);
    return {
      bytes: bytesOf((layer) => this.place(layer) !== null),
      filledBytes: bytesOf((layer) => this.isFilled(layer)),
    };
  }
}

export type HostStoreState = ReturnType<HostStore['state']>;

/** An order that has begun. */
interface Order {
  readonly weights: HostWeights;
  readonly done: Promise<unknown>;
}

/** Memory for a read. */
interface Found {
  /** Layers that are here for the function since this order, to be given up if they cannot be read. */
  readonly held: readonly number[];
  readonly use: Disposable;
}

interface Drop extends Order {
  /** Their ids. */
  readonly layers: ReadonlySet<string>;
  readonly ofAll: boolean;
}

export class HostStore implements Disposable {
  readonly #pool: PinnedPool;
  /** Held while memory is found for one function, which may have to wait for pinning. */
  readonly #placing = new Mutex();
  /** The disk reads one function after the other. */
  readonly #reading = new Mutex();
  readonly #functions = new Map<string, HostWeights>();
  /** Of all functions, by id. */
  readonly layers = new CountedValues<HostLayer>();
  readonly #drops = new Set<Drop>();
  readonly #reads = new Set<Order & { readonly abort: AbortController }>();
  readonly #onChange: (() => void)[] = [];

  constructor(cuda: Cuda, options: PinnedPoolOptions) {
    this.#pool = new PinnedPool(cuda, options);
  }

  state() {
    const counted = new Set<string>();
    return {
      budgetBytes: this.#pool.budgetBytes,
      /** Pinned bytes, used or free. */
      pinnedBytes: this.#pool.pinnedBytes,
      /** Of layers that are here, or on their way from the disk. */
      usedBytes: this.#pool.usedBytes,
      functions: [...this.#functions.values()].map((weights) => ({
        key: weights.key,
        host: weights.tier(),
        /** Of the filled bytes, those that one before it has too. */
        sharedBytes: weights.countedBytes(counted),
      })),
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
    // Others keep what they have in their models.
    await this.drop(weights, weights.own, false);
    weights.close();
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
    const found = await this.#find(weights, layers, signal);
    if (found === undefined) return { kind: 'refused', largestFreeBytes: this.#pool.largestFreeBytes };
    // Nothing of it is dropped meanwhile.
    using _use = found.use;
    weights.failure = null;
    try {
      weights.checkKept();
      using _turn = await this.#reading.lock(signal);
      const [beganMs, readBefore] = [performance.now(), process.resourceUsage().fsRead];
      // A read before it, for another function, has brought some of them, or has failed.
      const bytes = await readLayers(weights, weights.unfilled(layers), signal);
      const readBytes = (process.resourceUsage().fsRead - readBefore) * fsBlockBytes;
      return { kind: 'staged', bytes, ms: performance.now() - beganMs, isCached: readBytes < uncachedShare * bytes };
    } catch (error) {
      const failure = signal.aborted ? (signal.reason as GpuError) : asGpuError(error, 'weights-unreadable');
      weights.failed(found.held, failure);
      found.use[Symbol.dispose]();
      // What it had read goes too, once nothing uses it: the order failed as a whole.
      await this.drop(weights, found.held, false);
      throw failure;
    }
  }

  /**
   * Frees layers, once no run or load that has begun reads from the function's memory. Resolves with the bytes.
   *
   * @param ofAll also for the other functions that have them, once none of these reads from it
   */
  async drop(weights: HostWeights, layers: readonly number[], ofAll: boolean): Promise<number> {
    const dropped = async (): Promise<number> => {
      while (weights.areInUse(layers, ofAll)) await this.#nextChange(undefined);
      return weights.free(layers, ofAll);
    };
    const drop = { weights, layers: new Set(layers.map((layer) => weights.ids[layer]!)), ofAll, done: dropped() };
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

  /** Finds memory for layers, once what was to be dropped before is gone. Undefined: there is not enough. */
  async #find(weights: HostWeights, layers: readonly number[], signal: AbortSignal): Promise<Found | undefined> {
    using _placing = weights.placing();
    for (;;) {
      const held: number[] = [];
      let found: Found | undefined;
      try {
        const isPlaced = await this.#place(weights, layers, held, signal);
        // What others had may have been dropped while memory was found for the rest.
        if (isPlaced && weights.arePlaced(layers)) return (found = { held, use: weights.use() });
        if (!isPlaced && this.#drops.size === 0) return undefined;
        if (isPlaced) continue;
      } finally {
        if (found === undefined) weights.free(held, false);
      }
      await this.#nextChange(signal);
    }
  }

  /**
   * Finds host memory for all layers that have none. Returns false where there is not enough, or not yet.
   *
   * @param held gets those that are here for this function from now on, and were not before
   */
  async #place(weights: HostWeights, layers: readonly number[], held: number[], signal: AbortSignal): Promise<boolean> {
    using _turn = await this.#placing.lock(signal);
    // What is to be dropped of it goes before it is read again.
    for (const drop of this.#drops) {
      const isOfAll = drop.ofAll && layers.some((layer) => drop.layers.has(weights.ids[layer]!));
      if (drop.weights === weights || isOfAll) return false;
    }
    const sizeOf = (layer: number): number => hostBytes(weights.layout.layers[layer]!);
    const missing = [...new Set(layers)].filter((layer) => sizeOf(layer) > 0 && weights.place(layer) === null);
    const bytes = missing.reduce((sum, layer) => sum + sizeOf(layer), 0);
    // Slabs may be there of a larger budget.
    if (bytes > 0 && this.#pool.usedBytes + bytes > this.#pool.budgetBytes) return false;
    // What another function has read stays for this one too.
    held.push(...weights.hold(layers.filter((layer) => weights.place(layer) !== null)));
    const sizes = missing.map(sizeOf);
    const taken = (await this.#take(sizes, true)) ?? (await this.#take(sizes, false));
    if (taken === undefined) return false;
    try {
      signal.throwIfAborted();
      for (const [at, layer] of missing.entries()) weights.setPlace(layer, taken[at]!);
      taken.length = 0;
      held.push(...weights.hold(missing));
      return true;
    } finally {
      for (const place of taken) place.free();
    }
  }

  /**
   * Memory for all layers or for none.
   *
   * @param isTogether one behind the other where that goes, so that copies bring several at once; small layers do not
   *   fill what earlier slabs have left then, which may be needed
   */
  async #take(sizes: readonly number[], isTogether: boolean): Promise<PinnedRange[] | undefined> {
    const taken: PinnedRange[] = [];
    let isWhole = false;
    try {
      for (const bytes of sizes) {
        const take = (): PinnedRange | undefined => this.#pool.take(bytes, isTogether ? taken.at(-1) : undefined);
        let place = take();
        // The second attempt has the slabs of the first: no more could be pinned.
        if (place === undefined && isTogether && (await this.#pool.grow(bytes))) place = take();
        if (place === undefined) return undefined;
        taken.push(place);
      }
      isWhole = true;
      return taken;
    } finally {
      if (!isWhole) for (const place of taken) place.free();
    }
  }

  /** Stops all reads. Await it before disposing. */
  async stop(): Promise<void> {
    const reads = [...this.#reads];
    for (const { abort } of reads) abort.abort(new GpuError('cancelled', 'the engine is being closed'));
    await Promise.all(reads.map(({ done }) => done));
  }

  [Symbol.dispose](): void {
    for (const weights of this.#functions.values()) weights.free(weights.all, true);
    this.#functions.clear();
    this.#pool[Symbol.dispose]();
  }
}

/** Resolves with the bytes that were read. */
async function readLayers(weights: HostWeights, layers: readonly number[], signal: AbortSignal): Promise<number> {
  await using reader = new WeightReader();
  let bytesRead = 0;
  for (const layer of layers) {
    const place = weights.placed(layer);
    for (const weight of filesOf(weights.layout, layer)) {
      signal.throwIfAborted();
      // Views of more than a GiB are impossible: such weights come in pieces.
      for (let at = 0; at < weight.bytes; at += viewBytesMax) {
        const bytes = Math.min(viewBytesMax, weight.bytes - at);
        await reader.read(weight, at, place.view(weight.byteOffset + at, bytes), signal);
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
