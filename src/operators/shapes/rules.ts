/**
 * Shapes of operators' results, from the ONNX operator specification (opset 1 to 26). If a rule gives no answer, a
 * caller takes the shape from the file or leaves it open. The records of the families say which operator has which rule.
 */
import { axisFromFront, type AttributeReader } from '../../onnx/index.ts';
import { elementCount } from '../../tensor/index.ts';
import { broadcast, type Dims } from './dims.ts';
import { isOpen, one, reshaped, type Rule } from './rule.ts';

export const sameAsFirst: Rule = ({ inputs: [first], outputCount }) =>
  first === undefined ? undefined : Array.from({ length: outputCount }, () => ({ dims: first.dims }));

export const elementWise: Rule = ({ inputs }) => {
  const known = inputs.filter((input) => input !== undefined);
  return known.length < inputs.length ? undefined : one(broadcast(known.map(({ dims }) => dims)));
};

/** An element of a broadcast constant. */
const pick = (ints: readonly number[], index: number): number => (ints.length === 1 ? ints[0]! : (ints[index] ?? 0));

/** An element-wise operator whose small whole-number results are tracked, since shapes are computed with it. */
export const arithmetic =
  (compute: (a: number, b: number) => number): Rule =>
  (input) => {
    const [result] = elementWise(input) ?? [];
    const [a, b] = input.inputs;
    if (result === undefined || a?.ints === undefined || b?.ints === undefined) return result && [result];
    const count = elementCount(result.dims);
    if ([a, b].some(({ ints }) => ints!.length !== 1 && ints!.length !== count)) return [result];
    const ints = Array.from({ length: count }, (_, index) => compute(pick(a.ints!, index), pick(b.ints!, index)));
    return [{ dims: result.dims, ints }];
  };

export const matMul: Rule = ({ inputs: [a, b], attribute }) => {
  if (a === undefined || b === undefined || a.dims.length === 0 || b.dims.length === 0) return undefined;
  // ONNX Runtime's FusedMatMul: transposed matrices, and transposed batches.
  if (attribute('transBatchA', 0) === 1 || attribute('transBatchB', 0) === 1) return undefined;
  const turned = (dims: Dims, name: string): Dims =>
    attribute(name, 0) === 1 && dims.length > 1 ? [...dims.slice(0, -2), dims.at(-1)!, dims.at(-2)!] : dims;
  const left = turned(a.dims.length === 1 ? [1, ...a.dims] : a.dims, 'transA');
  const right = turned(b.dims.length === 1 ? [...b.dims, 1] : b.dims, 'transB');
  const batch = broadcast([left.slice(0, -2), right.slice(0, -2)]);
  if (batch === undefined) return undefined;
  // For products over no elements, ONNX Runtime gives the result the batch of the left factor alone.
  if (a.dims.length >= b.dims.length && elementCount(right) === 0 && batch.join() !== left.slice(0, -2).join())
    return undefined;
  const dims = [...batch];
  if (a.dims.length > 1) dims.push(left.at(-2)!);
  if (b.dims.length > 1) dims.push(right.at(-1)!);
  return one(dims);
};

export const gemm: Rule = ({ inputs: [a, b], attribute }) => {
  if (a?.dims.length !== 2 || b?.dims.length !== 2) return undefined;
  const rows = a.dims[attribute('transA', 0) === 1 ? 1 : 0]!;
  const columns = b.dims[attribute('transB', 0) === 1 ? 0 : 1]!;
  return one([rows, columns]);
};

export const shapeOf: Rule = ({ inputs: [data], attribute }) => {
  if (data === undefined) return undefined;
  const rank = data.dims.length;
  const start = attribute('start', 0);
  const ints = data.dims.slice(start, attribute('end', rank));
  return [{ dims: [ints.length], ints }];
};

export const range: Rule = ({ inputs: [start, limit, delta] }) => {
  const [from, to, step] = [start?.ints?.[0], limit?.ints?.[0], delta?.ints?.[0]];
  if (from === undefined || to === undefined || step === undefined || step === 0) return undefined;
  const count = Math.max(0, Math.ceil((to - from) / step));
  return [{ dims: [count], ints: Array.from({ length: count }, (_, index) => from + index * step) }];
};

export const constantOfShape: Rule = ({ inputs: [shape] }) => (shape?.ints === undefined ? undefined : one(shape.ints));

export const where: Rule = (input) => {
  const [result] = elementWise(input) ?? [];
  const [condition, a, b] = input.inputs;
  if (result === undefined || !condition?.ints || !a?.ints || !b?.ints) return result && [result];
  const ints = Array.from({ length: elementCount(result.dims) }, (_, index) =>
    pick(condition.ints!, index) === 0 ? pick(b.ints!, index) : pick(a.ints!, index),
  );
  return [{ dims: result.dims, ints }];
};

const reducedTo = (dims: Dims, attribute: AttributeReader, isGone: (axis: number) => boolean): ReturnType<Rule> =>
  attribute('keepdims', 1) === 1
    ? one(dims.map((size, axis) => (isGone(axis) ? 1 : size)))
    : one(dims.filter((_, axis) => !isGone(axis)));

export const reduce: Rule = (input) => {
  const {
    inputs: [data, given],
    attribute,
  } = input;
  // Reductions of no elements differ between ONNX Runtime's kernels, and from its own inference.
  if (data === undefined || isOpen(input, 1) || elementCount(data.dims) === 0) return undefined;
  const axes = (given?.ints ?? attribute('axes', undefined))?.map((axis) => axisFromFront(axis, data.dims.length));
  const all = axes === undefined || axes.length === 0;
  if (all && attribute('noop_with_empty_axes', 0) === 1) return one(data.dims);
  return reducedTo(data.dims, attribute, (axis) => all || axes.includes(axis));
};

export const argReduce: Rule = ({ inputs: [data], attribute }) => {
  if (data === undefined) return undefined;
  const axis = axisFromFront(attribute('axis', 0), data.dims.length);
  return reducedTo(data.dims, attribute, (place) => place === axis);
};

/** [sequence, batch, input] to Y [sequence, directions, batch, hidden] and the last states. */
export const recurrent: Rule = ({ inputs: [x, , recurrence], attribute, outputCount }) => {
  if (x?.dims.length !== 3 || recurrence === undefined) return undefined;
  const hidden = attribute('hidden_size', recurrence.dims[2] ?? 0);
  const directions = recurrence.dims[0] ?? 1;
  const batchFirst = attribute('layout', 0) === 1;
  const [sequence, batch] = batchFirst ? [x.dims[1]!, x.dims[0]!] : [x.dims[0]!, x.dims[1]!];
  const all = batchFirst ? [batch, sequence, directions, hidden] : [sequence, directions, batch, hidden];
  const last = batchFirst ? [batch, directions, hidden] : [directions, batch, hidden];
  return [{ dims: all }, { dims: last }, { dims: last }].slice(0, outputCount);
};

export const resize: Rule = ({ inputs: [data, , , sizes], attribute }) => {
  if (data === undefined || sizes?.ints === undefined) return undefined;
  const { dims } = data;
  const named =
    attribute('axes', undefined)?.map((axis) => axisFromFront(axis, dims.length)) ?? dims.map((_, axis) => axis);
  const policy = attribute('keep_aspect_ratio_policy', 'stretch');
  if (sizes.ints.length !== named.length || (policy !== 'stretch' && dims.includes(0))) return undefined;
  // In 32 bits like ONNX Runtime: halves are rounded up.
  const scales = named.map((axis, place) => Math.fround(sizes.ints![place]! / dims[axis]!));
  const scale = policy === 'not_larger' ? Math.min(...scales) : Math.max(...scales);
  const resized = named.map((axis, place) =>
    policy === 'stretch' ? sizes.ints![place]! : Math.round(Math.fround(scale * dims[axis]!)),
  );
  return one(dims.map((size, axis) => resized[named.indexOf(axis)] ?? size));
};

export const topK: Rule = ({ inputs: [data, count], attribute }) => {
  const k = count?.ints?.[0] ?? attribute('k', -1);
  if (data === undefined || k < 0) return undefined;
  const dims = data.dims.with(axisFromFront(attribute('axis', -1), data.dims.length), k);
  return [{ dims }, { dims }];
};

/** The result is as wide as all query heads; the key and value caches grow to the longest sequence. */
export const groupQueryAttention: Rule = ({ inputs: [query, key, , past, , , total], attribute, outputCount }) => {
  const [longest] = total?.ints ?? [];
  const [heads, keyHeads] = [attribute('num_heads', 0), attribute('kv_num_heads', 0)];
  const [batch, rows, width] = query?.dims ?? [];
  if (batch === undefined || rows === undefined || width === undefined || longest === undefined) return undefined;
  const size = width / (key === undefined ? heads + 2 * keyHeads : heads);
  const present = { dims: [batch, keyHeads, Math.max(longest, past?.dims[2] ?? 0), size] };
  return [{ dims: [batch, rows, heads * size] }, present, present].slice(0, outputCount);
};

/** The result, and a mean or a deviation for each row. */
export const rowNormalization: Rule = ({ inputs: [x], attribute, outputCount }) => {
  if (x === undefined) return undefined;
  const first = axisFromFront(attribute('axis', -1), x.dims.length);
  const rows = { dims: x.dims.map((size, axis) => (axis < first ? size : 1)) };
  return [{ dims: x.dims }, rows, rows].slice(0, outputCount);
};

export const skipNormalization: Rule = ({ inputs: [x], outputCount }) =>
  x && Array.from({ length: outputCount }, (_, place) => (place === 0 || place === 3 ? { dims: x.dims } : undefined));

/** A loss for each label, or one in total; and the logarithms of the probabilities. */
export const loss: Rule = ({ inputs: [scores, labels], attribute, outputCount }) => {
  if (scores === undefined || labels === undefined) return undefined;
  const dims = attribute('reduction', 'mean') === 'none' ? labels.dims : [];
  return [{ dims }, { dims: scores.dims }].slice(0, outputCount);
};

export const window: Rule = ({ inputs: [size] }) => one(size?.ints?.slice(0, 1));

export const melWeightMatrix: Rule = ({ inputs: [bins, length] }) => {
  const [columns, frequencies] = [bins?.ints?.[0], length?.ints?.[0]];
  return columns === undefined || frequencies === undefined
    ? undefined
    : one([Math.floor(frequencies / 2) + 1, columns]);
};

export const size: Rule = ({ inputs: [x] }) => x && [{ dims: [], ints: [elementCount(x.dims)] }];

/** The same elements in the same places. */
export const same: Rule = ({ inputs: [x] }) => x && reshaped(x, x.dims);

/** As many results as there are indices. */
export const likeIndices: Rule = ({ inputs: [, indices] }) => indices && one(indices.dims);
