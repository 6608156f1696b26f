/** The engine without single capabilities, each on an emulated machine with that defect. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Engine } from '../../../src/gpu/engine/engine.ts';
import { operators } from '../../../src/gpu/operators/index.ts';
import { compileModel, type Program } from '../../../src/gpu/program/index.ts';
import type { Capability, RunResult } from '../../../src/gpu/types.ts';
import { buildArchitecture, writeModel } from '../../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, withEmulatedCuda } from '../../support/emulated-cuda.ts';
import type { Emulator } from '../../support/emulator.ts';
import { relativeError, runOnnxRuntime } from '../../support/run-program.ts';
import { planFor, type PlanShape } from './chains.ts';
import { shapesOf } from '../../../src/gpu/program/input-shapes.ts';

const tokens = 6;
let folder: string;
let program: Program;
let inputs: readonly Tensor[];
let expected: readonly Tensor[];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-without-'));
  const { model } = buildArchitecture('bert-base', { layers: 2, hidden: 32, heads: 4, vocabulary: 50, positions: 40 });
  const path = join(folder, 'bert.onnx');
  await writeModel(model, path);
  inputs = model.graph.input.map(({ name }) => {
    const values = BigInt64Array.from({ length: tokens }, (_, index) =>
      BigInt(/ids/.test(name) ? (index * 7) % 50 : 1),
    );
    return tensorOf(name, 'INT64', [1, tokens], /type/.test(name) ? values.map(() => 0n) : values);
  });
  const shapes = shapesOf(inputs);
  program = await compileModel(path, shapes, operators, { cacheFolder: join(folder, 'cache') });
  expected = await runOnnxRuntime(path, inputs);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

interface Bench {
  readonly engine: Engine;
  readonly emulator: Emulator;
  /** Runs and compares with ONNX Runtime. */
  readonly run: (shape?: PlanShape) => Promise<RunResult>;
}

async function onMachine(
  defects: readonly string[],
  without: readonly Capability[],
  test: (bench: Bench) => Promise<void>,
): Promise<void> {
  await withEmulatedCuda({ devices: 2, defects }, async (cuda, emulator) => {
    const settings = { hostBytes: 2 ** 25, slabBytes: 2 ** 20, gpuBytes: 2 ** 26, without: new Set(without) };
    const engine = new Engine(cuda, settings);
    engine.addFunction('bert', program.layout);
    await engine.stage('bert');
    const run = async (shape: PlanShape = { mode: 'pipeswitch' }): Promise<RunResult> => {
      const plan = planFor({ program }, shape);
      const result = await engine.run('bert', program, inputs, { gpu: plan.primary, plan });
      for (const output of expected) {
        const actual = result.outputs.find(({ name }) => name === output.name)!;
        expect(relativeError(actual, output)).toBeLessThan(1e-4);
      }
      return result;
    };
    await test({ engine, emulator, run });
    await engine.close();
  });
}

/** Products by the library, and kernels, of one run. Each input comes by a kernel. */
async function launchesOf({ emulator, run }: Bench, shape?: PlanShape): Promise<{ products: number; kernels: number }> {
  emulator.forget();
  await run(shape);
  const { calls } = emulator.report();
  return { products: calls['cublasLtMatmul'] ?? 0, kernels: (calls['cuLaunchKernelEx'] ?? 0) - inputs.length };
}

const everyLayerFromHost = { mode: 'dha', fromHost: () => true } as const;
const products = (): number => program.launches.filter(({ kind }) => kind === 'matmul').length;
const kernels = (): number => program.launches.filter(({ kind }) => kind === 'kernel').length;

describe.skipIf(emulatorMissing)('on the emulated driver', () => {
  it('a product that the library has no algorithm for becomes a kernel, and all others use the library', async () => {
    const wide = `product ${tokens}x128x32`;
    const count = program.launches.filter(
      (launch) => launch.kind === 'matmul' && launch.description.n === 128 && launch.description.k === 32,
    ).length;
    expect(count).toBeGreaterThan(0);
    await onMachine([wide], [], async (bench) => {
      expect(await launchesOf(bench)).toEqual({ products: products() - count, kernels: kernels() + count });
    });
    await onMachine(['products'], [], async (bench) => {
      expect(await launchesOf(bench)).toEqual({ products: 0, kernels: kernels() + products() });
    });
  });

  it('without registered memory the driver allocates pinned memory', async () => {
    await onMachine(['registered-memory'], ['registered-memory'], async ({ emulator, run }) => {
      await run();
      const { calls } = emulator.report();
      expect(calls['cuMemHostRegister_v2'] ?? 0).toBe(0);
      expect(calls['cuMemHostAlloc']).toBeGreaterThan(0);
    });
  });

  it('a batch that the library refuses, with a bias for each item, is computed item by item by the library', async () => {
    const batches = program.launches.filter((each) => each.kind === 'matmul' && each.description.strideBias);
    expect(batches).toHaveLength(2);
    await onMachine(['bias-by-item'], [], async (bench) => {
      expect(await launchesOf(bench)).toEqual({ products: products() + 2 * batches.length, kernels: kernels() });
    });
  });

  it.each([13, 14, 15])(
    'a product that failed in the library with status %i is a kernel from then on',
    async (status) => {
      await onMachine([], [], async (bench) => {
        await bench.run();
        bench.emulator.failNext('cublasLtMatmul', status, 3);
        await bench.run();
        expect(bench.engine.broken).toBeNull();
        const { products: left } = await launchesOf(bench);
        expect(left).toBeGreaterThan(0);
        expect(left).toBeLessThan(products());
        expect((await bench.run()).graph).toBe(true);
      });
    },
  );

  it('the engine is poisoned if the library fails because of a poisoned context', async () => {
    await withEmulatedCuda(
      { defects: ['host-reads-by-kernels'], allow: ['leaks', 'faults', 'freesInUse'] },
      async (cuda) => {
        const engine = new Engine(cuda, { hostBytes: 2 ** 25, slabBytes: 2 ** 20, gpuBytes: 2 ** 26 });
        engine.addFunction('bert', program.layout);
        await engine.stage('bert');
        const plan = planFor({ program }, everyLayerFromHost);
        await expect(engine.run('bert', program, inputs, { gpu: 0, plan })).rejects.toMatchObject({ code: 'poisoned' });
        expect(engine.broken?.code).toBe('poisoned');
        await engine.close();
      },
    );
  });

  it('from host memory every layer crosses the link once by a kernel, and only kernels of tables read in place', async () => {
    await onMachine(['host-reads-by-library'], [], async (bench) => {
      const { layers, weights } = program.layout;
      const others = layers.filter(({ bytes, kind }) => bytes > 0 && kind !== 'embedding');
      const gathers = program.launches.filter(({ reads }) =>
        reads.some((layer) => layers[layer]!.kind === 'embedding'),
      );
      expect(weights.length).toBeGreaterThan(20);
      await bench.engine.bind('bert', program, 0);
      const before = bench.engine.links()[0]!.fromHost;
      await bench.run(everyLayerFromHost);
      const copiedBytes = [...others, ...inputs.map(({ data }) => ({ bytes: data.byteLength }))];
      expect(bench.engine.links()[0]!.fromHost - before).toBe(copiedBytes.reduce((sum, { bytes }) => sum + bytes, 0));
      // The run that is captured, and a run of the graph.
      for (let times = 0; times < 2; times++) {
        bench.emulator.forget();
        expect((await bench.run(everyLayerFromHost)).graph).toBe(true);
        const { copied, kernelsReadingHost, productsReadingHost } = bench.emulator.report();
        // Copies by the driver would queue behind the weights of other functions.
        expect(copied.toDevice).toBe(0);
        expect({ kernelsReadingHost, productsReadingHost }).toEqual({
          kernelsReadingHost: gathers.length + others.length + inputs.length,
          productsReadingHost: 0,
        });
      }
    });
  });

  it('if kernels cannot read host memory, every layer is loaded', async () => {
    await onMachine(['host-reads-by-kernels'], ['host-reads-by-kernels'], async ({ engine, run }) => {
      expect((await run(everyLayerFromHost)).loadedBytes).toBe(program.layout.bytes);
      expect(engine.residency('bert', 0).bytes).toBe(program.layout.bytes);
    });
  });

  it('without the library, kernels compute every product', async () => {
    await onMachine([], ['products'], async (bench) => {
      expect(await launchesOf(bench)).toEqual({ products: 0, kernels: kernels() + products() });
    });
  });

  it('without graphs, warm runs are submitted launch by launch, and nothing is captured', async () => {
    await onMachine(['graphs'], ['graphs'], async ({ emulator, run }) => {
      for (let index = 0; index < 4; index++) expect((await run()).graph).toBe(false);
      expect(emulator.report().calls['cuStreamBeginCapture_v2']).toBeUndefined();
    });
  });

  it.each(['peer-copies', 'events-across-devices'])(
    'with the defect %s no other GPU helps with a load',
    async (defect) => {
      await onMachine([defect], ['helping-gpus'], async ({ emulator, run }) => {
        await run({ mode: 'pt', primary: 0, secondaries: [1] });
        expect(emulator.report().calls['cuMemcpyPeerAsync']).toBeUndefined();
      });
    },
  );
});
