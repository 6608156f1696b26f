/** Attention, whole and its rotations. */
import { each, ordinary, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';
import { Unsupported, type Term, type Write, type Writer } from '../writing.ts';

const sequences: OperatorFacts = { ...ordinary, shapes: 'run', rows: rows.perSequence() };

/** A projection of the input with attention behind it. `others`: where the mask, the past and the addend are. */
const projecting =
  (others: readonly number[], project: (writer: Writer, input: Term, result: Omit<Term, 'name'>) => Term): Write =>
  (writer) => {
    if (writer.attribute('do_rotary', 0) === 1) throw new Unsupported('it turns its queries and keys (do_rotary)');
    if (writer.attribute('past_present_share_buffer', 0) === 1)
      throw new Unsupported('its past and present share a buffer');
    const input = writer.required(0);
    const shape = [...input.shape.slice(0, 2), writer.required(1).shape[1]!];
    const { datatype } = writer.output;
    const inputs = [project(writer, input, { datatype, shape }), ...others.map((place) => writer.input(place))];
    const present = writer.result(1);
    const results = [writer.output, ...(present === undefined ? [] : [present])];
    const made = writer.madeAll('turntable.SelfAttention', inputs, results, 'own');
    for (const [place, term] of made.entries()) writer.give(term, place);
  };

const floatProjection = projecting([3, 4, 5], (writer, input, result) => {
  const product = writer.made('MatMul', [input, writer.required(1)], result);
  const bias = writer.input(2);
  return bias === undefined ? product : writer.map('Add', [product, bias]);
});

/** An integer product, dequantised by the scales of input and weights. */
const integerProjection = projecting([5, 8], (writer, input, result) => {
  const [weights, bias, scale, weightScale] = [1, 2, 3, 4].map((place) => writer.required(place));
  const inputs = [input, weights, scale, weightScale, writer.input(6), writer.input(7), bias];
  return writer.made('com.microsoft.MatMulIntegerToFloat', inputs, result);
});

export const attention = {
  Attention: { ...sequences, rows: rows.perSequence(3), layer: 'linear' },
  ...each('RotaryEmbedding com.microsoft.RotaryEmbedding com.microsoft.MultiHeadAttention', sequences),
  'com.microsoft.Attention': { ...sequences, layer: 'linear', write: floatProjection },
  'com.microsoft.QAttention': { ...sequences, rows: 'unknown', layer: 'linear', write: integerProjection },
  'com.microsoft.GroupQueryAttention': {
    ...sequences,
    shapes: shapes.groupQueryAttention,
    // The length of the longest sequence decides the length of the cache, which grows by one with each call.
    arguments: { from: 6, decide: 'growth' },
  },
} satisfies Record<string, OperatorFacts>;
