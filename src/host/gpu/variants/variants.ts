/**
 * A function's plan variants, from the whole model on the GPU down to little of it there, as offers for the scheduler.
 * All of them share the function's weight layers, so that a resident function changes to a smaller plan by freeing
 * layers.
 */
import type { HybridPromise } from '../../../gpu/index.ts';
import type { Machine } from '../../../hardware/index.ts';
import { wholePlan, type ColdStartMode, type LayerMethod } from '../../../plan/index.ts';
import type { LayerProfile, ProfileLayer } from '../../../profile/index.ts';
import type { GpuOffer } from '../../../schedule/index.ts';
import { makePlans } from '../plans.ts';
import type { FunctionPlans } from '../../../live/index.ts';

/** A plan over GPU and CPU that the GPU process has. */
export interface PlanVariant {
  readonly promise: HybridPromise;
  /** Predicted, with all its layers on the GPU. */
  readonly latencyMs: number;
}

export interface VariantContext {
  readonly layers: readonly { readonly name: string; readonly kind: string; readonly bytes: number }[];
  /** Times of the layers when the whole function runs on the GPU; undefined if the engine lacks an operator. */
  readonly profile: LayerProfile | undefined;
  /** Of copies to the GPU, for layers that were not timed. */
  readonly linkGBps: number;
  readonly machine: Machine;
  readonly mode: ColdStartMode;
}

const bytesPerMsAtOneGbPerSecond = 1e6;

interface Step {
  readonly id: string;
  readonly plans: FunctionPlans;
  readonly cores: number;
  /** Undefined for everything. */
  readonly used: ReadonlySet<number> | undefined;
}

/**
 * Offers of the variants below the function's current ones, largest first; `whole` is undefined for a function that
 * only has variants. A variant that keeps no less than the one before it, or nothing, is left out. Undefined if none is
 * left to offer.
 *
 * Invariant: a variant loads no layer that the one above leaves in host memory. Shrinking frees layers and loads none,
 * so that the remaining layers are exactly those that the variant would have loaded.
 */
export function withVariants(
  whole: FunctionPlans | undefined,
  variants: readonly PlanVariant[],
  ground: VariantContext,
): FunctionPlans | undefined {
  const steps: Step[] = [];
  if (whole !== undefined) steps.push({ id: wholePlan, plans: whole, cores: 0, used: undefined });
  const largestFirst = variants.toSorted((a, b) => b.promise.weightBytes - a.promise.weightBytes);
  for (const { promise, latencyMs } of largestFirst) {
    const used = new Set(promise.layers);
    const above = steps.at(-1);
    const plans = plansOfVariant(used, latencyMs, ground, above);
    if (above !== undefined) {
      const bytes = bytesOf(plans);
      const isWithin = [...used].every((layer) => above.used?.has(layer) ?? true);
      if (!isWithin || bytes === 0 || bytes >= bytesOf(above.plans)) continue;
    }
    steps.push({ id: promise.plan, plans, cores: promise.cores, used });
  }
  const [top] = steps;
  if (top === undefined) return undefined;
  const byId = new Map(steps.map(({ id, plans }) => [id, plans]));
  return {
    mode: ground.mode,
    isTooLarge: top.plans.isTooLarge,
    offers: top.plans.offers.map((_, gpu) => chain(steps, gpu)),
    planOf: (gpu, mode, variant) => (byId.get(variant ?? top.id) ?? top.plans).planOf(gpu, mode),
  };
}

const bytesOf = ({ offers }: FunctionPlans): number => offers[0]?.prefixBytes.at(-1) ?? 0;

function chain(steps: readonly Step[], gpu: number): GpuOffer {
  const offers = steps.map(({ id, plans, cores }): GpuOffer => ({ ...plans.offers[gpu]!, plan: id, cores }));
  return offers.reduceRight((smaller, offer) => ({ ...offer, smaller }));
}

/** Cold starts of a variant: only its layers are loaded, and each executes in its share of the variant's latency. */
function plansOfVariant(
  used: ReadonlySet<number>,
  latencyMs: number,
  ground: VariantContext,
  above: Step | undefined,
): FunctionPlans {
  const { machine, mode } = ground;
  const methods = above?.plans
    .planOf(0, mode)
    .layers.map(({ method }, layer): LayerMethod => (used.has(layer) ? method : 'dha'));
  return makePlans(variantProfile(used, latencyMs, ground), machine, mode, methods);
}

function variantProfile(
  used: ReadonlySet<number>,
  latencyMs: number,
  { layers, profile, linkGBps }: VariantContext,
): LayerProfile {
  const shareOf = (index: number): number => {
    const timed = profile?.layers[index]?.exec;
    return used.has(index) ? (timed ?? layers[index]!.bytes) : 0;
  };
  const whole = layers.reduce((sum, _, index) => sum + shareOf(index), 0);
  return {
    unit: 'ms',
    layers: layers.map(({ name, kind, bytes }, index): ProfileLayer => {
      // A plan that reads no weights on the GPU still takes its time.
      const share = whole > 0 ? shareOf(index) / whole : index === 0 ? 1 : 0;
      const exec = latencyMs * share;
      if (!used.has(index)) return { name, kind, bytes: 0, load: 0, exec, dha: exec };
      const timed = profile?.layers[index];
      const load = timed?.load ?? bytes / (linkGBps * bytesPerMsAtOneGbPerSecond);
      // Read from host memory, a layer takes longer by at least its transfer over the link, or by more if that was
      // measured.
      const extraMs = timed === undefined ? load : Math.max(0, timed.dha - timed.exec);
      return { name, kind, bytes, load, exec, dha: exec + extraMs };
    }),
  };
}
