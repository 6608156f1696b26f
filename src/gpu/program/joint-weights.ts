/**
 * Weights that one batch of products reads. A transformer multiplies one input by the matrices of Q, K and V: if these
 * are at equal distances, the three products are one batch. So all three are in the layer of the first and load with
 * it:
 *
 *     layer   query                        key   value
 *     holds   Wq Wk Wv bias-q bias-k bias-v  -     -
 *
 * They depend on the model alone, so the layout is the same for all input shapes. fusion/joint-products.ts makes the
 * batch.
 */
import { append } from '../../tools/index.ts';
import { attributeOf, ElementType, type Graph, type GraphNode, type Weight } from '../../onnx/index.ts';
import { factsOf } from '../../operators/index.ts';
import { isFrontierKept, isWeight } from './weights.ts';

/** Names in the order of the layout: the matrices, then the biases. */
export type JointWeights = ReturnType<typeof together>;

/** Larger products fill a GPU alone, and should start before the weights of the next one have arrived. */
const bytesMax = 64 * 2 ** 20;
/** At most one other layer between two of them: a K without a bias between Q and V with one. */
const layersApartMax = 2;

const elementTypes = new Set<number>([ElementType.FLOAT, ElementType.FLOAT16, ElementType.BFLOAT16]);

interface Member {
  readonly layer: number;
  readonly matrix: Weight;
  readonly bias: Weight | undefined;
}

/**
 * @param layerOf the layer of each weight
 * @param alias for each result of an Identity, the value that it copies
 */
export function jointWeights(
  graph: Graph,
  layerOf: ReadonlyMap<Weight, number>,
  alias: ReadonlyMap<string, string>,
): JointWeights[] {
  const weightOf = (value: string | undefined): Weight | undefined => {
    const weight = graph.weight(alias.get(value ?? '') ?? value ?? '');
    return weight !== undefined && isWeight(weight) ? weight : undefined;
  };
  const taken = new Set<Weight>();
  const groups = new Map<string, Member[]>();
  for (const node of graph.nodes) {
    const found = memberOf(graph, node, weightOf, layerOf);
    if (found === undefined) continue;
    const { member, form } = found;
    const own = [member.matrix, ...(member.bias === undefined ? [] : [member.bias])];
    if (own.some((weight) => taken.has(weight))) continue;
    for (const weight of own) taken.add(weight);
    const input = node.proto.input[0] ?? '';
    const key = [alias.get(input) ?? input, form].join(' ');
    append(groups, key, member);
  }
  return [...groups.values()].flatMap((members) => runs(members)).map(together);
}

function memberOf(
  graph: Graph,
  { proto, outputs, constant }: GraphNode,
  weightOf: (value: string | undefined) => Weight | undefined,
  layerOf: ReadonlyMap<Weight, number>,
): { readonly member: Member; readonly form: string } | undefined {
  const form = factsOf(proto)?.matrices;
  const [output] = outputs;
  if (form === undefined || constant || output === undefined) return undefined;
  const transposed = graph.producer(proto.input[1] ?? '');
  const isTransposed = transposed?.proto.opType === 'Transpose' && isFrontierKept(graph, transposed);
  const matrix = weightOf(isTransposed ? transposed.proto.input[0] : proto.input[1]);
  const layer = matrix === undefined ? undefined : layerOf.get(matrix);
  if (matrix === undefined || layer === undefined) return undefined;
  if (matrix.dims.length !== 2 || !elementTypes.has(matrix.elementType)) return undefined;
  let added = proto.input[2];
  if (form === 'plain') {
    const users = graph.consumers(output);
    const [user] = users;
    if (users.length === 1 && user?.proto.opType === 'Add') added = user.proto.input.find((value) => value !== output);
  }
  const bias = weightOf(added);
  if (bias !== undefined && (bias.dims.length !== 1 || bias.elementType !== matrix.elementType)) return undefined;
  if (bias !== undefined && layerOf.get(bias) !== layer) return undefined;
  const factors = [attributeOf(proto, 'alpha', 1), attributeOf(proto, 'beta', 1)];
  const transposes = [attributeOf(proto, 'transA', 0), attributeOf(proto, 'transB', 0)];
  const parts = [form, isTransposed, matrix.dims, matrix.elementType, bias?.dims ?? 'no bias', factors, transposes];
  return { member: { layer, matrix, bias }, form: JSON.stringify(parts) };
}

const bytesOf = ({ matrix }: Member): number =>
  matrix.elementCount * (matrix.elementType === ElementType.FLOAT ? 4 : 2);

/** Runs of at least two members whose layers are close together and whose matrices are small enough. */
function runs(members: readonly Member[]): Member[][] {
  const found: Member[][] = [];
  for (const member of members.toSorted((a, b) => a.layer - b.layer)) {
    const run = found.at(-1);
    const last = run?.at(-1);
    const fits = last !== undefined && member.layer - last.layer <= layersApartMax;
    if (run !== undefined && fits && (run.length + 1) * bytesOf(member) <= bytesMax) run.push(member);
    else found.push([member]);
  }
  return found.filter(({ length }) => length > 1);
}

const together = (members: readonly Member[]) => ({
  layer: members[0]!.layer,
  names: [
    ...members.map(({ matrix }) => matrix.name),
    ...members.flatMap(({ bias }) => (bias === undefined ? [] : [bias.name])),
  ],
});
