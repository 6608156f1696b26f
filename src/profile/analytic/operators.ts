import type { Machine } from '../../hardware/index.ts';
import { Graph, type ModelProto } from '../../onnx/index.ts';
import { ProfileError } from '../profile-error.ts';
import { inferShapes, type ShapeOptions } from '../shapes/index.ts';
import { gpuMs, type NodeContext } from './cost.ts';

export interface OperatorsEstimate {
  /** Milliseconds of each node with everything in the GPU's memory, by name. */
  readonly gpuMs: ReadonlyMap<string, number>;
  /** GB/s between host and GPU. */
  readonly bandwidth: number;
  /** Milliseconds of a copy whatever its size: until it begins, and what the host takes to issue it. */
  readonly latencyMs: number;
}

/**
 * Estimates what the nodes of a graph take on a GPU of a machine, each by kernels of its own, and what crossings take.
 * Throws {@link ProfileError} for a machine without GPUs.
 */
export function estimateOperators(
  model: ModelProto,
  machine: Machine,
  options: ShapeOptions & { readonly gpu?: number } = {},
): OperatorsEstimate {
  const { gpu: index = 0, ...shapeOptions } = options;
  const gpu = machine.gpus[index];
  if (gpu === undefined || machine.costs === undefined) {
    throw new ProfileError(`machine '${machine.name}' has no GPU ${index} to estimate operators for`);
  }
  const graph = new Graph(model);
  const context: NodeContext = { graph, shapes: inferShapes(graph, shapeOptions), gpu, costs: machine.costs };
  return {
    gpuMs: new Map(graph.nodes.map((node) => [node.name, gpuMs(context, node)])),
    bandwidth: gpu.linkGBps,
    latencyMs: (gpu.copySetupUs + machine.costs.issueUs) / 1000,
  };
}
