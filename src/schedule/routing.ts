import { laneMs as laneMsOf, wholeBytes, wholePrefix, type ColdWay, type GpuOffer, type OfferSheet } from './offer.ts';
import { state } from './invocations.ts';
import type { Slot } from './slots.ts';
import { nobody, type SchedulerState } from './state.ts';
import type { PlaceReason } from './types.ts';

/** GPUs that are weighed for a function beside those that have some of it: so many, however many there are. */
const candidatesMax = 8;
/** What a millisecond behind the SLO counts, over one before it. */
const lateShare = 0.05;
/**
 * Of the policy's bound on waiting: beyond it what is late counts in full, or else all of it would gather on one GPU.
 */
const patientShare = 0.2;

/**
 * Which GPU an invocation goes to: the one where it costs everybody least. Its cost there is its own time until the
 * answer, the delay that its load is to the loads of others, and what those lose whose layers go for it; all in
 * expected milliseconds.
 *
 * Whoever only looked for the earliest end would soon have every function everywhere, and room for few of them.
 */
export class Router {
  readonly #state: SchedulerState;
  readonly #explains: boolean;
  /** Of the latest choice: why, the end predicted there, and the next best with its own. */
  reason: PlaceReason = 'resident';
  endMs = Infinity;
  other = nobody;
  otherEndMs = Infinity;
  #bestCostMs = Infinity;
  #best = nobody;
  #invocation = nobody;
  /** Of the latest prediction: what is being loaded and may find the lane taken by it. */
  #delayedMs = 0;
  #deadlineMs = Infinity;

  /** @param explains whether the next best is wanted */
  constructor(state: SchedulerState, explains: boolean) {
    this.#state = state;
    this.#explains = explains;
  }

  /** The GPU that is to run it, or -1 when none can. @param except is not to be chosen */
  route(invocation: number, sheet: OfferSheet, nowMs: number, except: number): number {
    const { policy, gpuCount, functionOf, slots, waitsAt } = this.#state;
    const functionIndex = functionOf[invocation]!;
    this.#invocation = invocation;
    this.#deadlineMs = this.#state.deadlineMs(invocation, sheet);
    this.other = nobody;
    this.otherEndMs = Infinity;
    this.endMs = Infinity;
    if (policy.routing === 'modulo') {
      for (let step = 0; step < gpuCount; step++) {
        const gpu = (functionIndex + step) % gpuCount;
        if (gpu === except || !this.#state.canHold(functionIndex, sheet, gpu)) continue;
        this.reason = 'by-number';
        this.endMs = this.predictEnd(functionIndex, gpu, nowMs, invocation);
        return gpu;
      }
      return nobody;
    }
    this.#best = nobody;
    this.#bestCostMs = Infinity;
    let homes = 0;
    for (let word = 0; word < slots.homes.words; word++) {
      let bits = slots.homes.word(functionIndex, word) | waitsAt.word(functionIndex, word);
      while (bits !== 0) {
        const gpu = 32 * word + 31 - Math.clz32(bits & -bits);
        bits &= bits - 1;
        if (gpu === except || !this.#state.canHold(functionIndex, sheet, gpu)) continue;
        homes++;
        this.#weigh(functionIndex, gpu, nowMs, true);
      }
    }
    const home = this.#best;
    if (home !== nobody && (policy.copies === 'never' || this.endMs <= nowMs + this.#leastMs(functionIndex, home))) {
      this.reason = 'resident';
      return home;
    }
    // Each function begins somewhere else, so that ties spread.
    const count = Math.min(gpuCount, candidatesMax);
    const step = gpuCount <= candidatesMax ? 1 : Math.floor(gpuCount / candidatesMax);
    for (let candidate = 0; candidate < count; candidate++) {
      if (!this.#explains && this.#isBeaten(functionIndex, nowMs)) break;
      this.#weighOther(functionIndex, sheet, (functionIndex + candidate * step) % gpuCount, nowMs, except);
    }
    if (this.#best === nobody && count < gpuCount) {
      for (let gpu = 0; gpu < gpuCount; gpu++) this.#weighOther(functionIndex, sheet, gpu, nowMs, except);
    }
    this.reason = this.#best === home ? 'resident' : homes > 0 ? 'copy' : 'room';
    return this.#best;
  }

  /**
   * When an invocation that joined this GPU now, or waits there, would end: what runs and waits before it, links, loads and their room
   * included.
   */
  predictEnd(functionIndex: number, gpu: number, nowMs: number, invocation = nobody): number {
    const { policy, links, lines, slots } = this.#state;
    const line = lines[gpu]!;
    const slot = slots.at(functionIndex, gpu);
    const offer = this.#state.offerAt(functionIndex, gpu, slot);
    const laneMs = this.#laneFreeMs(gpu, nowMs);
    const load = slot?.load;
    const prefix = slot === undefined ? 0 : slot.prefix;
    const entry = slot === undefined ? nobody : slot.entry;
    if (line.count === 0 && load === undefined && prefix === wholePrefix(offer)) return laneMs + offer.warmMs;
    // One that waits here already is not before itself.
    const own = this.#waitsAt(gpu, invocation) ? 1 : 0;
    const isRunnable = load === undefined && prefix === wholePrefix(offer);
    const aheadMs = this.#aheadMs(slot, gpu, laneMs, nowMs, invocation);
    const readyMs = isRunnable ? aheadMs - own * offer.warmMs : aheadMs;
    const diskMs = this.#state.host.missingMs(functionIndex, nowMs);
    let endMs: number;
    if (load !== undefined) {
      const before = entry < 0 ? 0 : line.onTimeCount(entry) - own;
      endMs = Math.max(laneMs + readyMs + offer.warmMs, links.readyMs(load, nowMs) + laneMsOf(offer, before));
    } else if (prefix === wholePrefix(offer)) {
      endMs = laneMs + readyMs + offer.warmMs;
      // In order of arrival it is behind the loads as well.
      if (policy.order === 'fifo') endMs += line.loadableMs + line.linkMs * links.slowdown(gpu);
    } else {
      const way = links.choose(offer.ways, policy.borrow === 'when-idle');
      if (!policy.loadAhead) {
        const startMs = laneMs + readyMs + line.loadableMs + line.linkMs * links.slowdown(gpu);
        const kept = slot === undefined ? 0 : this.#state.keptPrefix(slot);
        return links.estimate(way, kept, 0, nowMs, Math.max(startMs, nowMs + diskMs));
      }
      // What is there of a former plan goes when its run is over.
      const isStale = slot !== undefined && this.#state.isStale(slot);
      const fromMs = Math.max(isStale ? laneMs : nowMs, nowMs + diskMs);
      const loadedMs = this.#loadedMs(offer, gpu, way, isStale ? 0 : prefix, entry, nowMs, fromMs);
      const before = entry < 0 ? 0 : line.onTimeCount(entry) - own;
      endMs = Math.max(loadedMs + laneMsOf(offer, before), laneMs + readyMs + line.loadableMs + offer.warmMs);
    }
    return prefix === wholePrefix(offer) ? endMs : nowMs + (endMs - nowMs) * this.#state.pressure.longer(prefix === 0);
  }

  #waitsAt(gpu: number, invocation: number): boolean {
    const { invocationState, gpuOf, lines } = this.#state;
    if (invocation === nobody || invocationState[invocation] !== state.waiting || gpuOf[invocation] !== gpu)
      return false;
    return !lines[gpu]!.isLate(invocation);
  }

  /** Of a predicted end, when it would be if nothing came in its way that is not known yet. */
  soonestMs(functionIndex: number, gpu: number, endMs: number, nowMs: number): number {
    // Where nothing is loaded ahead, nothing is added either.
    if (!this.#state.policy.loadAhead || this.#state.isResidentAt(functionIndex, gpu)) return endMs;
    const isCold = (this.#state.slots.at(functionIndex, gpu)?.prefix ?? 0) === 0;
    return nowMs + (endMs - nowMs) / this.#state.pressure.longer(isCold);
  }

  /** When a load that is ordered behind those that wait for the link will be there. @param entry of its function */
  #loadedMs(
    { ways }: GpuOffer,
    gpu: number,
    way: ColdWay,
    prefix: number,
    entry: number,
    nowMs: number,
    fromMs: number,
  ): number {
    const { links, lines } = this.#state;
    // The others of the function that wait are of the same load.
    const ownMs = entry < 0 ? 0 : lines[gpu]!.linkMsOf(entry);
    let aheadMs = Math.max(0, lines[gpu]!.linkMs - ownMs);
    for (const waiting of links.inTurnWith(gpu)) aheadMs += lines[waiting]!.linkMs;
    const [shared] = ways;
    const alone = ways[ways.length - 1]!;
    const { transfers } = shared;
    if (transfers.length === 1) return links.estimate(alone, prefix, aheadMs, nowMs, fromMs);
    // Loads that take links together wait for each other, whichever GPU each of them is for.
    let pooledMs = -ownMs;
    for (let index = 0; index < transfers.length; index++) pooledMs += lines[transfers[index]!.link]!.linkMs;
    if (pooledMs <= 0 && way === shared) return links.estimate(shared, prefix, 0, nowMs, fromMs);
    const togetherMs = links.estimate(shared, prefix, Math.max(0, pooledMs / transfers.length), nowMs, fromMs);
    if (links.areTogether(shared)) return togetherMs;
    return Math.min(togetherMs, links.estimate(alone, prefix, aheadMs, nowMs, fromMs));
  }

  /** When what runs there ends, the load that it may be waiting for included. */
  #laneFreeMs(gpu: number, nowMs: number): number {
    const { running, laneEndMs, functionOf, links, slots } = this.#state;
    const runs = running[gpu]!;
    if (runs === nobody) return nowMs;
    const load = slots.at(functionOf[runs]!, gpu)?.load;
    return Math.max(nowMs, laneEndMs[gpu]!, load === undefined ? 0 : links.readyMs(load, nowMs));
  }

  /**
   * Lane milliseconds that one who joins has before it: what can run when the lane is free, at that instant, or by its
   * turn.
   */
  #aheadMs(slot: Slot | undefined, gpu: number, laneMs: number, nowMs: number, invocation: number): number {
    const line = this.#state.lines[gpu]!;
    if (line.count === 0) return 0;
    let aheadMs = line.runnableMs;
    let key = Infinity;
    if (!this.#state.isUniform && invocation !== nobody && this.#state.policy.order !== 'fifo') {
      const sheet = this.#state.sheets[this.#state.functionOf[invocation]!]!;
      key = line.keyFor(this.#state.priorityOf(invocation, sheet), this.#state.deadlineMs(invocation, sheet));
      aheadMs = line.runnableMsBefore(key);
    }
    for (const entry of line.loading) {
      const head = line.head(entry);
      const other = line.slotOf(entry);
      const { load } = other;
      // Its own load is counted by itself.
      if (other === slot || head === nobody || load === undefined || line.keyOf(head) > key) continue;
      const offer = this.#state.offerOf(other);
      const ms = laneMsOf(offer, line.onTimeCount(entry));
      if (this.#state.links.readyMs(load, nowMs) - offer.warmMs <= laneMs + aheadMs) aheadMs += ms;
      else this.#delayedMs += ms;
    }
    return aheadMs;
  }

  /**
   * Behind all that waits there. To be later costs little at first: what it takes the place of would be late instead.
   */
  #lateMs(gpu: number): number {
    const { runnableMs, loadableMs, lateMs } = this.#state.lines[gpu]!;
    const backlogMs = runnableMs + loadableMs + lateMs;
    return backlogMs * lateShare + Math.max(0, backlogMs - patientShare * this.#state.policy.waitBoundMs);
  }

  /** What an answer takes there when nothing is in its way. */
  #leastMs(functionIndex: number, gpu: number): number {
    return this.#state.offerAt(functionIndex, gpu).warmMs;
  }

  #weighOther(functionIndex: number, sheet: OfferSheet, gpu: number, nowMs: number, except: number): void {
    const { slots, waitsAt } = this.#state;
    const isHome =
      ((slots.homes.word(functionIndex, gpu >> 5) | waitsAt.word(functionIndex, gpu >> 5)) >> (gpu & 31)) & 1;
    if (isHome === 1 || gpu === except || !this.#state.canHold(functionIndex, sheet, gpu)) return;
    this.#weigh(functionIndex, gpu, nowMs, false);
  }

  /**
   * Whether it would cost no less than at the best place so far on any GPU that has nothing of it, even with all lanes
   * and links idle: all of it would have to come.
   */
  #isBeaten(functionIndex: number, nowMs: number): boolean {
    const loadedMs = nowMs + this.#state.leastColdMs(functionIndex);
    // In the very steps of the prediction, so that no rounding comes between.
    const leastMs = nowMs + (loadedMs - nowMs) * this.#state.pressure.longer(true);
    return Math.min(leastMs, this.#deadlineMs) - nowMs >= this.#bestCostMs;
  }

  #weigh(functionIndex: number, gpu: number, nowMs: number, isHome: boolean): void {
    this.#delayedMs = 0;
    const endMs = this.predictEnd(functionIndex, gpu, nowMs, this.#invocation);
    const ownMs =
      this.#delayedMs + (endMs <= this.#deadlineMs ? endMs - nowMs : this.#deadlineMs - nowMs + this.#lateMs(gpu));
    const costMs = isHome || ownMs >= this.#bestCostMs ? ownMs : ownMs + this.#othersMs(functionIndex, gpu, nowMs);
    if (costMs < this.#bestCostMs) {
      if (this.#best !== nobody) {
        this.other = this.#best;
        this.otherEndMs = this.endMs;
      }
      this.#best = gpu;
      this.#bestCostMs = costMs;
      this.endMs = endMs;
    } else if (endMs < this.otherEndMs) {
      this.other = gpu;
      this.otherEndMs = endMs;
    }
  }

  /** What others lose when the function is loaded here: the delay of their loads, and their layers. */
  #othersMs(functionIndex: number, gpu: number, nowMs: number): number {
    const { memories, pressure, slots } = this.#state;
    const slot = slots.at(functionIndex, gpu);
    const offer: GpuOffer = this.#state.offerAt(functionIndex, gpu, slot);
    const neededBytes = wholeBytes(offer) - (slot === undefined ? 0 : slot.bytes);
    const linkMs = offer.ways[offer.ways.length - 1]!.transfers[0].ms[slot === undefined ? 0 : slot.prefix]!;
    return linkMs * pressure.now(gpu, nowMs) + memories[gpu]!.lossMs(neededBytes);
  }
}
