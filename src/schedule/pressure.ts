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
/** What one load that came too late, or did not, changes in how loaded the links are taken to be. */
const loadStep = 0.05;
/** Where that begins, and between what it stays; 1 is what the links can carry. */
const loadAtFirst = 0.3;
const loadMin = 0.05;
const loadMax = 8;

/** An SLO beyond it counts as this. */
const sloMsMax = 10_000;

/**
 * What a start that lacks layers costs beside its own loading: the chance that its load comes too late, and the delay
 * that it is to the loads of others.
 *
 * The chance is that of a full queue (M/M/1/K), where K loads are as long as the SLO leaves time. A machine that trims
 * functions carries the same bytes as one that drops them whole, in more and shorter loads. Below what the links can
 * carry, few of the short loads are late; beyond it, as many as of the long ones, and there are more of them. So how
 * many loads are late now tells how loaded the links are, and that tells how many would be late either way.
 */
export class Pressure {
  readonly #links: LinkLanes;
  /**
   * What is asked of the links over what they can carry. One figure for all GPUs: if one trims while its neighbour drops
   * whole functions, it is home to more functions, and gets more calls than it can load for.
   */
  #load = loadAtFirst;
  /** What `lateMs` says holds as long as this is the same. */
  version = 0;
  /** Its logarithm: a power would take seven times as long as the exponential of a product. */
  #logLoad = Math.log(loadAtFirst);
  /** Mean link time of the loads, and of what they would be with every layer missing. */
  #missingMs = 0;
  #wholeMs = 0;
  readonly #price: Float64Array;
  /** Of starts that lack some layers, and of those that lack all. */
  readonly #longer = new Float64Array(2).fill(1);
  /** What loads took, and what went for it, older ones counting less; on all GPUs, as whoever is next may be any. */
  #lostMs = 0;
  #takenBytes = 0;

  constructor(gpuCount: number, links: LinkLanes) {
    this.#links = links;
    this.#price = new Float64Array(gpuCount);
  }

  /**
   * A load that somebody waited for could be in time for the SLO, or not. Where the SLO leaves no room for other loads
   * before it, that says more of the SLO than of the link.
   */
  loadWas(isLate: boolean, { ways, warmMs }: GpuOffer, prefix: number, sloMs: number): void {
    const { ms } = ways[ways.length - 1]!.transfers[0];
    const slackMs = sloMs - warmMs;
    if (slackMs < 2 * ms[0]! || ms[0]! <= 0) return;
    const before = this.#wholeMs === 0 ? 0 : kept;
    this.#missingMs = this.#missingMs * before + ms[prefix]! * (1 - before);
    this.#wholeMs = this.#wholeMs * before + ms[0]! * (1 - before);
    const load = this.#load + loadStep * ((isLate ? 1 : 0) - this.#lateChance(slackMs / this.#missingMs));
    this.#load = Math.min(Math.max(load, loadMin), loadMax);
    this.#logLoad = Math.log(this.#load);
    this.version++;
  }

  /** A load takes so many bytes, and what goes for them costs so many milliseconds. */
  lost(ms: number, takenBytes: number): void {
    this.#lostMs = this.#lostMs * kept + ms;
    this.#takenBytes = this.#takenBytes * kept + takenBytes;
  }

  /** What is expected to be lost for a load that takes so many bytes. */
  lossMs(bytes: number): number {
    return this.#takenBytes === 0 ? 0 : (bytes * this.#lostMs) / this.#takenBytes;
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

  /**
   * What it costs that a start finds so many layers and loads the others, where all functions are kept like that: it
   * may be late, and is if it takes too long even on an idle link.
   */
  lateMs({ ways, warmMs, prefixBytes }: GpuOffer, prefix: number, sloMs: number): number {
    if (prefix === prefixBytes.length - 1) return 0;
    const { coldMs, transfers } = ways[ways.length - 1]!;
    const { ms } = transfers[0];
    const loadMs = ms[0]! <= 0 ? 0 : (this.#wholeMs * ms[prefix]!) / ms[0]!;
    const chance = coldMs[prefix]! > sloMs ? 1 : loadMs <= 0 ? 0 : this.#lateChance((sloMs - warmMs) / loadMs);
    return chance * missCost * Math.min(sloMs, sloMsMax);
  }

  /**
   * What each millisecond on the link costs, its own included. Others wait for the link, but most of that is hidden
   * too.
   */
  linkPrice(gpu: number): number {
    return 1 + shownShare * this.#price[gpu]!;
  }

  /** That a queue with room for so many loads is full, when so much is asked of it as of the links. */
  #lateChance(room: number): number {
    const load = this.#load;
    return Math.abs(load - 1) < 1e-6 ? 1 / (room + 1) : (load - 1) / (load - Math.exp(-room * this.#logLoad));
  }
}
