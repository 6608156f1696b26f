/** Random attention cases: heads, sequences, masks and pasts that fit together. */
import type { DataType } from '../../../src/tensor/index.ts';
import type { CaseInput } from '../../gpu/conformance/case.ts';
import type { Attributes, Drawn } from './draw.ts';

const float = (value: number): { readonly float: number } => ({ float: value });

const attention: Drawn = (draw) => {
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

const tensorScatter: Drawn = (draw) => {
  const shape = draw.filledShape(3, 4, 4);
  const axis = draw.int(1, shape.length - 1);
  const length = shape[axis]! + draw.int(0, 3);
  const circular = draw.chance(0.5);
  const rows = shape[axis]!;
  const starts = draw.list(shape[0]!, 0, circular ? length - 1 : length - rows);
  const type = draw.pick(['FP32', 'FP16', 'INT64', 'UINT8', 'BOOL'] as const);
  return draw.case(
    'TensorScatter',
    [
      draw.x(type, shape.with(axis, length)),
      draw.x(type, shape),
      ...(draw.chance(0.8) ? [draw.values('INT64', [shape[0]!], starts, false)] : []),
    ],
    {
      attributes: { axis: draw.chance(0.5) ? axis : axis - shape.length, ...(circular ? { mode: 'circular' } : {}) },
      opset: 24,
    },
  );
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

export const attentions: Readonly<Record<string, Drawn>> = {
  Attention: attention,
  RotaryEmbedding: rotary('RotaryEmbedding'),
  'com.microsoft.RotaryEmbedding': rotary('com.microsoft.RotaryEmbedding'),
  TensorScatter: tensorScatter,
  'com.microsoft.MultiHeadAttention': multiHead,
  'com.microsoft.Attention': selfAttention,
  'com.microsoft.QAttention': quantizedAttention,
  'com.microsoft.GroupQueryAttention': groupQuery,
};
