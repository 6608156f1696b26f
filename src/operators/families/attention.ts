/** Attention, whole and its rotations. ONNX Runtime's operators are written as the products and the softmax of exports. */
import { each, ordinary, type OperatorFacts } from '../facts.ts';
import { is } from '../result-types.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';
import { ElementType } from '../../onnx/index.ts';
import { floats, requireDatatype, Unsupported, type Term, type Write, type Writer } from '../writing.ts';

const sequences: OperatorFacts = { ...ordinary, shapes: 'run', rows: rows.perSequence() };

interface Parts {
  /** [batch, rows, heads x size], or [batch, heads, rows, size]. */
  readonly query: Term;
  readonly key: Term;
  readonly value: Term;
  /** Keys and values before these. */
  readonly past?: readonly (Term | undefined)[] | undefined;
  readonly mask: Term | undefined;
  /** Added to the scores. */
  readonly bias: Term | undefined;
}

/** What hides keys when it is added to scores: those outside of an item's start and length, or where a mask is 0. */
function paddingOf(writer: Writer, mask: Term, batch: number, keys: number): Term {
  requireDatatype(mask, ['INT32']);
  const { datatype } = writer.output;
  const [lowered, zero] = [writer.attribute('mask_filter_value', -10_000), 0].map((x) => writer.number(datatype, x));
  const [first = 0, second = 1] = mask.shape;
  let isHidden: Term;
  if (mask.shape.length === 1) {
    if (first !== batch && first !== 2 * batch)
      throw new Unsupported(`its mask has ${first} lengths for ${batch} items`);
    const places = writer.counted(3, [1, 1, 1, keys], 'INT32');
    const ofItems = (from: number): Term => writer.viewed(writer.part(mask, from, batch), [batch, 1, 1, 1]);
    isHidden = writer.map('GreaterOrEqual', [places, ofItems(0)], 'BOOL');
    if (first > batch) isHidden = writer.map('Or', [isHidden, writer.map('Less', [places, ofItems(batch)], 'BOOL')]);
  } else {
    if (mask.shape.length > 3) throw new Unsupported(`its mask has ${mask.shape.length} dimensions`);
    const shape = [first, 1, mask.shape.length === 2 ? 1 : second, keys];
    isHidden = writer.map('LessOrEqual', [writer.viewed(mask, shape), writer.number('INT32', 0)], 'BOOL');
  }
  return writer.map('Where', [isHidden, lowered, zero], datatype);
}

/** Gives the result. The products and the softmax are fused to one kernel, or read heads inside of the projections. */
function attended(writer: Writer, { query, key, value, past = [], mask, bias }: Parts) {
  const heads = writer.attribute('num_heads', 0);
  const apart = (x: Term): Term => {
    if (x.shape.length === 4) return x;
    const [batch, rows, width] = x.shape as [number, number, number];
    if (heads < 1 || width % heads !== 0) throw new Unsupported(`'${x.name}' is not made of ${heads} heads`);
    return writer.permuted(writer.viewed(x, [batch, rows, heads, width / heads]), [0, 2, 1, 3]);
  };
  const behind = (before: Term | undefined, fresh: Term): Term => {
    if (before === undefined) return fresh;
    const shape = fresh.shape.with(2, before.shape[2]! + fresh.shape[2]!);
    return writer.made('Concat', [before, fresh], { ...fresh, shape }, { axis: 2 });
  };
  const [q, k, v] = [apart(query), behind(past[0], apart(key)), behind(past[1], apart(value))];
  const [batch, , queries, size] = q.shape as [number, number, number, number];
  const keys = k.shape[2]!;
  const { datatype } = q;
  const alpha = { float: writer.attribute('scale', 0) || 1 / Math.sqrt(size) };
  const shape = [batch, heads, queries, keys];
  const scores = writer.made('turntable.Product', [q, k], { datatype, shape }, { transB: 1, alpha });
  const addends = [...(mask === undefined ? [] : [paddingOf(writer, mask, batch, keys)]), bias ?? []].flat();
  if (writer.attribute('unidirectional', 0) === 1) {
    const [places, newest] = [3, 2].map((axis) => writer.counted(axis, [1, 1, queries, keys])) as [Term, Term];
    const last = writer.map('Add', [newest, writer.number('INT64', keys - queries)]);
    const isLater = writer.map('Greater', [places, last], 'BOOL');
    const hidden = [-Infinity, 0].map((x) => writer.number(datatype, x));
    addends.push(writer.map('Where', [isLater, ...hidden], datatype));
  }
  const added = addends.length === 0 ? [] : [addends.reduce((a, b) => writer.map('Add', [a, b]))];
  const shares = writer.made('turntable.MaskedSoftmax', [scores, ...added], scores);
  const context = writer.made('MatMul', [shares, v], { datatype, shape: shape.with(3, v.shape[3]!) });
  writer.give(writer.permuted(context, [0, 2, 1, 3]));
  return { k, v, scores };
}

const multiHead: Write = (writer) => {
  const query = writer.required(0, floats);
  const [key, value, bias, mask, addend] = [1, 2, 3, 4, 5].map((place) => writer.input(place));
  if (key === undefined || value === undefined || query.shape.length !== 3 || key.shape.length === 5)
    throw new Unsupported('its queries, keys and values are packed');
  for (const [place, what] of [[8, 'past_sequence_length'] as const, [9, 'cache_indirection'] as const])
    if (writer.input(place) !== undefined) throw new Unsupported(`its ${what} is used`);
  // Keys and values of cross attention, [batch, heads, rows, size], already contain their bias.
  const own = (x: Term, from: number): Term =>
    bias === undefined || x.shape.length === 4 ? x : writer.map('Add', [x, writer.part(bias, from, x.shape[2]!)]);
  const width = query.shape[2]!;
  const { k, v, scores } = attended(writer, {
    query: own(query, 0),
    key: own(key, width),
    value: own(value, 2 * width),
    past: [writer.input(6), writer.input(7)],
    mask,
    bias: addend,
  });
  for (const [place, result] of [k, v, scores].entries()) writer.give(result, place + 1);
};

/**
 * A projection of the input to rows of queries, keys and values, with attention behind it. `others`: the inputs with
 * the mask, the past (keys and values one after the other) and the addend of the scores.
 */
const projecting =
  (others: readonly number[], project: (writer: Writer, input: Term, result: Omit<Term, 'name'>) => Term): Write =>
  (writer) => {
    if (writer.attribute('do_rotary', 0) === 1) throw new Unsupported('it turns its queries and keys (do_rotary)');
    if (writer.attribute('past_present_share_buffer', 0) === 1)
      throw new Unsupported('its past and present share a buffer');
    const input = writer.required(0);
    const rows = input.shape.slice(0, 2);
    const width = writer.required(1).shape[1]!;
    const { datatype } = writer.output;
    const projected = project(writer, input, { datatype, shape: [...rows, width] });
    const named = writer.attribute<readonly number[]>('qkv_hidden_sizes', []);
    const widths = named.length > 0 ? named : [width / 3, width / 3, width / 3];
    const parts = widths.map((each) => ({ datatype, shape: [...rows, each] }));
    const made = writer.madeAll('Split', [projected], parts, { axis: 2, split: widths });
    const [query, key, value] = made as [Term, Term, Term];
    const [mask, before, bias] = others.map((place) => writer.input(place));
    const past = before && [0, 1].map((half) => writer.viewed(writer.part(before, half, 1), before.shape.slice(1)));
    const { k, v } = attended(writer, { query, key, value, past, mask, bias });
    const present = writer.result(1);
    if (present === undefined) return;
    const halves = [k, v].map((half) => writer.viewed(half, [1, ...half.shape]));
    writer.give(writer.made('Concat', halves, present, { axis: 0 }), 1);
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
  ...each('RotaryEmbedding com.microsoft.RotaryEmbedding', sequences),
  'com.microsoft.MultiHeadAttention': { ...sequences, write: multiHead },
  'com.microsoft.Attention': { ...sequences, layer: 'linear', write: floatProjection },
  'com.microsoft.QAttention': {
    ...sequences,
    types: [is(ElementType.FLOAT)],
    rows: 'unknown',
    layer: 'linear',
    write: integerProjection,
  },
  'com.microsoft.GroupQueryAttention': {
    ...sequences,
    shapes: shapes.groupQueryAttention,
    // The length of the longest sequence decides the length of the cache, which grows by one with each call.
    arguments: { from: 6, decide: 'growth' },
  },
} satisfies Record<string, OperatorFacts>;
