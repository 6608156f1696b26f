/** Stacked LSTM and GRU as PyTorch's modules define them (batch first), with one node per layer. */
import { ElementType } from '../types.ts';
import { defineArchitecture, type Architecture } from './architecture.ts';
import { dimension, type SeededGraph } from './seeded-graph.ts';

// Larger than PyTorch's initial weights, with which a dozen squashing layers hide the input.
export const inputWeights = (inSize: number) => ({ std: 3 / Math.sqrt(inSize) });
export const stateWeights = (hidden: number) => ({ std: 1 / Math.sqrt(hidden) });
export const biasWeights = { std: 0.1 };

/**
 * Both matrices and biases of a layer, in the form of ONNX's LSTM and GRU nodes. `gates`: matrices stacked in one weight,
 * of an LSTM 4 and of a GRU 3.
 */
export function fusedWeights(graph: SeededGraph, gates: number, layer: number, inSize: number, hidden: number) {
  const rows = gates * hidden;
  return [
    graph.seeded(`weight_ih_l${layer}`, [1, rows, inSize], inputWeights(inSize)),
    graph.seeded(`weight_hh_l${layer}`, [1, rows, hidden], stateWeights(hidden)),
    graph.seededParts(`bias_l${layer}`, [1, 2 * rows], [`bias_ih_l${layer}`, `bias_hh_l${layer}`], biasWeights),
  ] as const;
}

function recurrent(
  opType: 'LSTM' | 'GRU',
  gates: number,
  states: readonly string[],
  attributes: Readonly<Record<string, number>>,
): Architecture {
  return defineArchitecture({
    name: opType.toLowerCase(),
    description: `a stacked ${opType}: [batch, sequence, input] to the states of its last layer at each step`,
    settings: {
      layers: { type: 'integer', default: 12, min: 1, max: 1000, meaning: 'stacked layers' },
      input: { type: 'integer', default: 0, min: 0, meaning: 'input features; 0 = hidden' },
      hidden: { type: 'integer', default: 64, min: 1, meaning: 'width of the state, and of the output' },
      sequence: { type: 'integer', default: 96, min: 0, meaning: 'steps; 0 leaves it open' },
      batch: { type: 'integer', default: 0, min: 0, meaning: 'a fixed batch size; 0 leaves it open' },
    },
    graph(graph, settings) {
      const { layers, hidden } = settings;
      const inSize = settings.input === 0 ? hidden : settings.input;
      const batch = dimension(settings.batch, 'batch');
      const steps = dimension(settings.sequence, 'sequence');
      const input = graph.input('input', ElementType.FLOAT, [batch, steps, inSize]);
      let x = graph.node('Transpose', [input], { perm: [1, 0, 2] });
      const lastStates: string[][] = [];
      for (let layer = 0; layer < layers; layer++) {
        x = graph.scope(`layer.${layer}`, () => {
          const weights = fusedWeights(graph, gates, layer, layer === 0 ? inSize : hidden, hidden);
          const outputs = { outputs: 1 + states.length };
          const [y, ...last] = graph.node(opType, [x, ...weights], { hidden_size: hidden, ...attributes }, outputs);
          lastStates.push(last);
          return graph.node('Squeeze', [y!, graph.constant({ ints: [1] })]);
        });
      }
      const output = graph.node('Transpose', [x], { perm: [1, 0, 2] });
      graph.output(output, ElementType.FLOAT, [batch, steps, hidden], 'output');
      for (const [place, name] of states.entries()) {
        const value = graph.node(
          'Concat',
          lastStates.map((last) => last[place]!),
          { axis: 0 },
        );
        graph.output(value, ElementType.FLOAT, [layers, batch, hidden], name);
      }
    },
  });
}

export const lstm = recurrent('LSTM', 4, ['h_n', 'c_n'], {});
/** The reset gate is applied after the matrix (Cho et al. 2014). */
export const gru = recurrent('GRU', 3, ['h_n'], { linear_before_reset: 1 });
