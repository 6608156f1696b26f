import type { Machine } from '../../hardware/index.ts';
import type { LayerProfile, ProfileLayer } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { deepPlan, loadAll, type LayerMethod } from './algorithm.ts';
import { simulate } from './timeline.ts';
import { linkSpeeds, partitionByLoadedBytes, secondaryGpus, type LinkSpeed } from './transmission.ts';
import type { ColdStartMode, ColdStartPlan, LayerPlan } from './types.ts';

export interface PlanOptions {
  /** The GPU that executes; 0 when left out. */
  readonly primary?: number;
  /** Methods to keep instead of those of the mode's own planner. */
  readonly methods?: readonly LayerMethod[];
}

const usesHostAccess = (mode: ColdStartMode): boolean => mode === 'dha' || mode === 'pt+dha' || mode === 'interleave';
const usesAllLinks = (mode: ColdStartMode): boolean => mode === 'pt' || mode === 'pt+dha' || mode === 'interleave';

/**
 * Plans the cold start of a function: the method of each layer, and the link that loads it. On a machine where no GPU
 * can help the primary (section 4.3.3), `pt`, `pt+dha` and `interleave` come out as `pipeswitch` and `dha` do. Layers
 * that execute from host memory do so in every partition, as in the authors' engine (the paper would load them there).
 *
 * `interleave` gives each layer to the link that frees first; where another way to deal out the layers is faster by the
 * timeline, it takes that.
 *
 * Throws {@link PlanError} for a GPU that the machine does not have.
 */
export function planColdStart(
  profile: Pick<LayerProfile, 'layers'>,
  machine: Machine,
  mode: ColdStartMode,
  options: PlanOptions = {},
): ColdStartPlan {
  const { primary = 0 } = options;
  if (machine.gpus[primary] === undefined) {
    const count = machine.gpus.length;
    throw new PlanError(
      count === 0
        ? `machine '${machine.name}' has no GPU to load layers to`
        : `machine '${machine.name}' has no GPU ${primary}: it has GPUs 0 to ${count - 1}`,
    );
  }
  const methods = options.methods ?? (usesHostAccess(mode) ? deepPlan(profile) : loadAll(profile));
  const secondaries = usesAllLinks(mode) ? secondaryGpus(machine, primary) : [];
  const finish = (links: readonly (number | null)[]): ColdStartPlan => {
    const layers = profile.layers.map(({ name }, index): LayerPlan => {
      return { name, method: methods[index]!, link: links[index]! };
    });
    const loaded = profile.layers.filter((_, index) => methods[index] === 'load');
    return { mode, primary, secondaries, layers, bytesGpu: loaded.reduce((sum, { bytes }) => sum + bytes, 0) };
  };
  const links = [primary, ...secondaries];
  const isLoaded = (layer: number): boolean => methods[layer] === 'load';
  const partitioned = finish(partitionedLinks(profile.layers, isLoaded, links));
  if (mode !== 'interleave' || secondaries.length === 0) return partitioned;
  // One layer that holds most of the weights (VGG's first matrix) is better not handed on, nor queued behind small ones.
  const candidates = [
    finish(interleavedLinks(profile.layers, machine, links, isLoaded, 'frees')),
    finish(interleavedLinks(profile.layers, machine, links, isLoaded, 'arrives')),
    partitioned,
    { ...finish(methods.map((method) => (method === 'load' ? primary : null))), secondaries: [] },
  ];
  const latenciesMs = candidates.map((plan) => simulate(profile, machine, plan).latencyMs);
  return candidates[latenciesMs.indexOf(Math.min(...latenciesMs))]!;
}

/**
 * The link of each layer that is loaded when only those of `isNeeded` have to be: by partitions, or layer by layer,
 * as the plan's mode has it. Layers that are loaded and not needed get the primary's.
 */
export function linksFor(
  layers: readonly ProfileLayer[],
  machine: Machine,
  { mode, primary, secondaries, layers: planned }: ColdStartPlan,
  isNeeded: (layer: number) => boolean,
): (number | null)[] {
  const links = [primary, ...secondaries];
  const isLoaded = (layer: number): boolean => planned[layer]!.method === 'load';
  const isMissing = (layer: number): boolean => isLoaded(layer) && isNeeded(layer);
  const dealt =
    mode === 'interleave'
      ? interleavedLinks(layers, machine, links, isMissing, 'frees')
      : partitionedLinks(layers, isMissing, links);
  return dealt.map((link, layer) => (isLoaded(layer) ? (link ?? primary) : null));
}

function partitionedLinks(
  layers: readonly ProfileLayer[],
  isLoaded: (layer: number) => boolean,
  links: readonly number[],
): (number | null)[] {
  const partitions = partitionByLoadedBytes(layers, isLoaded, links.length);
  return partitions.map((partition) => (partition === undefined ? null : links[partition]!));
}

/**
 * Layers in the order in which they execute, each to the link that `frees` first, or over which it `arrives` at the
 * primary first; of equals to the primary's. The execution then sees one loader of the links' joint bandwidth.
 */
function interleavedLinks(
  layers: readonly ProfileLayer[],
  machine: Machine,
  [primary, ...secondaries]: readonly number[],
  isLoaded: (layer: number) => boolean,
  first: 'frees' | 'arrives',
): (number | null)[] {
  const speeds = linkSpeeds(machine, primary!, secondaries);
  const issueMs = (machine.costs?.issueUs ?? 0) / 1000;
  const links = [...speeds].map(([gpu, speed]) => ({ gpu, speed, issuedMs: 0, freeMs: 0, handedOnMs: 0 }));
  type Link = (typeof links)[number];
  const after = (link: Link, layer: ProfileLayer): Link => {
    let { issuedMs, freeMs, handedOnMs } = link;
    for (const durationMs of copiesMs(layer, link.speed)) {
      if (layer.cost !== undefined) issuedMs += issueMs;
      freeMs = Math.max(freeMs, issuedMs) + durationMs;
    }
    const { nvlink } = link.speed;
    handedOnMs =
      nvlink === undefined ? freeMs : Math.max(freeMs, handedOnMs) + nvlink.setupMs + layer.bytes * nvlink.msPerByte;
    return { ...link, issuedMs, freeMs, handedOnMs };
  };
  return layers.map((layer, index) => {
    if (!isLoaded(index)) return null;
    const keys = links.map((link) => (first === 'frees' ? link.freeMs : after(link, layer).handedOnMs));
    const chosen = keys.indexOf(Math.min(...keys));
    links[chosen] = after(links[chosen]!, layer);
    return links[chosen].gpu;
  });
}

function copiesMs({ load, cost }: ProfileLayer, { slowdown, setupMs, msPerByte }: LinkSpeed): number[] {
  return cost === undefined ? [load * slowdown] : cost.tensorBytes.map((bytes) => setupMs + bytes * msPerByte);
}
