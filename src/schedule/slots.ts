/** The slots of all functions: a chain for each, since it has few of them, however many GPUs there are. */
import type { ServedFunction } from './function.ts';
import { Slot, type Gpu } from './gpu.ts';

export class Slots {
  /** By function. */
  readonly #first: (Slot | undefined)[] = [];
  /** Opened for the event at hand, or emptied by it. */
  readonly #perhapsEmpty: Slot[] = [];

  grow(functionCount: number): void {
    while (this.#first.length < functionCount) this.#first.push(undefined);
  }

  /** The slot on the lowest GPU, from which `next` leads to the others. Some may be empty until the event is over. */
  first({ number }: ServedFunction): Slot | undefined {
    return this.#first[number];
  }

  at(fn: ServedFunction, gpu: Gpu): Slot | undefined {
    let slot = this.#first[fn.number];
    while (slot !== undefined && slot.gpu.number < gpu.number) slot = slot.next;
    return slot?.gpu === gpu ? slot : undefined;
  }

  /** Those that have anything of the function, or where it waits: the lowest GPU first. */
  homes(fn: ServedFunction): Slot[] {
    const found: Slot[] = [];
    for (let slot = this.first(fn); slot !== undefined; slot = slot.next) if (slot.isHome) found.push(slot);
    return found;
  }

  /** Whether an invocation of the function waits for a GPU. */
  isAwaited(fn: ServedFunction): boolean {
    for (let slot = this.first(fn); slot !== undefined; slot = slot.next) if (slot.entry !== undefined) return true;
    return false;
  }

  /** The slot that is there, or one for what the GPU has of layers that the function shares. */
  find(fn: ServedFunction, gpu: Gpu): Slot | undefined {
    const slot = this.at(fn, gpu);
    if (slot !== undefined || !fn.least.sharesLayers) return slot;
    const opened = this.open(fn, gpu);
    return opened.prefix > 0 ? opened : undefined;
  }

  /** The slot that is there, or a new one, which lasts beyond the event only if it is put to use. */
  open(fn: ServedFunction, gpu: Gpu): Slot {
    let before: Slot | undefined;
    let next = this.#first[fn.number];
    for (; next !== undefined && next.gpu.number <= gpu.number; next = next.next) {
      if (next.gpu === gpu) return next;
      before = next;
    }
    const slot = new Slot(fn, gpu);
    slot.next = next;
    if (before === undefined) this.#first[fn.number] = slot;
    else before.next = slot;
    this.#perhapsEmpty.push(slot);
    return slot;
  }

  /** Something of the slot has gone. It stays until the event is over: callers still use it. */
  emptied(slot: Slot): void {
    if (slot.isEmpty) this.#perhapsEmpty.push(slot);
  }

  /** An event is over. */
  closeEmpty(): void {
    for (let slot = this.#perhapsEmpty.pop(); slot !== undefined; slot = this.#perhapsEmpty.pop()) {
      if (slot.isEmpty) this.#takeOut(slot);
    }
  }

  /** It may have been taken out already. */
  #takeOut(slot: Slot): void {
    const { fn, next } = slot;
    let before = this.#first[fn.number];
    if (before === slot) {
      this.#first[fn.number] = next;
      return;
    }
    while (before !== undefined && before.next !== slot) before = before.next;
    if (before !== undefined) before.next = next;
  }
}
