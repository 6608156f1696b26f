import type { Machine } from '../../hardware/index.ts';
import { Graph, type ModelProto } from '../../onnx/index.ts';
import { ProfileError } from '../profile-error.ts';
import { inferShapes, type ShapeOptions } from '../../operators/index.ts';
import { gpuMs, type NodeContext } from './cost.ts';

export type OperatorsEstimate = ReturnType<typeof estimateOperators>;

/**
 * Estimates the time of each node of a graph as kernels of its own on a GPU, and the time of crossings.
 * @throws ProfileError for a machine without GPUs
 */
export function estimateOperators(
  model: ModelProto,
  machine: Machine,
  options: ShapeOptions & { readonly gpu?: number } = {},
) {
  const { gpu: index = 0, ...shapeOptions } = options;
  const gpu = machine.gpus[index];
  if (gpu === undefined || machine.costs === undefined) {
    throw new ProfileError(`machine '${machine.name}' has no GPU ${index} to estimate operators for`);
  }
  const graph = new Graph(model);
  const context: NodeContext = { graph, shapes: inferShapes(graph, shapeOptions), gpu, costs: machine.costs };
  return {
    /** Milliseconds of each node with all data in GPU memory, by name. */
    gpuMs: new Map(graph.nodes.map((node) => [node.name, gpuMs(context, node)])),
    /** GB/s between host and GPU. */
    bandwidth: gpu.linkGBps,
    /** Milliseconds of a copy beyond its bytes: setup, and the host's time to issue it. */
    latencyMs: (gpu.copySetupUs + machine.costs.issueUs) / 1000,
  };
}
