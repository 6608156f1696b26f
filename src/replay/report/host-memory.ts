import type { EvictionRecord, StageRecord } from '../types.ts';
import { finite } from './tally.ts';
import type { HostMemoryRow } from './types.ts';

/** From a replay's context: the size of host memory, and the total weights of all functions. */
export interface HostMemoryContext {
  readonly capacityBytes: number;
  readonly functionsBytes: number;
  readonly diskCapacityBytes?: number | undefined;
}

/** The tier between disk and GPUs. */
export class HostMemoryCounter {
  #reads = 0;
  #readBytes = 0;
  #evictions = 0;

  stage({ bytes }: StageRecord): void {
    this.#reads++;
    this.#readBytes += bytes;
  }

  eviction({ gpu }: EvictionRecord): void {
    if (gpu === hostMemoryPlace) this.#evictions++;
  }

  row({ capacityBytes, functionsBytes, diskCapacityBytes = Infinity }: HostMemoryContext): HostMemoryRow {
    return {
      capacity_bytes: capacityBytes,
      functions_bytes: functionsBytes,
      disk_capacity_bytes: finite(diskCapacityBytes),
      exceeded: functionsBytes > capacityBytes,
      disk_reads: this.#reads,
      disk_read_bytes: this.#readBytes,
      evictions: this.#evictions,
    };
  }
}

/** The place number of evictions from host memory; see EvictionRecord. */
const hostMemoryPlace = -2;
