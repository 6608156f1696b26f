/** The serving experiments of the DeepPlan paper (section 5.3.1), one cell at a time. */
import { loadMachine } from '../../src/hardware/index.ts';
import type { ColdStartMode } from '../../src/plan/index.ts';
import { OfferCache, poissonTrace, ReportBuilder, simulate, type Popularity } from '../../src/replay/index.ts';
import type { Report } from '../../src/report/index.ts';
import type { Policy } from '../../src/schedule/index.ts';

export const machine = loadMachine('p3.8xlarge');
const books = new Map<ColdStartMode, OfferCache>();

export interface Cell {
  readonly model: string;
  readonly mode: ColdStartMode;
  readonly policy: Policy;
  readonly instances: number;
  readonly ratePerS: number;
  readonly seed?: number;
  readonly requests?: number;
  readonly popularity?: Popularity;
  readonly reserveBytes?: number;
}

/** 10,000 requests are measured after 1,000 of warm-up, as in the artifact, with an SLO of 100 ms. */
export async function serve(cell: Cell): Promise<Report> {
  const { model, mode, policy, instances, ratePerS, seed = 1, requests = 10_000 } = cell;
  const warmup = 1000;
  let book = books.get(mode);
  if (book === undefined) books.set(mode, (book = new OfferCache(machine, mode)));
  const sheet = book.sheet(model, { sloMs: 100 });
  const functionNames = Array.from({ length: instances }, (_, index) => `${model}/${index}`);
  const trace = poissonTrace({
    functionNames,
    ratePerS,
    seed,
    requests: requests + warmup,
    ...(cell.popularity && { popularity: cell.popularity }),
  });
  const builder = new ReportBuilder();
  simulate(
    { functionNames, invocations: () => builder.measured(trace.invocations(), warmup) },
    {
      machine,
      policy,
      sheetOf: () => sheet,
      ...(cell.reserveBytes !== undefined && { reserveBytes: cell.reserveBytes }),
    },
    builder,
  );
  return builder.finish({ kind: 'simulated', machine: machine.name, seed, settings: {}, functionNames });
}
