/** A graph with queries: which nodes make and use a value, which weight is behind it, and its shape. */
import { isDefaultDomain } from './opset.ts';
import { append, namesIn } from '../tools/index.ts';
import type { GraphNode, ValueShape, ValueType } from './graph-node.ts';
import { topologicalOrder, usesOf } from './order.ts';
import { nestedGraphs, sparseName } from './scope.ts';
import type { FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto } from './types.ts';
import { constantWeight, denseWeight, sparseWeight, type Weight } from './weight.ts';

const random = namesIn('RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial Bernoulli');

/** Whether an operator's result is not a function of its inputs. */
export const isRandom = (opType: string): boolean => random.has(opType);

export const functionKey = (domain: string, name: string, overload = ''): string => `${domain}::${name}::${overload}`;

function typeOf({ type }: ValueInfoProto): ValueType {
  const tensor = type?.tensorType;
  if (tensor === undefined) return { elementType: undefined, shape: undefined };
  const shape = tensor.shape?.dim.map(({ dimValue, dimParam }) => {
    if (dimValue !== undefined && dimValue >= 0n) return Number(dimValue);
    return dimParam === '' ? undefined : dimParam;
  });
  return { elementType: tensor.elemType === 0 ? undefined : tensor.elemType, shape };
}

function initializersOf({ initializer, sparseInitializer = [] }: GraphProto): Map<string, Weight> {
  const dense = initializer.map((tensor) => denseWeight(tensor.name, tensor, 'initializer'));
  const sparse = sparseInitializer.map((each) => sparseWeight(sparseName(each), each, 'initializer'));
  return new Map([...dense, ...sparse].map((weight) => [weight.name, weight]));
}

/** Weights inside the nested graphs of a node, or inside a function. */
function addNestedWeights(owner: string, nodes: readonly NodeProto[], into: Weight[]): void {
  for (const node of nodes) {
    if (node.opType === 'Constant' && isDefaultDomain(node.domain)) {
      const weight = constantWeight(node, `${owner}/${node.output[0] ?? ''}`);
      if (weight !== undefined) into.push(weight);
    }
    for (const graph of nestedGraphs(node)) addGraphWeights(owner, graph, into);
  }
}

function addGraphWeights(owner: string, graph: GraphProto, into: Weight[]): void {
  for (const tensor of graph.initializer) into.push(denseWeight(`${owner}/${tensor.name}`, tensor, 'initializer'));
  for (const sparse of graph.sparseInitializer ?? []) {
    into.push(sparseWeight(`${owner}/${sparseName(sparse)}`, sparse, 'initializer'));
  }
  addNestedWeights(owner, graph.node, into);
}

const none: readonly never[] = [];

/** The element type of a node's result at a place, by those of its inputs; undefined if it is not known. */
type ResultTypes = (
  node: NodeProto,
  place: number,
  typeOfInput: (place: number) => number | undefined,
) => number | undefined;

export class Graph {
  readonly proto: GraphProto;
  /** Each node comes after the nodes whose values it takes. */
  readonly nodes: readonly GraphNode[];
  /** Every distinct weight, once: initializers, constants, and those in nested graphs and functions. */
  readonly weights: readonly Weight[];
  /** Inputs that a caller must give: those without an initializer. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly functions: ReadonlyMap<string, FunctionProto>;
  /** Types from a run, from the file, or of the operators. */
  readonly types: ReadonlyMap<string, ValueType>;

  readonly #producers: ReadonlyMap<string, GraphNode>;
  readonly #consumers: ReadonlyMap<string, readonly GraphNode[]>;
  readonly #weightByValue: ReadonlyMap<string, Weight>;
  /** All weights behind a constant value, or in a node's nested graphs. */
  readonly #behind = new Map<string, readonly Weight[]>();
  readonly #nested = new Map<GraphNode, readonly Weight[]>();

  /**
   * The main graph of a model. Types of values come from `shapes` (of a run), then from the file, and element types
   * that neither has from the operators.
   * @param resultType the element type of a node's result; unless given, those of no operators are known
   * @throws OnnxError `bad-model` for a cycle of nodes, `bad-tensor` for a weight of unknown size
   */
  constructor(model: ModelProto, shapes: ReadonlyMap<string, ValueType> = new Map(), resultType?: ResultTypes) {
    const { graph } = model;
    this.proto = graph;
    this.functions = new Map(
      (model.functions ?? []).map((body) => [functionKey(body.domain, body.name, body.overload), body]),
    );

    const weightByValue = initializersOf(graph);
    this.inputs = graph.input.map(({ name }) => name).filter((name) => !weightByValue.has(name));
    this.outputs = graph.output.map(({ name }) => name);
    const weights = [...weightByValue.values()];

    const uses = usesOf(graph.node);
    const order = topologicalOrder(graph.node, '', uses);

    const nodes: GraphNode[] = [];
    const producers = new Map<string, GraphNode>();
    const consumers = new Map<string, GraphNode[]>();
    const names = new Set<string>();
    const functionsSeen = new Set<FunctionProto>();
    for (const index of order) {
      const proto = graph.node[index]!;
      const outputs = proto.output.filter((name) => name !== '');
      let name = proto.name === '' ? `${proto.opType}_${index}` : proto.name;
      if (names.has(name)) name = `${name}#${index}`;
      names.add(name);

      const standard = isDefaultDomain(proto.domain);
      const taken = uses[index]!;
      const behind = [...new Set(taken.flatMap((value) => this.#behind.get(value) ?? weightByValue.get(value) ?? []))];
      let constant: boolean;
      if (standard && proto.opType === 'Constant') {
        constant = true;
        const weight = constantWeight(proto, outputs[0] ?? name);
        if (weight !== undefined && outputs[0] !== undefined) {
          weightByValue.set(outputs[0], weight);
          weights.push(weight);
          behind.push(weight);
        }
      } else {
        constant =
          taken.length > 0 &&
          taken.every((value) => this.#behind.has(value) || weightByValue.has(value)) &&
          nestedGraphs(proto).length === 0 &&
          !isRandom(proto.opType);
        const [source] = proto.input;
        const same =
          standard && proto.opType === 'Identity' && source !== undefined ? weightByValue.get(source) : undefined;
        if (same !== undefined && outputs[0] !== undefined) weightByValue.set(outputs[0], same);
      }
      if (constant) for (const output of outputs) this.#behind.set(output, behind);

      const node: GraphNode = { proto, name, uses: taken, outputs, constant };
      const nested: Weight[] = [];
      for (const body of nestedGraphs(proto)) addGraphWeights(name, body, nested);
      const called = this.functions.get(functionKey(proto.domain, proto.opType, proto.overload));
      if (called !== undefined && !functionsSeen.has(called)) {
        functionsSeen.add(called);
        addNestedWeights(`${called.domain}.${called.name}`, called.node, nested);
      }
      if (nested.length > 0) {
        this.#nested.set(node, nested);
        weights.push(...nested);
      }
      nodes.push(node);
      for (const output of outputs) producers.set(output, node);
      for (const value of taken) {
        append(consumers, value, node);
      }
    }
    this.nodes = nodes;
    this.weights = weights;
    this.#producers = producers;
    this.#consumers = consumers;
    this.#weightByValue = weightByValue;
    this.types = this.#collectTypes(shapes, resultType);
  }

  /** The node that makes a value; undefined for an input or an initializer. */
  producer(value: string): GraphNode | undefined {
    return this.#producers.get(value);
  }

  /** The nodes that take a value, or capture it in a nested graph. */
  consumers(value: string): readonly GraphNode[] {
    return this.#consumers.get(value) ?? none;
  }

  /** The weight that a value is: an initializer, a constant, or either through any number of Identity nodes. */
  weight(value: string): Weight | undefined {
    return this.#weightByValue.get(value);
  }

  /** The weights that a value is computed from; none if it depends on anything else. */
  weightsBehind(value: string): readonly Weight[] {
    const weight = this.#weightByValue.get(value);
    if (weight !== undefined) return [weight];
    return this.#behind.get(value) ?? none;
  }

  /**
   * Every weight that a node works on: its constant inputs, also through other constant nodes, and its nested graphs'.
   */
  weightsOf(node: GraphNode): readonly Weight[] {
    const own = node.uses.flatMap((value) => this.weightsBehind(value));
    return [...new Set([...own, ...(this.#nested.get(node) ?? none)])];
  }

  /** What is known about a value's type. */
  type(value: string): ValueType | undefined {
    return this.types.get(value);
  }

  /** Sizes of a value's dimensions; undefined if its rank is unknown. */
  shape(value: string): ValueShape | undefined {
    return this.types.get(value)?.shape;
  }

  #collectTypes(shapes: ReadonlyMap<string, ValueType>, resultType?: ResultTypes): Map<string, ValueType> {
    const types = new Map<string, ValueType>();
    const { input, output, valueInfo } = this.proto;
    for (const info of [...valueInfo, ...output, ...input]) types.set(info.name, typeOf(info));
    for (const [value, weight] of this.#weightByValue) {
      types.set(value, { elementType: weight.elementType, shape: weight.dims });
    }
    for (const [value, found] of shapes) {
      const known = types.get(value);
      types.set(value, { elementType: found.elementType ?? known?.elementType, shape: found.shape ?? known?.shape });
    }
    for (const { proto } of resultType === undefined ? none : this.nodes) {
      for (const [place, name] of proto.output.entries()) {
        const known = types.get(name);
        if (name === '' || known?.elementType !== undefined) continue;
        const elementType = resultType?.(proto, place, (input) => types.get(proto.input[input] ?? '')?.elementType);
        if (elementType !== undefined) types.set(name, { elementType, shape: known?.shape });
      }
    }
    return types;
  }
}
