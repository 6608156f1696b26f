/**
 * Simulated routing between the hosts of a fleet: homes, compared with random, least loaded, and one scheduler over
 * everything.
 */
import { loadMachineOf } from '../src/hardware/index.ts';
import {
  azureLikeTrace,
  limitTrace,
  OfferCache,
  ReportBuilder,
  simulateFleet,
  type FleetRouter,
  type SimulationSettings,
} from '../src/replay/index.ts';
import type { FleetRow, Report } from '../src/report/index.ts';
import { policies } from '../src/schedule/index.ts';
import { tableOf, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';

export const benchmark: Benchmark = {
  name: 'fleet-replay',
  description: 'simulated fleets: goodput, p99, bytes and balance by router, and what a lost host costs',
  run,
};

const model = 'resnet50';
const sloMs = 50;
/** Times in the trace: end of the warm-up, loss of a host, its return. */
const [measureFromMs, lostAtMs, backAtMs] = [8000, 17_000, 21_000];
const durationMs = 25_000;

interface Scene {
  readonly name: string;
  readonly ratePerS: number;
  readonly router: FleetRouter;
  /** Every host has the weights of all functions in memory, however large. No host could, but it isolates routing. */
  readonly hasAllInMemory: boolean;
}

interface Played extends Scene {
  readonly report: Report;
  readonly fleet: FleetRow;
}

async function run({ small, seed, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const preset = small ? 'p3.8xlarge' : 'p3.8xlargex8';
  const [hosts, functions] = small ? [4, 800] : [32, 100_000];
  const [calm, busy] = small ? [40, 80] : [4000, 26_000];
  const scenes: Scene[] = [
    ...[calm, busy].flatMap((ratePerS) =>
      (['homes', 'one'] as const).map((router): Scene => ({
        name: router,
        ratePerS,
        router,
        hasAllInMemory: false,
      })),
    ),
    ...(['random', 'least-loaded'] as const).flatMap((router): Scene[] => [
      { name: router, ratePerS: calm, router, hasAllInMemory: false },
      { name: `${router}, all weights in every host's memory`, ratePerS: calm, router, hasAllInMemory: true },
    ]),
  ];
  const played: Played[] = [];
  for (const scene of scenes) {
    progress(`${scene.name}, ${scene.ratePerS}/s`);
    played.push(await play(scene, preset, hosts, functions, seed));
  }
  const found = (router: string, ratePerS: number): Played =>
    played.find((each) => each.name === router && each.ratePerS === ratePerS)!;
  return {
    settings: { machine: preset, hosts, functions, model, sloMs, lostAtS: lostAtMs / 1000, backAtS: backAtMs / 1000 },
    tables: [routersTable(played, preset)],
    figures: Object.fromEntries(
      played.flatMap(({ name, ratePerS, report, fleet }) => {
        const of = `${name}, ${ratePerS}/s`;
        return [
          [`${of}, goodput`, report.goodput ?? 0],
          [`${of}, p99 ms`, report.p99_ms ?? 0],
          [`${of}, imbalance`, fleet.imbalance ?? 0],
          [`${of}, felt s`, fleet.failures[0]!.felt_s],
        ];
      }),
    ),
    aims: [calm, busy].flatMap((ratePerS) => aimsOf(found('homes', ratePerS), found('one', ratePerS))),
    limits: [
      'the network between hosts: a hop takes half of 0.3 ms, a host fetches content with 3.125 GB/s; nothing shares those',
      'a prediction of another host is from this instant; hosts that serve know what the last heartbeat said',
      'a call that a lost host had passed on counts as answered; its client was cut off, as some ten were in all',
      'a load balancer that sends calls to a lost host: here it knows at once; hosts learn of it after a second',
      "'all weights in every host's memory' is no fleet either: 10 TB in each of 32 hosts",
      'one is no fleet: a single scheduler over all GPUs, without a network',
    ],
  };
}

async function play(scene: Scene, preset: string, hosts: number, functions: number, seed: number): Promise<Played> {
  const { ratePerS, router, hasAllInMemory } = scene;
  const machine = loadMachineOf(preset);
  const offers = new OfferCache(machine, 'interleave');
  const weightBytes = offers.weightBytes(model);
  const functionNames = Array.from({ length: functions }, (_, index) => `${model}/${index}`);
  const trace = azureLikeTrace({ functionNames, ratePerS, minutes: 2, seed });
  const builder = new ReportBuilder({ fromMs: measureFromMs });
  const capacityBytes = machine.hostMemory?.pinnedBytes ?? machine.memoryBytes;
  const machines = router === 'one' ? hosts : 1;
  const settings: SimulationSettings = {
    machine,
    policy: policies.best,
    sheetOf: () => offers.sheet(model, { sloMs }),
    ...(functions * weightBytes > capacityBytes * machines && machine.disk !== undefined
      ? { host: { capacityBytes, diskGBps: machine.disk.readGBps } }
      : undefined),
  };
  const fleet = simulateFleet(
    limitTrace(trace, (ratePerS * durationMs) / 1000),
    Array.from({ length: hosts }, () => settings),
    {
      router,
      failures: [{ host: 3, atMs: lostAtMs, backMs: backAtMs }],
      roundTripMs: 0.3,
      networkGBps: 3.125,
      callBytes: 64 * 1024,
      contentBytes: () => (hasAllInMemory ? 0 : weightBytes),
      seed,
    },
    builder,
  );
  const report = builder.finish({
    kind: 'simulated',
    machine: `${preset} x ${hosts}`,
    seed,
    settings: {},
    functionNames,
    gpuCount: machine.gpus.length * hosts,
    fleet,
  });
  return { ...scene, report, fleet };
}

const share = (value: number | null): string => (value === null ? '-' : `${(value * 100).toFixed(2)}%`);

function routersTable(played: readonly Played[], preset: string): BenchmarkResult['tables'][number] {
  return tableOf(
    'By router: goodput, p99, bytes over the network, balance, and a host that is lost for four seconds',
    played,
    [
      ['ROUTER', ({ name }) => name],
      ['>CALLS/S', ({ ratePerS }) => String(ratePerS)],
      ['>GOODPUT', ({ report }) => share(report.goodput)],
      ['>P99 MS', ({ report }) => (report.p99_ms ?? 0).toFixed(1)],
      ['>PASSED ON', ({ fleet }) => share(fleet.passed)],
      ['>CONTENT GB', ({ fleet }) => (fleet.content_bytes / 1e9).toFixed(1)],
      ['>BUSIEST/MEAN', ({ fleet }) => (fleet.imbalance ?? 0).toFixed(2)],
      ['>BEFORE LOSS', ({ fleet }) => share(fleet.failures[0]!.goodput_before)],
      ['>AFTER', ({ fleet }) => share(fleet.failures[0]!.goodput_after)],
      ['>FELT S', ({ fleet }) => String(fleet.failures[0]!.felt_s)],
      ['>LOST', ({ fleet }) => String(fleet.failures[0]!.lost)],
    ],
    { kind: 'simulated', preset },
  );
}

function aimsOf(homes: Played, one: Played): NonNullable<BenchmarkResult['aims']> {
  const { goodput_before: before, goodput_after: after, felt_s: feltS } = homes.fleet.failures[0]!;
  const cost = Math.max(0, (before ?? 0) - (after ?? 0));
  const ofRate = `${homes.ratePerS}/s`;
  return [
    {
      aim: `${ofRate}: homes reach 99.5% where one scheduler over all GPUs reaches 99.9%`,
      met: (one.report.goodput ?? 0) < 0.999 || (homes.report.goodput ?? 0) >= 0.995,
      reached: `${share(homes.report.goodput)}, one ${share(one.report.goodput)}`,
    },
    {
      aim: `${ofRate}: a lost host costs under 1% of goodput, for under a minute`,
      met: cost < 0.01 && feltS < 60,
      reached: `${share(cost)}, felt for ${feltS} s`,
    },
  ];
}
