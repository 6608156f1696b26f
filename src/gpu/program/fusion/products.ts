/**
 * Fuses a matrix product with transposes before it, and with a factor, a bias for each column and an activation behind
 * it. `turntable.Product` has the inputs A, B and perhaps a bias of n values, and the attributes transA, transB, alpha,
 * activation ('none', 'relu', 'gelu-tanh').
 */
import { type AttributeValue, attributeOf } from '../../../onnx/index.ts';
import type { WorkGraph, WorkNode } from '../work-graph.ts';
import {
  activationOf,
  hasPlainBias,
  hasProductTypes,
  isRowVector,
  isView,
  otherInput,
  permOf,
  productOf,
  sameShape,
  swapsLastTwo,
  type ProductNode,
} from './patterns.ts';

type Product = { -readonly [Part in keyof ProductNode]: ProductNode[Part] } & {
  readonly nodes: WorkNode[];
  /** A view of `output`, before the activation. */
  viewed: string | undefined;
};

function start(graph: WorkGraph, node: WorkNode): Product | undefined {
  const product = node.type === 'turntable.Product' ? undefined : productOf(node);
  if (product === undefined || !hasPlainBias(graph, product)) return undefined;
  const { a, b, output } = product;
  if ([a, b].some((value) => (graph.shape(value)?.length ?? 0) < 2) || !hasProductTypes(graph, [a, b, output])) {
    return undefined;
  }
  return { ...product, nodes: [node], activation: 'none', viewed: undefined };
}

/** Takes transposes of the last two axes of A and B into the product. */
function takeTransposes(graph: WorkGraph, product: Product): void {
  for (const side of ['a', 'b'] as const) {
    const value = product[side];
    const producer = graph.producer(value);
    const rank = graph.shape(value)?.length ?? 0;
    if (producer?.type !== 'Transpose' || !swapsLastTwo(permOf(producer), rank)) continue;
    // If others read a transposed activation too, it is made anyway. A weight should never be transposed.
    const source = producer.proto.input[0]!;
    const alone = graph.onlyConsumer(value) !== undefined;
    if (!alone && !graph.isConstant(source)) continue;
    product[side] = source;
    if (side === 'a') product.transA = !product.transA;
    else product.transB = !product.transB;
    if (alone) product.nodes.push(producer);
  }
}

/** Takes nodes behind the product into it, as long as each is the only reader. */
function takeFollowers(graph: WorkGraph, product: Product): void {
  const columns = graph.shape(product.output)?.at(-1) ?? 0;
  for (;;) {
    const value = product.viewed ?? product.output;
    const user = graph.onlyConsumer(value);
    const result = user?.outputs[0];
    if (user === undefined || result === undefined || product.activation !== 'none') return;
    const into = (): void => {
      product.nodes.push(user);
      if (product.viewed === undefined) product.output = result;
      else product.viewed = result;
    };
    const shaped = sameShape(graph, result, value);
    const other = otherInput(user, value);
    const scalar = other === undefined ? undefined : graph.scalar(other);
    const activation = activationOf(user);
    if (activation !== undefined) {
      product.activation = activation;
      into();
    } else if (isView(user) && product.viewed === undefined && user.proto.input[0] === value) {
      // A view is only worth taking if an activation follows.
      const next = graph.onlyConsumer(result);
      if (next === undefined || activationOf(next) === undefined) return;
      product.nodes.push(user);
      product.viewed = result;
    } else if (!shaped || product.bias !== undefined || product.viewed !== undefined || other === undefined) {
      return;
    } else if (user.type === 'Add' && isRowVector(graph.shape(other), columns) && graph.isConstant(other)) {
      if (scalar !== undefined || !hasProductTypes(graph, [other])) return;
      product.bias = other;
      into();
    } else if (user.type === 'Mul' && scalar !== undefined) {
      product.alpha *= scalar;
      into();
    } else if (user.type === 'Div' && scalar !== undefined && scalar !== 0 && user.proto.input[0] === value) {
      product.alpha /= scalar;
      into();
    } else {
      return;
    }
  }
}

export function fuseProducts(graph: WorkGraph): void {
  for (const node of graph.nodes) {
    if (!graph.has(node)) continue;
    const product = start(graph, node);
    if (product === undefined) continue;
    takeTransposes(graph, product);
    takeFollowers(graph, product);
    // A product without neighbours to fuse keeps its own operator, which handles every form of it.
    if (product.nodes.length === 1) continue;
    const { a, b, bias, viewed, output, transA, transB, alpha, activation } = product;
    const attributes: Record<string, AttributeValue> = {
      transA: Number(transA),
      transB: Number(transB),
      alpha: { float: alpha },
      activation,
    };
    const inputs = bias === undefined ? [a, b] : [a, b, bias];
    const made = { type: 'turntable.Product', inputs, outputs: [output], attributes };
    if (viewed === undefined) graph.replace(product.nodes, made);
    else graph.replace(product.nodes, made, { type: 'turntable.View', inputs: [output], outputs: [viewed] });
  }
}

/** The attributes for a Clip; undefined if a limit is computed at run time. */
function clipLimits(graph: WorkGraph, { proto }: WorkNode): Record<string, AttributeValue> | undefined {
  const [, low = '', high = ''] = proto.input;
  const limit = (value: string, attribute: string, otherwise: number): number | undefined =>
    value === '' ? attributeOf<number>(proto, attribute, otherwise) : graph.scalar(value);
  const clipMin = limit(low, 'min', -3.4028234663852886e38);
  const clipMax = limit(high, 'max', 3.4028234663852886e38);
  if (clipMin === undefined || clipMax === undefined) return undefined;
  return { activation: 'clip', clipMin: { float: clipMin }, clipMax: { float: clipMax } };
}

export function fuseConvolutions(graph: WorkGraph): void {
  for (const node of graph.nodes) {
    if (node.type !== 'Conv' || !graph.has(node) || !hasProductTypes(graph, node.uses)) continue;
    const user = graph.onlyConsumer(node.outputs[0]!);
    if (user === undefined) continue;
    const attributes: Record<string, AttributeValue> | undefined =
      activationOf(user) === 'relu'
        ? { activation: 'relu' }
        : user.type === 'Clip' && user.proto.input[0] === node.outputs[0]
          ? clipLimits(graph, user)
          : undefined;
    if (attributes === undefined) continue;
    graph.replace([node, user], {
      type: 'turntable.Conv',
      inputs: node.proto.input,
      outputs: user.proto.output,
      attributes,
      from: node.proto,
    });
  }
}
