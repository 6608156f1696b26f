/** Attention on heads inside the projections' results, as fusion makes it: the products alone, or the whole. */
import { Unsupported, requireDatatype } from '../../../operators/index.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import { emitProduct } from '../dense/product.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { type Heads, type HeadSizes, maskOf } from './heads.ts';
import { emitOneKernel, isOneKernel } from './one-kernel.ts';

/** The attribute: offset and strides of a value's heads, in elements. */
export type HeadStrides = readonly [offset: number, row: number, head: number, batch: number];

/** Reads the attribute. @throws Unsupported unless it has four numbers */
export function headsOf(emitter: Emitter, { buffer, storedType }: Value, name: string): Omit<Heads, keyof HeadSizes> {
  const [offset, row, head, batch] = emitter.attribute<readonly number[]>(name, []);
  if (offset === undefined || row === undefined || head === undefined || batch === undefined) {
    throw new Unsupported(`its attribute '${name}' does not have four numbers`);
  }
  const start = offset * elementBytes[storedType];
  return { buffer: emitter.part(buffer, start, buffer.bytes - start), storedType, batch, head, row };
}

const floats: readonly DataType[] = ['FP32', 'FP16', 'BF16'];

/**
 * `turntable.HeadProduct`: a product of attention, A x B = D, on heads inside the projections' results, [batch,
 * sequence, heads x size], without transposing them. The attributes `a`, `b` and `d` have four numbers each, in
 * elements: the offset of the first head, and the strides of rows, heads and batch items.
 */
function emitProductOfHeads(emitter: Emitter): void {
  const [a, b, d] = [emitter.required(0, floats), emitter.required(1, floats), emitter.output(0)];
  if (d === undefined) return;
  const size = (name: string): number => emitter.attribute<number>(name, 0);
  const placed = (value: Value, name: string) => {
    const { buffer, storedType, row, batch, head } = headsOf(emitter, value, name);
    return { buffer, storedType, leading: row, batchStrides: [batch, head] };
  };
  emitProduct(emitter, {
    rows: size('m'),
    columns: size('n'),
    depth: size('k'),
    batch: [size('batch'), size('heads')],
    a: placed(a, 'a'),
    b: { ...placed(b, 'b'), transposed: size('transB') === 1 },
    d: placed(d, 'd'),
    alpha: emitter.attribute<number>('alpha', 1),
  });
}

export const headProduct = { type: 'turntable.HeadProduct', emit: emitProductOfHeads } satisfies Kernels;

/**
 * `turntable.Attention`: Y = softmax(scale x Q x transposed K + mask) x V as one kernel.
 *
 * Inputs: Q, K, V; mask (optional), floats that broadcast to [batch, heads, queries, keys]. Attributes: these four
 * sizes, `size` and `valueSize` of a head, `scale`, `noNan` (1: a row of NaN becomes zeros), and offset and strides of
 * the heads of `q`, `k`, `v` and `y`, as in `turntable.HeadProduct`.
 */
function emitWhole(emitter: Emitter): void {
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
  const types = [query, key, value, output].map(({ storedType }) => storedType);
  if (!isOneKernel(emitter.settings, types, sizes)) {
    throw new Unsupported(`attention of ${types.join(', ')} by heads of ${sizes.size} is not one kernel`);
  }
  const mask = emitter.input(3);
  if (mask !== undefined) requireDatatype(mask, floats);
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

export const wholeAttention = { type: 'turntable.Attention', emit: emitWhole } satisfies Kernels;
