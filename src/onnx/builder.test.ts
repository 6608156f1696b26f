import fc from 'fast-check';
import { InferenceSession, Tensor } from 'onnxruntime-node';
import { describe, expect, test } from 'vitest';
import { GraphBuilder } from './builder.ts';
import { GraphBuilderError } from './protos.ts';
import { AttributeType, ElementType, type GraphProto } from './types.ts';
import { serializeModel } from './write.ts';

function chain(): GraphBuilder {
  const graph = new GraphBuilder('chain');
  graph.input('x', ElementType.FLOAT, ['batch', 2]);
  return graph;
}

describe('names', () => {
  test('nodes, values and weights carry the scopes that they are in', () => {
    const graph = chain();
    const made = graph.scope('encoder', () =>
      graph.scope('layer.0', () => {
        const weight = graph.weight('dense.weight', [2, 2], new Float32Array(4));
        return [weight, graph.node('MatMul', ['x', weight]), graph.node('MatMul', ['x', weight])];
      }),
    );
    expect(made).toEqual([
      'encoder.layer.0.dense.weight',
      '/encoder/layer.0/MatMul_output_0',
      '/encoder/layer.0/MatMul_1_output_0',
    ]);
  });

  test('a scope ends when its body throws', () => {
    const graph = chain();
    expect(() => graph.scope('broken', () => graph.node('Relu', ['missing']))).toThrow(GraphBuilderError);
    expect(graph.node('Relu', ['x'])).toBe('/Relu_output_0');
  });

  test('node names are unique, whatever names are requested', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom('Relu', 'Relu_1', 'Relu_2', 'Relu_1_1')), (names) => {
        const graph = chain();
        for (const name of names) graph.node('Relu', ['x'], {}, { name });
        graph.output('x', ElementType.FLOAT, ['batch', 2], 'y');
        const found = graph.buildGraph().node.map((node) => node.name);
        expect(new Set(found).size).toBe(found.length);
      }),
    );
  });

  test('an output name renames the value wherever it is used', () => {
    const graph = chain();
    const relu = graph.node('Relu', ['x']);
    const twice = graph.node('Add', [relu, relu]);
    graph.output(relu, ElementType.FLOAT, ['batch', 2], 'activated');
    graph.output(twice, ElementType.FLOAT, ['batch', 2], 'doubled');
    const { node, output } = graph.build().graph;
    expect(output.map(({ name }) => name)).toEqual(['activated', 'doubled']);
    expect(node.map((each) => [each.input, each.output])).toEqual([
      [['x'], ['activated']],
      [['activated', 'activated'], ['doubled']],
    ]);
  });

  test('an input, and a value that is already an output, get another name through an Identity', () => {
    const graph = chain();
    const relu = graph.node('Relu', ['x']);
    graph.output('x', ElementType.FLOAT, ['batch', 2], 'same');
    graph.output(relu, ElementType.FLOAT, ['batch', 2]);
    graph.output(relu, ElementType.FLOAT, ['batch', 2], 'again');
    const { node } = graph.build().graph;
    expect(node.map((each) => [each.opType, each.input[0], each.output[0]])).toEqual([
      ['Relu', 'x', relu],
      ['Identity', 'x', 'same'],
      ['Identity', relu, 'again'],
    ]);
  });
});

describe('values', () => {
  test('a node with several outputs returns a name for each', () => {
    const graph = chain();
    const [left, right] = graph.node('Split', ['x'], { axis: 1 }, { outputs: 2 });
    const [named, none] = graph.node('Dropout', [left], {}, { outputs: ['kept', ''] });
    expect([left, right, named, none]).toEqual(['/Split_output_0', '/Split_output_1', 'kept', '']);
  });

  test('equal constants become one node, differently typed ones do not', () => {
    const graph = chain();
    const first = graph.constant({ ints: [1, 2] });
    expect(graph.constant({ ints: [1, 2] })).toBe(first);
    expect(graph.constant({ ints: 1 })).not.toBe(graph.constant({ ints: [1] }));
    expect(graph.constant({ floats: 0 })).not.toBe(graph.constant({ ints: 0 }));
  });

  test('the elements of a lazy weight are made only when they are written', () => {
    const graph = chain();
    let calls = 0;
    graph.weight('lazy', [3], () => {
      calls++;
      return Float32Array.of(1, 2, 3);
    });
    graph.output('x', ElementType.FLOAT, ['batch', 2], 'y');
    const [weight] = graph.build().graph.initializer;
    expect(calls).toBe(0);
    expect(new Float32Array(weight!.source!().slice().buffer)).toEqual(Float32Array.of(1, 2, 3));
    expect(calls).toBe(1);
  });

  test('attributes have the type of their value', () => {
    const graph = chain();
    graph.node('Any', ['x'], {
      axis: -1,
      end: 2n ** 63n - 1n,
      alpha: { float: 1 },
      text: 'SAME_UPPER',
      sizes: [1, 2],
      scales: { floats: [1, 2] },
      activations: ['Tanh', 'Relu'],
      none: [],
    });
    graph.output('x', ElementType.FLOAT, ['batch', 2], 'y');
    const attributes = graph.build().graph.node[0]!.attribute;
    expect(attributes.map(({ name, type }) => [name, type])).toEqual([
      ['axis', AttributeType.INT],
      ['end', AttributeType.INT],
      ['alpha', AttributeType.FLOAT],
      ['text', AttributeType.STRING],
      ['sizes', AttributeType.INTS],
      ['scales', AttributeType.FLOATS],
      ['activations', AttributeType.STRINGS],
      ['none', AttributeType.INTS],
    ]);
    expect(attributes[0]?.i).toBe(-1n);
    expect(attributes[1]?.i).toBe(2n ** 63n - 1n);
  });
});

/** The body of an If that computes on values of the surrounding graph. */
function branch(name: string, opType: string): GraphProto {
  const body = new GraphBuilder(name, { captures: ['x', 'scale'] });
  body.output(body.node(opType, ['x', 'scale']), ElementType.FLOAT, ['batch', 2], `${name}_result`);
  return body.buildGraph();
}

test('a body may use values of the surrounding graph, and ONNX Runtime runs it', async () => {
  const graph = chain();
  graph.weight('scale', [2], Float32Array.of(10, 100));
  const condition = graph.input('condition', ElementType.BOOL, []);
  const chosen = graph.node('If', [condition], {
    then_branch: { graph: branch('then', 'Mul') },
    else_branch: { graph: branch('else', 'Add') },
  });
  graph.output(chosen, ElementType.FLOAT, ['batch', 2], 'y');
  const session = await InferenceSession.create(serializeModel(graph.build()), { intraOpNumThreads: 1 });
  const x = new Tensor('float32', [1, 2], [1, 2]);
  const answers = await Promise.all(
    [true, false].map(async (value) => session.run({ x, condition: new Tensor('bool', [value], []) })),
  );
  expect(answers.map(({ y }) => Array.from(y!.data as Float32Array))).toEqual([
    [10, 200],
    [11, 102],
  ]);
});

describe('mistakes are named', () => {
  test.each<[mistake: string, make: (graph: GraphBuilder) => unknown, message: RegExp]>([
    ['an unknown input', (graph) => graph.node('Relu', ['nothing']), /'nothing', which nothing before it makes/],
    ['an input twice', (graph) => graph.input('x', ElementType.FLOAT, []), /'x' is made twice/],
    ['a fraction for an INT', (graph) => graph.node('Elu', ['x'], { alpha: 0.5 }), /'alpha'.*\{ float: 0.5 \}/],
    ['weights of another size', (graph) => graph.weight('w', [2, 2], new Float32Array(3)), /'w' has 3 elements/],
    ['a negative size', (graph) => graph.weight('w', [-1], new Float32Array(0)), /'w' has the size -1/],
    ['an unknown output', (graph) => graph.output('gone', ElementType.FLOAT, []), /'gone', which nothing makes/],
    ['a graph without output', (graph) => graph.build(), /'chain' has no output/],
  ])('%s is refused by name', (_mistake, make, message) => {
    expect(() => make(chain())).toThrow(message);
  });

  test('a lazy weight of another size is named when it is written', () => {
    const graph = chain();
    graph.weight('w', [2], () => new Float32Array(3));
    graph.output('x', ElementType.FLOAT, ['batch', 2], 'y');
    expect(() => graph.build().graph.initializer[0]!.source!()).toThrow(/'w' has 3 elements/);
  });
});
