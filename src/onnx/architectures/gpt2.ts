/** GPT-2 (Radford et al. 2019): a decoder whose output layer is its token embedding. */
import { ElementType } from '../types.ts';
import { defineArchitecture, type Architecture } from './architecture.ts';
import {
  attend,
  embedding,
  geluTanh,
  maskedScore,
  positionsOf,
  shapeOf,
  tokenInput,
  transformerSettings,
  type Published,
  type TransformerShape,
} from './transformer.ts';
import type { SeededGraph } from './seeded-graph.ts';

const epsilon = 1e-5;

function block(graph: SeededGraph, x: string, causal: string, shape: TransformerShape): string {
  const { hidden, intermediate } = shape;
  const normal = graph.layerNorm('ln_1', x, hidden, epsilon);
  const attention = graph.scope('attn', () => {
    const joined = graph.linear('c_attn', normal, hidden, 3 * hidden);
    const sizes = graph.constant({ ints: [hidden, hidden, hidden] });
    const [q, k, v] = graph.node('Split', [joined, sizes], { axis: 2 }, { outputs: 3 });
    const hiddenScore = graph.constant({ floats: maskedScore });
    const context = attend(graph, { q, k, v }, shape, (scores) => graph.node('Where', [causal, scores, hiddenScore]));
    return graph.linear('c_proj', context, hidden, hidden);
  });
  const middle = graph.node('Add', [attention, x]);
  const second = graph.layerNorm('ln_2', middle, hidden, epsilon);
  const fed = graph.scope('mlp', () =>
    graph.linear('c_proj', geluTanh(graph, graph.linear('c_fc', second, hidden, intermediate)), intermediate, hidden),
  );
  return graph.node('Add', [middle, fed]);
}

function gpt2Of(...[name, size, layers, hidden, heads]: Published): Architecture {
  return defineArchitecture({
    name,
    description: `${size}: token ids to the logits of the next token at each place`,
    settings: transformerSettings({ layers, hidden, heads, vocabulary: 50_257, positions: 1024 }),
    graph(graph, settings) {
      const shape = shapeOf(settings);
      const ids = tokenInput(graph, 'input_ids', shape);
      const state = graph.scope('transformer', () => {
        const words = embedding(graph, 'wte', ids, settings.vocabulary, shape.hidden);
        const positions = positionsOf(graph, ids);
        let x = graph.node('Add', [words, embedding(graph, 'wpe', positions, settings.positions, shape.hidden)]);
        // A token sees itself and earlier ones: BOOL [sequence, sequence], one for all layers.
        const columns = graph.node('Unsqueeze', [positions, graph.constant({ ints: [0] })]);
        const rows = graph.node('Unsqueeze', [positions, graph.constant({ ints: [1] })]);
        const causal = graph.node('LessOrEqual', [columns, rows]);
        for (let layer = 0; layer < settings.layers; layer++) {
          x = graph.scope(`h.${layer}`, () => block(graph, x, causal, shape));
        }
        return graph.layerNorm('ln_f', x, shape.hidden, epsilon);
      });
      const logits = graph.scope('lm_head', () => tiedHead(graph, state, ids, settings.vocabulary, shape));
      graph.output(logits, ElementType.FLOAT, [...shape.tokens, settings.vocabulary], 'logits');
    },
  });
}

/**
 * Multiplies by the transposed token embedding. Gemm takes the table as it is; MatMul would need it transposed, and a
 * runtime that folds constants would then hold its 150 MB twice.
 */
function tiedHead(graph: SeededGraph, state: string, ids: string, vocabulary: number, shape: TransformerShape) {
  const rows = graph.node('Reshape', [state, graph.constant({ ints: [-1, shape.hidden] })]);
  const flat = graph.node('Gemm', [rows, 'transformer.wte.weight'], { transB: 1 });
  const sizes = graph.node('Concat', [graph.node('Shape', [ids]), graph.constant({ ints: [vocabulary] })], { axis: 0 });
  return graph.node('Reshape', [flat, sizes]);
}

export const gpt2 = gpt2Of('gpt2', 'GPT-2', 12, 768, 12);
export const gpt2Medium = gpt2Of('gpt2-medium', 'GPT-2 Medium', 24, 1024, 16);
