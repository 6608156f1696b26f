/** Cases of attention, of what fusion makes of it, and of the rotation of its operands. */
/* oxlint-disable oxc/no-map-spread -- a table is made once, and is read best as nested lists */
import type { DataType } from '../../../src/tensor/index.ts';
import { filled, given, known, operatorCase, tensor, type Case, type CaseInput, type CaseOptions } from './case.ts';
import type { Attributes, Draw, Drawn, FamilyCases } from './draw.ts';

const x = (shape: readonly number[], seed = 1, datatype: DataType = 'FP32'): CaseInput =>
  given(filled(datatype, shape, seed));
const ints = (datatype: DataType, shape: readonly number[], ...values: number[]): CaseInput =>
  given(tensor(datatype, shape, values));

const attended = (name: string, inputs: readonly (CaseInput | undefined)[], options: CaseOptions = {}): Case =>
  operatorCase('Attention', name, inputs, { opset: 23, ...options });

const apart = [x([2, 3, 4, 8]), x([2, 3, 6, 8], 2), x([2, 3, 6, 8], 3)] as const;
const together = [x([2, 4, 24]), x([2, 6, 24], 2), x([2, 6, 24], 3)] as const;
const past = [x([2, 3, 5, 8], 4), x([2, 3, 5, 8], 5)] as const;
const three: readonly DataType[] = ['FP32', 'FP32', 'FP32'];
/** The fourth output is the scores. */
const scores: readonly (DataType | undefined)[] = ['FP32', undefined, undefined, 'FP32'];
/** The first row sees no key. */
const blind = ints('BOOL', [4, 6], ...Array.from({ length: 24 }, (_, place) => Number(place >= 6)));
const lengths = [undefined, undefined, undefined, ints('INT64', [2], 4, 6)] as const;

const onnx: readonly Case[] = [
  ...[
    [1, 3, 4, 6],
    [3, 4, 6],
  ].flatMap((shape) => [
    attended(`mask [${shape.join(',')}]`, [...apart, x(shape, 6)]),
    // The last keys are hidden from all rows.
    attended(`truth mask [${shape.join(',')}]`, [
      ...apart,
      ints('BOOL', shape, ...Array.from({ length: 72 }, (_, place) => Number(place % 6 < 4))),
    ]),
  ]),
  ...[0, 1, 2, 3].map((mode) =>
    attended(`scores ${mode}, mask, softcap, past`, [...apart, x([4, 11], 6), ...past], {
      attributes: { qk_matmul_output_mode: mode, softcap: { float: 2 } },
      outputs: [...three, 'FP32'],
    }),
  ),
  // Products on tensor cores, and a softmax between them.
  attended(
    'FP16, many rows',
    [1, 2, 3].map((seed) => x([1, 2, 20, 8], seed, 'FP16')),
  ),
  attended('truth mask, nothing seen', [...apart, blind]),
  attended('truth mask, nothing seen, scores 2', [...apart, blind], {
    attributes: { qk_matmul_output_mode: 2 },
    outputs: scores,
  }),
  attended('truth mask, nothing seen, scores 3, causal', [...apart, blind], {
    attributes: { qk_matmul_output_mode: 3, is_causal: 1 },
    outputs: scores,
  }),
  attended('lengths, causal', [x([2, 3, 2, 8]), apart[1], apart[2], ...lengths], {
    attributes: { is_causal: 1 },
    opset: 24,
  }),
  attended('lengths, scores 2', [...apart, ...lengths], {
    attributes: { qk_matmul_output_mode: 2 },
    outputs: scores,
    opset: 24,
  }),
  // Queries see the key at their own place and its neighbours. ONNX Runtime does not know these attributes yet.
  operatorCase('Attention', 'a window', apart, {
    attributes: { left_window_size: 1, right_window_size: 1 },
    opset: 23,
    reference: (graph, inputs) => {
      const seen = Array.from({ length: 24 }, (_, place) => Number(Math.abs((place % 6) - Math.floor(place / 6)) <= 1));
      return [graph.node('Attention', [...inputs, graph.constant({ tensor: tensor('BOOL', [4, 6], seen) })])];
    },
  }),
  attended('24, causal, past', [...apart, undefined, ...past], {
    attributes: { is_causal: 1 },
    outputs: three,
    opset: 24,
  }),
];

const rotations: readonly Case[] = [0, 1].flatMap((interleaved) => [
  operatorCase('RotaryEmbedding', '3D, a part, without positions', [x([2, 3, 32]), x([2, 3, 2], 2), x([2, 3, 2], 3)], {
    attributes: { interleaved, rotary_embedding_dim: 4, num_heads: 4 },
    opset: 23,
  }),
  operatorCase(
    'com.microsoft.RotaryEmbedding',
    '4D, one position',
    [x([2, 4, 3, 8]), ints('INT64', [1], 2), x([6, 4], 2), x([6, 4], 3)],
    { attributes: { interleaved } },
  ),
]);

const multiHeads: readonly Case[] = (
  [
    ['added to all', [...together, undefined, undefined, x([1, 1, 4, 6], 6)], ['FP32']],
    ['past, bias', [...together, x([72], 4), undefined, undefined, ...past], three],
    ['keys and values given back', together, three],
    ['keys apart', [together[0], x([2, 3, 6, 8], 2), x([2, 3, 6, 8], 3)], ['FP32']],
  ] as const
).map(([name, inputs, outputs]) =>
  operatorCase('com.microsoft.MultiHeadAttention', name, inputs, { attributes: { num_heads: 3 }, outputs }),
);

const input = [x([2, 5, 10]), x([10, 36], 2), x([36], 3)] as const;
const byQuery = Array.from({ length: 50 }, (_, place) => Number(place % 5 === 0 || place % 3 > 0));
const selves: readonly Case[] = [
  ...(
    [
      ['ends and starts', [...input, ints('INT32', [4], 4, 5, 1, 0)], {}],
      ['mask by query', [...input, ints('INT32', [2, 5, 5], ...byQuery)], {}],
      ['added', [...input, undefined, undefined, x([2, 3, 5, 5], 6)], {}],
      [
        'a mask that lowers',
        [...input, ints('INT32', [2, 5], 1, 1, 0, 1, 0, 1, 1, 1, 1, 0)],
        { mask_filter_value: { float: -2 } },
      ],
      ['widths', [x([2, 5, 10]), x([10, 42], 2), x([42], 3)], { qkv_hidden_sizes: [12, 12, 18] }],
    ] as const
  ).map(([name, inputs, attributes]) =>
    operatorCase('com.microsoft.Attention', name, inputs, { attributes: { num_heads: 3, ...attributes } }),
  ),
  operatorCase(
    'com.microsoft.QAttention',
    'lengths',
    [
      x([2, 5, 10], 1, 'UINT8'),
      x([10, 36], 2, 'INT8'),
      x([36], 3),
      known(tensor('FP32', [], [0.02])),
      known(tensor('FP32', [], [0.01])),
      ints('INT32', [2], 3, 5),
      known(tensor('UINT8', [], [40])),
      known(tensor('INT8', [], [3])),
    ],
    { attributes: { num_heads: 3 }, outputs: ['FP32'] },
  ),
];

const total = [ints('INT32', [2], 4, 4), known(tensor('INT32', [], [5]))] as const;
const groupQueries: readonly Case[] = (
  [
    ['without a past', [x([2, 5, 32]), x([2, 5, 16], 2), x([2, 5, 16], 3), undefined, undefined, ...total], {}],
    ['packed, without a past', [x([2, 5, 64]), undefined, undefined, undefined, undefined, ...total], {}],
    [
      'packed and turned',
      [
        x([2, 5, 128]),
        undefined,
        undefined,
        x([2, 2, 0, 16]),
        x([2, 2, 0, 16]),
        ...total,
        x([12, 8], 8),
        x([12, 8], 9),
      ],
      { do_rotary: 1 },
    ],
  ] as const
).map(([name, inputs, attributes]) =>
  operatorCase('com.microsoft.GroupQueryAttention', name, inputs, {
    attributes: { num_heads: 4, kv_num_heads: 2, ...attributes },
    outputs: three,
  }),
);

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
  return operatorCase('turntable.Attention', name, mask === undefined ? inputs : [...inputs, mask], {
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
function drawnAttention(draw: Draw): Case {
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
  wholeAttention('tiles of rows and keys', { batch: 2, queries: 70, keys: 150, size: 16, scale: 0.25 }),
  wholeAttention('rows of 64 to a block', { heads: 64, queries: 66, keys: 40, size: 4 }),
  wholeAttention('rows of 32 to a block', { heads: 64, queries: 40, keys: 70, size: 4 }),
  wholeAttention('heads of 64, values of 72', { queries: 20, keys: 40, size: 64, valueSize: 72, scale: 0.125 }),
  wholeAttention('heads of 256', { heads: 1, queries: 17, keys: 33, size: 256, scale: 0.05 }),
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

interface HeadProducts {
  readonly batch: number;
  readonly heads: number;
  readonly queries: number;
  readonly keys: number;
  readonly size: number;
  readonly alpha?: number;
}

/**
 * `turntable.HeadProduct`: scores of heads inside projections' results, [batch, rows, heads x size], or the values that
 * they weigh, put back among such heads.
 */
function headProduct(
  kind: 'scores' | 'contexts',
  name: string,
  { batch, heads, queries, keys, size, alpha = 1 }: HeadProducts,
): Case {
  const width = heads * size;
  const inside = (rows: number): number[] => [0, width, size, rows * width];
  const between = [0, keys, queries * keys, heads * queries * keys];
  const isScores = kind === 'scores';
  const [m, n, k] = isScores ? [queries, keys, size] : [queries, size, keys];
  const first = isScores ? [batch, queries, width] : [batch, heads, queries, keys];
  return operatorCase('turntable.HeadProduct', `${kind}, ${name}`, [x(first), x([batch, keys, width], 2)], {
    attributes: {
      m,
      n,
      k,
      heads,
      batch,
      transB: Number(isScores),
      alpha: { float: alpha },
      a: isScores ? inside(queries) : between,
      b: inside(keys),
      d: isScores ? between : inside(queries),
    },
    reference: (graph, [a, b]) => {
      const ints = (...values: number[]): string => graph.constant({ ints: values });
      const apartOf = (value: string, rows: number, perm: readonly number[]): string =>
        graph.node('Transpose', [graph.node('Reshape', [value, ints(batch, rows, heads, size)])], { perm });
      const left = isScores ? apartOf(a!, queries, [0, 2, 1, 3]) : a!;
      const product = graph.node('MatMul', [left, apartOf(b!, keys, isScores ? [0, 2, 3, 1] : [0, 2, 1, 3])]);
      const scaled = graph.node('Mul', [product, graph.constant({ floats: alpha })]);
      if (isScores) return [scaled];
      return [
        graph.node('Reshape', [graph.node('Transpose', [scaled], { perm: [0, 2, 1, 3] }), ints(batch, queries, width)]),
      ];
    },
  });
}

const drawnHeads: Drawn = (draw) =>
  headProduct(draw.pick(['scores', 'contexts']), `seed ${draw.seed}`, {
    batch: draw.int(1, 3),
    heads: draw.int(1, 4),
    queries: draw.int(1, 9),
    keys: draw.int(1, 9),
    size: draw.int(1, 9),
    alpha: draw.pick([1, 0.5, -2]),
  });

const float = (value: number): { readonly float: number } => ({ float: value });

const onnxAttention: Drawn = (draw) => {
  const type = draw.pick(['FP32', 'FP32', 'FP16'] as const);
  const [batch, keyHeads, group] = [draw.int(1, 3), draw.int(1, 3), draw.pick([1, 1, 2, 3])];
  const heads = keyHeads * group;
  const [queries, keys] = [draw.int(1, 5), draw.int(1, 6)];
  const size = draw.int(1, 9);
  const valueSize = draw.chance(0.7) ? size : draw.int(1, 9);
  const past = draw.chance(0.3) ? draw.int(1, 4) : 0;
  const apart = draw.chance(0.5);
  const shape = (own: number, rows: number, width: number): number[] =>
    apart ? [batch, own, rows, width] : [batch, rows, own * width];
  const total = past + keys;
  const masks = [
    [queries, total],
    [1, 1, queries, total],
    [batch, 1, queries, total],
    [batch, heads, queries, total],
  ];
  const kind = draw.pick(['none', 'none', 'added', 'truth'] as const);
  const mask = kind === 'none' ? undefined : draw.x(kind === 'truth' ? 'BOOL' : type, draw.pick(masks));
  const opset = draw.pick([23, 23, 24]);
  const lengths = opset === 24 && past === 0 && draw.chance(0.3);
  const pasts =
    past === 0
      ? [undefined, undefined]
      : [draw.x(type, [batch, keyHeads, past, size]), draw.x(type, [batch, keyHeads, past, valueSize])];
  const captured = draw.chance(0.25);
  const outputs = [true, past > 0, past > 0, captured];
  return draw.case(
    'Attention',
    [
      draw.x(type, shape(heads, queries, size)),
      draw.x(type, shape(keyHeads, keys, size)),
      draw.x(type, shape(keyHeads, keys, valueSize)),
      mask,
      ...pasts,
      ...(lengths ? [draw.values('INT64', [batch], draw.list(batch, 1, keys), false)] : []),
    ],
    {
      attributes: {
        ...(apart ? {} : { q_num_heads: heads, kv_num_heads: keyHeads }),
        ...draw.some({ is_causal: 1, softcap: float(draw.pick([0, 2, 5])), scale: float(0.37) }, 0.3),
        ...(captured ? { qk_matmul_output_mode: draw.int(0, 3) } : {}),
      },
      opset,
      outputs: outputs.slice(0, outputs.lastIndexOf(true) + 1),
    },
  );
};

const rotary =
  (operator: string): Drawn =>
  (draw) => {
    const type = draw.pick(['FP32', 'FP32', 'FP16'] as const);
    const [batch, heads, rows, half] = [draw.int(1, 3), draw.int(1, 3), draw.int(1, 5), draw.int(1, 4)];
    const rest = draw.chance(0.3) ? 2 * draw.int(1, 3) : 0;
    const size = 2 * half + rest;
    const apart = draw.chance(0.5);
    const own = operator === 'RotaryEmbedding';
    const input = draw.x(type, apart ? [batch, heads, rows, size] : [batch, rows, heads * size]);
    const table = (shape: readonly number[]): CaseInput => draw.x(type, shape, 1);
    const named = !own || draw.chance(0.6);
    const ids = draw.values('INT64', [batch, rows], draw.list(batch * rows, 0, 6), draw.chance(0.3));
    const tables = named
      ? [table([7, half]), table([7, half])]
      : [table([batch, rows, half]), table([batch, rows, half])];
    return draw.case(operator, own ? [input, ...tables, ...(named ? [ids] : [])] : [input, ids, ...tables], {
      attributes: {
        ...draw.some({ interleaved: 1 }),
        ...(apart && (own || rest === 0) ? {} : { num_heads: heads }),
        ...(rest > 0 ? { rotary_embedding_dim: 2 * half } : {}),
      },
      opset: own ? 23 : 17,
    });
  };

const multiHead: Drawn = (draw) => {
  const [batch, heads, queries, keys] = [draw.int(1, 2), draw.int(1, 3), draw.int(1, 5), draw.int(1, 5)];
  const [size, valueSize] = [draw.int(1, 8), draw.int(1, 8)];
  const past = draw.chance(0.3) ? draw.int(1, 4) : 0;
  const own = past > 0 ? size : valueSize;
  const f = (...shape: number[]): CaseInput => draw.x('FP32', shape);
  const total = past + keys;
  const before: Attributes = past === 0 && queries === keys ? draw.some({ unidirectional: 1 }, 0.3) : {};
  const mask = draw.pick([undefined, undefined, [batch], [batch, total]]);
  const most = mask?.length === 1 ? total : 1;
  return draw.case(
    'com.microsoft.MultiHeadAttention',
    [
      f(batch, queries, heads * size),
      f(batch, keys, heads * size),
      f(batch, keys, heads * own),
      draw.chance(0.4) ? f(heads * (2 * size + own)) : undefined,
      mask && past === 0
        ? draw.values(
            'INT32',
            mask,
            draw.list(
              mask.reduce((a, b) => a * b, 1),
              1,
              most,
            ),
            false,
          )
        : undefined,
      draw.chance(0.4) ? f(draw.pick([1, batch]), draw.pick([1, heads]), queries, total) : undefined,
      ...(past > 0 ? [f(batch, heads, past, size), f(batch, heads, past, size)] : []),
    ],
    {
      attributes: { num_heads: heads, ...before, ...draw.some({ scale: float(0.3) }, 0.3) },
      outputs: past > 0 ? 3 : 1,
    },
  );
};

const selfAttention: Drawn = (draw) => {
  const [batch, heads, rows, size, input] = [
    draw.int(1, 2),
    draw.int(1, 3),
    draw.int(1, 5),
    draw.int(1, 6),
    draw.int(1, 9),
  ];
  const past = draw.chance(0.3) ? draw.int(1, 4) : 0;
  const width = heads * size;
  const mask = draw.pick([undefined, undefined, [batch], [batch, rows + past]]);
  const most = mask?.length === 1 ? rows : 1;
  return draw.case(
    'com.microsoft.Attention',
    [
      draw.x('FP32', [batch, rows, input]),
      draw.w('FP32', [input, 3 * width]),
      draw.w('FP32', [3 * width]),
      mask
        ? draw.values(
            'INT32',
            mask,
            draw.list(
              mask.reduce((a, b) => a * b, 1),
              1,
              most,
            ),
            false,
          )
        : undefined,
      ...(past > 0 ? [draw.x('FP32', [2, batch, heads, past, size])] : []),
    ],
    { attributes: { num_heads: heads, ...draw.some({ unidirectional: 1 }, 0.3) }, outputs: past > 0 ? 2 : 1 },
  );
};

const quantizedAttention: Drawn = (draw) => {
  const [batch, heads, rows, size, input] = [
    draw.int(1, 2),
    draw.int(1, 3),
    draw.int(1, 5),
    draw.int(1, 6),
    draw.int(1, 9),
  ];
  const width = 3 * heads * size;
  const weights = draw.pick(['INT8', 'UINT8'] as const);
  return draw.case(
    'com.microsoft.QAttention',
    [
      draw.x('UINT8', [batch, rows, input]),
      draw.w(weights, [input, width]),
      draw.w('FP32', [width]),
      draw.values('FP32', [], [0.02]),
      draw.values('FP32', [], [0.01]),
      draw.chance(0.4) ? draw.values('INT32', [batch], draw.list(batch, 1, rows), false) : undefined,
      draw.values('UINT8', [], [draw.int(0, 90)]),
      draw.values(weights, [], [draw.int(0, 9)]),
    ],
    { attributes: { num_heads: heads, ...draw.some({ unidirectional: 1 }, 0.3) } },
  );
};

const groupQuery: Drawn = (draw) => {
  const [batch, keyHeads, group, size] = [draw.int(1, 3), draw.int(1, 3), draw.int(1, 3), 16];
  const heads = keyHeads * group;
  const prompt = draw.chance(0.5);
  const rows = prompt ? draw.int(2, 6) : 1;
  const past = prompt ? 0 : draw.int(2, 6);
  const total = past + rows;
  const packed = draw.chance(0.3);
  const type: DataType = draw.pick(['FP32', 'FP32', 'FP16'] as const);
  const f = (...shape: number[]): CaseInput => draw.x(type, shape);
  const lengths = draw.list(batch, prompt ? total - 1 : 1, total - 1);
  lengths[0] = total - 1;
  const turns = draw.chance(0.5);
  return draw.case(
    'com.microsoft.GroupQueryAttention',
    [
      f(batch, rows, (packed ? heads + 2 * keyHeads : heads) * size),
      packed ? undefined : f(batch, rows, keyHeads * size),
      packed ? undefined : f(batch, rows, keyHeads * size),
      f(batch, keyHeads, past, size),
      f(batch, keyHeads, past, size),
      draw.values('INT32', [batch], lengths, false),
      draw.values('INT32', [], [total]),
      ...(turns ? [f(16, size / 2), f(16, size / 2)] : []),
    ],
    {
      attributes: {
        num_heads: heads,
        kv_num_heads: keyHeads,
        ...(turns ? { do_rotary: 1, ...draw.some({ rotary_interleaved: 1 }) } : {}),
        ...draw.some({ scale: float(0.3), softcap: float(3), local_window_size: draw.int(1, 4) }, 0.3),
      },
      outputs: 3,
    },
  );
};

export const attention: FamilyCases = {
  named: [
    ...wholes,
    headProduct('scores', 'of two heads', { batch: 2, heads: 2, queries: 3, keys: 5, size: 4 }),
    headProduct('contexts', 'of two heads', { batch: 2, heads: 2, queries: 3, keys: 5, size: 4 }),
    ...onnx,
    ...rotations,
    ...multiHeads,
    ...selves,
    ...groupQueries,
  ],
  drawn: {
    Attention: onnxAttention,
    RotaryEmbedding: rotary('RotaryEmbedding'),
    'com.microsoft.RotaryEmbedding': rotary('com.microsoft.RotaryEmbedding'),
    'com.microsoft.MultiHeadAttention': multiHead,
    'com.microsoft.Attention': selfAttention,
    'com.microsoft.QAttention': quantizedAttention,
    'com.microsoft.GroupQueryAttention': groupQuery,
    'turntable.Attention': drawnAttention,
    'turntable.HeadProduct': drawnHeads,
  },
};
