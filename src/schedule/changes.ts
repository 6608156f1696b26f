/** Functions that come, change and go, and GPUs that are lost: what waits or runs there may need another place. */
import type { FunctionId } from './ids.ts';
import type { Dispatcher } from './dispatch.ts';
import { ServedFunction } from './function.ts';
import type { Gpu } from './gpu.ts';
import type { Growth } from './growth.ts';
import type { Invocation } from './invocation.ts';
import { checkVariants, sameVariant, type GpuOffer, type OfferSheet } from './offer.ts';
import { byArrival, type Placing } from './placing.ts';
import type { Base } from './residents.ts';
import type { Side } from './side.ts';
import type { Slot } from './gpu.ts';
import type { SchedulerState } from './state.ts';

export class Changes {
  readonly #state: SchedulerState;
  readonly #growth: Growth;
  readonly #dispatcher: Dispatcher;
  readonly #sides: readonly Side[];
  readonly #placing: Placing;
  readonly #checked = new WeakSet<GpuOffer | OfferSheet>();

  constructor(state: SchedulerState, growth: Growth, dispatcher: Dispatcher, sides: readonly Side[], placing: Placing) {
    this.#state = state;
    this.#growth = growth;
    this.#dispatcher = dispatcher;
    this.#sides = sides;
    this.#placing = placing;
  }

  /** A function is new, or has another sheet. */
  setSheet(number: FunctionId, sheet: OfferSheet, nowMs: number): void {
    const gpuCount = this.#state.gpus.length;
    if (sheet.gpus.length !== gpuCount)
      throw new RangeError(`function ${number} has offers for ${sheet.gpus.length} GPUs, not ${gpuCount}`);
    this.#check(number, sheet);
    const fn = this.#functionFor(number, sheet);
    this.#state.setCommon(sheet);
    const left = this.#state.bases.changed(fn);
    this.#state.host?.changed(fn, nowMs);
    // In case a call waits for it.
    this.#state.host?.want(fn, nowMs);
    const displaced = this.#takeFromSides(fn);
    const homes = this.#state.slots.homes(fn);
    for (const slot of homes) {
      const { gpu } = slot;
      gpu.link(slot);
      const resident = slot.offer;
      const variant = resident && sameVariant(sheet.gpus[gpu.number], resident);
      if (variant !== undefined) gpu.memory.replaceOffer(slot, variant);
      const growing = slot.growingTo;
      const larger = growing && sameVariant(sheet.gpus[gpu.number], growing);
      if (larger !== undefined) slot.growingTo = larger;
      gpu.settle(slot);
      if (!gpu.canHold(fn)) displaced.push(...this.#takeWaiting(slot));
    }
    this.#leaveBases(fn, left);
    this.#placing.placeAnew(displaced, nowMs);
    for (const { gpu } of homes) this.#dispatcher.dispatch(gpu, nowMs);
  }

  #functionFor(number: FunctionId, sheet: OfferSheet): ServedFunction {
    const { functions, policy, popularity, slots } = this.#state;
    while (functions.length <= number) functions.push(undefined);
    popularity.grow(functions.length);
    slots.grow(functions.length);
    const known = functions[number];
    known?.setSheet(sheet);
    return (functions[number] = known ?? new ServedFunction(number, sheet, policy));
  }

  /** Functions of one model share their sheet, or its offers; check each once. */
  #check(number: FunctionId, sheet: OfferSheet): void {
    if (this.#checked.has(sheet)) return;
    for (const offer of sheet.gpus) {
      if (offer === null || this.#checked.has(offer)) continue;
      checkVariants(`function ${number}`, offer);
      this.#checked.add(offer);
    }
    this.#checked.add(sheet);
  }

  #takeFromSides(fn: ServedFunction): Invocation[] {
    return this.#sides.flatMap((side) => side.take(fn)).sort(byArrival);
  }

  removeFunction(number: FunctionId, nowMs: number): void {
    const fn = this.#state.functionOf(number);
    for (const invocation of this.#takeFromSides(fn)) this.#removed(invocation);
    fn.isRemoved = true;
    for (const side of this.#sides) side.forget(fn, nowMs);
    this.#placing.forget(fn);
    this.#state.variants.forget(fn);
    for (const slot of this.#state.slots.homes(fn)) {
      for (const invocation of this.#takeWaiting(slot)) this.#removed(invocation);
      slot.gpu.settle(slot);
      this.#dispatcher.dispatch(slot.gpu, nowMs);
    }
    this.#leaveBases(fn, this.#state.bases.changed(fn));
    // After the GPUs, which are read from host memory.
    this.#state.host?.forget(fn);
  }

  /** What no function shares any more goes, unless a run or load of the function still uses it. */
  #leaveBases(fn: ServedFunction, bases: readonly Base[]): void {
    for (const base of bases) {
      const gpu = this.#state.gpus[base.gpu]!;
      const slot = this.#state.slots.at(fn, gpu);
      if (slot === undefined || !gpu.isBusyWith(slot)) gpu.memory.tidy(base);
    }
  }

  #removed(invocation: Invocation): void {
    invocation.state = 'ended';
    this.#state.orders.add({ kind: 'fail', invocation: invocation.number, reason: 'removed' });
  }

  /** Moves invocations that will never have room on a GPU beside the functions pinned there now. */
  displaceByPin(gpu: Gpu, nowMs: number): void {
    this.#placing.placeAnew(
      this.#takeFrom(gpu, (fn) => !gpu.canHold(fn)),
      nowMs,
    );
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  /** Host memory has another size: functions that no longer fit go elsewhere, and others may come. */
  resizeHost(capacityBytes: number, nowMs: number): void {
    const { host, gpus } = this.#state;
    host?.resize(capacityBytes);
    for (const gpu of gpus) this.displaceByPin(gpu, nowMs);
  }

  /** Room on a GPU for what the scheduler does not order: of what is idle. What is spared stays. */
  makeRoom(gpu: Gpu, bytes: number, spared: readonly ServedFunction[], nowMs: number): void {
    const kept = spared.flatMap((fn) => this.#state.slots.find(fn, gpu) ?? []).filter(({ prefix }) => prefix > 0);
    for (const slot of kept) gpu.memory.hold(slot);
    gpu.memory.free(bytes);
    for (const slot of kept) gpu.settle(slot);
    // Where turns are strictly in order, a call may wait for what has gone.
    this.#dispatcher.dispatch(gpu, nowMs);
  }

  /** A GPU is gone: its loads and runs are abandoned, and what waits there is placed again. */
  lose(gpu: Gpu, nowMs: number): void {
    const { links, orders, gpus, slots } = this.#state;
    gpu.isUp = false;
    links.setUp(gpu.number, false);
    const displaced: Invocation[] = [];
    for (const slot of gpus.flatMap(({ loading }) => loading)) {
      const { way } = slot.ordered!;
      const primary = slot.gpu;
      if (primary !== gpu && !way.transfers.some(({ link }) => link === gpu.number)) continue;
      const base = slot.base?.loadedBy === slot ? slot.base : undefined;
      const behind = primary.running === undefined ? undefined : slots.at(primary.running.fn, primary);
      const joined = primary.endLoad(slot);
      links.release(way, nowMs);
      orders.add({ kind: 'abandon', functionIndex: slot.fn.number, gpu: primary.number });
      if (behind !== undefined && (behind === slot || (base !== undefined && behind.base === base))) {
        if (behind !== slot) orders.add({ kind: 'abandon', functionIndex: behind.fn.number, gpu: primary.number });
        displaced.push(...primary.loseRun());
      }
      // What has arrived of it is not known: all of it counts as lost.
      primary.memory.drop(slot, 'gpu-lost');
      if (base !== undefined) primary.memory.dropBase(base, [...primary.usersOf(base)], 'gpu-lost');
      for (const other of [slot, ...joined]) primary.settle(other);
    }
    this.#growth.lose(gpu, nowMs);
    const { running } = gpu;
    if (running !== undefined) {
      orders.add({ kind: 'abandon', functionIndex: running.fn.number, gpu: gpu.number });
      displaced.push(...gpu.loseRun());
    }
    gpu.memory.dropAll('gpu-lost');
    gpu.awaited.clear();
    for (const waiting of gpu.line.all()) {
      gpu.leave(waiting, slots.open(waiting.fn, gpu));
      displaced.push(waiting);
    }
    this.#placing.placeAnew(displaced.sort(byArrival), nowMs);
    // The lanes, links or memory of other GPUs may be free now.
    for (const other of gpus) this.#dispatcher.dispatch(other, nowMs);
  }

  /** Takes a function's invocations out of a GPU's line. */
  #takeWaiting({ entry, gpu, fn }: Slot): Invocation[] {
    return entry === undefined ? [] : this.#takeFrom(gpu, (waiting) => waiting === fn);
  }

  /** Takes the invocations of such functions out of a GPU's line. */
  #takeFrom(gpu: Gpu, isTaken: (fn: ServedFunction) => boolean): Invocation[] {
    const taken = gpu.line.all().filter(({ fn }) => isTaken(fn));
    for (const invocation of taken) {
      gpu.leave(invocation, this.#state.slots.open(invocation.fn, gpu));
      invocation.state = 'ended';
    }
    return taken;
  }
}
