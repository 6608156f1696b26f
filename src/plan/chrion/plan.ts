import type { GraphProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { gpuDevice } from './devices.ts';
import { bestOf, bytesPerMegabyte, paretoFront, Search, type Candidate, type ChrionOptions } from './search.ts';

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

/**
 * Chrion's Algorithm 2: for every number of cores k' from 0 (the GPU alone) to k, a device for each operator; then the
 * k' of the least `L + alpha M`, of equal ones the one of less memory and fewer cores.
 *
 * Takes time in proportion to k times operators and edges. A larger alpha mostly means less memory, but not always: one
 * operator that moves to the CPU changes what is free when for all after it. {@link planVariants} gives plans that never
 * take more than the one before.
 *
 * @param alpha milliseconds of latency that a megabyte of GPU memory is worth; 0 asks for the lowest latency alone, and
 *   then the plan is never slower than the GPU by itself
 * Throws {@link PlanError} for options out of range, and where operators that the GPU cannot run have no core to run
 * on.
 */
export function planChrion(profile: GraphProfile, options: ChrionOptions & { readonly alpha: number }): ChrionPlan {
  const { alpha } = options;
  if (!(alpha >= 0) || !Number.isFinite(alpha)) {
    throw new PlanError(`alpha is ${alpha}, but must be 0 or more milliseconds per megabyte`);
  }
  const search = new Search(profile, options);
  return described(search, bestOf(refined(search, search.algorithm2(alpha)), costAt(alpha)));
}

/**
 * The plan of lowest latency. The paper's Latency-Optimal pattern is Algorithm 2 with alpha 0 ({@link planChrion}); its
 * greedy choice is led astray by the copies of an operator's successors, which it cannot see, and a little reluctance
 * to use the GPU (alpha up to 0.3) or the CPU alone is at times up to a tenth faster. So all of these are tried, and
 * where operators share weights whole layers on one side or the other as well.
 */
export function planLatencyOptimal(profile: GraphProfile, options: ChrionOptions = {}): ChrionPlan {
  const search = new Search(profile, options);
  return described(search, latencyOptimal(search));
}

export interface MemoryOptimalOptions extends ChrionOptions {
  /** Latency that must not be exceeded, in milliseconds. Default: that of the GPU alone. */
  readonly latencyLimitMs?: number;
}

/**
 * The plan of least GPU memory within a latency: over alpha from 0 to 1 and every k', as in the paper's Memory-Optimal
 * pattern (6.2, 6.3), the CPU alone, and where operators share weights whole layers on one side or the other. Never
 * more memory than {@link planLatencyOptimal}. Undefined when nothing is as fast as `latencyLimitMs`.
 */
export function planMemoryOptimal(profile: GraphProfile, options: MemoryOptimalOptions = {}): ChrionPlan | undefined {
  const search = new Search(profile, options);
  const fastest = latencyOptimal(search);
  const gpuAlone = search.gpuAlone();
  // Where there is an operator that the GPU cannot run, the fastest plan is what there is to compare with.
  const limitMs = options.latencyLimitMs ?? (gpuAlone ?? fastest).latencyMs;
  const within = (found: readonly Candidate[]): Candidate[] => found.filter(({ latencyMs }) => latencyMs <= limitMs);

  const coarse = Array.from({ length: 21 }, (_, step) => step * 0.05);
  const found = [
    ...(gpuAlone === undefined ? [] : [gpuAlone]),
    fastest,
    ...search.cpuAlone(),
    ...coarseCuts(search),
    ...coarse.flatMap((alpha) => search.algorithm2(alpha)),
  ];
  const first = within(refined(search, [fastest, ...paretoFront(found)]));
  if (first.length === 0) return undefined;
  const { alpha: near } = bestOf(first, leastBytes);
  const fine = [-0.04, -0.03, -0.02, -0.01, 0.01, 0.02, 0.03, 0.04].map((step) => near + step);
  const nearby = fine.filter((alpha) => alpha > 0).flatMap((alpha) => search.algorithm2(alpha));
  return described(search, bestOf([...first, ...within(refined(search, paretoFront(nearby)))], leastBytes));
}

/** Everything on the GPU; undefined when an operator cannot run there. */
export function planGpuOnly(profile: GraphProfile): ChrionPlan | undefined {
  const search = new Search(profile, { cores: 0 });
  const only = search.gpuAlone();
  return only === undefined ? undefined : described(search, only);
}

/** Everything on the CPU, on the number of cores that ends first. */
export function planCpuOnly(profile: GraphProfile, options: ChrionOptions = {}): ChrionPlan {
  const search = new Search(profile, options);
  if (search.cores === 0) throw new PlanError('cores is 0, but a plan for the CPU alone needs one or more');
  return described(
    search,
    bestOf(refined(search, search.cpuAlone()), ({ latencyMs }) => latencyMs),
  );
}

function latencyOptimal(search: Search): Candidate {
  const alphas = [0.05, 0.1, 0.15, 0.2, 0.25, 0.3];
  const paper = search.algorithm2(0);
  const others = [...alphas.flatMap((alpha) => search.algorithm2(alpha)), ...coarseCuts(search)];
  const cpuAlone = search.cpuAlone();
  const found = refined(search, [...paper, ...paretoFront([...paper, ...others, ...cpuAlone]), ...cpuAlone]);
  return bestOf(found, ({ latencyMs }) => latencyMs);
}

function refined(search: Search, candidates: readonly Candidate[]): Candidate[] {
  return candidates.map((candidate) => search.refined(candidate));
}

/**
 * Where operators share weights, as those of unrolled layers do, whole layers are moved as well; the paper has none.
 */
function coarseCuts(search: Search): Candidate[] {
  const { sharesWeights, weightBytes } = search.network;
  if (!sharesWeights) return [];
  return search.cuts(new Uint8Array(weightBytes.length).fill(1), search.someCoreCounts());
}

function costAt(alpha: number): (candidate: Candidate) => number {
  return ({ latencyMs, gpuBytes }) => latencyMs + alpha * (gpuBytes / bytesPerMegabyte);
}

function leastBytes({ gpuBytes }: Candidate): number {
  return gpuBytes;
}

export function described(search: Search, candidate: Candidate): ChrionPlan {
  const { alpha, latencyMs, gpuBytes } = candidate;
  const { lanes, starts, timeline } = search.merged(candidate);
  const copies = timeline.copies(starts);
  const { startMs, endMs } = timeline;
  const { nodes, laneOf, startOf } = lanes;
  const name = (position: number): string => search.network.names[nodes[position] ?? 0] ?? '';
  const heads = [...nodes.keys()].filter((position) => laneOf[position] !== gpuDevice && starts[position] === 1);
  return {
    latencyMs,
    gpuBytes,
    // A k' that left all its cores idle is the GPU alone.
    cores: startOf[1] === lanes.count ? 0 : candidate.cores,
    alpha,
    operators: Array.from(lanes.placed, (position) => {
      const lane = laneOf[position] ?? gpuDevice;
      return {
        name: name(position),
        device: lane === gpuDevice ? ('gpu' as const) : ('cpu' as const),
        core: lane === gpuDevice ? undefined : lane,
        startMs: startMs[position] ?? 0,
        endMs: endMs[position] ?? 0,
      };
    }),
    segments: heads
      .map((head, index) => {
        const end = heads[index + 1] ?? lanes.count;
        return {
          core: laneOf[head] ?? 1,
          operators: Array.from({ length: end - head }, (_, place) => name(head + place)),
          startMs: (startMs[head] ?? 0) - lanes.callMs,
          endMs: endMs[end - 1] ?? 0,
        };
      })
      // Calls of no length may start at the same time: the sort is stable and keeps the order of a core.
      .sort((a, b) => a.startMs - b.startMs),
    copies: copies
      .map(({ from, to, direction, startMs: copyStartMs, endMs: copyEndMs }) => ({
        from: name(from),
        to: name(to),
        direction,
        startMs: copyStartMs,
        endMs: copyEndMs,
      }))
      .sort((a, b) => a.startMs - b.startMs),
  };
}
