/**
 * Models with one graph and other constants: programs are kept by their graph, and none answers with another's numbers.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ElementType, GraphBuilder, tensorProto, writeModel } from '../../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../../src/tensor/index.ts';
import { emulatorMissing, sharedEmulatedCuda } from '../../support/emulated-cuda.ts';
import { relativeError, runModel, runOnnxRuntime } from '../../support/run-program.ts';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'turntable-constants-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const x = tensorOf(
  'x',
  'FP32',
  [2, 4, 8],
  Float32Array.from({ length: 64 }, (_, index) => Math.sin(index * 1.7) * 3),
);

/** How constants get into the graph. */
const makes: Readonly<Record<string, (graph: GraphBuilder, tensor: Tensor) => string>> = {
  initializers: (graph, tensor) => graph.initializer(tensor),
  'constant nodes': (graph, tensor) =>
    graph.node('Constant', [], { value: { tensor: tensorProto('', tensor) } }, { outputs: [tensor.name] })[0],
};

const constantOf = (name: string, value: readonly number[], isWhole: boolean): Tensor =>
  isWhole
    ? tensorOf(name, 'INT64', [value.length], BigInt64Array.from(value, BigInt))
    : tensorOf(name, 'FP32', [], Float32Array.from(value));

interface Case {
  /** Of each model, its constants. */
  readonly models: readonly (readonly (readonly number[])[])[];
  /** Whether its constants are lists of whole numbers; else each is one number. */
  readonly isWhole?: true;
  /** Of the output; default: 3. */
  readonly rank?: number;
  readonly build: (graph: GraphBuilder, input: string, constants: readonly string[]) => string;
}

const cases: Readonly<Record<string, Case>> = {
  'an exponent': {
    models: [[[2]], [[3]], [[0.5]]],
    build: (graph, input, [exponent]) => graph.node('Pow', [graph.node('Abs', [input]), exponent!]),
  },
  bounds: {
    models: [
      [[-1], [1]],
      [[-2], [0.5]],
    ],
    build: (graph, input, bounds) => graph.node('Clip', [input, ...bounds]),
  },
  'what makes GELU of Erf': {
    models: [
      [[Math.SQRT2], [1], [0.5]],
      [[1.5], [1], [0.5]],
      [[Math.SQRT2], [2], [0.25]],
    ],
    build: (graph, input, [root, one, half]) => {
      const factor = graph.node('Add', [graph.node('Erf', [graph.node('Div', [input, root!])]), one!]);
      return graph.node('Mul', [graph.node('Mul', [input, factor]), half!]);
    },
  },
  'a factor': {
    models: [[[0.125]], [[8]], [[1]], [[0]]],
    build: (graph, input, [factor]) => graph.node('Mul', [input, factor!]),
  },
  'a factor of a product': {
    models: [[[0.125]], [[2]]],
    build: (graph, input, [factor]) =>
      graph.node('MatMul', [
        graph.node('Mul', [input, factor!]),
        graph.node('Transpose', [input], { perm: [0, 2, 1] }),
      ]),
  },
  'a mask and its value': {
    models: [
      [[0], [-1e9]],
      [[1], [-3]],
    ],
    build: (graph, input, [least, masked]) => {
      const isShown = graph.node('Greater', [input, least!]);
      return graph.node('Softmax', [graph.node('Where', [isShown, input, masked!])], { axis: -1 });
    },
  },
  'what a variance gets added': {
    models: [[[1e-5]], [[2]]],
    build: (graph, input, [epsilon]) => {
      const centred = graph.node('Sub', [input, graph.node('ReduceMean', [input], { axes: [-1] })]);
      const variance = graph.node('ReduceMean', [graph.node('Mul', [centred, centred])], { axes: [-1] });
      return graph.node('Div', [centred, graph.node('Sqrt', [graph.node('Add', [variance, epsilon!])])]);
    },
  },
  padding: {
    models: [[[0, 0, 1, 0, 0, 1]], [[0, 0, 2, 0, 0, 0]], [[0, 1, 0, 0, 0, 0]]],
    isWhole: true,
    build: (graph, input, [pads]) => graph.node('Pad', [input, pads!]),
  },
  'a shape': {
    models: [[[2, 32]], [[8, 8]], [[4, 16]]],
    isWhole: true,
    rank: 2,
    build: (graph, input, [shape]) => graph.node('Reshape', [input, shape!]),
  },
  'where a slice begins and ends': {
    models: [
      [[0], [3], [2]],
      [[2], [5], [2]],
      [[1], [3], [1]],
    ],
    isWhole: true,
    build: (graph, input, slice) => graph.node('Slice', [input, ...slice]),
  },
  'rows that are taken': {
    models: [[[0, 1]], [[1, 1]], [[1, 0]]],
    isWhole: true,
    build: (graph, input, [rows]) => graph.node('Gather', [input, rows!], { axis: 0 }),
  },
  'how often something is repeated': {
    models: [[[1, 2, 1]], [[2, 1, 1]]],
    isWhole: true,
    build: (graph, input, [repeats]) => graph.node('Tile', [input, repeats!]),
  },
  'how many of the largest are taken': {
    models: [[[2]], [[3]]],
    isWhole: true,
    build: (graph, input, [count]) => graph.node('TopK', [input, count!], {}, { outputs: 2 })[0],
  },
  'an axis that is summed': {
    models: [[[1]], [[2]], [[0]]],
    isWhole: true,
    build: (graph, input, [axes]) => graph.node('ReduceSum', [input, axes!], { keepdims: 1 }),
  },
  'a step of quantization': {
    models: [[[0.1]], [[0.02]]],
    build: (graph, input, [scale]) => {
      const zero = graph.initializer(tensorOf('zero', 'UINT8', [], Uint8Array.of(128)));
      const quantized = graph.node('QuantizeLinear', [input, scale!, zero]);
      return graph.node('DequantizeLinear', [quantized, scale!, zero]);
    },
  },
  'a part that is folded': {
    models: [
      [[2], [3]],
      [[5], [7]],
    ],
    build: (graph, input, factors) => graph.node('Add', [input, graph.node('Mul', factors)]),
  },
};

describe.skipIf(emulatorMissing)('models that differ in constants alone', () => {
  const use = sharedEmulatedCuda({});
  const all = Object.entries(cases).flatMap(([title, each]) =>
    Object.entries(makes).map(([kind, make]) => ({ title, kind, make, each })),
  );
  test.each(all)('are each answered with their own: $title, in $kind', async ({ title, kind, make, each }) => {
    const { models, isWhole = false, rank = 3, build } = each;
    const name = `${title}-${kind}`.replaceAll(' ', '-');
    for (const [index, values] of models.entries()) {
      const graph = new GraphBuilder('one-graph', { opset: 13 });
      const input = graph.input('x', ElementType.FLOAT, x.shape);
      const constants = values.map((value, at) => make(graph, constantOf(`constant${at}`, value, isWhole)));
      const shape = Array.from({ length: rank }, (_, at) => `d${at}`);
      graph.output(build(graph, input, constants), ElementType.FLOAT, shape, 'y');
      const path = join(folder, `${name}-${index}.onnx`);
      await writeModel(graph.build(), path);
      const [wanted] = await runOnnxRuntime(path, [x]);
      const [found] = await use((cuda) => runModel(cuda, path, [x], { cacheFolder: join(folder, name) }));
      expect(relativeError(found!, wanted!)).toBeLessThan(1e-5);
    }
  });
});
