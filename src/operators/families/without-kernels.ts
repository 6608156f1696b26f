/** Operators that run on the CPU alone: sequences, control flow, texts, and what is folded before a run. */
import { ElementType } from '../../onnx/index.ts';
import { always, each, ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import { is, like, named, ofBody, unknown, type ResultType } from '../result-types.ts';
import * as shapes from '../shapes/rules.ts';

const unfollowed: OperatorFacts = { ...ordinary, shapes: 'run', rows: 'unknown' };
const byElements: OperatorFacts = { ...unfollowed, shapes: 'elements' };
/** Everything that their result holds follows from few arguments. */
const noTensor: OperatorFacts = { ...byElements, types: [unknown] };
/** Everything that their result holds follows from few arguments. */
const made = { ...unfollowed, arguments: sizedFrom(0) };
const int64 = is(ElementType.INT64);
const float = is(ElementType.FLOAT);
/** The attribute of operators that make numbers out of none. */
const drawn = (otherwise: ResultType): OperatorFacts => ({ ...unfollowed, types: [named('dtype', otherwise)] });
const signalWindow: OperatorFacts = { ...made, types: [named('output_datatype', float)], shapes: shapes.window };

export const withoutKernels = {
  Shape: { ...unfollowed, types: [int64], shapes: shapes.shapeOf, leaf: 'free', arithmetic: 'shape' },
  Size: { ...unfollowed, types: [int64], shapes: shapes.size, leaf: 'free', arithmetic: 'shape' },
  Constant: { ...unfollowed, leaf: 'free' },
  CastLike: { ...unfollowed, types: [like(1)], shapes: shapes.same },
  ...each('RandomNormal RandomUniform', drawn(float)),
  ...each('RandomNormalLike RandomUniformLike', drawn(like(0))),
  Multinomial: drawn(is(ElementType.INT32)),
  Bernoulli: { ...drawn(like(0)), shapes: shapes.sameAsFirst },
  ...each('NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss', { ...unfollowed, shapes: shapes.loss }),
  ...each('BlackmanWindow HammingWindow HannWindow', signalWindow),
  MelWeightMatrix: { ...signalWindow, shapes: shapes.melWeightMatrix },
  ...each('CenterCropPad CropAndResize ExpandDims', { ...unfollowed, arguments: sizedFrom(1) }),
  ...each('Compress Tokenizer RemovePadding', byElements),
  StringSplit: { ...byElements, types: [is(ElementType.STRING), int64] },
  If: { ...byElements, types: [ofBody('then_branch')] },
  ...each('NonMaxSuppression NonZero', { ...byElements, types: [int64], jumps: always }),
  Unique: { ...byElements, types: [like(0), int64], jumps: always },
  // The first result of its body is its condition.
  Loop: { ...byElements, types: [ofBody('body', 1)], layer: 'recurrent' },
  Scan: { ...byElements, types: [ofBody('body')], layer: 'recurrent' },
  SequenceLength: { ...byElements, types: [int64] },
  ...each('SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceMap', noTensor),
  ...each('SplitToSequence ConcatFromSequence Optional OptionalGetElement OptionalHasElement', noTensor),
  ...each('ImageDecoder TfIdfVectorizer', noTensor),
  ...each('BeamSearch GreedySearch Sampling WhisperBeamSearch', byElements),
  'com.microsoft.NhwcConv': { ...unfollowed, layer: 'conv' },
  ...each('com.microsoft.GroupNorm com.microsoft.SkipGroupNorm', { ...unfollowed, layer: 'norm' }),
  'com.microsoft.DynamicQuantizeLSTM': { ...unfollowed, layer: 'recurrent' },
} satisfies Record<string, OperatorFacts>;
