import type { Start } from '../../schedule/index.ts';
import type { GpuEviction, LiveCounts } from './types.ts';

/** Counts what the scheduler has decided. */
export class Tally {
  readonly starts: Record<Start, number> = { warm: 0, partial: 0, cold: 0 };
  readonly #evictions = new Map<GpuEviction['cause'], number>();
  onCpu = 0;
  atWorkers = 0;
  shed = 0;
  shrinks = 0;
  growths = 0;

  evicted(cause: GpuEviction['cause']): void {
    this.#evictions.set(cause, (this.#evictions.get(cause) ?? 0) + 1);
  }

  counts(): LiveCounts {
    const { onCpu, atWorkers, shed, shrinks, growths } = this;
    return {
      starts: { ...this.starts },
      onCpu,
      atWorkers,
      shed,
      evictions: new Map(this.#evictions),
      shrinks,
      growths,
    };
  }
}
