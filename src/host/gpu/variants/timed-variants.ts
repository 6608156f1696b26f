/**
 * What a function's plans over GPU and CPU really take, and which of them are worth having. The planner adds up operators
 * and copies; what a run spends on waking cores for hundreds of calls it cannot tell. On an H200, LSTMs of twelve layers
 * took three to five times what was planned, and a cold start of the whole model was faster than any of the plans.
 */
import { createHash } from 'node:crypto';
import type { GpuClient, HybridPlan } from '../../../gpu/index.ts';
import { wholePlan } from '../../../plan/index.ts';
import type { Tensor } from '../../../tensor/index.ts';
import type { FunctionPlans } from '../../../live/index.ts';

/** Medians of whole runs in the GPU process, milliseconds. */
export interface VariantTimes {
  /** By {@link fingerprintOf}, with all their layers on the GPU. */
  readonly variantMs: Readonly<Record<string, number>>;
  /** The whole model on the GPU; null if the engine lacks an operator. */
  readonly whole: { readonly warmMs: number; readonly coldMs: number } | null;
}

export interface VariantTiming {
  readonly client: Pick<GpuClient, 'run' | 'evict'>;
  readonly key: string;
  readonly inputs: readonly Tensor[];
  readonly plans: FunctionPlans;
  /** The variants, by plan name, with what they consist of. */
  readonly fingerprints: ReadonlyMap<string, string>;
  readonly isCovered: boolean;
}

/** The first runs load weights, libraries' kernels and the cores' sessions. */
const untimedRuns = 2;
const timedRuns = 5;
const coldRuns = 3;

/** Equal for functions of one structure: their operators have the same names. */
export const fingerprintOf = ({ id: _, ...plan }: HybridPlan): string =>
  createHash('sha256').update(JSON.stringify(plan)).digest('hex').slice(0, 16);

/** Nothing else should run meanwhile. The function's weights stay on the GPU. @throws GpuError */
export async function timeVariants(timing: VariantTiming): Promise<VariantTimes> {
  const { client, key, inputs, plans, fingerprints, isCovered } = timing;
  const run = async (variant: string): Promise<number> => {
    const plan = plans.planOf(0, plans.mode, variant);
    return (await client.run(key, inputs, { gpu: 0, plan, variant })).timings.totalMs;
  };
  const warm = async (variant: string): Promise<number> => {
    for (let count = 0; count < untimedRuns; count++) await run(variant);
    return await medianOf(timedRuns, () => run(variant));
  };
  const variantMs: Record<string, number> = {};
  for (const [name, fingerprint] of fingerprints) variantMs[fingerprint] = await warm(name);
  if (!isCovered) return { variantMs, whole: null };
  const warmMs = await warm(wholePlan);
  const coldMs = await medianOf(coldRuns, async () => {
    await client.evict(key, 0);
    return await run(wholePlan);
  });
  return { variantMs, whole: { warmMs, coldMs } };
}

async function medianOf(count: number, time: () => Promise<number>): Promise<number> {
  const times: number[] = [];
  for (let each = 0; each < count; each++) times.push(await time());
  return times.toSorted((a, b) => a - b)[Math.floor(count / 2)]!;
}

/**
 * Whether a variant is of use: it is there for its latency, or to spare cold starts. A function that has no other way to
 * the GPU keeps all.
 */
export function isWorthwhile(ms: number, { whole }: VariantTimes, isForLatency: boolean, sloMs: number): boolean {
  return whole === null || (ms <= sloMs && ms < (isForLatency ? whole.warmMs : whole.coldMs));
}

/** @throws TypeError if it is no such thing */
export function parseVariantTimes(json: unknown): VariantTimes {
  const { variantMs, whole } = json as VariantTimes;
  const times = [...Object.values(variantMs), ...(whole === null ? [] : [whole.warmMs, whole.coldMs])];
  if (times.every((ms) => Number.isFinite(ms))) return { variantMs, whole };
  throw new TypeError('a time is not a number');
}
