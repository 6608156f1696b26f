/**
 * Stacked LSTM and GRU with the weights of the architectures 'lstm' and 'gru', unrolled as some exports are: one node per
 * cell and step, the graph in which Chrion finds work for several cores, or the same in primitive operators.
 */
import { ElementType, type ModelProto } from '../../src/onnx/index.ts';
import { biasWeights, fusedWeights, inputWeights, stateWeights } from '../../src/onnx/architectures/recurrent.ts';
import { dimension, SeededGraph } from '../../src/onnx/architectures/seeded-graph.ts';

export interface NetworkSizes {
  readonly layers: number;
  readonly input: number;
  readonly hidden: number;
  readonly sequence: number;
  /** Default: open. */
  readonly batch?: number;
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
const lstm: CellKind = {
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
const gru: CellKind = {
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

/** One node per cell and step, whose outputs stay apart until the end. */
function byCell(
  graph: SeededGraph,
  kind: CellKind,
  input: string,
  { layers, hidden, sequence, ...sizes }: NetworkSizes,
): Result {
  const { opType, states, attributes } = kind;
  const lastStates: CellState[] = [];
  const byTime = graph.node('Transpose', [input], { perm: [1, 0, 2] });
  const stepSizes = graph.constant({ ints: Array.from({ length: sequence }, () => 1) });
  let parts: string[] = graph.node('Split', [byTime, stepSizes], { axis: 0 }, { outputs: sequence });
  for (let layer = 0; layer < layers; layer++) {
    parts = graph.scope(`layer.${layer}`, () => {
      const weights = fusedWeights(graph, kind.gates, layer, layer === 0 ? sizes.input : hidden, hidden);
      let state: CellState | undefined;
      const outputs = parts.map((x, step) =>
        graph.scope(`step.${step}`, () => {
          // No sequence lengths; then the states, which the first step leaves out: they start at zero.
          const before = state === undefined ? [] : ['', state.h, ...(states === 2 ? [state.c] : [])];
          const inputs = [x, ...weights, ...before];
          const made = graph.node(opType, inputs, { hidden_size: hidden, ...attributes }, { outputs: 1 + states });
          state = { h: made[1] ?? '', c: made[2] ?? '' };
          return state.h;
        }),
      );
      if (state !== undefined) lastStates.push(state);
      return outputs;
    });
  }
  const output = graph.node('Concat', parts, { axis: 0 });
  return { output: graph.node('Transpose', [output], { perm: [1, 0, 2] }), lastStates };
}

function byPrimitive(graph: SeededGraph, kind: CellKind, input: string, sizes: NetworkSizes): Result {
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

export function unrolledNetwork(
  name: 'lstm' | 'gru',
  sizes: NetworkSizes,
  form: 'cells' | 'primitive' = 'cells',
  seed = 0,
): ModelProto {
  const kind = name === 'lstm' ? lstm : gru;
  const graph = new SeededGraph(name, seed);
  const batch = dimension(sizes.batch ?? 0, 'batch');
  const input = graph.input('input', ElementType.FLOAT, [batch, sizes.sequence, sizes.input]);
  const { output, lastStates } = (form === 'cells' ? byCell : byPrimitive)(graph, kind, input, sizes);
  graph.output(output, ElementType.FLOAT, [batch, sizes.sequence, sizes.hidden], 'output');
  for (const part of (['h', 'c'] as const).slice(0, kind.states)) {
    const value = graph.node(
      'Concat',
      lastStates.map((state) => state[part]),
      { axis: 0 },
    );
    graph.output(value, ElementType.FLOAT, [sizes.layers, batch, sizes.hidden], `${part}_n`);
  }
  return graph.build();
}
