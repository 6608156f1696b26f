/**
 * LSTM, GRU and RNN nodes for unrolling: their directions, lengths and states.
 */
import {
  elementBits,
  type Graph,
  type GraphNode,
  attributeProto,
  type AttributeProto,
  type NodeProto,
  attributeOf,
  isDefaultDomain,
  wholeNumbers,
} from '../../onnx/index.ts';
import { byNames } from '../../tools/index.ts';
import type { Shape } from '../chunks/rules.ts';
import type { TimeAxis } from '../chunks/time-axis.ts';

interface Kind {
  /** Activation functions of one direction. */
  readonly activations: number;
  /** Hidden state, and an LSTM's cell state. */
  readonly states: 1 | 2;
}

const kinds = new Map<string, Kind>([
  ['LSTM', { activations: 3, states: 2 }],
  ['GRU', { activations: 2, states: 1 }],
  ['RNN', { activations: 1, states: 1 }],
]);

const kindOf = ({ opType, domain }: NodeProto): Kind | undefined =>
  isDefaultDomain(domain) ? kinds.get(opType) : undefined;

export const isRecurrent = (node: NodeProto): boolean => kindOf(node) !== undefined;

/** How many steps each item has: all of them, or the numbers in a constant or a value of the graph. */
export type Lengths =
  | { readonly kind: 'full' }
  | { readonly kind: 'constant'; readonly steps: readonly number[] }
  | { readonly kind: 'value'; readonly value: string };

export interface Direction {
  readonly reversed: boolean;
  /** Attributes of this direction's cells. */
  readonly attributes: readonly AttributeProto[];
}

export interface RecurrentNode {
  readonly node: GraphNode;
  /** The time axis of both X and Y. */
  readonly time: TimeAxis;
  /** Layout 1: the batch comes first in every input and output. */
  readonly batchFirst: boolean;
  readonly directions: readonly Direction[];
  readonly states: 1 | 2;
  readonly lengths: Lengths;
  readonly elementType: number;
}

/** How many parameters an activation takes from the node's lists: an alpha, and a beta. */
const parametersOf = byNames([
  ['relu sigmoid softplus softsign tanh', 0],
  ['elu leakyrelu thresholdedrelu', 1],
  ['affine hardsigmoid scaledtanh', 2],
]);

const reversalsOf = new Map<string, readonly boolean[]>([
  ['forward', [false]],
  ['reverse', [true]],
  ['bidirectional', [false, true]],
]);

/** Attributes that cells get anew instead of copying the node's. */
const perDirection = new Set(['direction', 'layout', 'activations', 'activation_alpha', 'activation_beta']);

/** Since this opset Max and Min take whole numbers. */
const lengthArithmeticOpset = 12;
/** Since this opset there is Where, with which an item that has ended keeps its state. */
const whereOpset = 9;

/**
 * The lists for each direction. Activations take their alpha and beta from the node's lists in order, each only those
 * it has. So the rest for the second direction depends on the functions of the first.
 */
function activationLists(node: NodeProto, count: number, perNode: number): AttributeProto[][] | undefined {
  const names =
    node.attribute.find(({ name }) => name === 'activations')?.strings?.map((text) => new TextDecoder().decode(text)) ??
    [];
  const [alphas, betas] = [attributeOf(node, 'activation_alpha', []), attributeOf(node, 'activation_beta', [])];
  // The default functions take no parameters.
  if (names.length === 0) return Array.from({ length: count }, () => []);
  if (names.length !== count * perNode) return undefined;
  if (names.some((name) => !parametersOf.has(name.toLowerCase()))) return undefined;
  let [alphaAt, betaAt] = [0, 0];
  return Array.from({ length: count }, (_, direction) => {
    const own = names.slice(direction * perNode, (direction + 1) * perNode);
    const counts = own.map((name) => parametersOf.get(name.toLowerCase())!);
    const alphaCount = counts.filter((count) => count > 0).length;
    const betaCount = counts.filter((count) => count > 1).length;
    const ownAlphas = alphas.slice(alphaAt, alphaAt + alphaCount);
    const ownBetas = betas.slice(betaAt, betaAt + betaCount);
    alphaAt += alphaCount;
    betaAt += betaCount;
    return [
      attributeProto('activations', own),
      ...(ownAlphas.length === 0 ? [] : [attributeProto('activation_alpha', { floats: ownAlphas })]),
      ...(ownBetas.length === 0 ? [] : [attributeProto('activation_beta', { floats: ownBetas })]),
    ];
  });
}

function readDirections(node: NodeProto, kind: Kind): readonly Direction[] | undefined {
  const name = attributeOf(node, 'direction', 'forward');
  const reversals = reversalsOf.get(name);
  if (reversals === undefined) return undefined;
  if (reversals.length === 1) {
    // A single direction copies all attributes.
    const attributes = node.attribute.filter((attribute) => attribute.name !== 'layout');
    return [{ reversed: reversals[0]!, attributes }];
  }
  const lists = activationLists(node, reversals.length, kind.activations);
  const shared = node.attribute.filter((attribute) => !perDirection.has(attribute.name));
  return lists?.map((own, index) => {
    const reversed = reversals[index]!;
    const direction = attributeProto('direction', reversed ? 'reverse' : 'forward');
    return { reversed, attributes: [...shared, direction, ...own] };
  });
}

/** Undefined for lengths that the cells cannot follow. */
function readLengths(graph: Graph, value: string, steps: number, opset: number): Lengths | undefined {
  if (value === '') return { kind: 'full' };
  const given = wholeNumbers(graph.weight(value));
  if (given === undefined) {
    return graph.weight(value) === undefined && opset >= lengthArithmeticOpset ? { kind: 'value', value } : undefined;
  }
  if (given.some((length) => length < 0 || length > steps)) return undefined;
  if (given.every((length) => length === steps)) return { kind: 'full' };
  return opset < whereOpset ? undefined : { kind: 'constant', steps: given };
}

/**
 * Undefined for a node that stays whole: another operator, one of at most `stepsMax` steps, and one with invalid
 * attributes, with unknown sizes or types, or with lengths that the opset has no operators for.
 */
export function readRecurrent(
  node: GraphNode,
  graph: Graph,
  opset: number,
  stepsMax: number,
  shapeOf: (value: string) => Shape | undefined,
): RecurrentNode | undefined {
  const { proto } = node;
  const kind = kindOf(proto);
  const [x = '', w = '', r = '', , lengthsValue = ''] = proto.input;
  const shape = shapeOf(x);
  if (kind === undefined || shape?.length !== 3) return undefined;
  const batchFirst = attributeOf(proto, 'layout', 0) !== 0;
  const axis = batchFirst ? 1 : 0;
  const steps = shape[axis]!;
  if (steps <= stepsMax) return undefined;

  const directions = readDirections(proto, kind);
  if (directions === undefined) return undefined;
  if ([w, r].some((weight) => (shapeOf(weight)?.[0] ?? directions.length) !== directions.length)) return undefined;
  const lengths = readLengths(graph, lengthsValue, steps, opset);
  const elementType = graph.type(x)?.elementType ?? graph.type(w)?.elementType;
  if (lengths === undefined || elementType === undefined || elementBits(elementType) === undefined) return undefined;
  return { node, time: { steps, axis, rows: 1 }, batchFirst, directions, states: kind.states, lengths, elementType };
}
