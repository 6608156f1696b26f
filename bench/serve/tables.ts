/** The tables of the serving benchmark. Pure. */
import { median } from '../shared/statistics.ts';
import { type BenchmarkResult, type BenchmarkTable, type Provenance } from '../benchmark.ts';
import type { Level } from './level.ts';

/** Measurements of one system at one number of functions, in one round. */
export interface Cell extends Level {
  readonly system: string;
  readonly round: number;
}

export interface Measured {
  readonly cells: readonly Cell[];
  /** Functions of which all layers fit on the GPUs. */
  readonly capacity: number;
  /** Numbers of functions, in increasing order. */
  readonly levels: readonly number[];
  readonly sloMs: number;
  readonly tightSloMs: number;
}

type Figure = (cell: Cell) => number | null;

const p99Ms: Figure = ({ report }) => report.p99_ms;
const goodput: Figure = ({ report }) => report.goodput;
const coldShare: Figure = ({ report }) => missingShare(report);
const tightGoodput: Figure = (cell) => cell.tightGoodput;

/** Share of starts that found any layer missing. */
function missingShare(tally: {
  readonly cold_start_rate: number | null;
  readonly partial_start_rate: number | null;
}): number | null {
  const { cold_start_rate: cold, partial_start_rate: partial } = tally;
  return cold === null ? null : cold + (partial ?? 0);
}

/** The median over the rounds; null if no round has the figure. */
function over({ cells }: Measured, system: string, functions: number, figure: Figure): number | null {
  const values = cells
    .filter((cell) => cell.system === system && cell.functions === functions)
    .map(figure)
    .filter((value) => value !== null);
  return values.length === 0 ? null : median(values);
}

function ms(value: number | null): string {
  if (value === null) return '-';
  const size = Math.abs(value);
  return value.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0);
}
const percent = (value: number | null): string => (value === null ? '-' : `${(100 * value).toFixed(1)}%`);

/** The figure's three plots as one table. */
export function servingTable(measured: Measured, systems: readonly string[], provenance: Provenance): BenchmarkTable {
  const { capacity, levels, sloMs } = measured;
  return {
    title: `p99, goodput (SLO ${sloMs} ms) and cold starts by number of functions, of which ${capacity} fit`,
    provenance,
    columns: [
      '>FUNCTIONS',
      '>OF WHAT FITS',
      ...systems.flatMap((system) => [`>${system} P99 MS`, '>GOODPUT', '>COLD']),
    ],
    rows: levels.map((functions) =>
      [String(functions), percent(functions / capacity)].concat(
        systems.flatMap((system) => [
          ms(over(measured, system, functions, p99Ms)),
          percent(over(measured, system, functions, goodput)),
          percent(over(measured, system, functions, coldShare)),
        ]),
      ),
    ),
  };
}

export function tightTable(measured: Measured, systems: readonly string[], provenance: Provenance): BenchmarkTable {
  return {
    title: `Share answered within ${measured.tightSloMs} ms: the paper's SLO in proportion to a warm start, 10.7 times`,
    provenance,
    columns: ['>FUNCTIONS', ...systems.map((title) => `>${title}`)],
    rows: measured.levels.map((functions) =>
      [String(functions)].concat(systems.map((system) => percent(over(measured, system, functions, tightGoodput)))),
    ),
  };
}

/** Means over all levels and rounds, of requests with the same start when measured and when simulated. */
export function startTable({ cells }: Measured, systems: readonly string[], provenance: Provenance): BenchmarkTable {
  const mean = (
    system: string,
    start: 'warm' | 'cold',
    field: 'measured_mean_ms' | 'simulated_mean_ms',
  ): number | null => {
    let [sum, count] = [0, 0];
    for (const cell of cells) {
      if (cell.system !== system) continue;
      for (const row of cell.beside.differences.service) {
        const value = row[field];
        if (row.start !== start || value === null) continue;
        sum += value * row.both;
        count += row.both;
      }
    }
    return count === 0 ? null : sum / count;
  };
  return {
    title: 'Loading and executing by kind of start, and what the host expected of it, mean milliseconds',
    provenance,
    columns: ['SYSTEM', '>WARM', '>EXPECTED', '>COLD', '>EXPECTED'],
    rows: systems.map((system) =>
      [system].concat(
        (['warm', 'cold'] as const).flatMap((start) => [
          ms(mean(system, start, 'measured_mean_ms')),
          ms(mean(system, start, 'simulated_mean_ms')),
        ]),
      ),
    ),
  };
}

export function simulatedTable(measured: Measured, systems: readonly string[], provenance: Provenance): BenchmarkTable {
  return {
    title: "Measured beside the simulator, which had the host's own GPUs, policy and offers",
    provenance,
    columns: ['SYSTEM', '>FUNCTIONS', '>P99 MS', '>SIMULATED', '>COLD', '>SIMULATED', '>PLACED OTHERWISE'],
    rows: systems.flatMap((system) =>
      measured.levels.map((functions) => [
        system,
        String(functions),
        ms(over(measured, system, functions, p99Ms)),
        ms(over(measured, system, functions, ({ beside }) => beside.simulated.p99_ms)),
        percent(over(measured, system, functions, coldShare)),
        percent(over(measured, system, functions, ({ beside }) => missingShare(beside.simulated))),
        percent(
          over(
            measured,
            system,
            functions,
            ({ beside: { differences } }) => differences.placed_differently / differences.requests,
          ),
        ),
      ]),
    ),
  };
}

/** The difference between measured and simulated mean latency, in parts that add up to it. */
export function differenceTable(
  measured: Measured,
  systems: readonly string[],
  provenance: Provenance,
): BenchmarkTable {
  const parts = ['sent_late_ms', 'transport_ms', 'host_ms', 'queued_longer_ms', 'served_longer_ms'] as const;
  const figures: readonly Figure[] = [
    ({ beside }) => beside.differences.latency.measured_mean_ms,
    ({ beside }) => beside.differences.latency.simulated_mean_ms,
    ...parts.map(
      (part): Figure =>
        ({ beside }) =>
          beside.differences.latency.difference[part],
    ),
  ];
  return {
    title: 'Mean latency and what makes it differ from the simulated one, milliseconds',
    provenance,
    columns: [
      'SYSTEM',
      '>FUNCTIONS',
      '>MEAN',
      '>SIMULATED',
      '>SENT LATE',
      '>ON THE WAY',
      '>IN THE HOST',
      '>QUEUED',
      '>SERVED',
    ],
    rows: systems.flatMap((system) =>
      measured.levels.map((functions) =>
        [system, String(functions)].concat(figures.map((figure) => ms(over(measured, system, functions, figure)))),
      ),
    ),
  };
}

export function figuresOf(measured: Measured, systems: readonly string[]): Record<string, number> {
  const figures: Record<string, number> = {};
  for (const system of systems) {
    for (const functions of measured.levels) {
      const name = `${system}, ${functions} functions`;
      for (const [unit, figure] of [
        ['p99Ms', p99Ms],
        ['goodputShare', goodput],
        ['tightGoodputShare', tightGoodput],
        ['coldStartShare', coldShare],
      ] as const) {
        const value = over(measured, system, functions, figure);
        if (value !== null) figures[`${name} ${unit}`] = value;
      }
    }
  }
  return figures;
}

/** The paper's findings as aims for this machine. */
export function aimsOf(measured: Measured): NonNullable<BenchmarkResult['aims']> {
  const { capacity, levels } = measured;
  const beyond = levels.filter((functions) => functions > capacity);
  const ratios = (system: string, other: string): number[] =>
    beyond.flatMap((functions) => {
      const [own, theirs] = [over(measured, system, functions, p99Ms), over(measured, other, functions, p99Ms)];
      return own === null || theirs === null || theirs === 0 ? [] : [own / theirs];
    });
  const sooner = (system: string, other: string): NonNullable<BenchmarkResult['aims']>[number] => {
    const all = ratios(system, other);
    return {
      aim: `beyond what fits, the p99 of ${system} is below that of ${other} at every number of functions`,
      met: all.length > 0 && all.every((ratio) => ratio < 1),
      reached: all.length === 0 ? 'not measured' : `${all.map((ratio) => ratio.toFixed(2)).join(', ')} times`,
    };
  };
  const [first] = beyond;
  const cold = (system: string): number | null =>
    first === undefined ? null : over(measured, system, first, coldShare);
  return [
    sooner('pipeswitch', 'baseline'),
    sooner('dha', 'pipeswitch'),
    {
      aim: 'just beyond what fits, dha starts cold less often than pipeswitch, since it keeps more functions',
      met: (cold('dha') ?? 1) < (cold('pipeswitch') ?? 0),
      reached: `${percent(cold('dha'))} against ${percent(cold('pipeswitch'))} with ${first ?? '-'} functions`,
    },
  ];
}
