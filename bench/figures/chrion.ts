/** Chrion's Table 7: how often models are swapped on one small GPU, with whole plans and with those that need less memory. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { poissonTrace, ReportBuilder, runSimulation } from '../../src/replay/index.ts';
import { policies, type GpuOffer, type OfferSheet } from '../../src/schedule/index.ts';
import { projectRoot } from '../servers.ts';

/** A column of the paper's Table 6; null where the pattern was not feasible. */
interface Column {
  readonly gpuMegabytes: number;
  readonly gpuMs: number;
  readonly latencyOptimalMegabytes: number;
  readonly latencyOptimalMs: number;
  readonly memoryOptimalMegabytes: number | null;
  readonly memoryOptimalMs: number | null;
}

/** The GPU's memory for models is not in the paper; this comes near the published rates. */
const capacityBytes = 7.9e9;
const linkGBps = 12;
const ratePerS = 5;

export const patterns = ['GPU', 'Latency-Optimal', 'Memory-Optimal'] as const;
export type Pattern = (typeof patterns)[number];
export const paperSwappingRate: Readonly<Record<Pattern, number>> = {
  GPU: 0.44,
  'Latency-Optimal': 0.09,
  'Memory-Optimal': 0,
};

/** Loads per invocation of the nine models that all three patterns can serve, each asked for equally often. */
export async function swappingRate(pattern: Pattern, requests: number, seed: number): Promise<number> {
  const fixture = join(projectRoot, 'test/reference/chrion-table6.json');
  const columns = JSON.parse(readFileSync(fixture, 'utf8')) as Column[];
  const sheets = columns
    .filter((column) => column.memoryOptimalMegabytes !== null)
    .map((column) => {
      const [megabytes, latencyMs] = {
        GPU: [column.gpuMegabytes, column.gpuMs] as const,
        'Latency-Optimal': [column.latencyOptimalMegabytes, column.latencyOptimalMs] as const,
        'Memory-Optimal': [column.memoryOptimalMegabytes, column.memoryOptimalMs] as const,
      }[pattern];
      return sheetOf((megabytes ?? 0) * 1e6, latencyMs ?? 0);
    });
  const functionNames = sheets.map((_, index) => `lstm/${index}`);
  const warmup = 100;
  const trace = poissonTrace({ functionNames, ratePerS, requests: requests + warmup, seed });
  const builder = new ReportBuilder();
  const run = await runSimulation(trace, {
    gpus: [{ capacityBytes, switch: 0, linkGBps, uplinkGBps: linkGBps }],
    cpuCores: 0,
    policy: { ...policies.artifact, routing: 'resident-first' },
    sheetOf: (index) => sheets[index] ?? sheetOf(0, 0),
    observer: builder,
    warmupInvocations: warmup,
  });
  builder.measureFrom(run.measuredFromMs ?? 0);
  const report = builder.finish({ kind: 'simulated', machine: 'one GPU', seed, settings: {}, functionNames });
  return report.cold_start_rate ?? Number.NaN;
}

/** A model that is loaded whole, then executed. */
function sheetOf(bytes: number, warmMs: number): OfferSheet {
  const loadMs = bytes / (linkGBps * 1e6);
  const offer: GpuOffer = {
    warmMs,
    prefixBytes: [0, bytes],
    hidingPrefix: 1,
    ways: [
      {
        mode: 'baseline',
        coldMs: [loadMs + warmMs, warmMs],
        transfers: [{ link: 0, bytes: [bytes, 0], ms: [loadMs, 0], tailMs: [warmMs, warmMs] }],
      },
    ],
  };
  return { gpus: [offer], cpu: null, sloMs: 1000, priority: 0, pinned: false };
}
