/**
 * The host's processor time for a warm call on a GPU, beside the same call on the CPU. The driver is the emulated one:
 * it computes in the GPU process, whose time counts apart. So this is what the host does for a call, without a GPU.
 * A server that only passes floats to one child says what that costs at least: the child has the same model, and keeps
 * its core and cache busy for as long as the GPU process does.
 */
import { join } from 'node:path';
import { emulatedEnvironment } from '../test/support/emulator.ts';
import { mustBuildDriver, tableOf, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { measure, requestOf, type Cell, type Measured } from './http/body-sizes.ts';
import { ElementType, GraphBuilder } from '../src/onnx/index.ts';
import { projectRoot, Servers, type StartedServer } from './servers.ts';
import { mustSend } from './shared/requests.ts';
import { median } from './shared/statistics.ts';

/** Layers with weights, as many as BERT-Base has: a plan names each. */
const layers = 74;
const usMax = 120;
/** The same aim on any machine: where it was set, a call on the CPU cost the host 75 to 97 us. */
const timesOnCpuMax = 1.4;

export const benchmark: Benchmark = {
  name: 'gpu-calls',
  description: "the host's processor time for a warm call on a GPU (emulated driver) and on the CPU",
  run,
};

type Found = Record<'gpu' | 'cpu' | 'oneChild', Measured>;

/** x + w1 + w2 + ..., FP32 [1, values]. */
function chain(values: number): GraphBuilder {
  const graph = new GraphBuilder('chain');
  const x = graph.input('x', ElementType.FLOAT, [1, values]);
  let sum = x;
  for (let layer = 0; layer < layers; layer++) {
    const weight = Float32Array.from({ length: values }, (_, at) => (layer + at) / 1e4);
    sum = graph.node('Add', [sum, graph.weight(`encoder.layer.${layer}.output.weight`, [values], weight)]);
  }
  graph.output(sum, ElementType.FLOAT, [1, values], 'y');
  return graph;
}

async function run({ small, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const driver = await mustBuildDriver();
  const sizes = small ? [16] : [16, 4096];
  const rounds = small ? 1 : 5;
  const requests = small ? 30 : 1000;
  const warmup = small ? 5 : 3000;
  await using servers = await Servers.create();
  for (const bytes of sizes) await servers.addFunction(nameOf(bytes), chain(bytes / 4), { slo: '60s' });
  const environment = emulatedEnvironment(driver, [{ memoryBytes: 2 ** 28 }]);
  const onGpu = ['--gpu-memory', '128MiB', '--gpu-host-memory', '64MiB', '--gpu-hybrid', 'off'];
  const hosts = {
    gpu: await servers.startHost(
      ['--data', await servers.makeFolder('gpu'), ...onGpu, '--gpu-recheck-every', '1000000'],
      environment,
    ),
    cpu: await servers.startHost(['--data', await servers.makeFolder('cpu'), '--gpu-use', 'off']),
  };
  for (const bytes of sizes) await warm(hosts.gpu, bytes);
  const cells = sizes.flatMap((bytes) => [1, 16].map((clients): Cell => ({ bytes, form: 'binary', clients })));
  progress('warming up');
  for (const host of [hosts.gpu, hosts.cpu]) for (const cell of cells) await load(host, cell, warmup);
  const oneChild = new Map<number, StartedServer>();
  for (const bytes of sizes) {
    const { childrenMs } = await load(hosts.gpu, { bytes, form: 'binary', clients: 1 }, requests);
    const model = join(servers.folder, 'functions', nameOf(bytes), 'model.onnx');
    const environment = { BUSY_US: (1000 * childrenMs).toFixed(0) };
    oneChild.set(bytes, await servers.start([join(projectRoot, 'bench/http/child-server.mjs'), model], environment));
  }
  for (const cell of cells) await load(oneChild.get(cell.bytes)!, cell, warmup);
  const found = new Map<Cell, Found[]>(cells.map((cell) => [cell, []]));
  for (let round = 0; round < rounds; round++) {
    for (const cell of cells) {
      progress(`round ${round + 1} of ${rounds}: ${cell.bytes} bytes, ${cell.clients} clients`);
      const gpu = await load(hosts.gpu, cell, requests);
      const cpu = await load(hosts.cpu, cell, requests);
      found.get(cell)!.push({ gpu, cpu, oneChild: await load(oneChild.get(cell.bytes)!, cell, requests) });
    }
  }
  const us = (cell: Cell, value: (one: Found) => number): number => 1000 * median(found.get(cell)!.map(value));
  const most = Math.max(...cells.map((cell) => us(cell, ({ gpu }) => gpu.ownMs)));
  const timesOnCpu = (cell: Cell): number => median(found.get(cell)!.map(({ gpu, cpu }) => gpu.ownMs / cpu.ownMs));
  const timesMost = Math.max(...cells.map(timesOnCpu));
  return {
    settings: { layers, rounds, requestsPerRound: requests, warmup },
    tables: [
      tableOf('processor time of a warm call, microseconds', cells, [
        ['>BYTES', ({ bytes }) => String(bytes)],
        ['>CLIENTS', ({ clients }) => String(clients)],
        ['>HOST, ON A GPU', (cell) => us(cell, ({ gpu }) => gpu.ownMs).toFixed(0)],
        ['>GPU PROCESS', (cell) => us(cell, ({ gpu }) => gpu.childrenMs).toFixed(0)],
        ['>HOST, ON THE CPU', (cell) => us(cell, ({ cpu }) => cpu.ownMs).toFixed(0)],
        ['>TIMES', (cell) => timesOnCpu(cell).toFixed(2)],
        ['>SERVER WITH ONE CHILD', (cell) => us(cell, (one) => one.oneChild.ownMs).toFixed(0)],
        ['>INSTANCE', (cell) => us(cell, ({ cpu }) => cpu.childrenMs).toFixed(0)],
      ]),
    ],
    figures: {
      hostUsMost: most,
      timesOnCpu: median([...found.values()].flat().map(({ gpu, cpu }) => gpu.ownMs / cpu.ownMs)),
      timesOneChild: median([...found.values()].flat().map((one) => one.gpu.ownMs / one.oneChild.ownMs)),
    },
    aims: [
      {
        aim: `a warm call on a GPU takes at most ${usMax} us of the host's processor time`,
        met: most <= usMax,
        reached: `${most.toFixed(0)} us`,
        isOfSpeed: true,
      },
      {
        aim: `and at most ${timesOnCpuMax} times what the same call on the CPU takes`,
        met: timesMost <= timesOnCpuMax,
        reached: timesMost.toFixed(2),
        isOfSpeed: true,
      },
    ],
    limits: [
      'what a GPU takes: the driver is emulated on the CPU, in the GPU process',
      'processor time on a busy machine is longer than on a quiet one: caches are shared, and each wake evicts others',
    ],
  };
}

const load = (host: StartedServer, cell: Cell, requests: number): Promise<Measured> =>
  measure(host, pathOf(nameOf(cell.bytes)), cell, requests);
const nameOf = (bytes: number): string => `chain-${bytes}`;
const pathOf = (name: string): string => `/v2/models/${name}/infer`;

/** Waits until the function runs on the GPU, warm. */
async function warm({ url }: StartedServer, bytes: number): Promise<void> {
  const name = nameOf(bytes);
  await mustSend(`${url}/v2/repository/models/${name}/load`, { method: 'POST' });
  const { placement } = await mustSend(url + pathOf(name), { method: 'POST', ...requestOf(bytes, 'binary') });
  if (placement !== 'gpu0 warm') throw new Error(`'${name}' does not run on the GPU, but: ${placement}`);
}
