import type { LoadOption, GpuOffer } from './offer.ts';

/** Factors for an offer's execution and loading times, and what is added to the end of every start. */
export interface OfferFactors {
  readonly warm: number;
  readonly cold: number;
  /** Default 0. */
  readonly lateMs?: number;
}

/** The same offer on a machine that is slower by these factors, with later ends. */
export function scaledOffer(offer: GpuOffer, factors: OfferFactors): GpuOffer {
  const { warm, lateMs = 0 } = factors;
  const warmMs = offer.warmMs * warm;
  const batches = offer.batches?.map(({ rows, ms }) => ({ rows, ms: ms * warm + lateMs }));
  const [first, ...others] = offer.ways;
  return {
    ...offer,
    ...(offer.smaller === undefined ? {} : { smaller: scaledOffer(offer.smaller, factors) }),
    ...(batches && { batches }),
    warmMs: warmMs + lateMs,
    ways: [scaledWay(first, warmMs, factors), ...others.map((way) => scaledWay(way, warmMs, factors))],
  };
}

function scaledWay(way: LoadOption, warmMs: number, { warm, cold, lateMs = 0 }: OfferFactors): LoadOption {
  const [own, ...borrowed] = way.transfers.map((transfer) => ({
    ...transfer,
    ms: transfer.ms.map((ms) => ms * cold),
    tailMs: transfer.tailMs.map((ms, prefix) => ms * warm + (transfer.bytes[prefix] === 0 ? 0 : lateMs)),
  }));
  // With all layers there a start is a warm one; no start is faster.
  const coldMs = way.coldMs.map((ms) => Math.max(warmMs, ms * cold) + lateMs);
  return { ...way, coldMs, transfers: [own!, ...borrowed] };
}
