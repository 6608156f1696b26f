/** Finds the device whose memory an address is in. */

interface Owned {
  readonly start: number;
  readonly end: number;
  readonly context: number;
}

export class AddressOwners {
  /** By start; allocations do not overlap. */
  readonly #ranges: Owned[] = [];

  add(start: number, bytes: number, context: number): void {
    this.#ranges.splice(this.#after(start), 0, { start, end: start + bytes, context });
  }

  remove(start: number): void {
    const index = this.#after(start) - 1;
    if (this.#ranges[index]?.start === start) this.#ranges.splice(index, 1);
  }

  /** The context that owns an address: 0 for host memory. */
  contextOf(address: number): number {
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
