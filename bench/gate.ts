/**
 * The cost of checks of a publication: of the rows of a function that is to join calls, and of the gate before the GPUs: the time of a publication, from its first byte to its first answer, on a host
 * without GPUs and on one with emulated GPUs; and the runs, launches and bytes of the gate.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compileModel, operators, type InputShapes } from '../src/gpu/index.ts';
import { loadMachine } from '../src/hardware/index.ts';
import { loadConfig, startHost, type RunningHost } from '../src/host/index.ts';
import { createLogger } from '../src/host/records/logger.ts';
import { buildArchitecture, writeModel, type SettingValue } from '../src/onnx/index.ts';
import type { EmulatedDriver } from '../test/emulated-driver/build.ts';
import { emulatedEnvironment } from '../test/support/emulator.ts';
import { tableOf, mustBuildDriver, type Benchmark, type BenchmarkOptions, type BenchmarkResult } from './benchmark.ts';
import { median } from './shared/statistics.ts';

export const benchmark: Benchmark = {
  name: 'gate',
  description: 'what checking a function against ONNX Runtime before a GPU serves it costs its publication',
  run,
};

interface Subject {
  readonly name: string;
  readonly settings: Readonly<Record<string, SettingValue>>;
  readonly shapes: InputShapes;
}

const tiny = { layers: 1, hidden: 16, heads: 2, vocabulary: 50, positions: 12 };
const slowdownMax = 1.2;
const checkMsMax = 1000;
/** Time of one launch in the driver, an estimate. */
const launchUs = 6;

async function run({ small, seed, progress }: BenchmarkOptions): Promise<BenchmarkResult> {
  const driver = await mustBuildDriver();
  const folder = await mkdtemp(join(tmpdir(), 'turntable-gate-'));
  // Smaller images than usual: the weights are the same, and an emulated run takes seconds instead of minutes.
  const cnn: Subject = {
    name: 'resnet50',
    settings: small ? { image: 32, width: 4, classes: 10 } : { image: 64 },
    shapes: [{ name: 'input', shape: [1, 3, small ? 32 : 64, small ? 32 : 64] }],
  };
  const bert: Subject = {
    name: 'bert-base',
    settings: small ? tiny : {},
    shapes: ['input_ids', 'attention_mask', 'token_type_ids'].map((name) => ({ name, shape: [1, small ? 8 : 128] })),
  };
  const rounds = small ? 1 : 5;
  const times: Times = { without: [], joining: [], with: [] };
  try {
    const path = join(folder, 'published.onnx');
    await writeModel(buildArchitecture(cnn.name, cnn.settings, seed).model, path);
    const body = await readFile(path);
    for (let round = 0; round < rounds; round++) {
      for (const [kind, use, batchMax] of [
        ['without', 'off', 1],
        ['joining', 'off', 8],
        ['with', 'auto', 1],
      ] as const) {
        progress(`publication ${round + 1} of ${rounds}: ${rowNames[kind]}`);
        const dataDir = join(folder, `${kind}${round}`);
        times[kind].push(await publish({ dataDir, use, batchMax }, driver, body, cnn));
      }
    }
    progress('the check of BERT-Base');
    const costs = await Promise.all([cnn, bert].map((subject) => costOf(subject, seed, folder)));
    return resultOf(times, costs, { small, rounds, seed });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

type Times = Record<'without' | 'joining' | 'with', number[]>;

const rowNames: Record<keyof Times, string> = {
  without: 'without GPUs',
  joining: 'without GPUs, whose rows are checked first (batching.max 8)',
  with: 'with a GPU, whose gate begins meanwhile',
};

/** Milliseconds from the first byte of a model to the first answer of its function; then waits for the gate. */
async function publish(
  { dataDir, use, batchMax }: { readonly dataDir: string; readonly use: 'off' | 'auto'; readonly batchMax: number },
  driver: EmulatedDriver,
  body: Buffer,
  { shapes }: Subject,
): Promise<number> {
  Object.assign(process.env, emulatedEnvironment(driver, [{ memoryBytes: 512 * 2 ** 20 }]));
  const { config } = loadConfig({
    flags: {
      'listen.port': '0',
      dataDir,
      functionsDir: join(dataDir, 'functions'),
      'cpu.profiling': 'off',
      'gpu.use': use,
      'gpu.memory': '384MiB',
      'gpu.hostMemory': '256MiB',
      'gpu.profileIterations': '1',
      'gpu.hybrid': 'off',
    },
  });
  const host: RunningHost = await startHost(config, { logger: createLogger({ level: 'silent', format: 'json' }) });
  try {
    await host.gpus?.settled();
    const inputs = shapes.map(({ name, shape }) => {
      const count = shape.reduce((product, size) => product * size, 1);
      return { name, datatype: 'FP32', shape, data: Array<number>(count).fill(0.5) };
    });
    const startMs = performance.now();
    const settings = `slo=60s&batching.max=${batchMax}`;
    const published = await fetch(`${host.url}/functions/cnn?${settings}`, {
      method: 'PUT',
      body: new Uint8Array(body),
    });
    if (!published.ok) throw new Error(`the publication failed: ${await published.text()}`);
    const reply = await fetch(`${host.url}/v2/models/cnn/infer`, { method: 'POST', body: JSON.stringify({ inputs }) });
    const tookMs = performance.now() - startMs;
    if (!reply.ok) throw new Error(`the first call failed: ${await reply.text()}`);
    await reply.arrayBuffer();
    await host.gpus?.settled();
    return tookMs;
  } finally {
    await host.stop();
  }
}

interface Cost {
  readonly name: string;
  readonly launches: number;
  readonly weightBytes: number;
  readonly comparedBytes: number;
  readonly estimatedMs: number;
}

/** One check: loads the weights, runs the program once, and compares its outputs. */
async function costOf({ name, settings, shapes }: Subject, seed: number, folder: string): Promise<Cost> {
  const path = join(folder, `${name}.onnx`);
  await writeModel(buildArchitecture(name, settings, seed).model, path);
  const { launches, layout, inputs, outputs } = await compileModel(path, shapes, operators, { cacheFolder: folder });
  const { linkGBps } = loadMachine('h200').gpus[0]!;
  const comparedBytes = [...inputs, ...outputs].reduce((sum, { bytes }) => sum + bytes, 0);
  const estimatedMs = layout.bytes / linkGBps / 1e6 + (launches.length * launchUs) / 1000;
  return { name, launches: launches.length, weightBytes: layout.bytes, comparedBytes, estimatedMs };
}

function resultOf(
  times: Times,
  costs: readonly Cost[],
  settings: { readonly small: boolean; readonly rounds: number; readonly seed: number },
): BenchmarkResult {
  const [without, checked, gated] = [median(times.without), median(times.joining), median(times.with)];
  const ratio = gated / without;
  const bertMs = costs.at(-1)!.estimatedMs;
  return {
    settings,
    tables: [
      {
        title: 'from the first byte of ResNet-50 to its first answer, median',
        provenance: { kind: 'measured' },
        columns: ['HOST', '>MS', '>TIMES'],
        rows: [
          [rowNames.without, without.toFixed(0), '1.00'],
          [rowNames.joining, checked.toFixed(0), (checked / without).toFixed(2)],
          [rowNames.with, gated.toFixed(0), ratio.toFixed(2)],
        ],
      },
      tableOf(
        'one check on a GPU',
        costs,
        [
          ['MODEL', ({ name }) => name],
          ['>RUNS', () => '1'],
          ['>LAUNCHES', ({ launches }) => String(launches)],
          ['>MB BROUGHT', ({ weightBytes }) => (weightBytes / 1e6).toFixed(1)],
          ['>KB COMPARED', ({ comparedBytes }) => (comparedBytes / 1e3).toFixed(1)],
          ['>MS', ({ estimatedMs }) => estimatedMs.toFixed(1)],
        ],
        { kind: 'estimated', from: `${launchUs} us a launch, and the link of an H200` },
      ),
    ],
    figures: { 'publication, times': ratio, 'check of rows, ms': checked - without, 'check of bert-base, ms': bertMs },
    aims: settings.small
      ? []
      : [
          {
            aim: `publication at most ${slowdownMax} times as long`,
            met: ratio <= slowdownMax,
            reached: ratio.toFixed(2),
          },
          {
            aim: `a check of BERT-Base within ${checkMsMax} ms`,
            met: bertMs <= checkMsMax,
            reached: `${bertMs.toFixed(0)} ms`,
          },
        ],
    limits: [
      'the emulated GPU runs on the processor that the first call needs: a real one leaves it to the call',
      'kernels are compiled once and kept: later functions of the same structure compile none',
    ],
  };
}
