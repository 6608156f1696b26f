import type { GraphProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { gpuBytesOf, gpuDevice, selectCores, selectDevices, type Devices } from './devices.ts';
import { coreCountOf, networkOf, type Network } from './network.ts';
import { topologicalOrder } from './order.ts';
import { timelineOf } from './timeline.ts';

export interface ChrionOptions {
  /** Most cores that a plan may use: k. Default: as many as the profile has times for. */
  readonly cores?: number;
}

/** Where an operator runs, from when to when. */
export interface PlacedOperator {
  readonly name: string;
  readonly device: 'gpu' | 'cpu';
  /** 1 and up; undefined on the GPU. */
  readonly core: number | undefined;
  readonly startMs: number;
  readonly endMs: number;
}

/** A copy of a tensor between host and GPU; the GPU does nothing else meanwhile. */
export interface PlacedCopy {
  readonly from: string;
  readonly to: string;
  readonly direction: 'to-gpu' | 'to-cpu';
  readonly startMs: number;
  readonly endMs: number;
}

/** Operators that one core runs by one call: their inputs are all there before it, their outputs all there after it. */
export interface PlacedSegment {
  /** 1 and up. */
  readonly core: number;
  /** In the order in which they run. */
  readonly operators: readonly string[];
  readonly startMs: number;
  readonly endMs: number;
}

export interface ChrionPlan {
  /** End of the last operator, milliseconds (Equation 1). */
  readonly latencyMs: number;
  /** GPU memory, bytes (Equation 4): what the operators there need, without what the GPU's own software takes. */
  readonly gpuBytes: number;
  /** Cores that the plan uses: k*; 0 when everything runs on the GPU. */
  readonly cores: number;
  /** Weight of GPU memory that led to the plan, milliseconds per megabyte. */
  readonly alpha: number;
  /** Every operator, in the order in which they were placed. */
  readonly operators: readonly PlacedOperator[];
  /** The calls on CPU cores, by their start: a core makes its calls in the order in which they stand here. */
  readonly segments: readonly PlacedSegment[];
  readonly copies: readonly PlacedCopy[];
}

interface Candidate {
  readonly devices: Devices;
  readonly cores: number;
  readonly alpha: number;
  readonly latencyMs: number;
  readonly gpuBytes: number;
}

const bytesPerMegabyte = 1e6;

/**
 * Chrion's Algorithm 2: for every number of cores k' from 0 (the GPU alone) to k, a device for each operator; then the k'
 * of the least `L + alpha M`, of equal ones the one of less memory and fewer cores.
 *
 * Takes time in proportion to k times operators and edges.
 *
 * @param alpha milliseconds of latency that a megabyte of GPU memory is worth; 0 asks for the lowest latency alone, and
 *   then the plan is never slower than the GPU by itself
 * Throws {@link PlanError} for options out of range, and where operators that the GPU cannot run have no core to run on.
 */
export function planChrion(profile: GraphProfile, options: ChrionOptions & { readonly alpha: number }): ChrionPlan {
  const { alpha } = options;
  if (!(alpha >= 0) || !Number.isFinite(alpha)) {
    throw new PlanError(`alpha is ${alpha}, but must be 0 or more milliseconds per megabyte`);
  }
  const search = searchOf(profile, options);
  return described(search, bestOf(algorithm2(search, alpha), costAt(alpha)));
}

/**
 * The plan of lowest latency. The paper's Latency-Optimal pattern is Algorithm 2 with alpha 0 ({@link planChrion}); its
 * greedy choice is led astray by the copies of an operator's successors, which it cannot see, and a little reluctance to
 * use the GPU (alpha up to 0.3) or the CPU alone is at times up to a tenth faster. So all of these are tried.
 */
export function planLatencyOptimal(profile: GraphProfile, options: ChrionOptions = {}): ChrionPlan {
  const search = searchOf(profile, options);
  return described(search, latencyOptimal(search));
}

export interface MemoryOptimalOptions extends ChrionOptions {
  /** Latency that must not be exceeded, in milliseconds. Default: that of the GPU alone. */
  readonly latencyLimitMs?: number;
}

/**
 * The plan of least GPU memory within a latency: over alpha from 0 to 1 and every k', as in the paper's Memory-Optimal
 * pattern (6.2, 6.3), and the CPU alone. Never more memory than {@link planLatencyOptimal} or the paper's
 * Latency-Optimal pattern. Undefined when nothing is as
 * fast as `latencyLimitMs`.
 */
export function planMemoryOptimal(profile: GraphProfile, options: MemoryOptimalOptions = {}): ChrionPlan | undefined {
  const search = searchOf(profile, options);
  const fastest = latencyOptimal(search);
  const gpuAlone = candidate(search, selectDevices(search.network, search.order, 0, 0), 0, 0);
  // An operator that the GPU cannot run makes that Infinity, and then the fastest plan is what there is to compare with.
  const patternLimitMs = gpuAlone.latencyMs === Infinity ? fastest.latencyMs : gpuAlone.latencyMs;
  const limitMs = options.latencyLimitMs ?? patternLimitMs;
  const within = (found: readonly Candidate[]): Candidate[] => found.filter(({ latencyMs }) => latencyMs <= limitMs);

  const coarse = Array.from({ length: 21 }, (_, step) => step * 0.05);
  const found = within([
    gpuAlone,
    fastest,
    ...cpuAlone(search),
    ...coarse.flatMap((alpha) => algorithm2(search, alpha)),
  ]);
  if (found.length === 0) return undefined;
  const { alpha: near } = bestOf(found, leastBytes);
  const fine = [-0.04, -0.03, -0.02, -0.01, 0.01, 0.02, 0.03, 0.04].map((step) => near + step);
  found.push(...within(fine.filter((alpha) => alpha > 0).flatMap((alpha) => algorithm2(search, alpha))));
  return described(search, bestOf(found, leastBytes));
}

/** Everything on the GPU; undefined when an operator cannot run there. */
export function planGpuOnly(profile: GraphProfile): ChrionPlan | undefined {
  const search = searchOf(profile, { cores: 0 });
  const only = candidate(search, selectDevices(search.network, search.order, 0, 0), 0, 0);
  return only.latencyMs === Infinity ? undefined : described(search, only);
}

/** Everything on the CPU, on the number of cores that ends first. */
export function planCpuOnly(profile: GraphProfile, options: ChrionOptions = {}): ChrionPlan {
  const search = searchOf(profile, options);
  if (search.cores === 0) throw new PlanError('cores is 0, but a plan for the CPU alone needs one or more');
  return described(
    search,
    bestOf(cpuAlone(search), ({ latencyMs }) => latencyMs),
  );
}

interface Search {
  readonly network: Network;
  readonly order: Int32Array;
  readonly cores: number;
}

function searchOf(profile: GraphProfile, options: ChrionOptions): Search {
  const known = coreCountOf(profile);
  const { cores = known } = options;
  if (!Number.isInteger(cores) || cores < 0 || cores > known) {
    throw new PlanError(
      `cores is ${cores}, but must be a whole number from 0 to ${known}, which the profile has times for`,
    );
  }
  const network = networkOf(profile);
  return { network, order: topologicalOrder(network), cores };
}

function candidate({ network, order }: Search, devices: Devices, cores: number, alpha: number): Candidate {
  const { latencyMs } = timelineOf(network, order, cores, devices);
  return { devices, cores, alpha, latencyMs, gpuBytes: gpuBytesOf(network, devices) };
}

/** One candidate for every k'; without the GPU alone where that cannot run everything. */
function algorithm2(search: Search, alpha: number): Candidate[] {
  const { network, order, cores } = search;
  const gpuCannot = network.gpuMs.indexOf(Infinity);
  if (gpuCannot >= 0 && cores === 0) {
    throw new PlanError(`cores is 0, but operator '${network.names[gpuCannot]}' cannot run on the GPU`);
  }
  return Array.from({ length: cores + 1 }, (_, used) =>
    candidate(search, selectDevices(network, order, used, alpha), used, alpha),
  ).filter(({ latencyMs }) => latencyMs !== Infinity);
}

function cpuAlone(search: Search): Candidate[] {
  const { network, order, cores } = search;
  return Array.from({ length: cores }, (_, index) =>
    candidate(search, selectCores(network, order, index + 1), index + 1, 0),
  );
}

function latencyOptimal(search: Search): Candidate {
  const alphas = [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3];
  const hybrids = alphas.flatMap((alpha) => algorithm2(search, alpha));
  return bestOf([...hybrids, ...cpuAlone(search)], ({ latencyMs }) => latencyMs);
}

function costAt(alpha: number): (candidate: Candidate) => number {
  return ({ latencyMs, gpuBytes }) => latencyMs + alpha * (gpuBytes / bytesPerMegabyte);
}

function leastBytes({ gpuBytes }: Candidate): number {
  return gpuBytes;
}

/** The least cost; of equal ones less memory, lower latency, fewer cores. */
function bestOf(candidates: readonly Candidate[], cost: (candidate: Candidate) => number): Candidate {
  const [best] = candidates.toSorted(
    (a, b) => cost(a) - cost(b) || a.gpuBytes - b.gpuBytes || a.latencyMs - b.latencyMs || a.cores - b.cores,
  );
  if (best === undefined) throw new Error('there is no candidate to choose from');
  return best;
}

function described({ network, order }: Search, { devices, cores, alpha, latencyMs, gpuBytes }: Candidate): ChrionPlan {
  const { startMs, endMs, copies } = timelineOf(network, order, cores, devices);
  const name = (node: number): string => network.names[node] ?? '';
  return {
    latencyMs,
    gpuBytes,
    // A k' that left all its cores idle is the GPU alone.
    cores: devices.every((device) => device === gpuDevice) ? 0 : cores,
    alpha,
    operators: Array.from(order, (node) => {
      const device = devices[node] ?? gpuDevice;
      return {
        name: name(node),
        device: device === gpuDevice ? ('gpu' as const) : ('cpu' as const),
        core: device === gpuDevice ? undefined : device,
        startMs: startMs[node] ?? 0,
        endMs: endMs[node] ?? 0,
      };
    }),
    segments: Array.from(order)
      .filter((node) => devices[node] !== gpuDevice)
      .map((node) => ({
        core: devices[node] ?? 1,
        operators: [name(node)],
        startMs: startMs[node] ?? 0,
        endMs: endMs[node] ?? 0,
      })),
    copies: copies.map(({ from, to, direction, startMs: copyStartMs, endMs: copyEndMs }) => ({
      from: name(from),
      to: name(to),
      direction,
      startMs: copyStartMs,
      endMs: copyEndMs,
    })),
  };
}
