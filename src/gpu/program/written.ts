/** Replaces nodes of operators that are made of others by these. */
import { attributeReader } from '../../onnx/index.ts';
import { broadcast } from '../../operators/index.ts';
import { bytesOfNumbers, elementCount, type DataType } from '../../tensor/index.ts';
import { requiredFrom } from '../operators/common/element.ts';
import { Unsupported, type Operator, type Term, type Writer } from '../operators/types.ts';
import { sameNumbers } from './fusion/patterns.ts';
import type { Obstacle } from './types.ts';
import type { NewNode, WorkGraph, WorkNode } from './work-graph.ts';

function termOf({ values }: WorkGraph, name: string | undefined): Term | undefined {
  if (name === undefined || name === '') return undefined;
  const known = values.get(name);
  if (known === undefined) throw new Unsupported(`the shape of '${name}' is not known`);
  return { name, ...known };
}

/** The nodes that an operator writes for `node`. @throws Unsupported */
function nodesOf(graph: WorkGraph, node: WorkNode, write: NonNullable<Operator['write']>): NewNode[] {
  const { proto } = node;
  const isUsed = (value: string): boolean => graph.consumers(value).length > 0 || graph.isOutput(value);
  if (proto.output.slice(1).some(isUsed)) throw new Unsupported('its results behind the first are used');
  const nodes: NewNode[] = [];
  const output = termOf(graph, proto.output[0]);
  if (output === undefined) throw new Unsupported('its first result is not used');
  let result = '';
  const input = (index: number): Term | undefined => termOf(graph, proto.input[index]);
  const made: Writer['made'] = (type, inputs, { datatype, shape }, attributes = {}) => {
    const name = graph.newValue(output.name, { datatype, shape });
    const own: Pick<NewNode, 'from' | 'attributes'> = attributes === 'own' ? { from: proto } : { attributes };
    nodes.push({ type, inputs: inputs.map((term) => term?.name ?? ''), outputs: [name], ...own });
    return { name, datatype, shape };
  };
  const viewed: Writer['viewed'] = (term, shape) => {
    const { name, datatype } = term;
    if (sameNumbers(term.shape, shape)) return term;
    if (graph.isConstant(name)) return { name: graph.viewOfConstant(name, shape), datatype, shape };
    return made('turntable.View', [term], { datatype, shape });
  };
  const constant = (datatype: DataType, shape: readonly number[], elements: readonly number[] | Uint8Array): Term => {
    if (datatype === 'BYTES') throw new Unsupported('texts cannot be on a GPU');
    const name = graph.newValue(output.name, { datatype, shape });
    const data = elements instanceof Uint8Array ? elements : bytesOfNumbers(datatype, elements);
    graph.constants.set(name, { name, datatype, shape, data });
    return { name, datatype, shape };
  };
  write({
    node,
    opset: graph.opset,
    input,
    required: requiredFrom(input),
    constant: (index) => graph.constants.get(proto.input[index] ?? ''),
    attribute: attributeReader(proto),
    output,
    made,
    map(type, inputs, datatype = inputs[0]!.datatype, attributes = {}) {
      const shapes = inputs.flatMap((term) => (term === undefined ? [] : [term.shape]));
      const shape = broadcast(shapes);
      if (shape === undefined) throw new Unsupported(`[${shapes.join('] and [')}] do not fit together`);
      return made(type, inputs, { datatype, shape }, attributes);
    },
    reduced(type, term, axes) {
      const shape = term.shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
      return made(type, [term], { datatype: term.datatype, shape }, { axes, keepdims: 1 });
    },
    viewed,
    permuted: (term, perm) =>
      made('Transpose', [term], { datatype: term.datatype, shape: perm.map((axis) => term.shape[axis]!) }, { perm }),
    repeated: (term, shape) => made('Expand', [term], { datatype: term.datatype, shape }),
    number: (datatype, value) => constant(datatype, [], typeof value === 'number' ? [value] : value),
    counted(axis, shape = output.shape, datatype = 'INT64') {
      const count = shape[axis]!;
      const places = Array.from({ length: count }, (_, place) => place);
      const ones = shape.map(() => 1);
      return constant(datatype, ones.with(axis, count), places);
    },
    give: (term) => void (result = viewed(term, output.shape).name),
  });
  const isMade = nodes.some(({ outputs }) => outputs[0] === result);
  if (!isMade) return [...nodes, { type: 'turntable.View', inputs: [result], outputs: [output.name] }];
  const named = (name: string): string => (name === result ? output.name : name);
  return nodes.map((each) =>
    Object.assign({}, each, { inputs: each.inputs.map(named), outputs: each.outputs.map(named) }),
  );
}

/** Changes `graph`. Returns what keeps a node from being written as others. */
export function writeOut(
  graph: WorkGraph,
  operators: ReadonlyMap<string, Operator>,
  blocked: ReadonlySet<string>,
): Obstacle[] {
  const obstacles: Obstacle[] = [];
  const left = new Set(blocked);
  const isWritten = (node: WorkNode): boolean =>
    operators.get(node.type)?.write !== undefined &&
    !left.has(node.name) &&
    elementCount(graph.shape(node.proto.output[0] ?? '') ?? []) > 0;
  // What is written may itself be made of others.
  for (let nodes = graph.nodes.filter(isWritten); nodes.length > 0; nodes = graph.nodes.filter(isWritten)) {
    for (const node of nodes) {
      try {
        graph.replace([node], ...nodesOf(graph, node, operators.get(node.type)!.write!));
      } catch (error) {
        if (!(error instanceof Unsupported)) throw error;
        left.add(node.name);
        obstacles.push({ node: node.name, operator: node.type, reason: error.message });
      }
    }
  }
  return obstacles;
}
