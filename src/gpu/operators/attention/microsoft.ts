/**
 * ONNX Runtime's attention: com.microsoft.Attention, QAttention, MultiHeadAttention. GroupQueryAttention is in
 * group-query.ts.
 */
import { elementBytes } from '../../../tensor/index.ts';
import { elementOf, floatLiteral, floats, requireDatatype } from '../common/element.ts';
import { broadcastStrides, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput, scratchValue } from '../common/inputs.ts';
import { parametersOf, written, type Stored } from '../common/elements.ts';
import { emitMatmul } from '../dense/matmul.ts';
import { emitIntegerProduct, zeroPointOf } from '../quantized/products.ts';
import { type Emitter, type Kernels, Unsupported, type Value } from '../types.ts';
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

interface SelfAttention {
  readonly projected: Stored;
  readonly batch: number;
  readonly rows: number;
  /** Widths of queries, keys and values, in the order of a row of `projected`. */
  readonly widths: readonly [number, number, number];
  readonly mask: Value | undefined;
  readonly past: Value | undefined;
  readonly bias: Value | undefined;
}

/** Self-attention on projected rows. */
function emitSelfAttention(emitter: Emitter, self: SelfAttention): void {
  const { projected, batch, rows, widths, mask, past, bias } = self;
  const heads = emitter.attribute('num_heads', 0);
  if (heads < 1 || widths.some((width) => width % heads !== 0)) {
    throw new Unsupported(`widths of [${widths.join(',')}] are not made of ${heads} heads`);
  }
  const y = requiredOutput(emitter);
  const present = emitter.output(1);
  const row = widths[0] + widths[1] + widths[2];
  const bytes = elementBytes[projected.kept];
  const part = (offset: number, width: number): Heads => ({
    buffer: emitter.part(projected.buffer, offset * bytes, (batch * rows * row - offset) * bytes),
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
  const before = past?.shape[3] ?? 0;
  const q = part(0, widths[0]);
  const k = joined(emitter, halved(past, 0), part(widths[0], widths[1]), batch, halved(present, 0));
  const v = joined(emitter, halved(past, 1), part(widths[0] + widths[1], widths[2]), batch, halved(present, 1));
  emitAttention(emitter, {
    batch,
    q,
    k,
    v,
    y: headsTogether(y, { ...q, size: v.size }),
    scale: scaleOf(emitter, q.size),
    changes: [
      ...paddingMask(emitter, mask, { batch, queries: rows, keys: k.rows }),
      ...addedBias(bias, [batch, heads, rows, k.rows]),
      ...onlyBefore(emitter, before),
    ],
  });
}

function refuseShared(emitter: Emitter): void {
  if (emitter.attribute('do_rotary', 0) === 1) throw new Unsupported('it turns its queries and keys (do_rotary)');
  if (emitter.attribute('past_present_share_buffer', 0) === 1) {
    throw new Unsupported('its past and present share a buffer');
  }
}

function widthsOf(emitter: Emitter, columns: number): readonly [number, number, number] {
  const given = emitter.attribute<readonly number[]>('qkv_hidden_sizes', []);
  const [q = columns / 3, k = columns / 3, v = columns / 3] = given;
  return [q, k, v];
}

const selfAttention = {
  type: 'com.microsoft.Attention',
  emit(emitter) {
    refuseShared(emitter);
    const [input, weights] = [emitter.required(0, floats), emitter.required(1)];
    const [batch, rows] = input.shape as [number, number];
    const columns = weights.shape[1]!;
    const projected = scratchValue(emitter, input.datatype, [batch, rows, columns]);
    emitMatmul(emitter, input, weights, projected, { bias: emitter.input(2) });
    emitSelfAttention(emitter, {
      projected,
      batch,
      rows,
      widths: widthsOf(emitter, columns),
      mask: emitter.input(3),
      past: emitter.input(4),
      bias: emitter.input(5),
    });
  },
} satisfies Kernels;

/** Its projection is an integer product, dequantised by the scales of input and weights. */
const quantizedAttention = {
  type: 'com.microsoft.QAttention',
  emit(emitter) {
    refuseShared(emitter);
    const [input, weights] = [emitter.required(0), emitter.required(1)];
    const [bias, inputScale, weightScale] = [emitter.required(2), emitter.required(3), emitter.required(4)];
    const [batch, rows, depth] = input.shape as [number, number, number];
    const columns = weights.shape[1]!;
    const projected = scratchValue(emitter, 'FP32', [batch, rows, columns]);
    const addend = asDeclared(emitter, bias);
    const [left, right] = [asDeclared(emitter, inputScale), asDeclared(emitter, weightScale)];
    const scale = `left[0] * right[${right.elements === 1 ? '0' : 'column'}]`;
    emitIntegerProduct(emitter, {
      hint: 'quantized_projection',
      rows: batch * rows,
      columns,
      depth,
      batch: [],
      a: { value: input, strides: [], zero: zeroPointOf(emitter.input(6), 'rows') },
      b: { value: weights, strides: [], zero: zeroPointOf(emitter.input(7), 'columns') },
      tensors: { left, right, bias: addend, d: written(projected) },
      finish: (x, at, { d }) => d.set(at, `(float)${x} * (${scale}) + bias[column]`),
    });
    emitSelfAttention(emitter, {
      projected,
      batch,
      rows,
      widths: widthsOf(emitter, columns),
      mask: emitter.input(5),
      past: emitter.input(8),
      bias: undefined,
    });
  },
} satisfies Kernels;

export const microsoftAttentionOperators = [
  multiHead,
  groupQueryAttention,
  selfAttention,
  quantizedAttention,
] as const satisfies readonly Kernels[];
