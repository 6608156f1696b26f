/** What a graph knows of its nodes and values. */
import type { Dimension, NodeProto, TypeProto } from './types.ts';

/** Sizes, outermost first: a number, the name of a size that varies, or undefined where nothing is known. */
export type ValueShape = readonly (number | string | undefined)[];

/** What is known of a value. */
export interface ValueType {
  /** Undefined when not known, or when the value is not a tensor. */
  readonly elementType: number | undefined;
  /** Undefined when not even the rank is known. */
  readonly shape: ValueShape | undefined;
}

/** The type of a tensor as a file has it. */
export function tensorType(elementType: number, shape?: ValueShape): TypeProto {
  const dim = shape?.map((size): Dimension => {
    if (typeof size === 'number') return { dimValue: BigInt(size) };
    return size === undefined ? {} : { dimParam: size };
  });
  return { tensorType: { elemType: elementType, ...(dim === undefined ? {} : { shape: { dim } }) } };
}

export interface GraphNode {
  /** Place in `GraphProto.node`. */
  readonly index: number;
  readonly proto: NodeProto;
  /** Unique in the graph: the node's own name, else its operator and place. */
  readonly name: string;
  /** Values it takes, those that its nested graphs capture included; without left-out inputs, each once. */
  readonly uses: readonly string[];
  /** Values it makes. */
  readonly outputs: readonly string[];
  /** True when its outputs follow from weights alone: Constant, Identity or Transpose of an initializer, ... */
  readonly constant: boolean;
}
