/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { AttributeValue } from '../../../../src/onnx/index.ts';
import type { DataType } from '../../../../src/tensor/index.ts';
import type { Draw } from '../../../support/operator-cases/draw.ts';
import { conformanceCase, filled, given, known, tensor, type Case, type CaseInput } from '../case.ts';

const x = (shape: readonly number[], seed = 1, datatype: DataType = 'FP32'): CaseInput =>
  given(filled(datatype, shape, seed));
const ints = (datatype: DataType, shape: readonly number[], ...values: number[]): CaseInput =>
  given(tensor(datatype, shape, values));

type Attributes = Record<string, AttributeValue>;

/** Inputs by index; undefined for omitted ones. */
function attention(
  name: string,
  inputs: readonly (CaseInput | undefined)[],
  attributes: Attributes = {},
  outputs: readonly (DataType | undefined)[] = [inputs[0]!.tensor.datatype],
  opset = 23,
): Case {
  return conformanceCase('Attention', name, inputs, { attributes, outputs, opset });
}

const heads = (q: number, kv = q): Attributes => ({ q_num_heads: q, kv_num_heads: kv });
const apart = [x([2, 3, 4, 8]), x([2, 3, 6, 8], 2), x([2, 3, 6, 8], 3)] as const;
const together = [x([2, 4, 24]), x([2, 6, 24], 2), x([2, 6, 24], 3)] as const;
const grouped = [x([2, 6, 4, 8]), x([2, 2, 6, 8], 2), x([2, 2, 6, 8], 3)] as const;
const past = [x([2, 3, 5, 8], 4), x([2, 3, 5, 8], 5)] as const;
const all: readonly DataType[] = ['FP32', 'FP32', 'FP32', 'FP32'];
/** The first key is visible to all rows, so that no row is empty. */
const booleans = (shape: readonly number[]): CaseInput => {
  const last = shape.at(-1)!;
  const { data } = filled('BOOL', shape, 7);
  return given(
    tensor(
      'BOOL',
      shape,
      Array.from(data, (value, index) => (index % last === 0 ? 1 : value)),
    ),
  );
};

const onnx: readonly Case[] = [
  attention('4D', apart),
  attention('3D', together, heads(3)),
  attention('scaled', apart, { scale: { float: 0.3 } }),
  attention('causal', apart, { is_causal: 1 }),
  attention('3D, causal', together, { ...heads(3), is_causal: 1 }),
  attention('softcap', apart, { softcap: { float: 2 } }),
  attention('3D, softcap and causal', together, { ...heads(3), is_causal: 1, softcap: { float: 1.5 } }),
  attention('values of another size', [apart[0], apart[1], x([2, 3, 6, 10], 3)]),
  attention('3D, values of another size', [together[0], together[1], x([2, 6, 30], 3)], heads(3)),
  attention('shared keys', grouped),
  attention('shared keys, causal', grouped, { is_causal: 1 }),
  attention('3D, shared keys', [x([2, 4, 48]), x([2, 6, 16], 2), x([2, 6, 16], 3)], heads(6, 2)),
  attention('one head of keys', [x([2, 6, 4, 8]), x([2, 1, 6, 8], 2), x([2, 1, 6, 8], 3)]),
  ...[
    [4, 6],
    [1, 1, 4, 6],
    [2, 1, 4, 6],
    [2, 3, 4, 6],
    [1, 3, 4, 6],
    [3, 4, 6],
  ].flatMap((shape) => [
    attention(`mask [${shape.join(',')}]`, [...apart, x(shape, 6)]),
    attention(`truth mask [${shape.join(',')}]`, [...apart, booleans(shape)]),
  ]),
  attention('mask, causal', [...apart, x([4, 6], 6)], { is_causal: 1 }),
  attention('3D, mask', [...together, x([2, 3, 4, 6], 6)], heads(3)),
  attention('past', [...apart, undefined, ...past], {}, ['FP32', 'FP32', 'FP32']),
  attention('past, mask, causal', [...apart, x([4, 11], 6), ...past], { is_causal: 1 }, ['FP32', 'FP32', 'FP32']),
  attention('3D, past', [...together, undefined, ...past], heads(3), ['FP32', 'FP32', 'FP32']),
  attention('3D, past, truth mask', [...together, booleans([4, 11]), ...past], heads(3), ['FP32', 'FP32', 'FP32']),
  ...[0, 1, 2, 3].flatMap((mode) => [
    attention(`scores ${mode}`, apart, { qk_matmul_output_mode: mode }, ['FP32', undefined, undefined, 'FP32']),
    attention(
      `scores ${mode}, mask, softcap, past`,
      [...apart, x([4, 11], 6), ...past],
      { qk_matmul_output_mode: mode, softcap: { float: 2 } },
      all,
    ),
    attention(`3D, scores ${mode}, causal`, together, { ...heads(3), qk_matmul_output_mode: mode, is_causal: 1 }, [
      'FP32',
      undefined,
      undefined,
      'FP32',
    ]),
  ]),
  attention('one query', [x([1, 2, 1, 4]), x([1, 2, 7, 4], 2), x([1, 2, 7, 4], 3)]),
  attention('one of all', [x([1, 1, 1, 1]), x([1, 1, 1, 1], 2), x([1, 1, 1, 1], 3)]),
  attention('FP16', [x([2, 3, 4, 8], 1, 'FP16'), x([2, 3, 6, 8], 2, 'FP16'), x([2, 3, 6, 8], 3, 'FP16')]),
  attention(
    'FP16, 3D, mask',
    [x([2, 4, 24], 1, 'FP16'), x([2, 6, 24], 2, 'FP16'), x([2, 6, 24], 3, 'FP16'), x([4, 6], 6, 'FP16')],
    heads(3),
  ),
  // Products on tensor cores, and a softmax between them.
  attention(
    'FP16, many rows',
    [1, 2, 3].map((seed) => x([1, 2, 20, 8], seed, 'FP16')),
  ),
  attention('lengths', [...apart, undefined, undefined, undefined, ints('INT64', [2], 4, 6)], {}, ['FP32'], 24),
  attention('truth mask, nothing seen', [
    ...apart,
    given(
      tensor(
        'BOOL',
        [4, 6],
        Array.from({ length: 24 }, (_, i) => +(i >= 6)),
      ),
    ),
  ]),
  attention(
    'truth mask, nothing seen, scores 2',
    [
      ...apart,
      given(
        tensor(
          'BOOL',
          [4, 6],
          Array.from({ length: 24 }, (_, i) => +(i >= 6)),
        ),
      ),
    ],
    { qk_matmul_output_mode: 2 },
    ['FP32', undefined, undefined, 'FP32'],
  ),
  attention(
    'truth mask, nothing seen, scores 3, causal',
    [
      ...apart,
      given(
        tensor(
          'BOOL',
          [4, 6],
          Array.from({ length: 24 }, (_, i) => +(i >= 6)),
        ),
      ),
    ],
    { qk_matmul_output_mode: 3, is_causal: 1 },
    ['FP32', undefined, undefined, 'FP32'],
  ),
  attention(
    'lengths, causal',
    [x([2, 3, 2, 8]), apart[1], apart[2], undefined, undefined, undefined, ints('INT64', [2], 4, 6)],
    { is_causal: 1 },
    ['FP32'],
    24,
  ),
  attention(
    'lengths, scores 2',
    [...apart, undefined, undefined, undefined, ints('INT64', [2], 4, 6)],
    { qk_matmul_output_mode: 2 },
    ['FP32', undefined, undefined, 'FP32'],
    24,
  ),
  attention('24, causal, past', [...apart, undefined, ...past], { is_causal: 1 }, ['FP32', 'FP32', 'FP32'], 24),
];

const rotary = (name: string, inputs: readonly (CaseInput | undefined)[], attributes: Attributes = {}): Case =>
  conformanceCase('RotaryEmbedding', name, inputs, { attributes, opset: 23 });
const ids = ints('INT64', [2, 3], 0, 4, 2, 5, 1, 3);

const rotations: readonly Case[] = [0, 1].flatMap((interleaved) => [
  rotary('4D', [x([2, 4, 3, 8]), x([6, 4], 2), x([6, 4], 3), ids], { interleaved }),
  rotary('3D', [x([2, 3, 32]), x([6, 4], 2), x([6, 4], 3), ids], { interleaved, num_heads: 4 }),
  rotary('part of 4D', [x([2, 4, 3, 8]), x([6, 2], 2), x([6, 2], 3), ids], { interleaved, rotary_embedding_dim: 4 }),
  rotary('part of 3D', [x([2, 3, 32]), x([6, 2], 2), x([6, 2], 3), ids], {
    interleaved,
    rotary_embedding_dim: 4,
    num_heads: 4,
  }),
  rotary('without positions', [x([2, 4, 3, 8]), x([2, 3, 4], 2), x([2, 3, 4], 3)], { interleaved }),
  rotary('3D without positions', [x([2, 3, 32]), x([2, 3, 2], 2), x([2, 3, 2], 3)], {
    interleaved,
    rotary_embedding_dim: 4,
    num_heads: 4,
  }),
  rotary('FP16', [x([2, 4, 3, 8], 1, 'FP16'), x([6, 4], 2, 'FP16'), x([6, 4], 3, 'FP16'), ids], { interleaved }),
  conformanceCase('com.microsoft.RotaryEmbedding', '3D', [x([2, 3, 32]), ids, x([6, 4], 2), x([6, 4], 3)], {
    attributes: { interleaved },
  }),
  conformanceCase(
    'com.microsoft.RotaryEmbedding',
    '4D, one position',
    [x([2, 4, 3, 8]), ints('INT64', [1], 2), x([6, 4], 2), x([6, 4], 3)],
    { attributes: { interleaved } },
  ),
  conformanceCase('com.microsoft.RotaryEmbedding', 'part', [x([2, 3, 32]), ids, x([6, 2], 2), x([6, 2], 3)], {
    attributes: { interleaved, num_heads: 4, rotary_embedding_dim: 4 },
  }),
]);

const scatter = (
  name: string,
  cache: readonly number[],
  update: readonly number[],
  places: readonly number[] | undefined,
  attributes: Attributes = {},
  datatype: DataType = 'FP32',
): Case =>
  conformanceCase(
    'TensorScatter',
    name,
    [
      x(cache, 1, datatype),
      x(update, 2, datatype),
      ...(places === undefined ? [] : [ints('INT64', [places.length], ...places)]),
    ],
    { attributes, opset: 24 },
  );

const scatters: readonly Case[] = [
  scatter('linear', [3, 2, 6, 4], [3, 2, 2, 4], [1, 4, 0]),
  scatter('without places', [3, 2, 6, 4], [3, 2, 2, 4], undefined),
  scatter('circular', [3, 2, 6, 4], [3, 2, 3, 4], [1, 4, 5], { mode: 'circular' }),
  scatter('another axis', [2, 6, 3, 4], [2, 2, 3, 4], [1, 4], { axis: 1 }),
  scatter('3D, FP16', [2, 6, 4], [2, 1, 4], [5, 3], {}, 'FP16'),
  scatter('INT64', [2, 6, 4], [2, 3, 4], [2, 3], { axis: -2 }, 'INT64'),
  scatter('a whole cache', [1, 1, 3, 2], [1, 1, 3, 2], [0]),
];

const multiHead = (
  name: string,
  inputs: readonly (CaseInput | undefined)[],
  attributes: Attributes = {},
  outputs: readonly (DataType | undefined)[] = ['FP32'],
): Case =>
  conformanceCase('com.microsoft.MultiHeadAttention', name, inputs, {
    attributes: { num_heads: 3, ...attributes },
    outputs,
  });
const three: readonly DataType[] = ['FP32', 'FP32', 'FP32'];

const multiHeads: readonly Case[] = [
  multiHead('plain', together),
  multiHead('bias', [...together, x([72], 4)]),
  multiHead('scaled', together, { scale: { float: 0.4 } }),
  multiHead('lengths', [...together, undefined, ints('INT32', [2], 4, 6)]),
  multiHead('mask', [...together, undefined, ints('INT32', [2, 6], 1, 1, 0, 1, 0, 1, 1, 1, 1, 1, 0, 0)]),
  multiHead('added', [...together, undefined, undefined, x([2, 3, 4, 6], 6)]),
  multiHead('added to all', [...together, undefined, undefined, x([1, 1, 4, 6], 6)]),
  multiHead('only before', [x([2, 6, 24]), together[1], together[2]], { unidirectional: 1 }),
  multiHead('past', [...together, undefined, undefined, undefined, ...past], {}, three),
  multiHead('past, bias', [...together, x([72], 4), undefined, undefined, ...past], {}, three),
  multiHead('kept', together, {}, three),
  multiHead('values of another size', [together[0], together[1], x([2, 6, 30], 3)]),
  multiHead('keys apart', [together[0], x([2, 3, 6, 8], 2), x([2, 3, 6, 8], 3)]),
];

const selfAttention = (
  name: string,
  inputs: readonly (CaseInput | undefined)[],
  attributes: Attributes = {},
  outputs: readonly DataType[] = ['FP32'],
): Case =>
  conformanceCase('com.microsoft.Attention', name, inputs, { attributes: { num_heads: 3, ...attributes }, outputs });
const input = [x([2, 5, 10]), x([10, 36], 2), x([36], 3)] as const;

const selves: readonly Case[] = [
  selfAttention('plain', input),
  selfAttention('only before', input, { unidirectional: 1 }),
  selfAttention('lengths', [...input, ints('INT32', [2], 3, 5)]),
  selfAttention('ends and starts', [...input, ints('INT32', [4], 4, 5, 1, 0)]),
  selfAttention('mask', [...input, ints('INT32', [2, 5], 1, 1, 0, 1, 0, 1, 1, 1, 1, 0)]),
  selfAttention('mask by query', [
    ...input,
    given(
      tensor(
        'INT32',
        [2, 5, 5],
        Array.from({ length: 50 }, (_, i) => +(i % 5 === 0 || i % 3 > 0)),
      ),
    ),
  ]),
  selfAttention('past', [...input, undefined, x([2, 2, 3, 4, 4], 5)], {}, ['FP32', 'FP32']),
  selfAttention('past, only before', [...input, undefined, x([2, 2, 3, 4, 4], 5)], { unidirectional: 1 }, [
    'FP32',
    'FP32',
  ]),
  selfAttention('added', [...input, undefined, undefined, x([2, 3, 5, 5], 6)]),
  selfAttention('widths', [x([2, 5, 10]), x([10, 42], 2), x([42], 3)], { qkv_hidden_sizes: [12, 12, 18] }),
  ...(['INT8', 'UINT8'] as const).map((datatype) =>
    conformanceCase(
      'com.microsoft.QAttention',
      `${datatype} weights`,
      [
        x([2, 5, 10], 1, 'UINT8'),
        x([10, 36], 2, datatype),
        x([36], 3),
        known(tensor('FP32', [], [0.02])),
        known(tensor('FP32', [], [0.01])),
        ints('INT32', [2], 3, 5),
        known(tensor('UINT8', [], [40])),
        known(tensor(datatype, [], [3])),
      ],
      { attributes: { num_heads: 3 }, outputs: ['FP32'] },
    ),
  ),
];

const groupQuery = (
  name: string,
  inputs: readonly (CaseInput | undefined)[],
  attributes: Attributes = {},
  datatype: DataType = 'FP32',
): Case =>
  conformanceCase('com.microsoft.GroupQueryAttention', name, inputs, {
    attributes: { num_heads: 4, kv_num_heads: 2, ...attributes },
    outputs: [datatype, datatype, datatype],
  });
const total = (value: number): CaseInput => known(tensor('INT32', [], [value]));
const prompt = [x([2, 5, 32]), x([2, 5, 16], 2), x([2, 5, 16], 3)] as const;
const step = [x([2, 1, 32]), x([2, 1, 16], 2), x([2, 1, 16], 3)] as const;
const empty = [x([2, 2, 0, 8]), x([2, 2, 0, 8])] as const;
const cache = [x([2, 2, 6, 8], 4), x([2, 2, 6, 8], 5)] as const;
/** Rotation needs head sizes that are multiples of 16. */
const tables = [x([12, 8], 8), x([12, 8], 9)] as const;
const widePrompt = [x([2, 5, 64]), x([2, 5, 32], 2), x([2, 5, 32], 3)] as const;
const wideStep = [x([2, 1, 64]), x([2, 1, 32], 2), x([2, 1, 32], 3)] as const;
const wideEmpty = [x([2, 2, 0, 16]), x([2, 2, 0, 16])] as const;
const wideCache = [x([2, 2, 6, 16], 4), x([2, 2, 6, 16], 5)] as const;

const groupQueries: readonly Case[] = [
  groupQuery('prompt', [...prompt, ...empty, ints('INT32', [2], 4, 4), total(5)]),
  groupQuery('prompt without past', [...prompt, undefined, undefined, ints('INT32', [2], 4, 4), total(5)]),
  groupQuery('packed', [x([2, 5, 64]), undefined, undefined, undefined, undefined, ints('INT32', [2], 4, 4), total(5)]),
  groupQuery('step', [...step, ...cache, ints('INT32', [2], 6, 6), total(7)]),
  groupQuery('step, lengths', [...step, ...cache, ints('INT32', [2], 6, 3), total(7)]),
  groupQuery('scaled, softcap', [...step, ...cache, ints('INT32', [2], 6, 3), total(7)], {
    scale: { float: 0.5 },
    softcap: { float: 2 },
  }),
  groupQuery('window', [...prompt, undefined, undefined, ints('INT32', [2], 4, 4), total(5)], { local_window_size: 2 }),
  groupQuery('step in a window', [...step, ...cache, ints('INT32', [2], 6, 3), total(7)], { local_window_size: 3 }),
  ...[0, 1].flatMap((rotary_interleaved) => [
    groupQuery('turned prompt', [...widePrompt, ...wideEmpty, ints('INT32', [2], 4, 4), total(5), ...tables], {
      do_rotary: 1,
      rotary_interleaved,
    }),
    groupQuery('turned step', [...wideStep, ...wideCache, ints('INT32', [2], 6, 3), total(7), ...tables], {
      do_rotary: 1,
      rotary_interleaved,
    }),
    groupQuery(
      'turned, packed',
      [x([2, 5, 128]), undefined, undefined, ...wideEmpty, ints('INT32', [2], 4, 4), total(5), ...tables],
      { do_rotary: 1, rotary_interleaved },
    ),
  ]),
];

/** The layout of an operand's heads in `turntable.Attention`: separate, side by side, or in a part of wider rows. */
type Lie = 'apart' | 'together' | { readonly from: number; readonly width: number };

interface WholeAttention {
  readonly batch?: number;
  readonly heads?: number;
  readonly queries: number;
  readonly keys: number;
  readonly size: number;
  readonly valueSize?: number;
  readonly mask?: CaseInput | undefined;
  readonly scale?: number;
  readonly noNan?: boolean;
  readonly lies?: readonly [q: Lie, k: Lie, v: Lie, y: 'apart' | 'together'];
  readonly seed?: number;
  readonly datatype?: DataType;
}

/** `turntable.Attention` against the nodes that it replaces. */
function wholeAttention(name: string, options: WholeAttention): Case {
  const { batch = 1, heads: count = 2, queries, keys, size, valueSize = size, scale = 1, noNan = false } = options;
  const { mask, seed = 1, datatype = 'FP32', lies = ['together', 'together', 'together', 'together'] } = options;
  const widthOf = (lie: Lie, each: number): number => (typeof lie === 'object' ? lie.width : count * each);
  const shapeOf = (lie: Lie, rows: number, each: number): number[] =>
    lie === 'apart' ? [batch, count, rows, each] : [batch, rows, widthOf(lie, each)];
  const strides = (lie: Lie, rows: number, each: number): number[] => {
    if (lie === 'apart') return [0, each, rows * each, count * rows * each];
    const width = widthOf(lie, each);
    return [typeof lie === 'object' ? lie.from : 0, width, each, rows * width];
  };
  const sizes = [
    [queries, size],
    [keys, size],
    [keys, valueSize],
  ] as const;
  const places = sizes.map(([rows, each], index) => strides(lies[index]!, rows, each));
  const inputs = sizes.map(([rows, each], index) => x(shapeOf(lies[index]!, rows, each), seed + index, datatype));
  return conformanceCase('turntable.Attention', name, mask === undefined ? inputs : [...inputs, mask], {
    attributes: {
      batch,
      heads: count,
      queries,
      keys,
      size,
      valueSize,
      scale: { float: scale },
      noNan: Number(noNan),
      q: places[0]!,
      k: places[1]!,
      v: places[2]!,
      y: strides(lies[3], queries, valueSize),
    },
    reference: (graph, [q, k, v, added]) => {
      const integers = (...values: number[]): string => graph.constant({ ints: values });
      const apartOf = (value: string, index: number, perm: readonly number[]): string => {
        const [rows, each] = sizes[index]!;
        const lie = lies[index]!;
        if (lie === 'apart') return perm[3] === 3 ? value : graph.node('Transpose', [value], { perm: [0, 1, 3, 2] });
        const { from } = typeof lie === 'object' ? lie : { from: 0 };
        const part = graph.node('Slice', [value, integers(from), integers(from + count * each), integers(2)]);
        const split = graph.node('Reshape', [part, integers(batch, rows, count, each)]);
        return graph.node('Transpose', [split], { perm });
      };
      const products = graph.node('MatMul', [apartOf(q!, 0, [0, 2, 1, 3]), apartOf(k!, 1, [0, 2, 3, 1])]);
      const factor = graph.constant({ tensor: tensor('FP32', [], [Math.fround(scale)]) });
      const scaled = graph.node('Mul', [products, factor]);
      const scores = added === undefined ? scaled : graph.node('Add', [scaled, added]);
      let shares = graph.node('Softmax', [scores], { axis: -1 });
      const zero = graph.constant({ tensor: tensor('FP32', [], [0]) });
      if (noNan) shares = graph.node('Where', [graph.node('IsNaN', [shares]), zero, shares]);
      const context = graph.node('MatMul', [shares, apartOf(v!, 2, [0, 2, 1, 3])]);
      if (lies[3] === 'apart') return [context];
      const merged = graph.node('Transpose', [context], { perm: [0, 2, 1, 3] });
      return [graph.node('Reshape', [merged, integers(batch, queries, count * valueSize)])];
    },
  });
}

/** Random sizes, masks, and layouts of the heads. */
export function drawnAttention(draw: Draw): Case {
  const size = (): number => (draw.chance(0.7) ? draw.int(1, 20) : draw.pick([64, 80, 128]));
  const rows = (): number => (draw.chance(0.5) ? draw.int(1, 70) : draw.pick([1, 16, 32, 64, 65, 130]));
  const [batch, count] = [draw.int(1, 3), draw.chance(0.15) ? 64 : draw.int(1, 4)];
  // Not more scores than a test has time for.
  const [queries, keys, each] = [rows(), rows(), size()].map((value, _, all) =>
    batch * count * all.reduce((a, b) => a * b) > 400_000 ? Math.ceil(value / 8) : value,
  ) as [number, number, number];
  const valueSize = size();
  const lie = (width: number): Lie => {
    const from = draw.int(0, 5);
    return draw.pick<Lie>(['apart', 'together', { from, width: from + width + draw.int(0, 5) }]);
  };
  return wholeAttention(`seed ${draw.seed}`, {
    batch,
    heads: count,
    queries,
    keys,
    size: each,
    valueSize,
    scale: draw.pick([1, 0.125, -0.5]),
    noNan: draw.chance(0.5),
    lies: [lie(count * each), lie(count * each), lie(count * valueSize), draw.pick(['apart', 'together'])],
    mask: draw.chance(0.5) ? x(draw.narrowed([batch, count, queries, keys]), draw.int(1, 1000)) : undefined,
    seed: draw.int(1, 1000),
  });
}

/** A mask that hides all keys from row 1, and the last keys from all rows. */
const minusInfinities = (queries: number, keys: number, from: number): CaseInput =>
  given(
    tensor(
      'FP32',
      [1, 1, queries, keys],
      Array.from({ length: queries * keys }, (_, at) => {
        const [row, key] = [Math.floor(at / keys), at % keys];
        return row === 1 || key >= from ? -Infinity : key / 8;
      }),
    ),
  );

const wholes: readonly Case[] = [
  wholeAttention('a tile', { queries: 16, keys: 16, size: 8 }),
  wholeAttention('one of all', { heads: 1, queries: 1, keys: 1, size: 1 }),
  wholeAttention('tiles of rows and keys', { batch: 2, queries: 70, keys: 150, size: 16, scale: 0.25 }),
  wholeAttention('rows of 64 to a block', { heads: 64, queries: 66, keys: 40, size: 4 }),
  wholeAttention('rows of 32 to a block', { heads: 64, queries: 40, keys: 70, size: 4 }),
  wholeAttention('heads of 64, values of 72', { queries: 20, keys: 40, size: 64, valueSize: 72, scale: 0.125 }),
  wholeAttention('heads of 256', { heads: 1, queries: 17, keys: 33, size: 256, scale: 0.05 }),
  wholeAttention('odd heads', { batch: 2, heads: 3, queries: 9, keys: 21, size: 5, valueSize: 7 }),
  wholeAttention('apart', { batch: 2, queries: 9, keys: 21, size: 8, lies: ['apart', 'apart', 'apart', 'apart'] }),
  wholeAttention('parts of one projection', {
    batch: 2,
    queries: 5,
    keys: 5,
    size: 4,
    lies: [{ from: 0, width: 24 }, { from: 8, width: 24 }, { from: 16, width: 24 }, 'together'],
  }),
  wholeAttention('parts that begin anywhere', {
    queries: 5,
    keys: 18,
    size: 4,
    lies: [{ from: 1, width: 12 }, { from: 3, width: 11 }, { from: 2, width: 10 }, 'apart'],
  }),
  ...[[1, 1, 1, 90], [2, 1, 20, 90], [2, 3, 20, 90], [20, 90], [1]].map((shape) =>
    wholeAttention(`mask [${shape.join(',')}]`, {
      batch: 2,
      heads: 3,
      queries: 20,
      keys: 90,
      size: 8,
      scale: 0.5,
      mask: x(shape, 6),
    }),
  ),
  wholeAttention('nothing seen', { queries: 4, keys: 80, size: 8, mask: minusInfinities(4, 80, 70) }),
  wholeAttention('first keys hidden', {
    queries: 4,
    keys: 80,
    size: 8,
    mask: given(
      tensor(
        'FP32',
        [80],
        Array.from({ length: 80 }, (_, key) => (key < 66 ? -Infinity : 1)),
      ),
    ),
  }),
  wholeAttention('zeros where nothing is seen', {
    queries: 4,
    keys: 80,
    size: 8,
    noNan: true,
    mask: minusInfinities(4, 80, 20),
  }),
  wholeAttention('zeros for NaN', {
    queries: 4,
    keys: 40,
    size: 8,
    noNan: true,
    mask: given(
      tensor(
        'FP32',
        [4, 40],
        Array.from({ length: 160 }, (_, at) => (at === 50 ? NaN : at === 90 ? Infinity : 0)),
      ),
    ),
  }),
  wholeAttention('FP16', { queries: 16, keys: 40, size: 8, datatype: 'FP16' }),
];

export const attentionCases: readonly Case[] = [
  ...wholes,
  ...onnx,
  ...rotations,
  ...scatters,
  ...multiHeads,
  ...selves,
  ...groupQueries,
];
