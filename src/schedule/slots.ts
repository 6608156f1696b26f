/** What each GPU has of each function, and does for it. */
import { grownInts, GpuSets } from './columns.ts';
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

  get isEmpty(): boolean {
    return this.row === none && this.entry === none && this.load === undefined;
  }
}

/** All slots, and where each function has something. */
export class Slots {
  readonly #gpuCount: number;
  /** By function and GPU: the number of the slot, from 1; 0 where there is none, as almost everywhere. */
  #numbers = new Int32Array(64);
  readonly #slots: (Slot | undefined)[] = [undefined];
  readonly #free: number[] = [];
  /** Opened for the event at hand, or emptied by it. */
  readonly #perhapsEmpty: Slot[] = [];
  #copies = new Int32Array(64);
  /** Where something of each function is. */
  readonly homes: GpuSets;

  constructor(gpuCount: number) {
    this.#gpuCount = gpuCount;
    this.homes = new GpuSets(gpuCount);
  }

  grow(functionCount: number): void {
    this.homes.grow(functionCount);
    this.#numbers = grownInts(this.#numbers, functionCount * this.#gpuCount);
    this.#copies = grownInts(this.#copies, functionCount);
  }

  at(functionIndex: number, gpu: number): Slot | undefined {
    return this.#slots[this.#numbers[functionIndex * this.#gpuCount + gpu]!];
  }

  /** The slot that is there, or a new one, which lasts beyond the event only if it is put to use. */
  open(functionIndex: number, gpu: number): Slot {
    const found = this.at(functionIndex, gpu);
    if (found !== undefined) return found;
    const slot = new Slot(functionIndex, gpu);
    const number = this.#free.pop() ?? this.#slots.length;
    this.#slots[number] = slot;
    this.#numbers[functionIndex * this.#gpuCount + gpu] = number;
    this.#perhapsEmpty.push(slot);
    return slot;
  }

  /** Something of the slot has gone. It stays until the event is over, so that who has it at hand goes on with it. */
  emptied(slot: Slot): void {
    if (slot.isEmpty) this.#perhapsEmpty.push(slot);
  }

  /** An event is over. */
  closeEmpty(): void {
    for (let slot = this.#perhapsEmpty.pop(); slot !== undefined; slot = this.#perhapsEmpty.pop()) {
      const place = slot.functionIndex * this.#gpuCount + slot.gpu;
      const number = this.#numbers[place]!;
      // It may have been emptied twice.
      if (!slot.isEmpty || this.#slots[number] !== slot) continue;
      this.#slots[number] = undefined;
      this.#free.push(number);
      this.#numbers[place] = 0;
    }
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
    if (prefix > 0) this.homes.add(slot.functionIndex, slot.gpu);
    else this.homes.remove(slot.functionIndex, slot.gpu);
  }

  /** Nothing is there any more. */
  clear(slot: Slot): void {
    if (slot.isWhole) this.#copies[slot.functionIndex]!--;
    slot.offer = undefined;
    slot.prefix = 0;
    this.homes.remove(slot.functionIndex, slot.gpu);
  }
}
