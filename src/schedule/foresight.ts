import type { EvictionOrder } from './eviction-order.ts';

const nobody = -1;

/**
 * Evicts what is used furthest in the future (Belady 1966), layer by layer from the last. No online order loads fewer
 * bytes on one GPU whose functions are alike. It serves as a bound in reports, so it may look at every idle function
 * each time.
 */
export class OracleOrder implements EvictionOrder {
  readonly #nextUseMs: (row: number) => number;
  readonly #idle = new Set<number>();
  #next = nobody;

  constructor(nextUseMs: (row: number) => number) {
    this.#nextUseMs = nextUseMs;
  }

  add(row: number): void {
    this.#idle.add(row);
    this.#next = nobody;
  }

  remove(row: number): void {
    this.#idle.delete(row);
    this.#next = nobody;
  }

  relayer(): void {}

  first(): number {
    if (this.#next !== nobody) return this.#next;
    let furthestMs = -Infinity;
    for (const row of this.#idle) {
      const nextUseMs = this.#nextUseMs(row);
      if (nextUseMs < furthestMs || (nextUseMs === furthestMs && row > this.#next)) continue;
      furthestMs = nextUseMs;
      this.#next = row;
    }
    return this.#next;
  }

  grow(): void {}
}
