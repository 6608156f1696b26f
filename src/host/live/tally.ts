import type { Start } from '../../schedule/index.ts';
import type { GpuEviction } from './types.ts';

/** What the scheduler has decided so far. */
export class Tally {
  /** Executions on GPUs that found everything, some of it, or nothing there. */
  readonly starts: Record<Start, number> = { warm: 0, partial: 0, cold: 0 };
  readonly evictions = new Map<GpuEviction['cause'], number>();
  onCpu = 0;
  atWorkers = 0;
  shed = 0;
  /** Resident functions that went to a smaller plan for room, and to a larger one with the room that there was. */
  shrinks = 0;
  growths = 0;

  evicted(cause: GpuEviction['cause']): void {
    this.evictions.set(cause, (this.evictions.get(cause) ?? 0) + 1);
  }

  /** As they are now: later decisions do not change them. */
  counts(): LiveCounts {
    return structuredClone(this);
  }
}

export type LiveCounts = Readonly<Omit<Tally, 'evicted' | 'counts'>>;
