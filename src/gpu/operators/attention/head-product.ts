/**
 * `turntable.HeadProduct`: the products of attention on heads as they lie in the projections' results, [batch, sequence,
 * heads x size], so that nothing is transposed: within a head, rows are whole projections apart. A and B are read, D is
 * written, each by its own four numbers (elements): offset of the first, from row to row, from head to head, from batch item
 * to batch item. One strided batch of products for each batch item.
 */
import type { MatmulType } from '../../driver/types.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import { Unsupported, type Emitter, type Operator, type Value } from '../types.ts';

const types: Partial<Record<DataType, MatmulType>> = { FP32: 'f32', FP16: 'f16', BF16: 'bf16' };

/** Where the heads of a value lie, in elements. */
export type HeadStrides = readonly [offset: number, row: number, head: number, batch: number];

/** An attribute that says where heads lie. @throws Unsupported unless it has four numbers */
export function headStrides(emitter: Emitter, name: string): HeadStrides {
  const [offset, row, head, batch] = emitter.attribute<readonly number[]>(name, []);
  if (offset === undefined || row === undefined || head === undefined || batch === undefined) {
    throw new Unsupported(`its attribute '${name}' does not have four numbers`);
  }
  return [offset, row, head, batch];
}

function typeOf(value: Value): MatmulType {
  const type = types[value.kept];
  if (type === undefined) throw new Unsupported(`there are no products of ${value.kept}`);
  return type;
}

function emit(emitter: Emitter): void {
  const [a, b, d] = [emitter.required(0), emitter.required(1), emitter.output(0)];
  if (d === undefined) return;
  const size = (name: string): number => emitter.attribute<number>(name, 0);
  const [m, n, k, heads, batches] = [size('m'), size('n'), size('k'), size('heads'), size('batch')];
  const places = { a: headStrides(emitter, 'a'), b: headStrides(emitter, 'b'), d: headStrides(emitter, 'd') };
  const transposeB = size('transB') === 1;
  for (let batch = 0; batch < batches; batch++) {
    const part = (value: Value, [offset, row, head, perBatch]: HeadStrides, rows: number, columns: number) => {
      const bytes = elementBytes[value.kept];
      const first = offset + batch * perBatch;
      const extent = (heads - 1) * head + (rows - 1) * row + columns;
      return emitter.part(value.buffer, first * bytes, extent * bytes);
    };
    emitter.matmul(
      {
        m,
        n,
        k,
        batch: heads,
        transposeA: false,
        transposeB,
        lda: places.a[1],
        ldb: places.b[1],
        ldd: places.d[1],
        strideA: places.a[2],
        strideB: places.b[2],
        strideD: places.d[2],
        typeA: typeOf(a),
        typeB: typeOf(b),
        typeD: typeOf(d),
        alpha: emitter.attribute<number>('alpha', 1),
        beta: 0,
        epilogue: 'none',
      },
      {
        a: part(a, places.a, m, k),
        b: transposeB ? part(b, places.b, n, k) : part(b, places.b, k, n),
        d: part(d, places.d, m, n),
      },
    );
  }
}

export const headProduct: Operator = { type: 'turntable.HeadProduct', emit };
