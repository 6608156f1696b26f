/** Softmax and the normalizations. */
import { always, each, ordinary, type OperatorFacts } from '../facts.ts';
import { is, like } from '../result-types.ts';
import * as rows from '../row-rules/rules.ts';
import * as shapes from '../shapes/rules.ts';
import { axisFromFront, ElementType } from '../../onnx/index.ts';
import { elementCount } from '../../tensor/index.ts';
import { floats, Unsupported, type Term, type Write, type Writer } from '../writing.ts';

const softmax: OperatorFacts = {
  ...ordinary,
  shapes: shapes.sameAsFirst,
  rows: rows.softmax,
};
const ofRows: OperatorFacts = {
  ...ordinary,
  shapes: shapes.rowNormalization,
  rows: rows.alongAxis(rows.axisAttribute(-1), rows.always),
  layer: 'norm',
  mixesPrecisions: true,
  narrow: 'row',
};
const skipping: OperatorFacts = {
  ...ordinary,
  shapes: shapes.skipNormalization,
  rows: rows.alongAxis(() => -1, rows.always),
  layer: 'norm',
};
const ofChannels: OperatorFacts = {
  ...ordinary,
  shapes: shapes.sameAsFirst,
  rows: rows.alongFirst(0),
};

const lpNormalization: Write = (writer) => {
  const x = writer.required(0, floats);
  const axis = axisFromFront(writer.attribute('axis', -1), x.shape.length);
  const norm = writer.reduced(writer.attribute('p', 2) === 1 ? 'ReduceL1' : 'ReduceL2', x, [axis]);
  const zero = writer.number(x.datatype, 0);
  const isZero = writer.map('Equal', [norm, zero], 'BOOL');
  writer.give(writer.map('Where', [isZero, zero, writer.map('Div', [x, norm])], x.datatype));
};

/** As in ONNX Runtime, unlike ONNX's function body: elements that are all equal give 0 / 0 = NaN. */
const meanVarianceNormalization: Write = (writer) => {
  const x = writer.required(0, floats);
  const named = writer.attribute<readonly number[]>('axes', []);
  const axes = (named.length > 0 ? named : [0, 2, 3]).map((axis) => axisFromFront(axis, x.shape.length));
  const distance = writer.map('Sub', [x, writer.reduced('ReduceMean', x, axes)]);
  const variance = writer.reduced('ReduceMean', writer.map('Mul', [distance, distance]), axes);
  writer.give(writer.map('Div', [distance, writer.map('Sqrt', [variance])]));
};

/** 1 at the first of the largest elements. Before opset 13 the axis splits the tensor into a matrix. */
const hardmax: Write = (writer) => {
  const { shape } = writer.output;
  const coerced = writer.opset < 13;
  const split = axisFromFront(writer.attribute('axis', coerced ? 1 : -1), shape.length);
  const [rows, columns] = [elementCount(shape.slice(0, split)), elementCount(shape.slice(split))];
  const x = writer.required(0, floats);
  const [sizes, axis] = coerced ? [[rows, columns], 1] : [shape, split];
  const given = { datatype: 'INT64', shape: sizes.with(axis, 1) } as const;
  const place = writer.made('ArgMax', [writer.viewed(x, sizes)], given, { axis, keepdims: 1 });
  const isFirst = writer.map('Equal', [place, writer.counted(axis, sizes)], 'BOOL');
  const [one, zero] = [1, 0].map((value) => writer.number(x.datatype, value));
  writer.give(writer.map('Where', [isFirst, one, zero], x.datatype));
};

/** Normalizes x, viewed in `shape`, from `axis` on, by a scale and a shift in another view. */
function giveNormalized(writer: Writer, shape: readonly number[], axis: number, weights: readonly number[]): void {
  const x = writer.viewed(writer.required(0, floats), shape);
  const [scale, bias] = [1, 2].map((place) => writer.viewed(writer.required(place, floats), weights));
  const attributes = { axis, epsilon: { float: writer.attribute('epsilon', 1e-5) } };
  writer.give(writer.made('LayerNormalization', [x, scale, bias], x, attributes));
}

/** Each channel of each item is a row. */
const instanceNormalization: Write = (writer) => {
  const { name, shape } = writer.required(0);
  const [items = 1, channels, ...sizes] = shape;
  if (channels === undefined) throw new Unsupported(`'${name}' has no channels`);
  giveNormalized(writer, [items, channels, elementCount(sizes)], 2, [channels, 1]);
};

/** All channels of a group are one row. There is a weight for each channel, before opset 21 for each group. */
const groupNormalization: Write = (writer) => {
  const [items = 1, channels = 0, ...sizes] = writer.required(0).shape;
  const groups = writer.attribute('num_groups', 0);
  const each = channels / groups;
  if (groups < 1 || !Number.isInteger(each)) throw new Unsupported(`${channels} channels do not make ${groups} groups`);
  const weights = [groups, writer.opset < 21 ? 1 : each, 1];
  giveNormalized(writer, [items, groups, each, elementCount(sizes)], 2, weights);
};

/** Its parameters broadcast to the channels, so it is elementwise. */
const batchNormalization: Write = (writer) => {
  const x = writer.required(0, floats);
  if (writer.attribute('training_mode', 0) === 1) throw new Unsupported('it is in training mode');
  if (x.shape.length < 2) throw new Unsupported(`'${x.name}' has no channels`);
  const channels = [x.shape[1]!, ...x.shape.slice(2).map(() => 1)];
  const parameters = [1, 2, 3, 4].map((place) => writer.viewed(writer.required(place, floats), channels));
  const epsilon = { float: writer.attribute('epsilon', 1e-5) };
  writer.give(writer.map('turntable.ScaleShift', [x, ...parameters], x.datatype, { epsilon }));
};

/** The mean of the squares of neighbouring channels is that of a window of an image with one channel. */
const localResponseNormalization: Write = (writer) => {
  const given = writer.required(0, floats);
  const [items = 1, channels, ...sizes] = given.shape;
  if (channels === undefined) throw new Unsupported(`'${given.name}' has no channels`);
  const datatype = given.datatype === 'FP64' ? 'FP64' : 'FP32';
  const number = (name: string, otherwise: number): Term => writer.number(datatype, writer.attribute(name, otherwise));
  const x = writer.cast(given, datatype);
  const squares = writer.viewed(writer.map('Mul', [x, x]), [items, 1, channels, elementCount(sizes)]);
  const size = writer.attribute('size', 1);
  const pads = [Math.floor((size - 1) / 2), 0, Math.ceil((size - 1) / 2), 0];
  const window = { kernel_shape: [size, 1], pads, count_include_pad: 1 };
  const means = writer.viewed(writer.made('AveragePool', [squares], squares, window), x.shape);
  const base = writer.map('Add', [writer.map('Mul', [means, number('alpha', 1e-4)]), number('bias', 1)]);
  const scaled = writer.map('Div', [x, writer.map('Pow', [base, number('beta', 0.75)])]);
  writer.give(writer.cast(scaled, given.datatype));
};

/** Rows of tables for words, places and segments are added up and normalised. */
const embedding: Write = (writer) => {
  const ids = writer.required(0, ['INT32']);
  const [segments, words, placed, segmented] = [1, 2, 3, 4].map((place) => writer.input(place));
  const [scale, bias, mask, places] = [5, 6, 7, 8].map((place) => writer.input(place));
  const { datatype, shape } = writer.output;
  const looked = (table: Term | undefined, indices: Term): Term =>
    writer.made('Gather', [table, indices], { datatype, shape: [...indices.shape, shape[2]!] }, { axis: 0 });
  const inOrder = places === undefined && placed !== undefined;
  const row = inOrder ? writer.part(placed, 0, shape[1]!) : looked(placed, places!);
  const known = writer.map('Add', [looked(words, ids), row]);
  const sum = segments === undefined ? known : writer.map('Add', [known, looked(segmented, segments)]);
  const attributes = { axis: -1, epsilon: { float: writer.attribute('epsilon', 1e-12) } };
  writer.give(writer.made('LayerNormalization', [sum, scale, bias], writer.output, attributes));
  const lengths = writer.result(1);
  if (lengths !== undefined) {
    const isWord = mask && writer.cast(writer.map('Equal', [mask, writer.number('INT32', 1)], 'BOOL'), 'INT32');
    const none = writer.viewed(writer.number('INT32', 0), [1]);
    writer.give(isWord ? writer.reduced('ReduceSum', isWord, [1]) : writer.repeated(none, lengths.shape), 1);
  }
  writer.give(sum, 2);
};

export const normalization = {
  Softmax: { ...softmax, narrow: 'row' },
  LogSoftmax: softmax,
  Hardmax: { ...softmax, jumps: always, write: hardmax },
  // Means and deviations are computed in 32 bits, whatever the type of the input.
  LayerNormalization: { ...ofRows, types: [like(0), is(ElementType.FLOAT)] },
  ...each('RMSNormalization SimplifiedLayerNormalization', ofRows),
  ...each('com.microsoft.SkipLayerNormalization com.microsoft.SkipSimplifiedLayerNormalization', skipping),
  InstanceNormalization: { ...ofChannels, layer: 'norm', write: instanceNormalization },
  GroupNormalization: { ...ofChannels, layer: 'norm', write: groupNormalization },
  'com.microsoft.EmbedLayerNormalization': {
    ...ordinary,
    // The second is the number of words, the third the sum of the embeddings.
    types: [like(2), is(ElementType.INT32), like(2)],
    shapes({ inputs: [ids, , words], outputCount }) {
      if (ids === undefined || words === undefined) return undefined;
      const rowsOfAll = { dims: [...ids.dims, words.dims[1]!] };
      return [rowsOfAll, { dims: ids.dims.slice(0, 1) }, rowsOfAll].slice(0, outputCount);
    },
    rows: rows.perSequence(),
    cost: 'lookup',
    layer: 'embedding',
    write: embedding,
  },
  BatchNormalization: {
    ...ofChannels,
    rows: rows.batchNormalization,
    cost: 'channel-normalization',
    layer: 'norm',
    mixesPrecisions: true,
    write: batchNormalization,
  },
  LRN: { ...ofChannels, write: localResponseNormalization },
  LpNormalization: {
    ...ofChannels,
    rows: rows.alongAxis(rows.axisAttribute(-1), rows.never),
    write: lpNormalization,
  },
  // It takes the mean of all rows, unless axes are named.
  MeanVarianceNormalization: { ...ofChannels, rows: 'unknown', write: meanVarianceNormalization },
} satisfies Record<string, OperatorFacts>;
