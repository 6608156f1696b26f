import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { randomModels } from '../../test/support/onnx.ts';
import { buildArchitecture, ElementType, Graph, GraphBuilder } from '../onnx/index.ts';
import { layers, type Layer } from './layers.ts';

function layersOf(fill: (graph: GraphBuilder) => string): Layer[] {
  const graph = new GraphBuilder('g');
  graph.input('x', ElementType.FLOAT, ['batch', 8]);
  graph.input('ids', ElementType.INT64, ['batch', 8]);
  graph.output(fill(graph), ElementType.FLOAT, ['batch', 8], 'y');
  return layers(new Graph(graph.build()));
}

const vector = new Float32Array(8);
const square = new Float32Array(64);

/** What the tests compare: kind, weights, and operators in order. */
const brief = (found: readonly Layer[]) =>
  found.map(({ kind, weights, nodes }) => [
    kind,
    weights.map(({ name }) => name).join(' '),
    nodes.map(({ proto }) => proto.opType).join(' '),
  ]);

describe('a layer', () => {
  test('is a product with its bias and the activation after it', () => {
    const found = layersOf((g) => {
      const first = g.node('MatMul', ['x', g.weight('a.weight', [8, 8], square)]);
      const relu = g.node('Relu', [g.node('Add', [g.weight('a.bias', [8], vector), first])]);
      return g.node('Gemm', [relu, g.weight('b.weight', [8, 8], square), g.weight('b.bias', [8], vector)]);
    });
    expect(brief(found)).toEqual([
      ['linear', 'a.weight a.bias', 'MatMul Add Relu'],
      ['linear', 'b.weight b.bias', 'Gemm'],
    ]);
    expect(found.map(({ name, weightBytes }) => [name, weightBytes])).toEqual([
      ['a', 288],
      ['b', 288],
    ]);
  });

  test('of a product takes its bias even if an export puts three products before their biases', () => {
    const found = layersOf((g) => {
      const products = ['q', 'k', 'v'].map((name) =>
        g.node('MatMul', ['x', g.weight(`${name}.weight`, [8, 8], square)]),
      );
      const sums = products.map((product, index) =>
        g.node('Add', [product, g.weight(`${'qkv'[index]}.bias`, [8], vector)]),
      );
      return g.node('Sum', sums);
    });
    expect(brief(found)).toEqual([
      ['linear', 'q.weight q.bias', 'MatMul Add'],
      ['linear', 'k.weight k.bias', 'MatMul Add'],
      ['linear', 'v.weight v.bias', 'MatMul Add Sum'],
    ]);
  });

  test('is a normalization, as one operator or as the arithmetic of older exports', () => {
    const found = layersOf((g) => {
      const one = g.node('LayerNormalization', [
        'x',
        g.weight('n.weight', [8], vector),
        g.weight('n.bias', [8], vector),
      ]);
      const mean = g.node('ReduceMean', [one], { axes: [-1] });
      const centred = g.node('Sub', [one, mean]);
      const variance = g.node('ReduceMean', [g.node('Pow', [centred, g.constant({ floats: 2 })])], { axes: [-1] });
      const root = g.node('Sqrt', [g.node('Add', [variance, g.constant({ floats: 1e-5 })])]);
      const scaled = g.node('Mul', [g.node('Div', [centred, root]), g.weight('m.weight', [8], vector)]);
      return g.node('Add', [scaled, g.weight('m.bias', [8], vector)]);
    });
    expect(found.map(({ kind, name }) => [kind, name])).toEqual([
      ['norm', 'n'],
      ['norm', 'm'],
    ]);
    expect(found[1]?.weights.map(({ name }) => name)).toEqual(['m.weight', 'm.bias']);
  });

  test('is a convolution, with its BatchNormalization as the next one', () => {
    const found = layersOf((g) => {
      const image = g.node('Reshape', ['x', g.constant({ ints: [-1, 8, 1, 1] })]);
      const conv = g.node('Conv', [image, g.weight('conv.weight', [8, 8, 1, 1], square)]);
      const statistics = ['weight', 'bias', 'running_mean', 'running_var'].map((name) =>
        g.weight(`bn.${name}`, [8], vector),
      );
      return g.node('Flatten', [g.node('Relu', [g.node('BatchNormalization', [conv, ...statistics])])]);
    });
    expect(found.map(({ kind, name, nodes }) => [kind, name, nodes.length])).toEqual([
      ['conv', 'conv', 3],
      ['norm', 'bn', 3],
    ]);
  });

  test('is an embedding; a later user of the same table adds no bytes, but names it', () => {
    const found = layersOf((g) => {
      const table = g.weight('wte.weight', [100, 8], new Float32Array(800));
      const rows = g.node('Gather', [table, 'ids']);
      const product = g.node('MatMul', [rows, g.weight('fc.weight', [8, 8], square)]);
      return g.node(
        'MatMul',
        [product, g.node('Transpose', [table], { perm: [1, 0] })],
        {},
        { name: 'lm_head/MatMul' },
      );
    });
    expect(brief(found)).toEqual([
      ['embedding', 'wte.weight', 'Gather'],
      ['linear', 'fc.weight', 'MatMul'],
      ['linear', '', 'Transpose MatMul'],
    ]);
    expect(found[2]).toMatchObject({ name: 'lm_head', weightBytes: 0, shared: [{ name: 'wte.weight' }] });
  });

  test('has the nodes that only rearrange its weights, wherever they are in the file', () => {
    const found = layersOf((g) => {
      // as PyTorch writes shared parameters: all the Identity and Transpose nodes first
      const a = g.node('Identity', [g.weight('a', [8, 8], square)]);
      const b = g.node('Transpose', [g.node('Identity', [g.weight('b', [8, 8], square)])], { perm: [1, 0] });
      return g.node('MatMul', [g.node('Relu', [g.node('MatMul', ['x', a])]), b]);
    });
    expect(brief(found)).toEqual([
      ['linear', 'a', 'Identity MatMul Relu'],
      ['linear', 'b', 'Identity Transpose MatMul'],
    ]);
  });

  test('of a recurrent operator has all its weights', () => {
    const found = layersOf((g) => {
      const w = g.weight('lstm.W', [1, 16, 8], new Float32Array(128));
      const r = g.weight('lstm.R', [1, 16, 4], new Float32Array(64));
      const b = g.weight('lstm.B', [1, 32], new Float32Array(32));
      const sequence = g.node('Unsqueeze', ['x', g.constant({ ints: [0] })]);
      const [out] = g.node('LSTM', [sequence, w, r, b], { hidden_size: 4 }, { outputs: 3 });
      return g.node('Squeeze', [out]);
    });
    expect(found).toHaveLength(1);
    expect(found[0]).toMatchObject({ kind: 'recurrent', weightBytes: 904 });
  });

  test('does not start at scalars, shapes, limits or scales', () => {
    const found = layersOf((g) => {
      const product = g.node('MatMul', ['x', g.weight('w', [8, 8], square)]);
      const half = g.node('Mul', [product, g.constant({ floats: 0.5 })]);
      const limited = g.node('Clip', [half, g.constant({ floats: 0 }), g.constant({ floats: 6 })]);
      return g.node('Reshape', [limited, g.constant({ ints: [-1, 8] })]);
    });
    expect(brief(found).map(([kind]) => kind)).toEqual(['linear']);
  });

  test('of a quantized weight is the product that uses it', () => {
    const found = layersOf((g) => {
      const table = g.initializer({ name: 'w', datatype: 'INT8', shape: [8, 8], data: new Uint8Array(64) });
      const scale = g.initializer({ name: 'scale', datatype: 'FP32', shape: [], data: new Uint8Array(4) });
      return g.node('MatMul', ['x', g.node('DequantizeLinear', [table, scale])]);
    });
    expect(brief(found)).toEqual([['linear', 'w scale', 'DequantizeLinear MatMul']]);
  });
});

describe('layers', () => {
  test('hold every node and every used weight of any model exactly once, in an order that runs', () => {
    fc.assert(
      fc.property(randomModels, (model) => {
        const graph = new Graph(model);
        const found = layers(graph);
        const nodes = found.flatMap((layer) => layer.nodes);
        expect(new Set(nodes)).toEqual(new Set(graph.nodes));
        expect(nodes).toHaveLength(graph.nodes.length);
        const weights = found.flatMap((layer) => layer.weights);
        expect(new Set(weights).size).toBe(weights.length);
        expect(new Set(weights)).toEqual(new Set(graph.nodes.flatMap((node) => graph.weightsOf(node))));
        expect(new Set(found.map(({ name }) => name)).size).toBe(found.length);
        const known = new Set([...graph.inputs, ...model.graph.initializer.map(({ name }) => name)]);
        const brought = new Set<unknown>();
        for (const layer of found) {
          for (const shared of layer.shared) expect(brought).toContain(shared);
          for (const weight of layer.weights) brought.add(weight);
          for (const node of layer.nodes) {
            for (const value of node.uses) expect(known).toContain(value);
            for (const value of node.outputs) known.add(value);
          }
        }
      }),
      { numRuns: 60 },
    );
  });

  // The counts are those of the leaf modules with parameters in DeepPlan's published plans.
  test.each([
    ['bert-base', { embedding: 3, linear: 73, norm: 25 }],
    ['roberta-base', { embedding: 3, linear: 73, norm: 25 }],
    // one more: the plan has no language head, which uses the embedding's table
    ['gpt2', { embedding: 2, linear: 49, norm: 25 }],
    ['resnet50', { conv: 53, norm: 53, linear: 1 }],
    ['resnet101', { conv: 104, norm: 104, linear: 1 }],
  ])('of %s are its modules', (name, expected) => {
    const { model, weightBytes } = buildArchitecture(name);
    const found = layers(new Graph(model));
    const counts: Record<string, number> = {};
    for (const { kind } of found) counts[kind] = (counts[kind] ?? 0) + 1;
    expect(counts).toEqual(expected);
    const initializers = found.flatMap(({ weights }) => weights).filter(({ origin }) => origin === 'initializer');
    expect(initializers.reduce((sum, { byteLength }) => sum + byteLength, 0)).toBe(weightBytes);
  });

  test('of a chain of 50,000 nodes are one', () => {
    const found = layersOf((g) => {
      let value = g.weight('w', [8], vector);
      for (let index = 0; index < 50_000; index++) value = g.node('Identity', [value]);
      return g.node('Add', ['x', value]);
    });
    expect(found).toHaveLength(1);
  });

  test('of recurrent cells with the same weights are one, and none is empty', () => {
    const found = layersOf((g) => {
      let x = g.node('Unsqueeze', ['x', g.constant({ ints: [0] })]);
      for (const layer of [0, 1]) {
        const w = g.weight(`l${layer}.w`, [1, 24, 8], new Float32Array(192));
        const r = g.weight(`l${layer}.r`, [1, 24, 8], new Float32Array(192));
        let state = '';
        for (let step = 0; step < 3; step++) {
          const cell = g.node(
            'GRU',
            [x, w, r, '', '', state],
            { hidden_size: 8 },
            { outputs: ['', `h${layer}${step}`] },
          );
          state = cell[1];
        }
        x = state;
      }
      return g.node('Squeeze', [x, g.constant({ ints: [0] })]);
    });
    expect(brief(found)).toEqual([
      ['recurrent', '/Constant_output_0 l0.w l0.r', 'Constant Unsqueeze GRU GRU GRU'],
      ['recurrent', 'l1.w l1.r', 'GRU GRU GRU Squeeze'],
    ]);
  });

  test('of a graph without weights are one', () => {
    expect(layersOf((g) => g.node('Relu', ['x']))).toMatchObject([{ kind: 'other', weightBytes: 0 }]);
  });
});

// The layers with weights in DeepPlan's profiles. GPT-2's output layer shares a weight, and is one more here.
test.each([
  ['resnet50', 107],
  ['resnet101', 209],
  ['bert-base', 101],
  ['bert-large', 197],
  ['roberta-base', 101],
  ['roberta-large', 197],
  ['gpt2', 75 + 1],
  ['gpt2-medium', 147 + 1],
])('%s has %i layers with weights', (name, count) => {
  const { model } = buildArchitecture(name);
  expect(layers(new Graph(model))).toHaveLength(count);
});
