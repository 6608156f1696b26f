/**
 * Layers: runs of consecutive nodes around one group of weights, the unit of loading and of direct access.
 *
 * The groups follow PyTorch's leaf modules, as in DeepPlan's profiles (Jeong et al., EuroSys 2023, section 4.3): a
 * Linear's weight and bias are one layer, a LayerNormalization's scale and bias one, a table of embeddings one, Conv
 * and BatchNormalization two. Nodes without weights (activations, attention's products, residual sums) belong to the
 * layer before them.
 */
import {
  functionKey,
  type Graph,
  type GraphNode,
  allNodes,
  type NodeProto,
  isParameter,
  type Weight,
} from '../onnx/index.ts';
import type { LayerKind } from './facts.ts';
import { factsOf } from './records.ts';

export interface Layer {
  readonly index: number;
  /** The module's name if the export kept it ('encoder.layer.0.attention.self.query'); unique in the graph. */
  readonly name: string;
  readonly kind: LayerKind;
  /** In execution order. The nodes of all layers in sequence are a valid order of the whole graph. */
  readonly nodes: readonly GraphNode[];
  /** Weights of this layer that no earlier layer has. */
  readonly weights: readonly Weight[];
  /** Weights of earlier layers that this one uses too (tied embeddings). */
  readonly shared: readonly Weight[];
  /** Bytes of `weights`. */
  readonly weightBytes: number;
}

const kindOfOperator = (proto: NodeProto): LayerKind | undefined => {
  const kind = factsOf(proto)?.layer ?? 'none';
  return kind === 'none' ? undefined : kind;
};

/** A bias, or the second half of a normalization, still belongs to the product before such operators. */
const keepsElements = (proto: NodeProto): boolean => (factsOf(proto)?.keeps ?? 'nothing') !== 'nothing';

/** For other operators, a constant with fewer elements is an argument (the means of three colours). */
const weightElementsMin = 5;

/** At most one dimension that is not 1: a bias or a scale. */
const isVector = ({ dims }: Weight): boolean => dims.filter((size) => size !== 1).length <= 1;

type Draft = ReturnType<typeof newDraft>;

const newDraft = (kind: LayerKind, anchor: GraphNode | undefined) => ({
  kind,
  /** The node that started this layer. */
  anchor,
  nodes: [] as GraphNode[],
  weights: [] as Weight[],
  shared: [] as Weight[],
  /** Values to which a bias may still be added: the anchor's output, also reshaped. */
  open: new Set<string>(),
});

/** A sum of one computed value and constants: perhaps a bias, which can run as soon as that value is there. */
const addsConstant = (graph: Graph, { proto, uses }: GraphNode): boolean =>
  (proto.opType === 'Add' || proto.opType === 'Sub') &&
  uses.filter((value) => graph.weightsBehind(value).length === 0).length === 1;

/**
 * The nodes in a valid order. Constant nodes come directly before their first user, and a product's bias directly after
 * it (some exports have three products, then their three biases); the rest as in the graph.
 */
function* bundles(graph: Graph): Generator<{ node: GraphNode; before: readonly GraphNode[] }> {
  const given = new Set<GraphNode>();
  const collect = (node: GraphNode, into: GraphNode[]): void => {
    // Chains of constant nodes are short, but a hostile file must not exhaust the call stack.
    const stack: { node: GraphNode; entered: boolean }[] = [{ node, entered: false }];
    for (let top = stack.pop(); top !== undefined; top = stack.pop()) {
      if (top.entered) {
        if (!given.has(top.node)) {
          given.add(top.node);
          into.push(top.node);
        }
        continue;
      }
      if (given.has(top.node)) continue;
      stack.push({ node: top.node, entered: true });
      for (const value of top.node.uses.toReversed()) {
        const producer = graph.producer(value);
        if (producer?.constant === true && !given.has(producer)) stack.push({ node: producer, entered: false });
      }
    }
  };
  const withConstants = (node: GraphNode): { node: GraphNode; before: readonly GraphNode[] } => {
    given.add(node);
    const before: GraphNode[] = [];
    for (const value of node.uses) {
      const producer = graph.producer(value);
      if (producer?.constant === true) collect(producer, before);
    }
    return { node, before };
  };
  for (const node of graph.nodes) {
    if (node.constant || given.has(node)) continue;
    yield withConstants(node);
    const kind = kindOfOperator(node.proto);
    const [output] = node.outputs;
    if ((kind !== 'linear' && kind !== 'conv') || output === undefined) continue;
    for (const user of graph.consumers(output)) {
      if (!given.has(user) && addsConstant(graph, user)) yield withConstants(user);
    }
  }
  // Constants that are only outputs of the graph, or unused.
  for (const node of graph.nodes) {
    if (!node.constant || given.has(node)) continue;
    const before: GraphNode[] = [];
    collect(node, before);
    before.pop();
    yield { node, before };
  }
}

function kindOfNode(graph: Graph, proto: NodeProto): LayerKind | undefined {
  const body = graph.functions.get(functionKey(proto.domain, proto.opType, proto.overload));
  if (body === undefined) return kindOfOperator(proto);
  for (const inner of allNodes(body.node)) {
    const kind = kindOfOperator(inner);
    if (kind !== undefined) return kind;
  }
  return undefined;
}

/** The weights that make a node start or continue a layer. */
function parametersOf(graph: Graph, node: GraphNode, kind: LayerKind | undefined): readonly Weight[] {
  const { proto } = node;
  const weights =
    factsOf(proto)?.weights === 'first' ? graph.weightsBehind(proto.input[0] ?? '') : graph.weightsOf(node);
  const parameters = weights.filter(isParameter);
  if (kind !== undefined) return parameters;
  return parameters.some(({ elementCount }) => elementCount >= weightElementsMin) ? parameters : [];
}

/** Whether a node with weights continues the current layer: its bias, or the bias after a scale. */
function continues(graph: Graph, draft: Draft, { proto, uses }: GraphNode, parameters: readonly Weight[]): boolean {
  const anchor = draft.anchor?.proto.opType;
  if (anchor === undefined) return false;
  if (proto.opType !== 'Add' && proto.opType !== 'Sub') return false;
  if (!uses.some((value) => draft.open.has(value)) || !parameters.every(isVector)) return false;
  // One bias only: a second added vector is a weight of its own.
  const hasBias = draft.nodes.some(
    (node) =>
      node !== draft.anchor &&
      (node.proto.opType === 'Add' || node.proto.opType === 'Sub') &&
      !node.constant &&
      graph.weightsOf(node).some(isParameter),
  );
  if (hasBias) return false;
  return draft.kind === 'linear' || draft.kind === 'conv' || anchor === 'Mul';
}

function nameOf({ anchor, weights, nodes }: Draft, kind: LayerKind, index: number): string {
  for (const { name, origin } of weights) {
    if (origin !== 'initializer' || /^onnx::|^\d+$|[/:]/.test(name)) continue;
    const dot = name.lastIndexOf('.');
    return dot > 0 ? name.slice(0, dot) : name;
  }
  const own = (anchor ?? nodes[0])?.proto.name ?? '';
  if (own === '') return `${kind}_${index}`;
  const slash = own.lastIndexOf('/');
  return slash > 0 ? own.slice(own.startsWith('/') ? 1 : 0, slash) : own;
}

/**
 * Cuts a graph into layers. Every node is in exactly one layer, and every used weight in the `weights` of exactly one:
 * that of its first user. A graph without weights is one layer of kind `other`; one without nodes has none.
 */
export function layers(graph: Graph): Layer[] {
  const drafts: Draft[] = [];
  const owned = new Set<Weight>();
  /** Nodes before the first layer with weights join it. */
  let draft = newDraft('other', undefined);
  for (const { node, before } of bundles(graph)) {
    const kind = kindOfNode(graph, node.proto);
    const parameters = parametersOf(graph, node, kind);
    // The next cell of an unrolled recurrent node has the weights of the cell before, and loads nothing.
    const repeats =
      kind === 'recurrent' &&
      draft.kind === 'recurrent' &&
      parameters.every((weight) => draft.weights.includes(weight));
    const starts = parameters.length > 0 && !repeats && !continues(graph, draft, node, parameters);
    if (starts) {
      if (draft.anchor === undefined) {
        draft.anchor = node;
        draft.kind = kind ?? 'other';
      } else {
        drafts.push(draft);
        draft = newDraft(kind ?? 'other', node);
      }
    } else if (parameters.length > 0 && draft.anchor?.proto.opType === 'Mul' && draft.kind === 'other') {
      // scale, then bias: the end of a normalization that was exported as arithmetic
      draft.kind = 'norm';
    }
    if (starts || (keepsElements(node.proto) && node.uses.some((value) => draft.open.has(value)))) {
      for (const output of node.outputs) draft.open.add(output);
    }
    draft.nodes.push(...before, node);
    for (const weight of [...before.flatMap((item) => graph.weightsOf(item)), ...graph.weightsOf(node)]) {
      if (!owned.has(weight)) {
        owned.add(weight);
        draft.weights.push(weight);
      } else if (!draft.weights.includes(weight) && !draft.shared.includes(weight)) {
        draft.shared.push(weight);
      }
    }
  }
  if (draft.nodes.length > 0) drafts.push(draft);

  const names = new Set<string>();
  return drafts.map((finished, index): Layer => {
    const { kind, nodes, weights, shared } = finished;
    let name = nameOf(finished, kind, index);
    for (let repeat = 2; names.has(name); repeat++) name = `${name.replace(/#\d+$/, '')}#${repeat}`;
    names.add(name);
    const weightBytes = weights.reduce((sum, { byteLength }) => sum + byteLength, 0);
    return { index, name, kind, nodes, weights, shared, weightBytes };
  });
}
