import { getOrMake } from '../../tools/index.ts';
import { HostWeights } from './host-store.ts';
import type { GpuLane } from './lane.ts';
import { Residency } from './residency.ts';

/** A function in the engine: its weights on the host, and its layers on each GPU. */
export class EngineFunction extends HostWeights {
  readonly #residencies = new Map<GpuLane, Residency>();

  residency(lane: GpuLane): Residency {
    return getOrMake(this.#residencies, lane, () => new Residency(this, lane));
  }

  residencies(): Residency[] {
    return [...this.#residencies.values()];
  }
}
