/** Thousands of random machines, functions, policies, faults and loads; a plain model checks the scheduler. */
import { type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { searchSeeds, type BrokenSeed } from './seeds/search.ts';

export const benchmark: Benchmark = {
  name: 'seeds',
  mustMeetAims: true,
  description: 'is there a machine, load or fault under which the scheduler breaks one of its invariants',
  run: async (options) => await Promise.resolve(run(options)),
};

/** The nightly count. */
const scenariosFull = 100_000;
const scenariosSmall = 300;
/** Most events to show for a broken seed; shrunk ones have fewer. */
const eventsShown = 40;

function run({ small, seed, progress }: BenchmarkOptions): BenchmarkResult {
  const scenarios = small ? scenariosSmall : scenariosFull;
  const startedMs = performance.now();
  const search = searchSeeds({ scenarios, seed }, (done) => progress(`${done} of ${scenarios} scenarios`));
  const seconds = (performance.now() - startedMs) / 1000;
  const { played, broken } = search;
  const counts = Object.entries(played);
  return {
    settings: { scenarios },
    tables: [
      {
        title: 'What the scenarios went through',
        provenance: { kind: 'measured' },
        columns: ['WHAT', '>COUNT'],
        rows: [['scenarios', String(search.scenarios)], ...counts.map(([name, count]) => [words(name), String(count)])],
      },
      ...(broken === undefined ? [] : [brokenTable(broken)]),
    ],
    figures: { scenarios: search.scenarios, scenariosPerS: search.scenarios / seconds, ...played },
    aims: [
      {
        aim: 'every tier within its capacity, one run a lane, each invocation ends once, no idle lane beside its own work, nobody starves',
        met: broken === undefined,
        reached: broken === undefined ? `in ${search.scenarios} scenarios` : `seed ${broken.seed}: ${broken.message}`,
      },
      {
        aim: 'the scenarios evict, shrink, shed, lose GPUs and are refused',
        met: counts.every(([, count]) => count > 0),
        reached: counts.map(([name, count]) => `${words(name)} ${count}`).join(', '),
      },
    ],
    limits: ['durations: they are drawn, and mean nothing'],
  };
}

const words = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

function brokenTable({ seed, shrinks, scenario, events }: BrokenSeed): BenchmarkResult['tables'][number] {
  const { operations, ...machine } = scenario;
  return {
    title: `Seed ${seed}, shrunk ${shrinks} times: the last ${Math.min(eventsShown, events.length)} events`,
    provenance: { kind: 'measured' },
    columns: ['EVENT => ACTIONS'],
    rows: [
      [JSON.stringify(machine)],
      [JSON.stringify(operations)],
      ...events.slice(-eventsShown).map((event) => [event]),
    ],
  };
}
