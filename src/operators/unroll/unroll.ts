/**
 * Recurrent operators as cells: a node over a whole sequence becomes a chain of nodes of a few steps each, so that the
 * cells of several layers can run in parallel (Chrion, Yang et al., section 3). Cells are again LSTM, GRU and RNN
 * nodes, so any runtime uses its own kernels for them, and they read the original node's weights.
 */
import { type Graph, type GraphNode, opsetOf, capturedBy, type ModelProto, type NodeProto } from '../../onnx/index.ts';
import { typedGraph } from '../typed-graph.ts';
import { ChunkWriter } from './chunk-writer.ts';
import { followed, type Commuting, type Operands, type Shape } from '../chunks/rules.ts';
import { factsOf } from '../records.ts';
import type { Analysis, Treatment } from './demand.ts';
import { OutputGraph } from './output-graph.ts';
import { isRecurrent, readRecurrent } from './recurrent-node.ts';
import { selecting } from './select.ts';
import type { TimeAxis } from '../chunks/time-axis.ts';

export interface UnrollOptions {
  /** Steps of a cell; the last one of a sequence may have fewer. */
  readonly steps: number;
  /** The sizes of all values, or of those that are known. The result is for sequences of these lengths. */
  readonly shapes: ReadonlyMap<string, Shape> | ((value: string) => Shape | undefined);
}

/**
 * Unrolls every LSTM, GRU and RNN node of the main graph with more than `steps` steps. Between recurrent nodes,
 * operators that commute with cutting along time are applied chunk by chunk, so that a cell waits only for the cells
 * whose results it takes; everywhere else values are joined again. Inputs and outputs of the graph keep their names and
 * types. Nested graphs stay as they are. The result is the given model itself if there is nothing to unroll.
 * @throws RangeError for `steps` below 1, and OnnxError as {@link Graph}
 */
export function unrollRecurrent(model: ModelProto, { steps, shapes }: UnrollOptions): ModelProto {
  if (!Number.isSafeInteger(steps) || steps < 1) throw new RangeError(`a cell cannot have ${steps} steps`);
  const graph = typedGraph(model);
  const opset = opsetOf(model) ?? 1;
  const given = typeof shapes === 'function' ? shapes : (value: string) => shapes.get(value);
  const shapeOf = (value: string): Shape | undefined => given(value) ?? graph.weight(value)?.dims;
  const analysis = analyse(graph, opset, steps, shapeOf);
  if (![...analysis.treatments.values()].some(({ kind }) => kind === 'cells')) return model;
  const out = new OutputGraph(graph, opset);
  const writer = new ChunkWriter(out, graph, analysis, steps);
  for (const node of graph.nodes) writer.write(node);
  return finished(model, graph, out);
}

/** Follows time from the recurrent nodes through the operators after them. */
function analyse(
  graph: Graph,
  opset: number,
  stepsMax: number,
  shapeOf: (value: string) => Shape | undefined,
): Analysis {
  const treatments = new Map<GraphNode, Treatment>();
  const times = new Map<string, TimeAxis>();
  for (const node of graph.nodes) {
    const { input, output } = node.proto;
    const recurrent = readRecurrent(node, graph, opset, stepsMax, shapeOf);
    if (recurrent !== undefined) {
      treatments.set(node, { kind: 'cells', recurrent });
      const [y = ''] = output;
      if (y !== '') times.set(y, recurrent.time);
    }
    if (recurrent !== undefined || !input.some((value) => times.has(value))) continue;
    const operands: Operands = {
      node: node.proto,
      graph,
      opset,
      shapes: input.map((value) => (value === '' ? undefined : shapeOf(value))),
      times: input.map((value) => times.get(value)),
      outputShapes: output.map(shapeOf),
    };
    const selection = selecting(operands, stepsMax);
    const how = selection === undefined ? commuting(operands) : undefined;
    if (selection !== undefined) treatments.set(node, { kind: 'selects', selection });
    if (how === undefined) continue;
    treatments.set(node, { kind: 'commutes', how });
    for (const value of node.outputs) times.set(value, how.output);
  }
  return { treatments, times };
}

/** By the rule of its chunks; without one by that of its rows. */
function commuting(operands: Operands): Commuting | undefined {
  const { rows = 'unknown', chunks } = factsOf(operands.node) ?? {};
  if (chunks !== undefined) return chunks === 'whole' ? undefined : chunks(operands);
  return rows === 'unknown' ? undefined : followed(operands, rows);
}

/** The model with the written graph, without unused nodes and the weights that only those read. */
function finished(model: ModelProto, graph: Graph, out: OutputGraph): ModelProto {
  const { proto } = graph;
  const original = new Set(proto.node);
  const needed = new Set(graph.outputs);
  const living: NodeProto[] = [];
  for (const node of out.nodes.toReversed()) {
    if (!node.output.some((value) => value !== '' && needed.has(value))) continue;
    const isCell = isRecurrent(node) && !original.has(node);
    living.push(isCell ? { ...node, output: withoutUnused(node.output, needed) } : node);
    for (const value of node.input) needed.add(value);
    for (const value of capturedBy(node)) needed.add(value);
  }
  const node = living.toReversed();
  const usedBefore = new Set(graph.nodes.flatMap(({ uses }) => uses));
  const remains = ({ name }: { readonly name: string }): boolean => needed.has(name) || !usedBefore.has(name);
  const slices = out.initializers.filter(({ name }) => needed.has(name));
  const initializer = [...proto.initializer.filter(remains), ...slices];
  const dropped = new Set(proto.initializer.filter((tensor) => !remains(tensor)).map(({ name }) => name));
  // Before IR version 4 initializers are among the inputs too.
  const input = proto.input.filter(({ name }) => !dropped.has(name));
  const named = new Set([...initializer, ...input].map(({ name }) => name));
  for (const { output } of node) for (const value of output) named.add(value);
  const valueInfo = proto.valueInfo.filter(({ name }) => named.has(name));
  return { ...model, graph: { ...proto, node, initializer, input, valueInfo } };
}

/** The used outputs of a cell; unused ones at the end are left out. */
function withoutUnused(output: readonly string[], needed: ReadonlySet<string>): string[] {
  const used = output.map((value) => (needed.has(value) ? value : ''));
  while (used.at(-1) === '') used.pop();
  return used;
}
