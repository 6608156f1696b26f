/** What the host costs over a bare node:http server: a warm invocation of 4 KiB, client, host and instance on the same cores. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ElementType, GraphBuilder } from '../src/onnx/index.ts';
import type { Benchmark, BenchmarkOptions, BenchmarkResult, BenchmarkTable } from './benchmark.ts';
import { median, projectRoot, Servers } from './servers.ts';

interface Load {
  readonly tookMs: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

interface Pair {
  readonly bare: Load;
  readonly host: Load;
}

/** See bench/http/load.mjs. */
type Client = 'raw' | 'node';

interface Target {
  readonly name: string;
  readonly url: string;
  readonly path: string;
}

const values = 1024;

export const benchmark: Benchmark = {
  name: 'http',
  description: 'throughput and latency of a warm 4 KiB invocation against a bare node:http server that echoes',
  run,
};

async function run({ small, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const rounds = small ? 1 : 7;
  const requests = small ? 400 : 20_000;
  const sequential = small ? 50 : 3000;
  const connections = 50;
  await using servers = await Servers.create();
  await servers.addFunction('echo', echoGraph(), { pinned: true });
  const bareServer = await servers.start([join(projectRoot, 'bench/http/bare-server.mjs')]);
  const hostServer = await servers.startHost();
  const bare: Target = { name: 'bare node:http', url: bareServer.url, path: '/' };
  const host: Target = { name: 'turntable', url: hostServer.url, path: '/v2/models/echo/infer' };

  for (const target of [bare, host]) await load(target, 'raw', connections, Math.min(requests, 5000));
  await eventLoopDelayP99Ms(host.url); // Reading it starts it anew.
  const throughput: Pair[] = [];
  const latency: Pair[] = [];
  const rawLatency: Pair[] = [];
  const both = async (client: Client, sockets: number, count: number): Promise<Pair> => ({
    bare: await load(bare, client, sockets, count),
    host: await load(host, client, sockets, count),
  });
  for (let round = 0; round < rounds; round++) {
    progress(`round ${round + 1} of ${rounds}`);
    throughput.push(await both('raw', connections, requests));
    latency.push(await both('node', 1, sequential));
    rawLatency.push(await both('raw', 1, sequential));
  }
  const delayP99Ms = await eventLoopDelayP99Ms(host.url);

  const share = median(throughput.map((pair) => pair.host.perSecond / pair.bare.perSecond));
  const p50Ratio = median(latency.map((pair) => pair.host.p50Ms / pair.bare.p50Ms));
  return {
    settings: {
      rounds,
      requestsPerRound: requests,
      connections,
      sequentialPerRound: sequential,
      bodyBytes: requestBody().length,
    },
    tables: [
      { title: `${connections} connections`, provenance: { kind: 'measured' }, ...comparison(throughput) },
      {
        title: 'one sequential client, node:http with keep-alive',
        provenance: { kind: 'measured' },
        ...comparison(latency),
      },
      {
        title: 'one sequential client, a raw socket',
        provenance: { kind: 'measured' },
        ...comparison(rawLatency),
      },
    ],
    figures: {
      throughputShare: share,
      sequentialP50Ratio: p50Ratio,
      rawSequentialP50Ratio: median(rawLatency.map((pair) => pair.host.p50Ms / pair.bare.p50Ms)),
      hostEventLoopDelayP99Ms: delayP99Ms,
      hostPerSecond: median(throughput.map((pair) => pair.host.perSecond)),
      barePerSecond: median(throughput.map((pair) => pair.bare.perSecond)),
    },
    aims: [
      {
        aim: "at least 35% of the bare server's throughput",
        met: share >= 0.35,
        reached: `${(share * 100).toFixed(1)}%`,
      },
      {
        aim: "sequential p50 at most 2.5 times the bare server's",
        met: p50Ratio <= 2.5,
        reached: `${p50Ratio.toFixed(2)} times`,
      },
      {
        aim: "p99 of the host's event-loop delay under 10 ms",
        met: delayP99Ms < 10,
        reached: `${delayP99Ms.toFixed(2)} ms`,
      },
    ],
    limits: [
      'the model does nothing (Identity), so this is the cost of the way to it and back; each figure is the median over the rounds, in which the two servers take turns',
    ],
  };
}

const columns = [
  { title: 'SERVER' },
  { title: 'REQUESTS/S', align: 'right' as const },
  { title: 'P50 MS', align: 'right' as const },
  { title: 'P99 MS', align: 'right' as const },
];

function medianRow(name: string, loads: readonly Load[]): string[] {
  return [
    name,
    median(loads.map((one) => one.perSecond)).toFixed(0),
    median(loads.map((one) => one.p50Ms)).toFixed(3),
    median(loads.map((one) => one.p99Ms)).toFixed(3),
  ];
}

/** The two servers side by side, each figure the median over the rounds. */
function comparison(pairs: readonly Pair[]): Pick<BenchmarkTable, 'columns' | 'rows'> {
  const bare = pairs.map((pair) => pair.bare);
  const host = pairs.map((pair) => pair.host);
  return { columns, rows: [medianRow('bare node:http', bare), medianRow('turntable', host)] };
}

/** y = x, FP32 [batch, 1024]. */
function echoGraph(): GraphBuilder {
  const graph = new GraphBuilder('echo');
  const x = graph.input('x', ElementType.FLOAT, ['batch', values]);
  graph.output(graph.node('Identity', [x]), ElementType.FLOAT, ['batch', values], 'y');
  return graph;
}

function requestHeader(): string {
  return JSON.stringify({
    inputs: [{ name: 'x', shape: [1, values], datatype: 'FP32', parameters: { binary_data_size: values * 4 } }],
    parameters: { binary_data_output: true },
  });
}

function requestBody(): Buffer {
  const x = Float32Array.from({ length: values }, (_, index) => index / 7);
  return Buffer.concat([Buffer.from(requestHeader()), Buffer.from(x.buffer)]);
}

/** Both servers get the very same bytes. */
async function load({ url, path, name }: Target, client: Client, connections: number, requests: number): Promise<Load> {
  const child = spawn(process.execPath, [join(projectRoot, 'bench/http/load.mjs')], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const headers = {
    'Content-Type': 'application/octet-stream',
    'Inference-Header-Content-Length': String(requestHeader().length),
  };
  child.stdin.end(
    `${JSON.stringify({ url, path, headers, bodyBase64: requestBody().toString('base64'), connections, requests, client })}\n`,
  );
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const result = JSON.parse(line) as Load;
  const good = result.statuses['200'] ?? 0;
  if (good !== requests) {
    throw new Error(`${name} answered ${good} of ${requests} requests with 200: ${JSON.stringify(result.statuses)}`);
  }
  return result;
}

/** Of the host, since this was last read. */
async function eventLoopDelayP99Ms(url: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const value = /^turntable_event_loop_delay_seconds\{quantile="0.99"\} (\S+)$/m.exec(text)?.[1];
  if (value === undefined) throw new Error('the host does not report the delay of its event loop');
  return Number(value) * 1000;
}
