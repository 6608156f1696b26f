/**
 * Unrolls Loops with a known number of iterations: the nodes of each iteration in turn. PyTorch exports `for step in
 * range(x.shape[1])` as such a Loop; once sizes are fixed the number is a constant.
 */
import { scalarOf, tensorOf } from '../tensor/index.ts';
import { opsetOf } from './opset.ts';
import { nodeProto, tensorProto, type AttributeValue } from './protos.ts';
import { nestedGraphs, renamed } from './scope.ts';
import type { GraphProto, ModelProto, NodeProto, TensorProto } from './types.ts';
import { denseWeight, smallTensor } from './weight.ts';

const iterationsMax = 256;
const nodesMax = 4096;

/** The model itself if its main graph has no such Loop. Loops in a body are copied with it. */
export function unrollLoops(model: ModelProto): ModelProto {
  const { graph } = model;
  const known = constantsOf(graph);
  const opset = opsetOf(model) ?? 0;
  const initializer = [...graph.initializer];
  let hasLoops = false;
  const node = graph.node.flatMap((each): readonly NodeProto[] => {
    const written = each.opType === 'Loop' && each.domain === '' ? writtenOut(each, known, opset) : undefined;
    if (written === undefined) return [each];
    hasLoops = true;
    initializer.push(...written.initializers);
    return written.nodes;
  });
  return hasLoops ? { ...model, graph: { ...graph, node, initializer } } : model;
}

function constantsOf({ initializer, node }: GraphProto): ReadonlyMap<string, TensorProto> {
  const constants = node.flatMap(({ opType, output, attribute }) => {
    const tensor = opType === 'Constant' ? attribute.find(({ name }) => name === 'value')?.t : undefined;
    return tensor === undefined ? [] : [[output[0]!, tensor] as const];
  });
  return new Map([...initializer.map((tensor) => [tensor.name, tensor] as const), ...constants]);
}

/** The number in a constant of one element, 1 for true. */
const numberIn = (tensor: TensorProto | undefined): number | undefined =>
  tensor && scalarOf(smallTensor(denseWeight(tensor.name, tensor, 'initializer'), 1));

/** Whether every iteration continues to the next. */
function goesOn(body: GraphProto, known: ReadonlyMap<string, TensorProto>): boolean {
  const own = constantsOf(body);
  let value = body.output[0]?.name ?? '';
  for (;;) {
    if (value === body.input[1]?.name || numberIn(own.get(value) ?? known.get(value)) === 1) return true;
    const producer = body.node.find(({ output }) => output.includes(value));
    if (producer?.opType !== 'Identity') return false;
    value = producer.input[0] ?? '';
  }
}

function writtenOut(loop: NodeProto, known: ReadonlyMap<string, TensorProto>, opset: number) {
  const [countName = '', condition = '', ...carriedIn] = loop.input;
  const body = nestedGraphs(loop)[0];
  const count = numberIn(known.get(countName));
  if (body === undefined || count === undefined || count < 1 || count > iterationsMax) return undefined;
  if (count * body.node.length > nodesMax || !goesOn(body, known)) return undefined;
  if ((condition !== '' && numberIn(known.get(condition)) !== 1) || (body.sparseInitializer?.length ?? 0) > 0)
    return undefined;
  const prefix = loop.output.find((name) => name !== '')!;
  const initializers = [
    tensorProto(`${prefix}/on`, tensorOf('on', 'BOOL', [], Uint8Array.of(1))),
    ...body.initializer.map((tensor) => ({ ...tensor, name: `${prefix}/${tensor.name}` })),
  ];
  const shared = new Map(body.initializer.map(({ name }) => [name, `${prefix}/${name}`]));
  const [iteration, on, ...carriedNames] = body.input.map(({ name }) => name);
  const nodes: NodeProto[] = [];
  let carried: readonly string[] = carriedIn;
  const scanned: string[][] = body.output.slice(1 + carriedIn.length).map(() => []);
  for (let step = 0; step < count; step++) {
    const place = `${prefix}/${step}`;
    initializers.push(int64s(place, [], step));
    const names = new Map([...shared, [iteration!, place], [on!, `${prefix}/on`]]);
    for (const [index, name] of carriedNames.entries()) names.set(name, carried[index]!);
    for (const { output } of body.node) for (const name of output) if (name !== '') names.set(name, `${place}/${name}`);
    for (const each of renamed(body.node, names)) nodes.push({ ...each, name: `${place}/${each.name}` });
    const results = body.output.slice(1).map(({ name }) => names.get(name) ?? name);
    carried = results.slice(0, carriedIn.length);
    for (const [index, name] of results.slice(carriedIn.length).entries()) scanned[index]!.push(name);
  }
  for (const [index, name] of loop.output.entries()) {
    if (name === '') continue;
    const value = carried[index];
    if (value === undefined) nodes.push(...stacked(scanned[index - carried.length]!, name, opset, initializers));
    else nodes.push(operator('Identity', [value], name));
  }
  return { nodes, initializers };
}

const int64s = (name: string, shape: readonly number[], value: number): TensorProto =>
  tensorProto(name, tensorOf(name, 'INT64', shape, BigInt64Array.of(BigInt(value))));

const operator = (
  opType: string,
  input: readonly string[],
  output: string,
  attributes: Readonly<Record<string, AttributeValue>> = {},
): NodeProto => nodeProto(opType, input, [output], attributes, { name: `${output}/${opType}` });

/** The results of all iterations, along a new first axis. */
function stacked(values: readonly string[], name: string, opset: number, initializers: TensorProto[]): NodeProto[] {
  const axes = `${name}/axes`;
  // Since opset 13 the axes are an input.
  const isInput = opset >= 13;
  if (isInput) initializers.push(int64s(axes, [1], 0));
  const rows = values.map((value, step) =>
    operator('Unsqueeze', isInput ? [value, axes] : [value], `${name}/${step}`, isInput ? {} : { axes: [0] }),
  );
  const joined = rows.map(({ output }) => output[0]!);
  return [...rows, operator('Concat', joined, name, { axis: 0 })];
}
