/**
 * `turntable.Attention`, made by fusion: Y = softmax(scale x Q x transposed K + mask) x V as one kernel.
 *
 * Inputs: Q, K, V; mask (optional), floats that broadcast to [batch, heads, queries, keys]. Attributes: these four
 * sizes, `size` and `valueSize` of a head, `scale`, `noNan` (1: a row of NaN becomes zeros), and offset and strides of
 * the heads of `q`, `k`, `v` and `y`, as in `turntable.HeadProduct`.
 */
import { requireDatatype, Unsupported } from '../../../operators/index.ts';
import type { Emitter, Kernels } from '../types.ts';
import { headsOf } from './head-product.ts';
import { maskOf } from './heads.ts';
import { emitOneKernel, isOneKernel } from './one-kernel.ts';

function emit(emitter: Emitter): void {
  const [query, key, value] = [emitter.required(0), emitter.required(1), emitter.required(2)];
  const output = emitter.output(0);
  if (output === undefined) return;
  const number = (name: string): number => emitter.attribute<number>(name, 0);
  const sizes = {
    batch: number('batch'),
    heads: number('heads'),
    queries: number('queries'),
    keys: number('keys'),
    size: number('size'),
    valueSize: number('valueSize'),
  };
  const types = [query, key, value, output].map(({ kept }) => kept);
  if (!isOneKernel(emitter.settings, types, sizes)) {
    throw new Unsupported(`attention of ${types.join(', ')} by heads of ${sizes.size} is not one kernel`);
  }
  const mask = emitter.input(3);
  if (mask !== undefined) requireDatatype(mask, ['FP32', 'FP16', 'BF16']);
  const { batch, heads, queries, keys, size, valueSize } = sizes;
  const attention = {
    batch,
    q: { ...headsOf(emitter, query, 'q'), heads, rows: queries, size },
    k: { ...headsOf(emitter, key, 'k'), heads, rows: keys, size },
    v: { ...headsOf(emitter, value, 'v'), heads, rows: keys, size: valueSize },
    y: { ...headsOf(emitter, output, 'y'), heads, rows: queries, size: valueSize },
    scale: emitter.attribute<number>('scale', 1),
    changes: mask === undefined ? [] : [maskOf(mask, [batch, heads, queries, keys], 'hidden')],
  };
  emitOneKernel(emitter, attention, number('noNan') === 1 ? 'no-nan' : 'nan');
}

export const wholeAttention = { type: 'turntable.Attention', emit } satisfies Kernels;
