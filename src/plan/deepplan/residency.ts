/**
 * Partial residency: a GPU that keeps the first layers of a function hides the loading of the others behind their
 * execution. Residency goes by layers, in the order in which they execute, and never all-or-nothing.
 */
import type { Machine } from '../../hardware/index.ts';
import type { LayerProfile } from '../../profile/index.ts';
import { linksFor } from './plan.ts';
import { simulate } from './timeline.ts';
import type { ColdStartPlan } from './types.ts';

export interface ResidencyPoint {
  /** How many of the layers that the plan loads are kept, from the first on. */
  readonly layers: number;
  readonly bytes: number;
  /** Of a cold start that finds at most these bytes on the GPU. */
  readonly latencyMs: number;
}

export interface Residency {
  /** With every layer that the plan loads on the GPU. */
  readonly warmMs: number;
  /** From nothing kept to everything; latency never rises along it. */
  readonly curve: readonly ResidencyPoint[];
  /** The least of the curve within the tolerance of `warmMs`: what to keep so that the rest hides behind execution. */
  readonly hidden: ResidencyPoint;
}

/**
 * What a cold start takes under a plan by how many of its first layers are on the GPU already.
 *
 * @param tolerance how much slower than a warm start still counts as hidden; 0.05 is 5%.
 */
export function residencyOf(
  profile: Pick<LayerProfile, 'layers'>,
  machine: Machine,
  plan: ColdStartPlan,
  tolerance = 0.05,
): Residency {
  const loaded = [...plan.layers.keys()].filter((index) => plan.layers[index]!.method === 'load');
  const curve: ResidencyPoint[] = [];
  let bytes = 0;
  let latencyMs = Infinity;
  for (let count = 0; count <= loaded.length; count++) {
    if (count > 0) bytes += profile.layers[loaded[count - 1]!]!.bytes;
    // Links may be dealt out such that one layer more is a little later: nobody has to use what is kept.
    latencyMs = Math.min(latencyMs, withPrefix(profile, machine, plan, count).latencyMs);
    curve.push({ layers: count, bytes, latencyMs });
  }
  const warmMs = latencyMs;
  const hidden = curve.find((point) => point.latencyMs <= warmMs * (1 + tolerance)) ?? curve.at(-1)!;
  return { warmMs, curve, hidden };
}

/** A plan for a cold start that finds the first `count` loaded layers on the GPU, with its latency. */
export function withPrefix(
  profile: Pick<LayerProfile, 'layers'>,
  machine: Machine,
  plan: ColdStartPlan,
  count: number,
): { readonly plan: ColdStartPlan; readonly resident: ReadonlySet<number>; readonly latencyMs: number } {
  const loaded = [...plan.layers.keys()].filter((index) => plan.layers[index]!.method === 'load');
  const resident = new Set(loaded.slice(0, count));
  const options = { resident: (layer: number) => resident.has(layer) };
  const kept = { plan, resident, latencyMs: simulate(profile, machine, plan, options).latencyMs };
  if (plan.secondaries.length === 0 || count === 0) return kept;
  // What is left to load is dealt out anew: the old cut would leave the links that had the first layers idle.
  const links = linksFor(profile.layers, machine, plan, (layer) => !resident.has(layer));
  const dealt: ColdStartPlan = {
    ...plan,
    layers: plan.layers.map((layer, index) => ({ ...layer, link: links[index]! })),
  };
  const latencyMs = simulate(profile, machine, dealt, options).latencyMs;
  return latencyMs < kept.latencyMs ? { plan: dealt, resident, latencyMs } : kept;
}

/** The least latency on the curve for so many bytes. */
export function latencyKeeping({ curve }: Residency, bytes: number): number {
  let latencyMs = curve[0]!.latencyMs;
  for (const point of curve) if (point.bytes <= bytes) ({ latencyMs } = point);
  return latencyMs;
}
