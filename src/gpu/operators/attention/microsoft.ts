/**
 * ONNX Runtime's attention: com.microsoft.Attention, QAttention, MultiHeadAttention. GroupQueryAttention is in
 * group-query.ts.
 */
import { floats, requireDatatype, Unsupported, elementOf, floatLiteral } from '../../../operators/index.ts';
import { elementBytes } from '../../../tensor/index.ts';
import { broadcastStrides, weightedSum } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { parametersOf } from '../common/elements.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { joined, splitHeads } from './attention.ts';
import { emitAttention, moveHeads } from './core.ts';
import { addedBias, headsTogether, refuseInputs, scratchHeads, type Heads, type ScoreChange } from './heads.ts';
import { groupQueryAttention } from './group-query.ts';

interface Sizes {
  readonly batch: number;
  readonly queries: number;
  readonly keys: number;
}

/**
 * The masks of these operators: the length of each item, or 0 for hidden keys. `mask_filter_value` is added to the
 * scores of hidden keys.
 */
function paddingMask(emitter: Emitter, mask: Value | undefined, { batch, queries, keys }: Sizes): ScoreChange[] {
  if (mask === undefined) return [];
  requireDatatype(mask, ['INT32']);
  const filter = floatLiteral(emitter.attribute('mask_filter_value', -10_000));
  const parameters = parametersOf({ padding: mask });
  const { shape } = mask;
  const hidden = (text: string): string => `(${text} ? ${filter} : 0.0f)`;
  const [first] = shape;
  if (shape.length === 1) {
    if (first !== batch && first !== 2 * batch)
      throw new Unsupported(`its mask has ${first} lengths for ${batch} items`);
    const before = first === 2 * batch ? ` || $j < padding[${batch} + $b]` : '';
    return [
      {
        parameters,
        score: (x, { b, j }) =>
          `(${x} + ${hidden(`${j} >= padding[${b}]${before}`.replaceAll('$j', () => j).replaceAll('$b', () => b))})`,
      },
    ];
  }
  if (shape.length > 3) throw new Unsupported(`its mask has ${shape.length} dimensions`);
  const whole = shape.length === 2 ? [shape[0]!, 1, shape[1]!] : shape;
  const strides = broadcastStrides(whole, [batch, queries, keys]);
  return [
    {
      parameters,
      score: (x, { b, i, j }) => `(${x} + ${hidden(`padding[${weightedSum([b, i, j], strides)}] <= 0`)})`,
    },
  ];
}

/** The causal mask, if the node is unidirectional. `past`: the number of rows before the first query. */
function onlyBefore(emitter: Emitter, past: number): ScoreChange[] {
  if (emitter.attribute('unidirectional', 0) !== 1) return [];
  return [{ parameters: [], score: (x, { i, j, hidden }) => `(${j} > ${i} + ${past} ? ${hidden} : ${x})` }];
}

const scaleOf = (emitter: Emitter, size: number): number => emitter.attribute('scale', 0) || 1 / Math.sqrt(size);

/** Heads plus their part of the bias, in scratch memory; without a bias the heads themselves. */
function biased(emitter: Emitter, at: Heads, batch: number, bias: Value | undefined, offset: number): Heads {
  if (bias === undefined) return at;
  const element = elementOf(bias.kept);
  const to = scratchHeads(emitter, at.kept, batch, at);
  moveHeads(emitter, 'head_bias', batch, at, to, {
    parameters: parametersOf({ bias }),
    value: (x) => `${x} + ${element.load(`bias[${offset} + h * ${at.size} + c]`)}`,
  });
  return to;
}

const multiHead = {
  type: 'com.microsoft.MultiHeadAttention',
  emit(emitter) {
    const heads = emitter.attribute('num_heads', 0);
    const query = emitter.required(0, floats);
    const [key, value] = [emitter.input(1), emitter.input(2)];
    if (key === undefined || value === undefined || query.shape.length !== 3 || key.shape.length === 5) {
      throw new Unsupported('its queries, keys and values are packed');
    }
    refuseInputs(emitter, { 8: 'past_sequence_length', 9: 'cache_indirection' });
    const y = requiredOutput(emitter);
    const batch = query.shape[0]!;
    const bias = emitter.input(3);
    // Keys and values of cross attention, [batch, heads, rows, size], already contain their bias.
    const own = (of: Value, place: number): Heads =>
      biased(emitter, splitHeads(of, heads), batch, of.shape.length === 4 ? undefined : bias, place * query.shape[2]!);
    const q = own(query, 0);
    const past = emitter.input(6);
    const k = joined(emitter, past, own(key, 1), batch, emitter.output(1));
    const v = joined(emitter, emitter.input(7), own(value, 2), batch, emitter.output(2));
    const scores = [batch, heads, q.rows, k.rows];
    const mask = paddingMask(emitter, emitter.input(4), { batch, queries: q.rows, keys: k.rows });
    const captured = emitter.output(3);
    emitAttention(emitter, {
      batch,
      q,
      k,
      v,
      y: headsTogether(y, { ...q, size: v.size }),
      scale: scaleOf(emitter, q.size),
      changes: [...mask, ...addedBias(emitter.input(5), scores), ...onlyBefore(emitter, past?.shape[2] ?? 0)],
      scores: captured && { value: captured, after: 0 },
    });
  },
} satisfies Kernels;

/**
 * Self-attention on rows of queries, keys and values side by side. Inputs: the rows; a mask; the past, keys and values
 * one after the other; an addend of the scores. Outputs: Y; the present, like the past.
 */
const selfAttention = {
  type: 'turntable.SelfAttention',
  emit(emitter) {
    const projected = emitter.required(0, floats);
    const [mask, past, bias] = [1, 2, 3].map((place) => emitter.input(place));
    const [batch, rows, row] = projected.shape as [number, number, number];
    const [q = row / 3, k = row / 3, v = row / 3] = emitter.attribute<readonly number[]>('qkv_hidden_sizes', []);
    const heads = emitter.attribute('num_heads', 0);
    if (heads < 1 || [q, k, v].some((width) => width % heads !== 0)) {
      throw new Unsupported(`widths of [${[q, k, v].join(',')}] are not made of ${heads} heads`);
    }
    const bytes = elementBytes[projected.kept];
    const part = (offset: number, width: number): Heads => ({
      buffer: emitter.part(projected.buffer, offset * bytes, (projected.elements - offset) * bytes),
      kept: projected.kept,
      heads,
      rows,
      size: width / heads,
      batch: rows * row,
      head: width / heads,
      row,
    });
    const halved = (value: Value | undefined, index: 0 | 1): Value | undefined => {
      if (value === undefined) return undefined;
      const half = (value.elements / 2) * elementBytes[value.kept];
      const buffer = emitter.part(value.buffer, index * half, half);
      return { ...value, shape: value.shape.slice(1), elements: value.elements / 2, buffer };
    };
    const present = emitter.output(1);
    const queries = part(0, q);
    const keys = joined(emitter, halved(past, 0), part(q, k), batch, halved(present, 0));
    const values = joined(emitter, halved(past, 1), part(q + k, v), batch, halved(present, 1));
    emitAttention(emitter, {
      batch,
      q: queries,
      k: keys,
      v: values,
      y: headsTogether(requiredOutput(emitter), { ...queries, size: values.size }),
      scale: scaleOf(emitter, queries.size),
      changes: [
        ...paddingMask(emitter, mask, { batch, queries: rows, keys: keys.rows }),
        ...addedBias(bias, [batch, heads, rows, keys.rows]),
        ...onlyBefore(emitter, past?.shape[3] ?? 0),
      ],
    });
  },
} satisfies Kernels;

export const microsoftAttentionOperators = [
  multiHead,
  groupQueryAttention,
  selfAttention,
] as const satisfies readonly Kernels[];
