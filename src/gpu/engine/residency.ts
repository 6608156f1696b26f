/** A function in the engine: its weights on the host, and its layers on each GPU. */
import type { ColdStartPlan } from '../../plan/index.ts';
import { getOrMake } from '../../tools/index.ts';
import type { DeviceAddress } from '../driver/types.ts';
import { GpuError } from '../types.ts';
import { DeviceLayer, ResidencyFamily } from './device-layer.ts';
import type { DeviceBlock } from './device-memory.ts';
import { HostWeights } from './host-store.ts';
import type { GpuLane } from './lane.ts';
import type { Mutex } from './mutex.ts';
import type { Fence } from './streams.ts';

/** Each try waits for the work submitted to the execution stream. */
const reserveAttempts = 16;

/** The layers of one function on one GPU. */
export type ResidencyState = ReturnType<Residency['state']>;

/** One function's layers on one GPU. */
export class Residency {
  readonly weights: HostWeights;
  readonly lane: GpuLane;
  readonly family: ResidencyFamily;
  readonly #layers: readonly DeviceLayer[];
  /** Loads that are under way or wait for the disk: they end where the function is evicted. */
  readonly brings = new Set<AbortController>();

  constructor(weights: HostWeights, lane: GpuLane) {
    this.weights = weights;
    this.lane = lane;
    const { ids } = weights;
    const first = weights.layout.layers.findIndex(({ bytes }) => bytes > 0);
    this.family = lane.families.take(ids[Math.max(0, first)] ?? weights.key, () => new ResidencyFamily());
    this.#layers = ids.map((id) => lane.layers.take(id, () => new DeviceLayer(this.family, lane)));
    for (const { users } of this.#layers) users.add(this);
  }

  /** The function is removed: what no other one has goes. */
  close(): void {
    const { ids } = this.weights;
    for (const [layer, id] of ids.entries()) {
      this.#layers[layer]!.leave(this);
      this.lane.layers.leave(id);
    }
    const first = this.weights.layout.layers.findIndex(({ bytes }) => bytes > 0);
    this.lane.families.leave(ids[Math.max(0, first)] ?? this.weights.key);
  }

  /**
   * Held while work that reads or writes the layers is being submitted: they must not be moved, trimmed or loaded twice
   * then.
   */
  get mutex(): Mutex {
    return this.family.mutex;
  }

  set lastUse(fence: Fence) {
    this.family.lastUse = fence;
  }

  /** Waits for the turn; a load that is being submitted goes on behind this work. */
  enter(signal: AbortSignal | undefined): Promise<Disposable> {
    this.family.ahead?.abort();
    return this.mutex.lock(signal);
  }

  /** The same for work that takes layers of the function away: its loads end. */
  enterToFree(): Promise<Disposable> {
    for (const each of this.brings) each.abort();
    return this.enter(undefined);
  }

  has(layer: number): boolean {
    return this.#layers[layer]!.block !== null;
  }

  /** @throws GpuError 'cancelled' if the layer went away in the middle of a run or load: moving it has failed */
  checkHas(layer: number): void {
    if (this.has(layer)) return;
    const { key } = this.weights;
    throw new GpuError('cancelled', `layer ${layer} of function '${key}' was lost when layers were moved together`);
  }

  block(layer: number): DeviceBlock | null {
    return this.#layers[layer]?.block ?? null;
  }

  ready(layer: number): Fence | null {
    return this.#layers[layer]?.ready ?? null;
  }

  /** The address of a layer for kernels: on the GPU if it is there, else in host memory. */
  address(layer: number): DeviceAddress {
    return this.#layers[layer]!.block?.address ?? this.weights.address(layer);
  }

  get bytes(): number {
    return this.layers.reduce((sum, layer) => sum + this.#layers[layer]!.block!.size, 0);
  }

  /** Layers on the GPU that the function has loaded or run with, in execution order. */
  get layers(): number[] {
    return [...this.#layers.keys()].filter((layer) => this.#layers[layer]!.holders.has(this));
  }

  /** A layer that is there stays as long as this function wants it. */
  hold(layer: number): void {
    if (this.has(layer)) this.#layers[layer]!.holders.add(this);
  }

  state() {
    const { layers } = this;
    return {
      key: this.weights.key,
      gpu: this.lane.index,
      /** Layers with weights in the GPU's memory, also if their copies are still under way. */
      layers,
      bytes: this.bytes,
      /** Whether copies of its layers are still under way. */
      loading: layers.some((layer) => this.ready(layer)?.passed === false),
      /** Keys of the other functions that have some of them too. */
      sharedWith: this.#sharers(),
    };
  }

  #sharers(): string[] {
    const keys = new Set(
      this.layers.flatMap((layer) => [...this.#layers[layer]!.holders].map((each) => each.weights.key)),
    );
    keys.delete(this.weights.key);
    return [...keys];
  }

  /**
   * Allocates memory for layers, for all of them or for none. If free bytes lie in pieces that a run under way keeps
   * apart, it waits until that run is submitted. If a buffer keeps them apart through which this GPU helps another one
   * to load, it waits a little for its end.
   *
   * @throws GpuError 'out-of-memory'
   */
  async reserve(layers: readonly number[], signal?: AbortSignal): Promise<void> {
    if (layers.length === 0) return;
    const { lane } = this;
    const { pool, execution } = lane;
    const sizes = layers.map((layer) => this.weights.layout.layers[layer]!.bytes);
    const neededBytes = sizes.reduce((sum, bytes) => sum + bytes, 0);
    this.family.isReserving = true;
    try {
      for (let attempt = 0; attempt < reserveAttempts; attempt++) {
        let blocks = lane.allocate(sizes, 'weights');
        if (blocks === undefined && pool.freeBytes >= neededBytes)
          blocks = await lane.allocateBetweenRuns(sizes, 'weights', signal);
        if (blocks !== undefined) {
          for (const [index, layer] of layers.entries()) {
            this.#layers[layer]!.put(blocks[index]!);
            this.hold(layer);
          }
          return;
        }
        if (pool.freeBytes < neededBytes) break;
        await execution.finished();
      }
    } finally {
      this.family.isReserving = false;
    }
    throw new GpuError(
      'out-of-memory',
      `GPU ${lane.index} has ${pool.freeBytes} bytes free and function '${this.weights.key}' needs ${neededBytes} more`,
    );
  }

  setReady(layer: number, fence: Fence): void {
    this.#layers[layer]!.ready = fence;
  }

  /** Gives layers up: they are freed where no other function has them. @param ofAll whoever has them */
  release(layers: readonly number[], ofAll = false): number {
    let bytes = 0;
    for (const layer of layers) {
      const { holders } = this.#layers[layer]!;
      holders.delete(this);
      if (ofAll || holders.size === 0) bytes += this.#layers[layer]!.free();
    }
    return bytes;
  }
}

export class EngineFunction extends HostWeights {
  readonly #residencies = new Map<GpuLane, Residency>();

  residency(lane: GpuLane): Residency {
    return getOrMake(this.#residencies, lane, () => new Residency(this, lane));
  }

  residencies(): Residency[] {
    return [...this.#residencies.values()];
  }

  /** @throws GpuError 'invalid' */
  checkPlan(plan: ColdStartPlan, gpu: number): void {
    const count = this.layout.layers.length;
    if (plan.layers.length !== count) {
      throw new GpuError(
        'invalid',
        `the plan has ${plan.layers.length} layers, and function '${this.key}' has ${count}`,
      );
    }
    if (plan.primary !== gpu) {
      throw new GpuError('invalid', `the plan is for GPU ${plan.primary}, and GPU ${gpu} was asked for`);
    }
  }
}
