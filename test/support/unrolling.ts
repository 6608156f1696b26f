/**
 * Common parts of tests of unrolling: runs of the original model and of its cells, and queries on the resulting graph.
 */
import { Tensor } from 'onnxruntime-node';
import { expect } from 'vitest';
import { checkModel, ElementType, Graph, type ModelProto } from '../../src/onnx/index.ts';
import { typedGraph } from '../../src/operators/index.ts';
import { unrollRecurrent } from '../../src/operators/unroll/index.ts';
import { runExactly, type Values } from './onnx.ts';

const elementCount = (shape: readonly number[]): number => shape.reduce((all, size) => all * size, 1);

/** Numbers between -scale and scale, different for each seed. */
export const wave = (shape: readonly number[], seed: number, scale = 1): Float32Array =>
  Float32Array.from({ length: elementCount(shape) }, (_, index) => Math.sin(index * 1.37 + seed * 2.1) * scale);

export const floats = (shape: readonly number[], seed: number): Tensor =>
  new Tensor('float32', wave(shape, seed), shape);

/** The shape of every value, from a run. */
export async function shapesByRun(model: ModelProto, inputs: Values): Promise<Map<string, readonly number[]>> {
  const graph = typedGraph(model);
  const names = new Set([...graph.nodes.flatMap(({ outputs }) => outputs), ...graph.outputs]);
  const output = [...names].map((name) => ({
    name,
    type: { tensorType: { elemType: graph.type(name)?.elementType ?? ElementType.FLOAT } },
  }));
  const values = await runExactly({ ...model, graph: { ...model.graph, output } }, inputs);
  return new Map(Object.entries({ ...values, ...inputs }).map(([name, { dims }]) => [name, dims]));
}

/** Equal shapes, and elements that are equal, NaN and infinities too, or differ by less than 1e-5. */
export function expectSame(actual: Values, expected: Values): void {
  expect(Object.keys(actual)).toEqual(Object.keys(expected));
  for (const [name, { dims, data }] of Object.entries(expected)) {
    expect(actual[name]!.dims, name).toEqual(dims);
    const found = actual[name]!.data as Float32Array;
    let worst = 0;
    for (const [index, value] of (data as Float32Array).entries()) {
      if (!Object.is(value, found[index])) worst = Math.max(worst, Math.abs(value - found[index]!));
    }
    expect(worst, name).toBeLessThan(1e-5);
  }
}

/** Unrolls a model, runs both, and expects the same answers. */
export async function unrolledAlike(model: ModelProto, inputs: Values, steps: number): Promise<ModelProto> {
  const shapes = await shapesByRun(model, inputs);
  const unrolled = unrollRecurrent(model, { steps, shapes });
  checkModel(unrolled);
  expectSame(await runExactly(unrolled, inputs), await runExactly(model, inputs));
  expect(unrolled.graph.input).toEqual(model.graph.input);
  expect(unrolled.graph.output).toEqual(model.graph.output);
  return unrolled;
}

export const countOf = ({ graph }: ModelProto, opType: string): number =>
  graph.node.filter((node) => node.opType === opType).length;

const recurrent = new Set(['LSTM', 'GRU', 'RNN']);

/** Recurrent nodes: where a model has been unrolled, its cells. */
export const cellCountOf = ({ graph }: ModelProto): number =>
  graph.node.filter(({ opType }) => recurrent.has(opType)).length;

/** Recurrent nodes of a model that its unrolled form still has. */
export const wholeIn = (unrolled: ModelProto, model: ModelProto): readonly string[] =>
  model.graph.node
    .filter((node) => recurrent.has(node.opType) && unrolled.graph.node.includes(node))
    .map(({ name }) => name);

/** Bytes of all floating-point weights. */
export const weightBytes = (model: ModelProto): number =>
  new Graph(model).weights
    .filter(({ elementType }) => elementType === ElementType.FLOAT)
    .reduce((sum, { byteLength }) => sum + byteLength, 0);

/** Names of the cells that a node's result depends on, including the node itself if it is a cell; sorted. */
export function cellsBehind(model: ModelProto, name: string): readonly string[] {
  const graph = new Graph(model);
  const found = new Set<string>();
  const visit = (at: string): void => {
    if (found.has(at)) return;
    found.add(at);
    for (const value of graph.nodes.find((each) => each.name === at)!.uses) {
      const producer = graph.producer(value);
      if (producer !== undefined) visit(producer.name);
    }
  };
  visit(name);
  return graph.nodes
    .filter((node) => found.has(node.name) && recurrent.has(node.proto.opType))
    .map((node) => node.name)
    .sort();
}
