/** Functions that come, change and go, and GPUs that are lost: what waits or runs there may need another place. */
import type { Dispatcher } from './dispatch.ts';
import type { Growth } from './growth.ts';
import { state } from './invocations.ts';
import { checkVariants, sameVariant, type GpuOffer, type OfferSheet } from './offer.ts';
import type { Placing } from './placing.ts';
import type { Sides } from './sides.ts';
import type { Slot } from './slots.ts';
import { nobody, type SchedulerState } from './state.ts';

export class Changes {
  readonly #state: SchedulerState;
  readonly #growth: Growth;
  readonly #dispatcher: Dispatcher;
  readonly #sides: Sides;
  readonly #placing: Placing;
  readonly #checked = new WeakSet<GpuOffer | OfferSheet>();

  constructor(schedulerState: SchedulerState, growth: Growth, dispatcher: Dispatcher, sides: Sides, placing: Placing) {
    this.#state = schedulerState;
    this.#growth = growth;
    this.#dispatcher = dispatcher;
    this.#sides = sides;
    this.#placing = placing;
  }

  /** A function is new, or has another sheet. */
  setSheet(functionIndex: number, sheet: OfferSheet, nowMs: number): void {
    if (sheet.gpus.length !== this.#state.gpuCount) {
      throw new RangeError(
        `function ${functionIndex} has offers for ${sheet.gpus.length} GPUs, not ${this.#state.gpuCount}`,
      );
    }
    this.#check(functionIndex, sheet);
    if (functionIndex >= this.#state.sheets.length) {
      this.#state.growFunctions(functionIndex + 1);
      this.#sides.growFunctions(functionIndex + 1);
    }
    this.#state.setSheet(functionIndex, sheet);
    this.#state.host?.changed(functionIndex);
    // In case a call waits for it.
    this.#state.host?.want(functionIndex);
    const displaced: number[] = this.#sides.take(functionIndex);
    const slots = this.#state.slotsOf(functionIndex);
    for (const slot of slots) {
      const { gpu, offer: resident } = slot;
      const memory = this.#state.memories[gpu]!;
      const variant = resident && sameVariant(sheet.gpus[gpu], resident);
      if (variant !== undefined) memory.replaceOffer(slot, variant);
      const growing = memory.growing(slot);
      const larger = growing && sameVariant(sheet.gpus[gpu], growing);
      if (larger !== undefined) memory.replaceGrowth(slot, larger);
      this.#state.settle(slot);
      if (!this.#state.canHold(functionIndex, sheet, gpu)) displaced.push(...this.#takeWaiting(slot));
    }
    this.#placing.placeAnew(displaced, nowMs);
    for (const { gpu } of slots) this.#dispatcher.dispatch(gpu, nowMs);
  }

  /** Functions of one model share their sheet, or its offers; check each once. */
  #check(functionIndex: number, sheet: OfferSheet): void {
    if (this.#checked.has(sheet)) return;
    for (const offer of sheet.gpus) {
      if (offer === null || this.#checked.has(offer)) continue;
      checkVariants(`function ${functionIndex}`, offer);
      this.#checked.add(offer);
    }
    this.#checked.add(sheet);
  }

  /** Takes a function's invocations out of a GPU's waiting list. */
  #takeWaiting({ entry, gpu, functionIndex }: Slot): number[] {
    return entry < 0 ? [] : this.#takeFrom(gpu, (waiting) => waiting === functionIndex);
  }

  /** Takes the invocations of such functions out of a GPU's waiting list. */
  #takeFrom(gpu: number, isTaken: (functionIndex: number) => boolean): number[] {
    const taken = this.#state.lines[gpu]!.all().filter((waiting) => isTaken(this.#state.functionOf[waiting]!));
    for (const invocation of taken) {
      this.#state.leave(invocation);
      this.#state.invocationState[invocation] = state.ended;
    }
    return taken;
  }

  removeFunction(functionIndex: number, nowMs: number): void {
    if (this.#state.sheets[functionIndex] === undefined) throw new RangeError(`there is no function ${functionIndex}`);
    for (const invocation of this.#sides.take(functionIndex)) {
      this.#state.invocationState[invocation] = state.ended;
      this.#state.shell.act({ kind: 'fail', invocation, reason: 'removed' });
    }
    this.#state.sheets[functionIndex] = undefined;
    this.#sides.forget(functionIndex);
    this.#placing.forget(functionIndex);
    this.#state.variants.forget(functionIndex * this.#state.gpuCount, this.#state.gpuCount);
    for (const slot of this.#state.slotsOf(functionIndex)) {
      for (const invocation of this.#takeWaiting(slot)) {
        this.#state.shell.act({ kind: 'fail', invocation, reason: 'removed' });
      }
      this.#state.settle(slot);
      this.#dispatcher.dispatch(slot.gpu, nowMs);
    }
    // After the GPUs, which are read from host memory.
    this.#state.host?.forget(functionIndex);
  }

  /** Moves invocations that will never have room on a GPU beside the functions pinned there now. */
  displaceByPin(gpu: number, nowMs: number): void {
    const hasNoRoom = (functionIndex: number): boolean =>
      !this.#state.canHold(functionIndex, this.#state.sheets[functionIndex]!, gpu);
    this.#placing.placeAnew(this.#takeFrom(gpu, hasNoRoom), nowMs);
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  /** A GPU is gone: its loads and runs are abandoned, and what waits there is placed again. */
  lose(gpu: number, nowMs: number): void {
    this.#state.up[gpu] = false;
    this.#state.links.setUp(gpu, false);
    const displaced: number[] = [];
    const loads = this.#state.loads.flatMap((own, primary) => own.map((load) => ({ load, primary })));
    for (const { load, primary } of loads) {
      if (primary !== gpu && !load.way.transfers.some(({ link }) => link === gpu)) continue;
      const { functionIndex } = load;
      const slot = this.#state.slots.at(functionIndex, primary)!;
      this.#state.endLoad(slot);
      this.#state.links.release(load.way, nowMs);
      this.#state.shell.act({ kind: 'abandon', functionIndex, gpu: primary });
      const running = this.#state.running[primary]!;
      if (running !== nobody && this.#state.functionOf[running] === functionIndex)
        displaced.push(...this.#state.loseRun(primary));
      // What has arrived of it is not known: all of it counts as lost.
      this.#state.memories[primary]!.drop(slot, 'gpu-lost');
    }
    this.#growth.lose(gpu, nowMs);
    const running = this.#state.running[gpu]!;
    if (running !== nobody) {
      this.#state.shell.act({ kind: 'abandon', functionIndex: this.#state.functionOf[running]!, gpu });
      displaced.push(...this.#state.loseRun(gpu));
    }
    this.#state.memories[gpu]!.dropAll('gpu-lost');
    this.#state.awaited[gpu]!.clear();
    for (const waiting of this.#state.lines[gpu]!.all()) {
      this.#state.leave(waiting);
      displaced.push(waiting);
    }
    displaced.sort((a, b) => this.#state.sequence[a]! - this.#state.sequence[b]!);
    this.#placing.placeAnew(displaced, nowMs);
    // The lanes, links or memory of other GPUs may be free now.
    for (let other = 0; other < this.#state.gpuCount; other++) this.#dispatcher.dispatch(other, nowMs);
  }
}
