/** What a function is expected to lose at its next use for each byte that goes of it. */
import { wholePrefix, type GpuOffer } from './offer.ts';
import type { Pressure } from './pressure.ts';

/** Of the layers behind the hiding prefix. */
export function suffixCostPerByte(
  pressure: Pressure,
  gpu: number,
  offer: GpuOffer,
  prefix: number,
  sloMs: number,
): number {
  const { ways, prefixBytes, hidingPrefix } = offer;
  const { coldMs, transfers } = ways[ways.length - 1]!;
  const { ms } = transfers[0];
  const linkMs = Math.max(0, ms[hidingPrefix]! - ms[prefix]!) * pressure.linkPrice(gpu);
  const lateMs = prefix === wholePrefix(offer) ? pressure.lateMs(gpu, coldMs[hidingPrefix]!, sloMs) : 0;
  return (linkMs + lateMs) / (prefixBytes[prefix]! - prefixBytes[hidingPrefix]!);
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
  const isNewlyLate = prefix === wholePrefix(offer) || coldMs[0]! > sloMs;
  const lateMs = isNewlyLate ? pressure.lateMs(gpu, coldMs[0]!, sloMs) : 0;
  return (linkMs + coldMs[0]! - warmMs + lateMs) / prefixBytes[prefix]!;
}
