/** What is where: a row for each function that a GPU has anything of, and how to find the row. */
import { grownInts, GpuSets } from './columns.ts';
import { wholePrefix, type GpuOffer } from './offer.ts';

const none = -1;

/** Where each function is, over all GPUs. */
export class Residency {
  readonly #gpuCount: number;
  /** By function and GPU: the row there, plus one; 0 where nothing of it is. */
  #rows = new Int32Array(64);
  #copies = new Int32Array(64);
  /** Where something of each function is. */
  readonly homes: GpuSets;

  constructor(gpuCount: number) {
    this.#gpuCount = gpuCount;
    this.homes = new GpuSets(gpuCount);
  }

  grow(functionCount: number): void {
    this.homes.grow(functionCount);
    this.#rows = grownInts(this.#rows, functionCount * this.#gpuCount);
    this.#copies = grownInts(this.#copies, functionCount);
  }

  /** The function's row on a GPU, or -1. */
  row(functionIndex: number, gpu: number): number {
    return this.#rows[functionIndex * this.#gpuCount + gpu]! - 1;
  }

  setRow(functionIndex: number, gpu: number, row: number): void {
    this.#rows[functionIndex * this.#gpuCount + gpu] = row + 1;
  }

  /** On how many GPUs the function is resident as a whole. */
  copies(functionIndex: number): number {
    return this.#copies[functionIndex]!;
  }

  changeCopies(functionIndex: number, by: 1 | -1): void {
    this.#copies[functionIndex]! += by;
  }
}

/** The rows of one GPU. There are only as many as its memory has room for, however many functions there are. */
export class Residents {
  readonly #residency: Residency;
  readonly #gpu: number;
  readonly #free: number[] = [];
  #count = 0;
  #functions = new Int32Array(64);
  #prefixes = new Int32Array(64);
  #idle = new Uint8Array(64);
  readonly #offers: (GpuOffer | undefined)[] = [];

  constructor(residency: Residency, gpu: number) {
    this.#residency = residency;
    this.#gpu = gpu;
  }

  /** Rows that the columns have room for. */
  get room(): number {
    return this.#functions.length;
  }

  /** The function's row, or -1. */
  row(functionIndex: number): number {
    return this.#residency.row(functionIndex, this.#gpu);
  }

  /** Something of a function comes: its row, with nothing there yet. */
  open(functionIndex: number, offer: GpuOffer): number {
    const row = this.#free.pop() ?? this.#count++;
    if (row >= this.#functions.length) {
      this.#functions = grownInts(this.#functions, row + 1);
      this.#prefixes = grownInts(this.#prefixes, this.#functions.length);
      const idle = new Uint8Array(this.#functions.length);
      idle.set(this.#idle);
      this.#idle = idle;
    }
    this.#functions[row] = functionIndex;
    this.#prefixes[row] = 0;
    this.#idle[row] = 0;
    this.#offers[row] = offer;
    this.#residency.setRow(functionIndex, this.#gpu, row);
    return row;
  }

  /** Nothing of it is left. */
  close(row: number): void {
    this.#offers[row] = undefined;
    this.#residency.setRow(this.#functions[row]!, this.#gpu, none);
    this.#free.push(row);
  }

  functionOf(row: number): number {
    return this.#functions[row]!;
  }

  /** By which the prefix is to be read. */
  offer(row: number): GpuOffer {
    return this.#offers[row]!;
  }

  setOffer(row: number, offer: GpuOffer): void {
    this.#offers[row] = offer;
  }

  /** Layers that are there, counted from the first. */
  prefix(row: number): number {
    return this.#prefixes[row]!;
  }

  bytes(row: number): number {
    return this.#offers[row]!.prefixBytes[this.#prefixes[row]!]!;
  }

  isWhole(row: number): boolean {
    return this.#prefixes[row] === wholePrefix(this.#offers[row]!);
  }

  setPrefix(row: number, prefix: number): void {
    const { homes } = this.#residency;
    const functionIndex = this.#functions[row]!;
    this.#prefixes[row] = prefix;
    if (prefix > 0) homes.add(functionIndex, this.#gpu);
    else homes.remove(functionIndex, this.#gpu);
  }

  isIdle(row: number): boolean {
    return this.#idle[row] === 1;
  }

  setIdle(row: number, isIdle: boolean): void {
    this.#idle[row] = isIdle ? 1 : 0;
  }
}
