import type { Start } from '../../schedule/index.ts';
import type { ShellCounts, ShellEviction } from './shell-types.ts';

/** Counts what the scheduler has decided. */
export class Tally {
  readonly starts: Record<Start, number> = { warm: 0, partial: 0, cold: 0 };
  readonly #evictions = new Map<ShellEviction['cause'], number>();
  offloaded = 0;
  shed = 0;
  shrinks = 0;
  growths = 0;

  evicted(cause: ShellEviction['cause']): void {
    this.#evictions.set(cause, (this.#evictions.get(cause) ?? 0) + 1);
  }

  counts(): ShellCounts {
    const { offloaded, shed, shrinks, growths } = this;
    return { starts: { ...this.starts }, offloaded, shed, evictions: new Map(this.#evictions), shrinks, growths };
  }
}
