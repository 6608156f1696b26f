import type { GraphProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { gpuDevice } from './devices.ts';
import { bestOf, bytesPerMegabyte, paretoFront, Search, type Candidate, type ChrionOptions } from './search.ts';

export type ChrionPlan = ReturnType<typeof described>;

/**
 * Chrion's Algorithm 2: for every number of cores k' from 0 (the GPU alone) to k, a device for each operator; then the
 * k' with the least `L + alpha M`, of equal ones the one with less memory and fewer cores.
 *
 * The time is proportional to k times operators and edges. A larger alpha mostly means less memory, but not always: one
 * operator that moves to the CPU changes what is free for all later ones. {@link planVariants} gives plans that never
 * take more than the one before.
 * @param alpha milliseconds of latency that a megabyte of GPU memory is worth. With 0 only latency counts, and the plan
 * is never slower than the GPU alone.
 * @throws PlanError for options out of range, and if operators that the GPU cannot run have no core
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
 * The plan of lowest latency. The paper's Latency-Optimal pattern is Algorithm 2 with alpha 0 ({@link planChrion}). Its
 * greedy choice cannot see the copies of an operator's successors, so a little reluctance to use the GPU (alpha up to
 * 0.3), or the CPU alone, can be up to a tenth faster. All of these are tried; if operators share weights, whole layers
 * on one side too.
 */
export function planLatencyOptimal(profile: GraphProfile, options: ChrionOptions = {}): ChrionPlan {
  const search = new Search(profile, options);
  return described(search, latencyOptimal(search));
}

export interface MemoryOptimalOptions extends ChrionOptions {
  /** Latency limit in milliseconds. Default: that of the GPU alone. */
  readonly latencyLimitMs?: number;
}

/**
 * The plan of least GPU memory within a latency, over alpha from 0 to 1 and every k', as in the paper's Memory-Optimal
 * pattern (6.2, 6.3); also the CPU alone and, if operators share weights, whole layers on one side. Never more memory
 * than {@link planLatencyOptimal}. Undefined if nothing is as fast as `latencyLimitMs`.
 */
export function planMemoryOptimal(profile: GraphProfile, options: MemoryOptimalOptions = {}): ChrionPlan | undefined {
  const search = new Search(profile, options);
  const fastest = latencyOptimal(search);
  const gpuAlone = search.gpuAlone();
  // If the GPU cannot run an operator, the fastest plan is the reference.
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

/** Everything on the GPU; undefined if it cannot run an operator. */
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

/** If operators share weights, as in unrolled layers, also moves whole layers; the paper does not. */
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

export function described(search: Search, candidate: Candidate) {
  const { alpha, latencyMs, gpuBytes } = candidate;
  const { lanes, starts, timeline } = search.merged(candidate);
  const copies = timeline.copies(starts);
  const { startMs, endMs } = timeline;
  const { nodes, laneOf, startOf } = lanes;
  const name = (position: number): string => search.network.names[nodes[position] ?? 0] ?? '';
  const heads = [...nodes.keys()].filter((position) => laneOf[position] !== gpuDevice && starts[position] === 1);
  return {
    /** End of the last operator, milliseconds (Equation 1). */
    latencyMs,
    /** GPU memory, bytes (Equation 4): what the operators there need, without the GPU's own software. */
    gpuBytes,
    // A k' that leaves all its cores idle is the GPU alone.
    /** Cores that the plan uses: k*; 0 if everything runs on the GPU. */
    cores: startOf[1] === lanes.count ? 0 : candidate.cores,
    /** The alpha that led to this plan, milliseconds per megabyte of GPU memory. */
    alpha,
    /** Where and when each operator runs, in order of placement. */
    operators: Array.from(lanes.placed, (position) => {
      const lane = laneOf[position] ?? gpuDevice;
      return {
        name: name(position),
        device: lane === gpuDevice ? ('gpu' as const) : ('cpu' as const),
        /** From 1; undefined on the GPU. */
        core: lane === gpuDevice ? undefined : lane,
        startMs: startMs[position] ?? 0,
        endMs: endMs[position] ?? 0,
      };
    }),
    /**
     * The calls on CPU cores, by start: also the order of each core's calls. All inputs of a call are there before it,
     * all its outputs after it.
     */
    segments: heads
      .map((head, index) => {
        const end = heads[index + 1] ?? lanes.count;
        return {
          /** From 1. */
          core: laneOf[head] ?? 1,
          /** In order of execution. */
          operators: Array.from({ length: end - head }, (_, place) => name(head + place)),
          startMs: (startMs[head] ?? 0) - lanes.callMs,
          endMs: endMs[end - 1] ?? 0,
        };
      })
      // Calls of no length may start at the same time: the stable sort keeps the order of a core.
      .sort((a, b) => a.startMs - b.startMs),
    /** Copies of tensors between host and GPU; the GPU does nothing else meanwhile. */
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
