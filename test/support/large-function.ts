/**
 * A function of gigabytes that is loaded from disk into a GPU process, and how long that process's event loop stops.
 */
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setTimeout } from 'node:timers/promises';
import { startGpuProcess, type GpuClient, type ProgramPrecision } from '../../src/gpu/index.ts';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { tensorOf } from '../../src/tensor/index.ts';
import { shaped } from './shapes.ts';

const side = 2048;
const layerBytes = side * side * 4;
const { FLOAT } = ElementType;

export interface Stops {
  /** Longest stop of the loop, without the time in which the thread waited for a core. */
  readonly longestMs: number;
  readonly longestWallMs: number;
  /** The longest that the thread itself worked between two turns of the loop. */
  readonly longestWorkMs: number;
  /** The most that the process read between two turns of the loop. */
  readonly mostBytesRead: number;
  readonly beats: number;
  /** Runs of another function that were answered meanwhile. */
  readonly answered: number;
  readonly fillMs: number;
}

/** Products of 16 MiB of weights each. The file of weights is sparse: reading it gives zeros. */
async function writeLarge(folder: string, bytes: number): Promise<string> {
  const graph = new GraphBuilder('large');
  let x = graph.input('x', FLOAT, [1, side]);
  const count = Math.ceil(bytes / layerBytes);
  for (let layer = 0; layer < count; layer++) {
    const weight = graph.weight(`w${layer}`, [side, side], () => new Float32Array(side * side));
    x = graph.node('Relu', [graph.node('MatMul', [x, weight])]);
  }
  graph.output(x, FLOAT, [1, side], 'y');
  const model = graph.build();
  for (const [index, tensor] of model.graph.initializer.entries()) {
    delete tensor.source;
    tensor.dataLocation = 1;
    tensor.externalData = Object.entries({
      location: 'large.weights',
      offset: String(index * layerBytes),
      length: String(layerBytes),
    }).map(([key, value]) => ({ key, value }));
  }
  const weights = join(folder, 'large.weights');
  await writeFile(weights, '');
  await truncate(weights, count * layerBytes);
  const path = join(folder, 'large.onnx');
  await writeModel(model, path, { externalData: 'keep' });
  return path;
}

async function writeSmall(folder: string): Promise<string> {
  const graph = new GraphBuilder('small');
  const x = graph.input('x', FLOAT, [1, 64]);
  const y = graph.node('MatMul', [x, graph.weight('w', [64, 64], new Float32Array(4096))]);
  graph.output(graph.node('Relu', [y]), FLOAT, [1, 64], 'y');
  const path = join(folder, 'small.onnx');
  await writeModel(graph.build(), path);
  return path;
}

export interface LargeOptions {
  /** Must not exist yet; removed at the end. */
  readonly folder: string;
  readonly bytes: number;
  readonly precision: ProgramPrecision;
  /** Of the emulated driver. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Fills pinned memory from the file while another function answers as fast as it can in the same process. */
export async function stopsWhileFilling({ folder, bytes, precision, environment }: LargeOptions): Promise<Stops> {
  await mkdir(folder, { recursive: true });
  const seen = join(folder, 'stops.json');
  const watch = pathToFileURL(join(import.meta.dirname, 'loop-watch.mjs')).href;
  const client = startGpuProcess({
    hostBytes: bytes + 2 ** 28,
    gpuBytes: 2 ** 26,
    cacheFolder: join(folder, 'cache'),
    environment: { ...environment, NODE_OPTIONS: `--import=${watch}`, TURNTABLE_LOOP_WATCH: seen },
  });
  try {
    await client.ready;
    const settings = { precision };
    const [large, small] = [await writeLarge(folder, bytes), await writeSmall(folder)];
    await client.register({ key: 'large', modelPath: large, shapes: shaped({ x: [1, side] }), settings });
    const call = await callerOf(client, small);
    await call();
    process.kill(client.pid, 'SIGUSR2');
    const startedMs = performance.now();
    const fill = { isOver: false };
    const filled = client.stage('large').finally(() => (fill.isOver = true));
    let answered = 0;
    for (; !fill.isOver; answered++) await call();
    await filled;
    const fillMs = performance.now() - startedMs;
    process.kill(client.pid, 'SIGUSR2');
    while (!existsSync(seen)) await setTimeout(5);
    const stops = JSON.parse(await readFile(seen, 'utf8')) as Omit<Stops, 'answered' | 'fillMs'>;
    return { ...stops, answered, fillMs };
  } finally {
    await client.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function callerOf(client: GpuClient, modelPath: string): Promise<() => Promise<unknown>> {
  const shapes = shaped({ x: [1, 64] });
  const coverage = await client.register({ key: 'small', modelPath, shapes });
  if (!coverage.covered) throw new Error('the small function is not covered');
  await client.stage('small');
  const layers = coverage.layers.map(({ name }) => ({ name, method: 'load' as const, link: 0 }));
  const plan = { mode: 'pipeswitch' as const, primary: 0, secondaries: [], bytesGpu: coverage.weightBytes, layers };
  const inputs = [tensorOf('x', 'FP32', [1, 64], new Float32Array(64))];
  return () => client.run('small', inputs, { gpu: 0, plan });
}
