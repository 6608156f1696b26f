/** Whether calls, and reads of a host's state, cost more when more functions are published. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../src/onnx/index.ts';
import { processorUse } from '../src/process/index.ts';
import { buildEmulatedDriver } from '../test/emulated-driver/build.ts';
import { emulatedEnvironment } from '../test/support/emulator.ts';
import { tableOf, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { runLoad, type Load } from './echo.ts';
import { Servers, type StartedServer } from './servers.ts';
import { loopDelayMs, mustSend } from './shared/requests.ts';
import { median, percent } from './shared/statistics.ts';

const calledMax = 10;
const connections = 20;
/** Clients that publish at the same time. */
const publishers = 8;
/** For each number of functions, in turns with a host that has the fewest; the medians count. */
const roundsOfCalls = 15;
const roundsOfCallsSmall = 2;
/** Every called function stays loaded, and nothing else uses the CPU. */
const flags = ['--cpu-profiling', 'off'];
/** What users and Prometheus read from the whole host. */
const views = ['/metrics', '/functions', '/api/functions', '/api/memory', '/api/history'];

interface Measured {
  readonly functions: number;
  readonly gpus: boolean;
  readonly publishMs: number;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** CPU time of the host's own process; undefined if the system does not report it. */
  readonly cpuUs: number | undefined;
  /** Relative to the host with the fewest functions, measured right before and after. */
  readonly throughputShare: number;
  readonly cpuShare: number;
  readonly loopDelayP99Ms: number;
  /** By view: the longest delay of the event loop while it was made, and the total time. */
  readonly views: ReadonlyMap<string, { readonly delayMs: number; readonly tookMs: number }>;
}

export const benchmark: Benchmark = {
  name: 'functions',
  description:
    'warm calls to ten functions, and reading of a host, with 10 to 3,000 published, without and with emulated GPUs',
  run,
};

async function run({ small, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const counts = small ? [2, 4] : [10, 100, 1000, 3000];
  const calls = small ? { requests: 200, rounds: roundsOfCallsSmall } : { requests: 20_000, rounds: roundsOfCalls };
  const driver = await buildEmulatedDriver();
  const measured: Measured[] = [];
  for (const gpus of driver === undefined || small ? [false] : [false, true]) {
    const environment = gpus ? emulatedEnvironment(driver!, [{ memoryBytes: 2 ** 28 }]) : {};
    await using servers = await Servers.create();
    await using others = await Servers.create();
    const fewest = await others.startHost(flags, environment);
    const itsBlob = await uploadBlob(fewest.url, others.folder);
    for (let index = 0; index < counts[0]!; index++) await publish(fewest.url, `f${index}`, itsBlob);
    const server = await servers.startHost(flags, environment);
    const { url } = server;
    const blob = await uploadBlob(url, servers.folder);
    let published = 0;
    for (const functions of counts) {
      progress(`${functions} functions ${gpus ? 'with' : 'without'} emulated GPUs`);
      const startMs = performance.now();
      const publishNext = async (): Promise<void> => {
        while (published < functions) await publish(url, `f${published++}`, blob);
      };
      await Promise.all(Array.from({ length: publishers }, publishNext));
      const publishMs = performance.now() - startMs;
      measured.push({
        functions,
        gpus,
        publishMs,
        ...(await measure(server, fewest, Math.min(counts[0]!, calledMax), calls)),
      });
    }
  }
  return report(measured, calls.requests, driver !== undefined && !small);
}

function report(measured: readonly Measured[], requests: number, withGpus: boolean): BenchmarkResult {
  const fewest = (gpus: boolean): Measured | undefined => measured.find((each) => each.gpus === gpus);
  const keptShare = Math.min(...measured.map(({ throughputShare }) => throughputShare));
  const cpuShare = Math.max(...measured.map((each) => each.cpuShare));
  const longestMs = Math.max(...measured.flatMap((each) => Array.from(each.views.values(), ({ delayMs }) => delayMs)));
  const most = measured.findLast(({ gpus }) => !gpus)!;
  return {
    settings: { requests, connections, functionsCalled: calledMax },
    tables: [
      tableOf('warm calls to the same ten functions', measured, [
        ['>FUNCTIONS', (each) => String(each.functions)],
        ['GPUS', (each) => (each.gpus ? 'emulated' : 'none')],
        ['>CALLS/S', (each) => each.perSecond.toFixed(0)],
        ['>P50 MS', (each) => each.p50Ms.toFixed(2)],
        ['>P99 MS', (each) => each.p99Ms.toFixed(2)],
        ['>CPU US A CALL', (each) => each.cpuUs?.toFixed(0) ?? ''],
        ['>CALLS/S OF FEWEST', (each) => percent(each.throughputShare, 0)],
        ['>CPU OF FEWEST', (each) => (Number.isNaN(each.cpuShare) ? '' : percent(each.cpuShare, 0))],
        ['>LOOP DELAY P99 MS', (each) => each.loopDelayP99Ms.toFixed(1)],
        ['>PUBLISHED IN S', (each) => (each.publishMs / 1000).toFixed(1)],
      ]),
      {
        title: 'longest that the event loop was held up while a view was made, and how long that took in all, ms',
        provenance: { kind: 'measured' },
        columns: ['>FUNCTIONS', 'GPUS', ...views.map((title) => title)],
        rows: measured.map((each) => [
          String(each.functions),
          each.gpus ? 'emulated' : 'none',
          ...views.map((view) => {
            const { delayMs, tookMs } = each.views.get(view)!;
            return `${delayMs.toFixed(0)} of ${tookMs.toFixed(0)}`;
          }),
        ]),
      },
    ],
    figures: {
      throughputKeptShare: keptShare,
      ...(Number.isNaN(cpuShare) ? {} : { cpuPerCallMostShare: cpuShare }),
      longestViewDelayMs: longestMs,
      callsPerSecondFewest: fewest(false)!.perSecond,
      callsPerSecondMost: most.perSecond,
    },
    aims: [
      {
        aim: 'throughput within 10% of that with the fewest, however many there are',
        met: keptShare >= 0.9,
        reached: percent(keptShare, 0),
      },
      {
        aim: 'processor time of the host for a call within 10% of that with the fewest, however many there are',
        met: cpuShare <= 1.1,
        reached: percent(cpuShare, 0),
      },
      { aim: 'no view holds the event loop up for 50 ms', met: longestMs < 50, reached: `${longestMs.toFixed(0)} ms` },
    ],
    limits: [
      'shares are medians over rounds in which the host takes turns with another that has the fewest functions: what the machine does meanwhile falls on both',
      'delays of the event loop on a machine that does other things: they count what those hold up',
      'models of one node, of which all functions have the same: what it takes to publish and to keep different ones',
      ...(withGpus ? ['times of GPUs: the emulated driver runs on the same processor'] : ['a host with GPUs']),
    ],
  };
}

/** y = max(x, 0) on four numbers. */
async function uploadBlob(url: string, folder: string): Promise<string> {
  const graph = new GraphBuilder('relu');
  const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
  graph.output(graph.node('Relu', [x]), ElementType.FLOAT, ['batch', 4], 'y');
  const path = join(folder, 'model.onnx');
  await writeModel(graph.build(), path);
  const bytes = await readFile(path);
  const name = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
  await mustSend(`${url}/blobs/${name}`, { method: 'POST', body: bytes });
  return name;
}

async function publish(url: string, name: string, model: string): Promise<void> {
  const headers = { 'Content-Type': 'application/json' };
  await mustSend(`${url}/functions/${name}`, { method: 'PUT', headers, body: JSON.stringify({ model }) });
}

async function measure(
  server: StartedServer,
  fewest: StartedServer,
  called: number,
  { requests, rounds: count }: { readonly requests: number; readonly rounds: number },
): Promise<Omit<Measured, 'functions' | 'gpus' | 'publishMs'>> {
  const { url } = server;
  const paths = Array.from({ length: called }, (_, index) => `/v2/models/f${index}/infer`);
  for (const each of [url, fewest.url]) await load(each, paths, Math.ceil(requests / 4));
  await loopDelayMs(url, 'p99');
  const rounds: Round[] = [];
  const besides: Round[] = [];
  for (let round = 0; round < count; round++) {
    const order = [server, fewest];
    for (const each of round % 2 === 0 ? order : order.reverse()) {
      const mine = await loadRound(each, paths, Math.ceil(requests / count));
      (each === server ? rounds : besides).push(mine);
    }
  }
  const middle = (of: (round: Round) => number): number => median(rounds.map(of));
  const share = (of: (round: Round) => number): number =>
    median(rounds.map((round, index) => of(round) / of(besides[index]!)));
  const loopDelayP99Ms = await loopDelayMs(url, 'p99');
  const found = new Map<string, { delayMs: number; tookMs: number }>();
  for (const view of views) {
    // Reading resets it.
    await loopDelayMs(url, 'max');
    const startMs = performance.now();
    await mustSend(`${url}${view}`);
    const tookMs = performance.now() - startMs;
    found.set(view, { delayMs: await loopDelayMs(url, 'max'), tookMs });
  }
  return {
    perSecond: middle(({ perSecond }) => perSecond),
    p50Ms: middle(({ p50Ms }) => p50Ms),
    p99Ms: middle(({ p99Ms }) => p99Ms),
    throughputShare: share(({ perSecond }) => perSecond),
    cpuShare: share(({ cpuUs }) => cpuUs ?? Number.NaN),
    cpuUs: rounds.every(({ cpuUs }) => cpuUs !== undefined) ? middle(({ cpuUs }) => cpuUs!) : undefined,
    loopDelayP99Ms,
    views: found,
  };
}

type Round = Load & { readonly cpuUs: number | undefined };

async function loadRound(server: StartedServer, paths: readonly string[], requests: number): Promise<Round> {
  const usedMs = (): number | undefined => processorUse(server.process.pid!)?.usedMs;
  const beforeMs = usedMs();
  const each = await load(server.url, paths, requests);
  const afterMs = usedMs();
  const isKnown = beforeMs !== undefined && afterMs !== undefined;
  return { ...each, cpuUs: isKnown ? ((afterMs - beforeMs) * 1000) / requests : undefined };
}

async function load(url: string, paths: readonly string[], requests: number): Promise<Load> {
  const body = JSON.stringify({ inputs: [{ name: 'x', shape: [1, 4], datatype: 'FP32', data: [1, -2, 3, -4] }] });
  const order = {
    url,
    paths,
    headers: { 'Content-Type': 'application/json' },
    bodyBase64: Buffer.from(body).toString('base64'),
    connections,
    requests,
    client: 'raw',
  };
  return await runLoad('http/load.mjs', order, '200');
}
