import type { GpuLane } from './lane.ts';
import type { IoBuffers } from './pinned-pool.ts';
import type { SharedTensors } from './shared-tensors.ts';

/** What runs share. */
export interface RunContext {
  readonly io: IoBuffers;
  readonly shared: SharedTensors | undefined;
  readonly graphs: boolean;
  /** Whether layers can execute with their weights in host memory; if not, plans load them all. */
  readonly readsHost: boolean;
  /**
   * Bytes of copies that are submitted before the launches that wait for them, so that the link never waits for this
   * thread.
   */
  readonly lookaheadBytes: number;
  /** Limit of bytes of copies under way: a cancelled run still copies these. */
  readonly windowBytes: number;
  /** Coded layers that arrived wrong, and were copied as they are. */
  layersRepaired: number;
  lane(gpu: number): GpuLane | undefined;
  /** Called with the driver's errors, wherever they occur. */
  failed(error: unknown): Error;
}
