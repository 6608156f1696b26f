/** Writes one recurrent node as a chain of cells for each direction, all with the same weights. */
import { lengthParts } from './lengths.ts';
import type { OutputGraph } from './output-graph.ts';
import type { Direction, RecurrentNode } from './recurrent-node.ts';
import { chunkName, type Chunk } from '../chunks/time-axis.ts';

export interface CellsRequest {
  readonly recurrent: RecurrentNode;
  readonly chunks: readonly Chunk[];
  /** X in these chunks, if it is available in them. */
  readonly xParts: readonly string[] | undefined;
  /** Whether any node takes Y in chunks, and as a whole. */
  readonly yInChunks: boolean;
  readonly yWhole: boolean;
}

/** Y in chunks, empty unless requested. */
export interface CellResults {
  readonly chunks: readonly string[];
  /**
   * For each chunk the result of each direction without the axis of directions, if there is such a value; it saves a
   * Squeeze.
   */
  readonly sides: readonly (readonly string[] | undefined)[];
}

/** The results of one direction. */
interface Chain {
  /** Y by chunks, [steps, 1, batch, hidden] each. */
  readonly y: readonly string[];
  readonly squeezed: readonly (string | undefined)[];
  /** The states at the end, [1, batch, hidden]. */
  readonly states: readonly string[];
}

const stateNames = ['Y_h', 'Y_c'] as const;
const firstStateInput = 5;
const peepholeInput = 7;

/** Adds the cells of a node and the nodes that join their results. */
export function emitCells(out: OutputGraph, request: CellsRequest): CellResults {
  const { node, directions, batchFirst, states } = request.recurrent;
  /** The parts by direction of an input that has one for each. */
  const perDirection = (place: number, axis = 0): readonly string[] => {
    const value = node.proto.input[place] ?? '';
    return value === '' || directions.length === 1 ? directions.map(() => value) : out.directions(value, axis);
  };
  const weights = [1, 2, 3].map((place) => perDirection(place));
  const peepholes = perDirection(peepholeInput);
  const initial = Array.from({ length: states }, (_, state) =>
    perDirection(firstStateInput + state, batchFirst ? 1 : 0).map((value) =>
      batchFirst && value !== '' ? timeFirst(out, value) : value,
    ),
  );
  const steps = inputSteps(out, request);
  const chains = directions.map((direction, index) =>
    emitChain(out, request, direction, {
      steps,
      weights: weights.map((parts) => parts[index]!),
      peepholes: peepholes[index]!,
      initial: initial.map((parts) => parts[index]!),
    }),
  );
  if (!endsInChain(request.recurrent)) {
    for (let state = 0; state < states; state++) {
      const output = node.proto.output[1 + state] ?? '';
      if (output === '') continue;
      const name = `${node.name}/${stateNames[state]}`;
      const parts = chains.map((chain) => chain.states[state]!);
      joinDirections(out, parts, 0, batchFirst ? [1, 0, 2] : undefined, name, output);
    }
  }
  return joinSteps(out, request, chains);
}

/** Whether the last cell's states are the node's own outputs, so that the chain gives them their names. */
const endsInChain = ({ directions, batchFirst }: RecurrentNode): boolean => directions.length === 1 && !batchFirst;

const directionName = ({ reversed }: Direction): string => (reversed ? 'reverse' : 'forward');

/** [batch, time or directions, ...] with the first two axes exchanged. */
function timeFirst(out: OutputGraph, value: string): string {
  return out.once(`time first ${value}`, () => [
    out.transpose(value, [1, 0, 2], out.valueName(`${value}/series`), `${value}/Transpose`),
  ])[0]!;
}

/** X by chunks, [steps, batch, input] each. */
function inputSteps(out: OutputGraph, { recurrent, chunks, xParts }: CellsRequest): readonly string[] {
  const { node, batchFirst } = recurrent;
  const x = node.proto.input[0]!;
  if (xParts !== undefined) return batchFirst ? xParts.map((part) => timeFirst(out, part)) : xParts;
  const names = chunks.map((chunk) => `${x}/${chunkName(chunk)}`);
  const sizes = chunks.map(({ steps }) => steps);
  return out.split(batchFirst ? timeFirst(out, x) : x, 0, sizes, names);
}

/** The parts of all directions side by side along `axis`, then transposed by `perm` if given, as the value `output`. */
function joinDirections(
  out: OutputGraph,
  parts: readonly string[],
  axis: number,
  perm: readonly number[] | undefined,
  name: string,
  output: string,
): void {
  const joined = perm === undefined ? output : out.valueName(`${name}/directions`);
  const [only] = parts;
  const single = parts.length === 1 && only !== undefined && perm !== undefined;
  const all = single ? only : out.concat(parts, axis, joined, `${name}/Concat`);
  if (perm !== undefined) out.transpose(all, perm, output, `${name}/Transpose`);
}

/** Y of all directions: by chunks if requested, else only as a whole. */
function joinSteps(out: OutputGraph, request: CellsRequest, chains: readonly Chain[]): CellResults {
  const { chunks, yInChunks, yWhole } = request;
  const { node, batchFirst, directions, time } = request.recurrent;
  const y = node.proto.output[0] ?? '';
  const none: CellResults = { chunks: [], sides: [] };
  if (y === '' || (!yInChunks && !yWhole)) return none;
  const name = `${node.name}/Y`;
  const perm = batchFirst ? [2, 0, 1, 3] : undefined;
  const [first] = chains;
  const plain = endsInChain(request.recurrent) ? first : undefined;
  if (!yInChunks) {
    if (plain !== undefined) {
      out.concat(plain.y, 0, y, `${name}/Concat`);
      return none;
    }
    // First all steps of each direction: fewer nodes than joining directions in each chunk.
    const along = chains.map((chain, index) => {
      const own = `${name}/${directionName(directions[index]!)}`;
      return out.concat(chain.y, 0, out.valueName(own), `${own}/Concat`);
    });
    joinDirections(out, along, 1, perm, name, y);
    return none;
  }
  const parts =
    plain?.y ??
    chunks.map((chunk, index) => {
      const output = out.valueName(`${y}/${chunkName(chunk)}`);
      const sides = chains.map((chain) => chain.y[index]!);
      joinDirections(out, sides, 1, perm, `${name}/${chunkName(chunk)}`, output);
      return output;
    });
  if (yWhole) out.concat(parts, time.axis, y, `${name}/Concat`);
  const sides = chunks.map((_, index) => {
    const values = chains.flatMap((chain) => chain.squeezed[index] ?? []);
    return batchFirst || values.length < chains.length ? undefined : values;
  });
  return { chunks: parts, sides };
}

interface ChainInputs {
  /** X by chunks. */
  readonly steps: readonly string[];
  /** W, R and B; '' for those that the node leaves out. */
  readonly weights: readonly string[];
  readonly peepholes: string;
  /** '' for a state that starts at zero. */
  readonly initial: readonly string[];
}

function emitChain(out: OutputGraph, request: CellsRequest, direction: Direction, inputs: ChainInputs): Chain {
  const { recurrent, chunks } = request;
  const { node, directions, states, lengths } = recurrent;
  const base = directions.length === 1 ? node.name : `${node.name}/${directionName(direction)}`;
  const parts = lengthParts(out, lengths, chunks);
  // ONNX Runtime returns zero as the last state of an item without any step, whatever its initial state.
  const started = inputs.initial.some((value) => value !== '') ? parts.started : undefined;
  const y: string[] = [];
  const squeezed: (string | undefined)[] = [];
  let state = inputs.initial;
  const places = chunks.map((_, place) => place);
  const order = direction.reversed ? places.toReversed() : places;
  for (const index of order) {
    const chunk = chunks[index]!;
    const name = `${base}/${chunkName(chunk)}`;
    const { steps, running } = parts.chunks[index]!;
    const before = state;
    const isLast = index === order.at(-1) && endsInChain(recurrent);
    /**
     * The name of a state after the cell, after the choice of running items, and after the choice of items that ever
     * ran.
     */
    const stateName = (place: number, stage: 'cell' | 'kept' | 'ended', wanted: string): string => {
      const output = isLast ? (node.proto.output[1 + place] ?? '') : '';
      const last = started !== undefined ? 'ended' : running !== undefined && before[place] !== '' ? 'kept' : 'cell';
      return output !== '' && stage === last ? output : out.valueName(wanted);
    };
    const made = stateNames.slice(0, states).map((part, place) => stateName(place, 'cell', `${name}/${part}`));
    y[index] = out.valueName(`${name}/Y`);
    // The output of a single step is its state, except for items that have no such step.
    squeezed[index] = chunk.steps === 1 && running === undefined ? made[0] : undefined;
    const input = [inputs.steps[index]!, ...inputs.weights, steps, ...before, inputs.peepholes];
    while (input.at(-1) === '') input.pop();
    const attribute = [...direction.attributes];
    out.nodes.push({ ...node.proto, name: out.nodeName(name), input, output: [y[index], ...made], attribute });
    state = made.map((value, place) => {
      // An item that has no step here keeps its state. One that started at zero has it already.
      if (running === undefined || before[place] === '') return value;
      const kept = `${name}/${stateNames[place]}/kept`;
      return out.node('Where', kept, [running, value, before[place]!], {}, stateName(place, 'kept', kept));
    });
    if (started === undefined || index !== order.at(-1)) continue;
    state = state.map((value, place) => {
      const ended = `${base}/${stateNames[place]}/ended`;
      const operands = [started, value, out.zero(recurrent.elementType)];
      return out.node('Where', ended, operands, {}, stateName(place, 'ended', ended));
    });
  }
  return { y, squeezed, states: state };
}
