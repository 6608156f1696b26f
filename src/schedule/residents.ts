import type { ServedFunction } from './function.ts';
import { wholePrefix, type GpuOffer } from './offer.ts';

/** What the memory of a GPU knows of a function. */
export class Resident {
  readonly fn: ServedFunction;
  /** In the GPU's orders of eviction; -1 where it has nothing of the function. */
  number = -1;
  /** That the resident layers belong to. */
  offer: GpuOffer | undefined = undefined;
  /** Layers that are there, counted from the first; those on their way count. */
  prefix = 0;
  /** May be evicted. */
  isIdle = false;

  constructor(fn: ServedFunction) {
    this.fn = fn;
  }

  get bytes(): number {
    return this.offer === undefined ? 0 : this.offer.prefixBytes[this.prefix]!;
  }

  /** All layers of the plan that it has there. */
  get isWhole(): boolean {
    return this.offer !== undefined && this.prefix === wholePrefix(this.offer);
  }

  /** Other layers are there, under the same offer or another one. */
  setPrefix(offer: GpuOffer, prefix: number): void {
    const wasWhole = this.isWhole;
    this.offer = offer;
    this.prefix = prefix;
    if (this.isWhole !== wasWhole) this.fn.copies += wasWhole ? -1 : 1;
  }

  /** Nothing is there any more. */
  clear(): void {
    if (this.isWhole) this.fn.copies--;
    this.offer = undefined;
    this.prefix = 0;
  }
}
