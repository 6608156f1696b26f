import fc from 'fast-check';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, test } from 'vitest';
import { randomInputs, randomModels, runExactly } from '../../test/support/onnx.ts';
import { GraphBuilder } from './builder.ts';
import { checkModel } from './check.ts';
import { extract } from './extract.ts';
import { Graph } from './graph.ts';
import { ElementType, type FunctionProto, type ModelProto } from './types.ts';

/** x -> Relu -> MatMul(w) -> Add(b) -> Scale (a function) -> y, with a second input that only the Add of z takes. */
function chain(): ModelProto {
  const graph = new GraphBuilder('chain');
  const x = graph.input('x', ElementType.FLOAT, ['batch', 2]);
  const z = graph.input('z', ElementType.FLOAT, ['batch', 2]);
  const w = graph.weight('w', [2, 2], Float32Array.of(1, 2, 3, 4));
  const b = graph.weight('b', [2], Float32Array.of(1, 1));
  const [relu] = graph.node('Relu', [x], {}, { outputs: ['relu'] });
  const [product] = graph.node('MatMul', [relu, w], {}, { outputs: ['product'] });
  const [sum] = graph.node('Add', [product, b], {}, { outputs: ['sum'] });
  const [scaled] = graph.node('Scale', [sum], {}, { outputs: ['scaled'], domain: 'own' });
  graph.output(graph.node('Add', [scaled, z]), ElementType.FLOAT, ['batch', 2], 'y');
  const model = graph.build();
  const twice: FunctionProto = {
    name: 'Twice',
    domain: 'own',
    input: ['a'],
    output: ['c'],
    attribute: [],
    node: [{ name: '', opType: 'Add', domain: '', input: ['a', 'a'], output: ['c'], attribute: [] }],
    opsetImport: [{ domain: '', version: 17n }],
  };
  const scale: FunctionProto = {
    ...twice,
    name: 'Scale',
    node: [{ name: '', opType: 'Twice', domain: 'own', input: ['a'], output: ['c'], attribute: [] }],
    opsetImport: [
      { domain: '', version: 17n },
      { domain: 'own', version: 1n },
    ],
  };
  model.functions = [twice, scale];
  return model;
}

describe('a sub-graph', () => {
  test('of any model computes exactly the values of the whole', async () => {
    await fc.assert(
      fc.asyncProperty(randomModels, fc.nat(), async (model, place) => {
        const graph = new Graph(model);
        const made = graph.nodes.flatMap(({ outputs }) => outputs);
        const outputs = [...new Set([made[place % made.length]!, made.at(-1)!])];
        const part = extract(model, outputs, graph);
        checkModel(part);
        const whole = { ...model, graph: { ...model.graph, output: part.graph.output } };
        const inputs = randomInputs();
        const found = await runExactly(part, inputs);
        const expected = await runExactly(whole, inputs);
        for (const name of outputs) expect(found[name]?.data).toEqual(expected[name]?.data);
      }),
      { numRuns: 60 },
    );
  });

  test('includes what its outputs need and nothing else', () => {
    const { graph } = extract(chain(), ['product']);
    expect(graph.node.map(({ opType }) => opType)).toEqual(['Relu', 'MatMul']);
    expect(graph.initializer.map(({ name }) => name)).toEqual(['w']);
    expect(graph.input.map(({ name }) => name)).toEqual(['x']);
    expect(graph.output).toEqual([{ name: 'product' }]);
  });

  test('has the functions that it calls', async () => {
    const x = new Tensor('float32', [1, 2], [1, 2]);
    const { scaled } = await runExactly(extract(chain(), ['scaled']), { x });
    expect(scaled?.data).toEqual(Float32Array.of(16, 22));
  });

  test('gives its outputs the shapes of a run if they are known', () => {
    const model = chain();
    const found = new Map([['sum', { elementType: ElementType.FLOAT, shape: ['batch', 2] as const }]]);
    const { output } = extract(model, ['sum'], new Graph(model, found)).graph;
    expect(output[0]?.type?.tensorType?.shape?.dim).toEqual([{ dimParam: 'batch' }, { dimValue: 2n }]);
  });
});
