/** Writes the nodes of a graph in order; in chunks where other nodes take their results in chunks. */
import type { Graph, GraphNode, NodeProto } from '../../onnx/index.ts';
import { emitCells, type CellResults } from './cells.ts';
import type { Commuting } from '../chunks/rules.ts';
import { demandOf, type Analysis, type Demand } from './demand.ts';
import type { OutputGraph } from './output-graph.ts';
import type { RecurrentNode } from './recurrent-node.ts';
import type { Selection } from './select.ts';
import { chunkName, chunksOf, sameTime, type Chunk, type TimeAxis } from '../chunks/time-axis.ts';

/**
 * The axis of directions in Y, [steps, directions, batch, hidden], and the transpose that moves it before the hidden
 * units.
 */
const directionsAxis = 1;
const directionsInwards = [0, 2, 1, 3];

/** The value of a chunk that a node need not make; `name` is the name for a value made another way. */
type Shortcut = (chunk: number, name: string) => string | undefined;

export class ChunkWriter {
  readonly #out: OutputGraph;
  readonly #analysis: Analysis;
  readonly #demand: Demand;
  readonly #stepsMax: number;
  readonly #parts = new Map<string, readonly string[]>();
  /** By Y, and by Y with the directions after the batch. */
  readonly #sides = new Map<string, CellResults['sides']>();
  readonly #turnedSides = new Map<string, CellResults['sides']>();

  constructor(out: OutputGraph, graph: Graph, analysis: Analysis, stepsMax: number) {
    this.#out = out;
    this.#analysis = analysis;
    this.#demand = demandOf(graph, analysis);
    this.#stepsMax = stepsMax;
  }

  /** Call in an order in which each node comes after the nodes whose values it takes. */
  write(node: GraphNode): void {
    const treatment = this.#analysis.treatments.get(node);
    const { inChunks } = this.#demand;
    if (treatment?.kind === 'cells') this.#writeCells(node, treatment.recurrent);
    else if (treatment?.kind === 'commutes' && node.outputs.some((value) => inChunks.has(value))) {
      this.#writeChunks(node, treatment.how);
    } else if (treatment?.kind === 'selects' && inChunks.has(node.proto.input[0]!)) {
      this.#writeSelection(node, treatment.selection);
    } else this.#out.nodes.push(node.proto);
  }

  /** A value in chunks along `time`: the existing chunks, or a cut. */
  #partsOf(value: string, time: TimeAxis, chunks: readonly Chunk[]): readonly string[] {
    const made = sameTime(this.#analysis.times.get(value), time) ? this.#parts.get(value) : undefined;
    if (made !== undefined) return made;
    const names = chunks.map((chunk) => `${value}/${chunkName(chunk)}`);
    const sizes = chunks.map(({ steps }) => steps * time.rows);
    return this.#out.split(value, time.axis, sizes, names);
  }

  #writeCells({ proto }: GraphNode, recurrent: RecurrentNode): void {
    const [x = ''] = proto.input;
    const [y = ''] = proto.output;
    const made = emitCells(this.#out, {
      recurrent,
      chunks: chunksOf(recurrent.time.steps, this.#stepsMax),
      xParts: sameTime(this.#analysis.times.get(x), recurrent.time) ? this.#parts.get(x) : undefined,
      yInChunks: this.#demand.inChunks.has(y),
      yWhole: this.#demand.whole.has(y),
    });
    if (made.chunks.length > 0) this.#parts.set(y, made.chunks);
    this.#sides.set(y, made.sides);
  }

  #writeChunks({ proto, name }: GraphNode, how: Commuting): void {
    const { input, output } = proto;
    const chunks = chunksOf(how.output.steps, this.#stepsMax);
    const taken = input.map((value, place) => {
      const time = how.inputs[place];
      return time === undefined || value === '' ? undefined : this.#partsOf(value, time, chunks);
    });
    const shortcut = this.#shortcut(proto, how);
    const made: string[][] = output.map(() => []);
    for (const [index, chunk] of chunks.entries()) {
      const same = shortcut(index, `${output[0]}/${chunkName(chunk)}`);
      if (same !== undefined) {
        made[0]?.push(same);
        continue;
      }
      const own = output.map((value) => (value === '' ? '' : this.#out.valueName(`${value}/${chunkName(chunk)}`)));
      for (const [place, value] of own.entries()) made[place]?.push(value);
      const operands = input.map((value, place) => taken[place]?.[index] ?? value);
      if (how.sizes !== undefined) operands[1] = this.#out.int64s(how.sizes(chunk));
      const ownName = this.#out.nodeName(`${name}/${chunkName(chunk)}`);
      this.#out.nodes.push({ ...proto, name: ownName, input: operands, output: own });
    }
    for (const [place, value] of output.entries()) {
      if (value === '') continue;
      this.#parts.set(value, made[place]!);
      if (this.#demand.whole.has(value)) this.#out.concat(made[place]!, how.output.axis, value, `${value}/Concat`);
    }
  }

  /**
   * The result of a node for a chunk of Y, if the cells' own values give it with less work: a squeeze of the only
   * direction, or two directions side by side in each item, as PyTorch does it (a transpose and a reshape).
   */
  #shortcut({ opType, input, output, attribute }: NodeProto, how: Commuting): Shortcut {
    const [from = '', to = ''] = [input[0], output[0]];
    const sides = this.#sides.get(from);
    const perm = attribute.find(({ name }) => name === 'perm')?.ints;
    if (
      opType === 'Transpose' &&
      sides !== undefined &&
      perm?.every((axis, at) => Number(axis) === directionsInwards[at])
    ) {
      this.#turnedSides.set(to, sides);
    }
    if (how.squeezed?.length === 1 && how.squeezed[0] === directionsAxis) {
      return (chunk) => (sides?.[chunk]?.length === 1 ? sides[chunk][0] : undefined);
    }
    const turned = how.mergesLast === true ? this.#turnedSides.get(from) : undefined;
    return (chunk, name) => {
      const values = turned?.[chunk];
      if (values === undefined) return undefined;
      return this.#out.concat(values, directionsAxis + 1, this.#out.valueName(name), `${name}/Concat`);
    };
  }

  #writeSelection({ proto }: GraphNode, { time, chunk, places, isScalar }: Selection): void {
    const parts = this.#partsOf(proto.input[0]!, time, chunksOf(time.steps, this.#stepsMax));
    const input = proto.input.map((value, place) => {
      if (place === 0) return parts[chunk]!;
      const ints = places.get(place);
      return ints === undefined ? value : this.#out.int64s(ints, isScalar ? [] : [ints.length]);
    });
    this.#out.nodes.push({ ...proto, input });
  }
}
