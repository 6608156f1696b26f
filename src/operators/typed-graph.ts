/** Graphs whose values have an element type also where the file leaves it out, as the records of operators tell it. */
import { Graph, isDefaultDomain, type ModelProto, type NodeProto, type ValueType } from '../onnx/index.ts';
import { ordinary } from './facts.ts';
import { factsOf } from './records.ts';

/**
 * The element type of a node's result; undefined if it is not known. Shapes are not inferred here: see `inferShapes`.
 */
export function resultType(
  node: NodeProto,
  place: number,
  typeOfInput: (place: number) => number | undefined,
): number | undefined {
  if (!isDefaultDomain(node.domain) && node.domain !== 'com.microsoft') return undefined;
  const { types } = factsOf(node) ?? ordinary;
  return types[Math.min(place, types.length - 1)]?.(node, typeOfInput, place);
}

/** @throws OnnxError as {@link Graph} */
export const typedGraph = (model: ModelProto, shapes?: ReadonlyMap<string, ValueType>): Graph =>
  new Graph(model, shapes, resultType);

/** Types of a model's values, as far as they are known without a run. */
export const typesOf = (model: ModelProto): ReadonlyMap<string, ValueType> => typedGraph(model).types;
