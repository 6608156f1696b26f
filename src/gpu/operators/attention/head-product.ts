/**
 * `turntable.HeadProduct`: a product of attention, A x B = D, on heads inside the projections' results, [batch,
 * sequence, heads x size], without transposing them. The attributes `a`, `b` and `d` have four numbers each, in
 * elements: the offset of the first head, and the strides of rows, heads and batch items.
 */
import { Unsupported } from '../../../operators/index.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import { emitProduct } from '../dense/product.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import type { Heads, HeadSizes } from './heads.ts';

/** The attribute: offset and strides of a value's heads, in elements. */
export type HeadStrides = readonly [offset: number, row: number, head: number, batch: number];

/** Reads the attribute. @throws Unsupported unless it has four numbers */
export function headsOf(emitter: Emitter, { buffer, kept }: Value, name: string): Omit<Heads, keyof HeadSizes> {
  const [offset, row, head, batch] = emitter.attribute<readonly number[]>(name, []);
  if (offset === undefined || row === undefined || head === undefined || batch === undefined) {
    throw new Unsupported(`its attribute '${name}' does not have four numbers`);
  }
  const start = offset * elementBytes[kept];
  return { buffer: emitter.part(buffer, start, buffer.bytes - start), kept, batch, head, row };
}

const floats: readonly DataType[] = ['FP32', 'FP16', 'BF16'];

function emit(emitter: Emitter): void {
  const [a, b, d] = [emitter.required(0, floats), emitter.required(1, floats), emitter.output(0)];
  if (d === undefined) return;
  const size = (name: string): number => emitter.attribute<number>(name, 0);
  const placed = (value: Value, name: string) => {
    const { buffer, kept, row, batch, head } = headsOf(emitter, value, name);
    return { buffer, kept, leading: row, batchStrides: [batch, head] };
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

export const headProduct = { type: 'turntable.HeadProduct', emit } satisfies Kernels;
