import type { Machine } from '../../hardware/index.ts';
import { ElementType, Graph, type ModelProto, type Weight } from '../../onnx/index.ts';
import { ProfileError } from '../profile-error.ts';
import { comesCoded } from '../forms.ts';
import type { LayerProfile, ProfileLayer } from '../layers.ts';
import { inferShapes, type ShapeOptions } from '../../operators/index.ts';
import { given } from '../../tools/index.ts';
import { assumedCoding, codedLayer, type AssumedCoding, type WeightBits } from './coding.ts';
import { gpuMs, hostRead, type WeightContext } from './cost.ts';
import { leavesOf, type Leaf } from './leaves.ts';

export interface EstimateOptions extends ShapeOptions {
  /** The GPU that executes; default: 0. */
  readonly gpu?: number;
  /**
   * In how many bits weights of 32-bit floats are kept and moved; default: 32. With 16 (`gpu.precision` fp16 or bf16)
   * an execution is still charged as in 32: how much faster tensor cores are, no machine's constants say.
   */
  readonly weightBits?: WeightBits;
  /** Whether layers are coded without loss where that is worth it; default: false. See {@link codedLayer}. */
  readonly coding?: boolean;
}

/** Bytes of a weight, where floats of 32 bits are kept in so many. */
export const weightBytesIn =
  (weightBits: WeightBits): WeightContext['weightBytes'] =>
  ({ byteLength, elementType }) =>
    elementType === ElementType.FLOAT ? (byteLength * weightBits) / 32 : byteLength;

export interface Estimate {
  readonly profile: LayerProfile;
  /** Nodes of unknown shape; each is charged as a kernel without data. */
  readonly unknown: readonly string[];
}

/**
 * Estimates the cost of each layer of a model on a machine, from the graph alone: no weight is read, and nothing runs.
 * @throws ProfileError for a machine without GPUs
 */
export function estimateLayers(model: ModelProto, machine: Machine, options: EstimateOptions = {}): Estimate {
  const gpu = machine.gpus[options.gpu ?? 0];
  if (gpu === undefined || machine.costs === undefined) {
    throw new ProfileError(`machine '${machine.name}' has no GPU ${options.gpu ?? 0} to estimate layers for`);
  }
  const graph = new Graph(model);
  const shapes = inferShapes(graph, options);
  const context: WeightContext = {
    graph,
    shapes,
    gpu,
    costs: machine.costs,
    weightBytes: weightBytesIn(options.weightBits ?? 32),
  };
  const coding = options.coding === true ? assumedCoding(gpu, options.weightBits ?? 32) : undefined;
  const leaves = leavesOf(graph, shapes);
  const tied = tiedReadMs(context, leaves);
  return {
    profile: { unit: 'ms', layers: leaves.map((leaf) => layerOf(context, leaf, tied, coding)) },
    unknown: shapes.unknown,
  };
}

/**
 * Milliseconds that later leaves take to read an earlier leaf's weights over PCIe, by weight. They are charged to the
 * earlier leaf.
 */
function tiedReadMs(context: WeightContext, leaves: readonly Leaf[]): Map<Weight, number> {
  const tied = new Map<Weight, number>();
  for (const { own, sharedWeights } of leaves) {
    for (const weight of sharedWeights) {
      const users = own.filter((node) => context.graph.weightsOf(node).includes(weight));
      tied.set(weight, (tied.get(weight) ?? 0) + readMs(context, users, [weight]));
    }
  }
  return tied;
}

function readMs(context: WeightContext, own: Leaf['own'], weights: readonly Weight[]): number {
  let ms = 0;
  for (const node of own) {
    const used = context.graph.weightsOf(node).filter((weight) => weights.includes(weight));
    if (used.length === 0) continue;
    const { bytes, linkGBps } = hostRead(context, node, used);
    ms += bytes / (linkGBps * 1e6);
  }
  return ms;
}

function layerOf(
  context: WeightContext,
  leaf: Leaf,
  tied: ReadonlyMap<Weight, number>,
  coding: AssumedCoding | undefined,
): ProfileLayer {
  const { gpu, costs, weightBytes } = context;
  const { execUs, loadUsPerTensor } = costs.profilerFloor;
  // A product with its bias is one kernel, which adds the bias as it writes.
  const [anchor] = leaf.own;
  const slowdown = coding?.slowdown ?? 1;
  const gpuTime = anchor === undefined ? 0 : slowdown * gpuMs(context, anchor);
  const bytes = leaf.weights.reduce((sum, weight) => sum + weightBytes(weight), 0);
  const statistics = Array.from({ length: leaf.kind === 'batch-norm' ? costs.batchNormExtraTensors : 0 }, () => 8);
  const copies = leaf.weights.length + statistics.length;
  const loadMs = (onLinkBytes: number): number =>
    bytes === 0 ? 0 : (copies * loadUsPerTensor) / 1000 + onLinkBytes / (gpu.linkGBps * 1e6);
  const offered = coding && codedLayer(leaf.kind, bytes, gpu, coding);
  const coded =
    offered !== undefined && comesCoded({ bytes, load: loadMs(offered.bytes), coded: offered }) ? offered : undefined;
  const onLinkShare = coded === undefined ? 1 : coded.bytes / bytes;
  const tensorBytes = leaf.weights.map((weight) => onLinkShare * weightBytes(weight)).concat(statistics);
  const read =
    readMs(context, leaf.own, leaf.weights) + leaf.weights.reduce((sum, weight) => sum + (tied.get(weight) ?? 0), 0);
  const operatorMs = slowdown * leaf.operators.reduce((sum, node) => sum + gpuMs(context, node), 0);
  const exec = Math.max(gpuTime, execUs / 1000) + operatorMs;
  return {
    name: leaf.name,
    kind: leaf.kind,
    bytes,
    load: loadMs(coded?.bytes ?? bytes),
    exec,
    dha: bytes === 0 ? exec : exec + read,
    ...given({ coded }),
    cost: {
      tensorBytes,
      gpu: gpuTime,
      gpuDha: gpuTime + read,
      hostRead: read + (leaf.kind === 'batch-norm' ? (costs.hostRead.batchNormPauseUs ?? 0) / 1000 : 0),
      launch: costs.launchUs / 1000,
      operators: {
        count: leaf.operators.length,
        gpu: operatorMs,
        launch: (leaf.operators.length * costs.operatorLaunchUs) / 1000,
      },
    },
  };
}
