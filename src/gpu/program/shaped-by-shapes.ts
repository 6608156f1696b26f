/** Which results have a shape that follows from the inputs' shapes alone, whatever their elements are. */
import { byNames, namesIn } from '../../tools/index.ts';
import type { Graph, GraphNode } from '../../onnx/index.ts';
import type { InferredShapes } from '../../profile/index.ts';

/** How large the result is depends on elements of any input, on a condition, or on what a sequence holds. */
const neverByShapes = namesIn(
  `BeamSearch Compress ConcatFromSequence GreedySearch If ImageDecoder Loop NonMaxSuppression NonZero Optional
    OptionalGetElement RemovePadding Sampling Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SequenceMap SplitToSequence StringSplit Tokenizer Unique WhisperBeamSearch`,
);

/** From which input on the elements are sizes, axes or counts, which have to be constant for the shape to be known. */
const argumentsFrom = byNames<number>([
  ['BlackmanWindow ConstantOfShape HammingWindow HannWindow MelWeightMatrix Range', 0],
  [
    `AffineGrid CenterCropPad Col2Im CropAndResize DFT Expand ExpandDims OneHot Pad ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Reshape Resize STFT Slice Split
    Squeeze Tile TopK Unsqueeze Upsample`,
    1,
  ],
  ['MaxUnpool', 2],
  // How long the longest sequence is decides how long the cache becomes.
  ['GroupQueryAttention', 6],
]);

/** Behind those, the elements of some are data all the same: a window, what fills a tensor up. */
const dataBehind = byNames<number>([['STFT Pad OneHot', 2]]);

/** The inputs whose elements decide the shape. */
export const argumentsOf = (opType: string, input: readonly string[]): readonly string[] =>
  input.filter((_, place) => place >= (argumentsFrom.get(opType) ?? input.length) && place !== dataBehind.get(opType));

const isConstant = (graph: Graph, values: InferredShapes['values'], value: string): boolean =>
  value === '' || graph.weight(value) !== undefined || values.get(value)?.ints !== undefined;

/** Why the shape of a node's result is not known before a run. */
export function whyShapeless(graph: Graph, { values }: InferredShapes, { proto, uses }: GraphNode): string {
  const { opType, input } = proto;
  const taken = uses.find((value) => graph.producer(value) !== undefined && !values.has(value));
  if (taken !== undefined) return `it takes '${taken}', whose shape is not known before a run`;
  if (opType === 'Loop') return 'how often it runs follows from data';
  if (neverByShapes.has(opType)) return 'the shape of its result depends on data';
  const open = argumentsOf(opType, input).find((value) => !isConstant(graph, values, value));
  if (open !== undefined && graph.inputs.includes(open))
    return `the shape of its result follows from the values of the input '${open}', which a call brings`;
  if (open !== undefined) return `the shape of its result follows from '${open}', which is computed at run time`;
  return 'ONNX Runtime does not tell the shape of its result';
}

/**
 * Of the nodes whose shapes no rule gives, those for which one run tells them for good. What takes a value of an
 * unknown shape has one itself.
 */
export function shapedByShapes(graph: Graph, { values, unknown }: InferredShapes): readonly GraphNode[] {
  const missing = new Set(unknown);
  const open = new Set<string>();
  const found: GraphNode[] = [];
  for (const node of graph.nodes) {
    if (!missing.has(node.name)) continue;
    const { opType, input } = node.proto;
    const isOpen =
      neverByShapes.has(opType) ||
      node.uses.some((value) => open.has(value)) ||
      !argumentsOf(opType, input).every((value) => isConstant(graph, values, value));
    if (!isOpen) found.push(node);
    else for (const value of node.outputs) open.add(value);
  }
  return found;
}
