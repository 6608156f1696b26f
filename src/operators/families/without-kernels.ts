/** Operators that run on the CPU alone: sequences, control flow, texts, and what is folded before a run. */
import { always, each, ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import * as shapes from '../shapes/rules.ts';

const unfollowed: OperatorFacts = { ...ordinary, shapes: 'run', rows: 'unknown' };
const byElements: OperatorFacts = { ...unfollowed, shapes: 'elements' };
/** Everything that their result holds follows from few arguments. */
const made = { ...unfollowed, arguments: sizedFrom(0) };

export const withoutKernels = {
  Shape: { ...unfollowed, shapes: shapes.shapeOf, leaf: 'free', arithmetic: 'shape' },
  Size: { ...unfollowed, shapes: shapes.size, leaf: 'free', arithmetic: 'shape' },
  Constant: { ...unfollowed, leaf: 'free' },
  CastLike: { ...unfollowed, shapes: shapes.same },
  Bernoulli: { ...unfollowed, shapes: shapes.sameAsFirst },
  ...each('NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss', { ...unfollowed, shapes: shapes.loss }),
  ...each('BlackmanWindow HammingWindow HannWindow', { ...made, shapes: shapes.window }),
  MelWeightMatrix: { ...made, shapes: shapes.melWeightMatrix },
  ...each('CenterCropPad CropAndResize ExpandDims', { ...unfollowed, arguments: sizedFrom(1) }),
  ...each('Compress If ImageDecoder StringSplit Tokenizer RemovePadding', byElements),
  ...each('NonMaxSuppression NonZero Unique', { ...byElements, jumps: always }),
  ...each('Loop Scan', { ...byElements, layer: 'recurrent' }),
  ...each(
    'SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap',
    byElements,
  ),
  ...each('SplitToSequence ConcatFromSequence Optional OptionalGetElement', byElements),
  ...each('BeamSearch GreedySearch Sampling WhisperBeamSearch', byElements),
  'com.microsoft.NhwcConv': { ...unfollowed, layer: 'conv' },
  ...each('com.microsoft.GroupNorm com.microsoft.SkipGroupNorm', { ...unfollowed, layer: 'norm' }),
  'com.microsoft.DynamicQuantizeLSTM': { ...unfollowed, layer: 'recurrent' },
} satisfies Record<string, OperatorFacts>;
