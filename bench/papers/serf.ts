/** Part D: SERF's Equation 12 against its reference values and against a simulation of the queue. */
import { predictService } from '../../src/plan/index.ts';
import { simulateService } from '../../test/support/serf-simulation.ts';
import cases from '../../test/reference/serf.json' with { type: 'json' };
import kinds from '../../test/reference/serf-simulated-kinds.json' with { type: 'json' };
import { tableOf, type BenchmarkTable } from '../benchmark.ts';
import { cell, onlyMeasurable, shape, type Cell } from './cells.ts';
import { difference, type PaperPart } from './part.ts';
import { clusterFigures } from './serf-figures.ts';

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
  // A mean of 100,000 requests, at 50 of them a second.
  const cluster = clusterFigures({ seconds: requests / 500, seed });
  return {
    cells: [...serfCells([...smooth, ...reference]), ...cluster.cells],
    tables: [
      ...cluster.tables,
      errorTable('SERF: Equation 12 against simulations, service times that grow smoothly', smooth, { requests, seed }),
      errorTable('SERF: Equation 12 at low and high load, and where it is known to be off', reference, {
        requests,
        seed,
      }),
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
    limits: [
      'SERF: the testbed of the paper is not here; the queue is simulated as the formula assumes it.',
      'SERF, over 20 machines: of the service times only two and the trends are printed; ours agree with those, so the figures that follow from them are trends.',
    ],
  };
}

/** Configurations of a machine of eight cores: service parallelism times threads at most 8. */
const perNode = Array.from({ length: 8 }, (_, index) => Math.floor(8 / (index + 1))).reduce(
  (sum, count) => sum + count,
  0,
);

function serfCells(rows: readonly Row[]): Cell[] {
  const errors = rows
    .map(({ formulaMs, startMs }) => Math.abs(formulaMs / startMs - 1) * 100)
    .toSorted((a, b) => a - b);
  const at = (share: number): number => errors[Math.min(errors.length - 1, Math.floor(share * errors.length))]!;
  const interfering = cases.filter(({ serviceRate }) => serviceRate.some((rate) => rate !== serviceRate[0]));
  const obliviousErrors = interfering.map(({ serviceRate, rate, simulatedStartSeconds }) => {
    const alone = 1000 / serviceRate[0]!;
    const prediction = predictService(serviceRate.map(() => alone), rate); // prettier-ignore
    return prediction.state === 'stable'
      ? Math.abs(prediction.latencyMs / 1000 / simulatedStartSeconds - 1) * 100
      : 100;
  });
  const table2 = [
    ['ImageNet-22K', 4, 80, 34.5, 0.07, 27_600, 5.52],
    ['ImageNet-1K', 2, 40, 10.83, 0.02, 4332, 0.87],
    ['CIFAR-10', 1, 20, 0.36, 7.19e-4, 72, 1.44e-2],
  ] as const;
  const rounding = 'its minutes for one experiment are printed with one digit';
  const testbed = 'a cluster of 20 machines with the authors’ networks, whose service times are not printed';
  return [
    ...table2.flatMap(([name, nodes, configs, each, quick, exhaustive, serf]) => [
      cell('Table II', `${name}: configurations`, { paper: configs, ours: perNode * nodes, digits: 0, within: 0 }),
      cell('Table II', `${name}: experiments of exhaustive profiling at 10 loads`, { paper: configs * 10, ours: perNode * nodes * 10, digits: 0, within: 0 }), // prettier-ignore
      cell('Table II', `${name}: minutes of exhaustive profiling`, { paper: exhaustive, ours: perNode * nodes * 10 * each, digits: 0, within: 0.01 }), // prettier-ignore
      cell('Table II', `${name}: minutes of SERF's profiling`, { paper: serf, ours: perNode * nodes * quick, digits: 4, within: 0.1, why: rounding }), // prettier-ignore
    ]),
    cell('section V-D', 'error of Equation 12, mean (against the simulated queue)', { paper: [2, 4], ours: errors.reduce((sum, error) => sum + error, 0) / errors.length, digits: 1, unit: '%', within: 0, isLessBetter: true, why: 'the simulated queue is the one that the formula assumes, so less than on a testbed' }), // prettier-ignore
    cell('section V-D', 'error of Equation 12, 90th percentile', {
      paper: 10,
      ours: at(0.9),
      digits: 1,
      unit: '%',
      within: 0,
      isLessBetter: true,
    }),
    cell('section V-D', 'error of Equation 12, 95th percentile', {
      paper: 12,
      ours: at(0.95),
      digits: 1,
      unit: '%',
      within: 0,
      isLessBetter: true,
    }),
    shape('Figure 8', 'error without interference (M/D/c), mean over the services that interfere', 'large', `${(obliviousErrors.reduce((sum, error) => sum + error, 0) / obliviousErrors.length).toFixed(0)}%`), // prettier-ignore
    onlyMeasurable(
      'Figures 2 to 6, 10, 11, 13',
      'service times, waits and latencies by configuration',
      'curves',
      testbed,
    ),
    onlyMeasurable(
      'Figures 16 to 18',
      'web search: mean error 1.07%, 90th percentile < 3%, 95th < 5%',
      '-',
      'another server and data set',
    ),
    onlyMeasurable('live', 'error of predictions over the forty loads of `bench -- pools`', '2 to 4%', 'live: see bench/results/pools.md, by its machine and date'), // prettier-ignore
  ];
}

function errorTable(title: string, rows: readonly Row[], { requests, seed }: SerfPartOptions): BenchmarkTable {
  return tableOf(
    `${title} (${requests.toLocaleString('en-US')} requests, seed ${seed})`,
    rows,
    [
      ['Service', ({ kind }) => kind],
      ['>Requests/s', ({ ratePerSecond }) => String(ratePerSecond)],
      ['>Load', ({ utilisation }) => `${(utilisation * 100).toFixed(0)}%`],
      ['>Reference ms', ({ referenceMs }) => referenceMs.toFixed(2)],
      ['>Ours ms', ({ formulaMs }) => formulaMs.toFixed(2)],
      ['>Difference', ({ referenceMs, formulaMs }) => difference(formulaMs, referenceMs)],
      ['>Simulated (start) ms', ({ startMs }) => startMs.toFixed(1)],
      ['>Formula is', ({ formulaMs, startMs }) => difference(formulaMs, startMs)],
      ['>Simulated (fluid) ms', ({ fluidMs }) => fluidMs.toFixed(1)],
      ['>Formula is', ({ formulaMs, fluidMs }) => difference(formulaMs, fluidMs)],
    ],
    { kind: 'estimated', from: 'Equation 12 and a discrete-event simulation; no machine is involved' },
  );
}
