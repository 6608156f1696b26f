/**
 * Which layers one copy brings. A copy costs some 2.5 us beside its bytes: on an H200 the cold starts of six networks took
 * that much per copy over what their bytes take. So copies become larger as a load proceeds, and smaller again towards
 * its end.
 *
 * - The first brings little: half a MiB beside its first layer. A network that executes longer than it loads (GPT-2)
 *   would otherwise wait for it. Each further one may bring a quarter more.
 * - None brings more than an eighth of what is left. Its layers can begin when the last of them is there, so the last
 *   copies decide what is left to execute behind the link.
 *
 * PipeSwitch (Bai et al., OSDI 2020) groups layers for the same reason.
 */
import { alignUp } from '../program/arena.ts';
import { hostBytes } from '../program/types.ts';
import type { Residency } from './residency.ts';

/** Of the bytes that may be under way, what the first copy may bring beside its first layer: half a MiB by default. */
const firstShare = 1 / 512;
const growth = 1.25;
/** So a cancelled start still stops soon. */
const mostShare = 1 / 16;
const leftShare = 1 / 8;

export const isCoded = ({ weights }: Residency, layer: number): boolean =>
  weights.layout.layers[layer]!.coded !== undefined;

export interface CopyGroupsOptions {
  /** Layers that are to be loaded, in order. */
  readonly layers: readonly number[];
  /** Limit of bytes under way. */
  readonly windowBytes: number;
  /** Whether a layer comes over the GPU's own link; default: all of them do. */
  readonly isOwn?: (layer: number) => boolean;
}

export class CopyGroups {
  readonly #residency: Residency;
  readonly #isOwn: (layer: number) => boolean;
  readonly #firstBytes: number;
  readonly #mostBytes: number;
  /** What the next copy may bring beside its first layer, but for what is left. */
  #besideBytes: number;
  #leftBytes: number;

  constructor(residency: Residency, { layers, windowBytes, isOwn = () => true }: CopyGroupsOptions) {
    this.#residency = residency;
    this.#isOwn = isOwn;
    this.#firstBytes = firstShare * windowBytes;
    this.#mostBytes = mostShare * windowBytes;
    this.#besideBytes = this.#firstBytes;
    this.#leftBytes = layers.reduce((sum, layer) => sum + this.#bytes(layer), 0);
  }

  /**
   * The layers of the next copy: the first of these, and those after it whose bytes follow on the host, and on the GPU
   * unless they are coded.
   *
   * @param layers those that are left
   * @param roomBytes where coded layers go first
   */
  next(layers: readonly number[], roomBytes: number): number[] {
    const first = layers[0]!;
    const together = [first];
    if (this.#isOwn(first)) {
      const most = Math.max(this.#firstBytes, Math.min(this.#besideBytes, this.#leftBytes * leftShare));
      let end = this.#after(first);
      while (together.length < layers.length) {
        const next = layers[together.length]!;
        if (!this.#follows(first, next, end)) break;
        const nextEnd = this.#after(next);
        if (nextEnd.host - this.#after(first).host > most) break;
        if (isCoded(this.#residency, first) && this.spanBytes([first, next]) > roomBytes) break;
        together.push(next);
        end = nextEnd;
      }
    }
    this.#besideBytes = Math.min(this.#besideBytes * growth, this.#mostBytes);
    for (const layer of together) this.#leftBytes -= this.#bytes(layer);
    return together;
  }

  /** From the first byte of the first layer to the last byte of the last one, on the host. */
  spanBytes(layers: readonly number[]): number {
    const { weights } = this.#residency;
    return weights.address(layers.at(-1)!) + this.#bytes(layers.at(-1)!) - weights.address(layers[0]!);
  }

  #follows(first: number, next: number, end: Readonly<Record<'host' | 'gpu', number>>): boolean {
    const { weights } = this.#residency;
    if (!this.#isOwn(next) || !weights.isFilled(next)) return false;
    if (!weights.place(next)!.isPinnedWith(weights.place(first)!) || weights.address(next) !== end.host) return false;
    const coded = isCoded(this.#residency, first);
    if (coded !== isCoded(this.#residency, next)) return false;
    return coded || this.#residency.block(next)?.address === end.gpu;
  }

  /** Where the layer after this one begins if it follows. */
  #after(layer: number) {
    const { weights } = this.#residency;
    const block = this.#residency.block(layer);
    return {
      host: weights.address(layer) + alignUp(this.#bytes(layer)),
      gpu: block === null ? -1 : block.address + block.size,
    };
  }

  #bytes(layer: number): number {
    return hostBytes(this.#residency.weights.layout.layers[layer]!);
  }
}
