/** Plans over GPU and CPU in the GPU process, on the emulated driver. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { GpuError } from '../../../src/gpu/index.ts';
import { livingNodes } from '../../../src/gpu/program/prepared.ts';
import type { HybridPlan } from '../../../src/gpu/hybrid/types.ts';
import { ElementType, GraphBuilder } from '../../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { buildEmulatedDriver } from '../../emulated-driver/build.ts';
import { emulatorMissing } from '../../support/emulated-cuda.ts';
import { GpuProcesses } from '../../support/gpu-processes.ts';
import { relativeError, runOnnxRuntime } from '../../support/run-program.ts';
import { exampleOf, loading, noise, type Example } from './examples.ts';
import { shaped } from '../../support/shapes.ts';
import { unrolledNetwork } from '../../support/unrolled-networks.ts';

let folder: string;
let environment: Readonly<Record<string, string>> = {};
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-hybrid-process-'));
  environment = (await buildEmulatedDriver())?.environment ?? {};
});
afterAll(async () => {
  await processes.stop();
  await rm(folder, { recursive: true, force: true });
});

const processes = new GpuProcesses(() => ({
  hostBytes: 2 ** 24,
  slabBytes: 2 ** 20,
  gpuBytes: 2 ** 24,
  cacheFolder: join(folder, 'cache'),
  environment,
  hybridCores: 2,
}));

async function errorOf(attempt: Promise<unknown>): Promise<GpuError> {
  return await attempt.then(
    () => Promise.reject(new Error('it should have failed')),
    (error: unknown) => error as GpuError,
  );
}

function expectAnswer(outputs: readonly Tensor[], expected: readonly Tensor[]): void {
  expect(outputs.map(({ name }) => name)).toEqual(expected.map(({ name }) => name));
  for (const [index, output] of outputs.entries()) expect(relativeError(output, expected[index]!)).toBeLessThan(1e-4);
}

const rowNumber = (value: bigint): Tensor => tensorOf('at', 'INT64', [1], BigInt64Array.of(value));

const lstm = { layers: 3, input: 8, hidden: 16, sequence: 4 };

/** The cells of the last layers on the CPU, each as its own call. */
function lastLayersOnCpu({ prepared }: Example, id: string, firstOnCpu: number): HybridPlan {
  const nodes = livingNodes(prepared);
  const cells = nodes.filter(({ proto }) => ['LSTM', 'GRU'].includes(proto.opType));
  const perLayer = cells.length / lstm.layers;
  const onCpu = cells.slice(firstOnCpu * perLayer);
  return {
    id,
    order: nodes.map(({ name }) => name),
    segments: onCpu.map(({ name }, index) => ({ core: 1 + (index % 2), operators: [name] })),
  };
}

describe.skipIf(emulatorMissing)('the GPU process with plans over GPU and CPU', () => {
  it('the GPU process with plans over GPU and CPU changes a resident function to a smaller plan by freeing layers, without loading anything', async () => {
    const example = await exampleOf(folder, 'lstm', unrolledNetwork('lstm', lstm), [noise('input', [2, 4, 8], 1)]);
    await processes.use(async (client) => {
      const shapes = shaped({ input: [2, 4, 8] });
      const coverage = await client.register({
        key: 'f@1',
        modelPath: example.modelPath,
        shapes,
        hybrid: { cells: 1 },
      });
      if (!coverage.covered) throw new Error('the engine has all of it');
      await client.stage('f@1');
      const variants = await Promise.all(
        [1, 2].map((first) => client.addPlan('f@1', lastLayersOnCpu(example, `gpu-${first}`, first))),
      );
      expect(variants.map(({ layers }) => layers.length)).toEqual([1, 2]);
      expect(variants[0]!.weightBytes).toBeLessThan(variants[1]!.weightBytes);
      expect(variants[1]!.weightBytes).toBeLessThan(coverage.weightBytes);
      const all = coverage.layers.flatMap(({ bytes }, index) => (bytes > 0 ? [index] : []));
      const whole = await client.run('f@1', example.inputs, { gpu: 0, plan: loading(coverage.layers, all) });
      expectAnswer(whole.outputs, example.expected);
      for (const variant of [variants[1]!, variants[0]!]) {
        const before = (await client.state()).memory[0]!.weightBytes;
        expect(await client.keep('f@1', 0, variant.layers)).toBe(before - variant.weightBytes);
        expect((await client.state()).memory[0]!.weightBytes).toBe(variant.weightBytes);
        const plan = loading(coverage.layers, variant.layers);
        const result = await client.run('f@1', example.inputs, { gpu: 0, plan, variant: variant.plan });
        expectAnswer(result.outputs, example.expected);
        expect(result).toMatchObject({ start: 'warm', loadedBytes: 0 });
      }
      // And back to the larger plan: only missing layers are loaded.
      const back = await client.run('f@1', example.inputs, { gpu: 0, plan: loading(coverage.layers, all) });
      expectAnswer(back.outputs, example.expected);
      expect(back).toMatchObject({ start: 'partial', loadedBytes: coverage.weightBytes - variants[0]!.weightBytes });
      expect(
        (
          await errorOf(
            client.run('f@1', example.inputs, { gpu: 0, plan: loading(coverage.layers, all), variant: 'none' }),
          )
        ).message,
      ).toBe("function 'f@1' has no plan 'none'");
      await client.unregister('f@1');
      const after = await client.state();
      expect(after.memory[0]!.freeBytes).toBe(after.memory[0]!.limitBytes);
    });
  });

  it('the GPU process with plans over GPU and CPU runs a model with operators that the engine lacks, by leaving those to the CPU', async () => {
    const graph = new GraphBuilder('odd');
    const x = graph.input('x', ElementType.FLOAT, [2, 4]);
    const weight = (name: string, seed: number) =>
      graph.weight(name, [4, 4], new Float32Array(noise(name, [4, 4], seed).data.buffer));
    const hidden = graph.node('MatMul', [x, weight('a', 1)]);
    const odd = graph.node('Normalizer', [hidden], { norm: 'L2' }, { domain: 'ai.onnx.ml' });
    graph.output(graph.node('MatMul', [odd, weight('b', 2)]), ElementType.FLOAT, [2, 4], 'y');
    graph.output(odd, ElementType.FLOAT, [2, 4], 'z');
    const example = await exampleOf(folder, 'odd', graph.build(), [noise('x', [2, 4], 5)]);
    await processes.use(async (client) => {
      const spec = { key: 'odd@1', modelPath: example.modelPath, shapes: shaped({ x: [2, 4] }) };
      const coverage = await client.register({ ...spec, hybrid: { cells: 1 } });
      if (coverage.covered || coverage.layers === undefined) throw new Error('it is covered in part');
      await client.stage('odd@1');
      expect(coverage.obstacles.map(({ operator }) => operator)).toEqual(['ai.onnx.ml.Normalizer']);
      const nodes = livingNodes(example.prepared);
      const onCpu = nodes.find(({ proto }) => proto.opType === 'Normalizer')!;
      const promise = await client.addPlan('odd@1', {
        id: 'hybrid',
        order: nodes.map(({ name }) => name),
        segments: [{ core: 1, operators: [onCpu.name] }],
      });
      const plan = loading(coverage.layers, promise.layers);
      for (const start of ['cold', 'warm']) {
        const result = await client.run('odd@1', example.inputs, { gpu: 0, plan, variant: 'hybrid' });
        expectAnswer(result.outputs, example.expected);
        expect(result.start).toBe(start);
      }
      const whole = await errorOf(client.run('odd@1', example.inputs, { gpu: 0, plan }));
      expect(whole.message).toContain('it takes a plan over GPU and CPU');
      const refused = await errorOf(
        client.addPlan('odd@1', { id: 'no', order: nodes.map(({ name }) => name), segments: [] }),
      );
      expect(refused.message).toContain('Normalizer');
    });
  });

  it('the GPU process with plans over GPU and CPU reports an error of the CPU share by its cause, and answers the next call normally', async () => {
    const graph = new GraphBuilder('gather');
    const x = graph.input('x', ElementType.FLOAT, [2, 4]);
    const at = graph.input('at', ElementType.INT64, [1]);
    const w = graph.weight('a', [4, 4], new Float32Array(noise('a', [4, 4], 1).data.buffer));
    const hidden = graph.node('MatMul', [x, w]);
    const row = graph.node('Gather', [hidden, at], { axis: 0 });
    graph.output(graph.node('MatMul', [row, w]), ElementType.FLOAT, [1, 4], 'y');
    const inputs = [noise('x', [2, 4], 5), rowNumber(1n)];
    const example = await exampleOf(folder, 'gather', graph.build(), inputs);
    await processes.use(async (client) => {
      const spec = { key: 'g@1', modelPath: example.modelPath, shapes: shaped({ x: [2, 4], at: [1] }) };
      const coverage = await client.register({ ...spec, hybrid: { cells: 1 } });
      if (!coverage.covered) throw new Error('the engine has all of it');
      await client.stage('g@1');
      const nodes = livingNodes(example.prepared);
      const gather = nodes.find(({ proto }) => proto.opType === 'Gather')!;
      const order = nodes.map(({ name }) => name);
      const promise = await client.addPlan('g@1', {
        id: 'h',
        order,
        segments: [{ core: 2, operators: [gather.name] }],
      });
      const options = { gpu: 0, plan: loading(coverage.layers, promise.layers), variant: 'h' };
      for (let round = 0; round < 3; round++) {
        const failed = await errorOf(client.run('g@1', [inputs[0]!, rowNumber(7n)], options));
        expect(failed.message).toMatch(/indices element out of data bounds/);
        expectAnswer((await client.run('g@1', inputs, options)).outputs, example.expected);
      }
    });
  });

  it('the GPU process with plans over GPU and CPU answers many calls at once correctly, over two functions and a restart', async () => {
    const examples = await Promise.all(
      (['lstm', 'gru'] as const).map((name, seed) =>
        exampleOf(folder, name, unrolledNetwork(name, lstm), [noise('input', [2, 4, 8], seed)]),
      ),
    );
    await processes.use(async (client) => {
      const options = await Promise.all(
        examples.map(async (example, number) => {
          const key = `f${number}@1`;
          const shapes = shaped({ input: [2, 4, 8] });
          const coverage = await client.register({ key, modelPath: example.modelPath, shapes, hybrid: { cells: 1 } });
          if (!coverage.covered) throw new Error('the engine has all of it');
          await client.stage(key);
          const promise = await client.addPlan(key, lastLayersOnCpu(example, 'half', 1 + number));
          return { gpu: 0, plan: loading(coverage.layers, promise.layers), variant: 'half' };
        }),
      );
      const all = async (): Promise<void> => {
        await Promise.all(
          Array.from({ length: 24 }, async (_, turn) => {
            const number = turn % 2;
            const result = await client.run(`f${number}@1`, examples[number]!.inputs, options[number]!);
            expectAnswer(result.outputs, examples[number]!.expected);
          }),
        );
      };
      await all();
      await client.reopen();
      for (const number of [0, 1]) {
        await client.registerAgain(`f${number}@1`);
        await client.stage(`f${number}@1`);
      }
      expect(client.status).toBe('up');
      await all();
    });
  });

  it('the GPU process with plans over GPU and CPU closes a plan for some shapes, or a replaced one, only after the runs that use it', async () => {
    const graph = new GraphBuilder('batches');
    let x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    for (const seed of [1, 2, 3]) {
      const w = graph.weight(`w${seed}`, [4, 4], new Float32Array(noise('w', [4, 4], seed).data.buffer));
      x = graph.node('Normalizer', [graph.node('MatMul', [x, w])], { norm: 'L2' }, { domain: 'ai.onnx.ml' });
    }
    graph.output(x, ElementType.FLOAT, ['batch', 4], 'y');
    const batches = Array.from({ length: 4 }, (_, index) => [noise('x', [index + 1, 4], index)]);
    const example = await exampleOf(folder, 'batches', graph.build(), batches[0]!);
    const expected = await Promise.all(batches.map((inputs) => runOnnxRuntime(example.modelPath, inputs)));
    await processes.use(
      async (client) => {
        const spec = { key: 'b@1', modelPath: example.modelPath, shapes: shaped({ x: [1, 4] }), hybrid: { cells: 1 } };
        const { layers } = (await client.register(spec)) as { readonly layers: readonly { readonly name: string }[] };
        await client.stage('b@1');
        const nodes = livingNodes(example.prepared);
        const onCpu = nodes.filter(({ proto }) => proto.opType === 'Normalizer');
        const plan: HybridPlan = {
          id: 'h',
          order: nodes.map(({ name }) => name),
          segments: onCpu.map(({ name }, index) => ({ core: 1 + (index % 2), operators: [name] })),
        };
        const promise = await client.addPlan('b@1', plan);
        const options = { gpu: 0, plan: loading(layers, promise.layers), variant: 'h' };
        const all = async (): Promise<void> => {
          await Promise.all(
            Array.from({ length: 24 }, async (_, turn) => {
              const { outputs } = await client.run('b@1', batches[turn % 4]!, options);
              expectAnswer(outputs, expected[turn % 4]!);
            }),
          );
        };
        await all();
        // Prepared ahead of the call, in place of another: the call finds its kernels and sub-graphs open.
        expect(await client.prepare('b@1', { shapes: shaped({ x: [4, 4] }), instead: shaped({ x: [3, 4] }) })).toEqual({
          covered: true,
        });
        expectAnswer((await client.run('b@1', batches[3]!, options)).outputs, expected[3]!);
        expect(await client.prepare('b@1', { shapes: shaped({ x: [1, 5] }) })).toMatchObject({ covered: false });
        await Promise.all([all(), client.addPlan('b@1', plan), all()]);
        await client.unregister('b@1');
        const [memory] = (await client.state()).memory;
        expect(memory!.freeBytes).toBe(memory!.limitBytes);
      },
      { shapesMax: 2 },
    );
  });

  it('the GPU process with plans over GPU and CPU refuses plans for more cores than there are', async () => {
    const example = await exampleOf(folder, 'lstm', unrolledNetwork('lstm', lstm), [noise('input', [2, 4, 8], 1)]);
    await processes.use(
      async (client) => {
        const shapes = shaped({ input: [2, 4, 8] });
        await client.register({ key: 'f@1', modelPath: example.modelPath, shapes, hybrid: { cells: 1 } });
        const refused = await errorOf(client.addPlan('f@1', lastLayersOnCpu(example, 'half', 1)));
        expect(refused).toMatchObject({ code: 'invalid', message: "plan 'half' uses 2 cores, and there are 1" });
      },
      { hybridCores: 1 },
    );
  });
});
