/** SERF's Figures 1, 12, 14 and 15 and its Table I over 20 simulated machines: trends, since its service times are not printed. */
import { leastResources, serfTable, type ConfigurationPrediction } from '../../src/plan/index.ts';
import { capacityPerSecond, predictService } from '../../src/plan/serf/predict.ts';
import type { ServiceConfiguration } from '../../src/profile/index.ts';
import { tableOf, type BenchmarkTable } from '../benchmark.ts';
import { shape, type Cell } from './cells.ts';
import { configurationOf, likeImageNet, machines, nameOf, runCluster, type Policy } from './serf-cluster.ts';
import { percent } from '../shared/statistics.ts';

interface Options {
  /** Of each simulated phase. */
  readonly seconds: number;
  readonly seed: number;
}

export interface ClusterFigures {
  readonly cells: readonly Cell[];
  readonly tables: readonly BenchmarkTable[];
}

/** Requests per second and machine; section V-B calls them low and moderate. */
const low = 1;
const moderate = 2.5;
/** For Figure 15. */
const sloMs = 280;

const tableI = ([[1, 1, 8], [2, 1, 4], [4, 1, 2], [1, 4, 8], [2, 4, 4], [4, 4, 2]] as const).map(
  ([concurrency, nodes, threads]) => configurationOf(concurrency, nodes, threads),
); // prettier-ignore

export function clusterFigures(options: Options): ClusterFigures {
  const parts = [figure1(), figure12(options), bestByExhaustion(options), figure14(options), figure15(options)];
  return { cells: parts.flatMap(({ cells }) => cells), tables: parts.flatMap(({ tables }) => tables) };
}

const latencyOf = ({ prediction }: ConfigurationPrediction): number =>
  prediction.state === 'stable' ? prediction.latencyMs : Infinity;

const ranked = (perMachine: number): ConfigurationPrediction[] =>
  serfTable(likeImageNet, [perMachine * machines], { machines })[0]!.all.toSorted((a, b) => latencyOf(a) - latencyOf(b)); // prettier-ignore

const simulatedMs = (policy: Policy, perMachine: number, { seconds, seed }: Options, count = machines): number =>
  runCluster(policy, [{ ratePerSecond: perMachine * machines, seconds }], { seed, count }).meanMs[0]!;

function figure1(): ClusterFigures {
  const [at, then] = [low, moderate].map((perMachine) => {
    const oneNode = ranked(perMachine).filter(({ configuration }) => configuration.nodes === 1);
    const stable = oneNode.filter((each) => latencyOf(each) < Infinity);
    const [best] = stable;
    return {
      best: nameOf(best!.configuration),
      spread: latencyOf(stable.at(-1)!) / latencyOf(best!),
      overloaded: oneNode.length - stable.length,
    };
  });
  const said = (load: typeof at): string =>
    `${load!.best} is best, the worst takes ${load!.spread.toFixed(0)} times as long, ${load!.overloaded} of 20 are overloaded`;
  const text = `${said(at)}; at moderate load ${said(then)}`;
  return { cells: [shape('Figure 1', 'one machine for a request, low load', 'orders of magnitude between best and worst, more under load, another best', text)], tables: [] }; // prettier-ignore
}

/** Table I's configurations under ten loads, each predicted and simulated. */
function figure12(options: Options): ClusterFigures {
  const rows = tableI.flatMap((configuration) => {
    const units = Math.floor(machines / (configuration.nodes ?? 1));
    const capacity = capacityPerSecond(configuration.serviceTime) * units;
    return Array.from({ length: 10 }, (_, index) => {
      const load = (0.9 * (index + 1)) / 10;
      const perMachine = (load * capacity) / machines;
      const prediction = predictService(configuration.serviceTime, (perMachine * machines) / units);
      const predictedMs = prediction.state === 'stable' ? prediction.latencyMs : Number.NaN;
      return {
        configuration,
        load,
        perMachine,
        predictedMs,
        simulated: simulatedMs(configuration, perMachine, options),
      };
    });
  });
  const off = ({ predictedMs, simulated }: (typeof rows)[number]): number => Math.abs(predictedMs / simulated - 1);
  const cells = tableI.map((configuration, index) => {
    const own = rows.filter((row) => row.configuration === configuration);
    const mean = own.reduce((sum, row) => sum + off(row), 0) / own.length;
    return shape('Figure 12, Table I', `Config${index + 1} ${nameOf(configuration)}, prediction against simulation at ten loads`, 'excellent agreement', `${percent(mean)} off on average, at most ${percent(Math.max(...own.map(off)))}`); // prettier-ignore
  });
  return {
    cells,
    tables: [
      tableOf(
        'SERF, Table I: its six configurations on 20 machines, service times that agree with its text',
        rows,
        [
          ['service, inter-node, intra-node', ({ configuration }) => nameOf(configuration)],
          ['>load', ({ load }) => `${Math.round(load * 100)}%`],
          ['>requests/s and machine', ({ perMachine }) => perMachine.toFixed(2)],
          ['>predicted ms', ({ predictedMs }) => predictedMs.toFixed(1)],
          ['>simulated ms', ({ simulated }) => simulated.toFixed(1)],
          ['>prediction is', ({ predictedMs, simulated }) => percent(predictedMs / simulated - 1)],
        ],
        { kind: 'estimated', from: 'service times assumed from what the paper says of them' },
      ),
    ],
  };
}

/** The paper's exhaustive profiling: here the five best by prediction, simulated. */
function bestByExhaustion(options: Options): ClusterFigures {
  const levels = [0.25, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 5];
  const losses = levels.map((perMachine) => {
    const times = ranked(perMachine)
      .filter((each) => latencyOf(each) < Infinity)
      .slice(0, 5)
      .map(({ configuration }) => simulatedMs(configuration, perMachine, options));
    return times[0]! / Math.min(...times) - 1;
  });
  const right = losses.filter((loss) => loss === 0).length;
  return { cells: [shape('section V-E', 'the best configuration by prediction is the best by simulation', 'always', `at ${right} of ${levels.length} loads; at most ${percent(Math.max(...losses))} slower than it`)], tables: [] }; // prettier-ignore
}

const predictedMs = (configuration: ServiceConfiguration, perMachine: number): number =>
  latencyOf(ranked(perMachine).find((each) => nameOf(each.configuration) === nameOf(configuration))!);

/** Load goes from moderate to low and back. */
function figure14({ seconds, seed }: Options): ClusterFigures {
  const [fixedLow, fixedModerate] = [low, moderate].map((perMachine) => ranked(perMachine)[0]!.configuration);
  const other = likeImageNet.configurations.find(
    (each) =>
      predictedMs(each, moderate) < predictedMs(fixedLow!, moderate) &&
      predictedMs(each, low) < predictedMs(fixedModerate!, low),
  );
  const phases = [moderate, low, moderate].map((perMachine) => ({ ratePerSecond: perMachine * machines, seconds }));
  const policies: [string, Policy][] = [
    [`Fixed-low ${nameOf(fixedLow!)}`, fixedLow!],
    [`Fixed-mod ${nameOf(fixedModerate!)}`, fixedModerate!],
    ...(other === undefined ? [] : [[`Fixed-other ${nameOf(other)}`, other] as [string, Policy]]),
    ['SERF', 'serf'],
  ];
  const runs = policies.map(([name, policy]) => Object.assign(runCluster(policy, phases, { seed }), { name }));
  const serf = runs.at(-1)!;
  const worst = Math.max(...serf.meanMs.map((ms, phase) => ms / Math.min(...runs.map(({ meanMs }) => meanMs[phase]!))));
  const behind = runs.slice(0, -1).every(({ meanMs }) => Math.max(...meanMs.map((ms, phase) => ms / serf.meanMs[phase]!)) > 1.02); // prettier-ignore
  const text =
    `in each phase within ${percent(worst - 1)} of the best, ${serf.changes} changes; ` +
    `each fixed one is ${behind ? '' : 'not '}behind it in some phase`;
  const why = other === undefined ? 'no configuration here is what the paper calls Fixed-other: better than Fixed-low at moderate load and than Fixed-mod at low' : ''; // prettier-ignore
  return {
    cells: [shape('Figure 14', 'moderate, low, moderate load: SERF against fixed configurations', 'SERF is the best in every phase', text, why)], // prettier-ignore
    tables: [
      {
        title: `SERF, Figure 14: mean ms by phase, ${moderate}, ${low} and ${moderate} requests/s and machine, 20 machines`,
        provenance: { kind: 'estimated', from: 'service times assumed from what the paper says of them' },
        columns: ['policy', '>moderate', '>low', '>moderate', '>changes'],
        rows: runs.map(({ name, meanMs, changes }) =>
          [name].concat(
            meanMs.map((ms) => ms.toFixed(1)),
            String(changes),
          ),
        ),
      },
    ],
  };
}

/** Fewest machines for a mean of 280 ms, by load. */
function figure15(options: Options): ClusterFigures {
  const loads = [0.1, 0.25, 0.5, 1, 1.5, 2, 2.5, 3, 4];
  const atMost = 1000;
  const rows = loads.map((perMachine) => {
    const ratePerSecond = perMachine * machines;
    const limits = { ratePerSecond, sloMs, machines: atMost };
    const best = leastResources(likeImageNet, limits)!;
    const fixed = tableI.map((each) => leastResources({ unit: 'ms', configurations: [each] }, limits)?.machines);
    const ms = runCluster(best.configuration, [{ ratePerSecond, seconds: options.seconds }], { seed: options.seed, count: best.machines }).meanMs[0]!; // prettier-ignore
    return { perMachine, best, fixed, ms };
  });
  const ratios = rows.flatMap(({ best, fixed }) => fixed.flatMap((count) => (count === undefined ? [] : [count / best.machines]))); // prettier-ignore
  const bestSomewhere = tableI.filter((_, index) => rows.some(({ best, fixed }) => fixed[index] === best.machines));
  const kept = rows.filter(({ ms }) => ms <= sloMs * 1.02).length;
  const text =
    `up to ${Math.max(...ratios).toFixed(1)} times as many; ${bestSomewhere.length} of the six need no more at some load; ` +
    `simulated, the choice keeps the SLO at ${kept} of ${loads.length} loads`;
  return {
    cells: [shape('Figure 15', 'machines for a mean of 280 ms, fixed configurations against SERF', 'each fixed one is best at some loads only; up to one order of magnitude', text)], // prettier-ignore
    tables: [
      {
        title: 'SERF, Figure 15: fewest machines for a mean of 280 ms',
        provenance: { kind: 'estimated', from: 'service times assumed from what the paper says of them' },
        columns: [
          '>requests/s',
          'SERF',
          '>machines',
          '>simulated ms',
          ...tableI.map((configuration) => `>${nameOf(configuration)}`),
        ],
        rows: rows.map(({ perMachine, best, fixed, ms }) =>
          [(perMachine * machines).toFixed(0), nameOf(best.configuration), String(best.machines), ms.toFixed(1)].concat(
            fixed.map((count) => (count === undefined ? 'never' : String(count))),
          ),
        ),
      },
    ],
  };
}
