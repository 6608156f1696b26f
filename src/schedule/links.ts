import type { Given, GpuId } from './ids.ts';
import type { LoadOption } from './offer.ts';
import type { SchedulerGpu } from './types.ts';
import { tuning } from './tuning.ts';

const { againShare, busyMax, leastLeft, smoothingMs } = tuning.links;

/** Before the growth of the smoothing is beyond what a number holds. */
const growthMsMax = 500 * smoothingMs;

/**
 * PCIe links as lanes: which of them carry a load, and until when as far as is known. Links of one switch share its
 * path to host memory, so a link is slower while its neighbours are busy.
 *
 * NaN wherever fractions come later: V8 would compile all that uses an object whose field changes from integer to double
 * once more.
 */
export class LinkLanes {
  readonly #loads: Int32Array;
  readonly #freeMs: Float64Array;
  /** By link: the load option of the latest load. */
  readonly #ways: (LoadOption | undefined)[] = [];
  readonly #isUp: boolean[];
  /**
   * By link: of the share of the time that it is busy, smoothed, how far that is from what it tends to (1 while it is
   * busy, else 0), times `#growth` at the same instant. That product stays as it is until it becomes busy or idle.
   */
  readonly #apart: Float64Array;
  /** How much has faded since `#growthFromMs`, as it was found last. */
  #growth = NaN;
  #growthAtMs = NaN;
  #growthFromMs = NaN;
  /** By link: how much longer it takes beyond what is ordered, and at which instant that was found. */
  readonly #later: Float64Array;
  readonly #laterMs: Float64Array;
  /** How many of the other links on its switch carry something, by link. */
  readonly #busyBeside: Int32Array;
  /** By link: how many others can be busy while this one begins to carry. */
  readonly #besideMax: readonly number[];
  /** By link: the neighbours that it may have to wait for. */
  readonly #inTurn: readonly (readonly number[])[];
  /** Links on the same switch, by link. */
  readonly #neighbours: readonly (readonly number[])[];
  /** By link and count of busy links on its switch, how much longer a transfer takes. */
  readonly #slowdowns: readonly (readonly number[])[];

  constructor(gpus: readonly SchedulerGpu[]) {
    this.#growthFromMs = 0;
    this.#loads = new Int32Array(gpus.length);
    this.#freeMs = new Float64Array(gpus.length);
    this.#busyBeside = new Int32Array(gpus.length);
    this.#isUp = gpus.map(() => true);
    this.#apart = new Float64Array(gpus.length);
    this.#later = new Float64Array(gpus.length);
    this.#laterMs = new Float64Array(gpus.length).fill(NaN);
    this.#neighbours = gpus.map((gpu, link) =>
      [...gpus.keys()].filter((other) => other !== link && gpus[other]!.switch === gpu.switch),
    );
    this.#besideMax = gpus.map(({ linkGBps, uplinkGBps }) =>
      Math.max(0, Math.ceil(uplinkGBps / linkGBps - leastLeft) - 1),
    );
    this.#inTurn = this.#neighbours.map((links, link) => (links.length > this.#besideMax[link]! ? links : []));
    this.#slowdowns = gpus.map(({ linkGBps, uplinkGBps }, link) =>
      Array.from({ length: this.#neighbours[link]!.length + 2 }, (_, busy) =>
        Math.max(1, (linkGBps * busy) / uplinkGBps),
      ),
    );
  }

  isIdle(link: Given<GpuId>): boolean {
    return this.#loads[link] === 0;
  }

  /**
   * Whether the link is idle and its switch has capacity left. Loads that share a full switch all end as late as the
   * last of them would when taken in turn.
   */
  hasRoom(link: Given<GpuId>): boolean {
    return this.#loads[link] === 0 && this.#busyBeside[link]! <= this.#besideMax[link]!;
  }

  /** When it will have carried what is ordered; in the past, or 0, where nothing is. */
  freeMs(link: Given<GpuId>): number {
    return this.#freeMs[link]!;
  }

  /** Links of its switch that may have to wait for it. */
  inTurnWith(link: Given<GpuId>): readonly number[] {
    return this.#inTurn[link]!;
  }

  /**
   * What a millisecond of a load on its GPU's own link costs the loads of others, in milliseconds. In a queue with
   * utilization u a job delays the others by u / (1 - u) times its own length.
   *
   * Where all GPUs have their lenders each of them slows its switch down alike, which is no reason to choose one. One whose
   * lenders are lost takes its switch for all that the others divide, and slows its neighbours down. It is charged for
   * these as well: for who waits there, and for who comes before that queue is empty, u / (1 - u)² in all.
   *
   * @param ways of the function on that GPU
   */
  price(ways: readonly [LoadOption, ...LoadOption[]], nowMs: number): number {
    const alone = ways[ways.length - 1]!;
    const [{ link }] = alone.transfers;
    let price = this.#priceOf(link, nowMs);
    if (ways.length === 1 || this.choose(ways, false) !== alone) return price;
    const neighbours = this.#neighbours[link]!;
    for (let index = 0; index < neighbours.length; index++) {
      const neighbour = neighbours[index]!;
      if (!this.#isUp[neighbour]!) continue;
      const besidePrice = this.#priceOf(neighbour, nowMs);
      price += besidePrice * (1 + besidePrice);
    }
    return price;
  }

  #priceOf(link: Given<GpuId>, nowMs: number): number {
    const share = Math.min(this.#busyShareAt(link, nowMs), busyMax);
    return share / (1 - share);
  }

  /** How much longer a transfer takes now because of busy neighbours. */
  slowdown(link: Given<GpuId>): number {
    return this.#slowdowns[link]![this.#busyBeside[link]! + 1]!;
  }

  /**
   * When an execution could end behind a load that is ordered once each of its links has carried `aheadMs` more, and
   * not before `fromMs`.
   */
  estimate({ coldMs, transfers }: LoadOption, prefix: number, aheadMs: number, nowMs: number, fromMs = nowMs): number {
    let readyMs = fromMs + coldMs[prefix]!;
    for (let index = 0; index < transfers.length; index++) {
      const { link, ms, tailMs } = transfers[index]!;
      const later = this.#laterSlowdown(link, nowMs);
      const leftMs = this.#leftMs(link, fromMs);
      const startMs = this.#carriedMs(link, leftMs + aheadMs, fromMs, later);
      const endMs = this.#carriedMs(link, leftMs + (aheadMs + ms[prefix]!), fromMs, later);
      readyMs = Math.max(readyMs, endMs + tailMs[prefix]!, startMs + coldMs[prefix]!);
    }
    return readyMs;
  }

  /** A GPU that is gone lends its link to nobody. */
  setUp(link: Given<GpuId>, isUp: boolean): void {
    this.#isUp[link] = isUp;
  }

  /**
   * The first option whose other links exist, and are idle if that is asked for; the last option needs no other links.
   */
  choose(ways: readonly [LoadOption, ...LoadOption[]], onlyIdle: boolean): LoadOption {
    for (const way of ways) {
      let isFree = true;
      for (let index = 1; index < way.transfers.length; index++) {
        const { link } = way.transfers[index]!;
        if (!this.#isUp[link]! || (onlyIdle && this.#loads[link] !== 0)) isFree = false;
      }
      if (isFree) return way;
    }
    return ways[ways.length - 1]!;
  }

  /** Whether all links of the option carry the same load and so become free together. */
  areTogether({ transfers }: LoadOption): boolean {
    const [{ link: own }] = transfers;
    for (let index = 1; index < transfers.length; index++) {
      const { link } = transfers[index]!;
      if (this.#loads[link] !== this.#loads[own] || this.#ways[link] !== this.#ways[own]) return false;
    }
    return true;
  }

  /** Queues a load on its links. */
  occupy(way: LoadOption, prefix: number, nowMs: number): void {
    for (const { link, ms } of way.transfers) {
      if (this.#loads[link] === 0) this.#shareAnew(link, 1, nowMs);
      this.#freeMs[link] = Math.max(nowMs, this.#freeMs[link]!) + ms[prefix]! * this.slowdown(link);
      this.#loads[link]!++;
      this.#ways[link] = way;
    }
  }

  release({ transfers }: LoadOption, nowMs: number): void {
    for (const { link } of transfers) {
      if (this.#loads[link]! > 1) {
        this.#loads[link]!--;
        continue;
      }
      this.#shareAnew(link, -1, nowMs);
      this.#loads[link] = 0;
      this.#freeMs[link] = 0;
    }
  }

  /**
   * When an execution behind a load under way can end, by the orders of now. Later orders beside it do not count: a run
   * begun for a later end would delay functions that have arrived.
   */
  readyMs({ way, prefix, soonestMs }: { way: LoadOption; prefix: number; soonestMs: number }, nowMs: number): number {
    let readyMs = soonestMs;
    for (let index = 0; index < way.transfers.length; index++) {
      const { link, bytes, tailMs } = way.transfers[index]!;
      if (bytes[prefix] === 0) continue;
      readyMs = Math.max(readyMs, this.#carriedMs(link, this.#leftMs(link, nowMs), nowMs, 1) + tailMs[prefix]!);
    }
    return readyMs;
  }

  /**
   * When a link will have carried so much from `fromMs` on. Its neighbours slow it down until they have carried their
   * orders; the rest then takes `laterSlowdown` times as long.
   */
  #carriedMs(link: Given<GpuId>, carriesMs: number, fromMs: number, laterSlowdown: number): number {
    let leftMs = carriesMs;
    if (this.#busyBeside[link] === 0) return fromMs + leftMs * laterSlowdown;
    const neighbours = this.#neighbours[link]!;
    const slowdowns = this.#slowdowns[link]!;
    let atMs = fromMs;
    let doneMs = 0;
    // Each round ends the shortest neighbour's orders.
    for (let round = 0; round < neighbours.length; round++) {
      let busy = 0;
      let leastMs = Infinity;
      for (let index = 0; index < neighbours.length; index++) {
        const besideMs = this.#leftMs(neighbours[index]!, fromMs) - doneMs;
        if (besideMs <= 0) continue;
        busy++;
        leastMs = Math.min(leastMs, besideMs);
      }
      if (busy === 0) break;
      const carriedMs = Math.min(leftMs, leastMs);
      atMs += carriedMs * slowdowns[busy + 1]!;
      leftMs -= carriedMs;
      if (leftMs <= 0) return atMs;
      doneMs += carriedMs;
    }
    return atMs + leftMs * laterSlowdown;
  }

  /** How much longer a link takes beyond the ordered loads, if its neighbours stay as busy as they were recently. */
  #laterSlowdown(link: Given<GpuId>, nowMs: number): number {
    if (this.#laterMs[link] === nowMs) return this.#later[link]!;
    const neighbours = this.#neighbours[link]!;
    const slowdowns = this.#slowdowns[link]!;
    let share = 0;
    for (let index = 0; index < neighbours.length; index++)
      share += this.#busyShareAt(neighbours[index]!, nowMs) * againShare;
    const few = Math.floor(share);
    const more = slowdowns[few + 2] ?? slowdowns[few + 1]!;
    this.#laterMs[link] = nowMs;
    return (this.#later[link] = slowdowns[few + 1]! + (share - few) * (more - slowdowns[few + 1]!));
  }

  /** Time left of a link's orders, with the switch to itself. */
  #leftMs(link: Given<GpuId>, nowMs: number): number {
    const leftMs = this.#freeMs[link]! - nowMs;
    return leftMs <= 0 ? 0 : leftMs / this.slowdown(link);
  }

  /**
   * A link becomes busy or idle. What its neighbours carry takes longer, or less long, from now on: one link more or
   * less on the switch is busy.
   */
  #shareAnew(link: Given<GpuId>, by: 1 | -1, nowMs: number): void {
    this.#apart[link] = this.#growthNow(nowMs) - this.#apart[link]!;
    const neighbours = this.#neighbours[link]!;
    for (let index = 0; index < neighbours.length; index++) {
      const neighbour = neighbours[index]!;
      const before = this.#busyBeside[neighbour]! + 1;
      this.#busyBeside[neighbour]! += by;
      const leftMs = this.#freeMs[neighbour]! - nowMs;
      if (this.#loads[neighbour] === 0 || leftMs <= 0) continue;
      const slowdowns = this.#slowdowns[neighbour]!;
      this.#freeMs[neighbour] = nowMs + (leftMs * slowdowns[before + by]!) / slowdowns[before]!;
    }
  }

  #busyShareAt(link: Given<GpuId>, nowMs: number): number {
    const apart = this.#apart[link]! / this.#growthNow(nowMs);
    return this.#loads[link]! > 0 ? 1 - apart : apart;
  }

  /** One exponential an instant, for all links. */
  #growthNow(nowMs: number): number {
    if (nowMs === this.#growthAtMs) return this.#growth;
    this.#growthAtMs = nowMs;
    if (nowMs - this.#growthFromMs > growthMsMax) {
      const faded = Math.exp((this.#growthFromMs - nowMs) / smoothingMs);
      for (let link = 0; link < this.#apart.length; link++) this.#apart[link]! *= faded;
      this.#growthFromMs = nowMs;
    }
    return (this.#growth = Math.exp((nowMs - this.#growthFromMs) / smoothingMs));
  }
}
