import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { randomModels, refusal } from '../../test/support/onnx.ts';
import { GraphBuilder } from './builder.ts';
import { Graph } from './graph.ts';
import { ElementType, type ModelProto } from './types.ts';

function model(fill: (graph: GraphBuilder) => string): ModelProto {
  const graph = new GraphBuilder('g');
  graph.input('x', ElementType.FLOAT, ['batch', 4]);
  graph.output(fill(graph), ElementType.FLOAT, ['batch', 4], 'y');
  return graph.build();
}

const square = new Float32Array(16);

describe('weights', () => {
  test('behind any number of Identity nodes are the same weight, counted once', () => {
    const graph = new Graph(
      model((g) => {
        const w = g.weight('w', [4, 4], square);
        const chain = g.node('Identity', [g.node('Identity', [g.node('Identity', [w])])]);
        return g.node('MatMul', [g.node('MatMul', ['x', chain]), w]);
      }),
    );
    expect(graph.weights.map(({ name, byteLength }) => [name, byteLength])).toEqual([['w', 64]]);
    const products = graph.nodes.filter(({ proto }) => proto.opType === 'MatMul');
    expect(products.map((node) => graph.weightsOf(node).map(({ name }) => name))).toEqual([['w'], ['w']]);
    expect(graph.weight('/Identity_2_output_0')).toBe(graph.weight('w'));
    expect(graph.shape('/Identity_2_output_0')).toEqual([4, 4]);
  });

  test('that are transposed or reshaped are behind the result, but are not the result', () => {
    const graph = new Graph(
      model((g) => {
        const w = g.node('Transpose', [g.weight('w', [4, 4], square)], { perm: [1, 0] });
        return g.node('MatMul', ['x', g.node('Reshape', [w, g.constant({ ints: [4, 4] })])]);
      }),
    );
    const product = graph.nodes.at(-1)!;
    expect(graph.weight(product.proto.input[1]!)).toBeUndefined();
    expect(graph.weightsOf(product).map(({ name }) => name)).toEqual(['w', '/Constant_output_0']);
    expect(graph.nodes.map(({ constant }) => constant)).toEqual([true, true, true, false]);
  });

  test('of Constant nodes count, in every form of the node', () => {
    const proto = model((g) => g.node('Add', ['x', g.constant({ floats: [1, 2, 3, 4] })]));
    proto.graph.node[0]!.attribute = [{ name: 'value_floats', type: 6, floats: [1, 2, 3, 4] }];
    const [weight] = new Graph(proto).weights;
    expect(weight).toMatchObject({ origin: 'constant', elementCount: 4, byteLength: 16, dims: [4] });
  });

  test('in the body of a branch count, and those that it captures are uses', () => {
    const graph = new Graph(
      model((g) => {
        const w = g.weight('w', [4], new Float32Array(4));
        const branch = (name: string, op: string) => {
          const body = new GraphBuilder(name, { captures: ['x', w] });
          const own = body.weight(`${name}.own`, [4], new Float32Array(4));
          body.output(body.node(op, [body.node('Mul', ['x', w]), own]), ElementType.FLOAT, ['batch', 4], `${name}_y`);
          return { graph: body.buildGraph() };
        };
        const condition = g.node('Greater', [g.node('ReduceSum', ['x'], { keepdims: 0 }), g.constant({ floats: 0 })]);
        return g.node('If', [condition], { then_branch: branch('then', 'Add'), else_branch: branch('else', 'Sub') });
      }),
    );
    const branch = graph.nodes.at(-1)!;
    expect(branch.uses.toSorted()).toEqual(['/Greater_output_0', 'w', 'x']);
    expect(graph.consumers('x').map(({ proto }) => proto.opType)).toEqual(['ReduceSum', 'If']);
    expect(graph.weightsOf(branch).map(({ name }) => name)).toEqual(['w', '/If/then.own', '/If/else.own']);
    expect(graph.type('y')?.elementType).toBe(ElementType.FLOAT);
  });

  test('given as an input with a default are weights and no inputs', () => {
    const proto = model((g) => g.node('Add', ['x', g.weight('w', [4], new Float32Array(4))]));
    proto.graph.input.push({ name: 'w', type: { tensorType: { elemType: ElementType.FLOAT } } });
    expect(new Graph(proto).inputs).toEqual(['x']);
  });
});

describe('order', () => {
  test('comes from the values, whatever the order of the file', () => {
    fc.assert(
      fc.property(randomModels, fc.infiniteStream(fc.nat()), (random, keys) => {
        const shuffled = random.graph.node
          .map((node) => ({ node, key: keys.next().value! }))
          .toSorted((a, b) => a.key - b.key)
          .map(({ node }) => node);
        const graph = new Graph({ ...random, graph: { ...random.graph, node: shuffled } });
        const known = new Set([...graph.inputs, ...random.graph.initializer.map(({ name }) => name)]);
        for (const node of graph.nodes) {
          for (const value of node.uses) expect(known).toContain(value);
          for (const value of node.outputs) known.add(value);
        }
        expect(graph.nodes).toHaveLength(shuffled.length);
        expect(new Set(graph.nodes.map(({ proto }) => proto))).toEqual(new Set(shuffled));
      }),
      { numRuns: 50 },
    );
  });

  test('of a sorted file is kept', () => {
    fc.assert(
      fc.property(randomModels, (random) => {
        expect(new Graph(random).nodes.map(({ proto }) => proto)).toEqual(random.graph.node);
      }),
      { numRuns: 20 },
    );
  });

  test('of a cycle is refused by name', async () => {
    const proto = model((g) => g.node('Relu', [g.node('Neg', ['x'])]));
    proto.graph.node[0]!.input = ['y'];
    expect(await refusal(() => new Graph(proto))).toEqual(['bad-model', expect.stringMatching(/'\/Neg' takes/)]);
  });
});

describe('types', () => {
  test('from a run override those of the file', () => {
    const relu = model((g) => g.node('Relu', ['x']));
    const graph = new Graph(relu, new Map([['x', { elementType: undefined, shape: [2, 4] }]]));
    expect(graph.type('x')).toEqual({ elementType: ElementType.FLOAT, shape: [2, 4] });
    expect(new Graph(relu).shape('x')).toEqual(['batch', 4]);
  });
});
