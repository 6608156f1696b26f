import type { Given, GpuId } from './ids.ts';
import type { ServedFunction } from './function.ts';
import { wholeBytes, type GpuOffer } from './offer.ts';
import type { Numbered } from './heap.ts';
import { tuning } from './tuning.ts';

const { patienceMax } = tuning.variants;

interface FunctionOnGpu {
  readonly fn: Numbered;
  readonly gpu: Numbered;
}

/**
 * Under which plan variant a function is on a GPU. The variants go from most to least GPU memory, and a function is
 * resident under one of them. A variant is *acceptable* when its warm latency meets the function's SLO. A variant with
 * nothing on the GPU is not used: that is what the CPU pool is for.
 *
 * It cannot oscillate. Shrinking costs nothing but latency, so only growing could be repeated work. The n-th time that
 * a function is shrunk on a GPU, it stays small for 2^(n-1) of its runs there (`patienceMax` at the most). In R runs a
 * function grows no more than 1 + log2(R) times before that limit, and at most once per `patienceMax` runs after it.
 */
export class Variants {
  readonly #gpuCount: number;
  /** By function and GPU, as a slot may be gone for a while: for shrunken functions: runs before it may grow again, and how many after the next shrink. */
  readonly #patience = new Map<number, { runsLeft: number; next: number }>();

  constructor(gpuCount: number) {
    this.#gpuCount = gpuCount;
  }

  isAcceptable({ sheet }: Pick<ServedFunction, 'sheet'>, { warmMs }: GpuOffer): boolean {
    return warmMs <= sheet.sloMs;
  }

  /**
   * The variant to load of an absent function: the largest acceptable one that fits without evicting; if none fits, the
   * smallest acceptable one. Where no variant is acceptable, the largest that the GPU can hold.
   */
  toLoad(fn: ServedFunction, top: GpuOffer, freeBytes: number, attainableBytes: number): GpuOffer {
    let largest: GpuOffer | undefined;
    let smallest: GpuOffer | undefined;
    for (let variant: GpuOffer | undefined = top; variant !== undefined; variant = variant.smaller) {
      const bytes = wholeBytes(variant);
      if (bytes > attainableBytes || (bytes === 0 && variant !== top)) continue;
      largest ??= variant;
      if (!this.isAcceptable(fn, variant)) continue;
      if (bytes <= freeBytes) return variant;
      smallest = variant;
    }
    return smallest ?? largest ?? top;
  }

  /** Whether a function could give bytes back and still meet its SLO. */
  canShrink(fn: ServedFunction, resident: GpuOffer): boolean {
    return resident.smaller !== undefined && this.toShrinkTo(fn, resident, Infinity) !== undefined;
  }

  /**
   * The largest acceptable variant below that frees so many bytes; the smallest acceptable one where none frees so
   * many.
   */
  toShrinkTo(fn: ServedFunction, resident: GpuOffer, missingBytes: number): GpuOffer | undefined {
    let found: GpuOffer | undefined;
    for (let variant = resident.smaller; variant !== undefined; variant = variant.smaller) {
      if (!this.isAcceptable(fn, variant) || wholeBytes(variant) === 0) continue;
      found = variant;
      if (wholeBytes(resident) - wholeBytes(variant) >= missingBytes) break;
    }
    return found;
  }

  /**
   * The variant to grow to, or undefined: the largest acceptable one above that fits into the free bytes, if it is
   * faster or uses fewer cores. A function that misses its SLO as it is counts as absent: it grows at the cost of
   * others, as a load would.
   */
  toGrowTo(
    fn: ServedFunction,
    top: GpuOffer,
    resident: GpuOffer,
    freeBytes: number,
    attainableBytes: number,
  ): GpuOffer | undefined {
    const roomBytes = freeBytes + wholeBytes(resident);
    if (!this.isAcceptable(fn, resident)) {
      const variant = this.toLoad(fn, top, roomBytes, attainableBytes);
      return this.isAcceptable(fn, variant) && wholeBytes(variant) > wholeBytes(resident) ? variant : undefined;
    }
    for (
      let variant: GpuOffer | undefined = top;
      variant !== undefined && variant !== resident;
      variant = variant.smaller
    ) {
      if (wholeBytes(variant) > roomBytes || !this.isAcceptable(fn, variant)) continue;
      if (variant.warmMs < resident.warmMs || (variant.cores ?? 0) < (resident.cores ?? 0)) return variant;
    }
    return undefined;
  }

  wasShrunk(slot: FunctionOnGpu): void {
    const key = this.#keyOf(slot.fn, slot.gpu.number);
    const runs = this.#patience.get(key)?.next ?? 1;
    this.#patience.set(key, { runsLeft: runs, next: Math.min(patienceMax, runs * 2) });
  }

  /** Counts a run under a variant that is not the largest. Returns whether the function may grow with it. */
  mayGrow(slot: FunctionOnGpu): boolean {
    const patience = this.#patience.get(this.#keyOf(slot.fn, slot.gpu.number));
    if (patience === undefined || patience.runsLeft === 0) return true;
    patience.runsLeft--;
    return false;
  }

  /** The function was removed. */
  forget(fn: Numbered): void {
    if (this.#patience.size === 0) return;
    for (let gpu = 0; gpu < this.#gpuCount; gpu++) this.#patience.delete(this.#keyOf(fn, gpu));
  }

  #keyOf(fn: Numbered, gpu: Given<GpuId>): number {
    return fn.number * this.#gpuCount + gpu;
  }
}
