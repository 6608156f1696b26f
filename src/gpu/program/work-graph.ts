/** A prepared graph that fusion can change by replacing nodes. */
import { append } from '../../tools/index.ts';
import { nodeProto, type AttributeValue, type NodeProto } from '../../onnx/index.ts';
import { scalarOf, tensorOf, type Tensor } from '../../tensor/index.ts';
import { operatorName } from './prepare.ts';
import type { BaseWeight } from './base.ts';
import { livingNodes, type PreparedGraph, type PreparedNode, type PreparedValue } from './prepared.ts';

export interface WorkNode extends PreparedNode {
  /** Type with domain, the key of its operator. */
  readonly type: string;
  /** Names the nodes of the model that it replaces: 'MatMul /a + Add /b'. */
  readonly label: string;
}

export interface NewNode {
  readonly type: string;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  /** A node whose attributes it keeps. */
  readonly from?: NodeProto;
}

const none: readonly never[] = [];

function madeNode(root: WorkNode, label: string, made: NewNode): WorkNode {
  const dot = made.type.lastIndexOf('.');
  const own = nodeProto(made.type.slice(dot + 1), made.inputs, made.outputs, made.attributes, {
    name: root.name,
    domain: made.type.slice(0, Math.max(0, dot)),
  });
  const names = new Set(own.attribute.map(({ name }) => name));
  const kept = (made.from?.attribute ?? []).filter(({ name }) => !names.has(name));
  const proto: NodeProto = { ...own, attribute: [...kept, ...own.attribute] };
  return {
    proto,
    name: root.name,
    uses: [...new Set(made.inputs.filter((value) => value !== ''))],
    outputs: made.outputs.filter((value) => value !== ''),
    constant: false,
    layer: root.layer,
    type: made.type,
    label,
  };
}

export class WorkGraph {
  readonly opset: number;
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly values: Map<string, PreparedValue>;
  readonly constants: Map<string, Tensor>;
  readonly weights: ReadonlyMap<string, number>;
  /** Where each node is in the order, and how far the next one is: the nodes that replace it divide this span. */
  readonly #places = new Map<WorkNode, { readonly at: number; readonly span: number }>();
  readonly #producers = new Map<string, WorkNode>();
  readonly #consumers = new Map<string, WorkNode[]>();
  /** Constants with other shapes: by name, the value whose bytes they share, from an element on. */
  readonly viewed = new Map<string, { readonly of: string; readonly from: number }>();
  readonly #isOutput: ReadonlySet<string>;
  readonly #weights: readonly BaseWeight[];
  #made = 0;

  constructor(prepared: PreparedGraph) {
    this.opset = prepared.opset;
    this.inputs = prepared.inputs;
    this.outputs = prepared.outputs;
    this.values = new Map(prepared.values);
    this.constants = new Map(prepared.constants);
    this.weights = prepared.weights;
    this.#weights = prepared.base.weights;
    this.#isOutput = new Set(prepared.outputs);
    for (const [place, node] of livingNodes(prepared).entries())
      this.#link(
        { ...node, type: operatorName(node), label: `${node.proto.opType} ${node.name}` },
        { at: place, span: 1 },
      );
  }

  /** In an order in which they can run; layers ascend. */
  get nodes(): readonly WorkNode[] {
    return [...this.#places].sort(([, a], [, b]) => a.at - b.at).map(([node]) => node);
  }

  producer(value: string): WorkNode | undefined {
    return this.#producers.get(value);
  }

  consumers(value: string): readonly WorkNode[] {
    return this.#consumers.get(value) ?? none;
  }

  /** Undefined if the value is no weight. */
  weight(value: string): BaseWeight | undefined {
    return this.#weights[this.weights.get(value) ?? -1];
  }

  /** Whether a weight is directly behind another one of the same shape and type. */
  follows(value: string, before: string): boolean {
    const [weight, last] = [this.weight(value), this.weight(before)];
    return (
      weight !== undefined &&
      last !== undefined &&
      this.weights.get(value) === this.weights.get(before)! + 1 &&
      weight.layer === last.layer &&
      weight.datatype === last.datatype &&
      weight.narrowable === last.narrowable &&
      weight.shape.join() === last.shape.join()
    );
  }

  isOutput(value: string): boolean {
    return this.#isOutput.has(value);
  }

  has(node: WorkNode): boolean {
    return this.#places.has(node);
  }

  /** The node that reads a value; undefined if several do, or if the value is an output. */
  onlyConsumer(value: string): WorkNode | undefined {
    const users = this.consumers(value);
    return users.length === 1 && !this.isOutput(value) ? users[0] : undefined;
  }

  shape(value: string): readonly number[] | undefined {
    return this.values.get(value)?.shape;
  }

  /** The number in a constant of one element; undefined for other values, and for 16-bit floats. */
  scalar(value: string): number | undefined {
    return scalarOf(this.constants.get(value));
  }

  /** Adds a value with a new name. */
  newValue(hint: string, value: PreparedValue): string {
    const name = `${hint}~${this.#made++}`;
    this.values.set(name, value);
    return name;
  }

  /** A scalar constant; equal ones share a name. */
  scalarConstant(datatype: 'FP32', value: number): string {
    const name = `${datatype} ${value}~`;
    if (!this.constants.has(name)) {
      this.constants.set(name, tensorOf(name, datatype, [], Float32Array.of(value)));
      this.values.set(name, { datatype, shape: [] });
    }
    return name;
  }

  precedes(a: WorkNode, b: WorkNode): boolean {
    return this.#places.get(a)!.at < this.#places.get(b)!.at;
  }

  /** A weight or constant with another shape, or its elements from one on. */
  viewOfConstant(value: string, shape: readonly number[], from = 0): string {
    const { datatype } = this.values.get(value)!;
    const name = this.newValue(value, { datatype, shape });
    const behind = this.viewed.get(value) ?? { of: value, from: 0 };
    this.viewed.set(name, { of: behind.of, from: behind.from + from });
    return name;
  }

  /** Whether a value is a weight or a constant, or a view of one. */
  isConstant(value: string): boolean {
    const behind = this.viewed.get(value)?.of ?? value;
    return this.weights.has(behind) || this.constants.has(behind);
  }

  /** Replaces nodes by others that do the same work, in the position of the last one. */
  replace(old: readonly WorkNode[], ...made: readonly NewNode[]): void {
    this.#replaceAt(
      old.reduce((a, b) => (this.precedes(a, b) ? b : a)),
      old,
      made,
    );
  }

  /** Replaces nodes by one in the position of the first. All its inputs must be there by then. */
  replaceFirst(old: readonly WorkNode[], made: NewNode): void {
    this.#replaceAt(
      old.reduce((a, b) => (this.precedes(b, a) ? b : a)),
      old,
      [made],
    );
  }

  #replaceAt(root: WorkNode, old: readonly WorkNode[], made: readonly NewNode[]): void {
    const { at, span } = this.#places.get(root)!;
    for (const node of old) this.#unlink(node);
    const label = old.map((node) => node.label).join(' + ');
    const own = span / made.length;
    for (const [index, each] of made.entries())
      this.#link(madeNode(root, label, each), { at: at + index * own, span: own });
  }

  /** Removes nodes whose results are neither read nor outputs. */
  sweep(): void {
    for (const node of this.nodes.toReversed()) {
      const wanted = node.outputs.some((value) => this.consumers(value).length > 0 || this.isOutput(value));
      if (!wanted) this.#unlink(node);
    }
  }

  #link(node: WorkNode, place: { readonly at: number; readonly span: number }): void {
    this.#places.set(node, place);
    for (const value of node.outputs) this.#producers.set(value, node);
    for (const value of node.uses) {
      append(this.#consumers, value, node);
    }
  }

  #unlink(node: WorkNode): void {
    if (!this.#places.has(node)) return;
    this.#places.delete(node);
    for (const value of node.outputs) if (this.#producers.get(value) === node) this.#producers.delete(value);
    for (const value of node.uses) {
      const list = this.#consumers.get(value);
      if (list !== undefined) list.splice(list.indexOf(node), 1);
    }
  }
}
