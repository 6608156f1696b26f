/**
 * A host and a bare echo server, in turns under the same load: the common part of `bench -- http` and `bench -- grpc`.
 */
import { ElementType, GraphBuilder } from '../src/onnx/index.ts';
import { tableOf, type BenchmarkTable } from './benchmark.ts';
import { ask } from './servers.ts';
import { median } from './shared/statistics.ts';

export interface Load {
  readonly statuses: Readonly<Record<string, number>>;
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** One round. */
export interface Pair {
  readonly bare: Load;
  readonly host: Load;
}

/** Floats in the tensor of a call: 4 KiB. */
export const values = 1024;
export const echoTensor = Float32Array.from({ length: values }, (_, index) => index / 7);

export const limit =
  'the model does nothing (Identity), so this is the cost of the way to it and back; each figure is the median over the rounds, in which the two servers take turns';

/** y = x, FP32 [batch, 1024]. */
export function echoGraph(): GraphBuilder {
  const graph = new GraphBuilder('echo');
  const x = graph.input('x', ElementType.FLOAT, ['batch', values]);
  graph.output(graph.node('Identity', [x]), ElementType.FLOAT, ['batch', values], 'y');
  return graph;
}

/**
 * Runs a load generator in its own process, which sends `order.requests` requests.
 * @param program below bench/: reads a line of JSON, writes one
 * @param good the status of every reply; any other rejects
 */
export async function runLoad(
  program: string,
  order: { readonly requests: number; readonly [setting: string]: unknown },
  good: string,
): Promise<Load> {
  const load = await ask<Load>(program, order);
  if (load.statuses[good] !== order.requests) {
    throw new Error(
      `of ${order.requests} requests not all were answered with ${good}: ${JSON.stringify(load.statuses)}`,
    );
  }
  return load;
}

export const throughputShare = (pairs: readonly Pair[]): number =>
  median(pairs.map(({ bare, host }) => host.perSecond / bare.perSecond));

export const p50Ratio = (pairs: readonly Pair[]): number =>
  median(pairs.map(({ bare, host }) => host.p50Ms / bare.p50Ms));

export const perSecond = (pairs: readonly Pair[]): { hostPerSecond: number; barePerSecond: number } => ({
  hostPerSecond: median(pairs.map(({ host }) => host.perSecond)),
  barePerSecond: median(pairs.map(({ bare }) => bare.perSecond)),
});

export function shareAim(share: number, leastPercent: number): { aim: string; met: boolean; reached: string } {
  const aim = `at least ${leastPercent}% of the bare server's throughput`;
  return { aim, met: share * 100 >= leastPercent, reached: `${(share * 100).toFixed(1)}%` };
}

/** Both servers side by side; each figure is the median over the rounds. */
export function comparison(title: string, bareName: string, pairs: readonly Pair[]): BenchmarkTable {
  const servers = [
    { name: bareName, loads: pairs.map(({ bare }) => bare) },
    { name: 'turntable', loads: pairs.map(({ host }) => host) },
  ];
  return tableOf(title, servers, [
    ['SERVER', ({ name }) => name],
    ['>REQUESTS/S', ({ loads }) => median(loads.map((one) => one.perSecond)).toFixed(0)],
    ['>P50 MS', ({ loads }) => median(loads.map((one) => one.p50Ms)).toFixed(3)],
    ['>P99 MS', ({ loads }) => median(loads.map((one) => one.p99Ms)).toFixed(3)],
  ]);
}
