import type { ServedFunction } from './function.ts';
import type { FunctionId } from './ids.ts';
import { baseOffer, wholePrefix, type GpuOffer } from './offer.ts';

/**
 * What the memory of a GPU knows of a function. Layers that the function shares with others are there as a resident of
 * their own, the base; what is counted here beside them are the function's own layers.
 */
export class Resident {
  readonly fn: ServedFunction;
  #offer: GpuOffer | undefined = undefined;
  /** How far its own layers are there, counted from the first of the plan; 0 if none is. */
  #ownPrefix = 0;
  /** Whether it is in the memory: layers of its own are there, or a plan that loads none. */
  isThere = false;
  /** The number by which the orders of eviction know it while it is there. */
  number = 0;
  /** Whether it may be evicted. */
  isIdle = false;
  /** Whether it stays until it is unpinned. */
  isPinned = false;
  /** The larger variant whose other layers are on their way. */
  growingTo: GpuOffer | undefined = undefined;
  /** The layers that it shares on this GPU, */
  base: Base | undefined = undefined;
  /** by this offer, of several variants the largest. */
  #based: GpuOffer | undefined = undefined;
  /** It runs, loads or is awaited, so its base stays. */
  usesBase = false;
  /** How many users of a base have layers of their own there: the base stays as long as one has. 0 for others. */
  above = 0;

  constructor(fn: ServedFunction) {
    this.fn = fn;
  }

  /** The offer to which the resident layers belong. */
  get offer(): GpuOffer | undefined {
    return this.base === undefined || this.#ownPrefix > 0 || this.prefix === 0 ? this.#offer : this.#based;
  }

  /** Layers that are there, counted from the first; those on their way count. */
  get prefix(): number {
    const { base } = this;
    return base === undefined || this.#ownPrefix > 0 ? this.#ownPrefix : Math.min(base.prefix, this.low);
  }

  /** How many layers it shares: its own come behind these. */
  get low(): number {
    return this.#based?.shared?.layers ?? 0;
  }

  /** Whether it has no layers of its own. */
  get isTwin(): boolean {
    return this.#based !== undefined && this.low === wholePrefix(this.#based);
  }

  /** Whether layers of its own are there. */
  get hasOwn(): boolean {
    return this.#ownPrefix > 0;
  }

  /** Bytes of its own layers that are there. */
  get bytes(): number {
    if (this.#offer === undefined || this.#ownPrefix === 0) return 0;
    const { prefixBytes } = this.#offer;
    return prefixBytes[this.#ownPrefix]! - prefixBytes[this.low]!;
  }

  /** All layers of the plan that it has there. */
  get isWhole(): boolean {
    const { offer } = this;
    return offer !== undefined && this.prefix === wholePrefix(offer);
  }

  get #isOwnWhole(): boolean {
    return this.#offer !== undefined && this.#ownPrefix === wholePrefix(this.#offer);
  }

  /** Other layers of its own are there, under the same offer or another one. */
  setPrefix(offer: GpuOffer, prefix: number): void {
    const wasWhole = this.#isOwnWhole;
    const hadOwn = this.hasOwn;
    this.#offer = offer;
    this.#ownPrefix = prefix;
    if (this.#isOwnWhole !== wasWhole) this.fn.copied(wasWhole ? -1 : 1);
    if (this.base !== undefined && this.hasOwn !== hadOwn) this.base.above += hadOwn ? -1 : 1;
  }

  /** Nothing of its own is there any more. */
  clear(): void {
    if (this.#isOwnWhole) this.fn.copied(-1);
    if (this.base !== undefined && this.hasOwn) this.base.above--;
    this.#offer = undefined;
    this.#ownPrefix = 0;
  }

  /** Its own layers, the same, under an offer with other times. */
  replaceOffer(offer: GpuOffer): void {
    if (this.hasOwn || this.base === undefined) this.#offer = offer;
  }

  /** From now on it has this base; nothing of its own is there, and it does not use the one before. */
  link(base: Base | undefined, offer: GpuOffer | undefined): void {
    this.base = base;
    this.#based = base === undefined ? undefined : offer;
  }
}

/** The first layers of several functions, on one GPU: there once for all of them. */
export class Base extends Resident {
  /** Across the GPUs. */
  readonly family: Family;
  readonly gpu: number;
  /** Users that run, load or are awaited. */
  readonly active = new Set<Resident>();
  /** Bytes of the layers that pinned users share. */
  pinnedBytes = 0;
  /** The user whose load under way brings layers of it. */
  loadedBy: Resident | undefined = undefined;

  constructor(family: Family, gpu: number) {
    super(family.fn);
    this.family = family;
    this.gpu = gpu;
  }

  /** The most that one of those shares that use it now. */
  get layersInUse(): number {
    let most = 0;
    for (const { low } of this.active) most = Math.max(most, low);
    return most;
  }

  /** A user's load brings all that it shares, or some of its user's layers are shared from now on. */
  extend(offer: GpuOffer, prefix: number): void {
    const own = baseOffer(offer);
    const there = this.offer;
    const isLonger = there === undefined || wholePrefix(own) > wholePrefix(there);
    this.setPrefix(isLonger ? own : there, Math.max(this.prefix, prefix));
  }
}

/** Functions that share a base, on all GPUs. */
export interface Family {
  /** Stands for the base where a function is asked for: it has no number, and counts the copies. */
  readonly fn: ServedFunction;
  readonly users: ReadonlySet<ServedFunction>;
  readonly name: string;
  /** The number of a user that shares more layers than these on a GPU, or else of another or former one. */
  sharerOf(gpu: number, layers: number): FunctionId;
  /** The most layers that one of them shares on a GPU. */
  layersOn(gpu: number): number;
}
