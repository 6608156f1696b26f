/** What a function is expected to lose at its next use for each byte that goes of it. */
import type { GpuOffer } from './offer.ts';
import type { Pressure } from './pressure.ts';
import type { Rungs } from './rungs.ts';
import type { Slot } from './slots.ts';

/** Of the functions on one GPU. */
export class MissCost {
  readonly #pressure: Pressure;
  readonly #rungs: Rungs;
  readonly #gpu: number;

  constructor(pressure: Pressure, rungs: Rungs, gpu: number) {
    this.#pressure = pressure;
    this.#rungs = rungs;
    this.#gpu = gpu;
  }

  /** Of each byte that would go next: the less of what its suffix, if it has one, and of what everything costs. */
  perByte(slot: Slot, hasSuffix: boolean): number {
    const whole = this.whole(slot);
    return hasSuffix ? Math.min(whole, this.suffix(slot)) : whole;
  }

  /** Of each byte of its suffix. */
  suffix({ functionIndex, offer, prefix }: Slot): number {
    return suffixCostPerByte(this.#pressure, this.#gpu, offer!, prefix, this.#rungs.sloMs(functionIndex));
  }

  /** Of each byte that is there. */
  whole({ functionIndex, offer, prefix }: Slot): number {
    return wholeCostPerByte(this.#pressure, this.#gpu, offer!, prefix, this.#rungs.sloMs(functionIndex));
  }
}

/** Of the layers behind the hiding prefix. */
export function suffixCostPerByte(
  pressure: Pressure,
  gpu: number,
  offer: GpuOffer,
  prefix: number,
  sloMs: number,
): number {
  const { ways, prefixBytes, hidingPrefix } = offer;
  const { ms } = ways[ways.length - 1]!.transfers[0];
  const linkMs = Math.max(0, ms[hidingPrefix]! - ms[prefix]!) * pressure.linkPrice(gpu);
  const lateMs = pressure.lateMs(offer, hidingPrefix, sloMs) - pressure.lateMs(offer, prefix, sloMs);
  return (linkMs + Math.max(0, lateMs)) / (prefixBytes[prefix]! - prefixBytes[hidingPrefix]!);
}

/** Of everything that is there. */
export function wholeCostPerByte(
  pressure: Pressure,
  gpu: number,
  offer: GpuOffer,
  prefix: number,
  sloMs: number,
): number {
  const { ways, warmMs, prefixBytes } = offer;
  const { coldMs, transfers } = ways[ways.length - 1]!;
  const linkMs = Math.max(0, transfers[0].ms[0]! - transfers[0].ms[prefix]!) * pressure.linkPrice(gpu);
  const lateMs = pressure.lateMs(offer, 0, sloMs) - pressure.lateMs(offer, prefix, sloMs);
  return (linkMs + coldMs[0]! - warmMs + Math.max(0, lateMs)) / prefixBytes[prefix]!;
}
