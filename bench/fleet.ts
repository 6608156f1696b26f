/**
 * A fleet of three hosts and two workers: the cost of a passed call, the time until a publication shows everywhere, and
 * whether a call or an acknowledged publication is lost while hosts, workers, GPU processes and Redis are killed, hosts are
 * stopped and the store is away, in an order that the seed repeats.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { Xoshiro } from '../src/replay/index.ts';
import { redisMissing } from '../test/support/redis-server.ts';
import { BenchmarkNotPossible, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { callOn, callOnce, makeFunction, Outcomes, publishAndSee, type TestFunction } from './fleet/load.ts';
import { measureSizes, type SizeCosts } from './fleet/sizes.ts';
import { FleetSystem } from './fleet/system.ts';
import { mustSend, send } from './shared/requests.ts';
import { median, quantile, sum } from './shared/statistics.ts';

const faults = [
  'host killed',
  'Redis killed',
  'GPU process killed',
  'Redis emptied',
  'worker killed',
  'host stopped',
  'store away',
] as const;
/** How long a host is stopped, and the store away: a stopped host is lost for the others after 2.5 s. */
const stoppedMs = 4000;
/** What `--full` goes on to. */
const fullRun = { answers: 50_000, faults: 60 } as const;
type Fault = (typeof faults)[number];

export const benchmark: Benchmark = {
  name: 'fleet',
  description:
    'what a call at another host costs, and what a fleet loses while hosts, workers, Redis, GPU processes and the store fail',
  mustMeetAims: true,
  run,
};

async function run(options: BenchmarkOptions): Promise<BenchmarkResult> {
  if (redisMissing !== undefined) throw new BenchmarkNotPossible(redisMissing);
  const { small, seed, full = false, minutes = full ? 0 : 2, progress } = options;
  // Two hosts and a worker have every fault too, and each process costs a small run two seconds of a core.
  const [hosts, workers] = small ? [2, 1] : [3, 2];
  const counts = small ? { functions: 4, connections: 4, calls: 20 } : { functions: 200, connections: 30, calls: 3000 };
  const random = new Xoshiro(seed);
  await using system = await FleetSystem.start(hosts, workers);
  const functions: TestFunction[] = [];
  for (let index = 0; index < counts.functions; index++) functions.push(await makeFunction(`dense-${index}`, random));
  progress('publishing');
  const beforeCount = Math.ceil(counts.functions / 2);
  const shownMs: number[] = [];
  for (const fn of functions.slice(0, beforeCount)) {
    shownMs.push(await publishAndSee(system, fn, random.below(hosts)));
  }
  progress('calls at home and at another host');
  const ways = await measureWays(system, functions[0]!, counts.calls);
  progress('calls by their bytes');
  const sizes = await measureSizes(system, Math.ceil(counts.calls / 150), small ? 1 : 3);
  const chaos = await runChaos(system, functions, beforeCount, { ...options, minutes, random, counts, workers });
  const { outcomes, injected, missing } = chaos;
  const overheadMs = ways.localMs < Infinity ? ways.passedMs - ways.localMs : Infinity;
  const shownMsP99 = quantile(shownMs, 0.99);
  const isLost = outcomes.troubles.length > 0;
  return {
    settings: { hosts, workers, gpusOfEach: system.hasGpus ? 2 : 0, ...counts, seed, minutes: small ? 0 : minutes },
    tables: [
      {
        title: 'Calls',
        provenance: { kind: 'measured' },
        columns: ['what', '>count'],
        rows: [
          ['answered', String(outcomes.answered)],
          ['sent again, because their host was killed', String(outcomes.sentAgain)],
          ['troubles', String(outcomes.troubles.length)],
          ...[...outcomes.placements]
            .toSorted(([a], [b]) => a.localeCompare(b))
            .map(([placement, count]) => [placement, String(count)]),
          ...[...injected].map(([fault, count]) => [fault, String(count)]),
        ],
      },
      {
        title: 'Passing by bytes: medians',
        provenance: { kind: 'measured' },
        columns: ['>bytes', '>local ms', '>passed ms', '>difference ms', '>bare TLS echo ms', '>difference / echo'],
        rows: sizes.map(({ bytes, localMs, passedMs, echoMs }) => [
          String(bytes),
          ...[localMs, passedMs, passedMs - localMs, echoMs].map((ms) => ms.toFixed(3)),
          ((passedMs - localMs) / echoMs).toFixed(2),
        ]),
      },
      {
        title: 'Time',
        provenance: { kind: 'measured' },
        columns: ['what', '>ms'],
        rows: [
          ['call at its home, p50', ways.localMs.toFixed(3)],
          ['call at another host, p50', ways.passedMs.toFixed(3)],
          ['difference', overheadMs.toFixed(3)],
          ['publication until every host shows it, p50', median(shownMs).toFixed(0)],
          ['publication until every host shows it, p99', shownMsP99.toFixed(0)],
        ],
      },
    ],
    figures: {
      ...Object.fromEntries(sizes.map((size) => [`passing${size.bytes}`, size.passedMs - size.localMs])),
      localMsP50: ways.localMs,
      passedMsP50: ways.passedMs,
      overheadMs,
      shownMsP99,
      answered: outcomes.answered,
    },
    aims: [
      {
        aim: 'every call has one answer, equal to that of ONNX Runtime',
        met: !isLost && outcomes.answered > 0,
        reached: isLost
          ? outcomes.troubles.slice(0, 5).join('; ')
          : `${outcomes.answered} of them, beside ${sum(injected.values())} faults`,
      },
      {
        aim: 'every acknowledged publication is there once, at every host',
        met: missing.length === 0,
        reached: missing.length === 0 ? `${functions.length} of them` : missing.slice(0, 5).join('; '),
      },
      ...(small ? [] : speedAims({ sizes, overheadMs, shownMsP99 })),
    ],
    limits: ['hosts, worker, Redis and clients share one machine: the way between hosts is loopback'],
  };
}

/** Of a machine that does nothing else. */
function speedAims({
  sizes,
  overheadMs,
  shownMsP99,
}: {
  readonly sizes: readonly SizeCosts[];
  readonly overheadMs: number;
  readonly shownMsP99: number;
}) {
  const ofSizes = sizes
    .filter(({ bytes }) => bytes > 500_000)
    .map(({ bytes, localMs, passedMs, echoMs }) => {
      const ratio = (passedMs - localMs) / echoMs;
      const size = bytes < 1e6 ? `${Math.round(bytes / 1e3)} KB` : `${Math.round(bytes / 2 ** 20)} MB`;
      return {
        aim: `a passed call of ${size} costs at most 1.3 times a bare TLS echo of its bytes more than a local one`,
        met: ratio <= 1.3,
        reached: `${ratio.toFixed(2)} times`,
        isOfSpeed: true,
      };
    });
  return [
    {
      aim: 'a small passed call costs at most 0.6 ms more than a local one',
      met: overheadMs <= 0.6,
      reached: `${overheadMs.toFixed(3)} ms`,
      isOfSpeed: true,
    },
    ...ofSizes,
    {
      aim: 'every host shows a publication within 1 s, at the 99th percentile',
      met: shownMsP99 < 1000,
      reached: `${shownMsP99.toFixed(0)} ms`,
      isOfSpeed: true,
    },
  ];
}

/** The medians of a call at the function's home, and of one that another host passes on to it; both after a warm-up. */
async function measureWays(
  system: FleetSystem,
  fn: TestFunction,
  calls: number,
): Promise<{ localMs: number; passedMs: number }> {
  const { body } = fn.cases[0]!;
  const call = async (url: string): Promise<{ ms: number; isPassed: boolean }> => {
    const fromMs = performance.now();
    const { placement } = await mustSend(`${url}/function/${fn.name}`, { method: 'POST', body });
    return { ms: performance.now() - fromMs, isPassed: placement.startsWith('host ') };
  };
  const local: number[] = [];
  const passed: number[] = [];
  for (let index = 0; local.length < calls || passed.length < calls; index++) {
    const { ms, isPassed } = await call(system.urls[index % system.urls.length]!);
    if (index >= calls) (isPassed ? passed : local).push(ms);
    if (index > 50 * calls) break; // One of the two does not occur: the loop would never end.
  }
  return { localMs: medianOf(local), passedMs: medianOf(passed) };
}

const medianOf = (all: readonly number[]): number => (all.length === 0 ? Infinity : median(all));

interface ChaosOptions extends BenchmarkOptions {
  readonly minutes: number;
  readonly random: Xoshiro;
  readonly counts: { readonly connections: number };
  readonly workers: number;
}

async function runChaos(
  system: FleetSystem,
  functions: readonly TestFunction[],
  beforeCount: number,
  { small, seed, full = false, minutes, random, counts, workers, progress }: ChaosOptions,
): Promise<{ outcomes: Outcomes; injected: ReadonlyMap<Fault, number>; missing: string[] }> {
  const outcomes = new Outcomes();
  const injected = new Map<Fault, number>();
  const published = functions.slice(0, beforeCount);
  const startMs = performance.now();
  let isOver = false;
  // A host takes a second to start again. Clients without pauses keep all cores busy for that time.
  const pauseMs = small ? 25 : 0;
  const clients = Array.from({ length: counts.connections }, (_, index) =>
    callOn(system, published, new Xoshiro(seed * 1000 + index), outcomes, () => isOver, pauseMs),
  );
  const publisher = publishAll(system, functions.slice(beforeCount), published, new Xoshiro(seed + 1));
  const kinds = faults.filter((fault) => system.hasGpus || fault !== 'GPU process killed');
  const goesOn = (count: number): boolean => {
    if (outcomes.troubles.length > 0) return false;
    if (small) return count < kinds.length;
    const isShort = full && (count < fullRun.faults || outcomes.answered < fullRun.answers);
    return isShort || performance.now() - startMs < minutes * 60_000;
  };
  try {
    for (let index = 0; goesOn(index); index++) {
      // Each once, then in random order.
      const fault = index < kinds.length ? kinds[index]! : kinds[random.below(kinds.length)]!;
      progress(`${outcomes.answered} answers, now: ${fault}`);
      injected.set(fault, (injected.get(fault) ?? 0) + 1);
      await inject(system, fault, random.below(system.urls.length), workers, outcomes, counts.connections);
    }
    await publisher;
  } finally {
    isOver = true;
    await Promise.all(clients);
  }
  return { outcomes, injected, missing: await missingAt(system, published, outcomes) };
}

/** Injects a fault during calls; resolves when everything is back and calls are answered again. */
async function inject(
  system: FleetSystem,
  fault: Fault,
  host: number,
  workers: number,
  outcomes: Outcomes,
  connections: number,
): Promise<void> {
  const more = async (): Promise<void> => {
    const until = outcomes.answered + 2 * connections;
    while (outcomes.answered < until && outcomes.troubles.length === 0) await delay(10);
  };
  await more();
  switch (fault) {
    case 'host killed':
      await system.killHost(host);
      await more();
      await system.restartHost(host);
      break;
    case 'Redis killed':
      await system.redis.kill();
      await more();
      await system.redis.start();
      break;
    case 'GPU process killed':
      await system.killGpuProcess(host);
      break;
    case 'Redis emptied':
      await system.redis.command('FLUSHALL');
      break;
    case 'worker killed':
      await system.killWorker(host % workers);
      await more();
      await system.startWorker(host % workers);
      break;
    case 'host stopped':
      await system.stopHost(host, stoppedMs);
      break;
    case 'store away':
      await system.takeStoreAway(stoppedMs);
      break;
  }
  await system.settled();
  await more();
}

/** Publishes each function at random hosts until one has acknowledged it. */
async function publishAll(
  system: FleetSystem,
  functions: readonly TestFunction[],
  published: TestFunction[],
  random: Xoshiro,
): Promise<void> {
  for (const fn of functions) {
    for (;;) {
      const url = `${system.urls[random.below(system.urls.length)]!}/functions/${fn.name}?slo=10s`;
      const reply = await send(url, { method: 'PUT', body: fn.model }).catch(() => undefined);
      if (reply?.status === 201 || reply?.status === 200) break;
      if (reply !== undefined && reply.status !== 503) throw new Error(`${fn.name}: ${reply.status} ${reply.text}`);
      await delay(50);
    }
    published.push(fn);
  }
}

/** Acknowledged functions that at the end are missing at a host, have other versions, or answer wrongly. */
async function missingAt(
  system: FleetSystem,
  published: readonly TestFunction[],
  outcomes: Outcomes,
): Promise<string[]> {
  const missing: string[] = [];
  for (const [host, url] of system.urls.entries()) {
    for (const fn of published) {
      const reply = await send(`${url}/functions/${fn.name}`);
      const { versions = [] } = JSON.parse(reply.text) as { versions?: string[] };
      if (versions.join() !== '1') missing.push(`${fn.name} at host ${host}: versions ${versions.join() || 'none'}`);
      else await callOnce(system, fn, fn.cases[0]!, () => host, outcomes);
    }
  }
  return missing;
}
