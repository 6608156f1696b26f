/** Estimates the memory that a run of a model takes in addition to its weights, from the shapes of its graph. */
import { elementBits, Graph, trialShapes, type ModelProto, type OpenInput } from '../onnx/index.ts';
import { typedGraph } from './typed-graph.ts';
import { inferShapes } from './shapes/index.ts';

/** Assumed for an element whose type the file does not state. */
const defaultBits = 32;
/**
 * ONNX Runtime's arena allocates the results of its first run one by one. For the second run it allocates one block
 * that holds all of them, and keeps both. Fused operators save some results; the kernels' own scratch memory, which is
 * not counted here, is about as large.
 */
const blocksPerRun = 2;

/**
 * Bytes that an instance's arena keeps after runs of one row: the largest sum of results that are alive at once, times
 * {@link blocksPerRun}. 0 where no shape can be inferred; open sizes are guessed.
 */
export function runBytesOf(model: ModelProto, inputs: readonly OpenInput[]): number {
  const graph = typedGraph(model);
  const sizes = new Map(
    trialShapes(inputs)[0].map(({ name, shape }) => [name, { elementType: graph.types.get(name)?.elementType, shape }]),
  );
  const { values } = inferShapes(new Graph(model, sizes));
  const bytesOf = (name: string): number => {
    const dims = values.get(name)?.dims;
    if (dims === undefined || graph.weight(name) !== undefined) return 0;
    const bits = elementBits(graph.types.get(name)?.elementType ?? 0) ?? defaultBits;
    return (dims.reduce((count, size) => count * size, 1) * bits) / 8;
  };
  const lastUse = new Map<string, number>();
  for (const [node, { uses }] of graph.nodes.entries()) for (const name of uses) lastUse.set(name, node);
  for (const output of graph.outputs) lastUse.set(output, graph.nodes.length);
  /** Bytes of the results whose last use is a node, by the node's index. */
  const freedAfter = new Map<number, number>();
  let [aliveBytes, mostBytes] = [0, 0];
  for (const [node, { outputs }] of graph.nodes.entries()) {
    for (const output of outputs) {
      const bytes = bytesOf(output);
      const end = lastUse.get(output) ?? node;
      aliveBytes += bytes;
      freedAfter.set(end, (freedAfter.get(end) ?? 0) + bytes);
    }
    mostBytes = Math.max(mostBytes, aliveBytes);
    aliveBytes -= freedAfter.get(node) ?? 0;
  }
  return Math.ceil(blocksPerRun * mostBytes);
}
