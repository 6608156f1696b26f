/**
 * Undoes casts that ONNX Runtime inserts. It has few CPU kernels for 16-bit floats, so it casts to 32 bits before other
 * nodes and back behind them, and drops pairs of casts that meet. A GPU computes in 16 bits, so each node gets back the
 * types that it has in the model.
 *
 * A node that was promoted to 32 bits is recognised by the names that ONNX Runtime gives to its results. Its inputs had
 * 16 bits as well. If a cast of the model met an inserted one and both were dropped, the node reads a 32-bit value
 * directly, and the model's cast is put back:
 *
 *     model          x32 > Cast > x16 > MatMul > y16
 *     ONNX Runtime   x32 > MatMul > Inserted_y32 > Cast > y16
 *     here           x32 > Cast > MatMul > y16
 */
import { capturedBy, ElementType, nodeProto, type ModelProto, type NodeProto } from '../../onnx/index.ts';
import { factsOf } from '../../operators/index.ts';

const prefix = 'InsertedPrecisionFreeCast_';

/** Operators that may have 32-bit inputs and 16-bit results. */
const isMixed = (proto: NodeProto): boolean => proto.domain !== '' || factsOf(proto)?.mixesPrecisions === true;

const isInserted = ({ opType, name }: NodeProto): boolean => opType === 'Cast' && name.startsWith(prefix);

export const hasInsertedCasts = ({ graph }: ModelProto): boolean => graph.node.some((node) => isInserted(node));

const cast = (from: string, to: string, elementType: number): NodeProto =>
  nodeProto('Cast', [from], [to], { to: elementType }, { name: `Cast ${to}` });

/**
 * The model without inserted casts, except those that cannot be distinguished from the model's own.
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
  /** For results of inserted casts to 32 bits, the 16-bit value before. */
  const raised = new Map<string, string>();
  for (const node of graph.node) {
    const [to = ''] = node.output;
    if (isInserted(node) && to.startsWith(prefix)) raised.set(to, node.input[0] ?? '');
  }
  const captured = new Set(graph.node.flatMap((node) => capturedBy(node)));
  const isPromoted = (proto: NodeProto): boolean => {
    const { input, output } = proto;
    if (!output.some((value) => value.startsWith(prefix)) || output.some((value) => captured.has(value))) return false;
    if (!input.every((value) => value === '' || isKnown(value))) return false;
    if (!isMixed(proto)) return true;
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
    // The cast stands before the first node that reads it.
    if (!made.has(to)) node.push(cast(value, to, elementType));
    made.add(to);
    return to;
  };
  const taken = (each: NodeProto, value: string): string => {
    if (promoted.has(each)) {
      const before = raised.get(value);
      if (before !== undefined) return nameOf(before);
      if (half.has(value)) return nameOf(value);
      return isFloat(value) && !isMixed(each) ? converted(value, ElementType.FLOAT16) : value;
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
