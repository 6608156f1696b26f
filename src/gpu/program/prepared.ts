/** A model folded for given input shapes: the compiler's input. */
import type { GraphNode, ModelProto } from '../../onnx/index.ts';
import type { DataType, Tensor } from '../../tensor/index.ts';
import type { FunctionBase } from './base.ts';
import type { InputShapes, Obstacle } from './types.ts';

export interface PreparedValue {
  readonly datatype: DataType;
  readonly shape: readonly number[];
}

export interface PreparedNode extends GraphNode {
  /** The model's layer that the node belongs to: that of a node whose result it reads, or a later one. */
  readonly layer: number;
}

export interface PreparedGraph {
  readonly base: FunctionBase;
  readonly shapes: InputShapes;
  /** The folded model, with weights as inputs. */
  readonly model: ModelProto;
  /** Version of the default operator set. */
  readonly opset: number;
  /** By layers, in an order in which they can run. */
  readonly nodes: readonly PreparedNode[];
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Type and shape of each value for which both are known, weights and constants included. */
  readonly values: ReadonlyMap<string, PreparedValue>;
  /** Values that are known before a run, without the weights. */
  readonly constants: ReadonlyMap<string, Tensor>;
  /** Indices in `base.weights`, by value name. */
  readonly weights: ReadonlyMap<string, number>;
  /** Reasons why the engine cannot run the model: nodes and inputs whose type or shape is unknown. */
  readonly obstacles: readonly Obstacle[];
  /** Outputs that must be complete as early as possible, because a core waits for them while the program runs. */
  readonly early?: ReadonlySet<string>;
}

/** The nodes that a run executes: an output depends on each, and none is constant. In an order that runs. */
export function livingNodes({ nodes, outputs, constants }: PreparedGraph): PreparedNode[] {
  const needed = new Set(outputs);
  const living: PreparedNode[] = [];
  for (const node of nodes.toReversed()) {
    if (!node.outputs.some((value) => needed.has(value) && !constants.has(value))) continue;
    for (const value of node.uses) if (!constants.has(value)) needed.add(value);
    living.push(node);
  }
  return living.reverse();
}
