/**
 * What the engine requests from a GPU, in counts: launches and bytes of models at full size, warm and cold, in every
 * precision. Counts need no GPU. The driver is the emulated one, with kernels and products that compute nothing here.
 */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  compileModel,
  Engine,
  loadAllPlan,
  openCuda,
  operators,
  type Cuda,
  type Program,
  type ProgramPrecision,
} from '../src/gpu/index.ts';
import type { Tensor } from '../src/tensor/index.ts';
import { formatBytes } from '../src/tools/index.ts';
import { Emulator, type EmulatorReport } from '../test/support/emulator.ts';
import { mustBuildDriver, tableOf, type Benchmark, type BenchmarkResult } from './benchmark.ts';
import { countPins, stopsOf, withMemory } from './gpu/memory.ts';
import { writeBenchModel } from './gpu/models.ts';

const names =
  'bert-base bert-large roberta-base gpt2 resnet50 resnet101 vgg16 inception-v3 mobilenet-v2 lstm gru'.split(' ');
const precisions: readonly ProgramPrecision[] = ['exact', 'tf32', 'fp16'];

/** Counts of one run. */
interface Counts {
  readonly kernels: number;
  readonly products: number;
  readonly copies: number;
  readonly toDeviceBytes: number;
  /** Calls of the driver, from launches to waits. */
  readonly calls: number;
  /** Calls that launch: kernels and products one by one, */
  readonly single: number;
  /** and graphs. */
  readonly graphs: number;
  readonly waits: number;
  readonly kernelsReadingHost: number;
  readonly productsReadingHost: number;
}

interface Row {
  readonly model: string;
  readonly precision: ProgramPrecision;
  readonly weightBytes: number;
  readonly arenaBytes: number;
  /** Copies and fills on the GPU: nodes of the program's graph beside kernels and products. */
  readonly moves: number;
  readonly warm: Counts;
  /** All layers are loaded. */
  readonly cold: Counts;
  /** Embeddings are read from host memory. */
  readonly coldDha: Counts;
  /** No layer is on the GPU or loaded to stay there. */
  readonly fromHost: Counts;
  /** Some of the first layers are in place, the others are loaded; by {@link keptShares}. */
  readonly partial: readonly Counts[];
}

const keptShares = [0.5, 0.7, 0.9];
/** Of a cold start: each costs some 2.5 us beside its bytes. They were 74, 44 and 130 with at most half a MiB a copy. */
const copiesMost: Readonly<Record<string, number>> = { 'bert-base': 40, resnet50: 25, resnet101: 30 };
/** Launches one by one in a run with nine tenths of the layers in place: each takes some 3 us more than in a graph. */
const singleShareMost = 0.35;

export const benchmark: Benchmark = {
  name: 'gpu-counts',
  description: 'how many launches, bytes and pins does a run on a GPU take, warm and cold, in every precision?',
  async run({ small, progress }) {
    const driver = await mustBuildDriver();
    const emulator = new Emulator(driver);
    const cacheFolder = join(small ? tmpdir() : '.cache', 'turntable-bench-gpu');
    const rows: Row[] = [];
    for (const model of small ? ['bert-base'] : names) {
      progress(`${model}: writing the model`);
      const { path, shapes } = await writeBenchModel(cacheFolder, model, small);
      for (const precision of precisions) {
        progress(`${model}, ${precision}`);
        const program = await compileModel(path, shapes, operators, { cacheFolder, settings: { precision } });
        const { arenaBytes, launches, layout } = program;
        emulator.configure({ computes: false, devices: [{ memoryBytes: roomFor(program) + 2 ** 26 }] });
        const cuda = openCuda({ environment: driver.environment, cacheFolder });
        try {
          const counts = await countRuns(cuda, emulator, program, small ? 2 ** 24 : 2 ** 27);
          const moves = launches.filter(({ kind }) => kind === 'copy' || kind === 'fill').length;
          rows.push({ model, precision, weightBytes: layout.bytes, arenaBytes, moves, ...counts });
        } finally {
          cuda.release();
          emulator.resetDevice(0);
        }
      }
    }
    progress('a large function from disk');
    const stops = await stopsOf(driver, small ? 2 ** 25 : 2 ** 32);
    progress('runs with large inputs');
    emulator.configure({ computes: false, devices: 1 });
    const pins = await countPins(driver, emulator, small ? 4 : 1000);
    return withMemory(resultOf(rows), stops, pins);
  },
};

/** Weights, activations, and copies of the weights that a product reads. */
const roomFor = ({ layout, arenaBytes, constants, workspaceBytes }: Program): number =>
  2 * layout.bytes + arenaBytes + constants.byteLength + workspaceBytes + 2 ** 26;

/** @param spareBytes of host memory beside the weights, all of which is pinned */
async function countRuns(
  cuda: Cuda,
  emulator: Emulator,
  program: Program,
  spareBytes: number,
): Promise<Pick<Row, 'warm' | 'cold' | 'coldDha' | 'fromHost' | 'partial'>> {
  const engine = new Engine(cuda, { hostBytes: 2 * program.layout.bytes + spareBytes, gpuBytes: roomFor(program) });
  engine.addFunction('counted', program.layout);
  await engine.stage('counted');
  const inputs = program.inputs.map(({ name, datatype, shape, bytes }): Tensor => ({
    name,
    datatype,
    shape,
    data: new Uint8Array(bytes),
  }));
  const { layers } = program.layout;
  const loading = (only: (kind: string) => boolean): ReturnType<typeof loadAllPlan> =>
    loadAllPlan(program, 0, new Set(layers.filter(({ kind }) => only(kind)).map(({ index }) => index)));
  const all = loading(() => true);
  const run = async (plan: typeof all): Promise<Counts> => {
    emulator.forget();
    await engine.run('counted', program, inputs, { gpu: 0, plan });
    return countsOf(emulator.report());
  };
  await run(all);
  await engine.evict('counted', 0);
  // The library's kernels are loaded by now.
  const cold = await run(all);
  await run(all);
  // The second warm run captures a graph, later ones only launch it.
  await run(all);
  const warm = await run(all);
  const partial: Counts[] = [];
  const weighted = layers.flatMap(({ index, bytes }) => (bytes > 0 ? [index] : []));
  for (const share of keptShares) {
    // A layer's number is one less than how many there are up to it.
    const kept = weighted[Math.round(share * weighted.length)] ?? layers.length;
    for (let turn = 0; turn < 3; turn++) {
      await engine.trim('counted', 0, kept);
      partial[keptShares.indexOf(share)] = await run(all);
    }
  }
  await engine.evict('counted', 0);
  const coldDha = await run(loading((kind) => kind !== 'embedding'));
  await engine.evict('counted', 0);
  const fromHost = await run(loading(() => false));
  await engine.close();
  return { warm, cold, coldDha, fromHost, partial };
}

function countsOf(report: EmulatorReport): Counts {
  const { launches: kernels, products, copied, kernelsReadingHost, productsReadingHost } = report;
  const made = (name: string): number => report.calls[name] ?? 0;
  return {
    kernels,
    products,
    copies: made('cuMemcpyAsync'),
    toDeviceBytes: copied.toDevice,
    calls: Object.values(report.calls).reduce((sum, count) => sum + count, 0),
    single: made('cuLaunchKernelEx') + made('cublasLtMatmul'),
    graphs: made('cuGraphLaunch'),
    waits: made('cuStreamWaitEvent'),
    kernelsReadingHost,
    productsReadingHost,
  };
}

const launches = ({ kernels, products }: Counts): number => kernels + products;

/** The first columns of both tables. */
const named = [
  ['model', ({ model }: Row) => model],
  ['precision', ({ precision }: Row) => precision],
] as const;

function resultOf(rows: readonly Row[]): BenchmarkResult {
  return {
    settings: { batch: 1, bertTokens: 384, gpt2Tokens: 1024 },
    tables: [
      tableOf('Launches and bytes of one run, batch 1. Warm: a captured graph. Cold: all layers are loaded', rows, [
        ...named,
        ['>weights', ({ weightBytes }) => formatBytes(weightBytes)],
        ['>activations', ({ arenaBytes }) => formatBytes(arenaBytes)],
        ['>kernels', ({ warm }) => String(warm.kernels)],
        ['>products', ({ warm }) => String(warm.products)],
        ['>copies and fills', ({ moves }) => String(moves)],
        ['>launches', ({ warm, moves }) => String(launches(warm) + moves)],
        ['>driver calls warm', ({ warm }) => String(warm.calls)],
        ['>to the GPU warm', ({ warm }) => formatBytes(warm.toDeviceBytes)],
        ['>to the GPU cold', ({ cold }) => formatBytes(cold.toDeviceBytes)],
        ['>copies cold', ({ cold }) => String(cold.copies)],
      ]),
      tableOf(
        'What is read from host memory: cold with embeddings there (mode dha), and with no layer on the GPU at all',
        rows,
        [
          ...named,
          ['>dha: copied', ({ coldDha }) => formatBytes(coldDha.toDeviceBytes)],
          ['>dha: kernels reading', ({ coldDha }) => String(coldDha.kernelsReadingHost)],
          ['>all: copied', ({ fromHost }) => formatBytes(fromHost.toDeviceBytes)],
          ['>all: weights', ({ weightBytes }) => formatBytes(weightBytes)],
          ['>all: kernels reading', ({ fromHost }) => String(fromHost.kernelsReadingHost)],
          ['>all: products reading', ({ fromHost }) => String(fromHost.productsReadingHost)],
        ],
      ),
      tableOf(
        'A run that lacks its last layers: calls that launch, waits on the GPU and copies, where half, 70% and 90% of the layers with weights are in place',
        rows,
        [
          ...named,
          ...keptShares.flatMap((share, at) =>
            (['single', 'graphs', 'waits', 'copies'] as const).map(
              (what) =>
                [
                  `>${100 * share}%: ${what === 'single' ? 'one by one' : what}`,
                  ({ partial }: Row) => String(partial[at]![what]),
                ] as const,
            ),
          ),
        ],
      ),
    ],
    aims: rows.flatMap(({ model, precision, cold, warm, partial }) => {
      const single = partial.at(-1)!.single / launches(warm);
      const most = copiesMost[model];
      if (most === undefined) return [];
      return [
        {
          aim: `${model} ${precision}: a cold start takes at most ${most} copies`,
          met: cold.copies <= most,
          reached: String(cold.copies),
        },
        {
          aim: `${model} ${precision}: with 90% of the layers in place, at most ${100 * singleShareMost}% of the launches go one by one`,
          met: single <= singleShareMost,
          reached: `${Math.round(100 * single)}%`,
        },
      ];
    }),
    figures: Object.fromEntries(
      rows.flatMap(({ model, precision, moves, warm, cold }) => [
        [`${model} ${precision} warm launches`, launches(warm) + moves],
        [`${model} ${precision} cold bytes`, cold.toDeviceBytes],
      ]),
    ),
    limits: ['any time: the driver was the emulated one, and computed nothing'],
  };
}
