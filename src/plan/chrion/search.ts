import { getOrMake } from '../../tools/index.ts';
import type { GraphProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { coresByRank, cutsOf, ranksOf, type Ranks } from './cuts.ts';
import {
  bytesPerMegabyte,
  cpuSide,
  gpuBytesOf,
  gpuDevice,
  gpuSide,
  selectDevices,
  weightsOnGpu,
  type Devices,
  type Sides,
} from './devices.ts';
import { mergedCalls, type Merged } from './merging.ts';
import { coreCountOf, networkOf, type Network } from './network.ts';
import { topologicalOrder } from './order.ts';

export interface ChrionOptions {
  /** Most cores that a plan may use: k. Default: as many as the profile has times for. */
  readonly cores?: number;
}

const searches = new WeakMap<GraphProfile, Map<number, Search>>();

/**
 * The search of a profile, which no one may change. Its candidates depend on no alpha and no limit, so one search, kept
 * as long as the profile, serves all plans that are asked for.
 * @throws PlanError for more cores than the profile has times for
 */
export function searchOf(profile: GraphProfile, { cores: asked }: ChrionOptions): Search {
  const known = coreCountOf(profile);
  const cores = asked ?? known;
  if (!Number.isInteger(cores) || cores < 0 || cores > known) {
    throw new PlanError(
      `cores is ${cores}, but must be a whole number from 0 to ${known}, which the profile has times for`,
    );
  }
  const ofProfile = getOrMake(searches, profile, () => new Map<number, Search>());
  return getOrMake(ofProfile, cores, () => new Search(networkOf(profile), cores));
}

/** A selection of devices and its cost; the latency is that of quickly chosen calls until the candidate is refined. */
export interface Candidate {
  readonly devices: Devices;
  readonly cores: number;
  readonly alpha: number;
  readonly latencyMs: number;
  readonly gpuBytes: number;
}

/** Values of all GPU memory to try, in latencies of everything on the GPU. */
const alphaShares = [0, 0.03, 0.1, 0.3, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 20];
/** Most operators to place over all candidates of a front, so that large graphs are planned in a second. */
const placementsMost = 500_000;
/** Most operators in candidates whose calls are searched thoroughly. */
const refinementsMost = 80_000;

/** The candidates of one profile, in one order of placement. The cost of a repeated selection is not computed again. */
export class Search {
  readonly network: Network;
  readonly order: Int32Array;
  /** Most cores: k. */
  readonly cores: number;
  readonly #known = new Map<string, Candidate[]>();
  readonly #refinedMs = new WeakMap<Devices, number>();
  #front: Candidate[] | undefined;
  #ranks: Ranks | undefined;

  constructor(network: Network, cores: number) {
    this.network = network;
    this.cores = cores;
    this.order = topologicalOrder(network);
  }

  /** Algorithm 2 without its last line: one candidate for every k', except 0 if the GPU cannot run everything. */
  algorithm2(alpha: number, sides?: Sides, coreCounts: readonly number[] = this.#allCoreCounts()): Candidate[] {
    const { network, order } = this;
    const gpuCannot = network.gpuMs.indexOf(Infinity);
    if (gpuCannot >= 0 && this.cores === 0) {
      throw new PlanError(`cores is 0, but operator '${network.names[gpuCannot]}' cannot run on the GPU`);
    }
    const gpuMayAll = gpuCannot < 0 && sides?.includes(cpuSide) !== true;
    return coreCounts
      .filter((cores) => cores > 0 || gpuMayAll)
      .map((cores) => this.#candidate(selectDevices(network, order, cores, alpha, sides), cores, alpha));
  }

  /** Undefined if the GPU cannot run an operator. */
  gpuAlone(): Candidate | undefined {
    if (this.network.gpuMs.includes(Infinity)) return undefined;
    return this.#candidate(new Int32Array(this.network.count).fill(gpuDevice), 0, 0);
  }

  /** Everything that the GPU can run is on it, with the number of cores that ends first. */
  mostOnGpu(): Candidate | undefined {
    const { network } = this;
    const gpuAlone = this.gpuAlone();
    if (gpuAlone !== undefined || network.gpuMs.every((ms) => ms === Infinity)) return gpuAlone;
    const sides = new Uint8Array(network.count).fill(gpuSide);
    const found = this.algorithm2(0, sides, this.someCoreCounts());
    return bestOf(found, ({ latencyMs }) => latencyMs);
  }

  /** Everything on the CPU, on the number of cores that ends first. */
  cpuAlone(): Candidate {
    const sides = new Uint8Array(this.network.count).fill(cpuSide);
    return this.refined(bestOf(this.algorithm2(0, sides), ({ latencyMs }) => latencyMs));
  }

  /**
   * The Pareto front of latency and memory over one set of candidates, which depends on the profile and the cores alone:
   * Algorithm 2 at several values of memory, the GPU and the CPU alone, and coarse cuts where operators share weights.
   * On large graphs fewer values and cuts are tried.
   */
  front(): readonly Candidate[] {
    if (this.#front !== undefined) return this.#front;
    const { count, sharesWeights, weightBytes } = this.network;
    const alone = [...(this.cores > 0 ? [this.cpuAlone()] : []), ...[this.gpuAlone() ?? []].flat()];
    const placements = Math.ceil(placementsMost / Math.max(1, count));
    const allCounts = this.#allCoreCounts();
    const coreCounts = allCounts.length * alphaShares.length > placements ? this.someCoreCounts() : allCounts;
    const scale = this.#alphaScale();
    const alphas = thinned(alphaShares, Math.ceil(placements / coreCounts.length)).map((share) => share * scale);
    const found = alphas.flatMap((alpha) => this.algorithm2(alpha, undefined, coreCounts));
    if (sharesWeights) {
      const kept = new Uint8Array(weightBytes.length).fill(1);
      found.push(...this.cuts(kept, this.someCoreCounts(), Math.ceil(placements / 2)));
    }
    const refinements = Math.max(4, Math.ceil(refinementsMost / Math.max(1, count)));
    // The paper's own choice is among the candidates whatever its calls cost before they are refined.
    const printed = this.algorithm2(0, undefined, coreCounts);
    const refined = [...thinned(paretoFront(found), refinements), ...thinned(printed, refinements)].map((candidate) =>
      this.refined(candidate),
    );
    this.#front = paretoFront([...alone, ...refined]);
    return this.#front;
  }

  /** Milliseconds per megabyte at which all GPU memory is worth the latency of everything on the GPU. */
  #alphaScale(): number {
    const most = this.mostOnGpu();
    return most === undefined || most.gpuBytes === 0 ? 0 : most.latencyMs / (most.gpuBytes / bytesPerMegabyte);
  }

  /**
   * The coarse cuts through `kept` ({@link cutsOf}) for each number of cores, with cores chosen in two ways.
   * @param kept 1 for each of the weights that may be on the GPU
   * @param most about how many candidates are made
   */
  cuts(kept: Uint8Array, coreCounts: readonly number[], most = Infinity): Candidate[] {
    const { network, order } = this;
    const ranks = (this.#ranks ??= ranksOf(network, order));
    const used = coreCounts.filter((cores) => cores > 0);
    return thinned(cutsOf(network, ranks, kept), Math.ceil(most / (2 * Math.max(1, used.length)))).flatMap((sides) =>
      used.flatMap((cores) => [
        this.#candidate(selectDevices(network, order, cores, 0, sides), cores, 0),
        this.#candidate(coresByRank(network, ranks, sides, cores), cores, 0),
      ]),
    );
  }

  /** 1 for each of the weights that a candidate keeps on the GPU. */
  weightsOf({ devices }: Candidate): Uint8Array {
    return weightsOnGpu(this.network, devices);
  }

  /** The same selection with the best calls found for it. */
  refined(candidate: Candidate): Candidate {
    const make = (): number => this.merged(candidate).latencyMs;
    return { ...candidate, latencyMs: getOrMake(this.#refinedMs, candidate.devices, make) };
  }

  merged({ devices, cores }: Candidate): Merged {
    return mergedCalls(this.network, this.order, cores, devices, 'thorough');
  }

  /** Every number of cores up to 4; else powers of two, and all. */
  someCoreCounts(): number[] {
    return this.#allCoreCounts().filter(
      (cores) => this.cores <= 4 || cores === this.cores || (cores & (cores - 1)) === 0,
    );
  }

  #allCoreCounts(): number[] {
    return Array.from({ length: this.cores + 1 }, (_, cores) => cores);
  }

  #candidate(devices: Devices, cores: number, alpha: number): Candidate {
    const key = `${cores}:${hashOf(devices)}`;
    const alike = this.#known.get(key) ?? [];
    const known = alike.find((candidate) => candidate.devices.every((device, node) => device === devices[node]));
    // Alpha is part of a candidate's description, but not of its cost.
    if (known !== undefined) return { ...known, alpha };
    const { latencyMs } = mergedCalls(this.network, this.order, cores, devices, 'quick');
    const candidate = { devices, cores, alpha, latencyMs, gpuBytes: gpuBytesOf(this.network, devices) };
    this.#known.set(key, [...alike, candidate]);
    return candidate;
  }
}

/** At most so many of them, evenly, the first and the last among them. */
function thinned<Item>(items: readonly Item[], most: number): Item[] {
  if (items.length <= most) return [...items];
  const step = (items.length - 1) / Math.max(1, most - 1);
  return Array.from({ length: Math.max(1, most) }, (_, index) => items[Math.round(index * step)]!);
}

function hashOf(devices: Devices): number {
  let hash = 0x811c9dc5;
  for (const device of devices) hash = Math.imul(hash ^ device, 0x01000193);
  return hash;
}

/**
 * The candidates that no other beats in latency or memory without being worse in the other; the fastest first, which is
 * the largest. Of equal ones the one with fewest cores.
 */
export function paretoFront(candidates: readonly Candidate[]): Candidate[] {
  const front: Candidate[] = [];
  for (const candidate of candidates.toSorted(
    (a, b) => a.latencyMs - b.latencyMs || a.gpuBytes - b.gpuBytes || a.cores - b.cores,
  )) {
    if (candidate.gpuBytes < (front.at(-1)?.gpuBytes ?? Infinity)) front.push(candidate);
  }
  return front;
}

/**
 * The candidate of a front with the least `L + alpha M`; of equal ones the one with less memory. The corners of the
 * front's lower convex hull are found once for all alphas, so a larger alpha never gives one with more memory, however
 * sums are rounded.
 * @param front as {@link paretoFront} gives it, not empty
 */
export function cheapestOf(front: readonly Candidate[], alpha: number): Candidate {
  const corners: { readonly candidate: Candidate; readonly fromAlpha: number }[] = [];
  for (const candidate of front) {
    let fromAlpha = 0;
    for (let above = corners.at(-1); above !== undefined; above = corners.at(-1)) {
      fromAlpha = worthOf(above.candidate, candidate);
      if (fromAlpha > above.fromAlpha || corners.length === 1) break;
      corners.pop();
    }
    corners.push({ candidate, fromAlpha });
  }
  const chosen = corners.findLast(({ fromAlpha }) => fromAlpha <= alpha)?.candidate;
  if (chosen === undefined) throw new Error('the front is empty');
  return chosen;
}

/** The alpha at which two candidates cost the same. */
const worthOf = (large: Candidate, small: Candidate): number =>
  (small.latencyMs - large.latencyMs) / ((large.gpuBytes - small.gpuBytes) / bytesPerMegabyte);

/** The least cost; of equal ones less memory, lower latency, fewer cores. */
export function bestOf(candidates: readonly Candidate[], cost: (candidate: Candidate) => number): Candidate {
  const [best] = candidates.toSorted(
    (a, b) => cost(a) - cost(b) || a.gpuBytes - b.gpuBytes || a.latencyMs - b.latencyMs || a.cores - b.cores,
  );
  if (best === undefined) throw new Error('there is no candidate to choose from');
  return best;
}
