/** What a function is expected to lose at its next use for each byte that goes of it. */
import { wholePrefix, type GpuOffer } from './offer.ts';
import type { Pressure } from './pressure.ts';

/** What being late costs starts of a function that find nothing, or the hiding prefix, as long as the version holds. */
interface LateCosts {
  version: number;
  sloMs: number;
  nothingMs: number;
  hidingMs: number;
}

/** Of functions on one GPU, by their offer there, their prefix and their SLO. */
export class MissCost {
  /** Of each byte that is there, and of each behind the hiding prefix; Infinity where there is none to go. */
  whole = NaN;
  suffix = NaN;
  readonly #pressure: Pressure;
  readonly #gpu: number;
  readonly #known = new WeakMap<GpuOffer, LateCosts>();
  /** Most functions have the offer of the one before. */
  #latestOffer: GpuOffer | undefined;
  #latest: LateCosts = { version: NaN, sloMs: NaN, nothingMs: NaN, hidingMs: NaN };

  constructor(pressure: Pressure, gpu: number) {
    this.#pressure = pressure;
    this.#gpu = gpu;
  }

  /** Finds both for a function of which so many layers are there. */
  look(offer: GpuOffer, prefix: number, sloMs: number, hasSuffix: boolean): void {
    const { ways, warmMs, prefixBytes, overlapPrefix } = offer;
    const { coldMs, transfers } = ways[ways.length - 1]!;
    const { ms } = transfers[0];
    const price = this.#pressure.linkPrice(this.#gpu);
    const costs = this.#lateCosts(offer, sloMs);
    const hereMs = this.#lateMs(costs, offer, prefix, sloMs);
    const bytes = prefixBytes[prefix]!;
    const wholeLinkMs = Math.max(0, ms[0]! - ms[prefix]!) * price;
    this.whole = (wholeLinkMs + coldMs[0]! - warmMs + Math.max(0, costs.nothingMs - hereMs)) / bytes;
    this.suffix = Infinity;
    if (!hasSuffix) return;
    const linkMs = Math.max(0, ms[overlapPrefix]! - ms[prefix]!) * price;
    this.suffix = (linkMs + Math.max(0, costs.hidingMs - hereMs)) / (bytes - prefixBytes[overlapPrefix]!);
  }

  #lateMs({ hidingMs }: LateCosts, offer: GpuOffer, prefix: number, sloMs: number): number {
    if (prefix === wholePrefix(offer)) return 0;
    return prefix === offer.overlapPrefix ? hidingMs : this.#pressure.lateMs(offer, prefix, sloMs);
  }

  #lateCosts(offer: GpuOffer, sloMs: number): LateCosts {
    let costs = this.#latest;
    if (offer !== this.#latestOffer) {
      costs = this.#known.get(offer) ?? { version: NaN, sloMs, nothingMs: NaN, hidingMs: NaN };
      this.#known.set(offer, costs);
      this.#latestOffer = offer;
      this.#latest = costs;
    }
    const { version } = this.#pressure;
    if (costs.version !== version || costs.sloMs !== sloMs) {
      costs.version = version;
      costs.sloMs = sloMs;
      costs.nothingMs = this.#pressure.lateMs(offer, 0, sloMs);
      costs.hidingMs = this.#pressure.lateMs(offer, offer.overlapPrefix, sloMs);
    }
    return costs;
  }
}
