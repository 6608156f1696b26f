/** What a member offers for a function, host or worker: the same words. */
import type { Change, ChangeWriterOptions } from './changes.ts';

export interface FunctionOffer {
  /**
   * Milliseconds until an answer as the member's own scheduler predicts it, had a call arrived at the latest report;
   * undefined: it takes the function, but none was called there lately.
   */
  readonly ms?: number | undefined;
  readonly isHeld: boolean;
  /** Busy milliseconds a second caused by calls of its own clients, wherever they run; a worker has none. */
  readonly load: number;
  /** Measured milliseconds of one call alone; undefined before the first. */
  readonly callMs?: number | undefined;
  /** Expected milliseconds until it could run there: 0 if it is loaded. */
  readonly startMs?: number | undefined;
  /** Calls of it that the member runs at once. */
  readonly lanes?: number | undefined;
}

export type OfferChange = Change<FunctionOffer>;

/** Other members, hosts or workers, at which a call is tried before it runs here or fails: it may be what kills them. */
export const triedMax = 2;
/** A figure is reported when it has changed by this share. */
const worthTelling = 0.25;
/** Assumed for a function that was measured nowhere. */
export const unmeasuredMs = 10;

export const tellOffers = (
  current: ChangeWriterOptions<FunctionOffer>['current'],
): ChangeWriterOptions<FunctionOffer> => ({
  current,
  isNews: (before, now) =>
    before === undefined || now === null
      ? before !== undefined || now !== null
      : before.isHeld !== now.isHeld ||
        before.lanes !== now.lanes ||
        isFar(before.ms, now.ms) ||
        isFar(before.load, now.load) ||
        isFar(before.callMs, now.callMs) ||
        isFar(before.startMs, now.startMs),
});

function isFar(before: number | undefined, now: number | undefined): boolean {
  if (before === undefined || now === undefined) return before !== now;
  return Math.abs(now - before) > Math.max(0.2, worthTelling * before);
}

/** Undefined if it is no offer. */
export function checkedOffer(offer: FunctionOffer): FunctionOffer | undefined {
  const { ms, callMs, startMs, lanes, isHeld, load } = offer;
  const areNumbers = [ms, callMs, startMs, lanes].every((each) => each === undefined || Number.isFinite(each));
  return areNumbers && typeof isHeld === 'boolean' && Number.isFinite(load) ? offer : undefined;
}

/** Milliseconds by which one call of the function delays the calls behind it. */
export function shareMs({ callMs = unmeasuredMs, lanes = 1 }: Pick<FunctionOffer, 'callMs' | 'lanes'>): number {
  return callMs / Math.max(1, lanes);
}
