/** Which results have a shape that follows from the inputs' shapes alone, whatever their elements are. */
import type { Graph, GraphNode } from '../../onnx/index.ts';
import type { InferredShapes } from '../../profile/index.ts';

const words = (text: string): readonly string[] => text.split(/\s+/);

/** How large the result is depends on elements of any input, on a condition, or on what a sequence holds. */
const neverByShapes = new Set(
  words(
    `BeamSearch Compress ConcatFromSequence GreedySearch If ImageDecoder Loop NonMaxSuppression NonZero Optional
    OptionalGetElement RemovePadding Sampling Scan SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert
    SequenceLength SequenceMap SplitToSequence StringSplit Tokenizer Unique WhisperBeamSearch`,
  ),
);

/** From which input on the elements are sizes, axes or counts, which have to be constant for the shape to be known. */
const argumentsFrom = new Map<string, number>([
  ...words('BlackmanWindow ConstantOfShape HammingWindow HannWindow MelWeightMatrix Range').map(
    (type) => [type, 0] as const,
  ),
  ...words(
    `AffineGrid CenterCropPad Col2Im CropAndResize DFT Expand ExpandDims MaxUnpool OneHot Pad ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Reshape Resize STFT Slice Split
    Squeeze Tile TopK Unsqueeze Upsample`,
  ).map((type) => [type, 1] as const),
]);

/**
 * Of the nodes whose shapes no rule gives, those for which one run tells them for good. What takes a value of an unknown
 * shape has one itself.
 */
export function shapedByShapes(graph: Graph, { values, unknown }: InferredShapes): readonly GraphNode[] {
  const missing = new Set(unknown);
  const open = new Set<string>();
  const isConstant = (value: string): boolean =>
    value === '' || graph.weight(value) !== undefined || values.get(value)?.ints !== undefined;
  const found: GraphNode[] = [];
  for (const node of graph.nodes) {
    if (!missing.has(node.name)) continue;
    const { opType, input } = node.proto;
    const isOpen =
      neverByShapes.has(opType) ||
      node.uses.some((value) => open.has(value)) ||
      !input.slice(argumentsFrom.get(opType) ?? input.length).every(isConstant);
    if (!isOpen) found.push(node);
    else for (const value of node.outputs) open.add(value);
  }
  return found;
}
