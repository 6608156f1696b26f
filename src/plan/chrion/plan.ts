/** Chrion's plans: which operators of a model run on the GPU, and which on CPU cores. */
import type { GraphProfile } from '../../profile/index.ts';
import { PlanError } from '../plan-error.ts';
import { gpuDevice } from './devices.ts';
import { cheapestOf, searchOf, type Candidate, type ChrionOptions, type Search } from './search.ts';

export type ChrionPlan = ReturnType<typeof described>;

/**
 * Picks the plan with the least `L + alpha M`: L is its latency in milliseconds, M its GPU memory in megabytes. The
 * candidates are the same for every alpha ({@link Search.front}), so a larger alpha never gives a plan that needs more
 * memory or is faster. With alpha 0 only latency counts: the plan is never slower than the GPU or the CPU alone.
 * @param alpha milliseconds of latency that a megabyte of GPU memory is worth
 * @throws PlanError for options out of range, and if operators that the GPU cannot run have no core
 */
export function planChrion(profile: GraphProfile, options: ChrionOptions & { readonly alpha: number }): ChrionPlan {
  const { alpha } = options;
  if (!(alpha >= 0 && Number.isFinite(alpha)))
    throw new PlanError(`alpha is ${alpha}, but must be 0 or more milliseconds per megabyte`);
  const search = searchOf(profile, options);
  return described(search, { ...cheapestOf(search.front(), alpha), alpha });
}

/**
 * The plan of least GPU memory within a latency, as in the paper's Memory-Optimal pattern (6.2, 6.3), from the
 * candidates of {@link planChrion}. Undefined if nothing is as fast as `latencyLimitMs`, which is that of the GPU alone
 * unless it is given.
 */
export function planMemoryOptimal(
  profile: GraphProfile,
  { latencyLimitMs, ...options }: ChrionOptions & { readonly latencyLimitMs?: number } = {},
): ChrionPlan | undefined {
  const search = searchOf(profile, options);
  const front = search.front();
  // If the GPU cannot run an operator, the fastest plan is the reference.
  const limitMs = latencyLimitMs ?? (search.gpuAlone() ?? front[0])?.latencyMs ?? Infinity;
  const smallest = front.findLast(({ latencyMs }) => latencyMs <= limitMs);
  return smallest === undefined ? undefined : described(search, smallest);
}

/** Everything on the GPU; undefined if it cannot run an operator. */
export function planGpuOnly(profile: GraphProfile): ChrionPlan | undefined {
  const search = searchOf(profile, { cores: 0 });
  const only = search.gpuAlone();
  return only === undefined ? undefined : described(search, only);
}

/** Everything on the CPU, on the number of cores that ends first. */
export function planCpuOnly(profile: GraphProfile, options: ChrionOptions = {}): ChrionPlan {
  const search = searchOf(profile, options);
  if (search.cores === 0) throw new PlanError('cores is 0, but a plan for the CPU alone needs one or more');
  return described(search, search.cpuAlone());
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
    /** Cores that the plan uses: k*; 0 if everything runs on the GPU, also where the k' of the search was larger. */
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
     * The calls on CPU cores by their start, which is also the order on each core. A call starts when all of its inputs
     * have arrived, and its outputs leave when all of its operators have ended.
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

/**
 * The plan in the form that the engine executes; the same shape as its `HybridPlan`.
 *
 * @param id names the plan among those of its function
 */
export function hybridPlanOf({ operators, segments }: ChrionPlan, id: string) {
  return {
    id,
    /** Every operator, after its inputs: the GPU executes its share in this order. */
    order: operators.map(({ name }) => name),
    /** Calls on cores, in each core's order. Operators in no call run on the GPU. */
    segments: segments.map(({ core, operators: names }) => ({ core, operators: names })),
  };
}
