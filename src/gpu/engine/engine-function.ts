import { getOrMake } from '../../tools/index.ts';
import type { HostWeights } from './host-store.ts';
import type { GpuLane } from './lane.ts';
import { Residency } from './residency.ts';

/** A function in the engine: its weights on the host, and its layers on each GPU. */
export class EngineFunction {
  readonly weights: HostWeights;
  readonly #residencies = new Map<GpuLane, Residency>();

  constructor(weights: HostWeights) {
    this.weights = weights;
  }

  get key(): string {
    return this.weights.key;
  }

  residency(lane: GpuLane): Residency {
    return getOrMake(this.#residencies, lane, () => new Residency(this.weights, lane));
  }

  residencies(): Residency[] {
    return [...this.#residencies.values()];
  }
}
