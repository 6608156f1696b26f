import {
  laneMs as laneMsOf,
  wholeBytes,
  wholePrefix,
  type LoadOption,
  type GpuOffer,
  type OfferSheet,
} from './offer.ts';
import { state } from './invocations.ts';
import { absent, type Slot } from './slots.ts';
import { nobody, type SchedulerState } from './state.ts';
import type { PlaceReason } from './types.ts';
import { tuning } from './tuning.ts';

const { candidatesMax, lateShare, leastBusy, patientShare } = tuning.routing;

/** Where an invocation is to run, and why. */
export interface Route {
  /** -1 when no GPU can run it. */
  readonly gpu: number;
  readonly reason: PlaceReason;
  /** When it would end there; Infinity where no GPU can run it. */
  readonly endMs: number;
  /** The next best GPU, or -1, and when it would end there. */
  readonly other: number;
  readonly otherEndMs: number;
}

export const nowhere: Route = { gpu: nobody, reason: 'only', endMs: Infinity, other: nobody, otherEndMs: Infinity };

/**
 * Chooses the GPU where an invocation costs least in total: its own time until the answer, the delay that its load is
 * to other loads, and the cost of the layers that are evicted for it; all in expected milliseconds.
 *
 * A router that only looked for the earliest end would soon have every function everywhere, and room for few of them.
 */
export class Router {
  readonly #state: SchedulerState;
  readonly #explains: boolean;
  /** Reused for each choice. */
  readonly #route: { -readonly [Field in keyof Route]: Route[Field] } = { ...nowhere };
  #bestCostMs = Infinity;
  #invocation = nobody;
  /** In the latest prediction: delay of loads under way that may find the lane taken. */
  #delayedMs = 0;
  #deadlineMs = Infinity;

  /** @param explains whether to find the next best too */
  constructor(state: SchedulerState, explains: boolean) {
    this.#state = state;
    this.#explains = explains;
  }

  /** Where it is to run; the result holds until the next call. @param except is not to be chosen */
  route(invocation: number, sheet: OfferSheet, nowMs: number, except: number): Route {
    const { policy, gpuCount, functionOf, slots } = this.#state;
    const functionIndex = functionOf[invocation]!;
    this.#invocation = invocation;
    this.#deadlineMs = this.#state.deadlineMs(invocation, sheet);
    const route = this.#route;
    route.gpu = nobody;
    route.endMs = Infinity;
    route.other = nobody;
    route.otherEndMs = Infinity;
    if (policy.routing === 'modulo') {
      for (let step = 0; step < gpuCount; step++) {
        const gpu = (functionIndex + step) % gpuCount;
        if (gpu === except || !this.#state.canHold(functionIndex, sheet, gpu)) continue;
        route.reason = 'by-number';
        route.endMs = this.predictEnd(functionIndex, gpu, nowMs, invocation);
        route.gpu = gpu;
        break;
      }
      return route;
    }
    this.#bestCostMs = Infinity;
    const isLarge = gpuCount > candidatesMax;
    let homes = 0;
    for (let slot = slots.first(functionIndex); slot !== undefined; slot = slot.next) {
      const { gpu } = slot;
      if (!slot.isHome || gpu === except || !this.#state.canHold(functionIndex, sheet, gpu)) continue;
      homes++;
      this.#weigh(functionIndex, gpu, slot, nowMs);
      // A function that is busy on many GPUs finds an idle one soon, and none is better.
      if (!this.#explains && isLarge && this.#bestCostMs <= this.#state.leastWarmMs(functionIndex)) break;
    }
    const home = route.gpu;
    route.reason = 'resident';
    if (home !== nobody && (policy.copies === 'never' || route.endMs <= nowMs + this.#leastMs(functionIndex, home))) {
      return route;
    }
    // Each function starts at another GPU, so that ties spread.
    const count = Math.min(gpuCount, candidatesMax);
    const step = gpuCount <= candidatesMax ? 1 : Math.floor(gpuCount / candidatesMax);
    for (let candidate = 0; candidate < count; candidate++) {
      if (!this.#explains && this.#isBeaten(functionIndex, nowMs)) break;
      this.#weighOther(functionIndex, sheet, (functionIndex + candidate * step) % gpuCount, nowMs, except);
    }
    if (count < gpuCount) this.#weighFurther(functionIndex, sheet, nowMs, except);
    if (route.gpu !== home) route.reason = homes > 0 ? 'copy' : 'room';
    return route;
  }

  /**
   * When an invocation that joined this GPU now, or waits there, would end. Counts the run under way, the invocations
   * before it, links, loads and their room.
   */
  predictEnd(
    functionIndex: number,
    gpu: number,
    nowMs: number,
    invocation = nobody,
    slot = this.#state.slotAt(functionIndex, gpu),
  ): number {
    const { policy, links, lines } = this.#state;
    const line = lines[gpu]!;
    const offer = this.#state.offerAt(functionIndex, gpu, slot);
    const laneMs = this.#laneFreeMs(gpu, nowMs);
    const { load, prefix, entry } = slot;
    if (line.count === 0 && load === undefined && prefix === wholePrefix(offer)) return laneMs + offer.warmMs;
    // An invocation that already waits here is not ahead of itself.
    const own = this.#waitsAt(gpu, invocation) ? 1 : 0;
    const isRunnable = load === undefined && prefix === wholePrefix(offer);
    const aheadMs = this.#aheadMs(slot, gpu, laneMs, nowMs, invocation);
    const readyMs = isRunnable ? aheadMs - own * offer.warmMs : aheadMs;
    const diskMs = this.#state.host?.missingMs(functionIndex, nowMs) ?? 0;
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
        return links.estimate(way, this.#state.keptPrefix(slot), 0, nowMs, Math.max(startMs, nowMs + diskMs));
      }
      // What is there of a former plan goes when its run is over.
      const isStale = this.#state.isStale(slot);
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

  /** For a predicted end: when it would be if no unknown later call got in the way. */
  soonestMs(functionIndex: number, gpu: number, endMs: number, nowMs: number): number {
    // Where nothing is loaded ahead, nothing is added either.
    if (!this.#state.policy.loadAhead || this.#state.isResidentAt(functionIndex, gpu)) return endMs;
    const isCold = this.#state.slotAt(functionIndex, gpu).prefix === 0;
    return nowMs + (endMs - nowMs) / this.#state.pressure.longer(isCold);
  }

  /** When a load would arrive that is ordered behind those waiting for the link. @param entry of its function */
  #loadedMs(
    { ways }: GpuOffer,
    gpu: number,
    way: LoadOption,
    prefix: number,
    entry: number,
    nowMs: number,
    fromMs: number,
  ): number {
    const { links, lines } = this.#state;
    // The function's other waiting calls share the same load.
    const ownMs = entry < 0 ? 0 : lines[gpu]!.linkMsOf(entry);
    let aheadMs = Math.max(0, lines[gpu]!.linkMs - ownMs);
    for (const waiting of links.inTurnWith(gpu)) aheadMs += lines[waiting]!.linkMs;
    const [shared] = ways;
    const alone = ways[ways.length - 1]!;
    const { transfers } = shared;
    if (transfers.length === 1) return links.estimate(alone, prefix, aheadMs, nowMs, fromMs);
    // Loads that borrow each other's links wait for each other, whichever GPU each of them is for.
    let pooledMs = -ownMs;
    for (let index = 0; index < transfers.length; index++) pooledMs += lines[transfers[index]!.link]!.linkMs;
    if (pooledMs <= 0 && way === shared) return links.estimate(shared, prefix, 0, nowMs, fromMs);
    const togetherMs = links.estimate(shared, prefix, Math.max(0, pooledMs / transfers.length), nowMs, fromMs);
    if (links.areTogether(shared)) return togetherMs;
    return Math.min(togetherMs, links.estimate(alone, prefix, aheadMs, nowMs, fromMs));
  }

  /** When the run there ends, including the load that it may be waiting for. */
  #laneFreeMs(gpu: number, nowMs: number): number {
    const { running, laneEndMs, functionOf, links, loads } = this.#state;
    const runs = running[gpu]!;
    if (runs === nobody) return nowMs;
    let endMs = Math.max(nowMs, laneEndMs[gpu]!);
    for (const load of loads[gpu]!)
      if (load.functionIndex === functionOf[runs]) endMs = Math.max(endMs, links.readyMs(load, nowMs));
    return endMs;
  }

  /**
   * Lane milliseconds ahead of a joining call: calls that can run when the lane is free, at that instant, or by its
   * turn.
   */
  #aheadMs(slot: Readonly<Slot>, gpu: number, laneMs: number, nowMs: number, invocation: number): number {
    const { isUniform, lines, policy } = this.#state;
    const line = lines[gpu]!;
    if (line.count === 0) return 0;
    let aheadMs = line.runnableMs;
    let key = Infinity;
    const sheet = invocation === nobody ? undefined : this.#state.sheets[this.#state.functionOf[invocation]!];
    // Calls of equal SLOs are behind all that wait, but for their functions' shares of the lane. What is refused by the
    // prediction has to know them, or else one function's overload would have the others' calls refused.
    if (sheet !== undefined && policy.order !== 'fifo' && (!isUniform || this.#state.sheds(sheet))) {
      key = line.keyFor(this.#state.priorityOf(invocation, sheet), this.#state.deadlineMs(invocation, sheet));
      aheadMs = line.runnableMsBefore(key, slot.entry);
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
   * The cost of being behind all that waits there. It is small at first: if this call went sooner, another would be
   * late instead.
   */
  #lateMs(gpu: number): number {
    const { runnableMs, loadableMs, lateMs } = this.#state.lines[gpu]!;
    const backlogMs = runnableMs + loadableMs + lateMs;
    return backlogMs * lateShare + Math.max(0, backlogMs - patientShare * this.#state.policy.waitBoundMs);
  }

  /** The answer time there when nothing is in the way. */
  #leastMs(functionIndex: number, gpu: number): number {
    return this.#state.offerAt(functionIndex, gpu).warmMs;
  }

  /** The least busy GPUs, and where the call would be late on all so far, every GPU. */
  #weighFurther(functionIndex: number, sheet: OfferSheet, nowMs: number, except: number): void {
    const { backlog, gpuCount } = this.#state;
    // The first places of a heap are its least, or almost.
    for (let place = 0; place < leastBusy; place++) {
      if (!this.#explains && this.#isBeaten(functionIndex, nowMs)) return;
      const gpu = backlog.at(place);
      if (gpu !== this.#route.gpu) this.#weighOther(functionIndex, sheet, gpu, nowMs, except);
    }
    if (this.#route.endMs <= this.#deadlineMs) return;
    for (let gpu = 0; gpu < gpuCount; gpu++)
      if (gpu !== this.#route.gpu) this.#weighOther(functionIndex, sheet, gpu, nowMs, except);
  }

  #weighOther(functionIndex: number, sheet: OfferSheet, gpu: number, nowMs: number, except: number): void {
    if (gpu === except || this.#state.slots.at(functionIndex, gpu)?.isHome) return;
    if (this.#state.canHold(functionIndex, sheet, gpu)) this.#weigh(functionIndex, gpu, absent, nowMs);
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

  /** @param slot absent: it has nothing there */
  #weigh(functionIndex: number, gpu: number, slot: Readonly<Slot>, nowMs: number): void {
    this.#delayedMs = 0;
    const endMs = this.predictEnd(functionIndex, gpu, nowMs, this.#invocation, slot);
    const ownMs =
      this.#delayedMs + (endMs <= this.#deadlineMs ? endMs - nowMs : this.#deadlineMs - nowMs + this.#lateMs(gpu));
    const isCheap = slot !== absent || ownMs >= this.#bestCostMs;
    const costMs = isCheap ? ownMs : ownMs + this.#othersMs(functionIndex, gpu, nowMs);
    const route = this.#route;
    if (costMs < this.#bestCostMs) {
      if (route.gpu !== nobody) {
        route.other = route.gpu;
        route.otherEndMs = route.endMs;
      }
      route.gpu = gpu;
      this.#bestCostMs = costMs;
      route.endMs = endMs;
    } else if (endMs < route.otherEndMs) {
      route.other = gpu;
      route.otherEndMs = endMs;
    }
  }

  /** The cost to other functions of loading this one where it has nothing: delayed loads and evicted layers. */
  #othersMs(functionIndex: number, gpu: number, nowMs: number): number {
    const { memories, pressure } = this.#state;
    const offer = this.#state.offerAt(functionIndex, gpu, absent);
    const linkMs = offer.ways[offer.ways.length - 1]!.transfers[0].ms[0]!;
    return linkMs * pressure.now(gpu, nowMs) + memories[gpu]!.lossMs(wholeBytes(offer));
  }
}
