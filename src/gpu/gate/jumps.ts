/**
 * Operators that jump: a rounding error of their input may change their result altogether. Two neighbours of a heat map
 * that are nearly equal, say, exchange which of them is the peak. Both answers are right, but no tolerance of the outputs
 * covers them. So a check takes the jumps apart: a program with their inputs as further outputs runs on the GPU, and
 * ONNX Runtime runs the model with each jump reading the GPU's own values. Then both decide on the same numbers, and
 * everything must agree within the tolerance: the values before the jumps, and the outputs behind them.
 */
import {
  elementTypeOf,
  Graph,
  isDefaultDomain,
  tensorType,
  type ModelProto,
  type NodeProto,
} from '../../onnx/index.ts';
import { factsOf } from '../../operators/index.ts';
import type { Tensor } from '../../tensor/index.ts';

const jumps = (proto: NodeProto): boolean => isDefaultDomain(proto.domain) && factsOf(proto)?.jumps(proto) === true;

/** Whether each of these outputs depends on a jump. */
export function areBehindJumps(model: ModelProto, outputs: readonly string[]): boolean {
  const graph = new Graph(model);
  const behind = new Set(graph.nodes.filter(({ proto }) => jumps(proto)).flatMap((node) => node.outputs));
  // What it gains meanwhile is visited too.
  for (const value of behind)
    for (const { outputs: results } of graph.consumers(value)) for (const result of results) behind.add(result);
  return outputs.every((output) => behind.has(output));
}

/**
 * The computed values that jumps read. One that another jump makes is left to ONNX Runtime, which makes it of the GPU's
 * values: taken as given, a floor in place of a round would be within the tolerance of large numbers.
 */
export function valuesBeforeJumps(model: ModelProto): string[] {
  const graph = new Graph(model);
  const read = graph.nodes.filter(({ proto }) => jumps(proto)).flatMap(({ proto }) => proto.input);
  return [...new Set(read)].filter((value) => {
    const producer = value === '' ? undefined : graph.producer(value);
    return producer !== undefined && !jumps(producer.proto);
  });
}

/** The model with further outputs; their types follow from the nodes that make them. */
export function withOutputs(model: ModelProto, values: readonly string[]): ModelProto {
  const known = new Set(model.graph.output.map(({ name }) => name));
  const further = values.filter((name) => !known.has(name)).map((name) => ({ name }));
  return { ...model, graph: { ...model.graph, output: [...model.graph.output, ...further] } };
}

const given = (name: string): string => `${name} of the GPU`;

/** The model whose jumps read these values as inputs, and that gives its own ones as further outputs. */
export function withGivenValues(model: ModelProto, values: readonly Tensor[]): ModelProto {
  const names = values.map(({ name }) => name);
  const { graph } = withOutputs(model, names);
  const isGiven = new Set(names);
  const node = graph.node.map((proto): NodeProto =>
    jumps(proto) ? { ...proto, input: proto.input.map((value) => (isGiven.has(value) ? given(value) : value)) } : proto,
  );
  const inputs = values.map(({ name, datatype, shape }) => ({
    name: given(name),
    type: tensorType(elementTypeOf(datatype), shape),
  }));
  return { ...model, graph: { ...graph, node, input: [...graph.input, ...inputs] } };
}

/** The inputs of {@link withGivenValues}. */
export const givenValues = (values: readonly Tensor[]): Tensor[] =>
  values.map((value) => ({ ...value, name: given(value.name) }));
