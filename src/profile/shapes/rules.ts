/**
 * Shapes of operators' results, from the ONNX operator specification (opset 1 to 26). If a rule gives no answer, a
 * caller takes the shape from the file or leaves it open.
 */
import { byNames } from '../../tools/index.ts';
import { axisFromFront } from '../../onnx/index.ts';
import { elementCount } from '../../tensor/index.ts';
import { broadcast, type Dims } from './dims.ts';
import {
  gather,
  reshape,
  flatten,
  transpose,
  squeeze,
  unsqueeze,
  concat,
  split,
  slice,
  expand,
  tile,
  pad,
} from './movement-rules.ts';
import { isOpen, one, reshaped, type Rule } from './rule.ts';
import { conv, convTranspose, globalPool, pool } from './window-rules.ts';

const sameAsFirst: Rule = ({ inputs: [first], outputCount }) =>
  first === undefined ? undefined : Array.from({ length: outputCount }, () => ({ dims: first.dims }));

const elementWise: Rule = ({ inputs }) => {
  const known = inputs.filter((input) => input !== undefined);
  return known.length < inputs.length ? undefined : one(broadcast(known.map(({ dims }) => dims)));
};

/** An element of a broadcast constant. */
const pick = (ints: readonly number[], index: number): number => (ints.length === 1 ? ints[0]! : (ints[index] ?? 0));

/** An element-wise operator whose small whole-number results are tracked, since shapes are computed with it. */
const arithmetic =
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

const matMul: Rule = ({ inputs: [a, b], attribute }) => {
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

const gemm: Rule = ({ inputs: [a, b], attribute }) => {
  if (a?.dims.length !== 2 || b?.dims.length !== 2) return undefined;
  const rows = a.dims[attribute('transA', 0) === 1 ? 1 : 0]!;
  const columns = b.dims[attribute('transB', 0) === 1 ? 0 : 1]!;
  return one([rows, columns]);
};

const shapeOf: Rule = ({ inputs: [data], attribute }) => {
  if (data === undefined) return undefined;
  const rank = data.dims.length;
  const start = attribute('start', 0);
  const ints = data.dims.slice(start, attribute('end', rank));
  return [{ dims: [ints.length], ints }];
};

const range: Rule = ({ inputs: [start, limit, delta] }) => {
  const [from, to, step] = [start?.ints?.[0], limit?.ints?.[0], delta?.ints?.[0]];
  if (from === undefined || to === undefined || step === undefined || step === 0) return undefined;
  const count = Math.max(0, Math.ceil((to - from) / step));
  return [{ dims: [count], ints: Array.from({ length: count }, (_, index) => from + index * step) }];
};

const constantOfShape: Rule = ({ inputs: [shape] }) => (shape?.ints === undefined ? undefined : one(shape.ints));

const where: Rule = (input) => {
  const [result] = elementWise(input) ?? [];
  const [condition, a, b] = input.inputs;
  if (result === undefined || !condition?.ints || !a?.ints || !b?.ints) return result && [result];
  const ints = Array.from({ length: elementCount(result.dims) }, (_, index) =>
    pick(condition.ints!, index) === 0 ? pick(b.ints!, index) : pick(a.ints!, index),
  );
  return [{ dims: result.dims, ints }];
};

const reduce: Rule = (input) => {
  const {
    inputs: [data, given],
    attribute,
  } = input;
  // Reductions of no elements differ between ONNX Runtime's kernels, and from its own inference.
  if (data === undefined || isOpen(input, 1) || elementCount(data.dims) === 0) return undefined;
  const axes = (given?.ints ?? attribute('axes', undefined))?.map((axis) => axisFromFront(axis, data.dims.length));
  const all = axes === undefined || axes.length === 0;
  if (all && attribute('noop_with_empty_axes', 0) === 1) return one(data.dims);
  const gone = (axis: number) => all || axes.includes(axis);
  return attribute('keepdims', 1) === 1
    ? one(data.dims.map((size, axis) => (gone(axis) ? 1 : size)))
    : one(data.dims.filter((_, axis) => !gone(axis)));
};

const argReduce: Rule = ({ inputs: [data], attribute }) => {
  if (data === undefined) return undefined;
  const axis = axisFromFront(attribute('axis', 0), data.dims.length);
  return attribute('keepdims', 1) === 1
    ? one(data.dims.with(axis, 1))
    : one(data.dims.filter((_, place) => place !== axis));
};

/** [sequence, batch, input] to Y [sequence, directions, batch, hidden] and the last states. */
const recurrent: Rule = ({ inputs: [x, , recurrence], attribute, outputCount }) => {
  if (x?.dims.length !== 3 || recurrence === undefined) return undefined;
  const hidden = attribute('hidden_size', recurrence.dims[2] ?? 0);
  const directions = recurrence.dims[0] ?? 1;
  const batchFirst = attribute('layout', 0) === 1;
  const [sequence, batch] = batchFirst ? [x.dims[1]!, x.dims[0]!] : [x.dims[0]!, x.dims[1]!];
  const all = batchFirst ? [batch, sequence, directions, hidden] : [sequence, directions, batch, hidden];
  const last = batchFirst ? [batch, directions, hidden] : [directions, batch, hidden];
  return [{ dims: all }, { dims: last }, { dims: last }].slice(0, outputCount);
};

const resize: Rule = ({ inputs: [data, , , sizes], attribute }) => {
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

const topK: Rule = ({ inputs: [data, count], attribute }) => {
  const k = count?.ints?.[0] ?? attribute('k', -1);
  if (data === undefined || k < 0) return undefined;
  const dims = data.dims.with(axisFromFront(attribute('axis', -1), data.dims.length), k);
  return [{ dims }, { dims }];
};

/** The result is as wide as all query heads; the key and value caches grow to the longest sequence. */
const groupQueryAttention: Rule = ({ inputs: [query, key, , past, , , total], attribute, outputCount }) => {
  const [longest] = total?.ints ?? [];
  const [heads, keyHeads] = [attribute('num_heads', 0), attribute('kv_num_heads', 0)];
  const [batch, rows, width] = query?.dims ?? [];
  if (batch === undefined || rows === undefined || width === undefined || longest === undefined) return undefined;
  const size = width / (key === undefined ? heads + 2 * keyHeads : heads);
  const present = { dims: [batch, keyHeads, Math.max(longest, past?.dims[2] ?? 0), size] };
  return [{ dims: [batch, rows, heads * size] }, present, present].slice(0, outputCount);
};

/** The result, and a mean or a deviation for each row. */
const rowNormalization: Rule = ({ inputs: [x], attribute, outputCount }) => {
  if (x === undefined) return undefined;
  const first = axisFromFront(attribute('axis', -1), x.dims.length);
  const rows = { dims: x.dims.map((size, axis) => (axis < first ? size : 1)) };
  return [{ dims: x.dims }, rows, rows].slice(0, outputCount);
};

const skipNormalization: Rule = ({ inputs: [x], outputCount }) =>
  x && Array.from({ length: outputCount }, (_, place) => (place === 0 || place === 3 ? { dims: x.dims } : undefined));

/** A loss for each label, or one in total; and the logarithms of the probabilities. */
const loss: Rule = ({ inputs: [scores, labels], attribute, outputCount }) => {
  if (scores === undefined || labels === undefined) return undefined;
  const dims = attribute('reduction', 'mean') === 'none' ? labels.dims : [];
  return [{ dims }, { dims: scores.dims }].slice(0, outputCount);
};

const window: Rule = ({ inputs: [size] }) => one(size?.ints?.slice(0, 1));

const melWeightMatrix: Rule = ({ inputs: [bins, length] }) => {
  const [columns, frequencies] = [bins?.ints?.[0], length?.ints?.[0]];
  return columns === undefined || frequencies === undefined
    ? undefined
    : one([Math.floor(frequencies / 2) + 1, columns]);
};

const table: readonly (readonly [Rule, string])[] = [
  [
    sameAsFirst,
    `Abs Acos Acosh Asin Asinh Atan Atanh BatchNormalization Bernoulli BitShift BitwiseNot Ceil Celu Clip Cos Cosh CumSum
    DequantizeLinear
    Dropout Elu Erf Exp Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax InstanceNormalization IsInf IsNaN
    LRN LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu
    QuantizeLinear Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt
    Swish Tan Tanh ThresholdedRelu Trilu FastGelu BiasGelu QuickGelu ScatterElements
    ScatterND Scatter`,
  ],
  [
    elementWise,
    `And BitwiseAnd BitwiseOr BitwiseXor Greater GreaterOrEqual Less LessOrEqual Max Mean Min Or Pow Sum Xor PRelu`,
  ],
  [reduce, 'ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum'],
  [reduce, 'ReduceSumSquare'],
  [argReduce, 'ArgMax ArgMin'],
  [loss, 'NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss'],
  [window, 'BlackmanWindow HammingWindow HannWindow'],
  [melWeightMatrix, 'MelWeightMatrix'],
  [arithmetic((a, b) => a + b), 'Add'],
  [arithmetic((a, b) => a - b), 'Sub'],
  [arithmetic((a, b) => a * b), 'Mul'],
  [arithmetic((a, b) => (b === 0 ? 0 : Math.trunc(a / b))), 'Div'],
  [arithmetic((a, b) => (b === 0 ? 0 : a % b)), 'Mod'],
  [arithmetic((a, b) => Number(a === b)), 'Equal'],
  [({ inputs: [x] }) => x && reshaped(x, x.dims), 'Identity Cast CastLike'],
  [matMul, 'MatMul FusedMatMul MatMulInteger'],
  [gemm, 'Gemm FusedGemm'],
  [conv, 'Conv FusedConv ConvInteger'],
  [convTranspose, 'ConvTranspose'],
  [pool, 'MaxPool AveragePool LpPool'],
  [globalPool, 'GlobalAveragePool GlobalMaxPool GlobalLpPool QLinearGlobalAveragePool'],
  [gather, 'Gather'],
  [({ inputs: [, indices] }) => indices && one(indices.dims), 'GatherElements'],
  [reshape, 'Reshape'],
  [flatten, 'Flatten'],
  [transpose, 'Transpose'],
  [squeeze, 'Squeeze'],
  [unsqueeze, 'Unsqueeze'],
  [concat, 'Concat'],
  [split, 'Split'],
  [slice, 'Slice'],
  [expand, 'Expand'],
  [tile, 'Tile'],
  [shapeOf, 'Shape'],
  [({ inputs: [x] }) => x && [{ dims: [], ints: [elementCount(x.dims)] }], 'Size'],
  [range, 'Range'],
  [constantOfShape, 'ConstantOfShape'],
  [where, 'Where'],
  [recurrent, 'LSTM GRU RNN'],
  [pad, 'Pad'],
  [resize, 'Resize'],
  [topK, 'TopK'],
  [rowNormalization, 'LayerNormalization RMSNormalization SimplifiedLayerNormalization'],
  [skipNormalization, 'SkipLayerNormalization SkipSimplifiedLayerNormalization'],
  [groupQueryAttention, 'GroupQueryAttention'],
];

export const shapeRules = byNames<Rule>(table.map(([rule, operators]) => [operators, rule]));
