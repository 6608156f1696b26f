/** A model with fixed input shapes, folded: what the compiler works on. */
import type { GraphNode, ModelProto } from '../../onnx/index.ts';
import type { DataType, Tensor } from '../../tensor/index.ts';
import type { FunctionBase } from './base.ts';
import type { InputShapes, Obstacle } from './types.ts';

export interface PreparedValue {
  readonly datatype: DataType;
  readonly shape: readonly number[];
}

export interface PreparedNode extends GraphNode {
  /** The layer of the model that it belongs to; never less than that of a node that it takes from. */
  readonly layer: number;
}

export interface PreparedGraph {
  readonly base: FunctionBase;
  readonly shapes: InputShapes;
  /** The folded model: weights are inputs of it. */
  readonly model: ModelProto;
  /** Version of the default operator set. */
  readonly opset: number;
  /** By layers; each comes after what it takes. */
  readonly nodes: readonly PreparedNode[];
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  /** Of every value, weights and constants included. */
  readonly values: ReadonlyMap<string, PreparedValue>;
  /** Contents of what is known beforehand and is no weight. */
  readonly constants: ReadonlyMap<string, Tensor>;
  /** Places in `base.weights`, by value name. */
  readonly weights: ReadonlyMap<string, number>;
  /** Values whose type or shape the engine cannot know. */
  readonly obstacles: readonly Obstacle[];
  /**
   * Outputs that must be complete as early as they can be, since somebody waits for them while the program still runs.
   */
  readonly early?: ReadonlySet<string>;
}

/**
 * Nodes whose results reach an output and are not known beforehand: what is emitted, and what plans are about, in
 * an order in which they can run.
 */
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
