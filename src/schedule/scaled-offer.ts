import type { LoadOption, GpuOffer } from './offer.ts';

/** Factors for an offer's execution and loading times. */
export interface OfferFactors {
  readonly warm: number;
  readonly cold: number;
}

/** The same offer on a machine that is slower by these factors. */
export function scaledOffer(offer: GpuOffer, factors: OfferFactors): GpuOffer {
  const warmMs = offer.warmMs * factors.warm;
  const batches = offer.batches?.map(({ rows, ms }) => ({ rows, ms: ms * factors.warm }));
  const [first, ...others] = offer.ways;
  return {
    ...offer,
    ...(offer.smaller === undefined ? {} : { smaller: scaledOffer(offer.smaller, factors) }),
    ...(batches && { batches }),
    warmMs,
    ways: [scaledWay(first, warmMs, factors), ...others.map((way) => scaledWay(way, warmMs, factors))],
  };
}

function scaledWay(way: LoadOption, warmMs: number, { warm, cold }: OfferFactors): LoadOption {
  const [own, ...borrowed] = way.transfers.map((transfer) => ({
    ...transfer,
    ms: transfer.ms.map((ms) => ms * cold),
    tailMs: transfer.tailMs.map((ms) => ms * warm),
  }));
  // With all layers there a start is a warm one; no start is faster.
  return { ...way, coldMs: way.coldMs.map((ms) => Math.max(warmMs, ms * cold)), transfers: [own!, ...borrowed] };
}
