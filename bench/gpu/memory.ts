/** The cost of pinned memory: how often it is pinned, and how long the GPU process stops for that. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { compileModel, Engine, loadAllPlan, openCuda, operators, type ProgramPrecision } from '../../src/gpu/index.ts';
import { ElementType, GraphBuilder, writeModel } from '../../src/onnx/index.ts';
import { tensorOf } from '../../src/tensor/index.ts';
import { formatBytes } from '../../src/tools/index.ts';
import type { EmulatedDriver } from '../../test/emulated-driver/build.ts';
import type { Emulator } from '../../test/support/emulator.ts';
import { stopsWhileFilling, type Stops } from '../../test/support/large-function.ts';
import type { BenchmarkResult } from '../benchmark.ts';

/** More than a slab of inputs and outputs has. */
const inputElements = 2 ** 21;

interface Filled extends Stops {
  readonly precision: ProgramPrecision;
  readonly bytes: number;
}

interface Pins {
  readonly runs: number;
  readonly bytes: number;
  readonly allocations: number;
  readonly frees: number;
  /** Allocations before the measured runs, for weights and a first run. */
  readonly allocationsBefore: number;
}

async function inFolder<Result>(work: (folder: string) => Promise<Result>): Promise<Result> {
  const folder = await mkdtemp(join(tmpdir(), 'turntable-gpu-memory-'));
  try {
    return await work(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

export function stopsOf({ environment }: EmulatedDriver, bytes: number): Promise<readonly Filled[]> {
  return inFolder(async (folder) => {
    const filled: Filled[] = [];
    for (const precision of ['exact', 'fp16'] as const) {
      const stops = await stopsWhileFilling({ folder: join(folder, precision), bytes, precision, environment });
      filled.push({ precision, bytes, ...stops });
    }
    return filled;
  });
}

/** Runs of a function with 8 MiB of inputs and as much of outputs. */
export function countPins(libraries: EmulatedDriver, emulator: Emulator, runs: number): Promise<Pins> {
  return inFolder(async (folder) => {
    const graph = new GraphBuilder('wide');
    const shape = [1, inputElements];
    graph.output(graph.node('Relu', [graph.input('x', ElementType.FLOAT, shape)]), ElementType.FLOAT, shape, 'y');
    const path = join(folder, 'wide.onnx');
    await writeModel(graph.build(), path);
    const program = await compileModel(path, [], operators, { cacheFolder: folder });
    const cuda = openCuda({ environment: libraries.environment, cacheFolder: folder });
    try {
      const engine = new Engine(cuda, { hostBytes: 2 ** 26, gpuBytes: 2 ** 27 });
      engine.addFunction('wide', program.layout);
      await engine.stage('wide');
      const inputs = [tensorOf('x', 'FP32', shape, new Float32Array(inputElements))];
      const run = (): Promise<unknown> =>
        engine.run('wide', program, inputs, { gpu: 0, plan: loadAllPlan(program, 0) });
      const made = (...names: readonly string[]): number => {
        const { calls } = emulator.report();
        return names.reduce((sum, name) => sum + (calls[name] ?? 0), 0);
      };
      const pinned = (): number => made('cuMemHostAlloc', 'cuMemHostRegister_v2');
      const unpinned = (): number => made('cuMemFreeHost', 'cuMemHostUnregister');
      emulator.forget();
      await run();
      const allocationsBefore = pinned();
      for (let index = 1; index < runs; index++) await run();
      const pins = { allocations: pinned(), frees: unpinned(), allocationsBefore };
      await engine.close();
      return { runs, bytes: 2 * 4 * inputElements, ...pins };
    } finally {
      cuda.release();
      emulator.resetDevice(0);
    }
  });
}

const ms = (value: number): string => value.toFixed(1);

export function withMemory(result: BenchmarkResult, filled: readonly Filled[], pins: Pins): BenchmarkResult {
  const provenance = { kind: 'measured' } as const;
  return {
    ...result,
    tables: [
      ...result.tables,
      {
        title:
          'A function comes from disk into pinned memory while another one is called: milliseconds for which the event ' +
          'loop of the GPU process stood still at most, of its own work and with waiting for the driver',
        provenance,
        columns: ['>precision', '>bytes', '>fill', '>own work', '>with waiting', '>calls answered'],
        rows: filled.map(({ precision, bytes, fillMs, longestWorkMs, longestMs, answered }) =>
          [precision, formatBytes(bytes)].concat([fillMs, longestWorkMs, longestMs].map(ms), String(answered)),
        ),
      },
      {
        title: 'Pinned memory in runs one after the other',
        provenance,
        columns: ['>runs', '>inputs and outputs', '>pinned by the first run', '>pinned', '>freed'],
        rows: [
          [String(pins.runs), formatBytes(pins.bytes)].concat(
            [pins.allocationsBefore, pins.allocations, pins.frees].map(String),
          ),
        ],
      },
    ],
    figures: {
      ...result.figures,
      ...Object.fromEntries(
        filled.flatMap(({ precision, longestWorkMs, longestMs }) => [
          [`fill ${precision} own work ms`, longestWorkMs],
          [`fill ${precision} longest stop ms`, longestMs],
        ]),
      ),
      'pinned allocations': pins.allocations,
      'pinned frees': pins.frees,
    },
    aims: [
      ...(result.aims ?? []),
      ...filled.flatMap(({ precision, longestWorkMs, longestMs }) =>
        [
          { what: 'of its own work', stopMs: longestWorkMs },
          { what: 'with waiting for the driver', stopMs: longestMs },
        ].map(({ what, stopMs }) => ({
          aim: `${precision}: the event loop stands still for less than 50 ms, ${what}`,
          met: stopMs < 50,
          reached: `${ms(stopMs)} ms`,
        })),
      ),
      {
        aim: `${pins.runs} runs with large inputs pin no more than the first, and free nothing`,
        met: pins.allocations === pins.allocationsBefore && pins.frees === 0,
        reached: `${pins.allocations} pinned, ${pins.frees} freed`,
      },
    ],
    limits: [...result.limits, 'how long a real driver keeps its locks while it pins'],
  };
}
