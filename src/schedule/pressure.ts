import type { LinkLanes } from './links.ts';
import type { GpuOffer } from './offer.ts';

/** How much of what is known already a new observation leaves. */
const kept = 0.98;
/** What an SLO that is missed costs, over the SLO itself. */
const missCost = 4;
/** Of the delay of others' loads, what their callers see of it. */
const shownShare = 0.25;
/** Of one run, over what was expected; and of all, over what is known. */
const ratioMax = 2;
/** What one run counts in that. */
const learning = 0.01;

/** An SLO beyond it counts as this. */
const sloMsMax = 10_000;

/**
 * What a start that lacks layers costs beside its own loading, by GPU: the chance that its load comes too late, and the
 * delay that it is to the loads of others.
 */
export class Pressure {
  readonly #links: LinkLanes;
  /** Share of the loads that could not be in time. */
  readonly #lateShare: Float64Array;
  readonly #price: Float64Array;
  /** Of starts that lack some layers, and of those that lack all. */
  readonly #longer = new Float64Array(2).fill(1);
  /** What has gone for room, with older losses counting less; on all GPUs, since whoever is next on one may be any. */
  #lostMs = 0;
  #lostBytes = 0;

  constructor(gpuCount: number, links: LinkLanes) {
    this.#links = links;
    this.#lateShare = new Float64Array(gpuCount);
    this.#price = new Float64Array(gpuCount);
  }

  /**
   * A load that somebody waited for could be in time for the SLO, or not. Where the SLO leaves no room for other loads
   * before it, that says more of the SLO than of the link.
   */
  loadWas(gpu: number, isLate: boolean, { ways, warmMs }: GpuOffer, sloMs: number): void {
    if (sloMs - warmMs < 2 * ways[ways.length - 1]!.transfers[0].ms[0]!) return;
    this.#lateShare[gpu] = this.#lateShare[gpu]! * kept + (isLate ? 1 - kept : 0);
  }

  /** So many bytes of somebody's layers go for room, each of which costs so many milliseconds. */
  lost(lossPerByte: number, bytes: number): void {
    this.#lostMs = this.#lostMs * kept + lossPerByte * bytes;
    this.#lostBytes = this.#lostBytes * kept + bytes;
  }

  /** What is expected to be lost when so many bytes go for room. */
  lossMs(bytes: number): number {
    return this.#lostBytes === 0 ? 0 : (bytes * this.#lostMs) / this.#lostBytes;
  }

  /** How long one whose layers were all missing, or some of them, was expected to take, and took. */
  tookMs(isCold: boolean, expectedMs: number, actualMs: number): void {
    if (!(expectedMs > 0)) return;
    const ratio = Math.min(actualMs / expectedMs, ratioMax);
    const longer = this.longer(isCold) * (1 + learning * (ratio - 1));
    this.#longer[isCold ? 1 : 0] = Math.min(Math.max(longer, 1), ratioMax);
  }

  /** How much longer such a one takes than what is known says, for others that come later. */
  longer(isCold: boolean): number {
    return this.#longer[isCold ? 1 : 0]!;
  }

  /** Brings the price of a GPU's link up to date, and returns it. */
  now(gpu: number, nowMs: number): number {
    return (this.#price[gpu] = this.#links.price(gpu, nowMs));
  }

  /** What it costs to have to load anything, however little; a start that takes so long even on an idle link. */
  lateMs(gpu: number, coldMs: number, sloMs: number): number {
    return (coldMs > sloMs ? 1 : this.#lateShare[gpu]!) * missCost * Math.min(sloMs, sloMsMax);
  }

  /**
   * What each millisecond on the link costs, its own included. Others wait for the link, but most of that is hidden
   * too.
   */
  linkPrice(gpu: number): number {
    return 1 + shownShare * this.#price[gpu]!;
  }
}
