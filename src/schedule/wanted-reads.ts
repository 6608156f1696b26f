/** Functions that are to be read from disk and are not yet: by their value, and by how long that has been so. */
import { Heap } from './heap.ts';
import type { Copy } from './host-blocks.ts';
import type { HostValues } from './host-values.ts';
import { tuning } from './tuning.ts';

const { looksMax } = tuning.hostMemory;

export class WantedReads {
  readonly #values: HostValues;
  readonly #since = new Map<Copy, number>();
  /** By what a byte was worth when its latest call came, the most first. */
  readonly #byValue = new Heap<Copy>();

  constructor(values: HostValues) {
    this.#values = values;
    values.onScale((factor) => this.#byValue.scale(factor));
  }

  get size(): number {
    return this.#since.size;
  }

  has(copy: Copy): boolean {
    return this.#since.has(copy);
  }

  /** With the instant since when each is wanted; the first has waited longest. */
  get oldestFirst(): Iterable<readonly [Copy, number]> {
    return this.#since;
  }

  /** It is wanted, if it was not before, and may be worth more. */
  add(copy: Copy, nowMs: number): void {
    if (!this.#since.has(copy)) this.#since.set(copy, nowMs);
    this.#byValue.remove(copy);
    this.#byValue.add(copy, -this.#values.valueWith(copy, nowMs));
  }

  delete(copy: Copy): void {
    if (this.#since.delete(copy)) this.#byValue.remove(copy);
  }

  /** Offers the most valuable first, with what a byte is worth, until one is taken. Returns whether one was. */
  find(nowMs: number, takes: (copy: Copy, value: number) => boolean): boolean {
    const passed: [Copy, number][] = [];
    let isTaken = false;
    while (!isTaken && passed.length < looksMax) {
      const copy = this.#byValue.first();
      if (copy === undefined) break;
      const value = this.#values.valueWith(copy, nowMs);
      const isWorthLess = -value > this.#byValue.keyOf(copy);
      this.#byValue.remove(copy);
      // Its calls have become late since.
      if (isWorthLess) this.#byValue.add(copy, -value);
      else if (takes(copy, value)) isTaken = true;
      else if (this.#since.has(copy)) passed.push([copy, value]);
    }
    for (const [copy, value] of passed) this.#byValue.add(copy, -value);
    return isTaken;
  }

  /** How long the reads take of those that are worth more: about, where these are many. */
  aheadMs(copy: Copy, nowMs: number): number {
    const key = -this.#values.valueWith(copy, nowMs);
    const places = [0];
    let ms = 0;
    let looks = 0;
    for (let place = places.pop(); place !== undefined; place = places.pop()) {
      if (place >= this.#byValue.size) continue;
      const other = this.#byValue.at(place);
      // Those below are worth no more.
      if (this.#byValue.keyOf(other) > key) continue;
      if (other !== copy) ms += this.#values.readMs(other);
      if (++looks === looksMax) return (ms / looks) * this.#byValue.size;
      places.push(2 * place + 1, 2 * place + 2);
    }
    return ms;
  }
}
