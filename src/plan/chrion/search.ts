import { getOrMake } from '../../tools/index.ts';
import type { GraphProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { coresByRank, cutsOf, ranksOf, type Ranks } from './cuts.ts';
import {
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

/** A selection of devices and its cost; the latency is that of quickly chosen calls until the candidate is refined. */
export interface Candidate {
  readonly devices: Devices;
  readonly cores: number;
  readonly alpha: number;
  readonly latencyMs: number;
  readonly gpuBytes: number;
}

export const bytesPerMegabyte = 1e6;

/** The candidates of one profile, in one order of placement. The cost of a repeated selection is not computed again. */
export class Search {
  readonly network: Network;
  readonly order: Int32Array;
  /** Most cores: k. */
  readonly cores: number;
  readonly #known = new Map<string, Candidate[]>();
  readonly #refinedMs = new WeakMap<Devices, number>();
  #ranks: Ranks | undefined;

  /** @throws PlanError for more cores than the profile has times for */
  constructor(profile: GraphProfile, { cores: asked }: ChrionOptions) {
    const known = coreCountOf(profile);
    this.cores = asked ?? known;
    if (!Number.isInteger(this.cores) || this.cores < 0 || this.cores > known) {
      throw new PlanError(
        `cores is ${this.cores}, but must be a whole number from 0 to ${known}, which the profile has times for`,
      );
    }
    this.network = networkOf(profile);
    this.order = topologicalOrder(this.network);
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

  /** One candidate for every k'. */
  cpuAlone(): Candidate[] {
    const sides = new Uint8Array(this.network.count).fill(cpuSide);
    return this.algorithm2(0, sides);
  }

  /**
   * The coarse cuts through `kept` ({@link cutsOf}) for each number of cores, with cores chosen in two ways.
   * @param kept 1 for each of the weights that may be on the GPU
   */
  cuts(kept: Uint8Array, coreCounts: readonly number[]): Candidate[] {
    const { network, order } = this;
    const ranks = (this.#ranks ??= ranksOf(network, order));
    const used = coreCounts.filter((cores) => cores > 0);
    return cutsOf(network, ranks, kept).flatMap((sides) =>
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

/** The least cost; of equal ones less memory, lower latency, fewer cores. */
export function bestOf(candidates: readonly Candidate[], cost: (candidate: Candidate) => number): Candidate {
  const [best] = candidates.toSorted(
    (a, b) => cost(a) - cost(b) || a.gpuBytes - b.gpuBytes || a.latencyMs - b.latencyMs || a.cores - b.cores,
  );
  if (best === undefined) throw new Error('there is no candidate to choose from');
  return best;
}
