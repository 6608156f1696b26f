/**
 * Cuts a graph into what PyTorch calls leaf modules, in execution order: DeepPlan's artifact profiles and plans at this
 * granularity. A layer of `src/onnx` is one leaf with weights; activations and poolings that are modules in PyTorch are
 * leaves without weights; every other operator runs after the leaf before it.
 */
import { isParameter, smallTensor, type Graph, type GraphNode, type Weight } from '../../onnx/index.ts';
import { factsOf, geluAt, layers, type Arithmetic, type InferredShapes, type Layer } from '../../operators/index.ts';
import { scalarOf } from '../../tensor/index.ts';

export interface Leaf {
  readonly name: string;
  readonly kind: string;
  /** The nodes that do the leaf's own work. */
  readonly own: readonly GraphNode[];
  /** Weights that are copied for this leaf. */
  readonly weights: readonly Weight[];
  /** Weights of an earlier leaf, as in a tied output layer. */
  readonly sharedWeights: readonly Weight[];
  /** Operators after the leaf and before the next one. */
  readonly operators: readonly GraphNode[];
}

/** The kind of a leaf without weights; undefined for an operator that is no module. */
function moduleKind({ proto, uses }: GraphNode, produced: ReadonlySet<string>): string | undefined {
  const leaf = factsOf(proto)?.leaf;
  // Elsewhere, inside a GELU, they are arithmetic.
  if (leaf === 'activation-behind-weights') return uses.some((value) => produced.has(value)) ? 'activation' : undefined;
  return leaf === 'activation' || leaf === 'pool' ? leaf : undefined;
}

const kindOf = ({ kind }: Layer, own: readonly GraphNode[]): string => {
  if (kind !== 'norm') return kind;
  return own.some(({ proto }) => factsOf(proto)?.cost === 'channel-normalization') ? 'batch-norm' : 'layer-norm';
};

export function leavesOf(graph: Graph, { values }: InferredShapes): Leaf[] {
  const leaves: Leaf[] = [];
  for (const layer of layers(graph)) {
    const parameters = new Set([...layer.weights, ...layer.shared].filter(isParameter));
    const isOwn = (node: GraphNode) => !node.constant && graph.weightsOf(node).some((weight) => parameters.has(weight));
    const own = layer.nodes.filter(isOwn);
    const ownNodes = new Set(own);
    const produced = new Set(own.flatMap(({ outputs }) => outputs));
    let current: { leaf: Omit<Leaf, 'operators'>; operators: GraphNode[] } | undefined;
    const before: GraphNode[] = [];
    const fused = fusedNodes(graph, layer.nodes);
    const open = (leaf: Omit<Leaf, 'operators'>): void => {
      const operators: GraphNode[] = [];
      leaves.push({ ...leaf, operators });
      current = { leaf, operators };
    };
    const openLayer = (): void =>
      open({
        name: layer.name,
        kind: kindOf(layer, own),
        own,
        weights: layer.weights.filter(isParameter),
        sharedWeights: layer.shared.filter(isParameter),
      });
    for (const node of layer.nodes) {
      if (ownNodes.has(node)) {
        if (node === own[0]) openLayer();
      } else if (fused.has(node) || isFree(graph, node, values)) {
        continue;
      } else {
        const kind = moduleKind(node, produced);
        if (kind !== undefined) open({ name: node.name, kind, own: [node], weights: [], sharedWeights: [] });
        else if (current === undefined) before.push(node);
        else current.operators.push(node);
      }
    }
    if (current === undefined && layer.nodes.length > 0) openLayer();
    // Operators before the first leaf are charged to it: the planner has no earlier place for them.
    current?.operators.push(...before);
  }
  return leaves;
}

/** Runs no kernel: a constant, a view, shape arithmetic, or a transpose that a product reads through its strides. */
function isFree(graph: Graph, node: GraphNode, values: InferredShapes['values']): boolean {
  const { opType } = node.proto;
  if (node.constant || factsOf(node.proto)?.leaf === 'free') return true;
  const [output] = node.outputs;
  if (output === undefined || values.get(output)?.ints !== undefined) return true;
  if (opType !== 'Transpose') return false;
  const users = graph.consumers(output);
  return users.length > 0 && users.every(({ proto }) => proto.opType === 'MatMul' || proto.opType === 'Transpose');
}

/**
 * The nodes of an exact GELU other than its error function, which counts for all of them: x (1 + erf(x / sqrt 2)) / 2
 * is one kernel in every framework, and five nodes in an export.
 */
function fusedNodes(graph: Graph, nodes: readonly GraphNode[]): Set<GraphNode> {
  const arithmetic: Arithmetic<GraphNode> = {
    producer: (value) => graph.producer(value),
    onlyConsumer(value) {
      const users = graph.consumers(value);
      return users.length === 1 && !graph.outputs.includes(value) ? users[0] : undefined;
    },
    scalar: (value) => scalarOf(smallTensor(graph.weight(value), 1)),
  };
  const gelus = nodes.flatMap((root) => geluAt(arithmetic, root) ?? []);
  const exact = gelus.flatMap(({ nodes: tree, approximate }) => (approximate === 'none' ? tree : []));
  return new Set(exact.filter(({ proto }) => proto.opType !== 'Erf'));
}
