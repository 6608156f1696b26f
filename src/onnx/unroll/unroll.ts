/**
 * Recurrent operators as cells: a node over a whole sequence becomes a chain of nodes of a few steps each, so that the cells
 * of several layers can run side by side (Chrion, Yang et al., section 3). Cells are LSTM, GRU and RNN nodes again, so
 * whatever runs the model runs them with its own kernels, and they read the node's own weights.
 */
import { Graph, type GraphNode } from '../graph.ts';
import { capturedBy } from '../scope.ts';
import type { ModelProto, NodeProto } from '../types.ts';
import { emitCells, type CellResults } from './cells.ts';
import { commuting, type Commuting, type Shape } from './commute.ts';
import { OutputGraph } from './output-graph.ts';
import { readRecurrent, type RecurrentNode } from './recurrent-node.ts';
import { chunkName, chunksOf, sameTime, type Chunk, type TimeAxis } from './time-axis.ts';

export interface UnrollOptions {
  /** Steps of a cell; the last one of a sequence may have fewer. */
  readonly steps: number;
  /** The sizes of values: of all, or of those that are known. The result is for these. */
  readonly shapes: ReadonlyMap<string, Shape> | ((value: string) => Shape | undefined);
}

export interface UnrolledModel {
  /** The given model itself where there was nothing to unroll. */
  readonly model: ModelProto;
  /** Recurrent nodes that the unrolled ones became. */
  readonly cells: number;
  /** Recurrent nodes of more steps that stayed as they are. */
  readonly kept: readonly { readonly node: string; readonly reason: string }[];
}

/** What is done with a node. */
type Treatment =
  | { readonly kind: 'cells'; readonly recurrent: RecurrentNode }
  | { readonly kind: 'commutes'; readonly how: Commuting };

/** Who takes a value, of all those that could be had in chunks. */
interface Demand {
  readonly inChunks: ReadonlySet<string>;
  readonly whole: ReadonlySet<string>;
}

/**
 * Unrolls every LSTM, GRU and RNN node of the main graph with more than `steps` steps. Between recurrent nodes, operators
 * that commute with cutting along time are applied chunk by chunk, so that a cell waits for those cells only whose results
 * it takes; everywhere else values are joined again. Inputs and outputs of the graph keep their names and types.
 *
 * Throws RangeError for `steps` below 1, and {@link OnnxError} as {@link Graph}.
 */
export function unrollRecurrent(model: ModelProto, options: UnrollOptions): UnrolledModel {
  const { steps, shapes } = options;
  if (!Number.isSafeInteger(steps) || steps < 1) throw new RangeError(`a cell cannot have ${steps} steps`);
  const graph = new Graph(model);
  const opset = Number(model.opsetImport.find(({ domain }) => domain === '' || domain === 'ai.onnx')?.version ?? 1n);
  const given = typeof shapes === 'function' ? shapes : (value: string) => shapes.get(value);
  const shapeOf = (value: string): Shape | undefined => given(value) ?? graph.weight(value)?.dims;

  const kept: { node: string; reason: string }[] = [];
  const treatments = new Map<GraphNode, Treatment>();
  const times = new Map<string, TimeAxis>();
  for (const node of graph.nodes) {
    const reading = readRecurrent(node, graph, opset, steps, shapeOf);
    if (reading?.kind === 'kept') kept.push({ node: node.name, reason: reading.reason });
    if (reading?.kind === 'unrolled') {
      treatments.set(node, { kind: 'cells', recurrent: reading.recurrent });
      const y = node.proto.output[0] ?? '';
      if (y !== '') times.set(y, reading.recurrent.time);
    }
    if (reading !== undefined || !node.proto.input.some((value) => times.has(value))) continue;
    const how = commuting({
      node: node.proto,
      graph,
      opset,
      shapes: node.proto.input.map((value) => (value === '' ? undefined : shapeOf(value))),
      times: node.proto.input.map((value) => times.get(value)),
      outputShape: shapeOf(node.proto.output[0] ?? ''),
    });
    if (how === undefined) continue;
    treatments.set(node, { kind: 'commutes', how });
    for (const output of node.outputs) times.set(output, how.output);
  }
  if (![...treatments.values()].some(({ kind }) => kind === 'cells')) return { model, cells: 0, kept };
  const out = new OutputGraph(graph, opset);
  write(out, graph, treatments, times, steps);
  return { ...finished(model, graph, out), kept };
}

/**
 * Whoever takes chunks is a cell, or a node that makes chunks for one. A value that no cell is behind is better whole: one
 * operator on all of it instead of one on each chunk.
 */
function demandOf(
  graph: Graph,
  treatments: ReadonlyMap<GraphNode, Treatment>,
  times: ReadonlyMap<string, TimeAxis>,
): Demand {
  const inChunks = new Set<string>();
  const whole = new Set(graph.outputs);
  for (const node of graph.nodes.toReversed()) {
    const treatment = treatments.get(node);
    const cut = cutInputs(node, treatment, inChunks);
    for (const [place, value] of node.proto.input.entries()) {
      if (cut?.[place] !== undefined && sameTime(cut[place], times.get(value))) inChunks.add(value);
      else whole.add(value);
    }
    for (const value of capturedBy(node.proto)) whole.add(value);
  }
  return { inChunks, whole };
}

/** How a node takes its inputs cut, by place; undefined when it takes them whole. */
function cutInputs(
  node: GraphNode,
  treatment: Treatment | undefined,
  inChunks: ReadonlySet<string>,
): readonly (TimeAxis | undefined)[] | undefined {
  if (treatment?.kind === 'cells') return [treatment.recurrent.time];
  if (treatment?.kind === 'commutes' && node.outputs.some((output) => inChunks.has(output))) {
    return treatment.how.inputs;
  }
  return undefined;
}

function write(
  out: OutputGraph,
  graph: Graph,
  treatments: ReadonlyMap<GraphNode, Treatment>,
  times: ReadonlyMap<string, TimeAxis>,
  stepsMax: number,
): void {
  const { inChunks, whole } = demandOf(graph, treatments, times);
  const parts = new Map<string, readonly string[]>();
  const squeezed = new Map<string, CellResults['squeezed']>();
  const partsOf = (value: string, time: TimeAxis, chunks: readonly Chunk[]): readonly string[] => {
    const made = sameTime(times.get(value), time) ? parts.get(value) : undefined;
    if (made !== undefined) return made;
    const names = chunks.map((chunk) => `${value}/${chunkName(chunk)}`);
    const sizes = chunks.map((chunk) => chunk.steps * time.rows);
    return out.split(value, time.axis, sizes, names);
  };
  for (const node of graph.nodes) {
    const treatment = treatments.get(node);
    const { input, output } = node.proto;
    if (treatment?.kind === 'cells') {
      const { recurrent } = treatment;
      const [x = ''] = input;
      const [y = ''] = output;
      const made = emitCells(out, {
        recurrent,
        chunks: chunksOf(recurrent.time.steps, stepsMax),
        xParts: sameTime(times.get(x), recurrent.time) ? parts.get(x) : undefined,
        yInChunks: inChunks.has(y),
        yWhole: whole.has(y),
      });
      if (made.chunks.length > 0) parts.set(y, made.chunks);
      squeezed.set(y, made.squeezed);
    } else if (treatment?.kind === 'commutes' && node.outputs.some((value) => inChunks.has(value))) {
      const { how } = treatment;
      const chunks = chunksOf(how.output.steps, stepsMax);
      const taken = input.map((value, place) => {
        const time = how.inputs[place];
        return time === undefined || value === '' ? undefined : partsOf(value, time, chunks);
      });
      const isDirectionsAxis = how.squeezed?.length === 1 && how.squeezed[0] === 1;
      const made: string[][] = output.map(() => []);
      for (const [index, chunk] of chunks.entries()) {
        const same = isDirectionsAxis ? squeezed.get(input[0]!)?.[index] : undefined;
        if (same !== undefined) {
          made[0]?.push(same);
          continue;
        }
        const own = output.map((value) => (value === '' ? '' : out.valueName(`${value}/${chunkName(chunk)}`)));
        for (const [place, value] of own.entries()) made[place]?.push(value);
        const operands = input.map((value, place) => taken[place]?.[index] ?? value);
        if (how.sizes !== undefined) operands[1] = out.int64s(how.sizes(chunk));
        const name = out.nodeName(`${node.name}/${chunkName(chunk)}`);
        out.nodes.push({ ...node.proto, name, input: operands, output: own });
      }
      for (const [place, value] of output.entries()) {
        if (value === '') continue;
        parts.set(value, made[place]!);
        if (whole.has(value)) out.concat(made[place]!, how.output.axis, value, `${value}/Concat`);
      }
    } else {
      out.nodes.push(node.proto);
    }
  }
}

const isCell = ({ opType, domain }: NodeProto): boolean =>
  (domain === '' || domain === 'ai.onnx') && (opType === 'LSTM' || opType === 'GRU' || opType === 'RNN');

/** The model with the written graph: without nodes that nothing comes of, and without weights that only those read. */
function finished(model: ModelProto, graph: Graph, out: OutputGraph): { model: ModelProto; cells: number } {
  const original = new Set(graph.proto.node);
  const needed = new Set(graph.outputs);
  const living: NodeProto[] = [];
  let cells = 0;
  for (const node of out.nodes.toReversed()) {
    if (!node.output.some((value) => value !== '' && needed.has(value))) continue;
    const isNewCell = isCell(node) && !original.has(node);
    if (isNewCell) cells++;
    living.push(isNewCell ? { ...node, output: withoutUnused(node.output, needed) } : node);
    for (const value of node.input) needed.add(value);
    for (const value of capturedBy(node)) needed.add(value);
  }
  const node = living.toReversed();
  const { proto } = graph;
  const usedBefore = new Set(graph.nodes.flatMap(({ uses }) => uses));
  const remains = ({ name }: { readonly name: string }): boolean => needed.has(name) || !usedBefore.has(name);
  const initializer = [
    ...proto.initializer.filter(remains),
    ...out.initializers.filter(({ name }) => needed.has(name)),
  ];
  const dropped = new Set(proto.initializer.filter((tensor) => !remains(tensor)).map(({ name }) => name));
  // Before IR version 4 initializers stand among the inputs too.
  const input = proto.input.filter(({ name }) => !dropped.has(name));
  const named = new Set([...initializer, ...input].map(({ name }) => name));
  for (const { output } of node) for (const value of output) named.add(value);
  const valueInfo = proto.valueInfo.filter(({ name }) => named.has(name));
  return { model: { ...model, graph: { ...proto, node, initializer, input, valueInfo } }, cells };
}

/** A cell's outputs that somebody takes; what comes behind the last of them is left out. */
function withoutUnused(output: readonly string[], needed: ReadonlySet<string>): string[] {
  const used = output.map((value) => (needed.has(value) ? value : ''));
  while (used.at(-1) === '') used.pop();
  return used;
}
