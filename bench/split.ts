/** A request of 64 rows over the lane of a host and those of 1, 2 and 3 workers, each pinned to a core if possible. */
import { spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ElementType, GraphBuilder } from '../src/onnx/index.ts';
import { redisMissing, RedisServer } from '../test/support/redis-server.ts';
import {
  tableOf,
  BenchmarkNotPossible,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
} from './benchmark.ts';
import { Servers } from './servers.ts';
import { mustSend, send } from './shared/requests.ts';
import { percentiles } from './shared/statistics.ts';

const rows = 64;
const width = 64;
/** Requests from which the split learns: whole ones, halves, and its choice. */
const learning = 12;

export const benchmark: Benchmark = {
  name: 'split',
  description: 'a request of 64 rows over 1, 2 and 3 workers: what it takes, and in how many parts it runs',
  run,
};

interface Measured {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly parts: string;
  readonly cores: string;
}

async function run({ small, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  if (redisMissing !== undefined) throw new BenchmarkNotPossible(redisMissing);
  const sizes = small ? { hidden: 64, requests: 4, workers: [1] } : { hidden: 2048, requests: 60, workers: [1, 2, 3] };
  const cores = availableParallelism();
  const isPinned = spawnSync('taskset', ['-c', '0', 'true']).status === 0;
  const measured: Measured[] = [];
  for (const workers of sizes.workers) {
    progress(`${workers} workers`);
    measured.push(await measure({ ...sizes, workers, cores, isPinned }));
  }
  const base = measured[0]!.p50Ms;
  const isShared = cores < 1 + Math.max(...sizes.workers);
  return {
    settings: { rows, hidden: sizes.hidden, requests: sizes.requests, cores, pinned: isPinned },
    tables: [
      tableOf('A request of 64 rows, one after the other', measured, [
        ['>workers', (_, index) => String(sizes.workers[index])],
        ['>p50 ms', ({ p50Ms }) => p50Ms.toFixed(1)],
        ['>p99 ms', ({ p99Ms }) => p99Ms.toFixed(1)],
        ['>against 1 worker', ({ p50Ms }) => `${(base / p50Ms).toFixed(2)} x`],
        ['parts', ({ parts }) => parts],
        ['cores', ({ cores: which }) => which],
      ]),
    ],
    figures: Object.fromEntries(measured.map(({ p50Ms }, index) => [`workers${sizes.workers[index]}MsP50`, p50Ms])),
    limits: [
      'host, workers, Redis and client share one machine: the way to a worker is loopback',
      ...(isShared
        ? [
            `this machine has ${cores} cores, fewer than the host and its workers: lanes share cores, and more of them cannot be faster`,
          ]
        : []),
    ],
  };
}

interface Setup {
  readonly hidden: number;
  readonly requests: number;
  readonly workers: number;
  readonly cores: number;
  readonly isPinned: boolean;
}

async function measure({ hidden, requests, workers, cores, isPinned }: Setup): Promise<Measured> {
  await using servers = await Servers.create();
  await using redis = await RedisServer.start();
  /** The host is on the first core, each worker on the next one, starting over if there are no more. */
  const coreOf = (place: number): number => place % cores;
  const pinned = (place: number): string[] => (isPinned ? ['taskset', '-c', String(coreOf(place))] : []);
  await servers.addFunction('wide', wideModel(hidden), { slo: '60s', batching: { max: rows } });
  const hostFlags = ['--cpu-cores', '1', '--cpu-profiling', 'off', '--redis', redis.url, '--grpc-port', 'off'];
  const { url } = await servers.startHost(hostFlags, {}, pinned(0));
  for (let index = 1; index <= workers; index++) {
    const flags = ['--redis', redis.url, '--cores', '1', '--data', join(servers.folder, `worker-${index}`)];
    await servers.startWorker(`worker-${index}`, flags, pinned(index));
  }
  await untilKnown(url, workers);
  const body = JSON.stringify({ input: Array.from({ length: rows }, (_, row) => Array(width).fill(row / rows)) });
  const takenMs: number[] = [];
  const parts = new Map<string, number>();
  for (let index = 0; index < learning + requests; index++) {
    const fromMs = performance.now();
    const { placement } = await mustSend(`${url}/function/wide`, { method: 'POST', body });
    if (index < learning) continue;
    takenMs.push(performance.now() - fromMs);
    const count = /^(\d+) parts/.exec(placement)?.[1] ?? '1';
    parts.set(count, (parts.get(count) ?? 0) + 1);
  }
  const told = [...parts].toSorted(([, a], [, b]) => b - a).map(([count, times]) => `${times} in ${count}`);
  const places = Array.from({ length: workers + 1 }, (_, place) => coreOf(place));
  return {
    ...percentiles(takenMs),
    parts: told.join(', '),
    cores: !isPinned ? 'not pinned' : `${places.join(' ')}${workers + 1 > cores ? ' (shared)' : ''}`,
  };
}

/** Resolves when the host has heard of all workers. */
async function untilKnown(url: string, count: number): Promise<void> {
  for (;;) {
    const { text } = await send(`${url}/v2/workers`);
    const { workers = [] } = JSON.parse(text) as { workers?: object[] };
    if (workers.length === count) return;
    await delay(50); // Hosts emit no event here for what they hear from workers.
  }
}

/** Three layers; the middle one costs hidden x hidden multiplications per row. */
function wideModel(hidden: number): GraphBuilder {
  const graph = new GraphBuilder('wide');
  const weight = (name: string, from: number, to: number): string =>
    graph.weight(name, [from, to], new Float32Array(from * to).fill(1 / from));
  const x = graph.input('x', ElementType.FLOAT, ['batch', width]);
  const first = graph.node('Relu', [graph.node('MatMul', [x, weight('w0', width, hidden)])]);
  const second = graph.node('Relu', [graph.node('MatMul', [first, weight('w1', hidden, hidden)])]);
  graph.output(graph.node('MatMul', [second, weight('w2', hidden, width)]), ElementType.FLOAT, ['batch', width], 'y');
  return graph;
}
