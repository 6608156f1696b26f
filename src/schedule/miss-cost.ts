/** What missing layers cost: a start, by its load (`Pressure`), and a function, by each byte that goes (`MissCost`). */
import type { Given, GpuId } from './ids.ts';
import type { LinkLanes } from './links.ts';
import { trimmedPrefix, wholePrefix, type GpuOffer } from './offer.ts';
import { tuning } from './tuning.ts';

const {
  calls,
  helpedKept,
  kept,
  learning,
  loadAtFirst,
  loadMax,
  loadMin,
  loadStep,
  missFactor,
  ratioMax,
  shownShare,
  sloMsMax,
} = tuning.missCost;

/**
 * What a start with missing layers costs beyond its own loading: the chance that its load comes too late, and the delay
 * that its load is to others.
 *
 * The chance is that of a full queue (M/M/1/K) with room for the load itself and for those before it that fit into what
 * the SLO leaves beside a start on idle links. A machine that trims functions carries the same bytes as one that drops
 * whole functions, in more and shorter loads. Below the links' capacity few of the short loads are late; beyond it short
 * and long loads are late equally often, and there are more short ones. So the share of late loads tells how loaded the
 * links are, and that tells how many would be late either way.
 */
export class Pressure {
  readonly #links: LinkLanes;
  /**
   * Demand on the links over their capacity. One figure for all GPUs: a GPU that trims while its neighbour drops whole
   * functions is home to more functions, and gets more calls than it can load for.
   */
  #load: number = loadAtFirst;
  /** What `lateMs` says holds as long as this is the same. */
  version = 0;
  /** Its logarithm: a power would take seven times as long as the exponential of a product. */
  #logLoad = Math.log(loadAtFirst);
  /** Mean link time of the loads, and the mean it would be with every layer missing. */
  #missingMs = 0;
  #wholeMs = 0;
  /** The share of starts that were in time, of those that only other GPUs' links make so. */
  #helpedShare = 1;
  readonly #price: Float64Array;
  /** The mean over the calls, so that a miss costs the same whatever the SLO of its function. */
  #meanSloMs = 0;
  #called = 0;
  /** For starts that lack some layers, and for those that lack all. */
  readonly #longer = new Float64Array(2).fill(1);
  /**
   * What loads that found nothing took, and the cost of what was evicted for them, older ones counting less. Over all
   * GPUs, since any of them may be next.
   */
  #lostMs = 0;
  #takenBytes = 0;

  constructor(gpuCount: number, links: LinkLanes) {
    this.#links = links;
    this.#price = new Float64Array(gpuCount);
  }

  /**
   * What a load that a call waited for tells, by when the call was predicted to end after its arrival. One that its own link
   * alone would bring too late tells when that of a suffix in its place would have ended: otherwise nothing would be learnt
   * where only whole functions go, and they would go for ever. An SLO with room for less than one other load tells of the
   * links as well: such a load is late whenever another is before it.
   */
  loadWas(endMs: number, { ways, overlapPrefix }: GpuOffer, prefix: number, sloMs: number): void {
    const { coldMs, transfers } = ways[ways.length - 1]!;
    const { ms } = transfers[0];
    if (needsHelp(ways, prefix, sloMs)) {
      this.#helpedShare = this.#helpedShare * helpedKept + (endMs > sloMs ? 0 : 1 - helpedKept);
      this.version++;
    }
    const isTooLong = prefix < overlapPrefix && coldMs[prefix]! > sloMs;
    const judgedPrefix = isTooLong ? overlapPrefix : prefix;
    if (ms[0]! <= 0) return;
    // Each load is before others, whether it tells of the links or not.
    const before = this.#wholeMs === 0 ? 0 : kept;
    this.#missingMs = this.#missingMs * before + ms[prefix]! * (1 - before);
    this.#wholeMs = this.#wholeMs * before + ms[0]! * (1 - before);
    if (coldMs[judgedPrefix]! > sloMs) return;
    const isLate = (isTooLong ? endMs - ways[0].coldMs[prefix]! + coldMs[judgedPrefix]! : endMs) > sloMs;
    const load =
      this.#load +
      loadStep * ((isLate ? 1 : 0) - this.#lateChance(roomFor(sloMs - coldMs[judgedPrefix]!, this.#missingMs)));
    this.#load = Math.min(Math.max(load, loadMin), loadMax);
    this.#logLoad = Math.log(this.#load);
    this.version++;
  }

  /** A call has arrived, of a function with this SLO. */
  called(sloMs: number): void {
    if (this.#called < calls) this.#called++;
    this.#meanSloMs += (Math.min(sloMs, sloMsMax) - this.#meanSloMs) / this.#called;
  }

  /** What a missed SLO costs. */
  get missMs(): number {
    return missFactor * this.#meanSloMs;
  }

  /** A load that finds nothing takes so many bytes, and what goes for them costs so many milliseconds. */
  lost(ms: number, takenBytes: number): void {
    this.#lostMs = this.#lostMs * kept + ms;
    this.#takenBytes = this.#takenBytes * kept + takenBytes;
  }

  /** The expected cost of evictions for such a load of so many bytes. */
  lossMs(bytes: number): number {
    return this.#takenBytes === 0 ? 0 : (bytes * this.#lostMs) / this.#takenBytes;
  }

  /** How long a start with all or some layers missing was expected to take, and took. */
  tookMs(isCold: boolean, expectedMs: number, actualMs: number): void {
    if (!(expectedMs > 0)) return;
    const ratio = Math.min(actualMs / expectedMs, ratioMax);
    const longer = this.longer(isCold) * (1 + learning * (ratio - 1));
    this.#longer[isCold ? 1 : 0] = Math.min(Math.max(longer, 1), ratioMax);
  }

  /** How much longer such a start takes than predicted, because of calls that come later. */
  longer(isCold: boolean): number {
    return this.#longer[isCold ? 1 : 0]!;
  }

  /** Brings the price of a GPU's link up to date, and returns it. */
  now(gpu: Given<GpuId>, { ways }: GpuOffer, nowMs: number): number {
    return (this.#price[gpu] = this.#links.price(ways, nowMs));
  }

  /**
   * The cost of a start that finds this prefix and loads the rest, if all functions were kept like that. The start may
   * be late, and is certainly late if it takes too long even on idle links. Where it takes too long on the GPU's own link
   * and not on those that it can borrow, it is as often late as such starts were.
   */
  lateMs({ ways, prefixBytes }: GpuOffer, prefix: number, sloMs: number): number {
    if (prefix === prefixBytes.length - 1) return 0;
    const { coldMs, transfers } = ways[ways.length - 1]!;
    const { ms } = transfers[0];
    const loadMs = ms[0]! <= 0 ? 0 : (this.#wholeMs * ms[prefix]!) / ms[0]!;
    const aloneMs = coldMs[prefix]!;
    const aloneChance = aloneMs > sloMs ? 1 : loadMs <= 0 ? 0 : this.#lateChance(roomFor(sloMs - aloneMs, loadMs));
    const chance = needsHelp(ways, prefix, sloMs) ? 1 - this.#helpedShare : aloneChance;
    return chance * this.missMs;
  }

  /**
   * The cost of each millisecond on the link, including the load's own time. Others wait for the link, but most of that
   * wait is hidden too.
   */
  linkPrice(gpu: Given<GpuId>): number {
    return 1 + shownShare * this.#price[gpu]!;
  }

  /** The chance that a queue with room for so many loads is full at the current demand. */
  #lateChance(capacity: number): number {
    const load = this.#load;
    return Math.abs(load - 1) < 1e-6 ? 1 / (capacity + 1) : (load - 1) / (load - Math.exp(-capacity * this.#logLoad));
  }
}

/** How many loads fit into the SLO: its own, and those before it for which it leaves time. */
const roomFor = (leftMs: number, loadMs: number): number => 1 + leftMs / loadMs;

/** Whether a start that finds this prefix is in time on idle links of other GPUs, and late on its own alone. */
const needsHelp = (ways: GpuOffer['ways'], prefix: number, sloMs: number): boolean =>
  ways[ways.length - 1]!.coldMs[prefix]! > sloMs && ways[0].coldMs[prefix]! <= sloMs;

/**
 * What being late costs starts of a function that find nothing of its own, or what a trim leaves, as long as the version holds: the
 * mean SLO may be a little older.
 */
interface LateCosts {
  version: number;
  sloMs: number;
  nothingMs: number;
  hidingMs: number;
}

/**
 * What a function on one GPU is expected to lose at its next use for each byte that goes of it, by its offer there, its
 * prefix and its SLO.
 */
export class MissCost {
  /** The cost of each byte that is there, and of each behind the hiding prefix; Infinity where none can go. */
  whole = NaN;
  suffix = NaN;
  readonly #pressure: Pressure;
  readonly #gpu: Given<GpuId>;
  readonly #known = new WeakMap<GpuOffer, LateCosts>();
  /** Most functions have the offer of the one before. */
  #latestOffer: GpuOffer | undefined;
  #latestCosts: LateCosts = { version: NaN, sloMs: NaN, nothingMs: NaN, hidingMs: NaN };

  constructor(pressure: Pressure, gpu: Given<GpuId>) {
    this.#pressure = pressure;
    this.#gpu = gpu;
  }

  /**
   * Finds both for a function of which so many layers are there; those that it shares stay.
   *
   * @param restoreMs what it costs beside the load to have anything again that goes
   */
  look(offer: GpuOffer, prefix: number, sloMs: number, hasSuffix: boolean, restoreMs: number): void {
    const { ways, warmMs, prefixBytes, shared } = offer;
    const low = shared?.layers ?? 0;
    const { coldMs, transfers } = ways[ways.length - 1]!;
    const { ms } = transfers[0];
    const price = this.#pressure.linkPrice(this.#gpu);
    const costs = this.#lateCosts(offer, sloMs);
    const hereMs = this.#lateMs(costs, offer, prefix, sloMs);
    const bytes = prefixBytes[prefix]!;
    const wholeLinkMs = Math.max(0, ms[low]! - ms[prefix]!) * price;
    const ownBytes = low === 0 ? bytes : bytes - prefixBytes[low]!;
    this.whole = (wholeLinkMs + coldMs[low]! - warmMs + Math.max(0, costs.nothingMs - hereMs) + restoreMs) / ownBytes;
    this.suffix = Infinity;
    if (!hasSuffix) return;
    const left = trimmedPrefix(offer);
    const linkMs = Math.max(0, ms[left]! - ms[prefix]!) * price;
    this.suffix = (linkMs + Math.max(0, costs.hidingMs - hereMs) + restoreMs) / (bytes - prefixBytes[left]!);
  }

  #lateMs({ hidingMs }: LateCosts, offer: GpuOffer, prefix: number, sloMs: number): number {
    if (prefix === wholePrefix(offer)) return 0;
    return prefix === trimmedPrefix(offer) ? hidingMs : this.#pressure.lateMs(offer, prefix, sloMs);
  }

  #lateCosts(offer: GpuOffer, sloMs: number): LateCosts {
    let costs = this.#latestCosts;
    if (offer !== this.#latestOffer) {
      costs = this.#known.get(offer) ?? { version: NaN, sloMs, nothingMs: NaN, hidingMs: NaN };
      this.#known.set(offer, costs);
      this.#latestOffer = offer;
      this.#latestCosts = costs;
    }
    const { version } = this.#pressure;
    if (costs.version !== version || costs.sloMs !== sloMs) {
      costs.version = version;
      costs.sloMs = sloMs;
      costs.nothingMs = this.#pressure.lateMs(offer, offer.shared?.layers ?? 0, sloMs);
      costs.hidingMs = this.#pressure.lateMs(offer, trimmedPrefix(offer), sloMs);
    }
    return costs;
  }
}
