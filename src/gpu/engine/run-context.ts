import type { HostStore } from './host-store.ts';
import type { IoBuffers } from './io-buffers.ts';
import type { GpuLane } from './lane.ts';

/** What runs share. */
export interface RunContext {
  readonly store: HostStore;
  readonly io: IoBuffers;
  readonly graphs: boolean;
  /** Whether layers can be executed with their weights in host memory; where not, plans load them all. */
  readonly readsHost: boolean;
  /**
   * Bytes of copies that are submitted before the launches which wait for them, so that the link never waits for this
   * thread.
   */
  readonly lookaheadBytes: number;
  /** Most bytes of copies that are submitted and not done: what a cancelled run still brings. */
  readonly windowBytes: number;
  lane(gpu: number): GpuLane | undefined;
  /** Told of the driver's errors, in whatever place. */
  failed(error: unknown): Error;
}
