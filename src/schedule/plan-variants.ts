import { grown } from './columns.ts';
import { wholeBytes, type GpuOffer } from './offer.ts';

/** Upper limit of the runs that a shrunken function waits before it may grow. */
const patienceMax = 1024;

/** Whether an offer is one of a function's plan variants. */
export function isVariantOf(top: GpuOffer | null | undefined, offer: GpuOffer): boolean {
  for (let variant = top ?? undefined; variant !== undefined; variant = variant.smaller)
    if (variant === offer) return true;
  return false;
}

/** The variant with the plan that an action names; the largest one where none is named. */
export function variantNamed(top: GpuOffer, plan: string | undefined): GpuOffer {
  for (let variant: GpuOffer | undefined = top; variant !== undefined; variant = variant.smaller)
    if (variant.plan === plan) return variant;
  return top;
}

/** The variant with the same plan and the same layers; its times may differ. */
export function sameVariant(top: GpuOffer | null | undefined, offer: GpuOffer): GpuOffer | undefined {
  for (let variant = top ?? undefined; variant !== undefined; variant = variant.smaller) {
    if (variant.plan === offer.plan && hasSameLayers(variant, offer)) return variant;
  }
  return undefined;
}

function hasSameLayers(a: GpuOffer, b: GpuOffer): boolean {
  if (a.prefixBytes === b.prefixBytes) return true;
  return a.prefixBytes.length === b.prefixBytes.length && a.prefixBytes.every((bytes, i) => bytes === b.prefixBytes[i]);
}

/** Bytes of the smallest variant that a function can be resident under as a whole. */
export function leastBytes(top: GpuOffer): number {
  let bytes = wholeBytes(top);
  for (let variant = top.smaller; variant !== undefined; variant = variant.smaller)
    bytes = wholeBytes(variant) || bytes;
  return bytes;
}

/** @param functionName for the message @throws RangeError for an invalid list of variants */
export function checkVariants(functionName: string, top: GpuOffer): void {
  if (top.smaller === undefined) return;
  const plans = new Set<string>();
  for (let variant: GpuOffer | undefined = top; variant !== undefined; variant = variant.smaller) {
    if (variant.plan === undefined) throw new RangeError(`a plan in the variants of ${functionName} has no name`);
    if (plans.has(variant.plan)) throw new RangeError(`${functionName} has two plans named '${variant.plan}'`);
    plans.add(variant.plan);
    if (variant.smaller !== undefined && wholeBytes(variant.smaller) >= wholeBytes(variant)) {
      throw new RangeError(
        `plan '${variant.smaller.plan}' of ${functionName} keeps no less on the GPU than '${variant.plan}', which is before it`,
      );
    }
  }
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
  #sloMs = new Float64Array(64);
  /** By function and GPU, for shrunken functions: runs before it may grow again, and how many after the next shrink. */
  readonly #patience = new Map<number, { runsLeft: number; next: number }>();

  /** For a function that is new, or has another SLO. */
  setSlo(functionIndex: number, sloMs: number): void {
    this.#sloMs = grown(this.#sloMs, functionIndex + 1);
    this.#sloMs[functionIndex] = sloMs;
  }

  sloMs(functionIndex: number): number {
    return this.#sloMs[functionIndex]!;
  }

  isAcceptable(functionIndex: number, { warmMs }: GpuOffer): boolean {
    return warmMs <= this.#sloMs[functionIndex]!;
  }

  /**
   * The variant to load of an absent function: the largest acceptable one that fits without evicting; if none fits, the
   * smallest acceptable one. Where no variant is acceptable, the largest that the GPU can hold.
   */
  toLoad(functionIndex: number, top: GpuOffer, freeBytes: number, attainableBytes: number): GpuOffer {
    let largest: GpuOffer | undefined;
    let smallest: GpuOffer | undefined;
    for (let variant: GpuOffer | undefined = top; variant !== undefined; variant = variant.smaller) {
      const bytes = wholeBytes(variant);
      if (bytes > attainableBytes || (bytes === 0 && variant !== top)) continue;
      largest ??= variant;
      if (!this.isAcceptable(functionIndex, variant)) continue;
      if (bytes <= freeBytes) return variant;
      smallest = variant;
    }
    return smallest ?? largest ?? top;
  }

  /** Whether a function could give bytes back and still meet its SLO. */
  canShrink(functionIndex: number, resident: GpuOffer): boolean {
    return resident.smaller !== undefined && this.toShrinkTo(functionIndex, resident, Infinity) !== undefined;
  }

  /**
   * The largest acceptable variant below that frees so many bytes; the smallest acceptable one where none frees so
   * many.
   */
  toShrinkTo(functionIndex: number, resident: GpuOffer, missingBytes: number): GpuOffer | undefined {
    let found: GpuOffer | undefined;
    for (let variant = resident.smaller; variant !== undefined; variant = variant.smaller) {
      if (!this.isAcceptable(functionIndex, variant) || wholeBytes(variant) === 0) continue;
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
    functionIndex: number,
    top: GpuOffer,
    resident: GpuOffer,
    freeBytes: number,
    attainableBytes: number,
  ): GpuOffer | undefined {
    const roomBytes = freeBytes + wholeBytes(resident);
    if (!this.isAcceptable(functionIndex, resident)) {
      const variant = this.toLoad(functionIndex, top, roomBytes, attainableBytes);
      return this.isAcceptable(functionIndex, variant) && wholeBytes(variant) > wholeBytes(resident)
        ? variant
        : undefined;
    }
    for (
      let variant: GpuOffer | undefined = top;
      variant !== undefined && variant !== resident;
      variant = variant.smaller
    ) {
      if (wholeBytes(variant) > roomBytes || !this.isAcceptable(functionIndex, variant)) continue;
      if (variant.warmMs < resident.warmMs || (variant.cores ?? 0) < (resident.cores ?? 0)) return variant;
    }
    return undefined;
  }

  /** @param slot function times GPUs, plus GPU. */
  wasShrunk(slot: number): void {
    const runs = this.#patience.get(slot)?.next ?? 1;
    this.#patience.set(slot, { runsLeft: runs, next: Math.min(patienceMax, runs * 2) });
  }

  /** Counts a run under a variant that is not the largest. Returns whether the function may grow with it. */
  mayGrow(slot: number): boolean {
    const patience = this.#patience.get(slot);
    if (patience === undefined || patience.runsLeft === 0) return true;
    patience.runsLeft--;
    return false;
  }

  /** The function was removed. @param slot its first */
  forget(slot: number, gpuCount: number): void {
    if (this.#patience.size === 0) return;
    for (let gpu = 0; gpu < gpuCount; gpu++) this.#patience.delete(slot + gpu);
  }
}
