/**
 * Shapes of operators' results, from the ONNX operator specification (opset 1 to 24). A rule answers undefined where the
 * dimensions depend on data, and throws nothing: what a rule does not know, a caller takes from the file or leaves open.
 */
import type { Attributes } from './attributes.ts';
import { axisFromFront, broadcast, elementCount, sliceRange, type Dims, type Known } from './dims.ts';

export interface RuleInput {
  readonly inputs: readonly (Known | undefined)[];
  /** Whether the node has an input at this place, known or not. */
  readonly isGiven: (place: number) => boolean;
  readonly attributes: Attributes;
  readonly outputCount: number;
}

type Outputs = readonly (Known | undefined)[];
export type Rule = (input: RuleInput) => Outputs | undefined;

const one = (dims: Dims | undefined): Outputs | undefined => (dims === undefined ? undefined : [{ dims }]);

const sameAsFirst: Rule = ({ inputs: [first], outputCount }) =>
  first === undefined ? undefined : Array.from({ length: outputCount }, () => ({ dims: first.dims }));

const elementWise: Rule = ({ inputs }) => {
  const known = inputs.filter((input) => input !== undefined);
  return known.length < inputs.length ? undefined : one(broadcast(known.map(({ dims }) => dims)));
};

/** An element of a broadcast constant. */
const pick = (ints: readonly number[], index: number): number => (ints.length === 1 ? ints[0]! : (ints[index] ?? 0));

/** An element-wise operator whose small whole-number results are worth knowing, because shapes are computed with it. */
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

/** Whether an input that says which axes, or how many elements, is there but only known while the model runs. */
const isOpen = ({ inputs, isGiven }: RuleInput, place: number): boolean =>
  isGiven(place) && inputs[place]?.ints === undefined;

/** Keeps the elements, changes the dimensions. */
const reshaped = (input: Known, dims: Dims): Outputs => [{ dims, ints: input.ints }];

const matMul: Rule = ({ inputs: [a, b] }) => {
  if (a === undefined || b === undefined || a.dims.length === 0 || b.dims.length === 0) return undefined;
  const left = a.dims.length === 1 ? [1, ...a.dims] : a.dims;
  const right = b.dims.length === 1 ? [...b.dims, 1] : b.dims;
  const batch = broadcast([left.slice(0, -2), right.slice(0, -2)]);
  if (batch === undefined) return undefined;
  const dims = [...batch];
  if (a.dims.length > 1) dims.push(left.at(-2)!);
  if (b.dims.length > 1) dims.push(right.at(-1)!);
  return one(dims);
};

const gemm: Rule = ({ inputs: [a, b], attributes }) => {
  if (a?.dims.length !== 2 || b?.dims.length !== 2) return undefined;
  const rows = a.dims[attributes.int('transA', 0) === 1 ? 1 : 0]!;
  const columns = b.dims[attributes.int('transB', 0) === 1 ? 0 : 1]!;
  return one([rows, columns]);
};

/** Windows along the spatial dimensions: Conv and the pools share their padding arithmetic. */
function windows(dims: Dims, kernel: Dims, attributes: Attributes): number[] | undefined {
  const spatial = dims.slice(2);
  if (kernel.length !== spatial.length) return undefined;
  const strides = attributes.ints('strides') ?? spatial.map(() => 1);
  const dilations = attributes.ints('dilations') ?? spatial.map(() => 1);
  const pads = attributes.ints('pads') ?? [...spatial, ...spatial].map(() => 0);
  const autoPad = attributes.text('auto_pad', 'NOTSET');
  const round = attributes.int('ceil_mode', 0) === 1 ? Math.ceil : Math.floor;
  return spatial.map((size, axis) => {
    const stride = strides[axis] ?? 1;
    const extent = ((kernel[axis] ?? 1) - 1) * (dilations[axis] ?? 1) + 1;
    if (autoPad === 'SAME_UPPER' || autoPad === 'SAME_LOWER') return Math.ceil(size / stride);
    const padding = autoPad === 'VALID' ? 0 : (pads[axis] ?? 0) + (pads[axis + spatial.length] ?? 0);
    return Math.max(0, round((size + padding - extent) / stride) + 1);
  });
}

const conv: Rule = ({ inputs: [x, weight], attributes }) => {
  if (x === undefined || weight === undefined || weight.dims.length < 3) return undefined;
  const spatial = windows(x.dims, attributes.ints('kernel_shape') ?? weight.dims.slice(2), attributes);
  return spatial && one([x.dims[0]!, weight.dims[0]!, ...spatial]);
};

const convTranspose: Rule = ({ inputs: [x, weight], attributes }) => {
  if (x === undefined || weight === undefined || weight.dims.length < 3) return undefined;
  const spatial = x.dims.slice(2);
  const kernel = attributes.ints('kernel_shape') ?? weight.dims.slice(2);
  const strides = attributes.ints('strides') ?? spatial.map(() => 1);
  const dilations = attributes.ints('dilations') ?? spatial.map(() => 1);
  const pads = attributes.ints('pads') ?? [...spatial, ...spatial].map(() => 0);
  const extra = attributes.ints('output_padding') ?? spatial.map(() => 0);
  const sizes =
    attributes.ints('output_shape') ??
    spatial.map(
      (size, axis) =>
        (size - 1) * strides[axis]! +
        (extra[axis] ?? 0) +
        ((kernel[axis] ?? 1) - 1) * dilations[axis]! +
        1 -
        (pads[axis] ?? 0) -
        (pads[axis + spatial.length] ?? 0),
    );
  return one([x.dims[0]!, weight.dims[1]! * attributes.int('group', 1), ...sizes.slice(-spatial.length)]);
};

const pool: Rule = ({ inputs: [x], attributes, outputCount }) => {
  const kernel = attributes.ints('kernel_shape');
  if (x === undefined || kernel === undefined) return undefined;
  const spatial = windows(x.dims, kernel, attributes);
  if (spatial === undefined) return undefined;
  const dims = [...x.dims.slice(0, 2), ...spatial];
  return Array.from({ length: outputCount }, () => ({ dims }));
};

const globalPool: Rule = ({ inputs: [x] }) => x && one(x.dims.map((size, axis) => (axis < 2 ? size : 1)));

const gather: Rule = ({ inputs: [data, indices], attributes }) => {
  if (data === undefined || indices === undefined) return undefined;
  const axis = axisFromFront(attributes.int('axis', 0), data.dims.length);
  const dims = [...data.dims.slice(0, axis), ...indices.dims, ...data.dims.slice(axis + 1)];
  if (data.dims.length !== 1 || data.ints === undefined || indices.ints === undefined) return one(dims);
  const ints = indices.ints.map((index) => data.ints![axisFromFront(index, data.ints!.length)] ?? 0);
  return [{ dims, ints }];
};

const reshape: Rule = ({ inputs: [data, shape], attributes }) => {
  const wanted = shape?.ints ?? attributes.ints('shape');
  if (data === undefined || wanted === undefined) return undefined;
  const keepZero = attributes.int('allowzero', 0) === 1;
  const dims = wanted.map((size, axis) => (size === 0 && !keepZero ? (data.dims[axis] ?? 0) : size));
  const open = dims.indexOf(-1);
  if (open >= 0) {
    const rest = dims.reduce((product, size, axis) => (axis === open ? product : product * size), 1);
    dims[open] = rest === 0 ? 0 : elementCount(data.dims) / rest;
  }
  return elementCount(dims) === elementCount(data.dims) ? reshaped(data, dims) : undefined;
};

const flatten: Rule = ({ inputs: [data], attributes }) => {
  if (data === undefined) return undefined;
  const axis = axisFromFront(attributes.int('axis', 1), data.dims.length);
  return reshaped(data, [elementCount(data.dims.slice(0, axis)), elementCount(data.dims.slice(axis))]);
};

const transpose: Rule = ({ inputs: [data], attributes }) => {
  if (data === undefined) return undefined;
  const order = attributes.ints('perm') ?? data.dims.map((_, axis) => data.dims.length - 1 - axis);
  return one(order.map((axis) => data.dims[axis] ?? 1));
};

const squeeze: Rule = (input) => {
  const {
    inputs: [data, given],
    attributes,
  } = input;
  if (data === undefined || isOpen(input, 1)) return undefined;
  const axes = (given?.ints ?? attributes.ints('axes'))?.map((axis) => axisFromFront(axis, data.dims.length));
  return reshaped(
    data,
    data.dims.filter((size, axis) => (axes === undefined ? size !== 1 : !axes.includes(axis))),
  );
};

const unsqueeze: Rule = ({ inputs: [data, given], attributes }) => {
  const axes = given?.ints ?? attributes.ints('axes');
  if (data === undefined || axes === undefined) return undefined;
  const rank = data.dims.length + axes.length;
  const added = new Set(axes.map((axis) => axisFromFront(axis, rank)));
  const rest = [...data.dims];
  return reshaped(
    data,
    Array.from({ length: rank }, (_, axis) => (added.has(axis) ? 1 : rest.shift()!)),
  );
};

const concat: Rule = ({ inputs, attributes }) => {
  const known = inputs.filter((input) => input !== undefined);
  const [first] = known;
  if (first === undefined || known.length < inputs.length) return undefined;
  const axis = axisFromFront(attributes.int('axis', 0), first.dims.length);
  const size = known.reduce((sum, { dims }) => sum + (dims[axis] ?? 0), 0);
  const dims = first.dims.with(axis, size);
  const ints =
    first.dims.length === 1 && known.every((each) => each.ints) ? known.flatMap((each) => each.ints!) : undefined;
  return [{ dims, ints }];
};

const split: Rule = (input) => {
  const {
    inputs: [data, given],
    attributes,
    outputCount,
  } = input;
  if (data === undefined || isOpen(input, 1)) return undefined;
  const axis = axisFromFront(attributes.int('axis', 0), data.dims.length);
  const size = data.dims[axis]!;
  const part = Math.ceil(size / outputCount);
  const sizes =
    given?.ints ??
    attributes.ints('split') ??
    Array.from({ length: outputCount }, (_, index) => Math.min(part, size - index * part));
  return sizes.map((own) => ({ dims: data.dims.with(axis, own) }));
};

const slice: Rule = (input) => {
  const {
    inputs: [data, starts, ends, axes, steps],
    attributes,
  } = input;
  if (isOpen(input, 3) || isOpen(input, 4)) return undefined;
  const from = starts?.ints ?? attributes.ints('starts');
  const to = ends?.ints ?? attributes.ints('ends');
  if (data === undefined || from === undefined || to === undefined) return undefined;
  const along = axes?.ints ?? attributes.ints('axes') ?? from.map((_, axis) => axis);
  const dims = [...data.dims];
  let { ints } = data;
  for (const [place, axisGiven] of along.entries()) {
    const axis = axisFromFront(axisGiven, dims.length);
    const step = steps?.ints?.[place] ?? 1;
    const { from: first, count } = sliceRange(data.dims[axis] ?? 0, from[place]!, to[place]!, step);
    if (data.dims.length === 1)
      ints = ints && Array.from({ length: count }, (_, index) => ints![first + index * step]!);
    else ints = undefined;
    dims[axis] = count;
  }
  return [{ dims, ints }];
};

const expand: Rule = ({ inputs: [data, shape] }) => {
  if (data === undefined || shape?.ints === undefined) return undefined;
  const dims = broadcast([data.dims, shape.ints]);
  if (dims === undefined) return undefined;
  const only = data.ints?.length === 1 ? data.ints[0] : undefined;
  const count = elementCount(dims);
  return [{ dims, ints: only !== undefined && count <= 64 ? Array.from({ length: count }, () => only) : undefined }];
};

const tile: Rule = ({ inputs: [data, repeats] }) =>
  data === undefined || repeats?.ints === undefined
    ? undefined
    : one(data.dims.map((size, axis) => size * (repeats.ints![axis] ?? 1)));

const shapeOf: Rule = ({ inputs: [data], attributes }) => {
  if (data === undefined) return undefined;
  const rank = data.dims.length;
  const start = attributes.int('start', 0);
  const ints = data.dims.slice(start, attributes.int('end', rank));
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
    attributes,
  } = input;
  if (data === undefined || isOpen(input, 1)) return undefined;
  const axes = (given?.ints ?? attributes.ints('axes'))?.map((axis) => axisFromFront(axis, data.dims.length));
  const all = axes === undefined || axes.length === 0;
  if (all && attributes.int('noop_with_empty_axes', 0) === 1) return one(data.dims);
  const gone = (axis: number) => all || axes.includes(axis);
  return attributes.int('keepdims', 1) === 1
    ? one(data.dims.map((size, axis) => (gone(axis) ? 1 : size)))
    : one(data.dims.filter((_, axis) => !gone(axis)));
};

const argReduce: Rule = ({ inputs: [data], attributes }) => {
  if (data === undefined) return undefined;
  const axis = axisFromFront(attributes.int('axis', 0), data.dims.length);
  return attributes.int('keepdims', 1) === 1
    ? one(data.dims.with(axis, 1))
    : one(data.dims.filter((_, place) => place !== axis));
};

/** [sequence, batch, input] to Y [sequence, directions, batch, hidden] and the last states. */
const recurrent: Rule = ({ inputs: [x, , recurrence], attributes, outputCount }) => {
  if (x?.dims.length !== 3 || recurrence === undefined) return undefined;
  const hidden = attributes.int('hidden_size', recurrence.dims[2] ?? 0);
  const directions = recurrence.dims[0] ?? 1;
  const batchFirst = attributes.int('layout', 0) === 1;
  const [sequence, batch] = batchFirst ? [x.dims[1]!, x.dims[0]!] : [x.dims[0]!, x.dims[1]!];
  const all = batchFirst ? [batch, sequence, directions, hidden] : [sequence, directions, batch, hidden];
  const last = batchFirst ? [batch, directions, hidden] : [directions, batch, hidden];
  return [{ dims: all }, { dims: last }, { dims: last }].slice(0, outputCount);
};

const pad: Rule = (input) => {
  const {
    inputs: [data, pads, , axes],
    attributes,
  } = input;
  const given = pads?.ints ?? attributes.ints('pads');
  if (data === undefined || given === undefined || isOpen(input, 3)) return undefined;
  const along = axes?.ints?.map((axis) => axisFromFront(axis, data.dims.length)) ?? data.dims.map((_, axis) => axis);
  const dims = [...data.dims];
  for (const [place, axis] of along.entries()) {
    dims[axis] = (dims[axis] ?? 0) + (given[place] ?? 0) + (given[place + along.length] ?? 0);
  }
  return one(dims);
};

const resize: Rule = ({ inputs: [data, , , sizes] }) =>
  data === undefined || sizes?.ints?.length !== data.dims.length ? undefined : one(sizes.ints);

const topK: Rule = ({ inputs: [data, count], attributes }) => {
  const k = count?.ints?.[0] ?? attributes.int('k', -1);
  if (data === undefined || k < 0) return undefined;
  const dims = data.dims.with(axisFromFront(attributes.int('axis', -1), data.dims.length), k);
  return [{ dims }, { dims }];
};

const skipNormalization: Rule = ({ inputs: [x], outputCount }) =>
  x && Array.from({ length: outputCount }, (_, place) => (place === 0 || place === 3 ? { dims: x.dims } : undefined));

const table: readonly (readonly [Rule, string])[] = [
  [
    sameAsFirst,
    `Abs Acos Asin Atan BatchNormalization Bernoulli BitShift BitwiseNot Ceil Celu Clip Cos CumSum DequantizeLinear
    Dropout Elu Erf Exp Floor Gelu GroupNormalization HardSigmoid HardSwish Hardmax InstanceNormalization IsInf IsNaN
    LRN LayerNormalization LeakyRelu Log LogSoftmax LpNormalization MeanVarianceNormalization Mish Neg Not PRelu
    QuantizeLinear RMSNormalization Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Softmax Softplus Softsign Sqrt
    Swish Tan Tanh ThresholdedRelu Trilu FastGelu BiasGelu QuickGelu SimplifiedLayerNormalization ScatterElements
    ScatterND Scatter`,
  ],
  [
    elementWise,
    `And BitwiseAnd BitwiseOr BitwiseXor Greater GreaterOrEqual Less LessOrEqual Max Mean Min Or Pow Sum Xor PRelu`,
  ],
  [reduce, 'ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum'],
  [reduce, 'ReduceSumSquare'],
  [argReduce, 'ArgMax ArgMin'],
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
  [globalPool, 'GlobalAveragePool GlobalMaxPool GlobalLpPool'],
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
  [skipNormalization, 'SkipLayerNormalization SkipSimplifiedLayerNormalization'],
];

/** By operator. */
export const shapeRules: ReadonlyMap<string, Rule> = new Map(
  table.flatMap(([rule, operators]) => operators.split(/\s+/).map((operator) => [operator, rule] as const)),
);
