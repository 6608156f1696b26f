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

/** A plan from host memory may be this much slower than one that loads everything: it needs less GPU memory. */
const slowdownForMemory = 1.01;

/**
 * Plans the cold start of a function: the method of each layer, and the link that loads it. On a machine where no GPU
 * can help the primary (section 4.3.3), `pt`, `pt+dha` and `interleave` come out as `pipeswitch` and `dha` do. Layers
 * that execute from host memory do so in every partition, as in the authors' engine (the paper would load them there).
 *
 * `interleave` gives each layer to the link that frees first; where another way to deal out the layers is faster by the
 * timeline, it takes that.
 *
 * Of a measured profile the methods are Algorithm 1's, whatever comes of them. Of an estimate the timeline knows more
 * than the algorithm does (what issuing costs, that reads of host memory hold up copies): where it shows the plan to be
 * more than 1% slower than loading every layer, every layer is loaded.
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
  const planner = new ModePlanner(profile, machine, mode, primary);
  if (options.methods !== undefined) return planner.plan(options.methods);
  if (!usesHostAccess(mode)) return planner.plan(loadAll(profile));
  const methods = deepPlan(profile);
  const isEstimate = profile.layers.some(({ cost }) => cost !== undefined);
  return isEstimate ? planner.planWithin(methods, loadAll(profile)) : planner.plan(methods);
}

interface Timed {
  readonly plan: ColdStartPlan;
  readonly latencyMs: number;
}

/** Plans of one mode for one profile, under different methods. */
class ModePlanner {
  readonly #profile: Pick<LayerProfile, 'layers'>;
  readonly #machine: Machine;
  readonly #mode: ColdStartMode;
  readonly #primary: number;
  readonly #secondaries: readonly number[];

  constructor(profile: Pick<LayerProfile, 'layers'>, machine: Machine, mode: ColdStartMode, primary: number) {
    this.#profile = profile;
    this.#machine = machine;
    this.#mode = mode;
    this.#primary = primary;
    this.#secondaries = usesAllLinks(mode) ? secondaryGpus(machine, primary) : [];
  }

  plan(methods: readonly LayerMethod[]): ColdStartPlan {
    return this.#deals ? this.#best(methods).plan : this.#partitioned(methods);
  }

  /** The plan of `methods`, or that of `fallback` where it is clearly faster. */
  planWithin(methods: readonly LayerMethod[], fallback: readonly LayerMethod[]): ColdStartPlan {
    if (!this.#deals) return this.#settled(methods, fallback, (own) => this.#partitioned(own)).plan;
    const [own, other] = [this.#best(methods), this.#best(fallback)];
    // What the modes that do not deal out layers one by one come to must not be better.
    const simplest = this.#settled(methods, fallback, (each) => this.#alone(each));
    const halves = this.#settled(methods, fallback, (each) => this.#partitioned(each));
    const boundMs = Math.min(other.latencyMs * slowdownForMemory, simplest.latencyMs, halves.latencyMs);
    return own.latencyMs <= boundMs ? own.plan : other.plan;
  }

  get #deals(): boolean {
    return this.#mode === 'interleave' && this.#secondaries.length > 0;
  }

  #settled(
    methods: readonly LayerMethod[],
    fallback: readonly LayerMethod[],
    planOf: (methods: readonly LayerMethod[]) => ColdStartPlan,
  ): Timed {
    const [own, other] = [this.#timed(planOf(methods)), this.#timed(planOf(fallback))];
    return own.latencyMs <= other.latencyMs * slowdownForMemory ? own : other;
  }

  /** The fastest way to deal out the layers. */
  #best(methods: readonly LayerMethod[]): Timed {
    const { layers } = this.#profile;
    const links = [this.#primary, ...this.#secondaries];
    const isLoaded = (layer: number): boolean => methods[layer] === 'load';
    // One layer that holds most weights (VGG's first matrix) is better not handed on, nor queued behind small ones.
    return [
      this.#finish(methods, interleavedLinks(layers, this.#machine, links, isLoaded, 'frees')),
      this.#finish(methods, interleavedLinks(layers, this.#machine, links, isLoaded, 'arrives')),
      this.#partitioned(methods),
      this.#alone(methods),
    ]
      .map((plan) => this.#timed(plan))
      .reduce((best, each) => (each.latencyMs < best.latencyMs ? each : best));
  }

  #partitioned(methods: readonly LayerMethod[]): ColdStartPlan {
    const links = [this.#primary, ...this.#secondaries];
    return this.#finish(
      methods,
      partitionedLinks(this.#profile.layers, (layer) => methods[layer] === 'load', links),
    );
  }

  /** Over the primary's link alone. */
  #alone(methods: readonly LayerMethod[]): ColdStartPlan {
    const links = methods.map((method) => (method === 'load' ? this.#primary : null));
    return { ...this.#finish(methods, links), secondaries: [] };
  }

  #timed(plan: ColdStartPlan): Timed {
    return { plan, latencyMs: simulate(this.#profile, this.#machine, plan).latencyMs };
  }

  #finish(methods: readonly LayerMethod[], links: readonly (number | null)[]): ColdStartPlan {
    const { layers } = this.#profile;
    return {
      mode: this.#mode,
      primary: this.#primary,
      secondaries: this.#secondaries,
      layers: layers.map(({ name }, index): LayerPlan => ({ name, method: methods[index]!, link: links[index]! })),
      bytesGpu: layers.reduce((sum, { bytes }, index) => sum + (methods[index] === 'load' ? bytes : 0), 0),
    };
  }
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
