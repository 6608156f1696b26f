import fc from 'fast-check';
import { Tensor } from 'onnxruntime-node';
import { describe, expect, test } from 'vitest';
import { refusal, randomInputs, randomModels, runExactly, type Values } from '../../test/support/onnx.ts';
import { GraphBuilder } from './builder.ts';
import { checkModel } from './check.ts';
import { extract } from './extract.ts';
import { Graph } from './graph.ts';
import { layers } from './layers.ts';
import { ElementType, type FunctionProto, type ModelProto } from './types.ts';

const bytesOf = (values: Values): Record<string, number[]> =>
  Object.fromEntries(Object.entries(values).map(([name, { data }]) => [name, [...(data as Float32Array)]]));

describe('a random model', () => {
  test('cut anywhere gives two models that together compute exactly the answer of the whole', async () => {
    await fc.assert(
      fc.asyncProperty(randomModels, fc.nat(), async (model, place) => {
        checkModel(model);
        const inputs = randomInputs();
        const whole = await runExactly(model, inputs);
        const graph = new Graph(model);
        const cut = 1 + (place % Math.max(1, graph.nodes.length - 1));
        const values: Record<string, Tensor> = { ...inputs };
        for (const part of [graph.nodes.slice(0, cut), graph.nodes.slice(cut)]) {
          if (part.length === 0) continue;
          const half = extract(model, { nodes: part.map(({ index }) => index) }, { graph });
          checkModel(half);
          expect(half.graph.input.every(({ name }) => values[name] !== undefined)).toBe(true);
          expect(half.graph.input.every(({ type }) => type?.tensorType !== undefined)).toBe(true);
          Object.assign(values, await runExactly(half, values));
        }
        const joined: Values = Object.fromEntries(Object.keys(whole).map((name) => [name, values[name]!]));
        expect(bytesOf(joined)).toEqual(bytesOf(whole));
      }),
      { numRuns: 60 },
    );
  });

  test('cut by layers gives models that together compute exactly the answer of the whole', async () => {
    await fc.assert(
      fc.asyncProperty(randomModels, async (model) => {
        const inputs = randomInputs();
        const whole = await runExactly(model, inputs);
        const graph = new Graph(model);
        const values: Record<string, Tensor> = { ...inputs };
        for (const { nodes } of layers(graph)) {
          const part = extract(model, { nodes: nodes.map(({ name }) => name) }, { graph });
          Object.assign(values, await runExactly(part, values));
        }
        const joined: Values = Object.fromEntries(Object.keys(whole).map((name) => [name, values[name]!]));
        expect(bytesOf(joined)).toEqual(bytesOf(whole));
      }),
      { numRuns: 25 },
    );
  });

  test('cut between values gives the nodes between those values', async () => {
    await fc.assert(
      fc.asyncProperty(randomModels, fc.nat(), async (model, place) => {
        const graph = new Graph(model);
        // A cut through only one output of a node is refused: see below.
        const made = graph.nodes
          .filter(({ constant, outputs }) => !constant && outputs.length === 1)
          .map(({ outputs }) => outputs[0]!);
        fc.pre(made.length > 0);
        const middle = made[place % made.length]!;
        const inputs = randomInputs();
        const first = extract(model, { inputs: graph.inputs, outputs: [middle] }, { graph });
        checkModel(first);
        const reached = await runExactly(first, inputs);
        const outputs = graph.outputs.filter((name) => name !== middle && !graph.inputs.includes(name));
        if (outputs.length === 0) return;
        const given = [...graph.inputs, middle];
        const second = extract(model, { inputs: given, outputs }, { graph });
        checkModel(second);
        const whole = await runExactly(model, inputs);
        const found = await runExactly(second, { ...inputs, ...reached });
        for (const name of outputs) expect(found[name]?.data).toEqual(whole[name]?.data);
      }),
      { numRuns: 40 },
    );
  });
});

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
  model.functions = [twice, scale, { ...twice, name: 'Unused' }];
  model.opsetImport.push({ domain: 'com.microsoft', version: 1n });
  return model;
}

describe('a sub-graph', () => {
  test('includes what it uses and nothing else', () => {
    const part = extract(chain(), { inputs: ['relu'], outputs: ['sum'] });
    expect(part.graph.node.map(({ opType }) => opType)).toEqual(['MatMul', 'Add']);
    expect(part.graph.initializer.map(({ name }) => name)).toEqual(['w', 'b']);
    expect(part.graph.input).toEqual([{ name: 'relu', type: { tensorType: { elemType: ElementType.FLOAT } } }]);
    expect(part.opsetImport).toEqual([{ domain: '', version: 17n }]);
    expect(part.functions).toBeUndefined();
  });

  test('includes the functions that it calls, and those that they call', async () => {
    const part = extract(chain(), { inputs: ['sum'], outputs: ['scaled'] });
    expect(part.functions?.map(({ name }) => name)).toEqual(['Twice', 'Scale']);
    expect(part.opsetImport.map(({ domain }) => domain)).toEqual(['', 'own']);
    const { scaled } = await runExactly(part, { sum: new Tensor('float32', [1, 2], [1, 2]) });
    expect(scaled?.data).toEqual(Float32Array.of(2, 4));
  });

  test('has the shapes of a run if they are given', () => {
    const model = chain();
    const found = new Map([['relu', { elementType: ElementType.FLOAT, shape: ['batch', 2] as const }]]);
    const part = extract(model, { inputs: ['relu'], outputs: ['sum'] }, { graph: new Graph(model).withShapes(found) });
    expect(part.graph.input[0]?.type?.tensorType?.shape?.dim).toEqual([{ dimParam: 'batch' }, { dimValue: 2n }]);
  });

  test('may start at a weight, which then is an input', async () => {
    const part = extract(chain(), { inputs: ['x', 'w'], outputs: ['product'] });
    expect(part.graph.initializer).toEqual([]);
    const { product } = await runExactly(part, {
      x: new Tensor('float32', [1, 1], [1, 2]),
      w: new Tensor('float32', [1, 0, 0, 1], [2, 2]),
    });
    expect(product?.data).toEqual(Float32Array.of(1, 1));
  });

  test('between two outputs of one node is refused by name', async () => {
    const graph = new GraphBuilder('split');
    const x = graph.input('x', ElementType.FLOAT, [4]);
    const [a, b] = graph.node('Split', [x], {}, { outputs: ['a', 'b'] });
    graph.output(graph.node('Add', [a, b]), ElementType.FLOAT, [2], 'y');
    const refused = await refusal(() => extract(graph.build(), { inputs: ['x', 'a'], outputs: ['y'] }));
    expect(refused).toEqual([
      'bad-cut',
      expect.stringContaining("'a' cannot be an input, since node '/Split' makes it"),
    ]);
  });

  test.each([
    ['an unknown input', { inputs: ['nowhere'], outputs: ['y'] }, /no value 'nowhere'/],
    ['an unknown output', { inputs: ['x'], outputs: ['nowhere'] }, /no node makes 'nowhere'/],
    ['a missing input', { inputs: ['relu'], outputs: ['y'] }, /the output 'y' also needs the input 'z'/],
    ['a weight as output', { inputs: ['x'], outputs: ['w'] }, /no node makes 'w'/],
    ['a value at both ends', { inputs: ['relu'], outputs: ['relu'] }, /both an input and an output/],
    ['no output', { inputs: ['x'], outputs: [] }, /at least one output/],
    ['an input named twice', { inputs: ['x', 'x'], outputs: ['relu'] }, /named twice/],
    ['an unknown node', { nodes: ['nobody'] }, /no node 'nobody'/],
    ['a place beyond the nodes', { nodes: [99] }, /no node 99/],
    ['no nodes', { nodes: [] }, /at least one node/],
    [
      'a value of no known type',
      { inputs: ['scaled', 'z'], outputs: ['y'] },
      /'scaled', whose element type is not known/,
    ],
  ])('with %s is refused by name', async (_, cut, naming) => {
    expect(await refusal(() => extract(chain(), cut))).toEqual(['bad-cut', expect.stringMatching(naming)]);
  });
});
