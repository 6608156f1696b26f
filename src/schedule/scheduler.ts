import { CpuLane } from './cpu-lane.ts';
import { Dispatcher } from './dispatch.ts';
import { Growth } from './growth.ts';
import type { CpuOffer, GpuOffer, OfferSheet } from './offer.ts';
import type { Policy } from './policy.ts';
import { Router } from './routing.ts';
import { checkLadder, sameRung } from './rungs.ts';
import { nobody, SchedulerState, state } from './state.ts';
import type { Action, SchedulerEvent, SchedulerGpu } from './types.ts';

export interface SchedulerOptions {
  readonly gpus: readonly SchedulerGpu[];
  readonly policy: Policy;
  /** Cores that offloaded invocations share. */
  readonly cpuCores: number;
}

/**
 * Decides where and when each invocation runs, what is loaded for it and what goes. Pure in the sense of the design: no
 * clock, no promise, no process. Events come with their time, which never goes back, and actions go out; whoever carries
 * them out tells how they ended. The same events give the same actions.
 *
 * Each GPU executes one invocation at a time. Each PCIe link carries loads in the order in which they were ordered.
 */
export class Scheduler {
  readonly #state: SchedulerState;
  readonly #router: Router;
  readonly #growth: Growth;
  readonly #dispatcher: Dispatcher;
  readonly #cpu: CpuLane;
  /** By offloaded invocation, what it was offloaded to. */
  readonly #cpuOffers = new Map<number, CpuOffer>();
  #arrivals = 0;

  constructor({ gpus, policy, cpuCores }: SchedulerOptions) {
    this.#state = new SchedulerState(gpus, policy);
    this.#router = new Router(this.#state);
    this.#growth = new Growth(this.#state);
    this.#dispatcher = new Dispatcher(this.#state, this.#growth);
    this.#cpu = new CpuLane(cpuCores);
  }

  /**
   * What is to be done now that this has happened, in order. Throws RangeError for an event that cannot be.
   *
   * @param into an empty array to put the actions in, for who has to care about garbage.
   */
  handle(event: SchedulerEvent, nowMs: number, into: Action[] = []): readonly Action[] {
    this.#state.actions = into;
    switch (event.kind) {
      case 'arrival':
        this.#arrive(event.invocation, event.functionIndex, event.sloMs ?? NaN, event.priority ?? NaN, nowMs);
        break;
      case 'finished':
        this.#finish(event.invocation, nowMs);
        break;
      case 'loaded':
        this.#loaded(event.gpu, event.functionIndex, nowMs);
        break;
      case 'wake':
        this.#wake(nowMs);
        break;
      case 'departed':
        this.#depart(event.invocation, nowMs);
        break;
      case 'gpu-lost':
        this.#lose(event.gpu, nowMs);
        break;
      case 'gpu-back':
        this.#state.up[event.gpu] = true;
        this.#state.links.setUp(event.gpu, true);
        break;
      case 'function-added':
      case 'sheet-changed':
        this.#setSheet(event.functionIndex, event.sheet, nowMs);
        break;
      case 'function-removed':
        this.#removeFunction(event.functionIndex, nowMs);
        break;
    }
    for (let gpu = this.#state.pinnedOn.pop(); gpu !== undefined; gpu = this.#state.pinnedOn.pop()) {
      this.#displaceByPin(gpu, nowMs);
    }
    return this.#state.actions;
  }

  /** Bytes of weights on a GPU, those on their way included. */
  residentBytes(gpu: number): number {
    return this.#state.memories[gpu]!.usedBytes;
  }

  /** How many layers of a function a GPU has, counted from the first, those on their way included. */
  residentPrefix(functionIndex: number, gpu: number): number {
    return this.#state.memories[gpu]!.prefix(functionIndex);
  }

  /** The rung of its ladder under which a function is resident on a GPU; undefined where nothing of it is there. */
  residentOffer(functionIndex: number, gpu: number): GpuOffer | undefined {
    return this.#state.memories[gpu]!.offer(functionIndex);
  }

  waitingCount(gpu: number): number {
    return this.#state.waiting.counts[gpu]!;
  }

  #arrive(invocation: number, functionIndex: number, sloMs: number, priority: number, nowMs: number): void {
    const sheet = this.#state.sheets[functionIndex];
    if (sheet === undefined) throw new RangeError(`there is no function ${functionIndex}`);
    if (invocation >= this.#state.invocationState.length) this.#state.growInvocations(invocation + 1);
    if (this.#state.invocationState[invocation] !== state.ended)
      throw new RangeError(`invocation ${invocation} has not ended yet`);
    this.#state.popularity.use(functionIndex);
    this.#state.functionOf[invocation] = functionIndex;
    this.#state.arrivalMs[invocation] = nowMs;
    this.#state.setOwn(invocation, sloMs, priority);
    this.#state.sequence[invocation] = this.#arrivals++;
    this.#place(invocation, sheet, nowMs);
  }

  #finish(invocation: number, nowMs: number): void {
    const was = this.#state.invocationState[invocation];
    if (was !== state.running && was !== state.offloaded) throw new RangeError(`invocation ${invocation} does not run`);
    this.#state.invocationState[invocation] = state.ended;
    const functionIndex = this.#state.functionOf[invocation]!;
    if (was === state.offloaded) {
      this.#cpu.release(this.#cpuOffers.get(invocation)!);
      this.#cpuOffers.delete(invocation);
      return;
    }
    const gpu = this.#state.gpuOf[invocation]!;
    this.#state.running[gpu] = nobody;
    this.#state.settle(functionIndex, gpu);
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  #loaded(gpu: number, functionIndex: number, nowMs: number): void {
    const slot = functionIndex * this.#state.gpuCount + gpu;
    const load = this.#state.loads[slot];
    const way = load === undefined ? this.#growth.end(functionIndex, gpu) : load.way;
    if (way === undefined) throw new RangeError(`function ${functionIndex} is not being loaded to GPU ${gpu}`);
    if (load !== undefined) {
      this.#state.loads[slot] = undefined;
      this.#state.links.release(way);
    }
    this.#state.settle(functionIndex, gpu);
    this.#dispatcher.dispatchFreed(gpu, way, nowMs);
  }

  #wake(nowMs: number): void {
    for (let gpu = 0; gpu < this.#state.gpuCount; gpu++) {
      if (this.#state.wakeMs[gpu]! > nowMs) continue;
      this.#state.wakeMs[gpu] = Infinity;
      this.#dispatcher.dispatch(gpu, nowMs);
    }
  }

  #depart(invocation: number, nowMs: number): void {
    if (this.#state.invocationState[invocation] !== state.waiting)
      throw new RangeError(`invocation ${invocation} does not wait`);
    const gpu = this.#state.gpuOf[invocation]!;
    this.#state.leave(invocation);
    this.#state.invocationState[invocation] = state.ended;
    this.#state.settle(this.#state.functionOf[invocation]!, gpu);
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  #lose(gpu: number, nowMs: number): void {
    this.#state.up[gpu] = false;
    this.#state.links.setUp(gpu, false);
    const displaced: number[] = [];
    for (const [slot, load] of this.#state.loads.entries()) {
      if (load === undefined) continue;
      const functionIndex = Math.floor(slot / this.#state.gpuCount);
      const primary = slot % this.#state.gpuCount;
      if (primary !== gpu && !load.way.transfers.some(({ link }) => link === gpu)) continue;
      this.#state.loads[slot] = undefined;
      this.#state.links.release(load.way);
      this.#state.actions.push({ kind: 'abandon', functionIndex, gpu: primary });
      const running = this.#state.running[primary]!;
      if (running !== nobody && this.#state.functionOf[running] === functionIndex) {
        this.#state.running[primary] = nobody;
        displaced.push(running);
      }
      // What has arrived of it is not known: all of it counts as lost.
      this.#state.memories[primary]!.drop(functionIndex, 'gpu-lost');
    }
    this.#growth.lose(gpu);
    const running = this.#state.running[gpu]!;
    if (running !== nobody) {
      this.#state.running[gpu] = nobody;
      this.#state.actions.push({ kind: 'abandon', functionIndex: this.#state.functionOf[running]!, gpu });
      displaced.push(running);
    }
    for (const functionIndex of this.#state.sheets.keys()) this.#state.memories[gpu]!.drop(functionIndex, 'gpu-lost');
    this.#state.awaited[gpu]!.clear();
    for (let next = this.#state.waiting.first(gpu); next !== nobody; next = this.#state.waiting.first(gpu)) {
      this.#state.leave(next);
      displaced.push(next);
    }
    displaced.sort((a, b) => this.#state.sequence[a]! - this.#state.sequence[b]!);
    for (const invocation of displaced) {
      const sheet = this.#state.sheets[this.#state.functionOf[invocation]!];
      this.#state.invocationState[invocation] = state.ended;
      if (sheet === undefined) this.#state.actions.push({ kind: 'fail', invocation, reason: 'removed' });
      else this.#place(invocation, sheet, nowMs);
    }
    // Their lanes, their links or their memory may be free now.
    for (let other = 0; other < this.#state.gpuCount; other++) this.#dispatcher.dispatch(other, nowMs);
  }

  #setSheet(functionIndex: number, sheet: OfferSheet, nowMs: number): void {
    if (sheet.gpus.length !== this.#state.gpuCount) {
      throw new RangeError(
        `function ${functionIndex} has offers for ${sheet.gpus.length} GPUs, not ${this.#state.gpuCount}`,
      );
    }
    for (const offer of sheet.gpus) if (offer !== null) checkLadder(`function ${functionIndex}`, offer);
    if (functionIndex >= this.#state.sheets.length) this.#state.growFunctions(functionIndex + 1);
    this.#state.sheets[functionIndex] = sheet;
    this.#state.rungs.setSlo(functionIndex, sheet.sloMs);
    const displaced: number[] = [];
    for (const [gpu, memory] of this.#state.memories.entries()) {
      const resident = memory.offer(functionIndex);
      const rung = resident && sameRung(sheet.gpus[gpu], resident);
      if (rung !== undefined) memory.replaceOffer(functionIndex, rung);
      const growing = memory.growing(functionIndex);
      const larger = growing && sameRung(sheet.gpus[gpu], growing);
      if (larger !== undefined) memory.replaceGrowth(functionIndex, larger);
      this.#state.settle(functionIndex, gpu);
      if (!this.#state.canHold(functionIndex, sheet, gpu)) displaced.push(...this.#takeWaiting(functionIndex, gpu));
    }
    for (const invocation of displaced) this.#place(invocation, sheet, nowMs);
    for (let gpu = 0; gpu < this.#state.gpuCount; gpu++) this.#dispatcher.dispatch(gpu, nowMs);
  }

  /** Takes a function's invocations out of a GPU's waiting list. */
  #takeWaiting(functionIndex: number, gpu: number): number[] {
    const taken: number[] = [];
    if (this.#state.waitingCount[functionIndex * this.#state.gpuCount + gpu] === 0) return taken;
    let next = this.#state.waiting.first(gpu);
    while (next !== nobody) {
      const invocation = next;
      next = this.#state.waiting.next(invocation);
      if (this.#state.functionOf[invocation] !== functionIndex) continue;
      this.#state.leave(invocation);
      this.#state.invocationState[invocation] = state.ended;
      taken.push(invocation);
    }
    return taken;
  }

  #removeFunction(functionIndex: number, nowMs: number): void {
    if (this.#state.sheets[functionIndex] === undefined) throw new RangeError(`there is no function ${functionIndex}`);
    this.#state.sheets[functionIndex] = undefined;
    for (let gpu = 0; gpu < this.#state.gpuCount; gpu++) {
      this.#state.rungs.forget(functionIndex * this.#state.gpuCount + gpu);
      for (const invocation of this.#takeWaiting(functionIndex, gpu)) {
        this.#state.actions.push({ kind: 'fail', invocation, reason: 'removed' });
      }
      this.#state.settle(functionIndex, gpu);
      this.#dispatcher.dispatch(gpu, nowMs);
    }
  }

  /** Puts an invocation where the policy wants it, and starts it there if it can start. */
  #place(invocation: number, sheet: OfferSheet, nowMs: number): void {
    const functionIndex = this.#state.functionOf[invocation]!;
    const gpu = this.#router.route(functionIndex, sheet, nowMs);
    if (gpu === nobody || this.#weighsPlaces(sheet)) {
      const gpuEndMs =
        gpu === nobody
          ? Infinity
          : this.#router.predictEnd(functionIndex, this.#state.offerAt(functionIndex, gpu), gpu, nowMs);
      if (!this.#staysOnGpu(invocation, sheet, gpuEndMs, nowMs)) return;
    }
    this.#state.enter(invocation, sheet, gpu);
    this.#dispatcher.dispatch(gpu, nowMs);
    if (this.#state.invocationState[invocation] !== state.waiting) return;
    if (this.#state.sparesWaiting) this.#state.memories[gpu]!.touch(functionIndex);
    this.#state.actions.push({ kind: 'wait', invocation, gpu });
  }

  /** Whether it matters when an invocation would end. */
  #weighsPlaces({ cpu }: OfferSheet): boolean {
    const { offload, admission } = this.#state.policy;
    return admission === 'shed' || (cpu !== null && offload !== 'never');
  }

  /** Offloads, sheds or fails what is not to run on a GPU. @param gpuEndMs Infinity when it cannot. */
  #staysOnGpu(invocation: number, sheet: OfferSheet, gpuEndMs: number, nowMs: number): boolean {
    const { offload, admission } = this.#state.policy;
    const { cpu } = sheet;
    const deadlineMs = this.#state.deadlineMs(invocation, sheet);
    const isNowhere = gpuEndMs === Infinity;
    if (cpu !== null && (isNowhere || offload !== 'never')) {
      const cpuEndMs = this.#cpu.predictEnd(cpu, nowMs);
      const isBetter =
        offload === 'earliest-finish' ? cpuEndMs < gpuEndMs : gpuEndMs > deadlineMs && cpuEndMs <= deadlineMs;
      if (isBetter || (isNowhere && (admission === 'best-effort' || cpuEndMs <= deadlineMs))) {
        this.#offload(invocation, cpu);
        return false;
      }
    }
    if (isNowhere && cpu === null) this.#state.actions.push({ kind: 'fail', invocation, reason: 'nowhere' });
    else if (isNowhere || (admission === 'shed' && gpuEndMs > deadlineMs)) {
      this.#state.actions.push({ kind: 'shed', invocation });
    } else return true;
    return false;
  }

  /** Places anew what will never have room on a GPU beside what is pinned there now. */
  #displaceByPin(gpu: number, nowMs: number): void {
    const displaced: number[] = [];
    let next = this.#state.waiting.first(gpu);
    while (next !== nobody) {
      const invocation = next;
      next = this.#state.waiting.next(invocation);
      const functionIndex = this.#state.functionOf[invocation]!;
      if (this.#state.canHold(functionIndex, this.#state.sheets[functionIndex]!, gpu)) continue;
      this.#state.leave(invocation);
      this.#state.invocationState[invocation] = state.ended;
      displaced.push(invocation);
    }
    for (const invocation of displaced)
      this.#place(invocation, this.#state.sheets[this.#state.functionOf[invocation]!]!, nowMs);
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  #offload(invocation: number, offer: CpuOffer): void {
    const { invocationState, functionOf, actions } = this.#state;
    invocationState[invocation] = state.offloaded;
    this.#cpu.take(offer);
    this.#cpuOffers.set(invocation, offer);
    actions.push({ kind: 'offload', invocation, functionIndex: functionOf[invocation]! });
  }
}
