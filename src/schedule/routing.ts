import { wholeBytes, wholePrefix, type GpuOffer, type OfferSheet } from './offer.ts';
import { nobody, type SchedulerState } from './state.ts';

/** Which GPU an invocation goes to. */
export class Router {
  readonly #state: SchedulerState;

  constructor(state: SchedulerState) {
    this.#state = state;
  }

  /** The GPU that is to run it, or -1 when none can. */
  route(functionIndex: number, sheet: OfferSheet, nowMs: number): number {
    if (this.#state.policy.routing === 'modulo') {
      for (let step = 0; step < this.#state.gpuCount; step++) {
        const gpu = (functionIndex + step) % this.#state.gpuCount;
        if (this.#state.canHold(functionIndex, sheet, gpu)) return gpu;
      }
      return nobody;
    }
    const only = this.#onlyHome(functionIndex, sheet, nowMs);
    if (only !== nobody) return only;
    let home = nobody;
    let homeEndMs = Infinity;
    let other = nobody;
    let otherEndMs = Infinity;
    let otherRoom = -Infinity;
    for (let gpu = 0; gpu < this.#state.gpuCount; gpu++) {
      if (!this.#state.canHold(functionIndex, sheet, gpu)) continue;
      const memory = this.#state.memories[gpu]!;
      const offer = this.#state.offerAt(functionIndex, gpu);
      const endMs = this.predictEnd(functionIndex, offer, gpu, nowMs);
      const isHome = this.#isHome(functionIndex, gpu);
      if (isHome) {
        if (endMs < homeEndMs) {
          home = gpu;
          homeEndMs = endMs;
        }
        continue;
      }
      // Room first: a load that evicts nothing costs nobody anything. Where there is none, the least loaded.
      const room = memory.freeBytes >= wholeBytes(offer) ? memory.freeBytes : 0;
      if (room > otherRoom || (room === otherRoom && endMs < otherEndMs)) {
        other = gpu;
        otherEndMs = endMs;
        otherRoom = room;
      }
    }
    if (home === nobody || other === nobody) return home === nobody ? other : home;
    return this.#isWorthCopy(functionIndex, home, other, nowMs) ? other : home;
  }

  #isHome(functionIndex: number, gpu: number): boolean {
    const slot = functionIndex * this.#state.gpuCount + gpu;
    return this.#state.prefixes.of(slot) > 0 || this.#state.waitingCount[slot]! > 0;
  }

  /** The one GPU that has the function, if it has nothing else to do: by far the most frequent case. */
  #onlyHome(functionIndex: number, sheet: OfferSheet, nowMs: number): number {
    let only = nobody;
    for (let gpu = 0; gpu < this.#state.gpuCount; gpu++) {
      if (!this.#isHome(functionIndex, gpu)) continue;
      if (only !== nobody) return nobody;
      only = gpu;
    }
    if (only === nobody || this.#backlogMs(only, nowMs) > 0) return nobody;
    return this.#state.canHold(functionIndex, sheet, only) ? only : nobody;
  }

  /**
   * Whoever only looked for the earliest end would soon have every function everywhere, and room for few of them. A wait
   * for loads does not count as backlog either: a second copy would only have more to load.
   */
  #isWorthCopy(functionIndex: number, home: number, other: number, nowMs: number): boolean {
    const { ways, warmMs } = this.#state.offerAt(functionIndex, other);
    const pendingLoads = (this.#state.waitingMs[other]! - this.#state.readyMs[other]!) / warmMs;
    const loadMs =
      (ways[0].coldMs[0]! - warmMs) * (1 + pendingLoads) + Math.max(0, this.#state.links.freeMs(other) - nowMs);
    const backlogMs = this.#backlogMs(home, nowMs) - this.#backlogMs(other, nowMs);
    return backlogMs > this.#state.policy.copyThreshold * loadMs;
  }

  /** What a GPU has to execute before an invocation that arrives now, loads left out. */
  #backlogMs(gpu: number, nowMs: number): number {
    const { loadAhead } = this.#state.policy;
    const running = this.#state.running[gpu]!;
    let leftMs = 0;
    if (running !== nobody) {
      const functionIndex = this.#state.functionOf[running]!;
      const isOffered = !!this.#state.sheets[functionIndex]?.gpus[gpu];
      const warmMs = isOffered ? this.#state.offerAt(functionIndex, gpu).warmMs : 0;
      leftMs = Math.min(warmMs, Math.max(0, this.#state.laneEndMs[gpu]! - nowMs));
    }
    return leftMs + (loadAhead ? this.#state.readyMs[gpu]! : this.#state.waitingMs[gpu]!);
  }

  /** When an invocation that joined this GPU now would end. */
  predictEnd(functionIndex: number, offer: GpuOffer, gpu: number, nowMs: number): number {
    const laneMs = this.#readyLaneMs(gpu, nowMs);
    const load = this.#state.loads[functionIndex * this.#state.gpuCount + gpu];
    if (load !== undefined) return Math.max(laneMs + offer.warmMs, load.readyMs);
    const prefix = this.#state.memories[gpu]!.prefix(functionIndex);
    if (prefix === wholePrefix(offer)) return laneMs + offer.warmMs;
    const [way] = offer.ways;
    if (!this.#state.policy.loadAhead) return Math.max(laneMs, this.#state.links.freeMs(gpu)) + way.coldMs[prefix]!;
    return Math.max(laneMs + offer.warmMs, Math.max(nowMs, this.#state.links.freeMs(gpu)) + way.coldMs[prefix]!);
  }

  /** When everything that waits for a GPU and could run at once would have been executed. */
  #readyLaneMs(gpu: number, nowMs: number): number {
    const { loadAhead } = this.#state.policy;
    return (
      Math.max(nowMs, this.#state.laneEndMs[gpu]!) +
      (loadAhead ? this.#state.readyMs[gpu]! : this.#state.waitingMs[gpu]!)
    );
  }
}
