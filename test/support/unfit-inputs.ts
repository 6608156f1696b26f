/**
 * Models of one operator, each with inputs that the operator does not take although their datatypes and ranks are right:
 * ONNX Runtime opens the model, and refuses the run.
 */
import {
  ElementType,
  GraphBuilder,
  type AttributeValue,
  type ConstantValue,
  type ModelProto,
} from '../../src/onnx/index.ts';
import { tensorOf, type Tensor } from '../../src/tensor/index.ts';

interface Given {
  readonly type: 'FP32' | 'INT64' | 'INT32' | 'UINT64' | 'BOOL' | 'BYTES';
  readonly shape: readonly number[];
  readonly values: readonly (number | bigint | string)[];
}

export interface UnfitRun {
  readonly what: string;
  readonly op: string;
  readonly operands: readonly (Given | ConstantValue | '')[];
  readonly attributes?: Readonly<Record<string, AttributeValue>>;
  readonly domain?: string;
  readonly opset?: number;
  /** Datatype and rank of the first output. */
  readonly output?: readonly [type: Given['type'], rank: number];
  /** How many outputs the operator has; they are all outputs of the model. */
  readonly outputs?: number;
}

const elementTypes = {
  FP32: ElementType.FLOAT,
  INT64: ElementType.INT64,
  INT32: ElementType.INT32,
  UINT64: ElementType.UINT64,
  BOOL: ElementType.BOOL,
  BYTES: ElementType.STRING,
} as const;

const given =
  (type: Given['type']) =>
  (shape: readonly number[], ...values: Given['values']): Given => ({ type, shape, values });
const [f, i, i32, u, b, s] = (['FP32', 'INT64', 'INT32', 'UINT64', 'BOOL', 'BYTES'] as const).map(given) as [
  ReturnType<typeof given>,
  ReturnType<typeof given>,
  ReturnType<typeof given>,
  ReturnType<typeof given>,
  ReturnType<typeof given>,
  ReturnType<typeof given>,
];
const ones = (...shape: number[]): Given =>
  f(shape, ...Array.from({ length: shape.reduce((product, size) => product * size, 1) }, () => 1));

const run = (
  what: string,
  op: string,
  operands: UnfitRun['operands'],
  more: Omit<Partial<UnfitRun>, 'what' | 'op' | 'operands'> = {},
): UnfitRun => ({ what, op, operands, ...more });

const int = { output: ['INT64', 1] } as const;
const rank = (count: number): { readonly output: readonly ['FP32', number] } => ({ output: ['FP32', count] });
const ml = { domain: 'ai.onnx.ml' };

/** Refused at once, whatever memory there is. */
export const unfitRuns: readonly UnfitRun[] = [
  run('a division by zero', 'Div', [i([2], 1, 2), i([2], 0, 1)], int),
  run('a division of INT32 by zero', 'Div', [i32([1], 1), i32([1], 0)], { output: ['INT32', 1] }),
  run('a remainder by zero', 'Mod', [i([1], 1), i([1], 0)], int),
  run('a step of zero', 'Range', [i([], 0), i([], 4), i([], 0)], int),
  run('an endless range', 'Range', [f([], 0), f([], Infinity), f([], 1)]),
  run('a negative size', 'ConstantOfShape', [i([1], -1)]),
  run('a size beyond every address', 'ConstantOfShape', [i([2], 2n ** 62n, 8)], rank(2)),
  run('an index out of bounds', 'Gather', [f([2], 1, 2), i([1], 5)]),
  run('an index out of bounds', 'GatherElements', [f([2], 1, 2), i([1], 5)]),
  run('an index out of bounds', 'GatherND', [ones(2, 2), i([1, 2], 5, 0)]),
  run('an index that is too deep', 'GatherND', [ones(2, 2), i([1, 3], 0, 0, 0)]),
  run('an index out of bounds', 'ScatterND', [f([2], 1, 2), i([1, 1], 5), f([1], 1)]),
  run('updates of another shape', 'ScatterND', [f([2], 1, 2), i([1, 1], 0), f([2], 1, 2)]),
  run('an index out of bounds', 'ScatterElements', [f([2], 1, 2), i([1], 5), f([1], 1)]),
  run('updates of another shape', 'ScatterElements', [f([2], 1, 2), i([1], 0), f([2], 1, 1)]),
  run('another number of elements', 'Reshape', [ones(3), i([2], 2, 2)], rank(2)),
  run('elements that do not divide', 'Reshape', [ones(3), i([2], 2, -1)], rank(2)),
  run('two open sizes', 'Reshape', [ones(4), i([2], -1, -1)], rank(2)),
  run('a size below -1', 'Reshape', [ones(4), i([2], -2, -2)], rank(2)),
  run('elements that do not divide by a constant', 'Reshape', [ones(3), { ints: [2, -1] }], rank(2)),
  run('a shape that does not broadcast', 'Expand', [ones(3), i([1], 2)]),
  run('a negative size', 'Expand', [ones(1), i([1], -5)]),
  run('a negative repeat', 'Tile', [ones(3), i([1], -2)]),
  run('more repeats than dimensions', 'Tile', [ones(3), i([2], 1, 2)]),
  run('a result over 4 GiB', 'Tile', [ones(3), i([1], 100_000_000_000)]),
  run('a step of zero', 'Slice', [ones(3), i([1], 0), i([1], 2), i([1], 0), i([1], 0)]),
  run('an axis out of range', 'Slice', [ones(3), i([1], 0), i([1], 2), i([1], 5), i([1], 1)]),
  run('an axis twice', 'Slice', [ones(3), i([2], 0, 0), i([2], 2, 2), i([2], 0, 0), i([2], 1, 1)]),
  run('a reflection longer than the input', 'Pad', [ones(3), { ints: [5, 5] }], { attributes: { mode: 'reflect' } }),
  run('more cut off than there is', 'Pad', [ones(3), i([2], -5, 0)]),
  run('another number of pads', 'Pad', [ones(3), i([3], 1, 1, 1)]),
  run('an edge of nothing', 'Pad', [ones(0), i([2], 1, 1)], { attributes: { mode: 'edge' } }),
  run('a scale of zero', 'Resize', [ones(2, 2), '', f([2], 0, 1)], rank(2)),
  run('a negative scale', 'Resize', [ones(2, 2), '', f([2], -1, 1)], rank(2)),
  run('another number of scales', 'Resize', [ones(2, 2), '', f([3], 1, 1, 1)], rank(2)),
  run('a k above the size', 'TopK', [ones(3), i([1], 5)], { outputs: 2 }),
  run('a negative k', 'TopK', [ones(3), i([1], -1)], { outputs: 2 }),
  run('a negative depth', 'OneHot', [i([2], 0, 1), i([1], -1), { floats: [0, 1] }], rank(2)),
  run('two depths', 'OneHot', [i([2], 0, 1), i([2], 3, 3), { floats: [0, 1] }], rank(2)),
  run('a dimension that is not 1', 'Squeeze', [ones(2, 2), { ints: [0] }]),
  run('an axis out of range', 'Squeeze', [ones(2, 2), i([1], 7)]),
  run('an axis out of range', 'Unsqueeze', [ones(2, 2), i([1], 7)], rank(3)),
  run('an axis twice', 'Unsqueeze', [ones(2, 2), i([2], 0, 0)], rank(4)),
  run('inner sizes that differ', 'MatMul', [ones(1, 2), ones(3, 1)], rank(2)),
  run('inner sizes that differ', 'Gemm', [ones(1, 2), ones(3, 1)], rank(2)),
  run('a bias that does not broadcast', 'Gemm', [ones(1, 2), ones(2, 2), ones(3)], rank(2)),
  run('shapes that do not broadcast', 'Add', [ones(2), ones(3)]),
  run('shapes that do not broadcast', 'Where', [b([2], 1, 0), ones(2), ones(3)]),
  run('shapes that do not broadcast', 'BitShift', [u([2], 1, 2), u([3], 1, 1, 1)], {
    output: ['UINT64', 1],
    attributes: { direction: 'LEFT' },
  }),
  run('less than the kernel', 'Conv', [ones(1, 1, 2), { floats: [1, 1, 1, 1, 1], shape: [1, 1, 5] }], rank(3)),
  run('other channels', 'Conv', [ones(1, 2, 8), { floats: [1, 1, 1, 1, 1], shape: [1, 1, 5] }], rank(3)),
  run('other channels', 'ConvTranspose', [ones(1, 2, 8), ones(1, 3, 3)], rank(3)),
  run('less than the window', 'MaxPool', [ones(1, 1, 2)], { ...rank(3), attributes: { kernel_shape: [5] } }),
  run('no elements', 'AveragePool', [ones(1, 1, 0)], { ...rank(3), attributes: { kernel_shape: [5] } }),
  run('sizes with another sum', 'Split', [ones(3), i([2], 1, 1)], { outputs: 2 }),
  run('a negative size', 'Split', [ones(3), i([2], 4, -1)], { outputs: 2 }),
  run('a size that does not divide', 'Split', [ones(3)], { outputs: 2 }),
  run('other sizes beside the axis', 'Concat', [ones(1, 2), ones(1, 3)], { ...rank(2), attributes: { axis: 0 } }),
  run('two diagonals', 'Trilu', [ones(1, 2), i([2], 1, 2)], rank(2)),
  run('an axis out of range', 'CumSum', [ones(2), i([1], 4)]),
  run('two axes', 'CumSum', [ones(2), i([2], 0, 0)]),
  run('an axis out of range', 'ReduceSum', [ones(2), i([1], 4)]),
  run('a maximum of nothing', 'ArgMax', [ones(0)], { ...int, attributes: { axis: 0 } }),
  run('a length above the sequence', 'ReverseSequence', [ones(2, 2), i([2], 5, 1)], rank(2)),
  run('channels that do not divide', 'DepthToSpace', [ones(1, 3, 1, 1)], { ...rank(4), attributes: { blocksize: 2 } }),
  run('other features', 'BatchNormalization', [ones(1, 3), ...Array.from({ length: 4 }, () => ({ floats: [1, 1] }))], rank(2)),
  run('other features', 'LayerNormalization', [ones(1, 3), { floats: [1, 1] }], rank(2)),
  run('other weights', 'LSTM', [ones(2, 1, 3), ones(1, 4, 1), ones(1, 4, 1)], { ...rank(4), attributes: { hidden_size: 1 } }),
  run('a length above the sequence', 'GRU', [ones(2, 1, 1), ones(1, 3, 1), ones(1, 3, 1), '', i32([1], 9)], { ...rank(4), attributes: { hidden_size: 1 } }),
  run('sizes that differ', 'Einsum', [ones(1, 2), ones(3, 1)], { ...rank(2), attributes: { equation: 'ij,jk->ik' } }),
  run('no square', 'Det', [ones(1, 2)], rank(0)),
  run('boxes without scores', 'NonMaxSuppression', [ones(1, 2, 4), ones(1, 1, 3), i([1], 1)], { output: ['INT64', 2] }),
  run('an image out of range', 'RoiAlign', [ones(1, 1, 2, 2), f([1, 4], 0, 0, 1, 1), i([1], 7)], rank(4)),
  run('another batch', 'GridSample', [ones(1, 1, 2, 2), ones(2, 1, 1, 2)], rank(4)),
  run('a ratio above 1', 'Dropout', [ones(2), f([], 5), b([], 1)]),
  run('no number', 'Cast', [s([1], 'abc')], { attributes: { to: ElementType.FLOAT } }),
  run('no whole number', 'Cast', [s([1], 'abc')], { ...int, attributes: { to: ElementType.INT64 } }),
  run('no rows', 'TfIdfVectorizer', [i([0, 2])], {
    ...rank(2),
    attributes: { mode: 'TF', min_gram_length: 1, max_gram_length: 1, max_skip_count: 0, ngram_counts: [0], ngram_indexes: [0, 1], pool_int64s: [1, 2] },
  }),
  run('a step of zero', 'STFT', [ones(1, 4, 1), i([], 0), '', i([], 2)], rank(4)),
  run('a window longer than the signal', 'STFT', [ones(1, 4, 1), i([], 1), '', i([], 20)], rank(4)),
  run('a length of zero', 'DFT', [ones(1, 4, 1), i([], 0)], { ...rank(3), attributes: { axis: 1 } }),
  run('a negative size', 'HannWindow', [i([], -1)]),
  run('an unknown category', 'OneHotEncoder', [i([1], 9)], { ...ml, ...rank(2), attributes: { cats_int64s: [1, 2], zeros: 0 } }),
  run('an index out of bounds', 'ArrayFeatureExtractor', [ones(1, 2), i([1], 9)], { ...ml, ...rank(2) }),
  run('other features', 'Scaler', [ones(1, 3)], { ...ml, ...rank(2), attributes: { scale: { floats: [1, 1] }, offset: { floats: [0, 0] } } }),
  run('other features', 'LinearRegressor', [ones(1, 3)], { ...ml, ...rank(2), attributes: { coefficients: { floats: [1, 1] }, intercepts: { floats: [0] } } }),
  run('other rows to skip', 'SkipLayerNormalization', [ones(1, 1, 2), ones(1, 2, 2), { floats: [1, 1] }], { domain: 'com.microsoft', ...rank(3) }),
  run('a scale below 1', 'Upsample', [ones(2, 2), f([2], 0.5, 1)], { ...rank(2), opset: 9 }),
  run('an index out of bounds', 'MaxUnpool', [ones(1, 1, 1), i([1, 1, 1], 99)], { ...rank(3), attributes: { kernel_shape: [2] } }),
]; // prettier-ignore

/** Refused because nobody has so much memory: hundreds of gigabytes or more. */
export const hugeRuns: readonly UnfitRun[] = [
  run('400 GB', 'ConstantOfShape', [i([1], 100_000_000_000)]),
  run('36 PB', 'ConstantOfShape', [i([1], 2n ** 53n)]),
  run('8 PB', 'Range', [i([], 0), i([], 1_000_000_000_000_000), i([], 1)], int),
  run('400 GB', 'Expand', [ones(1), i([1], 100_000_000_000)]),
  run('400 GB', 'Pad', [ones(3), i([2], 100_000_000_000, 0)]),
  run('160 GB', 'Resize', [ones(2, 2), '', f([2], 1e10, 1)], rank(2)),
  run('400 GB', 'HannWindow', [i([], 100_000_000_000)]),
];

/** Like `run.operands`, those that a call brings as inputs `i0`, `i1`, ..., all of whose dimensions are open. */
export function unfitModel({ op, operands, attributes, domain, opset = 17, outputs = 1, output: [type, dimensions] = ['FP32', 1] }: UnfitRun): ModelProto {
  const graph = new GraphBuilder('unfit', { opset });
  const names = operands.map((operand, at) => {
    if (operand === '') return '';
    if (!('values' in operand)) return graph.constant(operand);
    return graph.input(`i${at}`, elementTypes[operand.type], operand.shape.map((_, axis) => `d${at}_${axis}`));
  });
  const made = graph.node(op, names, attributes, { outputs, ...(domain === undefined ? {} : { domain }) });
  for (const [at, value] of made.entries()) {
    // The second output of TopK has indices.
    const elementType = op === 'TopK' && at === 1 ? ElementType.INT64 : elementTypes[type];
    graph.output(value, elementType, Array.from({ length: dimensions }, (_, axis) => `o${at}_${axis}`), `y${at}`);
  }
  return graph.build();
} // prettier-ignore

export function unfitInputs({ operands }: UnfitRun): Tensor[] {
  return operands.flatMap((operand, at) => {
    if (operand === '' || !('values' in operand)) return [];
    const { type, shape, values } = operand;
    return tensorOf(`i${at}`, type, shape, arrayOf(type, values));
  });
}

function arrayOf(type: Given['type'], values: Given['values']): Parameters<typeof tensorOf>[3] {
  switch (type) {
    case 'FP32':
      return Float32Array.from(values, Number);
    case 'INT64':
      return BigInt64Array.from(values, BigInt);
    case 'UINT64':
      return BigUint64Array.from(values, BigInt);
    case 'INT32':
      return Int32Array.from(values, Number);
    case 'BOOL':
      return Uint8Array.from(values, Number);
    case 'BYTES':
      return values.map(String);
  }
}
