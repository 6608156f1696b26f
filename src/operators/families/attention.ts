/** Attention, whole and its rotations. */
import { each, ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';

const sequences: OperatorFacts = { ...ordinary, shapes: 'run', rows: rows.perSequence() };

export const attention = {
  Attention: { ...sequences, rows: rows.perSequence(3), layer: 'linear' },
  ...each('RotaryEmbedding com.microsoft.RotaryEmbedding com.microsoft.MultiHeadAttention', sequences),
  'com.microsoft.Attention': { ...sequences, layer: 'linear' },
  'com.microsoft.QAttention': { ...sequences, rows: 'unknown', layer: 'linear' },
  'com.microsoft.GroupQueryAttention': {
    ...sequences,
    shapes: shapes.groupQueryAttention,
    // The length of the longest sequence decides the length of the cache, which grows by one with each call.
    arguments: { from: 6, decide: 'growth' },
  },
} satisfies Record<string, OperatorFacts>;
