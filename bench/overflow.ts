/** Overflow to workers at growing rates, and with more functions than a worker has room for. */
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import type { PoolInput } from '../src/cpu/index.ts';
import { ElementType, GraphBuilder, writeModel } from '../src/onnx/index.ts';
import { sealManifest, type FunctionManifest } from '../src/queue/index.ts';
import { OverflowQueue, RedisLink } from '../src/queue/redis.ts';
import { FolderStore } from '../src/store/index.ts';
import { tensorOf } from '../src/tensor/index.ts';
import { hashFile } from '../src/tools/index.ts';
import { compileProgram } from '../test/support/compile-program.ts';
import { redisMissing, RedisServer } from '../test/support/redis-server.ts';
import { silentLog } from '../test/support/silent-log.ts';
import { memberWith } from '../test/support/test-member.ts';
import {
  tableOf,
  BenchmarkNotPossible,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
} from './benchmark.ts';
import type { Speed } from './overflow/takers.ts';
import type { WorkersOrder } from './overflow/workers.ts';
import { arrivalsOf, closedLoop, openLoop, popularities } from './shared/arrivals.ts';
import { mediansOf, percentiles } from './shared/statistics.ts';

const workers = 4;
const width = 1024;

export const benchmark: Benchmark = {
  name: 'overflow',
  description: 'what does a call at a worker cost, and are functions that must be loaded there in time',
  rowNames: () => scenes.map(({ row }) => row),
  run,
};

interface Scene {
  readonly row: string;
  readonly title: string;
  /** Undefined: real models. */
  readonly speed: Speed | undefined;
  readonly functions: number;
  /** Undefined: as many at once as `atOnce`, for the rate that saturates. */
  readonly perSecond: number | undefined;
  readonly sloMs: number;
}

const echo: Speed = { runMs: 0, loadMs: 0, room: 1000 };
const atOnce = 64;
const scenes: readonly Scene[] = [
  ...[100, 300, 600, undefined].map((perSecond) => ({
    row: `echo-${perSecond ?? 'full'}`,
    title: `echo, ${perSecond === undefined ? `${atOnce} at once` : `${perSecond}/s`}`,
    speed: echo,
    functions: 8,
    perSecond,
    sloMs: 100,
  })),
  ...[100, 200].map((perSecond) => ({
    row: `functions-${perSecond}`,
    title: `40 functions, ${perSecond}/s`,
    speed: { runMs: 5, loadMs: 60, room: 15 },
    functions: 40,
    perSecond,
    sloMs: 200,
  })),
  { row: 'models-100', title: 'models, 100/s', speed: undefined, functions: 8, perSecond: 100, sloMs: 100 },
];

const smallRows = new Set(['echo-100', 'functions-100']);

interface Figures {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  /** Of the process that has the host's side of the queue, and sends the calls. */
  readonly hostUsPerCall: number;
  readonly goodput: number;
  readonly loadsPerCall: number;
}

async function run({ small, seed, rows, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  if (redisMissing !== undefined) throw new BenchmarkNotPossible(redisMissing);
  const [turns, forMs] = small ? [1, 300] : [3, 2500];
  const program = await compileProgram(join(import.meta.dirname, 'overflow', 'workers.ts'));
  await using redis = await RedisServer.start();
  const measured: (readonly [Scene, Figures])[] = [];
  const wanted = scenes.filter(({ row }) => rows?.includes(row) ?? (!small || smallRows.has(row)));
  for (const scene of wanted) {
    const found: Figures[] = [];
    for (let turn = 0; turn < turns; turn++) {
      progress(scene.title);
      found.push(await measure(scene, { program, redis, forMs, seed: seed + turn }));
    }
    measured.push([scene, mediansOf(found)]);
  }
  return {
    settings: { workers, rounds: turns, roundMs: forMs, floatsPerCall: width },
    tables: [
      tableOf('Overflow to four workers of one core, each figure the median of the rounds', measured, [
        ['scene', ([{ title }]) => title],
        ['>answers/s', ([, figures]) => figures.perSecond.toFixed(0)],
        ['>round trip p50 ms', ([, figures]) => figures.p50Ms.toFixed(2)],
        ['>p99 ms', ([, figures]) => figures.p99Ms.toFixed(1)],
        ['>host CPU us/call', ([, figures]) => figures.hostUsPerCall.toFixed(0)],
        ['>in time %', ([, figures]) => (100 * figures.goodput).toFixed(1)],
        ['>loads per call', ([, figures]) => figures.loadsPerCall.toFixed(3)],
      ]),
    ],
    figures: Object.fromEntries(
      measured.flatMap(([{ row }, { p50Ms, p99Ms, hostUsPerCall, goodput }]) => [
        [`${row}-p50Ms`, p50Ms],
        [`${row}-p99Ms`, p99Ms],
        [`${row}-hostUsPerCall`, hostUsPerCall],
        [`${row}-goodput`, goodput],
      ]),
    ),
    limits: [
      'host, workers, Redis and whoever else uses this machine share its cores',
      'except for the models, runs and loads are waits: of the 40 functions each worker has room for 15, a run takes 5 ms and a load 60',
      'only this host sends: a worker is chosen with nobody else giving it work',
    ],
  };
}

interface Setting {
  readonly program: string;
  readonly redis: RedisServer;
  readonly forMs: number;
  readonly seed: number;
}

let count = 0;

async function measure(scene: Scene, { program, redis, forMs, seed }: Setting): Promise<Figures> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-overflow-'));
  const manifests = await manifestsOf(scene, folder);
  const prefix = `bench${++count}`;
  const { speed, perSecond, sloMs, functions } = scene;
  const order: WorkersOrder = { redisUrl: redis.url, prefix, workers, speed, folder, manifests };
  const child = spawn(process.execPath, [program, JSON.stringify(order)], { stdio: ['pipe', 'pipe', 'inherit'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const link = new RedisLink({ url: redis.url, prefix });
  try {
    await link.ready(10_000);
    await lines.next();
    const { submit, close } = await hostSide(link, manifests);
    const input: PoolInput = {
      kind: 'tensors',
      tensors: [
        tensorOf(
          'x',
          'FP32',
          [1, width],
          Float32Array.from({ length: width }, (_, index) => index),
        ),
      ],
    };
    // Each function is loaded once by some worker before.
    for (const { revision } of manifests) await submit(revision, input);
    const before = await loadsOf(child, lines);
    const tookMs: number[] = [];
    const call = async (index: number): Promise<void> => {
      const sentMs = performance.now();
      await submit(manifests[index]!.revision, input);
      tookMs.push(performance.now() - sentMs);
    };
    const cpu = process.cpuUsage();
    const startMs = performance.now();
    let next = 0;
    if (perSecond === undefined) await closedLoop(atOnce, startMs + forMs, () => call(next++ % functions));
    else {
      const popularity = popularities.zipf;
      await openLoop(arrivalsOf({ functions, ratePerS: perSecond, forMs, seed, popularity }), startMs, call);
    }
    const { user, system } = process.cpuUsage(cpu);
    const seconds = (performance.now() - startMs) / 1000;
    const loads = (await loadsOf(child, lines)) - before;
    await close();
    return {
      perSecond: tookMs.length / seconds,
      ...percentiles(tookMs),
      hostUsPerCall: (user + system) / tookMs.length,
      goodput: tookMs.filter((each) => each <= sloMs).length / tookMs.length,
      loadsPerCall: loads / tookMs.length,
    };
  } finally {
    link.close();
    child.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function loadsOf(child: ChildProcess, lines: AsyncIterator<string>): Promise<number> {
  child.stdin!.write('\n');
  const { value } = (await lines.next()) as { value: string };
  return (JSON.parse(value) as { loads: number }).loads;
}

async function hostSide(link: RedisLink, manifests: readonly FunctionManifest[]) {
  const byRevision = new Map(manifests.map((manifest) => [manifest.revision, manifest]));
  const queue = new OverflowQueue({
    link,
    manifestOf: (key) => byRevision.get(key),
    payloadBytesMax: 1e8,
    outstandingMax: 1e5,
    log: silentLog,
  });
  const member = memberWith(link, manifests);
  queue.start(member);
  await member.start();
  const isOffered = ({ revision }: FunctionManifest): boolean => queue.offer(revision) !== undefined;
  while (queue.workers().length < workers || !manifests.every(isOffered)) await delay(20);
  return {
    submit: async (revision: string, input: PoolInput): Promise<unknown> => await queue.submit(revision, input),
    close: async (): Promise<void> => {
      await queue.stop(1000);
      await member.leave();
    },
  };
}

/** Functions that differ in their weight alone; their files are in the store of the folder. */
async function manifestsOf({ functions, speed }: Scene, folder: string): Promise<FunctionManifest[]> {
  const store = new FolderStore(join(folder, 'store'));
  await mkdir(folder, { recursive: true });
  const made: FunctionManifest[] = [];
  for (let index = 0; index < functions; index++) {
    let file = { sha256: createHash('sha256').update(String(index)).digest('hex'), bytes: 1 };
    if (speed === undefined) {
      const path = join(folder, 'model.onnx');
      const graph = new GraphBuilder('scale');
      const x = graph.input('x', ElementType.FLOAT, ['batch', width]);
      const factor = graph.weight('factor', [1], Float32Array.of(index));
      graph.output(graph.node('Mul', [x, factor]), ElementType.FLOAT, ['batch', width], 'y');
      await writeModel(graph.build(), path);
      file = { sha256: (await hashFile(path)).sha256, bytes: (await stat(path)).size };
      await store.put(file, path);
    }
    const limits = { batchMax: 1, batchDelayMs: 0, handlerTimeoutMs: 1e4, loadTimeoutMs: 6e4, inferTimeoutMs: 6e4 };
    made.push(sealManifest({ key: `f${index}@1`, files: [{ name: 'model.onnx', ...file }], limits }));
  }
  return made;
}
