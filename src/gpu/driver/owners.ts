/** Which device's memory an address lies in. */

interface Owned {
  readonly start: number;
  readonly end: number;
  readonly context: number;
}

export class AddressOwners {
  /** By start; allocations do not overlap. */
  readonly #ranges: Owned[] = [];
  readonly #byContext = new Map<number, number>();

  add(start: number, bytes: number, context: number): void {
    this.#ranges.splice(this.#after(start), 0, { start, end: start + bytes, context });
    this.#byContext.set(context, (this.#byContext.get(context) ?? 0) + 1);
  }

  remove(start: number): void {
    const index = this.#after(start) - 1;
    const range = this.#ranges[index];
    if (range?.start !== start) return;
    this.#ranges.splice(index, 1);
    const left = (this.#byContext.get(range.context) ?? 1) - 1;
    if (left === 0) this.#byContext.delete(range.context);
    else this.#byContext.set(range.context, left);
  }

  /**
   * The context that owns an address: 0 for host memory, and where a single device has memory, so that none can differ.
   */
  contextOf(address: number): number {
    if (this.#byContext.size < 2) return 0;
    const range = this.#ranges[this.#after(address) - 1];
    return range !== undefined && address < range.end ? range.context : 0;
  }

  /** Number of ranges that start at or before the address. */
  #after(address: number): number {
    let low = 0;
    let high = this.#ranges.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#ranges[middle]!.start <= address) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
