/** MatMulInteger: products of 8-bit integers minus their zero points. Sums are 32-bit integers, and exact. */
import { requireDatatype, Unsupported } from '../../../operators/index.ts';
import { elementCount, type DataType } from '../../../tensor/index.ts';
import { coordinates, weightedSum } from '../common/indexing.ts';
import { requiredOutput } from '../common/inputs.ts';
import { allElementsOf, parametersOf, written } from '../common/elements.ts';
import { broadcastShapes, factorOf, sidesOf } from '../dense/matmul.ts';
import { emitComputedProduct, type Factor } from '../dense/product.ts';
import type { KernelName, Kernels, Operator, Value } from '../types.ts';

export const bytes: readonly DataType[] = ['INT8', 'UINT8'];

/** C expression of a zero point, which has one element, one for each `index`, or these for each batch item. */
function zeroText(name: string, zero: Value | undefined, index: string, items: number, size: number): string {
  if (zero === undefined) return '0';
  requireDatatype(zero, [...bytes, 'INT16', 'UINT16', 'INT32']);
  if (zero.elements === 1) return `(int)${name}[0]`;
  if (zero.elements === size) return `(int)${name}[${index}]`;
  if (zero.elements !== items * size) throw new Unsupported(`${zero.elements} zero points for ${size} of ${items}`);
  return `(int)${name}[(plane) * ${size}u + ${index}]`;
}

const matmulInteger = <Type extends KernelName>(type: Type, types: readonly DataType[]): Operator<Type> => ({
  type,
  emit(emitter) {
    const [a, b] = [emitter.required(0, types), emitter.required(1, types)];
    const [zeroA, zeroB] = [emitter.input(2), emitter.input(3)];
    const output = requiredOutput(emitter);
    const { left, right } = sidesOf(a, b);
    const [rows, columns, depth] = [left.rows, right.columns, left.columns];
    const batch = broadcastShapes(left.batch, right.batch);
    const items = elementCount(batch);
    const plane = coordinates('(plane)', batch);
    const place = ({ batchStrides, leading }: Required<Factor>, row: string, column: string): string =>
      `(u64)(${weightedSum(plane, batchStrides)}) + (u64)${row} * ${leading} + ${column}`;
    const tensors = { a, b, zeroA, zeroB, d: written(output) };
    const of = allElementsOf(tensors);
    emitComputedProduct(emitter, {
      hint: 'integer_product',
      rows,
      columns,
      depth,
      planes: items,
      sum: 'int',
      parameters: parametersOf(tensors),
      a: `(int)${of.a.at(place(factorOf(left, batch), '(row)', '(depth)'))} - ${zeroText('zeroA', zeroA, '(row)', items, rows)}`,
      b: `(int)${of.b.at(place(factorOf(right, batch), '(depth)', '(column)'))} - ${zeroText('zeroB', zeroB, '(column)', items, columns)}`,
      aRowsTogether: true,
      bRowsTogether: true,
      finish: of.d.set(`(u64)(plane) * ${rows * columns} + (u64)(row) * ${columns} + (column)`, '(x)'),
    });
  },
});

export const quantizedProductOperators = [
  matmulInteger('MatMulInteger', bytes),
  matmulInteger('com.microsoft.MatMulInteger16', ['INT16']),
] as const satisfies readonly Kernels[];
