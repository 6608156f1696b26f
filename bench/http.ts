/** What the host costs over a bare node:http server: a warm invocation of 4 KiB, client, host and instance on the same cores. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ElementType, GraphBuilder, writeModel } from '../src/onnx/index.ts';
import type { Benchmark, BenchmarkOptions, BenchmarkResult } from './benchmark.ts';

interface Load {
  readonly tookMs: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

interface Target {
  readonly name: string;
  readonly url: string;
  readonly path: string;
}

const values = 1024;
const root = join(import.meta.dirname, '..');

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
  const folder = await mkdtemp(join(tmpdir(), 'turntable-bench-'));
  const processes: ChildProcess[] = [];
  try {
    await writeEchoFunction(join(folder, 'functions', 'echo'));
    const bareUrl = await startServer(processes, [join(root, 'bench/http/bare-server.mjs')]);
    const hostUrl = await startServer(processes, [
      join(root, 'bin/turntable.js'),
      ...['serve', '--port', '0', '--log-level', 'warn'],
      ...['--data', join(folder, 'data'), '--functions', join(folder, 'functions')],
    ]);
    const bare: Target = { name: 'bare node:http', url: bareUrl, path: '/' };
    const host: Target = { name: 'turntable', url: hostUrl, path: '/v2/models/echo/infer' };

    for (const target of [bare, host]) await load(target, connections, Math.min(requests, 5000));
    await eventLoopDelayP99Ms(hostUrl); // Reading it starts it anew.
    const throughput: { bare: Load; host: Load }[] = [];
    const latency: { bare: Load; host: Load }[] = [];
    for (let round = 0; round < rounds; round++) {
      progress(`round ${round + 1} of ${rounds}`);
      throughput.push({ bare: await load(bare, connections, requests), host: await load(host, connections, requests) });
      latency.push({ bare: await load(bare, 1, sequential), host: await load(host, 1, sequential) });
    }
    const delayP99Ms = await eventLoopDelayP99Ms(hostUrl);

    const share = median(throughput.map((pair) => pair.host.perSecond / pair.bare.perSecond));
    const p50Ratio = median(latency.map((pair) => pair.host.p50Ms / pair.bare.p50Ms));
    const row = (name: string, pairs: readonly Load[]): string[] => [
      name,
      median(pairs.map((pair) => pair.perSecond)).toFixed(0),
      median(pairs.map((pair) => pair.p50Ms)).toFixed(3),
      median(pairs.map((pair) => pair.p99Ms)).toFixed(3),
    ];
    const columns = [
      { title: 'SERVER' },
      { title: 'REQUESTS/S', align: 'right' as const },
      { title: 'P50 MS', align: 'right' as const },
      { title: 'P99 MS', align: 'right' as const },
    ];
    const sides = (pairs: readonly { bare: Load; host: Load }[]): string[][] => [
      row(
        bare.name,
        pairs.map((pair) => pair.bare),
      ),
      row(
        host.name,
        pairs.map((pair) => pair.host),
      ),
    ];
    return {
      settings: {
        rounds,
        requestsPerRound: requests,
        connections,
        sequentialPerRound: sequential,
        bodyBytes: requestBody().length,
      },
      tables: [
        { title: `${connections} connections`, provenance: { kind: 'measured' }, columns, rows: sides(throughput) },
        { title: 'one sequential client', provenance: { kind: 'measured' }, columns, rows: sides(latency) },
      ],
      figures: {
        throughputShare: share,
        sequentialP50Ratio: p50Ratio,
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
  } finally {
    for (const child of processes) child.kill('SIGKILL');
    await rm(folder, { recursive: true, force: true });
  }
}

/** y = x, FP32 [batch, 1024]. */
async function writeEchoFunction(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  const graph = new GraphBuilder('echo');
  const x = graph.input('x', ElementType.FLOAT, ['batch', values]);
  graph.output(graph.node('Identity', [x]), ElementType.FLOAT, ['batch', values], 'y');
  await writeModel(graph.build(), join(folder, 'model.onnx'));
  await writeFile(join(folder, 'function.json'), JSON.stringify({ pinned: true }));
}

/** Starts a server that prints its URL when it is ready. */
async function startServer(processes: ChildProcess[], args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] });
  processes.push(child);
  for await (const line of createInterface({ input: child.stdout })) {
    const url = /http:\/\/[\w.:]+/.exec(line)?.[0];
    if (url !== undefined) return url;
  }
  throw new Error(`${args.join(' ')} ended before it was ready`);
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
async function load({ url, path, name }: Target, connections: number, requests: number): Promise<Load> {
  const child = spawn(process.execPath, [join(root, 'bench/http/load.mjs')], { stdio: ['pipe', 'pipe', 'inherit'] });
  const headers = {
    'Content-Type': 'application/octet-stream',
    'Inference-Header-Content-Length': String(requestHeader().length),
  };
  child.stdin.end(
    `${JSON.stringify({ url, path, headers, bodyBase64: requestBody().toString('base64'), connections, requests })}\n`,
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

function median(numbers: readonly number[]): number {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = Math.floor(sorted.length / 2);
  const upper = sorted[middle] ?? NaN;
  return sorted.length % 2 === 1 ? upper : (upper + (sorted[middle - 1] ?? NaN)) / 2;
}
