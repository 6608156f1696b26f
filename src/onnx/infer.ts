/**
 * Infers element types that the file does not give. Exports often leave `value_info` out, and a cut through a value
 * needs at least its element type. Shapes are not inferred: a run of ONNX Runtime finds those exactly.
 */
import { byNames, namesIn } from '../tools/index.ts';
import type { GraphNode, ValueType } from './graph-node.ts';
import { attributeOf } from './node-attributes.ts';
import { isDefaultDomain } from './opset.ts';
import { ElementType, type NodeProto } from './types.ts';

const int64 = ElementType.INT64;
const bool = ElementType.BOOL;

/** Operators whose outputs have a fixed type for any input; the last entry is for all further outputs. */
const fixed = byNames<readonly (ElementType | 'first')[]>([
  ['And Equal Greater GreaterOrEqual IsInf IsNaN Less LessOrEqual Not Or Xor', [bool]],
  ['ArgMax ArgMin NonMaxSuppression NonZero SequenceLength Shape Size', [int64]],
  ['ConvInteger MatMulInteger MatMulInteger16', [ElementType.INT32]],
  ['MatMulIntegerToFloat QAttention', [ElementType.FLOAT]],
  ['StringSplit', [ElementType.STRING, int64]],
  ['Unique TopK MaxPool', ['first', int64]],
  ['Dropout', ['first', bool]],
  // Means and deviations are computed in 32 bits, whatever the type of the input.
  ['LayerNormalization', ['first', ElementType.FLOAT]],
  ['DynamicQuantizeLinear', [ElementType.UINT8, ElementType.FLOAT, ElementType.UINT8]],
]);

/** Operators whose outputs have the type of an input other than the first. */
const likeInput: Readonly<Record<string, number>> = {
  Where: 1,
  OneHot: 2,
  DequantizeLinear: 1,
  QLinearConcat: 1,
  QLinearConv: 7,
  QLinearMatMul: 7,
  QLinearWhere: 1,
  EmbedLayerNormalization: 2,
  GatherBlockQuantized: 2,
  // com.microsoft: the type of the activations, which are the first input; listed to be explicit
  MatMulNBits: 0,
};

/** Operators that may name the type in an attribute. */
const namedType = byNames<{ readonly attribute: string; readonly otherwise: ElementType | 'first' }>([
  ['RandomNormal RandomUniform', { attribute: 'dtype', otherwise: ElementType.FLOAT }],
  ['EyeLike RandomNormalLike RandomUniformLike Bernoulli', { attribute: 'dtype', otherwise: 'first' }],
  ['Multinomial', { attribute: 'dtype', otherwise: ElementType.INT32 }],
  [
    'BlackmanWindow HannWindow HammingWindow MelWeightMatrix',
    { attribute: 'output_datatype', otherwise: ElementType.FLOAT },
  ],
]);

/** Operators without a rule for the type, mostly those of sequences. */
const unknown = namesIn(
  `SequenceConstruct SequenceEmpty SequenceAt SequenceInsert SequenceErase SequenceMap SplitToSequence
  ConcatFromSequence Optional OptionalGetElement OptionalHasElement ImageDecoder TfIdfVectorizer LabelEncoder ZipMap`,
);

/** Control flow: the body's output behind an output, as an offset into the body's outputs. */
const bodyOutput: Readonly<Record<string, { readonly body: string; readonly offset: number }>> = {
  If: { body: 'then_branch', offset: 0 },
  // the first output of a Loop's body is its condition
  Loop: { body: 'body', offset: 1 },
  Scan: { body: 'body', offset: 0 },
};

function outputType(
  node: NodeProto,
  output: number,
  inputType: (place: number) => number | undefined,
): number | undefined {
  const { opType } = node;
  if (unknown.has(opType)) return undefined;
  // The number of words; the third output is the sum of the embeddings.
  if (opType === 'EmbedLayerNormalization' && output === 1) return ElementType.INT32;
  const control = bodyOutput[opType];
  if (control !== undefined) {
    const body = node.attribute.find(({ name }) => name === control.body)?.g;
    return body?.output[output + control.offset]?.type?.tensorType?.elemType || undefined;
  }
  if (opType === 'Cast' || opType === 'BitCast') return attributeOf(node, 'to', 0) || undefined;
  // Without an output scale the result is not quantised.
  if (opType === 'QGemm') return inputType(8) ?? ElementType.FLOAT;
  if (opType === 'CastLike') return inputType(1);
  if (opType === 'ConstantOfShape') {
    return node.attribute.find(({ name }) => name === 'value')?.t?.dataType ?? ElementType.FLOAT;
  }
  if (opType === 'QuantizeLinear') {
    return attributeOf(node, 'output_dtype', 0) || (inputType(2) ?? ElementType.UINT8);
  }
  const named = namedType.get(opType);
  if (named !== undefined) {
    return (
      attributeOf(node, named.attribute, (named.otherwise === 'first' ? inputType(0) : named.otherwise) ?? 0) ||
      undefined
    );
  }
  const rule = fixed.get(opType);
  if (rule !== undefined) {
    const type = rule[Math.min(output, rule.length - 1)];
    return type === 'first' ? inputType(0) : type;
  }
  return inputType(likeInput[opType] ?? 0);
}

/**
 * Adds inferred element types to `types`; existing ones stay. Each of `nodes` comes after the nodes whose values it
 * takes. Operators outside of ai.onnx and com.microsoft are skipped.
 */
export function inferElementTypes(nodes: readonly GraphNode[], types: Map<string, ValueType>): void {
  for (const { proto } of nodes) {
    if (!isDefaultDomain(proto.domain) && proto.domain !== 'com.microsoft') continue;
    const inputType = (place: number): number | undefined => types.get(proto.input[place] ?? '')?.elementType;
    for (const [place, name] of proto.output.entries()) {
      if (name === '') continue;
      const known = types.get(name);
      if (known?.elementType !== undefined) continue;
      const elementType = outputType(proto, place, inputType);
      if (elementType !== undefined) types.set(name, { elementType, shape: known?.shape });
    }
  }
}
