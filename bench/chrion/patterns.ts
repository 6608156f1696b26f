/**
 * Measures one network under every pattern: on the GPU alone, on CPU cores alone, under both patterns of the Chrion
 * paper, and under each plan variant. The patterns run in turns.
 */
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { mkdir } from 'node:fs/promises';
import { poolSockets } from '../../src/cpu/index.ts';
import { GpuError, startGpuProcess, type GpuClient, type HybridPromise } from '../../src/gpu/index.ts';
import { buildArchitecture, writeModel } from '../../src/onnx/index.ts';
import { type ChrionPlan, type ColdStartPlan } from '../../src/plan/index.ts';
import {
  hybridPlanOf,
  planCpuOnly,
  planGpuOnly,
  planVariants,
  planChrion,
  planMemoryOptimal,
} from '../../src/plan/chrion/index.ts';
import type { GraphProfile } from '../../src/profile/index.ts';
import { elements, loadOnnxRuntime, tensorOf, type Tensor } from '../../src/tensor/index.ts';
import { BenchmarkNotPossible } from '../benchmark.ts';
import { inTime, NotInTime } from '../budget.ts';
import { median } from '../shared/statistics.ts';

const ort = loadOnnxRuntime();
const key = 'network';
/** How many cells the longest LSTM is unrolled into, as on a host. */
const cells = 12;
const variantsMax = 5;

export interface PatternSizes {
  readonly layers: number;
  readonly batch: number;
  readonly hidden: number;
  readonly sequence: number;
  /** CPU cores of the plans over GPU and CPU. */
  readonly hybridCores: number;
  /** CPU cores of the pattern that uses the CPU alone. */
  readonly cpuCores: number;
  readonly rounds: number;
  readonly profileIterations: number;
  readonly hostBytes: number;
  readonly gpuBytes?: number;
  readonly slabBytes?: number;
}

export interface MeasuredPattern {
  readonly name: string;
  /** CPU cores that it uses. */
  readonly cores: number;
  readonly predictedMs: number;
  readonly predictedBytes: number;
  /** Milliseconds of each run, from the call to the outputs. */
  readonly runsMs: readonly number[];
  /** GPU memory that a run allocated: for weights, and for intermediate tensors. */
  readonly weightBytes: number;
  readonly sharedBytes: number;
  /** Largest difference from ONNX Runtime's answer, relative to the largest value of that answer. */
  readonly difference: number;
}

/** A prepared pattern, ready to run. */
interface Runner {
  readonly name: string;
  readonly plan: ChrionPlan;
  readonly run: () => Promise<{ readonly totalMs: number; readonly outputs: readonly Tensor[] }>;
  readonly isOnGpu: boolean;
}

export const medianMsOf = ({ runsMs }: MeasuredPattern): number => median(runsMs);

/**
 * @param profileOf makes the profile to plan with from the measured one
 * @param untilMs by `performance.now()`: no round begins that would probably end later
 * @throws BenchmarkNotPossible without a GPU; NotInTime if not even one round ends by then
 */
export async function measurePatterns(
  folder: string,
  sizes: PatternSizes,
  environment: Readonly<Record<string, string>>,
  profileOf: (measured: GraphProfile) => GraphProfile,
  say: (text: string) => void,
  untilMs = Infinity,
): Promise<MeasuredPattern[]> {
  const { layers, batch, hidden, sequence, hybridCores, gpuBytes, slabBytes } = sizes;
  const modelPath = join(folder, 'network.onnx');
  await writeModel(buildArchitecture('lstm', { layers, batch, hidden, sequence }).model, modelPath);
  const cacheFolder = join(tmpdir(), 'turntable-bench-gpu', 'chrion-patterns');
  await mkdir(cacheFolder, { recursive: true });
  const client = startGpuProcess({
    hostBytes: sizes.hostBytes,
    cacheFolder,
    hybridCores,
    hybridCoreNumbers: poolSockets(sizes.cpuCores).flat().slice(0, hybridCores),
    environment,
    ...(gpuBytes === undefined ? {} : { gpuBytes }),
    ...(slabBytes === undefined ? {} : { slabBytes }),
  });
  try {
    return await inTime(measureWith(client, modelPath, sizes, profileOf, say, untilMs), untilMs);
  } catch (error) {
    if (error instanceof NotInTime) client.kill(error.message);
    if (error instanceof GpuError && error.code === 'unavailable') {
      throw new BenchmarkNotPossible(`there is no GPU to measure on: ${error.message}`);
    }
    throw error;
  } finally {
    await client.stop();
  }
}

async function measureWith(
  client: GpuClient,
  modelPath: string,
  sizes: PatternSizes,
  profileOf: (measured: GraphProfile) => GraphProfile,
  say: (text: string) => void,
  untilMs: number,
): Promise<MeasuredPattern[]> {
  const { batch, hidden, sequence, hybridCores } = sizes;
  await client.ready;
  const shape = [batch, sequence, hidden];
  const shapes = [{ name: 'input', shape }];
  say('the network is compiled');
  const coverage = await client.register({ key, modelPath, shapes, hybrid: { cells } });
  if (!coverage.covered) throw new Error(`the engine lacks ${coverage.obstacles[0]?.operator}`);
  await client.stage(key);
  say('its operators are timed');
  const { profileIterations: iterations } = sizes;
  const profile = profileOf(await client.measureOperators(key, { gpu: 0, cores: hybridCores, iterations }));
  const input = inputOf(shape);
  const loadAll = planToLoad(coverage.layers, new Set(coverage.layers.keys()));
  const cpu = await cpuAlone(modelPath, input, sizes.cpuCores);
  const runners: Runner[] = [
    {
      name: 'GPU alone',
      plan: requireWhole(planGpuOnly(profile)),
      run: () => runOn(client, input, loadAll),
      isOnGpu: true,
    },
    {
      name: 'CPU alone',
      plan: { ...planCpuOnly(profile, { cores: hybridCores }), cores: sizes.cpuCores },
      run: cpu.run,
      isOnGpu: false,
    },
    ...(await hybrids(client, profile, hybridCores, coverage.layers, input)),
  ];
  return await inTurns(client, runners, sizes.rounds, say, untilMs);
}

/** The plans over GPU and CPU. One that uses a single device is left out: GPU alone and CPU alone have a row each. */
async function hybrids(
  client: GpuClient,
  profile: GraphProfile,
  cores: number,
  layers: readonly { readonly name: string }[],
  input: Tensor,
): Promise<Runner[]> {
  const memory = planMemoryOptimal(profile, { cores });
  const variants = planVariants(profile, { cores, variantsMax });
  const plans: [string, ChrionPlan][] = [
    ['Latency-Optimal', planChrion(profile, { alpha: 0, cores })],
    ...(memory === undefined ? [] : [['Memory-Optimal', memory] as [string, ChrionPlan]]),
    ...variants.map((plan, index): [string, ChrionPlan] => [`variant ${index + 1}`, plan]),
  ];
  const runners: Runner[] = [];
  for (const [name, plan] of plans) {
    const isMixed = new Set(plan.operators.map(({ device }) => device)).size > 1;
    if (!isMixed) continue;
    const hybrid = hybridPlanOf(plan, `pattern-${runners.length + 1}`);
    const promise: HybridPromise = await client.addPlan(key, hybrid);
    const start = planToLoad(layers, new Set(promise.layers));
    runners.push({ name, plan, run: () => runOn(client, input, start, hybrid.id), isOnGpu: true });
  }
  return runners;
}

async function inTurns(
  client: GpuClient,
  runners: readonly Runner[],
  rounds: number,
  say: (text: string) => void,
  untilMs: number,
): Promise<MeasuredPattern[]> {
  const expected = requireWhole(await runners.find(({ isOnGpu }) => !isOnGpu)?.run()).outputs;
  const measured: (MeasuredPattern & { readonly runsMs: number[] })[] = [];
  for (const { name, plan, run, isOnGpu } of runners) {
    // Start from a GPU that holds nothing of the network, so its memory afterwards is what this pattern needs.
    if (isOnGpu) await client.evict(key, 0);
    const { outputs } = await run();
    const memory = isOnGpu ? (await client.state()).memory[0] : undefined;
    measured.push({
      name,
      cores: plan.cores,
      predictedMs: plan.latencyMs,
      predictedBytes: plan.gpuBytes,
      runsMs: [],
      weightBytes: memory?.weightBytes ?? 0,
      sharedBytes: memory?.scratchBytes ?? 0,
      difference: Math.max(...outputs.map((output, index) => differenceOf(output, expected[index]))),
    });
  }
  for (let [round, roundMs] = [0, 0]; round < rounds; round++) {
    const startMs = performance.now();
    if (startMs + 2 * roundMs > untilMs) break;
    say(`round ${round + 1} of ${rounds}`);
    for (let turn = 0; turn < runners.length; turn++) {
      // Each round begins with another pattern, so that changes over time affect all of them.
      const position = (turn + round) % runners.length;
      const { run } = runners[position]!;
      // The caches hold another pattern's data before the first run of a turn, so that run is not counted.
      await run();
      measured[position]!.runsMs.push((await run()).totalMs);
    }
    roundMs = performance.now() - startMs;
  }
  return measured;
}

async function runOn(
  client: GpuClient,
  input: Tensor,
  plan: ColdStartPlan,
  variant?: string,
): Promise<{ totalMs: number; outputs: readonly Tensor[] }> {
  const options = { gpu: 0, plan, ...(variant === undefined ? {} : { variant }) };
  const { timings, outputs } = await client.run(key, [input], options);
  return { totalMs: timings.totalMs, outputs: outputs.toSorted(byName) };
}

const byName = (one: Tensor, other: Tensor): number => (one.name < other.name ? -1 : 1);

/** ONNX Runtime with a thread for each core, like a pool with one instance on all cores. */
async function cpuAlone(modelPath: string, input: Tensor, cores: number): Promise<Pick<Runner, 'run'>> {
  const session = await ort.InferenceSession.create(modelPath, {
    executionProviders: ['cpu'],
    intraOpNumThreads: cores,
    logSeverityLevel: 3,
  });
  const feeds = { [input.name]: new ort.Tensor('float32', floatsOf(input), input.shape) };
  return {
    run: async () => {
      const startMs = performance.now();
      const results = await session.run(feeds);
      const totalMs = performance.now() - startMs;
      const outputs = Object.entries(results).map(([name, { data, dims }]) =>
        tensorOf(name, 'FP32', dims, data as Float32Array),
      );
      return { totalMs, outputs: outputs.toSorted(byName) };
    },
  };
}

function inputOf(shape: readonly number[]): Tensor {
  const count = shape.reduce((product, size) => product * size, 1);
  return tensorOf(
    'input',
    'FP32',
    shape,
    Float32Array.from({ length: count }, (_, index) => Math.sin(index * 0.7) * 0.8),
  );
}

function floatsOf(tensor: Tensor): Float32Array {
  const values = elements(tensor);
  if (!(values instanceof Float32Array))
    throw new Error(`'${tensor.name}' is ${tensor.datatype}, and FP32 was expected`);
  return values;
}

function differenceOf(output: Tensor, expected: Tensor | undefined): number {
  if (expected === undefined || expected.name !== output.name) return Infinity;
  const [values, expectedValues] = [floatsOf(output), floatsOf(expected)];
  if (values.length !== expectedValues.length) return Infinity;
  let largestDifference = 0;
  let largest = 0;
  for (const [index, value] of expectedValues.entries()) {
    largest = Math.max(largest, Math.abs(value));
    largestDifference = Math.max(largestDifference, Math.abs(value - values[index]!));
  }
  return largest === 0 ? largestDifference : largestDifference / largest;
}

/** Loads the layers of these indices to GPU 0; the GPU reads no other layer. */
function planToLoad(layers: readonly { readonly name: string }[], loaded: ReadonlySet<number>): ColdStartPlan {
  return {
    mode: 'pipeswitch',
    primary: 0,
    secondaries: [],
    bytesGpu: 0,
    layers: layers.map(({ name }, index) =>
      loaded.has(index) ? { name, method: 'load', link: 0 } : { name, method: 'dha', link: null },
    ),
  };
}

function requireWhole<Value>(value: Value | undefined): Value {
  if (value === undefined) throw new Error('the GPU cannot run the whole network');
  return value;
}
