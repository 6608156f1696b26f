import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ElementType, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { tensorOf, type Tensor } from '../../tensor/index.ts';
import { measureOperatorsOnCpu, type OperatorProgress } from './cpu-operators.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-cpu-operators-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

/** Three products in a chain, the last with 64 times the operations of the first, and an Identity. */
async function writeProducts(): Promise<{ modelPath: string; inputs: readonly Tensor[] }> {
  const [rows, narrow, wide] = [32, 32, 256];
  const graph = new GraphBuilder('products');
  const x = graph.input('x', ElementType.FLOAT, [rows, narrow]);
  const weight = (name: string, from: number, to: number): string =>
    graph.weight(name, [from, to], () => new Float32Array(from * to).fill(0.01));
  const small = graph.node('MatMul', [x, weight('small', narrow, narrow)], {}, { name: 'small' });
  const up = graph.node('MatMul', [small, weight('up', narrow, wide)], {}, { name: 'up' });
  const large = graph.node('MatMul', [up, weight('large', wide, wide)], {}, { name: 'large' });
  const shape = graph.node('Identity', [large], {}, { name: 'same' });
  graph.output(shape, ElementType.FLOAT, [rows, wide], 'y');
  const modelPath = join(folder, 'products.onnx');
  await writeModel(graph.build(), modelPath);
  const values = Float32Array.from({ length: rows * narrow }, (_, index) => Math.sin(index));
  return { modelPath, inputs: [tensorOf('x', 'FP32', [rows, narrow], values)] };
}

const nodes = ['/small', '/up', '/large', '/same'];

test('each operator has a time for every number of busy cores, and a larger product has larger times', async () => {
  const { modelPath, inputs } = await writeProducts();
  const progress: OperatorProgress[] = [];
  const onProgress = (each: OperatorProgress): void => void progress.push(each);
  const times = await measureOperatorsOnCpu({ modelPath, inputs, nodes }, { cores: 3, iterations: 12, onProgress });
  expect([...times.keys()]).toEqual(nodes);
  for (const list of times.values()) {
    expect(list).toHaveLength(3);
    for (const ms of list) expect(ms).toBeGreaterThanOrEqual(0);
  }
  const [small = [], , large = []] = [...times.values()];
  for (const [index, ms] of large.entries()) expect(ms).toBeGreaterThan(2 * small[index]!);
  expect(progress).toEqual([
    { done: 0, total: 3, label: 'on the CPU, 1 core busy' },
    { done: 1, total: 3, label: 'on the CPU, 2 cores busy' },
    { done: 2, total: 3, label: 'on the CPU, 3 cores busy' },
    { done: 3, total: 3, label: 'on the CPU, 3 cores busy' },
  ]);
});

test('times for a number of busy cores that is not measured are interpolated', async () => {
  const { modelPath, inputs } = await writeProducts();
  const times = await measureOperatorsOnCpu({ modelPath, inputs, nodes }, { cores: 4, iterations: 3 });
  for (const [, two, three, four] of times.values()) expect(three!).toBeCloseTo((two! + four!) / 2, 12);
});

test('the error for a model that ONNX Runtime refuses names the model', async () => {
  const { modelPath } = await writeProducts();
  const inputs = [tensorOf('x', 'FP32', [1, 3], Float32Array.of(1, 2, 3))];
  const measuring = measureOperatorsOnCpu({ modelPath, inputs, nodes }, { cores: 2 });
  await expect(measuring).rejects.toMatchObject({
    code: 'invalid',
    message: expect.stringMatching(/^its operators cannot be timed on the CPU: .*dimension/),
  });
});

test('aborting the signal ends the measurement', async () => {
  const { modelPath, inputs } = await writeProducts();
  const abort = new AbortController();
  const measuring = measureOperatorsOnCpu(
    { modelPath, inputs, nodes },
    {
      cores: 2,
      iterations: 1_000_000,
      onProgress: ({ done }) => {
        // By then the threads are starting or running.
        if (done === 0) setImmediate(() => abort.abort());
      },
      signal: abort.signal,
    },
  );
  await expect(measuring).rejects.toMatchObject({ code: 'cancelled' });
});
