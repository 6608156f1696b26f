/** Device memory for layers whose weights stay in host memory: they lie here while a run executes them. */
import type { DeviceAddress } from '../driver/types.ts';

export interface Staged {
  readonly layer: number;
  readonly address: DeviceAddress;
}

/** Everything uses one stream: a copy comes after the launches that read the bytes it overwrites. */
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

  /** A run that stages layers begins. Returns whether the memory differs from that of the last such run. */
  begin(address: DeviceAddress, bytes: number): boolean {
    const isOther = address !== this.#address || bytes !== this.#bytes;
    this.#address = address;
    this.#bytes = bytes;
    this.forget();
    return isOther;
  }

  /** Places for the layers that are not staged yet. All of them fit at once, by `bytes`. */
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
