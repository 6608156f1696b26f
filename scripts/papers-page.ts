/** docs/papers.md and its pictures, from bench/results: what of the four papers holds here, for people. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { barChart, lineChart, type Line, type Origin } from './chart.ts';

interface Table {
  readonly title: string;
  readonly provenance: { readonly kind: string; readonly preset?: string; readonly from?: string };
  readonly columns: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

interface Result {
  readonly startedAt: string;
  readonly machine: { readonly processor: string; readonly gpus: readonly string[] };
  readonly tables: readonly Table[];
  readonly aims: readonly { readonly aim: string; readonly met: boolean; readonly reached: string }[];
  readonly figures: Readonly<Record<string, number>>;
}

const resultsFolder = join(import.meta.dirname, '..', 'bench', 'results');

const resultOf = (name: string): Result => JSON.parse(readFileSync(join(resultsFolder, `${name}.json`), 'utf8')) as Result; // prettier-ignore

/** @throws Error if the results have no such table, or several: the page must not show another one */
function tableOf({ tables }: Result, start: string): Table {
  const found = tables.filter(({ title }) => title.startsWith(start));
  if (found.length !== 1) throw new Error(`bench/results has ${found.length} tables that begin with '${start}'`);
  return found[0]!;
}

/** Titles without the mark of those that stand on the right. */
const titlesOf = ({ columns }: Table): string[] => columns.map((title) => title.replace(/^>/, ''));

function column(table: Table, name: string): string[] {
  const { rows, title } = table;
  const index = titlesOf(table).indexOf(name);
  if (index < 0) throw new Error(`the table '${title}' has no column '${name}'`);
  return rows.map((row) => row[index]!);
}

/** The n-th number of a cell such as `105 / 98.8 / 16`. */
const nth = (cell: string, index: number): number => Number(cell.split('/')[index]!.replace(/[%,]/g, ''));

/** One line for each column after the first. */
function linesOf(table: Table, part: number, origin: Origin, names: readonly string[]): Line[] {
  const xs = table.rows.map((row) => Number(row[0]));
  return names.map((name) => ({
    name,
    origin,
    points: column(table, name).map((cell, row) => [xs[row]!, nth(cell, part)] as const),
  }));
}

const simulated = ({ provenance }: Table): string =>
  provenance.kind === 'simulated' ? `SIMULATED, machine preset ${provenance.preset}` : `ESTIMATED: ${provenance.from}`;

const systems = ['PipeSwitch', 'DHA', 'PT+DHA', 'interleave, policy best'];

interface Picture {
  readonly name: string;
  readonly alt: string;
  readonly svg: () => string;
}

/** The 99th percentile by the number of functions, as Figures 13 and 14 of DeepPlan draw it. */
function servingLines(figure: string, load: string, ofTable = ''): string {
  const table = tableOf(resultOf('papers'), `${figure}${ofTable}`);
  return lineChart({
    title: `${figure}: p99 of ${load} on four GPUs`,
    source: simulated(table),
    yLabel: 'ms, powers of ten',
    xLabel: 'functions',
    isLog: true,
    yMin: 10,
    yMax: 10_000,
    lines: linesOf(table, 0, 'simulated', systems),
    limit: { y: 100, name: 'SLO' },
  });
}

/** In the order of the page. */
const pictures = {
  figure13: {
    name: 'deepplan-figure13',
    alt: 'The 99th percentile over the number of functions: PipeSwitch leaves 100 ms first, then DHA, then PT+DHA',
    svg: () => servingLines('DeepPlan, Figure 13', 'BERT-Base, 100 requests a second'),
  },
  figure14: {
    name: 'deepplan-figure14',
    alt: 'The same for BERT-Large at 30 requests a second',
    svg: () => servingLines('DeepPlan, Figure 14', 'BERT-Large, 30 requests a second', ': bert-large'),
  },
  starts: {
    name: 'cold-starts-h200',
    alt: 'Cold starts of six models on an NVIDIA H200, by mode',
    svg: () => {
      const result = resultOf('gpu');
      const table = tableOf(result, 'Latency of one run by mode');
      const modes = ['warm', 'baseline', 'pipeswitch', 'dha'];
      return barChart({
        title: 'Cold starts by mode on one GPU',
        source: `MEASURED on ${result.machine.gpus.join(', ')}, ${result.startedAt.slice(0, 10)}; one GPU, so no link to borrow`,
        yLabel: 'ms',
        yMax: 35,
        groups: table.rows.map((row, index) => ({
          name: row[0]!,
          bars: modes.map((mode) => ({ name: mode, origin: 'measured', value: Number(column(table, mode)[index]) })),
        })),
      });
    },
  },
  packrat: {
    name: 'packrat-table2',
    alt: 'The latency of the best configuration of BERT on 16 threads by batch, as printed and as computed: one line',
    svg: () => {
      const table = tableOf(resultOf('papers'), "Packrat: BERT's best");
      const rows = table.rows.filter(([threads]) => threads === '16');
      const line = (name: string, title: string, origin: Origin): Line => ({
        name,
        origin,
        points: column({ ...table, rows }, title).map((ms, row) => [Math.log2(Number(rows[row]![1])), Number(ms)] as const), // prettier-ignore
      });
      return lineChart({
        title: "Packrat, Table 2: BERT's best configuration on 16 threads",
        source: simulated(table),
        yLabel: 'ms, powers of ten',
        xLabel: 'batch, as a power of two',
        isLog: true,
        yMin: 10,
        yMax: 10_000,
        lines: [line('printed', 'Paper ms', 'printed'), line('ours', 'Ours ms', 'simulated')],
      });
    },
  },
  serfPolicies: {
    name: 'serf-figure14',
    alt: 'The mean latency of each policy in three phases: SERF is as fast as the best fixed one in each',
    svg: () => {
      const table = tableOf(resultOf('papers'), 'SERF, Figure 14');
      const phases = ['moderate', 'then low', 'moderate again'];
      return barChart({
        title: 'SERF, Figure 14: load goes from moderate to low and back',
        source: `SIMULATED; ${table.provenance.from}: a trend`,
        yLabel: 'mean ms',
        yMax: 125,
        groups: phases.map((name, phase) => ({
          name,
          bars: table.rows.map((row) => ({ name: row[0]!, origin: 'simulated', value: Number(row[phase + 1]) })),
        })),
      });
    },
  },
  serfMachines: {
    name: 'serf-figure15',
    alt: 'Machines that each configuration needs for a mean of 280 ms, by load',
    svg: () => {
      const table = tableOf(resultOf('papers'), 'SERF, Figure 15');
      const configurations = titlesOf(table).slice(4);
      const lines = ['machines', ...configurations].map((title): Line => ({
        name: title === 'machines' ? 'SERF' : title,
        origin: 'simulated',
        points: column(table, title).flatMap((count, row) => {
          const machines = Number(count);
          return Number.isNaN(machines) ? [] : [[Number(table.rows[row]![0]), machines] as const];
        }),
      }));
      return lineChart({
        title: 'SERF, Figure 15: fewest machines for a mean of 280 ms',
        source: `SIMULATED; ${table.provenance.from}: a trend`,
        yLabel: 'machines, powers of ten',
        xLabel: 'requests a second',
        isLog: true,
        yMin: 1,
        yMax: 1000,
        lines: lines.filter(({ points }) => points.length > 0),
      });
    },
  },
  chrion: {
    name: 'chrion-table6',
    alt: 'GPU memory that the Latency-Optimal pattern saves by column, printed and computed',
    svg: () => {
      const table = tableOf(resultOf('papers'), 'Chrion: what both patterns save');
      const [printed, ours] = [2, 2].map((_, side) => table.rows.map((row) => Number(row[1 + side]!.replace('%', ''))));
      return barChart({
        title: 'Chrion, Table 6: GPU memory that Latency-Optimal saves of the GPU alone',
        source: simulated(table),
        yLabel: '%',
        yMax: 80,
        groups: table.rows.map(([name], row) => ({
          name: name!,
          bars: [
            { name: 'printed', origin: 'printed', value: printed![row]! },
            { name: 'ours', origin: 'simulated', value: ours![row]! },
          ],
        })),
      });
    },
  },
} as const satisfies Readonly<Record<string, Picture>>;

/** The pictures by their path. */
export const paperPictures: Readonly<Record<string, () => string>> = Object.fromEntries(
  Object.values<Picture>(pictures).map(({ name, svg }) => [`docs/papers/${name}.svg`, svg]),
);

const papers = ['DeepPlan', 'Packrat', 'SERF', 'Chrion'] as const;

/** What each paper asks, in a sentence, and its pictures. */
const said: Readonly<Record<(typeof papers)[number], { readonly text: string; readonly shown: readonly Picture[] }>> = {
  DeepPlan: {
    text: 'Cold starts on GPUs: layers that are read from host memory instead of loaded (DHA), and weights that come over the links of several GPUs (PT). The machine preset was fitted to its single starts, so that its serving figures are what tests it.',
    shown: [pictures.figure13, pictures.figure14, pictures.starts],
  },
  Packrat: {
    text: 'CPU pools: a batch divided over instances, threads and rows. Its own published measurements go in, and its choices must come out.',
    shown: [pictures.packrat],
  },
  SERF: {
    text: 'Latency under load, with requests that slow each other down, and the configuration that is best at each load. Its service times are not printed, but for two; the pictures show what follows from times that agree with its text.',
    shown: [pictures.serfPolicies, pictures.serfMachines],
  },
  Chrion: {
    text: 'One recurrent network divided over a GPU and CPU cores, for latency or for GPU memory. The machine is fitted to the rows of the GPU and the CPU alone; the divided rows are what tests it.',
    shown: [pictures.chrion],
  },
};

const isWithin = (row: Readonly<Record<string, string>>): boolean => row['within its aim'] === 'yes';

export function renderPapersPage(): string {
  const result = resultOf('papers');
  const gpu = resultOf('gpu');
  const { computedCells, computedCellsWithin } = result.figures;
  const cells = papers.map((paper) => {
    const table = tableOf(result, `${paper}: every table and figure`);
    const rows = table.rows.map((row) => Object.fromEntries(titlesOf(table).map((title, at) => [title, row[at]!])));
    return { paper, rows, of: (word: string) => rows.filter((row) => row['word'] === word) };
  });
  const counts = cells.map(({ paper, of }) => {
    const computed = of('computed');
    return `| ${paper} | ${computed.filter(isWithin).length} of ${computed.length} | ${of('shape').length} | ${of('fitted').length} | ${of('only measurable').length} |`; // prettier-ignore
  });
  const sections = cells.map(({ paper, of }) => {
    const missed = of('computed').filter((row) => !isWithin(row));
    const { text, shown } = said[paper];
    return [
      `## ${paper}`,
      text,
      ...shown.map(({ name, alt }) => `![${alt}](papers/${name}.svg)`),
      ...(missed.length === 0
        ? ['Every computed figure is within its aim.']
        : [
            'What is off, and why:',
            [
              '| where | what | paper | ours | difference | why |',
              '| --- | --- | ---: | ---: | ---: | --- |',
              ...missed.map((row) => `| ${['where', 'what', 'paper', 'ours', 'difference', 'why'].map((title) => row[title]!.replaceAll('|', '\\|').replaceAll('<', '&lt;')).join(' | ')} |`), // prettier-ignore
            ].join('\n'),
          ]),
    ].join('\n\n');
  });
  return [
    '# The four papers, and what holds here',
    '<!-- Written by `npm run docs` from bench/results/papers.json and gpu.json, not by hand. -->',
    `Turntable joins four published systems. \`npm run bench -- papers\` computes their tables and figures again, and \`npm run docs\` makes this page of the result. **${computedCellsWithin} of ${computedCells}** printed figures that can be computed are within their aim. [Every row, with its aim](../bench/results/papers.md).`,
    'Only what a paper prints as a number counts. Where it prints a trend or a curve without numbers, the row says _shape_; where a preset was fitted to the figure, _fitted_; and where only the authors’ machine could tell, _only measurable_.',
    ['| paper | within the aim | shape | fitted | only measurable |', '| --- | ---: | ---: | ---: | ---: |', ...counts].join('\n'), // prettier-ignore
    `In the pictures dashes and hatches are **simulated** or estimated, dots and empty bars are printed in the paper, and solid lines and bars are measured. The simulations are of ${result.startedAt.slice(0, 10)}; the measurements of ${gpu.startedAt.slice(0, 10)} on ${gpu.machine.gpus.join(', ')}.`,
    ...sections,
    '',
  ].join('\n\n');
}
