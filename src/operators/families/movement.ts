/** Operators that move elements without computing with them, or fill tensors. */
import { each, ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import * as places from '../row-rules/place-rules.ts';
import { like, named } from '../result-types.ts';
import * as rows from '../row-rules/rules.ts';
import * as moved from '../shapes/movement-rules.ts';
import * as shapes from '../shapes/rules.ts';
import { axisFromFront, ElementType, elementTypeOf, tensorBytes } from '../../onnx/index.ts';
import { elementCount } from '../../tensor/index.ts';
import { resize, tapTables, type Taps } from './resize.ts';
import {
  eachAxis,
  findAttribute,
  floats,
  knownNumbers,
  listOf,
  numbers,
  requireDatatype,
  Unsupported,
  type Term,
  type Write,
  type Writer,
} from '../writing.ts';

const unfollowed = { ...ordinary, rows: 'unknown' } as const;
/** Inputs behind the first are sizes, axes or counts. */
const sized = { weights: 'first', arguments: sizedFrom(1) } as const;
const counting = { arithmetic: 'elements' } as const;
const free = { leaf: 'free' } as const;
const blocks: OperatorFacts = { ...ordinary, shapes: 'run', rows: rows.alongFirst(0) };
const filled: OperatorFacts = { ...unfollowed, shapes: shapes.sameAsFirst };

/** Each axis becomes two: the repetitions, and the axis itself. */
const tile: Write = (writer) => {
  const repeats = knownNumbers(writer, 1, 'repeats');
  const x = writer.required(0);
  const apart = writer.viewed(
    x,
    x.shape.flatMap((size) => [1, size]),
  );
  const repeated = x.shape.flatMap((size, axis) => [repeats?.[axis] ?? 1, size]);
  writer.give(writer.repeated(apart, repeated));
};

type Sizes = readonly number[];

/** Reads the input as a tensor of 6 dimensions, and gives it with its axes in another order. */
function giveBlocks(
  writer: Writer,
  order: Sizes,
  sizesOf: (block: number, n: number, c: number, h: number, w: number) => Sizes,
): void {
  const x = writer.required(0);
  if (x.shape.length !== 4) throw new Unsupported(`'${x.name}' has ${x.shape.length} dimensions, not 4`);
  const [n, c, h, w] = x.shape as [number, number, number, number];
  writer.give(writer.permuted(writer.viewed(x, sizesOf(writer.attribute('blocksize', 1), n, c, h, w)), order));
}

const depthToSpace: Write = (writer) => {
  if (writer.attribute<string>('mode', 'DCR') === 'CRD')
    giveBlocks(writer, [0, 1, 4, 2, 5, 3], (block, n, c, h, w) => [n, c / block ** 2, block, block, h, w]);
  else giveBlocks(writer, [0, 3, 4, 1, 5, 2], (block, n, c, h, w) => [n, block, block, c / block ** 2, h, w]);
};

const spaceToDepth: Write = (writer) =>
  giveBlocks(writer, [0, 3, 5, 1, 2, 4], (block, n, c, h, w) => [n, c, h / block, block, w / block, block]);

/** How far each place is to the right of the diagonal, in the output's last two dimensions. */
function pastDiagonal(writer: Writer): Term {
  const rank = writer.output.shape.length;
  if (rank < 2) throw new Unsupported(`'${writer.output.name}' is not a matrix`);
  return writer.map('Sub', [writer.counted(rank - 1), writer.counted(rank - 2)]);
}

const trilu: Write = (writer) => {
  const x = writer.required(0);
  const diagonal = writer.input(1) ?? writer.number('INT64', 0);
  requireDatatype(diagonal, ['INT64']);
  const sides = [pastDiagonal(writer), diagonal];
  const isDropped = writer.map('Less', writer.attribute('upper', 1) === 1 ? sides : sides.toReversed(), 'BOOL');
  writer.give(writer.map('Where', [isDropped, writer.number(x.datatype, 0), x], x.datatype));
};

const eyeLike: Write = (writer) => {
  requireDatatype(writer.output, [...numbers, 'BOOL', 'UINT32', 'UINT64', 'INT16', 'UINT16']);
  const diagonal = writer.number('INT64', writer.attribute('k', 0));
  const isOn = writer.map('Equal', [pastDiagonal(writer), diagonal], 'BOOL');
  writer.give(writer.cast(isOn, writer.output.datatype));
};

const range: Write = (writer) => {
  const start = writer.required(0, ['FP32', 'FP64', 'INT16', 'INT32', 'INT64']);
  const steps = writer.map('Mul', [writer.counted(0, writer.output.shape, start.datatype), writer.required(2)]);
  writer.give(writer.map('Add', [start, steps]));
};

/** Its attribute is the element, 0 by default. */
const constantOfShape: Write = (writer) => {
  const { datatype, shape } = writer.output;
  const given = findAttribute(writer, 'value')?.t;
  if (given !== undefined && given.dataType !== elementTypeOf(datatype))
    throw new Unsupported('its value has another type than its output');
  const ones = shape.map(() => 1);
  const one = writer.viewed(writer.number(datatype, given === undefined ? 0 : tensorBytes(given)), ones);
  writer.give(writer.repeated(one, shape));
};

const oneHot: Write = (writer) => {
  const indices = writer.required(0, numbers);
  const { shape, datatype } = writer.output;
  const axis = axisFromFront(writer.attribute('axis', -1), shape.length);
  const [zero, depth] = [0, shape[axis]!].map((value) => writer.number('INT64', value)) as [Term, Term];
  const places = writer.cast(writer.viewed(indices, shape.with(axis, 1)), 'INT64');
  const isFromEnd = writer.map('Less', [places, zero], 'BOOL');
  const hot = writer.map('Where', [isFromEnd, writer.map('Add', [places, depth]), places], 'INT64');
  const isHot = writer.map('Equal', [hot, writer.counted(axis)], 'BOOL');
  const which = writer.cast(isHot, 'INT32');
  writer.give(writer.made('Gather', [writer.required(2), which], { datatype, shape }, { axis: 0 }));
};

/** The first elements of each item along the time axis come in the opposite order. */
const reverseSequence: Write = (writer) => {
  const x = writer.required(0);
  const { shape } = x;
  const [items, times] = [writer.attribute('batch_axis', 1), writer.attribute('time_axis', 0)];
  const apart = shape.map((size, axis) => (axis === items ? size : 1));
  const lengths = writer.viewed(writer.required(1, ['INT64']), apart);
  const behind = writer.map('Sub', [lengths, writer.number('INT64', 1)]);
  const turned = writer.map('Sub', [behind, writer.counted(times)]);
  const isLeft = writer.map('Less', [turned, writer.number('INT64', 0)], 'BOOL');
  const from = writer.map('Where', [isLeft, writer.counted(times), turned], 'INT64');
  writer.give(writer.made('GatherElements', [x, writer.repeated(from, shape)], x, { axis: times }));
};

/** Writes each element to its index in the whole result, as ONNX Runtime does; the rest is 0. */
const maxUnpool: Write = (writer) => {
  const x = writer.required(0);
  const { datatype, shape } = writer.output;
  const [own, all] = [elementCount(x.shape), elementCount(shape)];
  const empty = writer.repeated(writer.viewed(writer.number(datatype, 0), [1]), [all]);
  const places = writer.viewed(writer.required(1, ['INT64']), [own, 1]);
  writer.give(writer.made('ScatterND', [empty, places, writer.viewed(x, [own])], empty));
};

/** Each element of the image is the sum of the block elements at its place. */
const col2im: Write = (writer) => {
  const x = writer.required(0, floats);
  const block = knownNumbers(writer, 2, 'block shape') ?? [];
  const [, channels, ...sizes] = writer.output.shape as [number, number, ...number[]];
  const axes = sizes.length;
  const [dilations, strides] = [eachAxis(writer, 'dilations', axes, 1), eachAxis(writer, 'strides', axes, 1)];
  const pads = eachAxis(writer, 'pads', 2 * axes, 0);
  // With more than 2 axes ONNX Runtime computes an element's place in its block from the dilated block's size.
  const isMisplaced = (axis: number): boolean =>
    dilations[axis]! > 1 && block[axis]! > 1 && [channels, ...block.slice(0, axis)].some((size) => size > 1);
  if (axes > 2 && sizes.some((_, axis) => isMisplaced(axis)))
    throw new Unsupported(`dilated blocks along ${axes} axes, which ONNX Runtime misplaces`);
  const counts = sizes.map((size, axis) => {
    const span = dilations[axis]! * (block[axis]! - 1) + 1;
    return Math.floor((size + pads[axis]! + pads[axis + axes]! - span) / strides[axis]!) + 1;
  });
  const blocks = elementCount(counts);
  const tables = sizes.flatMap((size, axis) => {
    const steps = [blocks * elementCount(block.slice(axis + 1)), elementCount(counts.slice(axis + 1))] as const;
    const taps = Array.from({ length: size }, (_, at): Taps =>
      Array.from({ length: block[axis]! }, (_, tap) => {
        const window = (at + pads[axis]! - tap * dilations[axis]!) / strides[axis]!;
        const isWindow = Number.isInteger(window) && window >= 0 && window < counts[axis]!;
        return isWindow ? [[tap * steps[0] + window * steps[1], 1] as const] : [];
      }).flat(),
    );
    const [places, weights] = tapTables(taps);
    return [writer.numbers('INT32', ...places), writer.numbers('FP32', ...weights)];
  });
  const perChannel = elementCount(block) * blocks;
  const attributes = {
    axes: sizes.map((_, axis) => axis + 2),
    strides: [channels * perChannel, perChannel, ...sizes.map(() => 1)],
  };
  writer.give(writer.made('turntable.Resample', [x, undefined, ...tables], writer.output, attributes));
};

/** The place in an axis that a padding repeats, by its mode; undefined: none, so the result is the padding value. */
function padded(mode: string, at: number, size: number): number | undefined {
  switch (mode) {
    case 'constant':
      return at >= 0 && at < size ? at : undefined;
    case 'edge':
      return Math.min(size - 1, Math.max(0, at));
    case 'wrap':
      return axisFromFront(at % size, size);
    case 'reflect': {
      const period = Math.max(1, 2 * (size - 1));
      const turned = Math.abs(at) % period;
      return turned >= size ? period - turned : turned;
    }
    default:
      throw new Unsupported(`its mode '${mode}' is not covered`);
  }
}

/** Limit for the elements along a padded axis: there is a table of their places. */
const paddedMax = 2 ** 24;

/** Negative padding cuts elements off. */
const pad: Write = (writer) => {
  const x = writer.required(0);
  const { datatype, shape } = writer.output;
  const pads = listOf(writer, 'pads', 1);
  if (pads === undefined) throw new Unsupported('it does not say how much to pad');
  const named = knownNumbers(writer, 3, 'axes')?.map((axis) => axisFromFront(axis, shape.length)) ?? [...shape.keys()];
  const before = shape.map((_, axis) => pads[named.indexOf(axis)] ?? 0);
  const axes = named.filter((axis) => before[axis] !== 0 || shape[axis] !== x.shape[axis]);
  const isCut = axes.every((axis) => before[axis]! <= 0 && shape[axis]! <= x.shape[axis]! + before[axis]!);
  if (isCut) {
    const starts = axes.map((axis) => -before[axis]!);
    const ends = axes.map((axis, place) => starts[place]! + shape[axis]!);
    writer.give(writer.made('Slice', [x], writer.output, { axes, starts, ends }));
    return;
  }
  const mode = writer.attribute('mode', 'constant');
  const given = writer.input(2) ?? writer.number(datatype, findAttribute(writer, 'value')?.f ?? 0);
  const value = mode === 'constant' ? given : undefined;
  if (elementCount(x.shape) === 0) {
    if (value === undefined) throw new Unsupported('an empty tensor cannot be padded by its own elements');
    writer.give(writer.repeated(value, shape));
    return;
  }
  const tables = axes.flatMap((axis) => {
    const [count, size] = [shape[axis]!, x.shape[axis]!];
    if (count > paddedMax) throw new Unsupported(`it makes ${count} elements along an axis`);
    const places = Array.from({ length: count }, (_, at) => padded(mode, at - before[axis]!, size) ?? -1);
    return [writer.numbers('INT32', [count, 1], places), undefined];
  });
  writer.give(writer.made('turntable.Resample', [x, value, ...tables], writer.output, { axes }));
};

export const movement = {
  Transpose: {
    ...ordinary,
    shapes: moved.transpose,
    rows: rows.transpose,
    keeps: 'elements',
  },
  Slice: {
    ...ordinary,
    ...sized,
    ...counting,
    ...free,
    shapes: moved.slice,
    overrulesInference: true,
    rows: rows.slice,
  },
  Expand: { ...ordinary, ...sized, ...free, shapes: moved.expand, rows: rows.expand, chunks: 'whole' },
  Tile: { ...unfollowed, ...sized, shapes: moved.tile, write: tile },
  DepthToSpace: { ...blocks, write: depthToSpace },
  SpaceToDepth: { ...blocks, write: spaceToDepth },
  Concat: {
    ...ordinary,
    ...counting,
    shapes: moved.concat,
    rows: rows.concat,
    narrow: 'join',
  },
  Split: {
    ...ordinary,
    ...free,
    arguments: sizedFrom(1),
    shapes: moved.split,
    rows: rows.split,
  },
  Gather: {
    ...ordinary,
    ...counting,
    shapes: moved.gather,
    rows: places.gather,
    cost: 'lookup',
    layer: 'embedding',
    // Of a computed value with constant indices it picks elements; it is no lookup.
    weights: 'first',
    narrow: 'lookup',
  },
  GatherElements: {
    ...ordinary,
    shapes: shapes.likeIndices,
    rows: places.gatherElements,
    cost: 'lookup',
    narrow: 'lookup',
  },
  GatherND: { ...ordinary, shapes: 'run', rows: places.gatherNd, narrow: 'lookup' },
  ...each('TensorScatter Scatter ScatterElements ScatterND', filled),
  ReverseSequence: { ...filled, write: reverseSequence },
  EyeLike: { ...filled, types: [named('dtype', like(0))], write: eyeLike },
  Trilu: { ...filled, write: trilu },
  Pad: {
    ...ordinary,
    weights: 'first',
    arguments: sizedFrom(1, 2),
    shapes: moved.pad,
    rows: rows.pad,
    write: pad,
  },
  Resize: {
    ...ordinary,
    ...sized,
    shapes: shapes.resize,
    rows: rows.resize,
    chunks: 'whole',
    mixesPrecisions: true,
    write: resize,
  },
  Upsample: { ...unfollowed, ...sized, shapes: 'run', mixesPrecisions: true, write: resize },
  MaxUnpool: { ...unfollowed, arguments: sizedFrom(2), shapes: 'run', write: maxUnpool },
  Col2Im: { ...unfollowed, arguments: sizedFrom(1), shapes: 'run', write: col2im },
  Range: { ...unfollowed, ...free, weights: 'first', arguments: sizedFrom(0), shapes: shapes.range, write: range },
  ConstantOfShape: {
    ...ordinary,
    ...free,
    arguments: sizedFrom(0),
    types: [({ attribute }) => attribute.find(({ name }) => name === 'value')?.t?.dataType ?? ElementType.FLOAT],
    shapes: shapes.constantOfShape,
    rows: rows.constantOfShape,
    write: constantOfShape,
  },
  OneHot: {
    ...ordinary,
    weights: 'first',
    arguments: sizedFrom(1, 2),
    types: [like(2)],
    shapes: 'run',
    rows: places.oneHot,
    write: oneHot,
  },
} satisfies Record<string, OperatorFacts>;
