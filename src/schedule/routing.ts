import type { ServedFunction } from './function.ts';
import type { Gpu } from './gpu.ts';
import type { Invocation } from './invocation.ts';
import { keyFor, type Entry } from './lines.ts';
import { laneMs as laneMsOf, wholeBytes, wholePrefix, type LoadOption, type GpuOffer } from './offer.ts';
import type { Slot } from './gpu.ts';
import type { SchedulerState } from './state.ts';
import type { PlaceReason } from './types.ts';
import { tuning } from './tuning.ts';

const { candidatesMax, lateShare, leastBusy, patientShare } = tuning.routing;

/** Where an invocation is to run, and why. */
export interface Route {
  /** Undefined when no GPU can run it. */
  readonly gpu: Gpu | undefined;
  readonly reason: PlaceReason;
  /** When it would end there; Infinity where no GPU can run it. */
  readonly endMs: number;
  /** The next best GPU, and when it would end there. */
  readonly other: Gpu | undefined;
  readonly otherEndMs: number;
}

export const nowhere: Route = {
  gpu: undefined,
  reason: 'only',
  endMs: Infinity,
  other: undefined,
  otherEndMs: Infinity,
};

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
  /** In the latest prediction: delay of loads under way that may find the lane taken. */
  #delayedMs = NaN;
  #deadlineMs = Infinity;
  /** What it costs to be late anywhere. */
  #missMs = Infinity;

  /** @param explains whether to find the next best too */
  constructor(state: SchedulerState, explains: boolean) {
    this.#state = state;
    this.#explains = explains;
  }

  /** Where it is to run; the result holds until the next call. @param except is not to be chosen */
  route(invocation: Invocation, nowMs: number, except: Gpu | undefined, isSafe: boolean): Route {
    const { policy, gpus, slots, pressure } = this.#state;
    const { fn } = invocation;
    const gpuCount = gpus.length;
    this.#deadlineMs = invocation.deadlineMs;
    // Being late costs no less than an end in time. Strictly in order of arrival the miss itself costs nothing.
    this.#missMs = this.#deadlineMs - nowMs + (policy.order === 'fifo' || isSafe ? 0 : pressure.missMs);
    const route = this.#route;
    route.gpu = undefined;
    route.endMs = Infinity;
    route.other = undefined;
    route.otherEndMs = Infinity;
    if (policy.routing === 'modulo') {
      for (let step = 0; step < gpuCount; step++) {
        const gpu = gpus[(fn.number + step) % gpuCount]!;
        if (gpu === except || !gpu.canHold(fn)) continue;
        route.reason = 'by-number';
        route.endMs = this.predictEndMs(fn, gpu, slots.at(fn, gpu), nowMs, invocation);
        route.gpu = gpu;
        break;
      }
      return route;
    }
    this.#bestCostMs = Infinity;
    const isLarge = gpuCount > candidatesMax;
    let homes = 0;
    // What a GPU has of layers that it shares counts as its own.
    if (fn.least.sharesLayers) for (const gpu of gpus) slots.find(fn, gpu);
    for (let slot = slots.first(fn); slot !== undefined; slot = slot.next) {
      const { gpu } = slot;
      if (!slot.isHome || gpu === except || !gpu.canHold(fn)) continue;
      homes++;
      this.#weigh(invocation, gpu, slot, nowMs);
      // A function that is busy on many GPUs finds an idle one soon, and none is better.
      if (!this.#explains && isLarge && this.#bestCostMs <= fn.least.warmMs) break;
    }
    const home = route.gpu as Gpu | undefined;
    route.reason = 'resident';
    if (home !== undefined) {
      // The answer time there when nothing is in the way.
      const { warmMs } = home.variantOf(fn, slots.at(fn, home));
      if (policy.copies === 'never' || route.endMs <= nowMs + warmMs) return route;
    }
    // Each function starts at another GPU, so that ties spread.
    const count = Math.min(gpuCount, candidatesMax);
    const step = gpuCount <= candidatesMax ? 1 : Math.floor(gpuCount / candidatesMax);
    for (let candidate = 0; candidate < count; candidate++) {
      if (!this.#explains && this.#isBeaten(fn, nowMs)) break;
      this.#weighOther(invocation, gpus[(fn.number + candidate * step) % gpuCount]!, nowMs, except);
    }
    if (count < gpuCount) this.#weighFurther(invocation, nowMs, except);
    if (route.gpu !== home) route.reason = homes > 0 ? 'copy' : 'room';
    return route;
  }

  /**
   * When an invocation that joined this GPU now, or waits there, would end. Counts the run under way, the invocations
   * before it, links, loads and their room.
   *
   * @param slot of the function there @param invocation left out: any of the function
   */
  predictEndMs(fn: ServedFunction, gpu: Gpu, slot: Slot | undefined, nowMs: number, invocation?: Invocation): number {
    const { policy, links } = this.#state;
    const { line } = gpu;
    const offer = gpu.variantOf(fn, slot);
    const laneMs = this.#laneFreeMs(gpu, nowMs);
    const prefix = slot?.prefix ?? 0;
    const load = slot?.load;
    const entry = slot?.entry;
    const isWhole = load === undefined && prefix === wholePrefix(offer);
    if (line.count === 0 && isWhole && !fn.lacksExecuted) return laneMs + offer.warmMs;
    // An invocation that already waits here is not ahead of itself.
    const own = invocation?.state === 'waiting' && invocation.place === gpu.number && !invocation.isLate ? 1 : 0;
    const isRunnable = isWhole && !fn.lacksExecuted;
    const aheadMs = this.#aheadMs(gpu, slot, laneMs, nowMs, invocation);
    const readyMs = isRunnable ? aheadMs - own * offer.warmMs : aheadMs;
    const diskMs = this.#state.host?.missingMs(fn, nowMs) ?? 0;
    let endMs: number;
    if (load !== undefined) {
      const before = entry === undefined ? 0 : entry.onTime.count - own;
      endMs = Math.max(laneMs + readyMs + offer.warmMs, links.readyMs(load, nowMs) + laneMsOf(offer, before));
    } else if (isWhole) {
      endMs = laneMs + readyMs + offer.warmMs;
      // It waits for what it executes from host memory alone.
      if (!isRunnable) endMs = Math.max(endMs, nowMs + diskMs + offer.warmMs);
      // In order of arrival it is behind the loads as well.
      if (policy.order === 'fifo') endMs += line.loadableMs + line.linkMs * links.slowdown(gpu.number);
    } else {
      const way = links.choose(offer.ways, policy.borrow === 'when-idle');
      if (!policy.loadAhead) {
        const startMs = laneMs + readyMs + line.loadableMs + line.linkMs * links.slowdown(gpu.number);
        return links.estimate(way, slot?.keptPrefix ?? 0, 0, nowMs, Math.max(startMs, nowMs + diskMs));
      }
      // What is there of a former plan goes when its run is over.
      const isStale = slot?.isStale === true;
      const fromMs = Math.max(isStale ? laneMs : nowMs, nowMs + diskMs);
      const loadedMs = this.#loadedMs(offer, gpu, way, isStale ? 0 : prefix, entry, nowMs, fromMs);
      const before = entry === undefined ? 0 : entry.onTime.count - own;
      endMs = Math.max(loadedMs + laneMsOf(offer, before), laneMs + readyMs + line.loadableMs + offer.warmMs);
    }
    return prefix === wholePrefix(offer) ? endMs : nowMs + (endMs - nowMs) * this.#state.pressure.longer(prefix === 0);
  }

  /** For a predicted end: when it would be if no unknown later call got in the way. */
  soonestMs(fn: ServedFunction, gpu: Gpu, endMs: number, nowMs: number): number {
    // Where nothing is loaded ahead, nothing is added either.
    if (!this.#state.policy.loadAhead) return endMs;
    const slot = this.#state.slots.open(fn, gpu);
    return slot.isResident ? endMs : nowMs + (endMs - nowMs) / this.#state.pressure.longer(slot.prefix === 0);
  }

  /** When a load would arrive that is ordered behind those waiting for the link. @param entry of its function */
  #loadedMs(
    { ways }: GpuOffer,
    { number, line }: Gpu,
    way: LoadOption,
    prefix: number,
    entry: Entry<Slot> | undefined,
    nowMs: number,
    fromMs: number,
  ): number {
    const { links, gpus } = this.#state;
    // The function's other waiting calls share the same load.
    const ownMs = entry?.countedLinkMs ?? 0;
    let aheadMs = Math.max(0, line.linkMs - ownMs);
    for (const waiting of links.inTurnWith(number)) aheadMs += gpus[waiting]!.line.linkMs;
    // A GPU that is lost lends its link to nobody.
    const shared = links.choose(ways, false);
    const alone = ways[ways.length - 1]!;
    const { transfers } = shared;
    if (transfers.length === 1) return links.estimate(alone, prefix, aheadMs, nowMs, fromMs);
    // Loads that borrow each other's links wait for each other, whichever GPU each of them is for.
    let pooledMs = -ownMs;
    for (let index = 0; index < transfers.length; index++) pooledMs += gpus[transfers[index]!.link]!.line.linkMs;
    if (pooledMs <= 0 && way === shared) return links.estimate(shared, prefix, 0, nowMs, fromMs);
    const togetherMs = links.estimate(shared, prefix, Math.max(0, pooledMs / transfers.length), nowMs, fromMs);
    if (links.areTogether(shared)) return togetherMs;
    return Math.min(togetherMs, links.estimate(alone, prefix, aheadMs, nowMs, fromMs));
  }

  /** When the run there ends, including the load that it may be waiting for. */
  #laneFreeMs({ running, laneEndMs, loading }: Gpu, nowMs: number): number {
    if (running === undefined) return nowMs;
    let endMs = Math.max(nowMs, laneEndMs);
    for (const { fn, load } of loading)
      if (fn === running.fn) endMs = Math.max(endMs, this.#state.links.readyMs(load!, nowMs));
    return endMs;
  }

  /**
   * Lane milliseconds ahead of a joining call: calls that can run when the lane is free, at that instant, or by its
   * turn.
   */
  #aheadMs(
    { line }: Gpu,
    slot: Slot | undefined,
    laneMs: number,
    nowMs: number,
    invocation: Invocation | undefined,
  ): number {
    const { isUniform, policy, links } = this.#state;
    if (line.count === 0) return 0;
    let aheadMs = line.runnableMs;
    let key = Infinity;
    // Calls of equal SLOs are behind all that wait, but for their functions' shares of the lane. What is refused by the
    // prediction has to know them, or else one function's overload would have the others' calls refused.
    if (invocation !== undefined && policy.order !== 'fifo' && (!isUniform || invocation.fn.sheds)) {
      key = keyFor(invocation.priority, invocation.deadlineMs);
      aheadMs = line.runnableMsBefore(key, slot?.entry);
    }
    for (const { onTime, slot: other } of line.loading) {
      const { head, count } = onTime;
      const { load } = other;
      // Its own load is counted by itself.
      if (other === slot || head === undefined || load === undefined || head.key > key) continue;
      const offer = other.variant;
      const ms = laneMsOf(offer, count);
      if (links.readyMs(load, nowMs) - offer.warmMs <= laneMs + aheadMs) aheadMs += ms;
      else this.#delayedMs += ms;
    }
    return aheadMs;
  }

  /**
   * The cost of being behind all that waits there. It is small at first: if this call went sooner, another would be
   * late instead.
   */
  #lateMs({ runnableMs, loadableMs, lateMs }: Gpu['line']): number {
    const backlogMs = runnableMs + loadableMs + lateMs;
    return backlogMs * lateShare + Math.max(0, backlogMs - patientShare * this.#state.policy.waitBoundMs);
  }

  /** The least busy GPUs, and where the call would be late on all so far, every GPU. */
  #weighFurther(invocation: Invocation, nowMs: number, except: Gpu | undefined): void {
    const { backlog, gpus } = this.#state;
    // The first places of a heap are its least, or almost.
    for (let place = 0; place < leastBusy; place++) {
      if (!this.#explains && this.#isBeaten(invocation.fn, nowMs)) return;
      const gpu = backlog.at(place);
      if (gpu !== this.#route.gpu) this.#weighOther(invocation, gpu, nowMs, except);
    }
    if (this.#route.endMs <= this.#deadlineMs) return;
    for (const gpu of gpus) if (gpu !== this.#route.gpu) this.#weighOther(invocation, gpu, nowMs, except);
  }

  #weighOther(invocation: Invocation, gpu: Gpu, nowMs: number, except: Gpu | undefined): void {
    const { fn } = invocation;
    const slot = gpu === except ? undefined : this.#state.slots.at(fn, gpu);
    if (gpu === except || slot?.isHome === true) return;
    if (gpu.canHold(fn)) this.#weigh(invocation, gpu, slot?.base === undefined ? undefined : slot, nowMs);
  }

  /**
   * Whether it would cost no less than at the best place so far on any GPU that has nothing of it, even with all lanes
   * and links idle: all of it would have to come.
   */
  #isBeaten(fn: ServedFunction, nowMs: number): boolean {
    const loadedMs = nowMs + fn.leastColdMs;
    // In the very steps of the prediction, so that no rounding comes between.
    const leastMs = nowMs + (loadedMs - nowMs) * this.#state.pressure.longer(true);
    return (leastMs <= this.#deadlineMs ? leastMs - nowMs : this.#missMs) >= this.#bestCostMs;
  }

  /** @param slot undefined: it has nothing there; one that is no home: nothing of its own */
  #weigh(invocation: Invocation, gpu: Gpu, slot: Slot | undefined, nowMs: number): void {
    this.#delayedMs = 0;
    const endMs = this.predictEndMs(invocation.fn, gpu, slot, nowMs, invocation);
    const ownMs = this.#delayedMs + (endMs <= this.#deadlineMs ? endMs - nowMs : this.#missMs + this.#lateMs(gpu.line));
    const isCheap = slot?.isHome === true || ownMs >= this.#bestCostMs;
    const costMs = isCheap ? ownMs : ownMs + this.#othersMs(invocation.fn, gpu, slot, nowMs);
    const route = this.#route;
    if (costMs < this.#bestCostMs) {
      if (route.gpu !== undefined) {
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
  #othersMs(fn: ServedFunction, gpu: Gpu, slot: Slot | undefined, nowMs: number): number {
    const offer = gpu.variantOf(fn, slot);
    const prefix = slot?.prefix ?? 0;
    const linkMs = offer.ways[offer.ways.length - 1]!.transfers[0].ms[prefix]!;
    const missingBytes = wholeBytes(offer) - offer.prefixBytes[prefix]!;
    return linkMs * this.#state.pressure.now(gpu.number, offer, nowMs) + gpu.memory.lossMs(missingBytes);
  }
}
