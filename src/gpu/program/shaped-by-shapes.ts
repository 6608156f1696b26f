/** Which results have a shape that follows from the shapes of the inputs alone, not from their elements. */
import { byNames, namesIn } from '../../tools/index.ts';
import type { Graph, GraphNode } from '../../onnx/index.ts';
import type { InferredShapes } from '../../profile/index.ts';

/** Operators whose result's shape depends on elements, on a condition, or on the content of a sequence. */
const neverByShapes = namesIn(
  `BeamSearch Compress ConcatFromSequence GreedySearch If ImageDecoder Loop NonMaxSuppression NonZero Optional
    OptionalGetElement RemovePadding Sampling Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SequenceMap SplitToSequence StringSplit Tokenizer Unique WhisperBeamSearch`,
);

/** The first input that holds sizes, axes or counts. From it on, inputs must be constant for the shape to be known. */
const argumentsFrom = byNames<number>([
  ['BlackmanWindow ConstantOfShape HammingWindow HannWindow MelWeightMatrix Range', 0],
  [
    `AffineGrid CenterCropPad Col2Im CropAndResize DFT Expand ExpandDims OneHot Pad ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Reshape Resize STFT Slice Split
    Squeeze Tile TopK Unsqueeze Upsample`,
    1,
  ],
  ['MaxUnpool', 2],
  // The length of the longest sequence decides the length of the cache.
  ['GroupQueryAttention', 6],
]);

/** An input behind them that is data: STFT's window, the values of Pad and OneHot. */
const dataBehind = byNames<number>([['STFT Pad OneHot', 2]]);

/** Inputs whose elements decide the shape of the result. */
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

/** Nodes without a shape rule whose result has the same shape in every run, so that one run on zeros tells it. */
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
