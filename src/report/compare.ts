/** A comparison of reports: which system wins, by how much, and whether the difference is more than noise. */
import { ms, percent, percentsApart, type NamedReport } from './tables.ts';
import type { ComparedSystem, Comparison, Report, SeedFigures } from './types.ts';

/** A system's reports of one load, each with another seed. */
export interface SystemReports {
  readonly name: string;
  readonly reports: readonly Report[];
}

export function comparisonOf(systems: readonly SystemReports[]): Comparison {
  const compared = systems.map(({ name, reports }): ComparedSystem => ({
    name,
    report: reports[0]!,
    seeds: reports.map(({ seed, requests, goodput, p99_ms }) => ({ seed, requests, goodput, p99_ms })),
  }));
  return { format: 'turntable-comparison', version: 1, ...verdictOf(compared), systems: compared };
}

/** Reports that differ in nothing but the seed are of one system, under the name of the first. */
export function systemsOfReports(reports: readonly NamedReport[]): SystemReports[] {
  const systems = new Map<string, { readonly name: string; readonly reports: Report[] }>();
  for (const [index, { name, report }] of reports.entries()) {
    const { machine, seed, settings, simulated } = report;
    // Measured twice, a load of one seed differs as well.
    const key = simulated === true && seed !== null ? JSON.stringify([machine, settings]) : String(index);
    const system = systems.get(key);
    if (system?.reports.some((other) => other.seed === seed) === false) system.reports.push(report);
    else systems.set(system === undefined ? key : String(index), { name, reports: [report] });
  }
  return [...systems.values()];
}

function verdictOf(systems: readonly ComparedSystem[]): Pick<Comparison, 'verdict' | 'winner'> {
  const other = differentLoad(systems);
  if (other !== undefined) return { verdict: `None wins: the reports are not of one load (${other}).`, winner: null };
  const unbeaten = systems.filter((each) => systems.every((rival) => advantage(rival, each) <= 0));
  const [best = systems[0]!, tied] = unbeaten.toSorted(byFigures);
  if (unbeaten.length === 1 && systems.every((rival) => rival === best || advantage(best, rival) > 0)) {
    const [next] = systems.filter((each) => each !== best).toSorted(byFigures);
    return { verdict: winText(best, next!), winner: best.name };
  }
  const rival = tied ?? systems.filter((each) => each !== best).toSorted(byFigures)[0]!;
  return {
    verdict:
      `None wins: ${best.name} and ${rival.name} differ by no more than ${noiseText(best, rival)} ` +
      `(${figuresText(best)} against ${figuresText(rival)}).`,
    winner: null,
  };
}

const figuresText = ({ seeds }: ComparedSystem): string =>
  `goodput ${percent(mean(seeds, 'goodput'))}, p99 ${ms(p99(seeds))}`;

/** Whether `one` is better than `other` by more than noise: above 0; worse: below. Goodput counts before p99. */
function advantage(one: ComparedSystem, other: ComparedSystem): number {
  return better(one, other, 'goodput') || -better(one, other, 'p99_ms');
}

type Compared = 'goodput' | 'p99_ms';

/** The sign of a difference that is more than noise; 0: there is none. */
function better(one: ComparedSystem, other: ComparedSystem, figure: Compared): number {
  const pairs = pairsOf(one, other, figure);
  if (pairs.length > 1) {
    const differences = pairs.map(([a, b]) => a - b);
    const middle = differences.reduce((sum, each) => sum + each, 0) / differences.length;
    const squares = differences.reduce((sum, each) => sum + (each - middle) ** 2, 0);
    const error = Math.sqrt(squares / (differences.length - 1) / differences.length);
    return Math.abs(middle) > tOf(differences.length - 1) * error ? Math.sign(middle) : 0;
  }
  const [a, b] = [one.report[figure], other.report[figure]];
  if (a === null || b === null || a === b) return 0;
  const isApart = figure === 'goodput' ? goodputApart(one.report, other.report) : p99Apart(one.report, other.report);
  return isApart ? Math.sign(a - b) : 0;
}

/** A figure of both, by seed: the same arrivals for both sides, so that only the systems differ. */
function pairsOf(one: ComparedSystem, other: ComparedSystem, figure: Compared): [number, number][] {
  return one.seeds.flatMap((row): [number, number][] => {
    const [a, b] = [row[figure], other.seeds.find(({ seed }) => seed === row.seed)?.[figure]];
    return row.seed === null || a === null || b === null || b === undefined ? [] : [[a, b]];
  });
}

/** Student's t for a probability of 95%, two-sided, by degrees of freedom. */
const studentT = [12.71, 4.3, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26] as const;
const tOf = (freedom: number): number => studentT[freedom - 1] ?? 2.2;

const variance = ({ goodput, requests }: Report): number => ((goodput ?? 0) * (1 - (goodput ?? 0))) / requests;

/** Two standard errors of a share of so many requests, taken as independent. */
function goodputApart(one: Report, other: Report): boolean {
  return Math.abs((one.goodput ?? 0) - (other.goodput ?? 0)) > 2 * Math.sqrt(variance(one) + variance(other));
}

/** Whether the 95% intervals of both, by order statistics, do not meet. Older reports do not tell them. */
function p99Apart(one: Report, other: Report): boolean {
  const [a, b] = [p99Interval(one), p99Interval(other)];
  return a !== undefined && b !== undefined && (a[1] < b[0] || b[1] < a[0]);
}

function p99Interval({ latency_cdf: cdf = [], requests }: Report): readonly [number, number] | undefined {
  const reach = 2 * Math.sqrt((0.99 * 0.01) / requests);
  const below = cdf.findLast(([share]) => share <= 0.99 - reach);
  const above = cdf.find(([share]) => share >= Math.min(1, 0.99 + reach));
  return below === undefined || above === undefined ? undefined : [below[1], above[1]];
}

const mean = (rows: readonly SeedFigures[], figure: Compared): number | null => {
  const known = rows.flatMap((row) => row[figure] ?? []);
  return known.length === 0 ? null : known.reduce((sum, each) => sum + each, 0) / known.length;
};
const p99 = (rows: readonly SeedFigures[]): number | null => mean(rows, 'p99_ms');

/** The highest goodput first, and of the same the lowest p99. */
const byFigures = (one: ComparedSystem, other: ComparedSystem): number =>
  (mean(other.seeds, 'goodput') ?? 0) - (mean(one.seeds, 'goodput') ?? 0) ||
  (p99(one.seeds) ?? Infinity) - (p99(other.seeds) ?? Infinity);

function winText(best: ComparedSystem, next: ComparedSystem): string {
  const [own, rival] = [p99(best.seeds) ?? 0, p99(next.seeds) ?? 0];
  const values = `(${ms(own)} against ${ms(rival)})`;
  const side = better(best, next, 'p99_ms');
  const change = rival === 0 ? '' : `${Math.round(Math.abs(1 - own / rival) * 100)}% `;
  const [goodput, other] = percentsApart(mean(best.seeds, 'goodput') ?? 0, mean(next.seeds, 'goodput') ?? 0);
  const parts =
    better(best, next, 'goodput') > 0
      ? [
          `goodput ${goodput} against ${other}`,
          side === 0
            ? `p99 no different beyond noise ${values}`
            : `p99 ${change}${side < 0 ? 'lower' : 'higher'} ${values}`,
        ]
      : [
          `p99 ${change}lower ${values}`,
          goodput === other
            ? `the same goodput (${goodput})`
            : `goodput no different beyond noise (${goodput} against ${other})`,
        ];
  return `${best.name} wins over ${next.name}: ${parts.join(', ')}. The difference is more than ${noiseText(best, next)}.`;
}

/** What the difference was measured against. */
function noiseText(one: ComparedSystem, other: ComparedSystem): string {
  const seeds = pairsOf(one, other, 'goodput').length;
  return seeds > 1
    ? `the noise of ${seeds} seeds`
    : `the noise of ${Math.min(one.report.requests, other.report.requests).toLocaleString('en-US')} requests with one seed`;
}

/** Settings that say which requests were replayed, and how fast they had to be answered. */
const loadSettings = [
  'load',
  'trace',
  'rate_per_s',
  'popularity',
  'functions',
  'requests',
  'from_s',
  'duration_s',
  'slo_ms',
  'slo',
  'burst_height',
  'burst_width',
  'random',
  'assign',
  'placement',
  'warmup_requests',
  // Simulated, a trace has its own.
  'speed',
] as const;

/** The first thing in which the loads differ: "rate_per_s: 50, 100". */
function differentLoad(systems: readonly ComparedSystem[]): string | undefined {
  for (const setting of loadSettings) {
    const values = new Set(
      systems.flatMap(({ report: { settings } }) => settings[setting] ?? (setting === 'speed' ? 1 : [])).map(String),
    );
    if (values.size > 1) return `${setting}: ${[...values].join(', ')}`;
  }
  const [first] = systems;
  const other = systems.find(({ seeds }) =>
    seeds.some(({ seed, requests }) => first?.seeds.some((row) => row.seed === seed && row.requests !== requests)),
  );
  return other && `requests: ${first!.report.requests}, ${other.report.requests}`;
}
