/**
 * LSTM, GRU and RNN. One product makes the input's part of the gates for all steps; then each step is the product of the state with the
 * recurrent weights and one kernel for the gates. Directions are independent of each other.
 */
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import { elementOf, reader, requireDatatype } from '../common/element.ts';
import { forEachIndex, type Parameter } from '../common/launching.ts';
import { Unsupported, type Buffer, type Emitter, type Operator, type Value } from '../types.ts';
import { convert, emitProduct } from './product.ts';

interface Sizes {
  readonly steps: number;
  readonly batch: number;
  readonly input: number;
  readonly hidden: number;
  readonly directions: number;
}

interface Cell {
  readonly type: string;
  readonly gates: number;
  readonly defaultActivations: readonly string[];
}

interface Recurrence extends Sizes {
  readonly emitter: Emitter;
  readonly cell: Cell;
  readonly datatype: DataType;
  readonly x: Value;
  readonly w: Value;
  readonly r: Value;
  readonly b: Value | undefined;
  readonly lengths: Value | undefined;
  readonly initialH: Value | undefined;
  readonly y: Value | undefined;
  readonly yH: Value | undefined;
}

/** One direction of a node, as its steps see it. */
interface Direction extends Recurrence {
  readonly direction: number;
  readonly reversed: boolean;
  readonly activations: readonly string[];
  /** [steps, batch, gates x hidden] in float: W x X, without bias. */
  readonly fromInput: Buffer;
  /** R x H of the present step. */
  readonly fromState: readonly StatePart[];
  readonly h: Buffer;
  /** The state in the type of the recurrent weights, where that is another. */
  readonly narrowH: { readonly buffer: Buffer; readonly type: DataType } | undefined;
}

/** The state's part of some gates: [batch, gates x hidden] in float. */
interface StatePart {
  readonly firstGate: number;
  readonly gates: number;
  readonly buffer: Buffer;
}

/** Values of gates are added up in float, whatever the tensors' type. */
const gateType: DataType = 'FP32';
const gateBytes = elementBytes[gateType];
/** Few: a step is small, and more blocks of it run side by side. */
const stepThreads = 128;

/** C expressions of activations; the ones that take parameters are refused by name. */
const activationExpressions: Readonly<Record<string, (x: string) => string>> = {
  sigmoid: (x) => `(1.0f / (1.0f + expf(-(${x}))))`,
  tanh: (x) => `tanhf(${x})`,
  relu: (x) => `((${x}) < 0.0f ? 0.0f : (${x}))`,
  softsign: (x) => `((${x}) / (1.0f + fabsf(${x})))`,
  softplus: (x) => `(fmaxf(${x}, 0.0f) + log1pf(expf(-fabsf(${x}))))`,
};

function activationNames(emitter: Emitter, cell: Cell, directions: number): readonly string[] {
  const given = emitter.node.proto.attribute.find(({ name }) => name === 'activations')?.strings;
  const decoder = new TextDecoder();
  const names = (given ?? []).map((text) => decoder.decode(text).toLowerCase());
  const all = names.length === 0 ? Array.from({ length: directions }, () => cell.defaultActivations).flat() : names;
  if (all.length !== directions * cell.defaultActivations.length) {
    throw new Unsupported(`${cell.type} with ${all.length} activations`);
  }
  const unknown = all.find((name) => activationExpressions[name] === undefined);
  if (unknown !== undefined) throw new Unsupported(`${cell.type} with the activation '${unknown}'`);
  return all;
}

const activate = (name: string | undefined, x: string): string => activationExpressions[name ?? 'tanh']!(x);

/** Reads the node, and refuses by name what is not covered. */
function recurrenceOf(emitter: Emitter, cell: Cell): Recurrence {
  const [x, w, r] = [emitter.required(0), emitter.required(1), emitter.required(2)];
  requireDatatype(x, ['FP32', 'FP16', 'BF16']);
  if (emitter.attribute('layout', 0) !== 0) throw new Unsupported(`${cell.type} with layout 1 (batch first)`);
  if (emitter.node.proto.attribute.some(({ name }) => name === 'clip')) throw new Unsupported(`${cell.type} with clip`);
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
    b: emitter.input(3),
    lengths: emitter.input(4),
    initialH: emitter.input(5),
    y: emitter.output(0),
    yH: emitter.output(1),
    steps: steps!,
    batch: batch!,
    input: input!,
    hidden,
    directions: directions!,
  };
}

function directionsOf(emitter: Emitter, type: string, directions: number): readonly boolean[] {
  const name = emitter.attribute('direction', 'forward').toLowerCase();
  const reversed = { forward: [false], reverse: [true], bidirectional: [false, true] }[name];
  if (reversed?.length !== directions)
    throw new Unsupported(`${type} with direction '${name}' and ${directions} weights`);
  return reversed;
}

/** Part `index` of a value that is made of equal parts. */
function partOfValue(emitter: Emitter, value: Value, index: number, parts: number): Buffer {
  const bytes = (value.elements / parts) * elementBytes[value.kept];
  return emitter.part(value.buffer, index * bytes, bytes);
}

/** A state's memory: where the node gives it out in the end, else scratch; filled with its first value. */
function initialState(
  recurrence: Recurrence,
  direction: number,
  initial: Value | undefined,
  output: Value | undefined,
): Buffer {
  const { emitter, batch, hidden, directions, datatype } = recurrence;
  const bytes = batch * hidden * elementBytes[datatype];
  const state = output === undefined ? emitter.scratch(bytes) : partOfValue(emitter, output, direction, directions);
  if (initial === undefined) {
    emitter.fill(state, 0, bytes);
  } else {
    const given = partOfValue(emitter, initial, direction, directions);
    emitter.copy(initial.kept === datatype ? given : convert(emitter, given, initial.kept, datatype), state, bytes);
    if (recurrence.lengths !== undefined) clearOfEmpty(recurrence, state, recurrence.lengths);
  }
  return state;
}

/** Zero is the last state of a sequence without steps, as ONNX Runtime has it; the specification is silent about them. */
function clearOfEmpty({ emitter, batch, hidden, datatype }: Recurrence, state: Buffer, lengths: Value): void {
  const { stored, store } = elementOf(datatype);
  forEachIndex(
    emitter,
    'clear_empty',
    batch * hidden,
    [
      { name: 'lengths', type: elementOf(lengths.datatype).stored, buffer: lengths.buffer },
      { name: 'state', type: stored, buffer: state, access: 'read-write' },
    ],
    `if (lengths[i / ${hidden}u] <= 0) state[i] = ${store('0.0f')};`,
  );
}

function directionOf(
  recurrence: Recurrence,
  direction: number,
  reversed: boolean,
  activations: readonly string[],
  gatesTogether: readonly number[],
): Direction {
  const { emitter, cell, steps, batch, input, hidden, directions, x, w, r, datatype } = recurrence;
  const rows = cell.gates * hidden;
  const fromInput = emitter.scratch(steps * batch * rows * gateBytes);
  const weight = partOfValue(emitter, w, direction, directions);
  emitProduct(emitter, {
    rows: steps * batch,
    columns: rows,
    depth: input,
    batch: [],
    a: { buffer: x.buffer, type: x.kept, transposed: false, leading: Math.max(1, input), batchStrides: [] },
    b: { buffer: weight, type: w.kept, transposed: true, leading: Math.max(1, input), batchStrides: [] },
    d: { buffer: fromInput, type: gateType },
  });
  const h = initialState(recurrence, direction, recurrence.initialH, recurrence.yH);
  const narrowH =
    r.kept === datatype ? undefined : { buffer: emitter.scratch(batch * hidden * elementBytes[r.kept]), type: r.kept };
  return {
    ...recurrence,
    direction,
    reversed,
    activations,
    fromInput,
    fromState: statePartsOf(recurrence, gatesTogether),
    h,
    narrowH,
  };
}

/** Memory for the products of a step with the state: one for each of these numbers of gates. */
function statePartsOf({ emitter, batch, hidden }: Recurrence, gatesTogether: readonly number[]): StatePart[] {
  let firstGate = 0;
  return gatesTogether.map((gates) => {
    const part = { firstGate, gates, buffer: emitter.scratch(batch * gates * hidden * gateBytes) };
    firstGate += gates;
    return part;
  });
}

/** The recurrent weights of some gates times `state`. */
function emitStateProduct(at: Direction, state: Buffer, { firstGate, gates, buffer }: StatePart): void {
  const { emitter, r, hidden, batch, direction, directions } = at;
  const gateBytesOfWeight = hidden * hidden * elementBytes[r.kept];
  const all = partOfValue(emitter, r, direction, directions);
  emitProduct(emitter, {
    rows: batch,
    columns: gates * hidden,
    depth: hidden,
    batch: [],
    a: { buffer: state, type: stateTypeOf(at), transposed: false, leading: hidden, batchStrides: [] },
    b: {
      buffer: emitter.part(all, firstGate * gateBytesOfWeight, gates * gateBytesOfWeight),
      type: r.kept,
      transposed: true,
      leading: hidden,
      batchStrides: [],
    },
    d: { buffer, type: gateType },
  });
}

const stateTypeOf = ({ narrowH, datatype }: Direction): DataType => narrowH?.type ?? datatype;

/** The state as the recurrent product takes it. */
function stateOperand(at: Direction): Buffer {
  if (at.narrowH === undefined) return at.h;
  const { emitter, batch, hidden, datatype } = at;
  const from = elementOf(datatype);
  const to = elementOf(at.narrowH.type);
  forEachIndex(
    emitter,
    'narrow_state',
    batch * hidden,
    [
      { name: 'input', type: from.stored, buffer: at.h },
      { name: 'output', type: to.stored, buffer: at.narrowH.buffer, access: 'write' },
    ],
    `output[i] = ${to.store(from.load('input[i]'))};`,
  );
  return at.narrowH.buffer;
}

/** The lines that each kernel of a step begins with, the parameters that they need, and which step of the input is read. */
interface StepFrame {
  readonly parameters: readonly Parameter[];
  readonly lines: readonly string[];
}

/** For each gate `x0`, `x1`, ... is the input's part of it, and `s0`, `s1`, ... the state's, both with their bias. */
function stepFrame(
  at: Direction,
  step: number,
  gates: readonly number[] = Array.from({ length: at.cell.gates }, (_, gate) => gate),
): StepFrame {
  const { emitter, cell, steps, batch, hidden, b, lengths, direction, directions, reversed } = at;
  const rows = cell.gates * hidden;
  const stepBytes = batch * rows * gateBytes;
  const time = reversed ? steps - 1 - step : step;
  const lines = [`const u32 item = i / ${hidden}u, unit = i % ${hidden}u;`];
  const parameters: Parameter[] = [];
  if (lengths === undefined) {
    parameters.push({ name: 'x', type: 'float', buffer: emitter.part(at.fromInput, time * stepBytes, stepBytes) });
    lines.push(`const u32 at = item * ${rows}u + unit;`);
  } else {
    // Sequences end at different steps, and a reversed one begins at its own end.
    parameters.push({ name: 'x', type: 'float', buffer: at.fromInput });
    parameters.push({ name: 'lengths', type: elementOf(lengths.datatype).stored, buffer: lengths.buffer });
    lines.push('const i32 left = (i32)lengths[item] - step;');
    lines.push('if (left <= 0) return;');
    lines.push(`const u32 time = (u32)${reversed ? 'left - 1u' : 'step'};`);
    lines.push(`const u32 at = (time * ${batch}u + item) * ${rows}u + unit;`);
  }
  const bias = b === undefined ? undefined : reader(b);
  if (b !== undefined && bias !== undefined) {
    parameters.push({ name: 'bias', type: bias.stored, buffer: partOfValue(emitter, b, direction, directions) });
  }
  const biasAt = (row: string): string => (bias === undefined ? '' : ` + ${bias.load(`bias[${row}]`)}`);
  for (const [index, part] of at.fromState.entries()) {
    const wanted = gates.filter((gate) => gate >= part.firstGate && gate < part.firstGate + part.gates);
    if (wanted.length === 0) continue;
    parameters.push({ name: `state${index}`, type: 'float', buffer: part.buffer });
    for (const gate of wanted) {
      const row = `${gate * hidden}u + unit`;
      const place = `item * ${part.gates * hidden}u + ${(gate - part.firstGate) * hidden}u + unit`;
      lines.push(`const float x${gate} = x[at + ${gate * hidden}u]${biasAt(row)};`);
      lines.push(`const float s${gate} = state${index}[${place}]${biasAt(`${rows}u + ${row}`)};`);
    }
  }
  return { parameters, lines };
}

/** Where a step's hidden state goes: the state itself, and its place in Y. */
function stateWriter(at: Direction, step: number): { parameters: Parameter[]; line: (value: string) => string } {
  const { emitter, y, steps, batch, hidden, directions, direction, reversed, datatype, lengths } = at;
  const element = elementOf(datatype);
  const parameters: Parameter[] = [{ name: 'h', type: element.stored, buffer: at.h, access: 'read-write' }];
  if (y === undefined) return { parameters, line: (value) => `h[i] = ${element.store(value)};` };
  const stepElements = directions * batch * hidden;
  const bytes = elementBytes[datatype];
  if (lengths === undefined) {
    const time = reversed ? steps - 1 - step : step;
    const start = (time * stepElements + direction * batch * hidden) * bytes;
    parameters.push({
      name: 'y',
      type: element.stored,
      buffer: emitter.part(y.buffer, start, batch * hidden * bytes),
      access: 'write',
    });
    return { parameters, line: (value) => `h[i] = y[i] = ${element.store(value)};` };
  }
  parameters.push({ name: 'y', type: element.stored, buffer: y.buffer, access: 'write' });
  const place = `time * ${stepElements}u + ${direction * batch * hidden}u + i`;
  return { parameters, line: (value) => `h[i] = y[${place}] = ${element.store(value)};` };
}

/** One thread for each unit of each item. The step is an argument, so that all steps share a kernel. */
function launchStep(at: Direction, hint: string, step: number, frame: StepFrame, lines: readonly string[]): void {
  const count = at.batch * at.hidden;
  const declared = frame.parameters.map(
    ({ name, type, access = 'read' }) => `${access === 'read' ? 'const ' : ''}${type}* ${name}`,
  );
  const source = [
    `KERNEL void NAME(${declared.join(', ')}, i32 step) {`,
    '  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;',
    `  if (i >= ${count}u) return;`,
    ...[...frame.lines, ...lines].map((line) => `  ${line}`),
    '}',
  ].join('\n');
  at.emitter.launch({
    kernel: at.emitter.kernel(hint, source),
    grid: [Math.ceil(count / stepThreads)],
    block: [stepThreads],
    arguments: [
      ...frame.parameters.map(({ buffer, access = 'read' }) => ({ type: access, buffer })),
      { type: 'i32', value: step },
    ],
  });
}

/** @param gatesTogether how many gates' products with the state are made at once, in order */
function emitRecurrence(
  emitter: Emitter,
  cell: Cell,
  gatesTogether: readonly number[],
  emitSteps: (at: Direction) => void,
): void {
  const recurrence = recurrenceOf(emitter, cell);
  const { directions, batch, hidden, steps, y, lengths, datatype } = recurrence;
  const reversals = directionsOf(emitter, cell.type, directions);
  const names = activationNames(emitter, cell, directions);
  const perDirection = cell.defaultActivations.length;
  if (batch * hidden === 0) return;
  if (batch * directions * Math.max(1, steps) * hidden * cell.gates > 2 ** 31) {
    throw new Unsupported(`${cell.type} over more than 2^31 gate values`);
  }
  // Steps beyond a sequence's own length are zero, and no kernel comes there.
  if (y !== undefined && lengths !== undefined) emitter.fill(y.buffer, 0, y.elements * elementBytes[datatype]);
  for (const [direction, reversed] of reversals.entries()) {
    const activations = names.slice(direction * perDirection, (direction + 1) * perDirection);
    emitSteps(directionOf(recurrence, direction, reversed, activations, gatesTogether));
  }
}

const lstm: Cell = { type: 'LSTM', gates: 4, defaultActivations: ['sigmoid', 'tanh', 'tanh'] };

/** Gates in ONNX's order: input, output, forget, cell. */
function emitLstm(emitter: Emitter): void {
  if (emitter.attribute('input_forget', 0) !== 0) throw new Unsupported('LSTM with input_forget');
  const [initialC, peepholes, yC] = [emitter.input(6), emitter.input(7), emitter.output(2)];
  emitRecurrence(emitter, lstm, [4], (at) => {
    const { direction, directions, hidden, datatype, activations } = at;
    const c = initialState(at, direction, initialC, yC);
    const element = elementOf(datatype);
    const peephole = (gate: number, state: string): string => {
      if (peepholes === undefined) return '';
      const value = reader(peepholes).load(`p[${gate * hidden}u + unit]`);
      return ` + ${value} * ${state}`;
    };
    const [f, g, h] = activations;
    for (let step = 0; step < at.steps; step++) {
      for (const part of at.fromState) emitStateProduct(at, stateOperand(at), part);
      const frame = stepFrame(at, step);
      const writer = stateWriter(at, step);
      const parameters: Parameter[] = [...frame.parameters];
      if (peepholes !== undefined) {
        const buffer = partOfValue(emitter, peepholes, direction, directions);
        parameters.push({ name: 'p', type: reader(peepholes).stored, buffer });
      }
      parameters.push({ name: 'c', type: element.stored, buffer: c, access: 'read-write' }, ...writer.parameters);
      launchStep(at, 'lstm_step', step, { parameters, lines: frame.lines }, [
        `const float before = ${element.load('c[i]')};`,
        `const float in = ${activate(f, `x0 + s0${peephole(0, 'before')}`)};`,
        `const float forget = ${activate(f, `x2 + s2${peephole(2, 'before')}`)};`,
        `const float cell = forget * before + in * ${activate(g, 'x3 + s3')};`,
        `const float out = ${activate(f, `x1 + s1${peephole(1, 'cell')}`)};`,
        `c[i] = ${element.store('cell')};`,
        writer.line(`(out * ${activate(h, 'cell')})`),
      ]);
    }
  });
}

const gru: Cell = { type: 'GRU', gates: 3, defaultActivations: ['sigmoid', 'tanh'] };

/** Gates in ONNX's order: update, reset, hidden. */
function emitGru(emitter: Emitter): void {
  const resetAfter = emitter.attribute('linear_before_reset', 0) !== 0;
  emitRecurrence(emitter, gru, resetAfter ? [3] : [2, 1], (at) => {
    const { hidden, batch, datatype, activations, fromState } = at;
    const element = elementOf(datatype);
    const [f, g] = activations;
    const reset = activate(f, 'x1 + s1');
    const resetState = resetAfter ? undefined : emitter.scratch(batch * hidden * elementBytes[stateTypeOf(at)]);
    for (let step = 0; step < at.steps; step++) {
      const [first, second] = fromState;
      emitStateProduct(at, stateOperand(at), first!);
      if (resetState !== undefined && second !== undefined) {
        // The reset gate scales the state before its product with the hidden gate's weights.
        const target = elementOf(stateTypeOf(at));
        const frame = stepFrame(at, step, [1]);
        const parameters: Parameter[] = [
          ...frame.parameters,
          { name: 'h', type: element.stored, buffer: at.h },
          { name: 'scaled', type: target.stored, buffer: resetState, access: 'write' },
        ];
        launchStep(at, 'gru_reset', step, { parameters, lines: frame.lines }, [
          `scaled[i] = ${target.store(`${reset} * ${element.load('h[i]')}`)};`,
        ]);
        emitStateProduct(at, resetState, second);
      }
      const frame = stepFrame(at, step, resetAfter ? [0, 1, 2] : [0, 2]);
      const writer = stateWriter(at, step);
      const parameters = [...frame.parameters, ...writer.parameters];
      launchStep(at, 'gru_step', step, { parameters, lines: frame.lines }, [
        `const float update = ${activate(f, 'x0 + s0')};`,
        `const float next = ${activate(g, resetAfter ? `x2 + ${reset} * s2` : 'x2 + s2')};`,
        writer.line(`((1.0f - update) * next + update * ${element.load('h[i]')})`),
      ]);
    }
  });
}

const rnn: Cell = { type: 'RNN', gates: 1, defaultActivations: ['tanh'] };

function emitRnn(emitter: Emitter): void {
  emitRecurrence(emitter, rnn, [1], (at) => {
    for (let step = 0; step < at.steps; step++) {
      for (const part of at.fromState) emitStateProduct(at, stateOperand(at), part);
      const frame = stepFrame(at, step);
      const writer = stateWriter(at, step);
      const next = activate(at.activations[0], 'x0 + s0');
      const parameters = [...frame.parameters, ...writer.parameters];
      launchStep(at, 'rnn_step', step, { parameters, lines: frame.lines }, [writer.line(next)]);
    }
  });
}

export const recurrentOperators: readonly Operator[] = [
  { type: 'LSTM', emit: emitLstm },
  { type: 'GRU', emit: emitGru },
  { type: 'RNN', emit: emitRnn },
];
