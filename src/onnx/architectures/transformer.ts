/** Building blocks of BERT, GPT-2 and the other transformers: settings, embeddings, attention, GELU. */
import { ElementType } from '../types.ts';
import { refuse } from './architecture.ts';
import { dimension, type SeededGraph } from './seeded-graph.ts';
import type { SettingsOf } from './settings.ts';

/**
 * The score of a masked position. It is finite, as in PyTorch: minus infinity would make the softmax of a fully masked
 * row NaN.
 */
export const maskedScore = -3.4028234663852886e38;

/** The settings that every transformer has; `sizes` are the architecture's defaults. */
export function transformerSettings(sizes: Readonly<Record<TransformerSize, number>>) {
  return {
    layers: { type: 'integer', default: sizes.layers, min: 1, max: 1000, meaning: 'transformer blocks' },
    hidden: { type: 'integer', default: sizes.hidden, min: 1, meaning: 'width of the hidden state' },
    heads: { type: 'integer', default: sizes.heads, min: 1, meaning: 'attention heads; must divide hidden' },
    intermediate: { type: 'integer', default: 0, min: 0, meaning: 'width of the feed-forward part; 0 = 4 x hidden' },
    vocabulary: { type: 'integer', default: sizes.vocabulary, min: 3, meaning: 'token ids' },
    positions: { type: 'integer', default: sizes.positions, min: 3, meaning: 'rows of the position embedding' },
    batch: { type: 'integer', default: 0, min: 0, meaning: 'a fixed batch size; 0 leaves it open' },
    sequence: { type: 'integer', default: 0, min: 0, meaning: 'a fixed sequence length; 0 leaves it open' },
  } as const;
}

type TransformerSize = 'layers' | 'hidden' | 'heads' | 'vocabulary' | 'positions';

export type TransformerSettings = SettingsOf<ReturnType<typeof transformerSettings>>;

/** A published size of a network. */
export type Published = [name: string, size: string, layers: number, hidden: number, heads: number];

export type TransformerShape = ReturnType<typeof shapeOf>;

/**
 * Sizes of a transformer's tensors.
 *
 * @param reservedPositions rows of the position embedding that no token uses
 * @throws ArchitectureError if the heads do not divide the hidden size, or the sequence is longer than the positions
 */
export function shapeOf(settings: TransformerSettings, reservedPositions = 0) {
  const { hidden, heads, batch, sequence } = settings;
  if (hidden % heads !== 0) refuse(`hidden is ${hidden}, which ${heads} heads do not divide`);
  const sequenceMax = settings.positions - reservedPositions;
  if (sequence > sequenceMax)
    refuse(`sequence is ${sequence}, but the position embedding reaches ${sequenceMax} tokens`);
  return {
    hidden,
    heads,
    headSize: hidden / heads,
    intermediate: settings.intermediate === 0 ? 4 * hidden : settings.intermediate,
    /** [batch, sequence] of the inputs. */
    tokens: [dimension(batch, 'batch'), dimension(sequence, 'sequence')] as const,
  };
}

/** An input of INT64 [batch, sequence]: token ids, or a mask of them. */
export function tokenInput(graph: SeededGraph, name: string, { tokens }: TransformerShape): string {
  return graph.input(name, ElementType.INT64, tokens);
}

/** The rows at `indices` of a table [rows, hidden] with seeded weights: FP32 [...indices, hidden]. */
export function embedding(graph: SeededGraph, name: string, indices: string, rows: number, hidden: number): string {
  return graph.scope(name, () => {
    const weight = graph.seeded('weight', [rows, hidden], { std: 0.02 });
    return graph.node('Gather', [weight, indices], { axis: 0 });
  });
}

/** 0, 1, 2 ... up to the sequence length of `tokens`: INT64 [sequence]. */
export function positionsOf(graph: SeededGraph, tokens: string): string {
  const shape = graph.node('Shape', [tokens]);
  const length = graph.node('Gather', [shape, graph.constant({ ints: 1 })], { axis: 0 });
  return graph.node('Range', [graph.constant({ ints: 0 }), length, graph.constant({ ints: 1 })]);
}

/**
 * Scaled dot-product attention of Vaswani et al. 2017: softmax(q k^T / sqrt(head size)) v, by heads.
 * q, k, v and the result are [batch, sequence, hidden]; `mask` changes the scores [batch, heads, sequence, sequence].
 */
export function attend(
  graph: SeededGraph,
  { q, k, v }: { readonly q: string; readonly k: string; readonly v: string },
  { hidden, heads, headSize }: TransformerShape,
  mask: (scores: string) => string,
): string {
  const byHeads = (x: string, order: readonly number[]): string => {
    const split = graph.node('Reshape', [x, graph.constant({ ints: [0, 0, heads, headSize] })]);
    return graph.node('Transpose', [split], { perm: order });
  };
  const product = graph.node('MatMul', [byHeads(q, [0, 2, 1, 3]), byHeads(k, [0, 2, 3, 1])]);
  const scores = graph.node('Div', [product, graph.constant({ floats: Math.sqrt(headSize) })]);
  const weights = graph.node('Softmax', [mask(scores)], { axis: -1 });
  const context = graph.node('MatMul', [weights, byHeads(v, [0, 2, 1, 3])]);
  const joined = graph.node('Transpose', [context], { perm: [0, 2, 1, 3] });
  return graph.node('Reshape', [joined, graph.constant({ ints: [0, 0, hidden] })]);
}

/** x (1 + erf(x / sqrt 2)) / 2, the exact GELU of Hendrycks and Gimpel 2016. */
export function geluErf(graph: SeededGraph, x: string): string {
  return graph.scope('act', () => {
    const erf = graph.node('Erf', [graph.node('Div', [x, graph.constant({ floats: Math.SQRT2 })])]);
    const product = graph.node('Mul', [x, graph.node('Add', [erf, graph.constant({ floats: 1 })])]);
    return graph.node('Mul', [product, graph.constant({ floats: 0.5 })]);
  });
}

/** x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, the approximation that GPT-2 was trained with. */
export function geluTanh(graph: SeededGraph, x: string): string {
  return graph.scope('act', () => {
    const cubed = graph.node('Pow', [x, graph.constant({ floats: 3 })]);
    const inner = graph.node('Add', [x, graph.node('Mul', [cubed, graph.constant({ floats: 0.044715 })])]);
    const scaled = graph.node('Mul', [inner, graph.constant({ floats: Math.sqrt(2 / Math.PI) })]);
    const gate = graph.node('Add', [graph.node('Tanh', [scaled]), graph.constant({ floats: 1 })]);
    return graph.node('Mul', [graph.node('Mul', [x, graph.constant({ floats: 0.5 })]), gate]);
  });
}
