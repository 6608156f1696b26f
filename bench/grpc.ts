/**
 * The cost of the host's gRPC over a bare grpc-js echo: a warm invocation of 4 KiB, with client, host and instance on
 * the same cores.
 */
import { join } from 'node:path';
import { loadProtos, serviceOf } from '../src/host/grpc/index.ts';
import type { Benchmark, BenchmarkOptions, BenchmarkResult } from './benchmark.ts';
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
import { freePort, projectRoot, Servers } from './servers.ts';

export const benchmark: Benchmark = {
  name: 'grpc',
  description: 'throughput and latency of a warm 4 KiB ModelInfer over 50 streams against a bare grpc-js echo',
  run,
};

async function run({ small, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const rounds = small ? 1 : 7;
  const requests = small ? 100 : 10_000;
  const sequential = small ? 50 : 2000;
  const streams = 50;
  await using servers = await Servers.create();
  await servers.addFunction('echo', echoGraph(), { pinned: true });
  const bareServer = await servers.start([join(projectRoot, 'bench/grpc/bare-server.mjs')]);
  const port = await freePort();
  await servers.startHost(['--grpc-port', String(port)]);
  const bare = new URL(bareServer.url).host;
  const host = `127.0.0.1:${port}`;
  const both = async (atOnce: number, count: number): Promise<Pair> => ({
    bare: await load(bare, atOnce, count),
    host: await load(host, atOnce, count),
  });

  await both(streams, Math.min(requests, 3000));
  const throughput: Pair[] = [];
  const latency: Pair[] = [];
  for (let round = 0; round < rounds; round++) {
    progress(`round ${round + 1} of ${rounds}`);
    throughput.push(await both(streams, requests));
    latency.push(await both(1, sequential));
  }
  const share = throughputShare(throughput);
  return {
    settings: { rounds, requestsPerRound: requests, streams, sequentialPerRound: sequential, tensorBytes: values * 4 },
    tables: [
      comparison(`${streams} streams of one connection`, 'bare grpc-js', throughput),
      comparison('one sequential client', 'bare grpc-js', latency),
    ],
    figures: { throughputShare: share, sequentialP50Ratio: p50Ratio(latency), ...perSecond(throughput) },
    aims: [shareAim(share, 35)],
    limits: [limit],
  };
}

/** Both servers get the same bytes. */
function requestMessage(): Buffer {
  const { service } = serviceOf(loadProtos(), 'inference', 'GRPCInferenceService');
  return service['ModelInfer']!.requestSerialize({
    model_name: 'echo',
    inputs: [{ name: 'x', datatype: 'FP32', shape: [1, values] }],
    raw_input_contents: [Buffer.from(echoTensor.buffer)],
  });
}

async function load(address: string, streams: number, requests: number): Promise<Load> {
  const messageBase64 = requestMessage().toString('base64');
  return await runLoad('grpc/load.mjs', { address, streams, requests, messageBase64 }, '0');
}
