/** The plans of functions that share layers on GPUs, which are there for all of them. */
import { wholeBytes, wholePrefix, type GpuOffer, type LoadOption, type SharedPrefix } from '../schedule/index.ts';
import { mapped } from '../tools/index.ts';
import type { SharedLayers } from './families.ts';
import type { FunctionPlans } from './types.ts';

/**
 * The plans of a function that shares layers on some GPUs. A smaller variant has all that is shared as well, since that is
 * there for the others, and of its own layers as many as before. If this is no less than the variant above has, it goes.
 */
export function sharingPlans(plans: FunctionPlans, shared: readonly (SharedLayers | undefined)[]): FunctionPlans {
  if (shared.every((each) => each === undefined || each.loaded.length === 0)) return plans;
  return {
    ...plans,
    offers: plans.offers.map((top, gpu) => sharing(plans, gpu, top, shared[gpu])),
    planOf: (gpu, mode, variant) => {
      const plan = plans.planOf(gpu, mode, variant);
      const added = (shared[gpu]?.layers ?? []).filter(
        ({ index, isLoaded }) => isLoaded && plan.layers[index]!.method !== 'load',
      );
      if (added.length === 0) return plan;
      const layers = [...plan.layers];
      for (const { index } of added) layers[index] = { ...layers[index]!, method: 'load', link: plan.primary };
      const bytesGpu = added.reduce((sum, { bytes }) => sum + bytes, plan.bytesGpu);
      return { ...plan, layers, bytesGpu };
    },
  };
}

function sharing(plans: FunctionPlans, gpu: number, top: GpuOffer, shared: SharedLayers | undefined): GpuOffer {
  if (shared === undefined || shared.loaded.length === 0) return top;
  const { base, loaded } = shared;
  const prefix = { base, layers: loaded.length };
  const offers: GpuOffer[] = [{ ...top, shared: prefix }];
  for (let variant = top.smaller; variant !== undefined; variant = variant.smaller) {
    const { layers } = plans.planOf(gpu, plans.mode, variant.plan);
    const has = loaded.map((layer) => layers[layer]!.method === 'load');
    const offer = withShared(variant, top, prefix, has);
    if (wholeBytes(offer) < wholeBytes(offers.at(-1)!) && wholePrefix(offer) > loaded.length) offers.push(offer);
  }
  const alone = offers.map(({ smaller: _, ...offer }): GpuOffer => offer);
  return alone.reduceRight((smaller, offer) => ({ ...offer, smaller }));
}

/**
 * A plan variant that has all layers that the largest one shares, and its own. What it lacks of them comes over the GPU's
 * own link; nothing waits for that.
 *
 * @param has which of the shared layers, in their order, are the variant's own as well
 */
function withShared(variant: GpuOffer, top: GpuOffer, shared: SharedPrefix, has: readonly boolean[]): GpuOffer {
  const { prefixBytes, overlapPrefix } = variant;
  const own = top.ways[top.ways.length - 1]!.transfers[0];
  /** By prefix of the shared layers: how many of these are its own, and what is still to come of the others. */
  const found = [0];
  for (const [layer, isOwn] of has.entries()) found.push(found[layer]! + Number(isOwn));
  const lackedOf = (table: readonly number[]): number[] => {
    const lacked = Array<number>(found.length).fill(0);
    for (let layer = has.length - 1; layer >= 0; layer--)
      lacked[layer] = lacked[layer + 1]! + (has[layer]! ? 0 : table[layer]! - table[layer + 1]!);
    return lacked;
  };
  const [lackedBytes, lackedMs] = [lackedOf(own.bytes), lackedOf(own.ms)];
  const foundOfAll = found.at(-1)!;
  const tableOf = (table: readonly number[], lacked: readonly number[] = []): number[] => [
    ...found.map((count, prefix) => table[count]! + (lacked[prefix] ?? 0)),
    ...table.slice(foundOfAll + 1),
  ];
  const ways = mapped(variant.ways, ({ mode, coldMs, transfers }): LoadOption => ({
    mode,
    coldMs: tableOf(coldMs, lackedMs),
    transfers: mapped(transfers, (transfer) => {
      const isOwn = transfer === transfers[0];
      return {
        link: transfer.link,
        bytes: tableOf(transfer.bytes, isOwn ? lackedBytes : []),
        ms: tableOf(transfer.ms, isOwn ? lackedMs : []),
        tailMs: tableOf(transfer.tailMs),
      };
    }),
  }));
  const sharedBytes = top.prefixBytes[has.length]!;
  return {
    ...variant,
    shared,
    prefixBytes: [
      ...top.prefixBytes.slice(0, has.length),
      ...prefixBytes.slice(foundOfAll).map((bytes) => sharedBytes + bytes - prefixBytes[foundOfAll]!),
    ],
    overlapPrefix:
      overlapPrefix > foundOfAll
        ? has.length + overlapPrefix - foundOfAll
        : found.findIndex((count) => count >= overlapPrefix),
    ways,
  };
}
