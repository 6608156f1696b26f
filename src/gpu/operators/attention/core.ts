/**
 * Attention over heads by strides: softmax(scale x Q x transposed K, changed by masks) x V, as one kernel, or as two
 * products with a softmax between them. All attention operators end here.
 */
import { floatLiteral } from '../../../operators/index.ts';
import { elementBytes, type DataType } from '../../../tensor/index.ts';
import { coordinates, stridesOf } from '../common/indexing.ts';
import { forEachElement, written, type Elements } from '../common/elements.ts';
import { emitProduct } from '../dense/product.ts';
import { emitSoftmaxRows } from '../normalization/softmax.ts';
import type { Emitter } from '../types.ts';
import { type Attention, type Heads, type Place, type ScoreChange } from './heads.ts';
import { emitOneKernel, isOneKernel, sizesOf } from './one-kernel.ts';

const shared = ({ batch: item, head }: Heads): number[] => [item, head, 0];

export function emitAttention(emitter: Emitter, attention: Attention): void {
  const { batch, q, k, v, y, scale, changes, scores } = attention;
  const { heads, queries, keys, size, valueSize } = sizesOf(attention);
  const keyHeads = k.heads;
  const types = [q, k, v, y].map(({ storedType }) => storedType);
  if (scores === undefined && isOneKernel(emitter.settings, types, sizesOf(attention))) {
    emitOneKernel(emitter, attention, 'zero');
    return;
  }
  const group = heads / keyHeads;
  const planes = [batch, keyHeads, group];
  const each = ({ batch: item, head }: Heads): number[] => [item, group * head, head];
  const scoreType: DataType = q.storedType === 'FP64' ? 'FP64' : 'FP32';
  const scoreCount = batch * heads * queries * keys;
  const raw = { buffer: emitter.scratch(scoreCount * elementBytes[scoreType]), storedType: scoreType };
  emitProduct(emitter, {
    rows: queries,
    columns: keys,
    depth: size,
    batch: planes,
    a: { ...q, leading: q.row, batchStrides: each(q) },
    b: { ...k, transposed: true, leading: k.row, batchStrides: shared(k) },
    d: raw,
    alpha: scale,
  });
  const changed = (x: string, row: string, column: string, count: number, hidden: string): string => {
    const [b = '0', h = '0', i = '0'] = coordinates(row, [batch, heads, queries]);
    const at: Place = { b: `(i64)(${b})`, h: `(i64)(${h})`, i: `(i64)(${i})`, j: `(i64)(${column})`, hidden };
    return changes.slice(0, count).reduce((score, change) => change.score(score, at), x);
  };
  const parameters = changes.flatMap((change) => change.parameters);
  const shares = { buffer: emitter.scratch(scoreCount * elementBytes[v.storedType]), storedType: v.storedType };
  emitSoftmaxRows(emitter, {
    hint: 'attention_softmax',
    input: raw,
    output: shares,
    outer: batch * heads * queries,
    columns: keys,
    inner: 1,
    element: changed('input[at]', '(row)', '(column)', changes.length, '(-F32_INFINITY)'),
    parameters,
    logarithm: false,
    zeroRows: true,
  });
  emitProduct(emitter, {
    rows: queries,
    columns: valueSize,
    depth: keys,
    batch: planes,
    a: {
      ...shares,
      leading: keys,
      batchStrides: stridesOf([batch, keyHeads, group]).map((step) => step * queries * keys),
    },
    b: { ...v, leading: v.row, batchStrides: shared(v) },
    d: { ...y, leading: y.row, batchStrides: each(y) },
  });
  if (scores === undefined) return;
  const count = scores.after === 'softmax' ? 0 : scores.after;
  // Hidden scores in the output are the lowest finite number, as in ONNX Runtime.
  const lowest = scores.value.datatype === 'FP16' ? '(-65504.0f)' : '(-F32_MAX)';
  const tensors = { input: scores.after === 'softmax' ? shares : raw, output: written(scores.value) };
  const body = (of: Record<keyof typeof tensors, Elements>): string => {
    const text = changed(of.input.at('i'), `(i / ${keys}u)`, `(i % ${keys}u)`, count, lowest);
    return of.output.set('i', `(${of.output.computed})(${text})`);
  };
  const others = changes.slice(0, count).flatMap((change) => change.parameters);
  forEachElement(emitter, 'attention_scores', scoreCount, tensors, body, { others });
}

/** softcap * tanh(x / softcap) */
export function softcapped(emitter: Emitter): ScoreChange[] {
  const softcap = emitter.attribute('softcap', 0);
  const text = floatLiteral(softcap);
  return softcap === 0 ? [] : [{ parameters: [], score: (x) => `(${text} * tanhf(${x} / ${text}))` }];
}
