/** Device memory in which layers lie for as long as a run executes them, while their weights stay in host memory. */
import type { DeviceAddress } from '../driver/types.ts';

export interface Staged {
  readonly layer: number;
  readonly address: DeviceAddress;
}

/** Everything goes over one stream: a copy comes after the launches that read what it writes over. */
export class Staging {
  readonly #layerBytes: readonly number[];
  readonly #there = new Set<number>();
  #address: DeviceAddress = -1;
  #bytes = 0;
  #usedBytes = 0;

  /** @param layerBytes by layer */
  constructor(layerBytes: readonly number[]) {
    this.#layerBytes = layerBytes;
  }

  /** A run begins, and nothing is there. True where the memory is another one than in the last run. */
  begin(address: DeviceAddress, bytes: number): boolean {
    const isOther = address !== this.#address || bytes !== this.#bytes;
    this.#address = address;
    this.#bytes = bytes;
    this.forget();
    return isOther;
  }

  /** Places for those of the layers that are not there. They all fit at once, by `bytes`. */
  take(layers: readonly number[]): Staged[] {
    const needed = (): number =>
      layers.reduce((sum, layer) => sum + (this.#there.has(layer) ? 0 : this.#layerBytes[layer]!), 0);
    if (this.#usedBytes + needed() > this.#bytes) this.forget();
    if (needed() > this.#bytes) throw new RangeError(`${needed()} bytes are to be staged in ${this.#bytes}`);
    return layers
      .filter((layer) => !this.#there.has(layer))
      .map((layer) => {
        const address = this.#address + this.#usedBytes;
        this.#usedBytes += this.#layerBytes[layer]!;
        this.#there.add(layer);
        return { layer, address };
      });
  }

  /** Nothing is there. */
  forget(): void {
    this.#there.clear();
    this.#usedBytes = 0;
  }
}
