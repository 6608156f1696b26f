/** Compares the engine with ONNX Runtime on one small model for each group of operators. */
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { ElementType, GraphBuilder, writeModel } from '../../onnx/index.ts';
import { tensorOf } from '../../tensor/index.ts';
import type { Cuda } from '../driver/types.ts';
import { Engine } from '../engine/engine.ts';
import { disagreementOf } from '../gate/compare.ts';
import { referenceOutputs } from '../gate/reference.ts';
import { loadAllPlan } from '../measure/layer-profile.ts';
import { operators, type OperatorGroup } from '../operators/index.ts';
import { compileModel } from '../program/index.ts';
import type { Capability } from '../types.ts';

const rows = 6;
const columns = 40;

/** Adds nodes that read `x`, FP32 [rows, columns], and outputs of their results. */
type Model = (graph: GraphBuilder, x: string) => void;

const { FLOAT, INT64 } = ElementType;
const whole = (graph: GraphBuilder, ...values: number[]): string => graph.constant({ ints: values });
const weight = (graph: GraphBuilder, name: string, shape: readonly number[]): string =>
  graph.weight(name, shape, () =>
    Float32Array.from({ length: shape.reduce((x, y) => x * y) }, (_, index) => Math.sin(index * 1.3)),
  );

const models: Readonly<Record<OperatorGroup, Model | null>> = {
  elementwise: (graph, x) => {
    const sum = graph.node('Add', [x, weight(graph, 'bias', [columns])]);
    const curved = graph.node('Mul', [graph.node('Erf', [sum]), graph.node('Exp', [sum])]);
    graph.output(graph.node('Sqrt', [graph.node('Abs', [curved])]), FLOAT, [rows, columns], 'curved');
  },
  dense: (graph, x) => {
    graph.output(graph.node('MatMul', [x, weight(graph, 'w', [columns, 24])]), FLOAT, [rows, 24], 'product');
    const image = graph.node('Reshape', [x, whole(graph, 1, 3, 8, 10)]);
    const folded = graph.node('Conv', [image, weight(graph, 'filter', [4, 3, 3, 3])], { pads: [1, 1, 1, 1] });
    graph.output(folded, FLOAT, [1, 4, 8, 10], 'convolution');
  },
  movement: (graph, x) => {
    const turned = graph.node('Transpose', [x], { perm: [1, 0] });
    const joined = graph.node('Concat', [turned, turned], { axis: 1 });
    const part = graph.node('Slice', [joined, whole(graph, 3), whole(graph, 37), whole(graph, 0), whole(graph, 2)]);
    const picked = graph.node('Gather', [part, whole(graph, 5, 0, 16)], { axis: 0 });
    graph.output(picked, FLOAT, [3, 2 * rows], 'picked');
  },
  reduction: (graph, x) => {
    graph.output(graph.node('ReduceMean', [x], { axes: [1], keepdims: 0 }), FLOAT, [rows], 'mean');
    graph.output(graph.node('ArgMax', [x], { axis: 1, keepdims: 0 }), INT64, [rows], 'largest');
    graph.output(graph.node('CumSum', [x, whole(graph, 1)]), FLOAT, [rows, columns], 'sums');
    const [values] = graph.node('TopK', [x, whole(graph, 3)], { axis: 1 }, { outputs: 2 });
    graph.output(values, FLOAT, [rows, 3], 'top');
  },
  normalization: (graph, x) => {
    const scale = weight(graph, 'scale', [columns]);
    const even = graph.node('LayerNormalization', [x, scale, weight(graph, 'shift', [columns])], { axis: -1 });
    graph.output(graph.node('Softmax', [even], { axis: -1 }), FLOAT, [rows, columns], 'shares');
  },
  pooling: (graph, x) => {
    const image = graph.node('Reshape', [x, whole(graph, 1, 3, 8, 10)]);
    const window = { kernel_shape: [2, 2], strides: [2, 2] };
    graph.output(graph.node('MaxPool', [image], window), FLOAT, [1, 3, 4, 5], 'maxima');
    graph.output(graph.node('AveragePool', [image], window), FLOAT, [1, 3, 4, 5], 'means');
  },
  quantized: (graph, x) => {
    const [values, scale, zero] = graph.node('DynamicQuantizeLinear', [x], {}, { outputs: 3 });
    graph.output(graph.node('DequantizeLinear', [values, scale, zero]), FLOAT, [rows, columns], 'rounded');
  },
  attention: (graph, x) => {
    const byHeads = (perm: readonly number[], from: number): string => {
      const part = graph.node('Slice', [x, whole(graph, from), whole(graph, from + 24), whole(graph, 1)]);
      return graph.node('Transpose', [graph.node('Reshape', [part, whole(graph, 1, rows, 2, 12)])], { perm });
    };
    const scores = graph.node('MatMul', [byHeads([0, 2, 1, 3], 0), byHeads([0, 2, 3, 1], 8)]);
    const shares = graph.node('Softmax', [graph.node('Add', [scores, weight(graph, 'mask', [rows, rows])])], {
      axis: -1,
    });
    const context = graph.node('MatMul', [shares, byHeads([0, 2, 1, 3], 16)]);
    graph.output(graph.node('Transpose', [context], { perm: [0, 2, 1, 3] }), FLOAT, [1, rows, 2, 12], 'context');
  },
  // They have few kernels of their own, and each function is checked before it serves.
  vision: null,
  signal: null,
};

/** @throws Error with the difference */
export async function checkOperators(
  cuda: Cuda,
  group: OperatorGroup,
  cacheFolder: string,
  without: ReadonlySet<Capability>,
): Promise<string> {
  const model = models[group];
  if (model === null) return 'checked with each function that has one';
  const graph = new GraphBuilder(group);
  model(graph, graph.input('x', FLOAT, [rows, columns]));
  await mkdir(cacheFolder, { recursive: true });
  const path = join(cacheFolder, `${group}.onnx`);
  await writeModel(graph.build(), path);
  const values = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index * 1.7));
  const inputs = [tensorOf('x', 'FP32', [rows, columns], values)];
  const program = await compileModel(path, [{ name: 'x', shape: [rows, columns] }], operators, { cacheFolder });
  const expected = await referenceOutputs(path, inputs);
  const engine = new Engine(cuda, { hostBytes: 2 ** 22, slabBytes: 2 ** 20, gpuBytes: 2 ** 26, without });
  try {
    engine.addFunction(group, program.layout);
    for (const { index } of cuda.devices) {
      const options = { gpu: index, plan: loadAllPlan(program, index) };
      const { outputs } = await engine.run(group, program, inputs, options);
      const found = disagreementOf(outputs, expected, 'fp32');
      if (found !== undefined) throw new Error(`on GPU ${index}, output '${found.output}': ${found.why}`);
    }
  } finally {
    await engine.close();
  }
  return '';
}
