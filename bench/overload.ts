/**
 * More calls than the CPU can serve, in real time, on a host without GPUs: which are on time, which are refused, and
 * which functions suffer.
 */
import { ElementType, GraphBuilder } from '../src/onnx/index.ts';
import type { TraceInvocation } from '../src/replay/index.ts';
import { tableOf, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { busyGraph } from './chaos/models.ts';
import { attackAims, attackNames, attacksTable, runAttacks, type Attacked } from './overload/attacks.ts';
import { floodAims, floodsTable, runFloods, type Floods } from './overload/floods.ts';
import { closedLoop, openLoop, warmMsOf, type Answer } from './overload/clients.ts';
import { Servers } from './servers.ts';
import { arrivalsOf } from './shared/arrivals.ts';
import { median, percentiles } from './shared/statistics.ts';

const sloMs = 300;
const clients = 8;
const quietFunctions = 20;
const quietPerSecond = 1;
const everydayFunctions = 12;
/** At less, no call would come in the fraction of a second of a small run, and its shares were those of nothing. */
const perSecondMinSmall = 20;
/** Size of one run of the model: rows of a matrix, their width, and the number of matrices they are multiplied with. */
const busyFull = { rows: 64, width: 768, layers: 8 };
/** As much work with a ninth of the weights, which take seconds to be checked, written and mapped. */
const busySmall = { rows: 576, width: 256, layers: 8 };

export const benchmark: Benchmark = {
  name: 'overload',
  description:
    'CPU pools behind HTTP at twice and at ten times their capacity, with shedding and without, and quiet neighbours; floods in 2 GB; attacks on memory',
  rowNames: () => ['everyday', ...scenes.map(({ name }) => name), 'floods', 'attacks', ...attackNames],
  run,
};

interface Scene {
  readonly name: string;
  readonly title: string;
  /** Rate of one function, relative to its capacity. */
  readonly times: number;
  readonly admission: 'best-effort' | 'shed';
  /** Functions beside it, each with one call a second. */
  readonly quiet: number;
}

const scenes: readonly Scene[] = [
  { name: 'twice', title: 'twice the capacity, best-effort', times: 2, admission: 'best-effort', quiet: 0 },
  { name: 'shed', title: 'ten times the capacity, shed', times: 10, admission: 'shed', quiet: 0 },
  {
    name: 'quiet',
    title: 'ten times, best-effort, and twenty quiet ones',
    times: 10,
    admission: 'best-effort',
    quiet: quietFunctions,
  },
];
/** One that recovers, and one that sheds beside quiet functions. */
const smallScenes: readonly Scene[] = [
  scenes.find(({ name }) => name === 'twice')!,
  {
    ...scenes.find(({ name }) => name === 'quiet')!,
    admission: 'shed',
    title: 'ten times, shed, and two quiet ones',
    quiet: 2,
  },
];

interface Group {
  readonly calls: number;
  readonly answered: number;
  readonly refused: number;
  readonly onTime: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Part of the benchmark on a host of its own; in a small run, which measures nothing, one host serves all parts. */
interface Act {
  readonly title: string;
  readonly prepare: (servers: Servers) => Promise<void>;
  readonly play: (url: string) => Promise<void>;
}

async function run({ small, seed, rows: only, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  // A capacity measured in a lucky moment, times ten: a busy machine would need minutes for one second of it.
  const forMs = small ? 250 : 12_000;
  const everydayMs = small ? 500 : 20_000;
  const busy = small ? busySmall : busyFull;
  const played = small ? smallScenes : scenes;
  const tinyFunctions = small ? 3 : everydayFunctions;
  const groups = new Map<string, Group>();
  const capacities: number[] = [];
  const acts: Act[] = [
    ...((only?.includes('everyday') ?? true) ? [everyday(tinyFunctions, everydayMs, seed, small, groups)] : []),
    ...played
      .filter(({ name }) => only?.includes(name) ?? true)
      .map((scene): Act => ({
        title: scene.title,
        prepare: (servers) => addFunctions(servers, scene, busy),
        play: async (url) => {
          capacities.push(await play(url, scene, groups, small, forMs, seed));
        },
      })),
  ];
  for (const together of small && acts.length > 0 ? [acts] : acts.map((act) => [act])) {
    await using servers = await Servers.create();
    for (const { prepare } of together) await prepare(servers);
    const { url } = await servers.startHost();
    for (const act of together) {
      progress(act.title);
      await act.play(url);
    }
  }
  const isFlooded = only?.includes('floods') ?? true;
  if (isFlooded) progress('floods, in 2 GB');
  const floods = isFlooded ? await runFloods(small, seed, tinyGraph) : undefined;
  const attacked = await runAttacks({ small, progress }, only);
  return report(groups, floods, attacked, {
    ...busy,
    forMs,
    everydayMs,
    tinyFunctions,
    quietFunctions: played.at(-1)!.quiet,
    seed,
    capacityPerSecond: median(capacities) || 0,
  });
}

const loudOf = ({ name }: Scene): string => `loud-${name}`;
const quietOf = ({ quiet }: Scene): string[] => Array.from({ length: quiet }, (_, index) => `quiet-${index}`);

async function addFunctions(servers: Servers, scene: Scene, busy: typeof busyFull): Promise<void> {
  await servers.addFunction(loudOf(scene), busyGraph(busy), { slo: `${sloMs}ms`, admission: scene.admission });
  await servers.addFunction('meter', busyGraph(busy), {});
  for (const name of quietOf(scene)) await servers.addFunction(name, tinyGraph(), { slo: `${sloMs}ms` });
}

/** Adds the scene's groups. Returns the capacity in calls a second. */
async function play(
  url: string,
  scene: Scene,
  groups: Map<string, Group>,
  small: boolean,
  forMs: number,
  seed: number,
): Promise<number> {
  const [name, quiet] = [loudOf(scene), quietOf(scene)];
  // Measured with another function: one that sheds would answer fewer calls when it is slow.
  await closedLoop(url, 'meter', clients, small ? 20 : 1000);
  const capacityPerSecond = await closedLoop(url, 'meter', clients, small ? 50 : 4000);
  await closedLoop(url, name, clients, small ? 20 : 1000);
  for (const each of quiet) await closedLoop(url, each, 1, 1);
  const rateAt = (times: number): number => rateOf(times * capacityPerSecond, small);
  const load = arrivalsOf({ functions: 1, ratePerS: rateAt(scene.times), forMs, seed });
  const beside = (): TraceInvocation[] => {
    const ratePerS = rateOf(scene.quiet * quietPerSecond, small);
    return arrivalsOf({ functions: scene.quiet, ratePerS, forMs, seed: seed + 1 });
  };
  const warmMs = warmMsOf(small);
  const title = scene.quiet === 0 ? scene.title : `${scene.title}: the loud one`;
  const [loud, others] = await Promise.all([
    openLoop(url, [name], load, warmMs),
    scene.quiet === 0 ? [] : openLoop(url, quiet, beside(), warmMs),
  ]);
  groups.set(title, groupOf(loud));
  if (scene.quiet > 0) groups.set('quiet', groupOf(others));
  if (scene.name === 'twice') {
    const recoversMs = small ? 300 : 1000;
    const after = arrivalsOf({ functions: 1, ratePerS: rateAt(0.3), forMs: 2 * recoversMs, seed: seed + 2 });
    const later = (await openLoop(url, [name], after, warmMs)).filter(({ arrivalMs }) => arrivalMs >= recoversMs);
    groups.set('recovery', groupOf(later));
  }
  return capacityPerSecond;
}

const rateOf = (perSecond: number, small: boolean): number => Math.max(perSecond, small ? perSecondMinSmall : 0);

/** The first thing that everybody tries. */
function everyday(functions: number, forMs: number, seed: number, small: boolean, groups: Map<string, Group>): Act {
  const names = Array.from({ length: functions }, (_, index) => `tiny-${index}`);
  return {
    title: `${functions} functions, default settings`,
    prepare: async (servers) => {
      for (const name of names) await servers.addFunction(name, tinyGraph(), { slo: `${sloMs}ms` });
    },
    play: async (url) => {
      const arrivals = arrivalsOf({ functions, ratePerS: rateOf(functions, small), forMs, seed });
      groups.set('everyday', groupOf(await openLoop(url, names, arrivals, warmMsOf(small))));
    },
  };
}

function groupOf(answers: readonly Answer[]): Group {
  const answered = answers.filter(({ status }) => status === 200).map(({ latencyMs }) => latencyMs);
  return {
    calls: answers.length,
    answered: answered.length,
    refused: answers.length - answered.length,
    onTime: answered.filter((ms) => ms <= sloMs).length,
    ...percentiles(answered),
  };
}

function report(
  groups: ReadonlyMap<string, Group>,
  floods: Floods | undefined,
  attacked: readonly Attacked[],
  settings: typeof busyFull & {
    readonly forMs: number;
    readonly everydayMs: number;
    readonly tinyFunctions: number;
    readonly quietFunctions: number;
    readonly seed: number;
    readonly capacityPerSecond: number;
  },
): BenchmarkResult {
  const titles: Record<string, string> = {
    everyday: `${settings.tinyFunctions} tiny functions, a call in a second each, default settings`,
    quiet: `${settings.quietFunctions} quiet ones beside it`,
    recovery: 'a second after twice the capacity, at 30%',
  };
  const { capacityPerSecond, ...rest } = settings;
  return {
    settings: { ...rest, sloMs, clients },
    tables: [
      tableOf(
        `a model of ${capacityPerSecond.toFixed(0)} runs in a second, SLO ${sloMs} ms, open loop over HTTP`,
        Array.from(groups, ([name, group]) => ({ name, ...group })),
        [
          ['SCENE', ({ name }) => titles[name] ?? name],
          ['>CALLS', ({ calls }) => String(calls)],
          ['>ANSWERED', ({ answered }) => String(answered)],
          ['>REFUSED', ({ refused }) => String(refused)],
          ['>% OF CALLS IN SLO', ({ onTime, calls }) => shareText(onTime, calls)],
          ['>% OF ANSWERED IN SLO', ({ onTime, answered }) => shareText(onTime, answered)],
          ['>P50 MS', ({ p50Ms }) => p50Ms.toFixed(1)],
          ['>P99 MS', ({ p99Ms }) => p99Ms.toFixed(1)],
        ],
      ),
      ...(floods === undefined ? [] : [floodsTable(floods)]),
      ...(attacked.length === 0 ? [] : [attacksTable(attacked)]),
    ],
    figures: {
      capacityPerSecond,
      ...Object.fromEntries(
        Array.from(groups, ([name, { onTime, calls }]) => [`${name}: in SLO %`, (100 * onTime) / calls]),
      ),
    },
    aims: [
      ...aim(groups, 'everyday', 'calls', 100),
      ...aim(groups, scenes[0]!.title, 'calls', 45),
      ...aim(groups, scenes[1]!.title, 'answered', 99),
      ...aim(groups, 'quiet', 'calls', 99),
      ...aim(groups, 'recovery', 'calls', 99),
      ...(floods === undefined ? [] : floodAims(floods)),
      ...attackAims(attacked),
    ],
    limits: [
      'the clients run on the same processors, and at ten times the load take a good part of them',
      'one model: what is shed of a mix of long and short ones',
    ],
  };
}

function aim(
  groups: ReadonlyMap<string, Group>,
  name: string,
  of: 'calls' | 'answered',
  least: number,
): NonNullable<BenchmarkResult['aims']> {
  const group = groups.get(name);
  if (group === undefined) return [];
  const share = (100 * group.onTime) / group[of];
  return [{ aim: `${name}: ${least}% of ${of} in the SLO`, met: share >= least, reached: `${share.toFixed(2)}%` }];
}

/** In percent, as the title of its column says. */
const shareText = (part: number, whole: number): string => (whole === 0 ? '-' : ((100 * part) / whole).toFixed(2));

/** y = max(x, 0) on one number: a model of about a hundred bytes. */
export function tinyGraph(): GraphBuilder {
  const graph = new GraphBuilder('relu');
  const x = graph.input('x', ElementType.FLOAT, [1, 1]);
  graph.output(graph.node('Relu', [x]), ElementType.FLOAT, [1, 1], 'y');
  return graph;
}
