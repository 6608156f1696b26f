/**
 * Partial residency: if a GPU keeps the first layers of a function, loading the others hides behind their execution.
 * Residency is counted in layers, in order of execution.
 */
import type { Machine } from '../../hardware/index.ts';
import type { LayerProfile } from '../../profile/index.ts';
import { linksFor } from './plan.ts';
import { simulate } from './timeline.ts';
import type { ColdStartPlan, Timeline } from './types.ts';

export interface ResidencyPoint {
  /** How many of the layers that the plan loads are kept, from the first on. */
  readonly layers: number;
  readonly bytes: number;
  /** Latency of a cold start that finds at most these bytes on the GPU. */
  readonly latencyMs: number;
}

export interface Residency {
  /** Latency with every layer that the plan loads on the GPU. */
  readonly warmMs: number;
  /** From nothing kept to everything; latency never rises along it. */
  readonly curve: readonly ResidencyPoint[];
  /** The smallest point within the tolerance of `warmMs`: keep this, and the rest hides behind execution. */
  readonly hidden: ResidencyPoint;
}

/**
 * The latency of a cold start by how many of its first layers are on the GPU already.
 * @param tolerance how much slower than a warm start still counts as hidden; 0.05 is 5%
 */
export function residencyOf(
  profile: Pick<LayerProfile, 'layers'>,
  machine: Machine,
  plan: ColdStartPlan,
  tolerance = 0.05,
): Residency {
  const counts = Array.from({ length: loadedLayers(plan).length + 1 }, (_, count) => count);
  const latenciesMs = counts.map((count) => withPrefix(profile, machine, plan, count).latencyMs);
  return residencyFrom(profile, plan, latenciesMs, tolerance);
}

/** The same from latencies that are known. @param latenciesMs by count of the first layers, from 0 on */
export function residencyFrom(
  profile: Pick<LayerProfile, 'layers'>,
  plan: ColdStartPlan,
  latenciesMs: readonly number[],
  tolerance = 0.05,
): Residency {
  const loaded = loadedLayers(plan);
  const curve: ResidencyPoint[] = [];
  let bytes = 0;
  let latencyMs = Infinity;
  for (const [count, ms] of latenciesMs.entries()) {
    if (count > 0) bytes += profile.layers[loaded[count - 1]!]!.bytes;
    // With some link assignments one more layer is a little later; a kept layer need not be used.
    latencyMs = Math.min(latencyMs, ms);
    curve.push({ layers: count, bytes, latencyMs });
  }
  const warmMs = latencyMs;
  const hidden = curve.find((point) => point.latencyMs <= warmMs * (1 + tolerance)) ?? curve.at(-1)!;
  return { warmMs, curve, hidden };
}

const loadedLayers = ({ layers }: ColdStartPlan): number[] =>
  [...layers.keys()].filter((index) => layers[index]!.method === 'load');

/** The timeline of a cold start that finds the first `count` loaded layers on the GPU. */
export function withPrefix(
  profile: Pick<LayerProfile, 'layers'>,
  machine: Machine,
  plan: ColdStartPlan,
  count: number,
): Timeline {
  const resident = new Set(loadedLayers(plan).slice(0, count));
  const options = { resident: (layer: number) => resident.has(layer) };
  const asPlanned = simulate(profile, machine, plan, options);
  if (plan.secondaries.length === 0 || count === 0) return asPlanned;
  // Assign the rest to links again: the old cut would leave the links of the first layers idle.
  const links = linksFor(profile.layers, machine, plan, (layer) => !resident.has(layer));
  const layers = plan.layers.map((layer, index) => ({ ...layer, link: links[index]! }));
  const dealt = simulate(profile, machine, { ...plan, layers }, options);
  return dealt.latencyMs < asPlanned.latencyMs ? dealt : asPlanned;
}
