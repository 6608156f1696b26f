/** BERT (Devlin et al. 2019) and RoBERTa (Liu et al. 2019) as encoders with a pooler. */
import { ElementType, type TensorProto } from '../types.ts';
import { defineArchitecture, type Architecture } from './architecture.ts';
import type { SeededGraph } from './seeded-graph.ts';
import {
  attend,
  embedding,
  geluErf,
  maskedScore,
  positionsOf,
  shapeOf,
  tokenInput,
  transformerSettings,
  type Published,
  type TransformerSettings,
  type TransformerShape,
} from './transformer.ts';

const bertEpsilon = 1e-12;
const robertaEpsilon = 1e-5;
/** RoBERTa's padding token; rows 0 and 1 of its position embedding are reserved. */
const robertaPadding = 1;

const zero: TensorProto = { name: '', dims: [1n], dataType: ElementType.INT64, rawData: new Uint8Array(8) };

/** @param types the token type and @param positions the position of each token: INT64, of its id's shape or [sequence] */
function encoder(
  graph: SeededGraph,
  { vocabulary, layers, ...settings }: TransformerSettings & { readonly types: number },
  shape: TransformerShape,
  epsilon: number,
  types: (ids: string) => string,
  positions: (graph: SeededGraph, ids: string) => string,
) {
  const { hidden, intermediate } = shape;
  const ids = tokenInput(graph, 'input_ids', shape);
  const mask = tokenInput(graph, 'attention_mask', shape);
  let state = graph.scope('embeddings', () => {
    const words = embedding(graph, 'word_embeddings', ids, vocabulary, hidden);
    const kinds = embedding(graph, 'token_type_embeddings', types(ids), settings.types, hidden);
    const places = embedding(graph, 'position_embeddings', positions(graph, ids), settings.positions, hidden);
    const sum = graph.node('Add', [graph.node('Add', [words, kinds]), places]);
    return graph.layerNorm('LayerNorm', sum, hidden, epsilon);
  });
  // 0 for a token, the lowest float for padding: [batch, 1, 1, sequence].
  const wide = graph.node('Unsqueeze', [mask, graph.constant({ ints: [1, 2] })]);
  const counted = graph.node('Cast', [wide], { to: ElementType.FLOAT });
  const padding = graph.node('Sub', [graph.constant({ floats: 1 }), counted]);
  const bias = graph.node('Mul', [padding, graph.constant({ floats: maskedScore })]);

  const block = (x: string): string => {
    const attended = graph.scope('attention', () => {
      const context = graph.scope('self', () => {
        const [q, k, v] = ['query', 'key', 'value'].map((name) => graph.linear(name, x, hidden, hidden));
        return attend(graph, { q: q!, k: k!, v: v! }, shape, (scores) => graph.node('Add', [scores, bias]));
      });
      return graph.scope('output', () => {
        const dense = graph.linear('dense', context, hidden, hidden);
        return graph.layerNorm('LayerNorm', graph.node('Add', [dense, x]), hidden, epsilon);
      });
    });
    const wideState = graph.scope('intermediate', () =>
      geluErf(graph, graph.linear('dense', attended, hidden, intermediate)),
    );
    return graph.scope('output', () => {
      const dense = graph.linear('dense', wideState, intermediate, hidden);
      return graph.layerNorm('LayerNorm', graph.node('Add', [dense, attended]), hidden, epsilon);
    });
  };

  graph.scope('encoder', () => {
    for (let layer = 0; layer < layers; layer++) state = graph.scope(`layer.${layer}`, () => block(state));
  });
  const pooled = graph.scope('pooler', () => {
    const first = graph.node('Gather', [state, graph.constant({ ints: 0 })], { axis: 1 });
    return graph.node('Tanh', [graph.gemm('dense', first, hidden, hidden)]);
  });
  const [batch, sequence] = shape.tokens;
  graph.output(state, ElementType.FLOAT, [batch, sequence, hidden], 'last_hidden_state');
  graph.output(pooled, ElementType.FLOAT, [batch, hidden], 'pooler_output');
}

function bert(...[name, size, layers, hidden, heads]: Published): Architecture {
  return defineArchitecture({
    name,
    description: `BERT-${size}, uncased: token ids to hidden states and a pooled state`,
    settings: {
      ...transformerSettings({ layers, hidden, heads, vocabulary: 30_522, positions: 512 }),
      types: { type: 'integer', default: 2, min: 1, meaning: 'token types (segments)' },
    },
    graph(graph, settings) {
      const shape = shapeOf(settings);
      encoder(graph, settings, shape, bertEpsilon, () => tokenInput(graph, 'token_type_ids', shape), positionsOf);
    },
  });
}

function roberta(...[name, size, layers, hidden, heads]: Published): Architecture {
  return defineArchitecture({
    name,
    description: `RoBERTa-${size}: token ids to hidden states and a pooled state`,
    settings: transformerSettings({ layers, hidden, heads, vocabulary: 50_265, positions: 514 }),
    graph(graph, settings) {
      const shape = shapeOf(settings, robertaPadding + 1);
      // One token type, which exports still look up for each token.
      const noTypes = (ids: string): string =>
        graph.node('ConstantOfShape', [graph.node('Shape', [ids])], { value: { tensor: zero } });
      encoder(graph, { ...settings, types: 1 }, shape, robertaEpsilon, noTypes, robertaPositions);
    },
  });
}

/** Positions number the tokens that are not padding, starting after padding's own row: INT64 [batch, sequence]. */
function robertaPositions(graph: SeededGraph, ids: string): string {
  const padding = graph.constant({ ints: robertaPadding });
  const counted = graph.node('Not', [graph.node('Equal', [ids, padding])]);
  const ones = graph.node('Cast', [counted], { to: ElementType.INT64 });
  const numbered = graph.node('CumSum', [ones, graph.constant({ ints: 1 })]);
  return graph.node('Add', [graph.node('Mul', [numbered, ones]), padding]);
}

export const bertBase = bert('bert-base', 'Base', 12, 768, 12);
export const bertLarge = bert('bert-large', 'Large', 24, 1024, 16);
export const robertaBase = roberta('roberta-base', 'Base', 12, 768, 12);
export const robertaLarge = roberta('roberta-large', 'Large', 24, 1024, 16);
