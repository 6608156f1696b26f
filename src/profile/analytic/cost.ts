/**
 * The cost of a node on a GPU, from its shapes: arithmetic over the rate of its kind, plus memory traffic over the
 * memory's bandwidth, plus a fixed time for each kernel. Also how many bytes it reads over PCIe if its weights stay in
 * host memory; these rules follow the PCIe event counts of DeepPlan (Jeong et al. 2023), section 3.1 and Table 1.
 */
import type { CostConstants, MachineGpu } from '../../hardware/index.ts';
import { attributeOf, type Graph, type GraphNode, type Weight } from '../../onnx/index.ts';
import { elementCount } from '../../tensor/index.ts';
import { factsOf, type Dims, type InferredShapes } from '../../operators/index.ts';

export interface NodeContext {
  readonly graph: Graph;
  readonly shapes: InferredShapes;
  readonly gpu: MachineGpu;
  readonly costs: CostConstants;
}

export interface WeightContext extends NodeContext {
  /** Bytes of a weight where it is kept and moved. */
  readonly weightBytes: (weight: Weight) => number;
}

/** Bytes of an element: everything but weights is taken for FP32, as are the activations of the served models. */
const elementBytes = 4;

const dimsOf = ({ graph, shapes }: NodeContext, value: string | undefined): Dims => {
  if (value === undefined || value === '') return [0];
  return shapes.values.get(value)?.dims ?? graph.weight(value)?.dims ?? [0];
};

/** Rows of a matrix product's left operand: every dimension but the last. */
const rowsOf = (dims: Dims): number => elementCount(dims.slice(0, -1));

/** Bytes of GPU memory that a node reads and writes. */
function trafficBytes(context: NodeContext, node: GraphNode): number {
  let elements = 0;
  for (const value of node.uses) elements += elementCount(dimsOf(context, value));
  for (const value of node.outputs) elements += elementCount(dimsOf(context, value));
  return elements * elementBytes;
}

const costOf = ({ proto }: GraphNode) => factsOf(proto)?.cost ?? 'traffic';

const compute = (operations: number, tflops: number): number => operations / (tflops * 1e9);

/** Milliseconds on the GPU for one node with all its data in GPU memory. */
export function gpuMs(context: NodeContext, node: GraphNode): number {
  const { gpu } = context;
  const { proto } = node;
  const move = (bytes: number) => bytes / (gpu.memoryGBps * 1e6);
  const kernel = gpu.kernelUs / 1000;
  const output = dimsOf(context, node.outputs[0]);
  const a = dimsOf(context, proto.input[0]);
  const b = dimsOf(context, proto.input[1]);
  switch (costOf(node)) {
    case 'product': {
      const depth = a.at(attributeOf(proto, 'transA', 0) === 1 ? -2 : -1) ?? 1;
      const operations = 2 * elementCount(output) * depth;
      const batched = b.length > 2;
      const rate = batched ? gpu.batchedGemmTflops : gpu.gemmTflops;
      return Math.max(compute(operations, rate), move(trafficBytes(context, node))) + kernel;
    }
    case 'convolution': {
      const weight = b;
      const operations = 2 * elementCount(output) * elementCount(weight.slice(1));
      const rate = gpu.gemmTflops * gpu.convolutionShare * fill(output, gpu);
      return Math.max(compute(operations, rate), move(trafficBytes(context, node))) + kernel;
    }
    case 'recurrence': {
      const [steps = 1, batch = 1] = a;
      const weights = elementCount(b) + elementCount(dimsOf(context, proto.input[2]));
      // One product and one element-wise kernel per step; each step reads the weights again.
      return (
        compute(2 * weights * batch * steps, gpu.gemmTflops) +
        move(weights * elementBytes * steps + trafficBytes(context, node)) +
        2 * steps * kernel
      );
    }
    case 'lookup':
      return move(2 * elementCount(output) * elementBytes) + kernel;
    case 'channel-normalization':
    case 'traffic':
      return move(trafficBytes(context, node)) + kernel;
  }
}

/** Share of the multiprocessors that a convolution keeps busy: one tile of 64 x 64 outputs for each, at least 35%. */
function fill(output: Dims, { multiprocessors }: MachineGpu): number {
  const channels = output[1] ?? 1;
  const pixels = elementCount(output) / Math.max(1, channels);
  const tiles = Math.ceil(pixels / 64) * Math.ceil(channels / 64);
  return Math.min(1, Math.max(0.35, tiles / multiprocessors));
}

/** PCIe reads of a node's weights. */
export interface HostRead {
  readonly bytes: number;
  readonly linkGBps: number;
}

/** PCIe reads of a node whose weights stay in host memory; `weights` are its leaf's, or shared with an earlier leaf. */
export function hostRead(context: WeightContext, node: GraphNode, weights: readonly Weight[]): HostRead {
  const constants = context.costs.hostRead;
  const { proto } = node;
  const output = dimsOf(context, node.outputs[0]);
  const bytes = weights.reduce((sum, weight) => sum + context.weightBytes(weight), 0);
  const plain = (passes: number): HostRead => ({ bytes: bytes * passes, linkGBps: constants.linkGBps });
  switch (costOf(node)) {
    case 'lookup': {
      const [table] = weights;
      const rows = elementCount(dimsOf(context, proto.input[1]));
      const tableRows = table?.dims[0] ?? 1;
      const rowBytes = (table === undefined ? 0 : context.weightBytes(table)) / Math.max(1, tableRows);
      // Table 1: 384 rows of 3072 bytes are 18,432 reads of 64 bytes; 18,459 were counted.
      const share = tableRows < rows ? constants.repeatedRowsShare : 1;
      return { bytes: rows * rowBytes * share, linkGBps: constants.rowsGBps };
    }
    case 'channel-normalization':
      return { bytes: (output[1] ?? 1) * constants.batchNormBytesPerChannel, linkGBps: constants.batchNormGBps };
    case 'convolution': {
      const kernel = Math.max(...(weights[0]?.dims.slice(2) ?? [1]));
      const pixels = elementCount(output.slice(2));
      if (kernel === 3) {
        const small = Math.max(...output.slice(2)) <= constants.smallOutputSize;
        return plain(small ? constants.convolution3x3PassesSmall : constants.convolution3x3Passes);
      }
      return plain(Math.max(1, Math.round(pixels / constants.convolutionPixelsPerPass)));
    }
    case 'recurrence': {
      const [steps = 1, batch = 1] = dimsOf(context, proto.input[0]);
      return plain(steps * Math.ceil(batch / constants.gemmRowsPerPass));
    }
    case 'product':
      // Table 1: 446,276 reads against 36,920 of a copy are 12.1 passes for 384 rows.
      return plain(Math.ceil(rowsOf(output) / constants.gemmRowsPerPass));
    case 'traffic':
      // A scale or a bias is read for every element of the input that it is applied to.
      return { bytes: bytes * rowsOf(output), linkGBps: constants.linkGBps };
  }
}
