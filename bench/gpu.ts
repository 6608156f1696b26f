/** How soon a function answers from a GPU: warm, cold in every mode, and with part of its weights kept there. */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  GpuError,
  startGpuProcess,
  type GpuClient,
  type GpuCoverage,
  type MeasuredLayerProfile,
  type RunResult,
  shapeIn,
} from '../src/gpu/index.ts';
import { loadMachine, probeMachine, readMemory, type Machine } from '../src/hardware/index.ts';
import { coldStartModes, modeText, planColdStart, type ColdStartMode, type ColdStartPlan } from '../src/plan/index.ts';
import { elementBytes, elementCount, type Tensor } from '../src/tensor/index.ts';
import { describeModel, readModel } from '../src/onnx/index.ts';
import { formatBytes } from '../src/tools/index.ts';
import {
  BenchmarkNotPossible,
  emulatedOnly,
  mustBuildDriver,
  type Benchmark,
  type BenchmarkOptions,
  type BenchmarkResult,
} from './benchmark.ts';
import { fullModels, writeBenchModel, type BenchModel } from './gpu/models.ts';
import { median, quantile } from './shared/statistics.ts';
import { measureTorch, reasonsOf, timedBy, type Timed, type Torch } from './gpu/torch.ts';

const shares = [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1];
const transformers: ReadonlySet<string> = new Set(['bert-base', 'bert-large', 'roberta-base', 'gpt2']);

interface Latencies {
  readonly warmMs: number;
  /** In the GPU process, from the call to the outputs. */
  readonly warmWallMs: number;
  readonly coldDhaWallMs: number;
  readonly coldMs: ReadonlyMap<ColdStartMode, number>;
  readonly floorMs: ReadonlyMap<ColdStartMode, number>;
  readonly plans: ReadonlyMap<ColdStartMode, ColdStartPlan>;
  /** By the share of the dha plan's bytes that is kept. */
  readonly kept: readonly number[];
  readonly weightBytes: number;
}

export const benchmark: Benchmark = {
  name: 'gpu',
  description: 'how soon does a function answer from a GPU, warm and cold in every mode?',
  async run(options) {
    const emulated = options.small ? await mustBuildDriver() : undefined;
    const cache = join(options.small ? tmpdir() : '.cache', 'turntable-bench-gpu');
    const client = startGpuProcess({
      hostBytes: options.small ? 2 ** 26 : readMemory().totalBytes / 2,
      ...(options.small ? { slabBytes: 2 ** 20, gpuBytes: 2 ** 27 } : {}),
      cacheFolder: join(cache, 'compiled'),
      ...(emulated === undefined ? {} : { environment: emulated.environment }),
    });
    try {
      await client.ready;
    } catch (error) {
      await client.stop();
      if (!(error instanceof GpuError)) throw error;
      throw new BenchmarkNotPossible(`there is no GPU to measure on: ${error.message}`);
    }
    try {
      return await measureAll(client, cache, options);
    } finally {
      await client.stop();
    }
  },
};

async function measureAll(client: GpuClient, cache: string, options: BenchmarkOptions): Promise<BenchmarkResult> {
  const { small, progress } = options;
  const names = small ? ['bert-base'] : fullModels;
  const rounds = small ? 3 : 21;
  const topology = await client.topology(small ? 2 ** 16 : 2 ** 28);
  const { loadGBps, name: gpu } = topology.gpus[0]!;
  const machine = machineWith(loadGBps);
  const measured = new Map<string, Latencies>();
  const untilMs = performance.now() + (options.minutes ?? Infinity) * 60_000;
  const leftOut: string[] = [];
  let longestMs = 0;
  for (const name of names) {
    const beganMs = performance.now();
    // PyTorch takes about as long as a model.
    if (measured.size > 0 && beganMs + 2 * longestMs > untilMs) {
      leftOut.push(name);
      continue;
    }
    progress(`${name}: writing the model`);
    const model = await writeBenchModel(cache, name, small);
    measured.set(name, await measureModel(client, model, machine, loadGBps, rounds, progress));
    longestMs = Math.max(longestMs, performance.now() - beganMs);
  }
  const beside = await measureBeside(client, cache, options);
  progress('PyTorch');
  const torch = small
    ? { reason: 'the driver was the emulated one' }
    : await measureTorch([...measured.keys()], rounds);
  return {
    settings: {
      gpu,
      rounds,
      linkGBps: Number(loadGBps.toFixed(1)),
      batch: 1,
      torch: 'reason' in torch ? `none: ${torch.reason}` : 'yes',
    },
    tables: [
      latencyTable(measured),
      modeTable(measured),
      keptTable(measured),
      besideTable(beside),
      torchTable(measured, torch),
    ].map((table) => (small ? Object.assign(table, { provenance: emulatedOnly }) : table)),
    figures: figuresOf(measured),
    aims: small ? [] : [...aimsOf(measured, torch), besideAim(beside)],
    limits: [
      ...(small ? ['any time: the driver was the emulated one'] : []),
      ...(topology.gpus.length === 1
        ? ['parallel transmission: there is one GPU, so that pt, pt+dha and interleave are as pipeswitch and dha']
        : []),
      ...leftOut.map((name) => `${name}: the ${options.minutes} minutes were over`),
      ...reasonsOf(torch),
    ],
  };
}

/** This machine with its measured link; without a GPU in /proc (small runs) the preset. */
function machineWith(linkGBps: number): Machine {
  const probed = probeMachine();
  const machine = probed.gpus.length > 0 ? probed : loadMachine('h200');
  return { ...machine, gpus: machine.gpus.map((gpu) => Object.assign({}, gpu, { linkGBps })) };
}

async function measureModel(
  client: GpuClient,
  model: BenchModel,
  machine: Machine,
  linkGBps: number,
  rounds: number,
  progress: (text: string) => void,
): Promise<Latencies> {
  const { name, path, shapes } = model;
  progress(`${name}: compiling`);
  const coverage = await client.register({ key: name, modelPath: path, shapes });
  if (!coverage.covered) throw new Error(`${name} is not covered: ${JSON.stringify(coverage.obstacles.slice(0, 3))}`);
  await client.stage(name);
  progress(`${name}: measuring its layers`);
  const profile = await client.measure(name, { gpu: 0, iterations: rounds });
  const inputs = await inputsOf(model);
  const plans = new Map(coldStartModes.map((mode) => [mode, planOf(profile, coverage, machine, mode)]));
  const coldMs = new Map<ColdStartMode, number[]>(coldStartModes.map((mode) => [mode, []]));
  const run = (mode: ColdStartMode): Promise<RunResult> => client.run(name, inputs, { gpu: 0, plan: plans.get(mode)! });
  const warm: Timed[] = [];
  const coldDhaWallMs: number[] = [];
  for (let warmUp = 0; warmUp < 4; warmUp++) await run('pipeswitch');
  for (let round = 0; round < rounds; round++) {
    progress(`${name}: round ${round + 1} of ${rounds}`);
    // Modes in turns, so that changes over time affect all of them.
    for (const mode of coldStartModes) {
      await client.evict(name, 0);
      const { gpuMs, totalMs } = (await run(mode)).timings;
      coldMs.get(mode)!.push(gpuMs);
      if (mode === 'dha') coldDhaWallMs.push(totalMs);
    }
    await client.evict(name, 0);
    for (let warmUp = 0; warmUp < 3; warmUp++) await run('dha');
    const { gpuMs, totalMs: wallMs } = (await run('dha')).timings;
    warm.push({ gpuMs, wallMs });
  }
  const kept = await measureKept(client, name, () => run('dha'), plans.get('dha')!, rounds);
  const floorMs = new Map([...plans].map(([mode, { bytesGpu }]) => [mode, bytesGpu / (linkGBps * 1e6)]));
  await client.unregister(name);
  return {
    warmMs: median(warm.map(({ gpuMs }) => gpuMs)),
    warmWallMs: median(warm.map(({ wallMs }) => wallMs)),
    coldDhaWallMs: median(coldDhaWallMs),
    coldMs: new Map([...coldMs].map(([mode, times]) => [mode, median(times)])),
    floorMs,
    plans,
    kept,
    weightBytes: coverage.weightBytes,
  };
}

function planOf(
  { layers }: MeasuredLayerProfile,
  coverage: GpuCoverage & { covered: true },
  machine: Machine,
  mode: ColdStartMode,
): ColdStartPlan {
  const plan = planColdStart({ layers }, machine, mode, { primary: 0 });
  const bytesGpu = plan.layers.reduce(
    (sum, { method }, index) => sum + (method === 'load' ? coverage.layers[index]!.bytes : 0),
    0,
  );
  return { ...plan, bytesGpu };
}

/** Cold latency if a share of the bytes that the plan loads is on the GPU already. */
async function measureKept(
  client: GpuClient,
  name: string,
  run: () => Promise<RunResult>,
  plan: ColdStartPlan,
  rounds: number,
): Promise<number[]> {
  const loaded = plan.layers.filter(({ method }) => method === 'load').length;
  const medians: number[] = [];
  for (const share of shares) {
    const times: number[] = [];
    for (let round = 0; round < rounds; round++) {
      await run();
      // Layers of a transformer are equal, so a share of the layers is about a share of the bytes.
      await client.trim(name, 0, Math.round(share * loaded));
      times.push((await run()).timings.gpuMs);
    }
    medians.push(median(times));
  }
  return medians;
}

/** Latencies of a warm function, alone and while another one is loaded again and again. */
interface Beside {
  readonly name: string;
  readonly other: string;
  readonly alone: readonly Timed[];
  readonly loading: readonly Timed[];
  readonly loads: number;
}

async function measureBeside(client: GpuClient, cache: string, { small, progress }: BenchmarkOptions): Promise<Beside> {
  const [name, other] = small ? ['bert-base', 'gpt2'] : ['resnet50', 'bert-large'];
  progress(`${name} beside loads of ${other}`);
  const open = async (each: string) => {
    const model = await writeBenchModel(cache, each, small);
    const coverage = await client.register({ key: each, modelPath: model.path, shapes: model.shapes });
    if (!coverage.covered) throw new Error(`${each} is not covered`);
    await client.stage(each);
    const layers = coverage.layers.map((layer) => ({ name: layer.name, method: 'load' as const, link: 0 }));
    const plan: ColdStartPlan = {
      mode: 'pipeswitch',
      primary: 0,
      secondaries: [],
      bytesGpu: coverage.weightBytes,
      layers,
    };
    return { inputs: await inputsOf(model), plan };
  };
  const warm = await open(name);
  const { plan: otherPlan } = await open(other);
  const runs = small ? 3 : 300;
  const measure = async (): Promise<Timed[]> => {
    const times: Timed[] = [];
    for (let run = 0; run < runs; run++) {
      const { timings } = await client.run(name, warm.inputs, { gpu: 0, plan: warm.plan });
      times.push({ gpuMs: timings.gpuMs, wallMs: timings.totalMs });
    }
    return times;
  };
  await measure();
  const alone = await measure();
  const over = new AbortController();
  let loads = 0;
  const load = async (): Promise<void> => {
    do {
      await client.evict(other, 0);
      await client.load(other, { gpu: 0, plan: otherPlan });
      loads++;
    } while (!over.signal.aborted);
  };
  const loader = load();
  const loading = await measure().finally(() => over.abort());
  await loader;
  for (const each of [name, other]) await client.unregister(each);
  return { name, other, alone, loading, loads };
}

const wallOf = (times: readonly Timed[]): number[] => times.map(({ wallMs }) => wallMs);

const besideRow = (what: string, times: readonly Timed[]): string[] => [
  what,
  ms(median(wallOf(times))),
  ms(quantile(wallOf(times), 0.99)),
  ms(median(times.map(({ gpuMs }) => gpuMs))),
];

function besideTable({ name, other, alone, loading, loads }: Beside): BenchmarkResult['tables'][number] {
  return {
    title: `A warm ${name} alone, and while ${other} is loaded again and again (${loads} times), milliseconds`,
    provenance: measuredHere,
    columns: ['', '>p50, wall', '>p99, wall', '>p50, events'],
    rows: [besideRow('alone', alone), besideRow('beside loads', loading)],
  };
}

function besideAim({ name, other, alone, loading }: Beside): NonNullable<BenchmarkResult['aims']>[number] {
  const ratio = median(wallOf(loading)) / median(wallOf(alone));
  const aim = `a warm ${name} beside loads of ${other} takes at most 1.2 times as long as alone`;
  return { aim, met: ratio <= 1.2, reached: `${ratio.toFixed(2)} times` };
}

async function inputsOf({ path, shapes }: BenchModel): Promise<Tensor[]> {
  const { inputs } = describeModel(await readModel(path));
  return inputs.map(({ name, datatype }) => {
    const shape = shapeIn(shapes, name)!;
    const data = new Uint8Array(elementCount(shape) * elementBytes[datatype]);
    const numbers = elementCount(shape);
    if (datatype === 'FP32') new Float32Array(data.buffer).forEach((_, i, array) => (array[i] = Math.sin(i)));
    if (datatype === 'INT64') {
      const view = new BigInt64Array(data.buffer);
      for (let i = 0; i < numbers; i++)
        view[i] = BigInt(/mask/.test(name) ? 1 : /type/.test(name) ? 0 : (i * 7919) % 47);
    }
    return { name, datatype, shape, data };
  });
}

const ms = (value: number | undefined): string => (value === undefined ? '-' : value.toFixed(3));
const measuredHere = { kind: 'measured' } as const;

/** 'dha', or 'pt: pipeswitch, 1 link: one GPU' where the machine made each model's plan one of another mode. */
function askedAndInEffect(mode: ColdStartMode, measured: ReadonlyMap<string, Latencies>): string {
  const texts = new Set([...measured.values()].map(({ plans }) => modeText(plans.get(mode)!)));
  const [text] = texts;
  return texts.size !== 1 || text === mode ? mode : `${mode}: ${text}`;
}

function latencyTable(measured: ReadonlyMap<string, Latencies>): BenchmarkResult['tables'][number] {
  return {
    title: "Latency of one run by mode, milliseconds on the GPU's clock",
    provenance: measuredHere,
    columns: ['model', '>weights', '>warm', ...coldStartModes.map((mode) => `>${askedAndInEffect(mode, measured)}`)],
    rows: [...measured].map(([name, { weightBytes, warmMs, coldMs }]) =>
      [name, formatBytes(weightBytes), ms(warmMs)].concat(coldStartModes.map((mode) => ms(coldMs.get(mode)))),
    ),
  };
}

function modeTable(measured: ReadonlyMap<string, Latencies>): BenchmarkResult['tables'][number] {
  return {
    title:
      'Bytes that must cross PCIe, the time that they take at the measured bandwidth, and cold latency over the larger of that and warm',
    provenance: measuredHere,
    columns: ['model', 'mode', '>bytes', '>floor ms', '>cold ms', '>ratio'],
    rows: [...measured].flatMap(([name, latencies]) =>
      coldStartModes.map((mode) => [
        name,
        askedAndInEffect(mode, new Map([[name, latencies]])),
        formatBytes(latencies.plans.get(mode)!.bytesGpu),
        ms(latencies.floorMs.get(mode)),
        ms(latencies.coldMs.get(mode)),
        overFloor(latencies, mode).toFixed(2),
      ]),
    ),
  };
}

const overFloor = ({ coldMs, floorMs, warmMs }: Latencies, mode: ColdStartMode): number =>
  coldMs.get(mode)! / Math.max(floorMs.get(mode)!, warmMs);

function keptTable(measured: ReadonlyMap<string, Latencies>): BenchmarkResult['tables'][number] {
  return {
    title: 'Latency in mode dha by the share of the loaded layers that were kept on the GPU, milliseconds',
    provenance: measuredHere,
    columns: ['model', ...shares.map((share) => `>${share * 100}%`)],
    rows: [...measured].map(([name, { kept }]) => [name].concat(kept.map(ms))),
  };
}

const pair = (found: Timed | undefined): string[] => [ms(found?.wallMs), ms(found?.gpuMs)];

function torchTable(measured: ReadonlyMap<string, Latencies>, torch: Torch): BenchmarkResult['tables'][number] {
  const titles = ['here', 'eager', 'compiled', 'graphs'].flatMap((way) => [`>${way}, wall`, `>${way}, events`]);
  return {
    title:
      'Warm beside PyTorch on the same network, exact FP32, milliseconds from input to outputs on the host: by the clock on the ' +
      'wall and by events. Last: cold in mode dha, and PyTorch loading and then executing, by the clock on the wall',
    provenance: measuredHere,
    columns: ['model', ...titles, '>cold dha', '>load, then execute'],
    rows: [...measured].map(([name, { warmMs, warmWallMs, coldDhaWallMs }]) =>
      [name].concat(
        pair({ wallMs: warmWallMs, gpuMs: warmMs }),
        (['eager', 'compiled', 'graphs'] as const).flatMap((way) => pair(timedBy(torch, name, way))),
        ms(coldDhaWallMs),
        ms(timedBy(torch, name, 'loadThenExecute')?.wallMs),
      ),
    ),
  };
}

function figuresOf(measured: ReadonlyMap<string, Latencies>): Record<string, number> {
  const figures: Record<string, number> = {};
  for (const [name, { warmMs, coldMs }] of measured) {
    figures[`${name} warmMs`] = warmMs;
    for (const [mode, value] of coldMs) figures[`${name} ${mode} coldMs`] = value;
  }
  return figures;
}

function aimsOf(measured: ReadonlyMap<string, Latencies>, torch: Torch): NonNullable<BenchmarkResult['aims']> {
  const aims: { aim: string; met: boolean; reached: string }[] = [];
  for (const [name, latencies] of measured) {
    if (!transformers.has(name)) continue;
    const ratio = overFloor(latencies, 'dha');
    aims.push({ aim: `${name}: cold dha at most 1.15 times its floor`, met: ratio <= 1.15, reached: ratio.toFixed(2) });
    const gain = latencies.coldMs.get('pipeswitch')! / latencies.coldMs.get('dha')!;
    aims.push({ aim: `${name}: cold dha faster than pipeswitch`, met: gain > 1, reached: `${gain.toFixed(2)} times` });
    const graphs = timedBy(torch, name, 'graphs');
    if (graphs === undefined) continue;
    for (const [clock, own, theirs] of [
      ['wall', latencies.warmWallMs, graphs.wallMs],
      ['events', latencies.warmMs, graphs.gpuMs],
    ] as const) {
      const aim = `${name}: warm no worse than PyTorch with CUDA graphs, ${clock} against ${clock}`;
      aims.push({ aim, met: own <= theirs, reached: `${ms(own)} against ${ms(theirs)} ms` });
    }
  }
  const bert = measured.get('bert-base');
  if (bert !== undefined) {
    const theirs = timedBy(torch, 'bert-base', 'loadThenExecute');
    // Without PyTorch the engine's own baseline, both timed by events.
    const gain =
      theirs === undefined
        ? bert.coldMs.get('baseline')! / bert.coldMs.get('dha')!
        : theirs.wallMs / bert.coldDhaWallMs;
    aims.push({
      aim: 'bert-base: cold dha 1.9 times as fast as load-then-execute',
      met: gain >= 1.9,
      reached: gain.toFixed(2),
    });
  }
  return aims;
}
