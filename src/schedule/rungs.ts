import { grownFloats } from './columns.ts';
import { wholeBytes, type GpuOffer } from './offer.ts';

/** Once a function has been shrunk so often that it would have to wait for more runs, it waits for so many. */
const patienceMax = 1024;

/** Whether an offer is one of a ladder's rungs. */
export function isRungOf(top: GpuOffer | null | undefined, offer: GpuOffer): boolean {
  for (let rung = top ?? undefined; rung !== undefined; rung = rung.smaller) if (rung === offer) return true;
  return false;
}

/** The rung of a ladder that is this plan: what an action names. The top itself where nothing is named. */
export function rungNamed(top: GpuOffer, plan: string | undefined): GpuOffer {
  for (let rung: GpuOffer | undefined = top; rung !== undefined; rung = rung.smaller)
    if (rung.plan === plan) return rung;
  return top;
}

/** The rung of a ladder that is the same plan with the same layers; its times may be others. */
export function sameRung(top: GpuOffer | null | undefined, offer: GpuOffer): GpuOffer | undefined {
  for (let rung = top ?? undefined; rung !== undefined; rung = rung.smaller) {
    if (rung.plan === offer.plan && hasSameLayers(rung, offer)) return rung;
  }
  return undefined;
}

function hasSameLayers(a: GpuOffer, b: GpuOffer): boolean {
  if (a.prefixBytes === b.prefixBytes) return true;
  return a.prefixBytes.length === b.prefixBytes.length && a.prefixBytes.every((bytes, i) => bytes === b.prefixBytes[i]);
}

/** Bytes of the least that a function can be resident with as a whole. */
export function leastBytes(top: GpuOffer): number {
  let bytes = wholeBytes(top);
  for (let rung = top.smaller; rung !== undefined; rung = rung.smaller) bytes = wholeBytes(rung) || bytes;
  return bytes;
}

/** The ladder without the rungs that miss the objective; the largest alone where all do. */
export function rungsWithin(top: GpuOffer, sloMs: number): GpuOffer {
  if (top.smaller === undefined) return top;
  const within: GpuOffer[] = [];
  for (let rung: GpuOffer | undefined = top; rung !== undefined; rung = rung.smaller) {
    if (rung.warmMs <= sloMs) within.push(rung);
  }
  const { smaller: _, ...alone } = top;
  return (
    within.reduceRight<GpuOffer | undefined>((below, { smaller: _smaller, ...rung }) => {
      return below === undefined ? rung : { ...rung, smaller: below };
    }, undefined) ?? alone
  );
}

/**
 * @param functionName for the message
 * @throws RangeError for a ladder that is none
 */
export function checkLadder(functionName: string, top: GpuOffer): void {
  if (top.smaller === undefined) return;
  const plans = new Set<string>();
  for (let rung: GpuOffer | undefined = top; rung !== undefined; rung = rung.smaller) {
    if (rung.plan === undefined) throw new RangeError(`a plan in the ladder of ${functionName} has no name`);
    if (plans.has(rung.plan)) throw new RangeError(`${functionName} has two plans named '${rung.plan}'`);
    plans.add(rung.plan);
    if (rung.smaller !== undefined && wholeBytes(rung.smaller) >= wholeBytes(rung)) {
      throw new RangeError(
        `plan '${rung.smaller.plan}' of ${functionName} keeps no less on the GPU than '${rung.plan}', which is before it`,
      );
    }
  }
}

/**
 * Under which rung of its ladder a function is on a GPU. A ladder is a function's plans from most to least GPU memory;
 * a function is resident under one of them. A rung is *acceptable* when its warm latency meets the function's SLO. A
 * rung with nothing on the GPU is left alone: that is what the CPU pool is for.
 *
 * It cannot oscillate. To shrink costs nothing but latency, so only growing could be repeated work; the n-th time that
 * a function is shrunk on a GPU, it stays so for 2^(n-1) of its runs there (`patienceMax` at the most). A function that
 * runs R times grows no more than 1 + log2(R) times before that limit, and in at most one of `patienceMax` runs behind
 * it.
 */
export class Rungs {
  #sloMs = new Float64Array(64);
  /**
   * By function and GPU, of those that were shrunk: runs before it may grow again, and as many behind the next shrink.
   */
  readonly #patience = new Map<number, { runsLeft: number; next: number }>();

  /** Of a function that is new, or has another SLO. */
  setSlo(functionIndex: number, sloMs: number): void {
    this.#sloMs = grownFloats(this.#sloMs, functionIndex + 1);
    this.#sloMs[functionIndex] = sloMs;
  }

  sloMs(functionIndex: number): number {
    return this.#sloMs[functionIndex]!;
  }

  isAcceptable(functionIndex: number, { warmMs }: GpuOffer): boolean {
    return warmMs <= this.#sloMs[functionIndex]!;
  }

  /**
   * What to load of a function of which nothing is there: the largest acceptable rung that fits without anybody's loss;
   * where none does, the smallest acceptable one. Where no rung is acceptable, the largest that the GPU can hold.
   */
  toLoad(functionIndex: number, top: GpuOffer, freeBytes: number, attainableBytes: number): GpuOffer {
    let largest: GpuOffer | undefined;
    let smallest: GpuOffer | undefined;
    for (let rung: GpuOffer | undefined = top; rung !== undefined; rung = rung.smaller) {
      const bytes = wholeBytes(rung);
      if (bytes > attainableBytes || (bytes === 0 && rung !== top)) continue;
      largest ??= rung;
      if (!this.isAcceptable(functionIndex, rung)) continue;
      if (bytes <= freeBytes) return rung;
      smallest = rung;
    }
    return smallest ?? largest ?? top;
  }

  /** Whether a function could give bytes back and still meet its SLO. */
  canShrink(functionIndex: number, resident: GpuOffer): boolean {
    return resident.smaller !== undefined && this.toShrinkTo(functionIndex, resident, Infinity) !== undefined;
  }

  /**
   * The largest acceptable rung below that gives so many bytes back; the smallest acceptable one where none gives so
   * many.
   */
  toShrinkTo(functionIndex: number, resident: GpuOffer, missingBytes: number): GpuOffer | undefined {
    let found: GpuOffer | undefined;
    for (let rung = resident.smaller; rung !== undefined; rung = rung.smaller) {
      if (!this.isAcceptable(functionIndex, rung) || wholeBytes(rung) === 0) continue;
      found = rung;
      if (wholeBytes(resident) - wholeBytes(rung) >= missingBytes) break;
    }
    return found;
  }

  /**
   * The rung to grow to, or undefined: the largest acceptable one above that fits into what is free, if it is faster or
   * leaves more cores alone. One that misses its SLO as it is, is as good as absent: it grows at the cost of others, as
   * a load would.
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
      const rung = this.toLoad(functionIndex, top, roomBytes, attainableBytes);
      return this.isAcceptable(functionIndex, rung) && wholeBytes(rung) > wholeBytes(resident) ? rung : undefined;
    }
    for (let rung: GpuOffer | undefined = top; rung !== undefined && rung !== resident; rung = rung.smaller) {
      if (wholeBytes(rung) > roomBytes || !this.isAcceptable(functionIndex, rung)) continue;
      if (rung.warmMs < resident.warmMs || (rung.cores ?? 0) < (resident.cores ?? 0)) return rung;
    }
    return undefined;
  }

  /** @param slot function times GPUs, plus GPU. */
  wasShrunk(slot: number): void {
    const runs = this.#patience.get(slot)?.next ?? 1;
    this.#patience.set(slot, { runsLeft: runs, next: Math.min(patienceMax, runs * 2) });
  }

  /** Counts a run under a rung that is not the largest. Returns whether it may grow with it. */
  mayGrow(slot: number): boolean {
    const patience = this.#patience.get(slot);
    if (patience === undefined || patience.runsLeft === 0) return true;
    patience.runsLeft--;
    return false;
  }

  /** Of a function that was removed: its slots, from the first. */
  forget(slot: number, gpuCount: number): void {
    if (this.#patience.size === 0) return;
    for (let gpu = 0; gpu < gpuCount; gpu++) this.#patience.delete(slot + gpu);
  }
}
