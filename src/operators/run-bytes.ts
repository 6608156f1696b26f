/** How much memory a run of a model takes beside its weights, by the shapes of its graph. */
import { elementBits, Graph, trialShapes, type ModelProto, type OpenInput } from '../onnx/index.ts';
import { inferShapes } from './shapes/index.ts';

/** Of an element whose type the file does not tell. */
const bitsUsual = 32;
/**
 * ONNX Runtime takes the results of its first run one by one, and for the second a block that it has planned by them.
 * What fusion leaves out is made up for by what kernels take for themselves.
 */
const blocksPerRun = 2;

/**
 * What an instance's arena keeps after runs of one row: the most bytes of results that are alive at once, as often as
 * ONNX Runtime takes them. 0 where no shape can be inferred; open sizes are guessed.
 */
export function runBytesOf(model: ModelProto, inputs: readonly OpenInput[]): number {
  const graph = new Graph(model);
  const sizes = new Map(
    trialShapes(inputs)[0].map(({ name, shape }) => [name, { elementType: graph.types.get(name)?.elementType, shape }]),
  );
  const { values } = inferShapes(new Graph(model, sizes));
  const bytesOf = (value: string): number => {
    const dims = values.get(value)?.dims;
    if (dims === undefined || graph.weight(value) !== undefined) return 0;
    const bits = elementBits(graph.types.get(value)?.elementType ?? 0) ?? bitsUsual;
    return (dims.reduce((count, size) => count * size, 1) * bits) / 8;
  };
  const lastUse = new Map<string, number>();
  for (const [at, { uses }] of graph.nodes.entries()) for (const value of uses) lastUse.set(value, at);
  for (const output of graph.outputs) lastUse.set(output, graph.nodes.length);
  const endsAt = new Map<number, number>();
  let [bytes, mostBytes] = [0, 0];
  for (const [at, { outputs }] of graph.nodes.entries()) {
    for (const output of outputs) {
      const own = bytesOf(output);
      const end = lastUse.get(output) ?? at;
      bytes += own;
      endsAt.set(end, (endsAt.get(end) ?? 0) + own);
    }
    mostBytes = Math.max(mostBytes, bytes);
    bytes -= endsAt.get(at) ?? 0;
  }
  return Math.ceil(blocksPerRun * mostBytes);
}
