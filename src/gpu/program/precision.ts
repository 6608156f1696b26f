/**
 * ONNX Runtime has few kernels for 16-bit floats on the CPU. Around every other node it inserts casts to 32 bits and
 * back, and drops pairs of casts that meet. A GPU computes in 16 bits, so the casts go again, and each node gets back
 * the types that it has in the model.
 *
 * A node that was promoted to 32 bits is told by its results: ONNX Runtime gives them a name of its own. What such a
 * node takes was of 16 bits too. Where a cast of the model met an inserted one and both were dropped, the node now
 * reads a value of 32 bits directly, and the model's cast is put back:
 *
 *     model          x32 > Cast > x16 > MatMul > y16
 *     ONNX Runtime   x32 > MatMul > Inserted_y32 > Cast > y16
 *     here           x32 > Cast > MatMul > y16
 */
import { namesIn } from '../../tools/index.ts';
import { AttributeType, capturedBy, ElementType, type ModelProto, type NodeProto } from '../../onnx/index.ts';

const prefix = 'InsertedPrecisionFreeCast_';

/** Whose inputs may be of 32 bits beside results of 16. */
const mixed = namesIn(`BatchNormalization DequantizeLinear LayerNormalization QuantizeLinear Resize RMSNormalization
  SimplifiedLayerNormalization Upsample`);

const isInserted = ({ opType, name }: NodeProto): boolean => opType === 'Cast' && name.startsWith(prefix);

export const hasInsertedCasts = ({ graph }: ModelProto): boolean => graph.node.some((node) => isInserted(node));

function cast(from: string, to: string, elementType: number): NodeProto {
  const attribute = [{ name: 'to', type: AttributeType.INT, i: BigInt(elementType) }];
  return { name: `Cast ${to}`, opType: 'Cast', domain: '', input: [from], output: [to], attribute };
}

/**
 * The model in the precision that it was written in. What cannot be told apart keeps its casts.
 *
 * @param elementTypes of the values of `model`
 */
export function withoutInsertedCasts(
  model: ModelProto,
  elementTypes: ReadonlyMap<string, { readonly elementType: number | undefined }>,
): ModelProto {
  const { graph } = model;
  const isFloat = (value: string): boolean => elementTypes.get(value)?.elementType === ElementType.FLOAT;
  const isKnown = (value: string): boolean => elementTypes.get(value)?.elementType !== undefined;
  /** Results of casts to 32 bits: the value of 16 bits before. */
  const raised = new Map<string, string>();
  for (const node of graph.node) {
    const [to = ''] = node.output;
    if (isInserted(node) && to.startsWith(prefix)) raised.set(to, node.input[0] ?? '');
  }
  const captured = new Set(graph.node.flatMap((node) => capturedBy(node)));
  const isPromoted = ({ opType, domain, input, output }: NodeProto): boolean => {
    if (!output.some((value) => value.startsWith(prefix)) || output.some((value) => captured.has(value))) return false;
    if (!input.every((value) => value === '' || isKnown(value))) return false;
    if (domain === '' && !mixed.has(opType)) return true;
    return input.every((value) => !isFloat(value) || raised.has(value) || value.startsWith(prefix));
  };
  const promoted = new Set(graph.node.filter((node) => !isInserted(node) && isPromoted(node)));
  const half = new Set([...promoted].flatMap(({ output }) => output.filter((value) => value.startsWith(prefix))));

  const names = new Map<string, string>();
  const removed = new Set<NodeProto>();
  for (const node of graph.node) {
    const [from = '', to = ''] = [node.input[0], node.output[0]];
    if (!isInserted(node) || !half.has(from) || names.has(from)) continue;
    names.set(from, to);
    removed.add(node);
  }
  const nameOf = (value: string): string => names.get(value) ?? value;
  const made = new Set<string>();
  const node: NodeProto[] = [];
  const converted = (value: string, elementType: number): string => {
    const to = `${value}~${elementType}`;
    // In front of the first node that takes it: the order of the rest stays.
    if (!made.has(to)) node.push(cast(value, to, elementType));
    made.add(to);
    return to;
  };
  const taken = (each: NodeProto, value: string): string => {
    if (promoted.has(each)) {
      const before = raised.get(value);
      if (before !== undefined) return nameOf(before);
      if (half.has(value)) return nameOf(value);
      const isMixed = each.domain !== '' || mixed.has(each.opType);
      return isFloat(value) && !isMixed ? converted(value, ElementType.FLOAT16) : value;
    }
    if (!half.has(value)) return value;
    return each.opType === 'Cast' ? nameOf(value) : converted(nameOf(value), ElementType.FLOAT);
  };
  for (const each of graph.node) {
    if (removed.has(each)) continue;
    const input = each.input.map((value) => taken(each, value));
    node.push({ ...each, input, output: each.output.map((value) => nameOf(value)) });
  }
  return { ...model, graph: { ...graph, node } };
}
