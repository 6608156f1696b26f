/** Replaces nodes of operators that are made of others by these. */
import { attributeReader } from '../../onnx/index.ts';
import { broadcast, requiredFrom, Unsupported, type Term, type Writer } from '../../operators/index.ts';
import { bytesOfNumbers, elementCount, type DataType } from '../../tensor/index.ts';
import type { Operator } from '../operators/types.ts';
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
  const nodes: NewNode[] = [];
  const output = termOf(graph, proto.output[0]);
  if (output === undefined) throw new Unsupported('its first result is not used');
  const result: Writer['result'] = (place) => {
    const name = proto.output[place] ?? '';
    return place === 0 || isUsed(name) ? termOf(graph, name) : undefined;
  };
  const results = new Map<string, string>();
  const input = (index: number): Term | undefined => termOf(graph, proto.input[index]);
  const madeAll: Writer['madeAll'] = (type, inputs, terms, attributes = {}) => {
    const outputs = terms.map(({ datatype, shape }) => graph.newValue(output.name, { datatype, shape }));
    const own: Pick<NewNode, 'from' | 'attributes'> = attributes === 'own' ? { from: proto } : { attributes };
    nodes.push({ type, inputs: inputs.map((term) => term?.name ?? ''), outputs, ...own });
    return terms.map(({ datatype, shape }, place) => ({ name: outputs[place]!, datatype, shape }));
  };
  const made: Writer['made'] = (type, inputs, result, attributes) => madeAll(type, inputs, [result], attributes)[0]!;
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
    result,
    made,
    madeAll,
    map(type, inputs, datatype = inputs[0]!.datatype, attributes = {}) {
      const shapes = inputs.flatMap((term) => (term === undefined ? [] : [term.shape]));
      const shape = broadcast(shapes);
      if (shape === undefined) throw new Unsupported(`[${shapes.join('] and [')}] do not fit together`);
      return made(type, inputs, { datatype, shape }, attributes);
    },
    cast: (term, datatype) => (term.datatype === datatype ? term : made('Cast', [term], { ...term, datatype })),
    reduced(type, term, axes) {
      const shape = term.shape.map((size, axis) => (axes.includes(axis) ? 1 : size));
      return made(type, [term], { datatype: term.datatype, shape }, { axes, keepdims: 1 });
    },
    viewed,
    part({ shape: whole, ...term }, from, count) {
      const shape = whole.with(0, count);
      const offset = from * elementCount(whole.slice(1));
      if (graph.isConstant(term.name)) return { ...term, name: graph.viewOfConstant(term.name, shape, offset), shape };
      return made(
        'Slice',
        [{ ...term, shape: whole }],
        { ...term, shape },
        { starts: [from], ends: [from + count], axes: [0] },
      );
    },
    permuted({ shape, ...term }, perm) {
      if (perm.every((axis, place) => axis === place)) return { shape, ...term };
      return made('Transpose', [{ shape, ...term }], { ...term, shape: perm.map((axis) => shape[axis]!) }, { perm });
    },
    repeated: (term, shape) => made('Expand', [term], { datatype: term.datatype, shape }),
    numbers: constant,
    number: (datatype, value) => constant(datatype, [], typeof value === 'number' ? [value] : value),
    counted(axis, shape = output.shape, datatype = 'INT64') {
      const count = shape[axis]!;
      const places = Array.from({ length: count }, (_, place) => place);
      const ones = shape.map(() => 1);
      return constant(datatype, ones.with(axis, count), places);
    },
    give(term, place = 0) {
      const given = result(place);
      if (given === undefined) return;
      const { name } = viewed(term, given.shape);
      // What no node makes, or what is given as another result already, is a view under the result's name.
      const isOwn = nodes.some(({ outputs }) => outputs.includes(name)) && !results.has(name);
      if (isOwn) results.set(name, given.name);
      else nodes.push({ type: 'turntable.View', inputs: [name], outputs: [given.name] });
    },
  });
  const given = new Set([...results.values(), ...nodes.flatMap(({ outputs }) => outputs)]);
  const missing = proto.output.findIndex((value, place) => place > 0 && isUsed(value) && !given.has(value));
  if (missing > 0) throw new Unsupported(`its result ${missing} is used`);
  const named = (name: string): string => results.get(name) ?? name;
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
