/** One cell of a serving experiment: functions of one model or the paper's mix, a policy, a trace, on p3.8xlarge. */
import { MinstdRandom } from '../../scripts/convert-trace/minstd.ts';
import { loadMachine } from '../../src/hardware/index.ts';
import type { ColdStartMode } from '../../src/plan/index.ts';
import { OfferCache, poissonTrace, ReportBuilder, simulate, type Trace } from '../../src/replay/index.ts';
import { getOrMake } from '../../src/tools/index.ts';
import type { Report } from '../../src/report/index.ts';
import { schedulerGpus, wholeBytes, type Policy } from '../../src/schedule/index.ts';
import { mean } from '../shared/statistics.ts';

export const preset = 'p3.8xlarge';
export const sloMs = 100;

const machine = loadMachine(preset);
const books = new Map<ColdStartMode, OfferCache>();

export interface System {
  readonly name: string;
  readonly mode: ColdStartMode;
  readonly policy: Policy;
}

const offersOf = (mode: ColdStartMode): OfferCache => getOrMake(books, mode, () => new OfferCache(machine, mode));

/** Functions of one model that the memory of all GPUs holds. */
export function fittingOf(model: string, mode: ColdStartMode): number {
  const { gpus } = offersOf(mode).sheet(model, { sloMs });
  return schedulerGpus(machine).reduce((sum, { capacityBytes }, gpu) => {
    const offer = gpus[gpu];
    return sum + (offer ? Math.floor(capacityBytes / wholeBytes(offer)) : 0);
  }, 0);
}

/** So many functions of one model, under the same load. */
export interface Load {
  readonly model: string;
  readonly count: number;
  readonly ratePerS: number;
}

export const namesOf = ({ model, count }: Omit<Load, 'ratePerS'>): string[] =>
  Array.from({ length: count }, (_, index) => `${model}/${index}`);

/** Long enough for every queue to empty: the artifact's client waits for the last answer between its parts. */
const partsPauseMs = 60_000;

const artifactRandom = (): MinstdRandom => new MinstdRandom(0);

/**
 * What the artifact's client sends, to the very request: each function once, then the requests of the warm-up, then
 * those that are measured. It seeds its generator anew for each part, so that the warm-up is their beginning.
 */
export function artifactTrace({ model, count, ratePerS }: Load, warmup: number, requests: number): Trace {
  const functionNames = namesOf({ model, count });
  return {
    functionNames,
    *invocations() {
      for (const functionIndex of functionNames.keys()) yield { arrivalMs: 0, functionIndex };
      let fromMs = 0;
      let lastMs = 0;
      for (const length of [warmup, requests]) {
        fromMs = lastMs + partsPauseMs;
        const part = poissonTrace({ functionNames, ratePerS, requests: length, random: artifactRandom });
        for (const { arrivalMs, functionIndex } of part.invocations()) {
          lastMs = fromMs + arrivalMs;
          yield { arrivalMs: lastMs, functionIndex };
        }
      }
    },
  };
}

/** Functions are named `model/number`; the report leaves out the first `warmup` requests. */
export async function serve({ mode, policy }: System, trace: Trace, seed: number, warmup: number): Promise<Report> {
  const offers = offersOf(mode);
  const builder = new ReportBuilder();
  const { functionNames } = trace;
  simulate(
    { functionNames, invocations: () => builder.measured(trace.invocations(), warmup) },
    {
      machine,
      policy,
      sheetOf: (_index, name) => offers.sheet(name.slice(0, name.lastIndexOf('/')), { sloMs }),
    },
    builder,
  );
  return builder.finish({ kind: 'simulated', machine: preset, seed, settings: {}, functionNames });
}

export const p99 = ({ p99_ms }: Report): number => p99_ms ?? Number.POSITIVE_INFINITY;
export const goodput = (report: Report): number => report.goodput ?? 0;
export const coldRate = (report: Report): number => report.cold_start_rate ?? 0;

/** `105 / 98.8 / 16`: p99 in ms, goodput and cold starts in percent, as in the tables. */
export function cell(reports: readonly Report[]): string {
  const of = (value: (report: Report) => number): number => meanOf(reports, value);
  return `${of(p99).toFixed(0)} / ${(of(goodput) * 100).toFixed(1)} / ${(of(coldRate) * 100).toFixed(0)}`;
}

export const meanOf = (reports: readonly Report[], value: (report: Report) => number): number =>
  mean(reports.map(value));
