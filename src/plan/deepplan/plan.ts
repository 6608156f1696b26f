import type { Machine } from '../../hardware/index.ts';
import { linkBytes, type LayerProfile, type ProfileLayer } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { deepPlan, loadAll, type LayerMethod } from './algorithm.ts';
import { simulate } from './timeline.ts';
import { linkSpeeds, partitionByLoadedBytes, secondaryGpus, whyAlone, type LinkSpeed } from './transmission.ts';
import { ownLinkMode, type ColdStartMode, type ColdStartPlan, type LayerPlan } from './types.ts';

export interface PlanOptions {
  /** The GPU that executes; default: 0. */
  readonly primary?: number;
  /** Methods to use instead of those of the mode's own planner. */
  readonly methods?: readonly LayerMethod[];
}

const usesHostAccess = (mode: ColdStartMode): boolean => mode === 'dha' || mode === 'pt+dha' || mode === 'interleave';
const usesAllLinks = (mode: ColdStartMode): boolean => mode === 'pt' || mode === 'pt+dha' || mode === 'interleave';

/** A plan from host memory is worth its reads where its cold start is predicted to be this much faster, */
const gainLeast = 1.02;
/** or where it leaves this share of the weights off the GPU, so that more functions fit, and is hardly slower. */
const freedLeast = 0.05;
const slowdownForMemory = 1.01;

/**
 * Plans the cold start of a function: the method of each layer, and the link that loads it. If no GPU can help the
 * primary (section 4.3.3), `pt`, `pt+dha` and `interleave` equal `pipeswitch` and `dha`, and the plan says so. Layers that execute from host
 * memory do so in every partition, as in the authors' engine (the paper would load them there).
 *
 * `interleave` gives each layer to the link that is free first, or assigns them in another way if the timeline is
 * faster.
 *
 * The timeline knows more than Algorithm 1 (the cost of issuing, and that reads of host memory delay copies). Every
 * layer is loaded unless the timeline shows Algorithm 1's methods to be 2% faster, or they keep 5% of the weights off
 * the GPU and are at most 1% slower.
 * @throws PlanError for a GPU that the machine does not have
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
  const planner = modePlanner(profile, machine, mode, primary);
  if (options.methods !== undefined) return planner.plan(options.methods);
  if (!usesHostAccess(mode)) return planner.plan(loadAll(profile));
  return planner.planWithin(deepPlan(profile), loadAll(profile));
}

interface Timed {
  readonly plan: ColdStartPlan;
  readonly latencyMs: number;
}

/** Whether a plan that reads host memory is better than one that loads everything. */
function isWorth(own: Timed, all: Timed): boolean {
  if (own.latencyMs * gainLeast <= all.latencyMs) return true;
  const isFreeing = own.plan.bytesGpu <= (1 - freedLeast) * all.plan.bytesGpu;
  return isFreeing && own.latencyMs <= all.latencyMs * slowdownForMemory;
}

/** Plans of one mode for one profile, with different methods. */
function modePlanner({ layers }: Pick<LayerProfile, 'layers'>, machine: Machine, mode: ColdStartMode, primary: number) {
  const secondaries = usesAllLinks(mode) ? secondaryGpus(machine, primary) : [];
  const links = [primary, ...secondaries];
  const deals = mode === 'interleave' && secondaries.length > 0;

  function plan(methods: readonly LayerMethod[]): ColdStartPlan {
    return deals ? best(methods).plan : partitioned(methods);
  }

  /** The plan of `methods`, or that of `fallback` if it is not worth it. */
  function planWithin(methods: readonly LayerMethod[], fallback: readonly LayerMethod[]): ColdStartPlan {
    if (!deals) return settled(methods, fallback, partitioned).plan;
    const [own, other] = [best(methods), best(fallback)];
    // The plan must not be slower than those of modes that do not assign layers one by one.
    const simplest = settled(methods, fallback, alone);
    const halves = settled(methods, fallback, partitioned);
    const isKept = isWorth(own, other) && own.latencyMs <= Math.min(simplest.latencyMs, halves.latencyMs);
    return isKept ? own.plan : other.plan;
  }

  function settled(
    methods: readonly LayerMethod[],
    fallback: readonly LayerMethod[],
    planOf: (methods: readonly LayerMethod[]) => ColdStartPlan,
  ): Timed {
    const [own, other] = [timed(planOf(methods)), timed(planOf(fallback))];
    return isWorth(own, other) ? own : other;
  }

  /** The fastest way to assign the layers to links. */
  function best(methods: readonly LayerMethod[]): Timed {
    const isLoaded = (layer: number): boolean => methods[layer] === 'load';
    // A layer with most of the weights (VGG's first matrix) should not go over NVLink, nor queue behind small ones.
    return [
      finish(methods, interleavedLinks(layers, machine, links, isLoaded, 'frees')),
      finish(methods, interleavedLinks(layers, machine, links, isLoaded, 'arrives')),
      partitioned(methods),
      alone(methods),
    ]
      .map(timed)
      .reduce((fastest, each) => (each.latencyMs < fastest.latencyMs ? each : fastest));
  }

  function partitioned(methods: readonly LayerMethod[]): ColdStartPlan {
    return finish(
      methods,
      partitionedLinks(layers, (layer) => methods[layer] === 'load', links),
    );
  }

  /** Over the primary's link alone. */
  function alone(methods: readonly LayerMethod[]): ColdStartPlan {
    const own = methods.map((method) => (method === 'load' ? primary : null));
    const plan = { ...finish(methods, own), secondaries: [] };
    return secondaries.length === 0
      ? plan
      : { ...plan, instead: { mode: ownLinkMode[mode], why: '1 link: others would not be faster' } };
  }

  function timed(plan: ColdStartPlan): Timed {
    return { plan, latencyMs: simulate({ layers }, machine, plan).latencyMs };
  }

  function finish(methods: readonly LayerMethod[], given: readonly (number | null)[]): ColdStartPlan {
    return {
      mode,
      primary,
      secondaries,
      ...(usesAllLinks(mode) && secondaries.length === 0
        ? { instead: { mode: ownLinkMode[mode], why: whyAlone(machine, primary) } }
        : {}),
      layers: layers.map(({ name }, index): LayerPlan => ({ name, method: methods[index]!, link: given[index]! })),
      bytesGpu: layers.reduce((sum, { bytes }, index) => sum + (methods[index] === 'load' ? bytes : 0), 0),
    };
  }

  return { plan, planWithin };
}

/**
 * The link of each layer if only the layers of `isNeeded` have to be loaded: by partitions or layer by layer, depending
 * on the mode. Layers that are loaded but not needed get the primary's link.
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
 * Assigns layers in order of execution, each to the link that `frees` first, or over which it `arrives` at the primary
 * first; of equals to the primary's. The execution then sees one loader with the links' joint bandwidth.
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
      nvlink === undefined
        ? freeMs
        : Math.max(freeMs, handedOnMs) + nvlink.setupMs + linkBytes(layer) * nvlink.msPerByte;
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
