/** Part D: SERF's Equation 12 against its reference values and against a simulation of the queue. */
import { predictService } from '../../src/plan/index.ts';
import { simulateService } from '../../test/support/serf-simulation.ts';
import cases from '../../test/reference/serf.json' with { type: 'json' };
import kinds from '../../test/reference/serf-simulated-kinds.json' with { type: 'json' };
import type { BenchmarkTable } from '../benchmark.ts';
import { difference, type PaperPart } from './part.ts';

interface Row {
  readonly kind: string;
  readonly ratePerSecond: number;
  readonly utilisation: number;
  readonly referenceMs: number;
  readonly formulaMs: number;
  readonly startMs: number;
  readonly fluidMs: number;
}

export interface SerfPartOptions {
  /** Requests of each simulation; a mean at 90% load needs a million to be accurate to a percent. */
  readonly requests: number;
  readonly seed: number;
}

export function serfPart({ requests, seed }: SerfPartOptions): PaperPart {
  const row = (kind: string, serviceTimeMs: readonly number[], ratePerSecond: number, referenceMs: number): Row => {
    const prediction = predictService(serviceTimeMs, ratePerSecond);
    const simulation = { serviceTimeMs, ratePerSecond, requests, seed };
    return {
      kind,
      ratePerSecond,
      utilisation: prediction.utilisation,
      referenceMs,
      formulaMs: prediction.state === 'stable' ? prediction.latencyMs : Number.NaN,
      startMs: simulateService({ ...simulation, interference: 'start' }).latencyMs,
      fluidMs: simulateService({ ...simulation, interference: 'fluid' }).latencyMs,
    };
  };
  const smooth = kinds.map((each) => row(each.kind, each.serviceTimeMs, each.ratePerSecond, each.latencyMs));
  const reference = cases.map((each) =>
    row(
      each.kind,
      each.serviceRate.map((perSecond) => 1000 / perSecond),
      each.rate,
      each.latencySeconds * 1000,
    ),
  );
  // The rounding of the reference to six decimals of a second does not count against the formula.
  const worstFormula = Math.max(
    ...reference.map(
      ({ formulaMs, referenceMs }) => Math.max(0, Math.abs(formulaMs - referenceMs) - 5e-4) / referenceMs,
    ),
  );
  const worstSimulated = Math.max(
    ...smooth.flatMap(({ formulaMs, startMs, fluidMs }) => [
      Math.abs(formulaMs / startMs - 1),
      Math.abs(formulaMs / fluidMs - 1),
    ]),
  );
  const overloaded = predictService([500, 500], 4).state === 'overloaded';
  return {
    tables: [
      tableOf('SERF: Equation 12 against simulations, service times that grow smoothly', smooth, { requests, seed }),
      tableOf('SERF: Equation 12 at low and high load, and where it is known to be off', reference, { requests, seed }),
    ],
    aims: [
      {
        aim: 'SERF: Equation 12 within 1e-6 of the reference values',
        met: worstFormula <= 1e-6,
        reached: worstFormula === 0 ? 'equal in every printed digit' : worstFormula.toExponential(1),
      },
      {
        aim: 'SERF: within 4% of the simulation on 11 kinds',
        met: worstSimulated <= 0.04,
        reached: `${(worstSimulated * 100).toFixed(1)}%`,
      },
      { aim: 'SERF: load at capacity is no number', met: overloaded, reached: overloaded ? 'overloaded' : 'a number' },
    ],
    figures: { serfWorstToReference: worstFormula, serfWorstToSimulation: worstSimulated },
    limits: ['SERF: the testbed of the paper is not here; the queue is simulated as the formula assumes it.'],
  };
}

function tableOf(title: string, rows: readonly Row[], { requests, seed }: SerfPartOptions): BenchmarkTable {
  return {
    title: `${title} (${requests.toLocaleString('en-US')} requests, seed ${seed})`,
    provenance: { kind: 'estimated', from: 'Equation 12 and a discrete-event simulation; no machine is involved' },
    columns: [
      { title: 'Service' },
      { title: 'Requests/s', align: 'right' },
      { title: 'Load', align: 'right' },
      { title: 'Reference ms', align: 'right' },
      { title: 'Ours ms', align: 'right' },
      { title: 'Difference', align: 'right' },
      { title: 'Simulated (start) ms', align: 'right' },
      { title: 'Formula is', align: 'right' },
      { title: 'Simulated (fluid) ms', align: 'right' },
      { title: 'Formula is', align: 'right' },
    ],
    rows: rows.map(({ kind, ratePerSecond, utilisation, referenceMs, formulaMs, startMs, fluidMs }) => [
      kind,
      String(ratePerSecond),
      `${(utilisation * 100).toFixed(0)}%`,
      referenceMs.toFixed(2),
      formulaMs.toFixed(2),
      difference(formulaMs, referenceMs),
      startMs.toFixed(1),
      difference(formulaMs, startMs),
      fluidMs.toFixed(1),
      difference(formulaMs, fluidMs),
    ]),
  };
}
