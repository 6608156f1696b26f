/** What a model's graph shows about joining rows of different calls, without a run. */
import { Graph, isDefaultDomain, opsetOf, smallTensor, withInputShapes, type ModelProto } from '../onnx/index.ts';
import { factsOf, inferShapes } from '../operators/index.ts';
import { bytesOfNumbers, type Tensor } from '../tensor/index.ts';
import { rowsOf, type RowGraph } from './compare-graphs.ts';

export type RowsByGraph =
  | { readonly kind: 'independent' }
  /** A node mixes rows. */
  | { readonly kind: 'mixing'; readonly reason: string }
  /** The rules cannot follow the rows. */
  | { readonly kind: 'unknown'; readonly reason: string };

/** Numbers of rows of the two graphs that are compared. */
const counts = { few: 2, many: 3 };
/** Constants with more elements are tables, whose elements no rule reads. */
const smallCount = 4096;

/** @param inputs with the shapes of a call; their rows are along dimension 0 */
export function rowsByGraph(model: ModelProto, inputs: readonly Pick<Tensor, 'name' | 'shape'>[]): RowsByGraph {
  const [few, many] = [graphFor(model, inputs, counts.few), graphFor(model, inputs, counts.many)];
  const found = rowsOf(few, many, new Map(inputs.map(({ name }) => [name, 0])), counts, 'joined');
  if (found.kind === 'meet') return { kind: found.isShown ? 'mixing' : 'unknown', reason: found.reason };
  const other = found.outputs.find(({ outer, shape }) => outer !== 1 || shape[0] !== counts.few);
  if (other === undefined) return { kind: 'independent' };
  return { kind: 'unknown', reason: `output '${other.name}' does not have its rows along the first dimension` };
}

function graphFor(model: ModelProto, inputs: readonly Pick<Tensor, 'name' | 'shape'>[], rows: number): RowGraph {
  const shapes = new Map(inputs.map(({ name, shape }) => [name, shape.with(0, rows)]));
  const dimensions: Record<string, number> = {};
  for (const { name, type } of model.graph.input) {
    for (const [axis, { dimParam }] of (type?.tensorType?.shape?.dim ?? []).entries()) {
      const size = shapes.get(name)?.[axis];
      if (dimParam !== undefined && dimParam !== '' && size !== undefined) dimensions[dimParam] = size;
    }
  }
  const graph = new Graph(withInputShapes(model, (name) => shapes.get(name)));
  const inferred = inferShapes(graph, { dimensions, openSize: () => undefined });
  const values = new Map<string, { readonly shape: readonly number[] }>();
  const constants = new Map<string, Tensor>();
  for (const [name, { dims, ints }] of inferred.values) {
    values.set(name, { shape: dims });
    const producer = graph.producer(name);
    const isExact = producer !== undefined && (factsOf(producer.proto)?.arithmetic ?? 'none') !== 'none';
    if (ints === undefined || !isExact || !isDefaultDomain(producer.proto.domain)) continue;
    constants.set(name, { name, datatype: 'INT64', shape: dims, data: bytesOfNumbers('INT64', ints) });
  }
  const isWeight = (name: string): boolean => graph.weight(name) !== undefined;
  for (const node of graph.nodes) {
    for (const name of [...node.proto.input, ...node.outputs]) {
      const weight = graph.weight(name);
      if (weight === undefined || values.has(name)) continue;
      values.set(name, { shape: weight.dims });
    }
    for (const name of node.uses) {
      const constant = constants.has(name) ? undefined : smallTensor(graph.weight(name), smallCount);
      if (constant !== undefined) constants.set(name, constant);
    }
  }
  return {
    opset: opsetOf(model) ?? 17,
    nodes: graph.nodes,
    inputs: inputs.map(({ name }) => name),
    outputs: graph.outputs,
    values,
    constants,
    weights: { has: (name) => isWeight(name) && !constants.has(name) },
  };
}
