/**
 * Stacked LSTM and GRU as PyTorch's modules define them (batch first). One network with the same weights has three
 * forms: one node per layer; one node per cell and step, the graph in which Chrion finds work for several cores; and
 * the latter in primitive operators.
 */
import { ElementType } from '../types.ts';
import { defineArchitecture, refuse, type Architecture } from './architecture.ts';
import { dimension, type SeededGraph } from './seeded-graph.ts';

/** Unrolled graphs with more cells than this take longer to load than to run. */
const cellsMax = 100_000;

interface Sizes {
  readonly layers: number;
  readonly input: number;
  readonly hidden: number;
  /** 0: open, possible only with one node per layer. */
  readonly sequence: number;
}

/** State that a cell passes to its next step. */
interface CellState {
  readonly h: string;
  readonly c: string;
}

interface CellKind {
  readonly opType: 'LSTM' | 'GRU';
  /** Matrices stacked in one weight: LSTM input, output, forget, cell; GRU update, reset, hidden. */
  readonly gates: number;
  readonly states: 1 | 2;
  readonly attributes: Readonly<Record<string, number>>;
  /** One step in primitive operators, from the gates' parts of input and state; no `state` before the first step. */
  readonly step: (graph: SeededGraph, fromInput: string, fromState: string, state: CellState | undefined) => CellState;
}

/** i, o, f = sigmoid, g = tanh of the gates; c' = f c + i g; h' = o tanh(c') (Hochreiter and Schmidhuber 1997). */
const lstmCell: CellKind = {
  opType: 'LSTM',
  gates: 4,
  states: 2,
  attributes: {},
  step(graph, fromInput, fromState, state) {
    const sum = graph.node('Add', [fromInput, fromState]);
    const [input, output, forget, candidate] = graph.node('Split', [sum], { axis: -1 }, { outputs: 4 });
    const added = graph.node('Mul', [graph.node('Sigmoid', [input]), graph.node('Tanh', [candidate])]);
    const kept = state && graph.node('Mul', [graph.node('Sigmoid', [forget]), state.c]);
    const c = kept === undefined ? added : graph.node('Add', [kept, added]);
    return { h: graph.node('Mul', [graph.node('Sigmoid', [output]), graph.node('Tanh', [c])]), c };
  },
};

/**
 * z, r = sigmoid of the gates; n = tanh(x_n + r h_n); h' = (1 - z) n + z h (Cho et al. 2014, reset after the matrix).
 */
const gruCell: CellKind = {
  opType: 'GRU',
  gates: 3,
  states: 1,
  attributes: { linear_before_reset: 1 },
  step(graph, fromInput, fromState, state) {
    const [inputZ, inputR, inputN] = graph.node('Split', [fromInput], { axis: -1 }, { outputs: 3 });
    const [stateZ, stateR, stateN] = graph.node('Split', [fromState], { axis: -1 }, { outputs: 3 });
    const z = graph.node('Sigmoid', [graph.node('Add', [inputZ, stateZ])]);
    const r = graph.node('Sigmoid', [graph.node('Add', [inputR, stateR])]);
    const n = graph.node('Tanh', [graph.node('Add', [inputN, graph.node('Mul', [r, stateN])])]);
    const fresh = graph.node('Mul', [graph.node('Sub', [graph.constant({ floats: 1 }), z]), n]);
    const h = state === undefined ? fresh : graph.node('Add', [fresh, graph.node('Mul', [z, state.h])]);
    return { h, c: '' };
  },
};

/** The outputs of the network: [batch, sequence, hidden], and the last state of each layer. */
interface Result {
  readonly output: string;
  /** [1, batch, hidden] each, concatenated along the first dimension. */
  readonly lastStates: readonly CellState[];
}

/** Both matrices and biases of a layer, in the form of ONNX's LSTM and GRU nodes. */
function fusedWeights(graph: SeededGraph, kind: CellKind, layer: number, inSize: number, hidden: number) {
  const rows = kind.gates * hidden;
  return [
    graph.seeded(`weight_ih_l${layer}`, [1, rows, inSize], inputWeights(inSize)),
    graph.seeded(`weight_hh_l${layer}`, [1, rows, hidden], stateWeights(hidden)),
    graph.seededParts(`bias_l${layer}`, [1, 2 * rows], [`bias_ih_l${layer}`, `bias_hh_l${layer}`], biasWeights),
  ] as const;
}

// Larger than PyTorch's initial weights, with which a dozen squashing layers hide the input.
const inputWeights = (inSize: number) => ({ std: 3 / Math.sqrt(inSize) });
const stateWeights = (hidden: number) => ({ std: 1 / Math.sqrt(hidden) });
const biasWeights = { std: 0.1 };

/** One node per layer; or with `byStep` one per cell and step, whose outputs stay apart until the end. */
function byNode(graph: SeededGraph, kind: CellKind, input: string, sizes: Sizes, byStep: boolean): Result {
  const { opType, states, attributes } = kind;
  const { hidden, sequence } = sizes;
  const lastStates: CellState[] = [];
  const byTime = graph.node('Transpose', [input], { perm: [1, 0, 2] });
  let parts = [byTime];
  if (byStep) {
    const stepSizes = graph.constant({ ints: Array.from({ length: sequence }, () => 1) });
    parts = graph.node('Split', [byTime, stepSizes], { axis: 0 }, { outputs: sequence });
  }
  for (let layer = 0; layer < sizes.layers; layer++) {
    parts = graph.scope(`layer.${layer}`, () => {
      const weights = fusedWeights(graph, kind, layer, layer === 0 ? sizes.input : hidden, hidden);
      let state: CellState | undefined;
      const run = (x: string): string => {
        // No sequence lengths; then the states, which the first step leaves out: they start at zero.
        const before = state === undefined ? [] : ['', state.h, ...(states === 2 ? [state.c] : [])];
        const inputs = [x, ...weights, ...before];
        const made = graph.node(opType, inputs, { hidden_size: hidden, ...attributes }, { outputs: 1 + states });
        state = { h: made[1] ?? '', c: made[2] ?? '' };
        return byStep ? state.h : graph.node('Squeeze', [made[0] ?? '', graph.constant({ ints: [1] })]);
      };
      const outputs = parts.map((x, step) => (byStep ? graph.scope(`step.${step}`, () => run(x)) : run(x)));
      if (state !== undefined) lastStates.push(state);
      return outputs;
    });
  }
  const output = byStep ? graph.node('Concat', parts, { axis: 0 }) : parts[0]!;
  return { output: graph.node('Transpose', [output], { perm: [1, 0, 2] }), lastStates };
}

function byPrimitive(graph: SeededGraph, kind: CellKind, input: string, sizes: Sizes): Result {
  const { hidden, sequence } = sizes;
  const rows = kind.gates * hidden;
  const lastStates: CellState[] = [];
  // Steps side by side, so that each is a matrix [batch, input] without a node of its own.
  const flat = graph.node('Reshape', [input, graph.constant({ ints: [0, sequence * sizes.input] })]);
  const stepSizes = graph.constant({ ints: Array.from({ length: sequence }, () => sizes.input) });
  let steps: string[] = graph.node('Split', [flat, stepSizes], { axis: 1 }, { outputs: sequence });
  for (let layer = 0; layer < sizes.layers; layer++) {
    steps = graph.scope(`layer.${layer}`, () => {
      const inSize = layer === 0 ? sizes.input : hidden;
      const fromInput = graph.seeded(`weight_ih_l${layer}`, [rows, inSize], inputWeights(inSize));
      const fromState = graph.seeded(`weight_hh_l${layer}`, [rows, hidden], stateWeights(hidden));
      const inputBias = graph.seeded(`bias_ih_l${layer}`, [rows], biasWeights);
      const stateBias = graph.seeded(`bias_hh_l${layer}`, [rows], biasWeights);
      let state: CellState | undefined;
      const made = steps.map((x, step) =>
        graph.scope(`step.${step}`, () => {
          const input = graph.node('Gemm', [x, fromInput, inputBias], { transB: 1 });
          // A state of zeros adds only its bias.
          const before =
            state === undefined ? stateBias : graph.node('Gemm', [state.h, fromState, stateBias], { transB: 1 });
          state = kind.step(graph, input, before, state);
          return state.h;
        }),
      );
      const axis = graph.constant({ ints: [0] });
      const leading = (value: string): string => (value === '' ? '' : graph.node('Unsqueeze', [value, axis]));
      if (state !== undefined) lastStates.push({ h: leading(state.h), c: leading(state.c) });
      return made;
    });
  }
  const joined = graph.node('Concat', steps, { axis: 1 });
  return { output: graph.node('Reshape', [joined, graph.constant({ ints: [0, sequence, hidden] })]), lastStates };
}

function recurrent(name: string, kind: CellKind): Architecture {
  return defineArchitecture({
    name,
    description: `a stacked ${kind.opType}: [batch, sequence, input] to the states of its last layer at each step`,
    settings: {
      layers: { type: 'integer', default: 12, min: 1, max: 1000, meaning: 'stacked layers' },
      input: { type: 'integer', default: 0, min: 0, meaning: 'input features; 0 = hidden' },
      hidden: { type: 'integer', default: 64, min: 1, meaning: 'width of the state, and of the output' },
      sequence: { type: 'integer', default: 96, min: 0, meaning: 'steps; 0 leaves it open, unless unrolled' },
      batch: { type: 'integer', default: 0, min: 0, meaning: 'a fixed batch size; 0 leaves it open' },
      unrolled: {
        type: 'choice',
        default: 'false',
        choices: ['false', 'true', 'primitive'],
        meaning: `false = one node a layer, true = one ${kind.opType} node a cell and step, primitive = basic operators`,
      },
    },
    graph(graph, settings) {
      const { layers, hidden, sequence, unrolled } = settings;
      const sizes: Sizes = { layers, hidden, sequence, input: settings.input === 0 ? hidden : settings.input };
      if (unrolled !== 'false') {
        if (sequence === 0) refuse(`sequence is 0, but an unrolled ${name} needs its number of steps`);
        if (layers * sequence > cellsMax) {
          refuse(`layers x sequence is ${layers * sequence}, but an unrolled ${name} has at most ${cellsMax} cells`);
        }
      }
      const batch = dimension(settings.batch, 'batch');
      const steps = dimension(sequence, 'sequence');
      const input = graph.input('input', ElementType.FLOAT, [batch, steps, sizes.input]);
      const { output, lastStates } =
        unrolled === 'primitive'
          ? byPrimitive(graph, kind, input, sizes)
          : byNode(graph, kind, input, sizes, unrolled === 'true');
      graph.output(output, ElementType.FLOAT, [batch, steps, hidden], 'output');
      for (const part of (['h', 'c'] as const).slice(0, kind.states)) {
        const states = lastStates.map((state) => state[part]);
        const value = graph.node('Concat', states, { axis: 0 });
        graph.output(value, ElementType.FLOAT, [layers, batch, hidden], `${part}_n`);
      }
    },
  });
}

export const lstm = recurrent('lstm', lstmCell);
export const gru = recurrent('gru', gruCell);
