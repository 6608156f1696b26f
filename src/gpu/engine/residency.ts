/** A function in the engine: its weights on the host, and its layers on each GPU. */
import type { ColdStartPlan } from '../../plan/index.ts';
import { getOrMake } from '../../tools/index.ts';
import type { DeviceAddress } from '../driver/types.ts';
import { GpuError } from '../types.ts';
import type { DeviceBlock } from './device-memory.ts';
import { HostWeights } from './host-store.ts';
import type { GpuLane } from './lane.ts';
import { Mutex } from './mutex.ts';
import type { Fence } from './streams.ts';

/** Each try waits for the work submitted to the execution stream. */
const reserveAttempts = 16;

/** Why the submission of a load was stopped early. */
export type Preemption = 'run' | 'evicted';

/** The layers of one function on one GPU. */
export type ResidencyState = ReturnType<Residency['state']>;

/** One function's layers on one GPU. */
export class Residency {
  readonly weights: HostWeights;
  readonly lane: GpuLane;
  /**
   * Held while work that reads or writes the layers is being submitted: they must not be moved, trimmed or loaded twice
   * then.
   */
  readonly mutex = new Mutex();
  readonly #blocks: (DeviceBlock | null)[];
  /** By layer: when its bytes are there. */
  readonly #ready: (Fence | null)[];
  /** The latest run that reads the layers. */
  lastUse: Fence | null = null;
  /** Stops the submission of a load-ahead, so that a run can load the rest itself. */
  preempt: AbortController | null = null;
  /** Its turn has come, but none of its work has been submitted: its layers may still be moved. */
  #isReserving = false;

  constructor(weights: HostWeights, lane: GpuLane) {
    this.weights = weights;
    this.lane = lane;
    const count = weights.layout.layers.length;
    this.#blocks = Array.from({ length: count }, () => null);
    this.#ready = Array.from({ length: count }, () => null);
  }

  /** Waits for the turn, and stops a load-ahead that is being submitted. */
  enter(signal: AbortSignal | undefined, reason: Preemption = 'run'): Promise<Disposable> {
    this.preempt?.abort(reason);
    return this.mutex.lock(signal);
  }

  has(layer: number): boolean {
    return this.#blocks[layer] !== null;
  }

  /** @throws GpuError 'cancelled' if the layer went away in the middle of a run or load: moving it has failed */
  checkHas(layer: number): void {
    if (this.has(layer)) return;
    const { key } = this.weights;
    throw new GpuError('cancelled', `layer ${layer} of function '${key}' was lost when layers were moved together`);
  }

  block(layer: number): DeviceBlock | null {
    return this.#blocks[layer] ?? null;
  }

  ready(layer: number): Fence | null {
    return this.#ready[layer] ?? null;
  }

  /** The address of a layer for kernels: on the GPU if it is there, else in host memory. */
  address(layer: number): DeviceAddress {
    return this.#blocks[layer]?.address ?? this.weights.address(layer);
  }

  get bytes(): number {
    return this.#blocks.reduce((sum, block) => sum + (block?.size ?? 0), 0);
  }

  /** Layers with weights on the GPU, in execution order. */
  get layers(): number[] {
    return [...this.#blocks.keys()].filter((layer) => this.#blocks[layer] !== null);
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
      loading: layers.some((layer) => this.#ready[layer]?.passed === false),
    };
  }

  /** Whether a run with the layers' addresses may be being submitted: then they must stay in place. */
  get isFixed(): boolean {
    return this.mutex.isTaken && !this.#isReserving;
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
    this.#isReserving = true;
    try {
      for (let attempt = 0; attempt < reserveAttempts; attempt++) {
        let blocks = lane.allocate(sizes, 'weights');
        if (blocks === undefined && pool.freeBytes >= neededBytes)
          blocks = await lane.allocateBetweenRuns(sizes, 'weights', signal);
        if (blocks !== undefined) {
          for (const [index, layer] of layers.entries()) this.#put(layer, blocks[index]!);
          return;
        }
        if (pool.freeBytes < neededBytes) break;
        await execution.finished();
      }
    } finally {
      this.#isReserving = false;
    }
    throw new GpuError(
      'out-of-memory',
      `GPU ${lane.index} has ${pool.freeBytes} bytes free and function '${this.weights.key}' needs ${neededBytes} more`,
    );
  }

  setReady(layer: number, fence: Fence): void {
    this.#ready[layer] = fence;
  }

  /** Frees layers at once. If the GPU still uses them, the next user of the bytes waits for that. */
  release(layers: readonly number[]): number {
    let bytes = 0;
    for (const layer of layers) {
      const block = this.#blocks[layer];
      if (block === null || block === undefined) continue;
      this.lane.pool.free(block, [this.#ready[layer] ?? null, this.lastUse]);
      this.lane.owners.delete(block);
      this.#blocks[layer] = null;
      this.#ready[layer] = null;
      bytes += block.size;
    }
    return bytes;
  }

  #put(layer: number, block: DeviceBlock): void {
    this.#blocks[layer] = block;
    this.#ready[layer] = null;
    this.lane.owners.set(block, { residency: this, layer });
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
