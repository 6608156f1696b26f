/**
 * The common part of LSTM, GRU and RNN. One product computes the input's part of the gates for all steps. Then one
 * kernel runs all steps (recurrent-sequence.ts). If the layer is too large for that, each step is a product of the
 * state with the recurrent weights, and a kernel for the gates. Directions are independent of each other.
 */
import { findAttribute, Unsupported, floatLiteral } from '../../../operators/index.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import {
  changed,
  elementsOf,
  forEachElement,
  written,
  type Elements,
  type ElementsOf,
  type Use,
  type Uses,
} from '../common/elements.ts';
import { moveStrided } from '../common/launching.ts';
import type { Buffer, Emitter, Value } from '../types.ts';
import { activated, parameterCount } from './activations.ts';
import { emitProduct } from './product.ts';
import { convert } from '../common/inputs.ts';
import { isOneKernel, RecurrentSequence } from './recurrent-sequence.ts';

export interface Cell {
  readonly type: string;
  readonly gates: number;
  readonly defaultActivations: readonly string[];
}

interface Recurrence {
  readonly emitter: Emitter;
  readonly cell: Cell;
  readonly datatype: DataType;
  readonly x: Value;
  readonly w: Value;
  readonly r: Value;
  readonly lengths: Value | undefined;
  readonly y: Value | undefined;
  readonly steps: number;
  readonly batch: number;
  readonly input: number;
  readonly hidden: number;
  readonly directions: number;
  /** The input of an activation is clipped to [-clip, clip]. */
  readonly clip: number | undefined;
}

/** The state's part of some gates: [batch, gates x hidden] in float. */
interface StatePart {
  readonly firstGate: number;
  readonly gates: number;
  readonly buffer: Buffer;
}

/** One direction of a node. */
export interface Direction extends Recurrence {
  readonly direction: number;
  readonly reversed: boolean;
  /** C expression of the cell's activation number `place`. */
  readonly activate: (place: number, x: string) => string;
  /** [steps, batch, gates x hidden] in float: W x X, without bias. */
  readonly fromInput: Buffer;
  /** R x H of the current step. */
  readonly fromState: readonly StatePart[];
  readonly bias: Use | undefined;
  readonly h: Use;
  /** The state in the type of the recurrent weights, if it differs. */
  readonly narrowH: Use | undefined;
  /** Collects the parts of a step, if one kernel runs all steps. */
  readonly sequence: Sequence | undefined;
  /** Number of steps to emit: 1 if one kernel runs all steps. */
  readonly emitted: number;
}

interface Sequence {
  readonly kernel: RecurrentSequence;
  /** [hidden, gates x hidden]: the transposed recurrent weights. */
  readonly weights: Use;
}

/** Gates are summed in float, whatever the tensors' type. */
const gateType: DataType = 'FP32';
const gateBytes = elementBytes[gateType];
/** Threads of a block. Few, because a step is small and more blocks run side by side. */
const stepThreads = 128;

/** The activations of each direction. Each takes as many of the listed alphas and betas as it has parameters. */
function activationsOf(emitter: Emitter, cell: Cell, directions: number): Direction['activate'][] {
  const decoder = new TextDecoder();
  const given = findAttribute(emitter, 'activations')?.strings?.map((text) => decoder.decode(text)) ?? [];
  const perDirection = cell.defaultActivations.length;
  const names = given.length > 0 ? given : Array.from({ length: directions }, () => cell.defaultActivations).flat();
  if (names.length !== directions * perDirection)
    throw new Unsupported(`${cell.type} with ${names.length} activations`);
  const listed = (name: string): Iterator<number> => (findAttribute(emitter, name)?.floats ?? []).values();
  const [alphas, betas] = [listed('activation_alpha'), listed('activation_beta')];
  const expressions = names.map((name) => {
    const count = parameterCount(name);
    const parameters = [alphas, betas].slice(0, count).map((list) => list.next().value as number | undefined);
    return (x: string): string =>
      `([&](float z) -> float { return ${activated(name, 'z', (f) => `${f}f`, parameters)}; }(${x}))`;
  });
  return Array.from(
    { length: directions },
    (_, direction) => (place, x) => expressions[direction * perDirection + place]!(x),
  );
}

/** Reads the node. @throws Unsupported for forms that are not covered */
function recurrenceOf(emitter: Emitter, cell: Cell): Recurrence {
  const [x, w, r] = [emitter.required(0, ['FP32', 'FP16', 'BF16']), emitter.required(1), emitter.required(2)];
  if (emitter.attribute('layout', 0) !== 0) throw new Unsupported(`${cell.type} with layout 1 (batch first)`);
  const [steps, batch, input] = x.shape;
  const [directions, gateRows] = w.shape;
  const hidden = r.shape[2];
  if (x.shape.length !== 3 || w.shape.length !== 3 || r.shape.length !== 3 || hidden === undefined) {
    throw new Unsupported(
      `${cell.type} with inputs of shape [${x.shape.join(',')}], [${w.shape.join(',')}], [${r.shape.join(',')}]`,
    );
  }
  if (gateRows !== cell.gates * hidden || w.shape[2] !== input || r.shape[1] !== gateRows) {
    throw new Unsupported(`${cell.type} with weights of shape [${w.shape.join(',')}] and [${r.shape.join(',')}]`);
  }
  return {
    emitter,
    cell,
    datatype: x.datatype,
    x,
    w,
    r,
    lengths: emitter.input(4),
    y: emitter.output(0),
    steps: steps!,
    batch: batch!,
    input: input!,
    hidden,
    directions: directions!,
    clip: findAttribute(emitter, 'clip')?.f,
  };
}

function directionsOf(emitter: Emitter, type: string, directions: number): readonly boolean[] {
  const name = emitter.attribute('direction', 'forward').toLowerCase();
  const reversed = { forward: [false], reverse: [true], bidirectional: [false, true] }[name];
  if (reversed?.length !== directions)
    throw new Unsupported(`${type} with direction '${name}' and ${directions} weights`);
  return reversed;
}

/** A direction's part of a value [directions, ...]. */
export function partOfValue({ emitter, directions }: Recurrence, value: Value, direction: number): Use {
  const bytes = (value.elements / directions) * elementBytes[value.storedType];
  return { buffer: emitter.part(value.buffer, direction * bytes, bytes), storedType: value.storedType };
}

/** The memory of a state, filled with its initial value: part of the output with the last state, or scratch. */
export function initialState(
  recurrence: Recurrence,
  direction: number,
  initial: Value | undefined,
  output: Value | undefined,
): Use {
  const { emitter, batch, hidden, datatype, lengths } = recurrence;
  const bytes = batch * hidden * elementBytes[datatype];
  const buffer = output === undefined ? emitter.scratch(bytes) : partOfValue(recurrence, output, direction).buffer;
  const state = { buffer, storedType: datatype };
  if (initial === undefined) {
    emitter.fill(buffer, 0, bytes);
    return state;
  }
  const given = partOfValue(recurrence, initial, direction);
  emitter.copy(given.storedType === datatype ? given.buffer : convert(emitter, given, datatype).buffer, buffer, bytes);
  // The last state of an empty sequence is 0, as in ONNX Runtime; the specification does not say.
  if (lengths !== undefined) {
    forEachElement(
      emitter,
      'clear_empty',
      batch * hidden,
      { lengths, state: changed(state) },
      (of) => `if (${of.lengths.at(`i / ${hidden}u`)} <= 0) ${of.state.set('i', '0.0f')}`,
    );
  }
  return state;
}

/** Memory for a step's products with the state, one for each entry of `gatesTogether`. */
function statePartsOf({ emitter, batch, hidden }: Recurrence, gatesTogether: readonly number[]): StatePart[] {
  let firstGate = 0;
  return gatesTogether.map((gates) => {
    const part = { firstGate, gates, buffer: emitter.scratch(batch * gates * hidden * gateBytes) };
    firstGate += gates;
    return part;
  });
}

/** The recurrent weights of some gates times the state, or times `given`. */
export function emitStateProduct(at: Direction, part: StatePart, given?: Use): void {
  const { firstGate, gates, buffer } = part;
  const { emitter, cell, r, h, narrowH, hidden, batch, direction, sequence } = at;
  if (sequence !== undefined) {
    const from = given === undefined ? { name: 'h', use: h } : { name: 'scaled', use: given };
    const to = { name: stateName(at, part), use: { buffer, storedType: gateType } };
    const rows = { rows: gates * hidden, first: firstGate * hidden, allRows: cell.gates * hidden };
    sequence.kernel.product(sequence.weights, rows, from, to);
    return;
  }
  const gateBytesOfWeight = hidden * hidden * elementBytes[r.storedType];
  const weights = partOfValue(at, r, direction).buffer;
  const state = given ?? narrowH ?? h;
  if (given === undefined && narrowH !== undefined) {
    forEachElement(emitter, 'narrow_state', batch * hidden, { input: h, output: written(narrowH) }, (of) =>
      of.output.set('i', of.input.at('i')),
    );
  }
  const ofGates = emitter.part(weights, firstGate * gateBytesOfWeight, gates * gateBytesOfWeight);
  emitProduct(emitter, {
    rows: batch,
    columns: gates * hidden,
    depth: hidden,
    batch: [],
    a: { ...state, leading: hidden },
    b: { buffer: ofGates, storedType: r.storedType, transposed: true, leading: hidden },
    d: { buffer, storedType: gateType },
  });
}

const stateName = ({ fromState }: Direction, part: StatePart): string => `state${fromState.indexOf(part)}`;

/**
 * A kernel over the units of each item. It does nothing after the end of an item's sequence. For each gate, `x0`, `x1`,
 * ... is the input's part and `s0`, `s1`, ... the state's, with their biases. The step is an argument, so that all
 * steps share a kernel.
 */
export function forEachUnit<Given extends Uses>(
  at: Direction,
  hint: string,
  step: number,
  gates: readonly number[],
  tensors: Given,
  body: (of: ElementsOf<Given>) => readonly string[],
): void {
  const { emitter, cell, steps, batch, hidden, bias, lengths, reversed, sequence } = at;
  const rows = cell.gates * hidden;
  const stepBytes = batch * rows * gateBytes;
  const time = reversed ? steps - 1 - step : step;
  const x = hasTimes(at) ? at.fromInput : emitter.part(at.fromInput, time * stepBytes, stepBytes);
  const lines = sequence === undefined ? [`const u32 item = i / ${hidden}u, unit = i % ${hidden}u;`] : [];
  if (!hasTimes(at)) {
    lines.push(`const u32 at = item * ${rows}u + unit;`);
  } else {
    if (lengths === undefined) {
      lines.push(`const u32 time = ${reversed ? `${steps - 1}u - ` : ''}(u32)step;`);
    } else {
      // Sequences have different lengths, and a reversed one begins at its own end.
      lines.push('const i32 left = (i32)lengths[item] - step;');
      lines.push(`if (left <= 0) ${sequence === undefined ? 'return' : 'continue'};`);
      lines.push(`const u32 time = (u32)${reversed ? 'left - 1u' : 'step'};`);
    }
    lines.push(`const u32 at = (time * ${batch}u + item) * ${rows}u + unit;`);
  }
  const isWanted = ({ firstGate, gates: count }: StatePart): boolean =>
    gates.some((gate) => gate >= firstGate && gate < firstGate + count);
  const parts = at.fromState.filter(isWanted);
  const states = Object.fromEntries(
    parts.map((part) => [stateName(at, part), { buffer: part.buffer, storedType: gateType }]),
  );
  const uses = { x: { buffer: x, storedType: gateType }, lengths, bias, ...states, ...tensors };
  const text = (of: Readonly<Record<string, Elements | undefined>>): readonly string[] => {
    const biasAt = (row: string): string => (bias === undefined ? '' : ` + ${of['bias']!.at(row)}`);
    const values = gates.flatMap((gate) => {
      const part = parts.find(({ firstGate, gates: count }) => gate >= firstGate && gate < firstGate + count)!;
      const row = `${gate * hidden}u + unit`;
      const place = `item * ${part.gates * hidden}u + ${(gate - part.firstGate) * hidden}u + unit`;
      return [
        `const float x${gate} = x[at + ${gate * hidden}u]${biasAt(row)};`,
        `const float s${gate} = ${stateName(at, part)}[${place}]${biasAt(`${rows}u + ${row}`)};`,
      ];
    });
    return [...lines, ...values, ...body(of as ElementsOf<Given>)];
  };
  if (sequence === undefined) {
    forEachElement(emitter, hint, batch * hidden, uses, text, { scalars: { step }, threads: stepThreads });
  } else {
    const given = Object.entries<Use | undefined>(uses).flatMap(([name, use]) => (use ? [[name, use] as const] : []));
    sequence.kernel.units(uses, text(Object.fromEntries(given.map(([name, use]) => [name, elementsOf(name, use)]))));
  }
}

/** Whether the kernel computes the index in time itself: sequences have lengths, or it runs all steps. */
const hasTimes = ({ lengths, sequence }: Direction): boolean => lengths !== undefined || sequence !== undefined;

/** The state and its part of Y, which {@link writeState} writes. */
export function stateTensors(at: Direction, step: number) {
  const { emitter, h, y, steps, batch, hidden, directions, direction, reversed } = at;
  const bytes = elementBytes[h.storedType];
  const time = reversed ? steps - 1 - step : step;
  const start = (time * directions + direction) * batch * hidden * bytes;
  const whole = y && { buffer: y.buffer, storedType: y.storedType };
  const part = y && { buffer: emitter.part(y.buffer, start, batch * hidden * bytes), storedType: y.storedType };
  const target = hasTimes(at) ? whole : part;
  return { h: changed(h), y: target && written(target) };
}

export function writeState(
  at: Direction,
  of: { readonly h: Elements; readonly y: Elements | undefined },
  value: string,
): string[] {
  const { directions, direction, batch, hidden } = at;
  const place = hasTimes(at) ? `time * ${directions * batch * hidden}u + ${direction * batch * hidden}u + i` : 'i';
  return [`const float next = ${value};`, of.h.set('i', 'next'), of.y?.set(place, 'next') ?? ''];
}

/** Activation number `place` of a gate's sum, after clipping. */
export const activatedGate = ({ clip, activate }: Direction, place: number, x: string): string =>
  activate(place, clip === undefined ? x : `fminf(fmaxf(${x}, ${floatLiteral(-clip)}), ${floatLiteral(clip)})`);

function sequenceOf(recurrence: Recurrence, direction: number, launches: number): Sequence | undefined {
  const { emitter, cell, r, batch, hidden, steps } = recurrence;
  const rows = cell.gates * hidden;
  const bytes = rows * hidden * elementBytes[r.storedType];
  if (!isOneKernel(bytes, batch, steps, launches)) return undefined;
  const weights = { buffer: emitter.scratch(bytes), storedType: r.storedType };
  const from = { buffer: partOfValue(recurrence, r, direction).buffer, start: 0, strides: [1, hidden] };
  moveStrided(emitter, 'turn_weights', [hidden, rows], r.storedType, from, {
    ...weights,
    start: 0,
    strides: [rows, 1],
  });
  return { weights, kernel: new RecurrentSequence(emitter, { batch, hidden, steps }) };
}

/** @param gatesTogether numbers of gates whose products with the state are computed together, in order */
export function emitRecurrence(
  emitter: Emitter,
  cell: Cell,
  gatesTogether: readonly number[],
  emitSteps: (at: Direction) => void,
): void {
  const recurrence = recurrenceOf(emitter, cell);
  const { directions, batch, hidden, input, steps, x, w, r, y, lengths, datatype } = recurrence;
  const reversals = directionsOf(emitter, cell.type, directions);
  const activations = activationsOf(emitter, cell, directions);
  const rows = cell.gates * hidden;
  if (batch * hidden === 0) return;
  if (batch * directions * Math.max(1, steps) * rows > 2 ** 31) {
    throw new Unsupported(`${cell.type} over more than 2^31 gate values`);
  }
  // No kernel writes steps beyond a sequence's length: they must be 0.
  if (y !== undefined && lengths !== undefined) emitter.fill(y.buffer, 0, y.elements * elementBytes[datatype]);
  for (const [direction, reversed] of reversals.entries()) {
    const fromInput = emitter.scratch(steps * batch * rows * gateBytes);
    const weights = partOfValue(recurrence, w, direction);
    emitProduct(emitter, {
      rows: steps * batch,
      columns: rows,
      depth: input,
      batch: [],
      a: { ...x, leading: Math.max(1, input) },
      b: { buffer: weights.buffer, storedType: w.storedType, transposed: true, leading: Math.max(1, input) },
      d: { buffer: fromInput, storedType: gateType },
    });
    const bias = emitter.input(3);
    const narrow = { buffer: emitter.scratch(batch * hidden * elementBytes[r.storedType]), storedType: r.storedType };
    // A product, and a kernel for the units.
    const sequence = sequenceOf(recurrence, direction, 2 * gatesTogether.length);
    emitSteps({
      ...recurrence,
      direction,
      reversed,
      activate: activations[direction]!,
      fromInput,
      fromState: statePartsOf(recurrence, gatesTogether),
      bias: bias && partOfValue(recurrence, bias, direction),
      h: initialState(recurrence, direction, emitter.input(5), emitter.output(1)),
      narrowH: r.storedType === datatype ? undefined : narrow,
      sequence,
      emitted: sequence === undefined ? steps : 1,
    });
    sequence?.kernel.emit(`${cell.type.toLowerCase()}_sequence`);
  }
}
