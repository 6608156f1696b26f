import type { Start } from '../../schedule/index.ts';
import type { GpuEviction } from './types.ts';

/** Counts the scheduler's decisions. */
export class Tally {
  /** Executions on GPUs that found all layers, some, or none there. */
  readonly starts: Record<Start, number> = { warm: 0, partial: 0, cold: 0 };
  readonly evictions = new Map<GpuEviction['cause'], number>();
  /** Resident functions that shrank for room, and that grew when there was room. */
  shrinks = 0;
  growths = 0;

  evicted(cause: GpuEviction['cause']): void {
    this.evictions.set(cause, (this.evictions.get(cause) ?? 0) + 1);
  }

  /** A snapshot: later decisions do not change it. */
  counts(): LiveCounts {
    return structuredClone(this);
  }
}

export type LiveCounts = Readonly<Omit<Tally, 'evicted' | 'counts'>>;
