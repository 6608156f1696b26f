/**
 * Chrion's Table 7: how often models are swapped on one small GPU, with whole plans, with plans that need less memory,
 * and with variants.
 */
import { planChrion, planMemoryOptimal } from '../../src/plan/chrion/index.ts';
import { poissonTrace, ReportBuilder, runSimulation } from '../../src/replay/index.ts';
import { policies, type GpuOffer, type OfferSheet } from '../../src/schedule/index.ts';
import { lstmCells, lstmContextBytes, type LstmShape } from '../../test/support/lstm-cells.ts';
import table6 from '../../test/reference/chrion-table6.json' with { type: 'json' };

/** A column of the paper's Table 6; null if the pattern was not feasible. */
interface Column extends LstmShape {
  readonly gpuMegabytes: number;
  readonly gpuMs: number;
  readonly latencyOptimalMegabytes: number;
  readonly latencyOptimalMs: number;
  readonly memoryOptimalMegabytes: number | null;
  readonly memoryOptimalMs: number | null;
}

/** The nine networks that all three patterns can serve. */
const columns: readonly Column[] = table6.filter(({ memoryOptimalMegabytes }) => memoryOptimalMegabytes !== null);

/** The paper does not give the GPU's memory for models; this comes near the published rates: five of nine fit whole. */
const capacityBytes = 8.2e9;
/** Bytes of Table 6 over all nine. */
const megabytesOf = (pattern: 'gpuMegabytes' | 'latencyOptimalMegabytes'): number =>
  columns.reduce((sum, column) => sum + column[pattern], 0);
/** Share of what the nine need whole that this memory holds. */
export const heldShare = capacityBytes / 1e6 / megabytesOf('gpuMegabytes');
/** By how much the nine latency-optimal plans exceed it: then one of them is always out. */
export const latencyOptimalExcessMegabytes = megabytesOf('latencyOptimalMegabytes') - capacityBytes / 1e6;
const linkGBps = 12;
const ratePerS = 5;
/** An SLO that every plan meets: the experiment compares memory. */
const sloMs = 1000;
/** Cores of the paper's CPU that a divided model may use (k at most 8). */
const hybridCores = 8;

export const patterns = ['GPU', 'Latency-Optimal', 'Memory-Optimal'] as const;
export type Pattern = (typeof patterns)[number];
export const paperSwappingRate: Readonly<Record<Pattern, number>> = {
  GPU: 0.44,
  'Latency-Optimal': 0.09,
  'Memory-Optimal': 0,
};

/** Nine models under the same trace. */
export interface Swapping {
  /** Share of the invocations for which a model had to be loaded. */
  readonly rate: number;
  readonly meanMs: number;
  readonly p99Ms: number;
  /** Changes to a smaller plan, and to a larger one, per invocation. */
  readonly shrinkRate: number;
  readonly growthRate: number;
}

/**
 * The nine models that all three patterns can serve, called equally often.
 * @param variants plans from the largest to the smallest; a single one is fixed
 */
export async function swapping(variants: readonly Pattern[], requests: number, seed: number): Promise<Swapping> {
  return await swappingOf(columns, variants, requests, seed);
}

/** As the paper measured it, with the GPU's own software. */
const megabytes = (bytes: number): number => (bytes + lstmContextBytes) / 1e6;

/** Rates with our planner's own plans of the same nine networks, activations counted as in the paper (Equation 4). */
export async function ownSwapping(requests: number, seed: number): Promise<{ latency: number; memory: number }> {
  const own = columns.map((column): Column => {
    const profile = lstmCells(column);
    const [latency, memory] = [planChrion(profile, { alpha: 0 }), planMemoryOptimal(profile)];
    const { gpuMegabytes, gpuMs, layers, batch, ioSize, sequence } = column;
    return {
      layers,
      batch,
      ioSize,
      sequence,
      gpuMegabytes,
      gpuMs,
      latencyOptimalMegabytes: megabytes(latency.gpuBytes),
      latencyOptimalMs: latency.latencyMs,
      memoryOptimalMegabytes: memory === undefined ? null : megabytes(memory.gpuBytes),
      memoryOptimalMs: memory?.latencyMs ?? null,
    };
  });
  const [latency, memory] = [
    await swappingOf(own, ['Latency-Optimal'], requests, seed),
    await swappingOf(own, ['Memory-Optimal'], requests, seed),
  ];
  return { latency: latency.rate, memory: memory.rate };
}

async function swappingOf(
  columns: readonly Column[],
  variants: readonly Pattern[],
  requests: number,
  seed: number,
): Promise<Swapping> {
  const sheets = columns.map((column) => sheetOf(variants.map((pattern) => offerOf(column, pattern))));
  const functionNames = sheets.map((_, index) => `lstm/${index}`);
  const warmup = 100;
  const trace = poissonTrace({ functionNames, ratePerS, requests: requests + warmup, seed });
  const builder = new ReportBuilder();
  runSimulation(
    { functionNames, invocations: () => builder.measured(trace.invocations(), warmup) },
    {
      gpus: [{ capacityBytes, switch: 0, linkGBps, uplinkGBps: linkGBps }],
      cpu: null,
      policy: { ...policies.artifact, routing: 'resident-first' },
      sheetOf: (index) => sheets[index]!,
      observer: builder,
    },
  );
  const report = builder.finish({ kind: 'simulated', machine: 'one GPU', seed, settings: {}, functionNames });
  return {
    rate: (report.cold_starts + report.partial_starts) / report.requests,
    meanMs: report.mean_ms ?? Number.NaN,
    p99Ms: report.p99_ms ?? Number.NaN,
    shrinkRate: (report.plan_changes?.smaller ?? 0) / requests,
    growthRate: (report.plan_changes?.larger ?? 0) / requests,
  };
}

/** A plan of a model that is loaded whole, then executed. */
function offerOf(column: Column, pattern: Pattern): GpuOffer {
  const [megabytes, warmMs] = {
    GPU: [column.gpuMegabytes, column.gpuMs] as const,
    'Latency-Optimal': [column.latencyOptimalMegabytes, column.latencyOptimalMs] as const,
    'Memory-Optimal': [column.memoryOptimalMegabytes ?? 0, column.memoryOptimalMs ?? 0] as const,
  }[pattern];
  const bytes = megabytes * 1e6;
  const loadMs = bytes / (linkGBps * 1e6);
  return {
    plan: pattern,
    cores: pattern === 'GPU' ? 0 : hybridCores,
    warmMs,
    prefixBytes: [0, bytes],
    overlapPrefix: 1,
    ways: [
      {
        mode: 'baseline',
        coldMs: [loadMs + warmMs, warmMs],
        transfers: [{ link: 0, bytes: [bytes, 0], ms: [loadMs, 0], tailMs: [warmMs, warmMs] }],
      },
    ],
  };
}

/** If plans have the same size (two in one column of the table), the last one is used. */
function sheetOf(offers: readonly GpuOffer[]): OfferSheet {
  const top = offers.reduceRight<GpuOffer | undefined>((smaller, offer) => {
    if (smaller === undefined) return offer;
    return smaller.prefixBytes[1]! < offer.prefixBytes[1]! ? { ...offer, smaller } : smaller;
  }, undefined);
  if (top === undefined) throw new RangeError('variants has at least one plan');
  return { gpus: [top], cpu: null, sloMs, priority: 0, pinned: false };
}
