/** What each GPU has of each function, and does for it. */
import { grown } from './columns.ts';
import { wholePrefix, type LoadOption, type GpuOffer } from './offer.ts';
import type { LoadOrder } from './types.ts';

const none = -1;

/** A load in flight. */
export interface Load extends LoadOrder {
  readonly functionIndex: number;
  /** When an execution behind it could have ended with the links to itself. */
  readonly soonestMs: number;
}

/**
 * A function on one GPU, as long as that has something of it or something waits there for it. All that is asked of the
 * two together stands here, so that one look finds it.
 */
export class Slot {
  readonly functionIndex: number;
  readonly gpu: number;
  /** Of the GPU's rows, by which orders of eviction go; -1 where it has nothing of the function. */
  row = none;
  /** That the resident layers belong to. */
  offer: GpuOffer | undefined = undefined;
  /** Layers that are there, counted from the first; those on their way count. */
  prefix = 0;
  /** May be evicted. */
  isIdle = false;
  /** Under way to the GPU. */
  load: Load | undefined = undefined;
  /** How what a larger variant has more is on its way. */
  growth: LoadOption | undefined = undefined;
  /** Of the GPU's line, while something waits; or -1. */
  entry = none;
  /** The function's slot on the next higher GPU where it has one. */
  next: Slot | undefined = undefined;

  constructor(functionIndex: number, gpu: number) {
    this.functionIndex = functionIndex;
    this.gpu = gpu;
  }

  get bytes(): number {
    return this.offer === undefined ? 0 : this.offer.prefixBytes[this.prefix]!;
  }

  /** All layers of the plan that it has there. */
  get isWhole(): boolean {
    return this.offer !== undefined && this.prefix === wholePrefix(this.offer);
  }

  /** Something of the function is there, or waits there. */
  get isHome(): boolean {
    return this.prefix > 0 || this.entry !== none;
  }

  get isEmpty(): boolean {
    return this.row === none && this.entry === none && this.load === undefined;
  }
}

/** Stands for all slots that are not there: nothing is on the GPU, and nothing waits. */
export const absent: Readonly<Slot> = new Slot(none, none);

/** All slots: a chain for each function, since it has few of them, however many GPUs there are. */
export class Slots {
  /** By function. */
  readonly #first: (Slot | undefined)[] = [];
  /** Opened for the event at hand, or emptied by it. */
  readonly #perhapsEmpty: Slot[] = [];
  #copies = new Int32Array(64);

  grow(functionCount: number): void {
    while (this.#first.length < functionCount) this.#first.push(undefined);
    this.#copies = grown(this.#copies, functionCount);
  }

  /** The slot on the lowest GPU, from which `next` leads to the others. Some may be empty until the event is over. */
  first(functionIndex: number): Slot | undefined {
    return this.#first[functionIndex];
  }

  at(functionIndex: number, gpu: number): Slot | undefined {
    let slot = this.#first[functionIndex];
    while (slot !== undefined && slot.gpu < gpu) slot = slot.next;
    return slot?.gpu === gpu ? slot : undefined;
  }

  /** The slot that is there, or a new one, which lasts beyond the event only if it is put to use. */
  open(functionIndex: number, gpu: number): Slot {
    let before: Slot | undefined;
    let next = this.#first[functionIndex];
    for (; next !== undefined && next.gpu <= gpu; next = next.next) {
      if (next.gpu === gpu) return next;
      before = next;
    }
    const slot = new Slot(functionIndex, gpu);
    slot.next = next;
    if (before === undefined) this.#first[functionIndex] = slot;
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
    const { functionIndex, next } = slot;
    let before = this.#first[functionIndex];
    if (before === slot) {
      this.#first[functionIndex] = next;
      return;
    }
    while (before !== undefined && before.next !== slot) before = before.next;
    if (before !== undefined) before.next = next;
  }

  /** On how many GPUs the function is resident as a whole. */
  copies(functionIndex: number): number {
    return this.#copies[functionIndex]!;
  }

  /** Other layers are there, under the same offer or another one. */
  setPrefix(slot: Slot, offer: GpuOffer, prefix: number): void {
    const wasWhole = slot.isWhole;
    slot.offer = offer;
    slot.prefix = prefix;
    if (slot.isWhole !== wasWhole) this.#copies[slot.functionIndex]! += wasWhole ? -1 : 1;
  }

  /** Nothing is there any more. */
  clear(slot: Slot): void {
    if (slot.isWhole) this.#copies[slot.functionIndex]!--;
    slot.offer = undefined;
    slot.prefix = 0;
  }
}
