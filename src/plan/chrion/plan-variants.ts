import type { GraphProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { sidesWithin } from './cuts.ts';
import { described, type ChrionPlan } from './plan.ts';
import { bytesPerMegabyte } from './devices.ts';
import { bestOf, paretoFront, searchOf, type Candidate, type ChrionOptions, type Search } from './search.ts';

export interface VariantOptions extends ChrionOptions {
  /** Latency limit of plans, such as the function's SLO, in milliseconds. Default: none. */
  readonly limitMs?: number;
  /** Most plans. Default 4. */
  readonly variantsMax?: number;
}

/** Largest GPU memory of a variant, relative to the variant above: a smaller step is not worth a change of plans. */
const stepAtMost = 0.95;
/** Values of all GPU memory to try, in latencies of everything on the GPU. */
const alphaShares = [0, 0.03, 0.1, 0.3, 1, 3];

/**
 * A function's plans from most to least GPU memory. Each keeps a subset of the weights that the one before keeps, so a
 * host can free memory by changing to a later plan without loading anything.
 *
 * The first plan has everything on the GPU that it can run, unless that takes longer than `limitMs`, or it needs cores
 * and a smaller plan is as fast. The others are on the Pareto front of memory and latency among the plans tried: from
 * variant to variant memory falls by a twentieth or more, and latency rises. (Everything on the GPU may be slower than
 * the next variant: it is kept because it needs no core.) The fastest plan with less memory is among them; if there are
 * more than `variantsMax`, those that divide the memory most evenly are taken. Everything on the CPU is not a variant,
 * and a graph without weights has at most one.
 *
 * A variant's `alpha` is the value of memory from which it costs less than the variant above it; 0 for the first, and
 * for one that is faster than the variant above.
 * @returns no plans if no operator can run on the GPU or nothing is as fast as `limitMs`
 * @throws PlanError for options out of range, and if operators that the GPU cannot run have no core
 */
export function planVariants(profile: GraphProfile, options: VariantOptions = {}): readonly ChrionPlan[] {
  const { limitMs = Infinity, variantsMax = 4 } = options;
  if (Number.isNaN(limitMs) || limitMs <= 0) throw new PlanError(`limitMs is ${limitMs}, but must be above 0`);
  if (!Number.isInteger(variantsMax) || variantsMax < 1) {
    throw new PlanError(`variantsMax is ${variantsMax}, but must be a whole number of 1 or more`);
  }
  const search = searchOf(profile, options);
  const variants = variantsOf(search, limitMs, variantsMax);
  return variants.map((variant, index) => {
    const above = variants[index - 1] ?? variant;
    const savedBytes = above.gpuBytes - variant.gpuBytes;
    const slowerMs = variant.latencyMs - above.latencyMs;
    const alpha = savedBytes > 0 ? Math.max(0, slowerMs / (savedBytes / bytesPerMegabyte)) : 0;
    return described(search, { ...variant, alpha });
  });
}

function variantsOf(search: Search, limitMs: number, variantsMax: number): Candidate[] {
  const most = search.mostOnGpu();
  if (most === undefined) return [];
  const whole = search.refined(most);
  const variants = whole.latencyMs <= limitMs ? [whole] : [];
  let front = frontOf(search, new Uint8Array(search.network.weightBytes.length).fill(1), whole, limitMs);
  while (variants.length < variantsMax) {
    const next = nextOf(front, variants.at(-1), variantsMax - variants.length);
    if (next === undefined) break;
    // A larger variant that is no faster is useful only if it needs no cores.
    while (variants.length > 0 && isBeaten(variants.at(-1), next)) variants.pop();
    variants.push(next);
    front = frontOf(search, search.weightsOf(next), whole, limitMs);
  }
  return variants;
}

/** The fastest one if it is as fast as the variant above; else the one that divides the rest most evenly. */
function nextOf(
  front: readonly Candidate[],
  above: Candidate | undefined,
  variantsLeft: number,
): Candidate | undefined {
  const below = front.filter(({ gpuBytes }) => gpuBytes <= stepAtMost * (above?.gpuBytes ?? Infinity));
  const [fastest] = below;
  const leastBytes = below.at(-1)?.gpuBytes ?? 0;
  if (fastest === undefined || above === undefined || fastest.latencyMs <= above.latencyMs) return fastest;
  const aimBytes = above.gpuBytes - (above.gpuBytes - leastBytes) / variantsLeft;
  return bestOf(below, ({ gpuBytes }) => Math.abs(gpuBytes - aimBytes));
}

/** The Pareto front of possible variants with only weights of `kept` on the GPU. */
function frontOf(search: Search, kept: Uint8Array, whole: Candidate, limitMs: number): Candidate[] {
  const coreCounts = search.someCoreCounts();
  const sides = sidesWithin(search.network, kept);
  const megabytes = whole.gpuBytes / bytesPerMegabyte;
  const found = alphaShares.flatMap((share) =>
    search.algorithm2(megabytes === 0 ? 0 : (share * whole.latencyMs) / megabytes, sides, coreCounts),
  );
  const front = paretoFront([...found, ...search.cuts(kept, coreCounts)].filter(({ gpuBytes }) => gpuBytes > 0));
  const refined = front.map((candidate) => search.refined(candidate));
  return paretoFront(refined.filter(({ latencyMs }) => latencyMs <= limitMs));
}

function isBeaten(variant: Candidate | undefined, by: Candidate): boolean {
  return variant !== undefined && variant.cores > 0 && variant.latencyMs >= by.latencyMs;
}
