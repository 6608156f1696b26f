/**
 * The cost of the host over a bare node:http server: a warm invocation of 4 KiB, with client, host and instance on the
 * same cores.
 */
import { join } from 'node:path';
import { type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import {
  comparison,
  echoGraph,
  echoTensor,
  limit,
  p50Ratio,
  perSecond,
  runLoad,
  shareAim,
  throughputShare,
  values,
  type Load,
  type Pair,
} from './echo.ts';
import { anySizeGraph, bodySizesName, compareBodySizes, type BodySizes } from './http/body-sizes.ts';
import { countOverManyCalls } from './http/many-calls.ts';
import { compareLargeResults, largeGraph, largeName } from './http/large-results.ts';
import { projectRoot, Servers } from './servers.ts';
import { binaryRequest, loopDelayMs } from './shared/requests.ts';

/** See bench/http/load.mjs. */
type Client = 'raw' | 'node';

interface Target {
  readonly url: string;
  readonly path: string;
}

export const benchmark: Benchmark = {
  name: 'http',
  description: 'throughput and latency of a warm 4 KiB invocation against a bare node:http server that echoes',
  run,
};

async function run({ small, full = false, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const rounds = small ? 1 : 5;
  const requests = small ? 100 : 20_000;
  const sequential = small ? 50 : 3000;
  const warmup = small ? 10 : 6000;
  const connections = 50;
  await using servers = await Servers.create();
  await servers.addFunction('echo', echoGraph(), { pinned: true });
  const largeSize = small ? 64 : 512;
  await servers.addFunction(largeName, largeGraph(largeSize), { slo: '60s' });
  await servers.addFunction(bodySizesName, anySizeGraph(), { pinned: true, slo: '60s' });
  const bareServer = await servers.start([join(projectRoot, 'bench/http/bare-server.mjs')]);
  const hostServer = await servers.startHost();
  const bare: Target = { url: bareServer.url, path: '/' };
  const host: Target = { url: hostServer.url, path: '/v2/models/echo/infer' };

  for (const target of [bare, host]) await load(target, 'raw', connections, Math.min(requests, 5000));
  await loopDelayMs(host.url, 'p99'); // Reading resets it.
  const throughput: Pair[] = [];
  const latency: Pair[] = [];
  const both = async (client: Client, sockets: number, count: number, first = 0): Promise<Pair> => ({
    bare: await load(bare, client, sockets, count, first),
    host: await load(host, client, sockets, count, first),
  });
  for (let round = 0; round < rounds; round++) {
    progress(`round ${round + 1} of ${rounds}`);
    throughput.push(await both('raw', connections, requests));
    latency.push(await both('node', 1, sequential, warmup));
  }
  const delayP99Ms = await loopDelayMs(host.url, 'p99');
  const sizes = await compareBodySizes(servers, hostServer, {
    sizes: small ? [16, 131_072] : [16, 4096, 65_536, 110_592, 602_112, 1_204_224],
    clients: small ? [4] : [1, 4],
    rounds: small ? 1 : 3,
    requestsMax: small ? 24 : 1000,
    progress,
  });
  const manyCalls = small ? 320 : full ? 1_000_000 : 100_000;
  const many = await countOverManyCalls(hostServer, { calls: manyCalls, parts: small ? 2 : 10 }, progress);
  progress('large intermediate results');
  const largeRounds = small ? 3 : 31;
  const large = await compareLargeResults(servers, hostServer, { size: largeSize, rounds: largeRounds });

  const share = throughputShare(throughput);
  const ratio = p50Ratio(latency);
  return {
    settings: {
      rounds,
      requestsPerRound: requests,
      connections,
      sequentialPerRound: sequential,
      warmup,
      bodyBytes: sent.body.byteLength,
      largeRounds,
      manyCalls,
    },
    tables: [
      comparison(`${connections} connections`, 'bare node:http', throughput),
      comparison('one sequential client, node:http with keep-alive', 'bare node:http', latency),
      sizes.table,
      many.table,
      {
        title: 'a model with 100 MB of intermediate results',
        provenance: { kind: 'measured' },
        columns: ['SERVER', '>MEDIAN MS'],
        rows: [
          ['bare node:http with onnxruntime-node', large.directMs.toFixed(1)],
          ['turntable', large.hostMs.toFixed(1)],
        ],
      },
    ],
    figures: {
      throughputShare: share,
      sequentialP50Ratio: ratio,
      hostEventLoopDelayP99Ms: delayP99Ms,
      largeResultsRatio: large.ratio,
      grownOverManyCallsBytes: many.grownBytes,
      ...perSecond(throughput),
    },
    aims: [
      shareAim(share, 42),
      {
        aim: "sequential p50 at most 2.2 times the bare server's",
        met: ratio <= 2.2,
        reached: `${ratio.toFixed(2)} times`,
      },
      ...sizeAims(sizes),
      {
        aim: `in the second half of ${manyCalls} calls of mixed sizes the host and its processes come back to what they had after a tenth of them, but for what varies`,
        met: many.isFlat,
        reached: `${(many.grownBytes / 1e6).toFixed(0)} MB more`,
      },
      {
        aim: 'a model with large intermediate results takes at most 1.3 times what it takes in onnxruntime-node',
        met: large.ratio <= 1.3,
        reached: `${large.ratio.toFixed(2)} times`,
      },
      {
        aim: "p99 of the host's event-loop delay under 10 ms",
        met: delayP99Ms < 10,
        reached: `${delayP99Ms.toFixed(2)} ms`,
      },
    ],
    limits: [limit],
  };
}

/** Two cores hold the client, the host and its child: where a rate misses, the table's CPU per call says what is left. */
function sizeAims({ p50Ratio: ratioOf, rateShare }: BodySizes): NonNullable<BenchmarkResult['aims']> {
  const aimed = [
    { bytes: 4096, rival: 'one child', p50Max: 1.25, shareMin: 0.6 },
    { bytes: 602_112, rival: 'one process', p50Max: 1.4, shareMin: 0.8 },
    { bytes: 1_204_224, rival: 'one process', p50Max: 1.4, shareMin: 0.8 },
  ] as const;
  return aimed.flatMap(({ bytes, rival, p50Max, shareMin }) => {
    const ratio = ratioOf(rival, { bytes, form: 'binary', clients: 1 });
    const share = rateShare('one process', { bytes, form: 'binary', clients: 4 });
    if (ratio === undefined || share === undefined) return [];
    return [
      {
        aim: `${bytes} bytes: sequential p50 at most ${p50Max} times that of ONNX Runtime in ${rival}`,
        met: ratio <= p50Max,
        reached: `${ratio.toFixed(2)} times`,
      },
      {
        aim: `${bytes} bytes: with four clients at least ${shareMin} of the rate of ONNX Runtime in one process`,
        met: share >= shareMin,
        reached: share.toFixed(2),
      },
    ];
  });
}

/** Both servers get the same bytes. */
const sent = binaryRequest([1, values], echoTensor);

async function load(
  { url, path }: Target,
  client: Client,
  connections: number,
  requests: number,
  warmup = 0,
): Promise<Load> {
  const bodyBase64 = sent.body.toString('base64');
  const order = { url, path, headers: sent.headers, bodyBase64, connections, warmup, requests, client };
  return await runLoad('http/load.mjs', order, '200');
}
