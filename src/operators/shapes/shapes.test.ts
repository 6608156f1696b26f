import { InferenceSession, Tensor } from 'onnxruntime-node';
import { describe, expect, it } from 'vitest';
import {
  buildArchitecture,
  ElementType,
  Graph,
  GraphBuilder,
  serializeModel,
  type ModelProto,
  type SettingValue,
} from '../../onnx/index.ts';
import { typedGraph } from '../typed-graph.ts';
import { inferShapes } from './infer.ts';

const transformer = { layers: 1, hidden: 16, heads: 2, vocabulary: 50, positions: 12 };
const image = { image: 32, width: 4, classes: 10 };

/** Small enough to run, and together they have every operator that the architectures use. */
const small: readonly (readonly [name: string, settings: Readonly<Record<string, SettingValue>>])[] = [
  ['bert-base', transformer],
  ['roberta-base', transformer],
  ['gpt2', transformer],
  ['resnet50', image],
  ['vgg16', { ...image, hidden: 16 }],
  ['inception-v3', { image: 75, width: 0.1, classes: 10 }],
  ['mobilenet-v2', { image: 32, width: 0.2, classes: 10 }],
  ['lstm', { layers: 2, hidden: 8, input: 6, sequence: 5 }],
  ['gru', { layers: 2, hidden: 8, input: 6, sequence: 5 }],
  ['mlp', { layers: 3, input: 6, hidden: 8, output: 4 }],
];
const dimensions = { batch: 2, sequence: 7 };

const size = (shape: readonly (number | string | undefined)[]): number[] =>
  shape.map((each) => (typeof each === 'number' ? each : dimensions[each as keyof typeof dimensions]));

/** Runs a model with every value as an output, and returns the dimensions of each. */
async function runShapes(model: ModelProto): Promise<Map<string, readonly number[]>> {
  const graph = typedGraph(model);
  const values = graph.nodes.flatMap(({ outputs }) => outputs);
  const output = values.map((name) => ({
    name,
    type: { tensorType: { elemType: graph.type(name)?.elementType ?? ElementType.FLOAT } },
  }));
  const bytes = serializeModel({ ...model, graph: { ...model.graph, output } });
  const session = await InferenceSession.create(bytes, { graphOptimizationLevel: 'disabled', logSeverityLevel: 4 });
  const feeds = Object.fromEntries(
    graph.inputs.map((name) => {
      const dims = size(graph.shape(name) ?? []);
      const count = dims.reduce((product, each) => product * each, 1);
      return [
        name,
        graph.type(name)?.elementType === ElementType.FLOAT
          ? new Tensor('float32', new Float32Array(count).fill(0.5), dims)
          : new Tensor('int64', new BigInt64Array(count).fill(1n), dims),
      ];
    }),
  );
  const results = await session.run(feeds);
  await session.release();
  return new Map(Object.entries(results).map(([name, tensor]) => [name, tensor.dims]));
}

describe('inferred shapes', () => {
  it.each(small)('of every value of %s are those of a run', async (name, settings) => {
    const { model } = buildArchitecture(name, settings, 1);
    const inferred = inferShapes(new Graph(model), { dimensions });
    expect(inferred.unknown).toEqual([]);
    const found = await runShapes(model);
    expect(found.size).toBeGreaterThan(4);
    for (const [value, dims] of found) expect([value, inferred.values.get(value)?.dims]).toEqual([value, dims]);
  });

  it('of the rarer operators are those of a run', async () => {
    const graph = new GraphBuilder('rare');
    const x = graph.input('x', ElementType.FLOAT, ['batch', 6, 8, 8]);
    const ints = (...values: number[]) => graph.constant({ ints: values });
    const out = (value: string) => graph.output(value, ElementType.FLOAT, []);
    out(graph.node('Slice', [x, ints(1, -7), ints(5, 100), ints(1, 2), ints(2, 3)]));
    out(graph.node('Slice', [x, ints(-1), ints(-9), ints(2), ints(-2)]));
    out(graph.node('Pad', [x, ints(0, 0, 1, 2, 0, 0, 3, 4)]));
    out(graph.node('Tile', [x, ints(1, 2, 1, 3)]));
    out(graph.node('ReduceMean', [x], { axes: [-1, 2], keepdims: 0 }));
    out(graph.node('ReduceSum', [x, ints(1)], { keepdims: 1 }));
    out(graph.node('TopK', [x, ints(3)], { axis: 2 }, { outputs: 2 })[0]);
    out(graph.node('Flatten', [x], { axis: 2 }));
    out(graph.node('AveragePool', [x], { kernel_shape: [3, 3], strides: [2, 2], ceil_mode: 1 }));
    out(graph.node('MaxPool', [x], { kernel_shape: [3, 3], strides: [2, 2], auto_pad: 'SAME_UPPER' }));
    const kernel = graph.weight('kernel', [6, 2, 3, 3], new Float32Array(108));
    out(
      graph.node('ConvTranspose', [x, kernel], {
        strides: [2, 2],
        pads: [1, 1, 1, 1],
        output_padding: [1, 1],
        group: 2,
      }),
    );
    const dilated = graph.weight('dilated', [4, 3, 3, 3], new Float32Array(108));
    out(graph.node('Conv', [x, dilated], { dilations: [2, 2], group: 2, pads: [1, 0, 2, 1] }));
    // A shape computed from another, as exports of views do.
    const shape = graph.node('Shape', [x]);
    const batch = graph.node('Gather', [shape, ints(0)], { axis: 0 });
    const rest = graph.node('Mul', [graph.node('Slice', [shape, ints(1), ints(2)]), ints(2)]);
    out(graph.node('Reshape', [x, graph.node('Concat', [batch, rest, ints(-1)], { axis: 0 })]));
    const parts = graph.node('Split', [x], { axis: 1 }, { outputs: 3 });
    out(parts[2]);
    out(graph.node('Expand', [graph.node('ReduceMax', [x], { axes: [0, 1] }), ints(5, 1, 8, 1)]));
    const model = graph.build();
    const inferred = inferShapes(new Graph(model), { dimensions });
    for (const [value, dims] of await runShapes(model)) {
      expect([value, inferred.values.get(value)?.dims]).toEqual([value, dims]);
    }
  });

  it('stay open if they depend on the values of an input', () => {
    const graph = new GraphBuilder('open');
    const x = graph.input('x', ElementType.FLOAT, [1, 4, 1]);
    const given = graph.input('given', ElementType.INT64, [1]);
    const ints = (...values: number[]) => graph.constant({ ints: values });
    const taking: readonly (readonly [string, readonly string[]])[] = [
      ['Squeeze', [x, given]],
      ['Unsqueeze', [x, given]],
      ['ReduceSum', [x, given]],
      ['Split', [x, given]],
      ['Slice', [x, ints(0), ints(1), given]],
      ['Slice', [x, ints(0), ints(4), ints(1), given]],
      ['Pad', [x, ints(1, 1), '', given]],
      ['Tile', [x, given]],
      ['TopK', [x, given]],
    ];
    const made = taking.map(([type, inputs]) => graph.node(type, inputs, {}, { outputs: 1 })[0]);
    for (const value of made) graph.output(value, ElementType.FLOAT, ['some', 'of', 'them']);
    const { unknown, values } = inferShapes(new Graph(graph.build()), { openSize: () => undefined });
    expect(made.filter((value) => values.has(value))).toEqual([]);
    expect(unknown).toHaveLength(taking.length);
  });

  it('come from the file for an unknown operator, which is named if the file has none', () => {
    const graph = new GraphBuilder('custom');
    const x = graph.input('x', ElementType.FLOAT, ['batch', 4]);
    const made = graph.node('Mystery', [x], {}, { name: 'riddle', domain: 'com.example' });
    graph.output(graph.node('Relu', [made], {}, { name: 'after' }), ElementType.FLOAT, ['batch', 9], 'y');
    const model = graph.build();
    const { unknown, values } = inferShapes(new Graph(model), { dimensions });
    expect(unknown).toEqual(['/riddle']);
    expect(values.get('y')?.dims).toEqual([2, 9]);
    model.graph.valueInfo.push({
      name: made,
      type: { tensorType: { elemType: 1, shape: { dim: [{ dimParam: 'batch' }, { dimValue: 9n }] } } },
    });
    const informed = inferShapes(new Graph(model), { dimensions });
    expect(informed.unknown).toEqual([]);
    expect(informed.values.get(made)?.dims).toEqual([2, 9]);
  });
});
