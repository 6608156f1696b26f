/** Density: how many BERT-Base functions p3.8xlarge serves at 100 requests per second with a p99 within 100 ms. */
import { poissonTrace } from '../../src/replay/index.ts';
import { policies } from '../../src/schedule/index.ts';
import { playHour } from './play.ts';
import { p3 } from './machines.ts';
import type { HoursRow } from './row.ts';
import type { HoursSystem } from './systems.ts';

export interface DensityScale {
  readonly requests: number;
  readonly warmup: number;
  /** Range of the search; the answer lies within it. */
  readonly from: number;
  readonly to: number;
  readonly step: number;
}

export const fullDensity: DensityScale = { requests: 10_000, warmup: 2000, from: 150, to: 600, step: 10 };
export const smallDensity: DensityScale = { requests: 100, warmup: 30, from: 100, to: 160, step: 30 };

/**
 * What our engine reserves of a V100's 16,944,988,160 bytes. A CUDA context takes about 512 MiB (an assumption: not
 * measured on a V100). The engine takes 92% of the rest as its one block (src/gpu/engine/device-memory.ts), and the
 * host gives the scheduler 85% of that for weights (src/host/gpu/gpu-host.ts): the remainder is for activations,
 * workspaces, constants and staging. The 83 MiB that every simulated GPU keeps for activations are subtracted again,
 * since they are part of that remainder.
 */
const gpuBytes = p3.gpus[0]!.memoryBytes;
const engineReserveBytes = Math.round(gpuBytes - (gpuBytes - 512 * 2 ** 20) * 0.92 * 0.85 - 83 * 2 ** 20);

export const reserves: readonly { readonly name: string; readonly bytes: number | undefined }[] = [
  { name: "the paper's, 5.5 GiB", bytes: undefined },
  { name: `our engine's, ${(engineReserveBytes / 2 ** 30).toFixed(2)} GiB`, bytes: engineReserveBytes },
  { name: '2 GiB, for comparison', bytes: 2 * 2 ** 30 },
];

export interface Density {
  /** The largest step with a p99, averaged over the seeds, within the bound. */
  readonly functions: number;
  readonly p99Ms: number;
}

export const p99MaxMs = 100;

const best: HoursSystem = { name: 'best', mode: 'interleave', policy: policies.best, knowsFuture: false };

/** By bisection over the steps: p99 rises with the number of functions. */
export async function densityOf(
  scale: DensityScale,
  reserveBytes: number | undefined,
  seeds: readonly number[],
  system: HoursSystem = best,
): Promise<Density> {
  const p99Of = async (count: number): Promise<number> =>
    (await playHour(densityRow(scale, count, reserveBytes), system, seeds)).p99Ms;
  let low = 0;
  let high = Math.floor((scale.to - scale.from) / scale.step) + 1;
  let lowMs = await p99Of(scale.from);
  if (lowMs > p99MaxMs) return { functions: 0, p99Ms: lowMs };
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    const p99Ms = await p99Of(scale.from + middle * scale.step);
    if (p99Ms <= p99MaxMs) {
      low = middle;
      lowMs = p99Ms;
    } else {
      high = middle;
    }
  }
  return { functions: scale.from + low * scale.step, p99Ms: lowMs };
}

function densityRow({ requests, warmup }: DensityScale, count: number, reserveBytes: number | undefined): HoursRow {
  const functionNames = Array.from({ length: count }, (_, index) => `bert-base/${index}`);
  return {
    name: `density-${count}`,
    load: '',
    machine: p3,
    warmup,
    trace: (seed) => poissonTrace({ functionNames, ratePerS: 100, requests: requests + warmup, seed }),
    sloMsOf: () => p99MaxMs,
    admission: 'best-effort',
    ...(reserveBytes === undefined ? {} : { reserveBytes }),
  };
}
