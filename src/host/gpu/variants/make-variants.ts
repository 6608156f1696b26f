/**
 * Makes a function's plan variants: operators are timed on the GPU and on cores, plans made, added to the GPU process,
 * timed, and offered.
 */
import type { Logger } from 'pino';
import { GpuError, type GpuClient, type GpuCoverage, type InputShapes } from '../../../gpu/index.ts';
import type { Machine } from '../../../hardware/index.ts';
import { loadChrion, type ChrionPlan, type ColdStartMode } from '../../../plan/index.ts';
import type { GraphProfile, LayerProfile } from '../../../profile/index.ts';
import type { Tensor } from '../../../tensor/index.ts';
import type { VariantPlanner } from './variant-planner.ts';
import { fingerprintOf, isWorthwhile, timeVariants, type VariantTimes } from './timed-variants.ts';
import { withVariants, type PlanVariant, type VariantContext } from './variants.ts';
import { structureOf, type ProfileStore } from '../plans.ts';
import type { FunctionPlans } from '../../../live/index.ts';

/** Which plans over GPU and CPU functions get. */
type VariantKind =
  /** None. */
  | 'off'
  /** Besides the whole model on the GPU, the fastest plan (Chrion's Latency-Optimal pattern). */
  | 'latency'
  /** Also plans with less and less GPU memory, as far as they meet the SLO (its Memory-Optimal pattern). */
  | 'memory';

export interface VariantOptions {
  readonly client: Pick<GpuClient, 'measureOperators' | 'addPlan' | 'dropPlan' | 'run' | 'evict'>;
  readonly planner: Pick<VariantPlanner, 'plan'>;
  readonly logger: Logger;
  /** Of operators. */
  readonly profiles: ProfileStore<GraphProfile>;
  /** Of variants. Undefined if times on these GPUs mean nothing: then what is planned counts. */
  readonly times: ProfileStore<VariantTimes> | undefined;
  readonly kind: VariantKind;
  readonly cores: number;
  readonly iterations: number;
  /** Runs a measurement while no other measurement is made and no invocation runs on a GPU. */
  readonly measure: <T>(work: () => Promise<T>) => Promise<T>;
}

export interface VariantSubject {
  readonly key: string;
  /** In what is kept. */
  readonly name: string;
  readonly coverage: GpuCoverage;
  readonly shapes: InputShapes;
  /** For timed runs. */
  readonly inputs: readonly Tensor[];
  /** Slower variants are not made. */
  readonly sloMs: number;
  /** For the whole model on the GPU; undefined if the engine lacks an operator. */
  readonly profile: LayerProfile | undefined;
  readonly plans: FunctionPlans | undefined;
  readonly machine: Machine;
  readonly mode: ColdStartMode;
}

/** Besides the whole model on the GPU. */
const variantsMax = 4;

/**
 * Size limit for a function without recurrent layers: timing it keeps a copy of its weights in memory for each core,
 * and on disk.
 */
const dividedBytesMax = 256 * 2 ** 20;

/** Large networks without recurrent layers consist of products, for which a core takes many times as long as a GPU. */
function isWorthDividing(coverage: GpuCoverage): boolean {
  if (!coverage.covered || coverage.layers.some(({ kind }) => kind === 'recurrent')) return true;
  return coverage.weightBytes <= dividedBytesMax;
}

interface AddedVariant extends PlanVariant {
  readonly fingerprint: string;
}

/** The result for a profile. */
interface Planned {
  /** Those that the GPU process has. */
  readonly variants: readonly AddedVariant[];
  readonly context: VariantContext;
}

/**
 * A profile serves every function whose graph has the same operators; if a graph turns out to differ, its own profile
 * is made.
 */
export async function makeVariants(
  options: VariantOptions,
  subject: VariantSubject,
): Promise<FunctionPlans | undefined> {
  if (options.kind === 'off' || options.cores === 0 || !isWorthDividing(subject.coverage)) return undefined;
  const { client } = options;
  const structure = structureOf(subject.coverage, subject.shapes);
  const operators = `${structure}.operators`;
  const fromKept = async (): Promise<Planned | undefined> => {
    const stored = await options.profiles.find(operators);
    return stored && (await planFrom(options, subject, stored));
  };
  const planned =
    (await fromKept()) ??
    (await options.measure(async () => {
      // Another function of the same structure may have been measured while this one waited.
      const known = await fromKept();
      if (known !== undefined) return known;
      const { cores, iterations } = options;
      const measured = await client.measureOperators(subject.key, { gpu: 0, cores, iterations });
      await options.profiles.keep(operators, subject.name, measured);
      return await planFrom(options, subject, measured);
    }));
  if (planned === undefined || planned.variants.length === 0) return undefined;
  const plans = await offeredOf(options, subject, planned, `${structure}.variants`);
  const offered = new Set(variantNames(plans));
  for (const { promise } of planned.variants)
    if (!offered.has(promise.plan)) await client.dropPlan(subject.key, promise.plan);
  return plans;
}

/** The plans with the variants that are worth having; undefined if none is. */
async function offeredOf(
  options: VariantOptions,
  { key, name, coverage, inputs, sloMs, plans }: VariantSubject,
  { variants, context }: Planned,
  timesName: string,
): Promise<FunctionPlans | undefined> {
  const { client, times, kind, measure, logger } = options;
  const planned = withVariants(plans, variants, context);
  const names = new Set(variantNames(planned));
  const wanted = variants.filter(({ promise }) => names.has(promise.plan));
  if (planned === undefined || wanted.length === 0) return undefined;
  if (times === undefined) return planned;
  const fingerprints = new Map(wanted.map(({ promise, fingerprint }) => [promise.plan, fingerprint]));
  const found = await times.findOrMake(timesName, name, {
    fits: ({ variantMs }) => wanted.every(({ fingerprint }) => variantMs[fingerprint] !== undefined),
    inTurn: measure,
    make: async () => {
      const { covered: isCovered } = coverage;
      const timed = await timeVariants({ client, key, inputs, plans: planned, fingerprints, isCovered });
      // A function of the same structure with another SLO has other plans.
      const before = await times.find(timesName);
      return { ...timed, variantMs: { ...before?.variantMs, ...timed.variantMs } };
    },
  });
  const timed = wanted.map(({ promise, fingerprint }) => ({ promise, latencyMs: found.variantMs[fingerprint]! }));
  const worthwhile = timed.filter(({ latencyMs }) => isWorthwhile(latencyMs, found, kind === 'latency', sloMs));
  if (worthwhile.length < timed.length) {
    const ms = timed.map(({ latencyMs }) => Number(latencyMs.toFixed(2)));
    const dropped = timed.length - worthwhile.length;
    logger.info({ function: key, ms, whole: found.whole, dropped }, 'plans over GPU and CPU are of no use');
  }
  return worthwhile.length === 0 ? undefined : withVariants(plans, worthwhile, context);
}

/** Undefined if the profile is not of this function's graph: then every plan made from it is refused. */
async function planFrom(
  { client, planner, logger, kind, cores }: VariantOptions,
  { key, coverage, sloMs, profile, machine, mode }: VariantSubject,
  operators: GraphProfile,
): Promise<Planned | undefined> {
  const { hybridPlanOf } = await loadChrion();
  const found = await planner.plan(operators, { cores, limitMs: sloMs, variantsMax: variantsMax + 1 });
  const variants: AddedVariant[] = [];
  let refused = 0;
  for (const plan of chosen(found, kind)) {
    const hybrid = hybridPlanOf(plan, `hybrid-${variants.length + 1}`);
    if (hybrid.segments.length === 0) continue;
    try {
      const promise = await client.addPlan(key, hybrid);
      variants.push({ promise, latencyMs: plan.latencyMs, fingerprint: fingerprintOf(hybrid) });
    } catch (error) {
      if (!(error instanceof GpuError) || error.code !== 'invalid') throw error;
      refused++;
      logger.info({ function: key, reason: error.message }, 'a plan over GPU and CPU was refused');
    }
  }
  if (variants.length === 0 && refused > 0) return undefined;
  const linkGBps = machine.gpus[0]?.linkGBps ?? operators.bandwidth;
  return { variants, context: { layers: coverage.layers ?? [], profile, linkGBps, machine, mode } };
}

function variantNames(plans: FunctionPlans | undefined): string[] {
  const names: string[] = [];
  for (let variant = plans?.offers[0]; variant !== undefined; variant = variant.smaller) names.push(variant.plan ?? '');
  return names;
}

/** The planner's variants, without those that the kind leaves out. */
function chosen(variants: readonly ChrionPlan[], kind: VariantKind): readonly ChrionPlan[] {
  if (kind === 'memory') return variants;
  const fastest = variants.reduce<ChrionPlan | undefined>(
    (best, plan) => (best === undefined || plan.latencyMs < best.latencyMs ? plan : best),
    undefined,
  );
  return fastest === undefined ? [] : [fastest];
}
