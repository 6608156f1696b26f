/** Nodes and values of a graph. */
import type { Dimension, ModelProto, NodeProto, TypeProto, ValueInfoProto } from './types.ts';

/** Sizes, outermost first: a number, the name of a varying size, or undefined if unknown. */
export type ValueShape = readonly (number | string | undefined)[];

/** What is known about a value. */
export interface ValueType {
  /** Undefined if unknown, or if the value is not a tensor. */
  readonly elementType: number | undefined;
  /** Undefined if not even the rank is known. */
  readonly shape: ValueShape | undefined;
}

/** The type of a tensor in the form of a file. */
export function tensorType(elementType: number, shape?: ValueShape): TypeProto {
  const dim = shape?.map((size): Dimension => {
    if (typeof size === 'number') return { dimValue: BigInt(size) };
    return size === undefined ? {} : { dimParam: size };
  });
  return { tensorType: { elemType: elementType, ...(dim === undefined ? {} : { shape: { dim } }) } };
}

function shapeless(info: ValueInfoProto): ValueInfoProto {
  const elemType = info.type?.tensorType?.elemType;
  return elemType === undefined ? info : { name: info.name, type: tensorType(elemType) };
}

/**
 * The model for inputs of these shapes; an input without one stays as it is. Its outputs declare no shapes any more,
 * since those with open dimensions have sizes now.
 */
export function withInputShapes(
  model: ModelProto,
  shapeOf: (input: string) => readonly number[] | undefined,
): ModelProto {
  const { graph } = model;
  const sized = (info: ValueInfoProto): ValueInfoProto => {
    const [shape, tensor] = [shapeOf(info.name), info.type?.tensorType];
    return shape === undefined || tensor === undefined ? info : { ...info, type: tensorType(tensor.elemType, shape) };
  };
  return { ...model, graph: { ...graph, input: graph.input.map(sized), output: graph.output.map(shapeless) } };
}

export interface GraphNode {
  readonly proto: NodeProto;
  /** Unique in the graph: the node's own name, else its operator and index. */
  readonly name: string;
  /** Values it takes, including those that its nested graphs capture; each once, without left-out inputs. */
  readonly uses: readonly string[];
  /** Values it makes. */
  readonly outputs: readonly string[];
  /** True if its outputs are computed from weights alone: Constant, Identity or Transpose of an initializer, ... */
  readonly constant: boolean;
}
