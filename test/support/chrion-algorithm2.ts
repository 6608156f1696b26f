import { described, type ChrionPlan } from '../../src/plan/chrion/plan.ts';
import { bytesPerMegabyte } from '../../src/plan/chrion/devices.ts';
import { bestOf, searchOf, type Candidate, type ChrionOptions } from '../../src/plan/chrion/search.ts';
import type { GraphProfile } from '../../src/profile/index.ts';

/**
 * Chrion's Algorithm 2 as printed, to compare with the paper's tables. For every number of cores k' from 0 (the GPU
 * alone) to k, it chooses a device for each operator greedily. Then it takes the k' with the least `L + alpha M`, of
 * equal ones that with less memory and fewer cores. An operator that moves to the CPU changes when the devices are free
 * for all later ones, so a plan for a larger alpha may need more memory or be faster, which planChrion excludes. With
 * alpha 0 this is the paper's Latency-Optimal pattern.
 *
 * @param options `alpha`: milliseconds of latency that a megabyte of GPU memory is worth
 */
export function planAlgorithm2(profile: GraphProfile, options: ChrionOptions & { readonly alpha: number }): ChrionPlan {
  const { alpha } = options;
  const search = searchOf(profile, options);
  const candidates = search.algorithm2(alpha).map((candidate) => search.refined(candidate));
  const cost = ({ latencyMs, gpuBytes }: Candidate): number => latencyMs + alpha * (gpuBytes / bytesPerMegabyte);
  return described(search, bestOf(candidates, cost));
}
