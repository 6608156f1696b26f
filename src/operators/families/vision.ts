/** Operators on images: sampling by a grid, pooling of regions, and deformable convolutions. */
import { each, ordinary, sizedFrom, type OperatorFacts } from '../facts.ts';
import * as rows from '../row-rules/rules.ts';
import { elementCount } from '../../tensor/index.ts';
import { eachAxis, floats, Unsupported, type Term, type Write } from '../writing.ts';

const unfollowed: OperatorFacts = { ...ordinary, shapes: 'run', rows: 'unknown' };

/**
 * Coordinates of an image's elements, in [-1, 1], after an affine transformation of theta [items, axes, axes + 1]. Those
 * before it and a 1 are the rows of a matrix. They begin with the innermost axis.
 */
const affineGrid: Write = (writer) => {
  const theta = writer.required(0, floats);
  const { datatype } = theta;
  const [items, ...inner] = writer.output.shape as [number, ...number[]];
  const sizes = inner.slice(0, -1);
  const isAligned = writer.attribute('align_corners', 0) === 1;
  const placeOf = (c: number, size: number): number => {
    if (!isAligned) return (2 * c + 1) / size - 1;
    // In ONNX Runtime an axis of size 1 has the coordinate 1.
    return size > 1 ? (2 * c) / (size - 1) - 1 : 1;
  };
  const ones = [...sizes.map(() => 1), 1];
  const coordinates = sizes.map((size, axis) => {
    const places = Array.from({ length: size }, (_, c) => placeOf(c, size));
    return writer.numbers(datatype, ones.with(axis, size), places);
  });
  const columns = [...coordinates.toReversed(), writer.numbers(datatype, ones, [1])];
  const spread = columns.map((column) => writer.repeated(column, [...sizes, 1]));
  const joined = writer.made('Concat', spread, { datatype, shape: [...sizes, columns.length] }, { axis: -1 });
  const shape = [items, elementCount(sizes), sizes.length];
  const factors = [writer.viewed(joined, [elementCount(sizes), columns.length]), writer.permuted(theta, [0, 2, 1])];
  writer.give(writer.made('MatMul', factors, { datatype, shape }));
};

/** A convolution with taps that a tensor of offsets moves: the image is sampled there, and multiplied. */
const deformConv: Write = (writer) => {
  const [x, weight, offset] = [writer.required(0, floats), writer.required(1), writer.required(2)];
  const [bias, mask] = [writer.input(3), writer.input(4)];
  if (x.shape.length !== 4) throw new Unsupported(`'${x.name}' has ${x.shape.length} dimensions, not 4`);
  const { datatype } = x;
  const [images, channels, ...imageSizes] = x.shape as [number, number, number, number];
  const [filters, perGroup, ...kernel] = weight.shape as [number, number, number, number];
  const [, , rows, columns] = writer.output.shape as [number, number, number, number];
  const [strides, dilations] = [eachAxis(writer, 'strides', 2, 1), eachAxis(writer, 'dilations', 2, 1)];
  const pads = eachAxis(writer, 'pads', 4, 0);
  const [groups, sets] = [writer.attribute('group', 1), writer.attribute('offset_group', 1)];
  const taps = elementCount(kernel);
  const parts = images * sets;
  // From [parts, taps, axes, rows, columns] to a grid, whose coordinates begin with the innermost axis.
  const shape = [parts, taps, 2, rows, columns];
  const ofTaps = Array.from({ length: taps }, (_, tap) => [
    Math.floor(tap / kernel[1]) * dilations[0]! - pads[0]!,
    (tap % kernel[1]) * dilations[1]! - pads[1]!,
  ]);
  const ofPlaces = [
    Array.from({ length: rows * columns }, (_, at) => Math.floor(at / columns) * strides[0]!),
    Array.from({ length: rows * columns }, (_, at) => (at % columns) * strides[1]!),
  ];
  const added = (to: Term, sizes: readonly number[], values: readonly number[]): Term =>
    writer.map('Add', [to, writer.numbers('FP32', sizes, values)]);
  const moved = added(writer.viewed(writer.cast(offset, 'FP32'), shape), [taps, 2, 1, 1], ofTaps.flat());
  const places = added(moved, [2, rows, columns], ofPlaces.flat());
  const steps = writer.numbers(
    'FP32',
    [2, 1, 1],
    imageSizes.map((size) => 2 / size),
  );
  const shares = added(
    writer.map('Mul', [places, steps]),
    [2, 1, 1],
    imageSizes.map((size) => 1 / size - 1),
  );
  const turned = writer.made('Gather', [shares, writer.numbers('INT64', [2], [1, 0])], shares, { axis: 2 });
  const grid = writer.viewed(writer.permuted(turned, [0, 1, 3, 4, 2]), [parts, taps * rows, columns, 2]);
  const image = writer.viewed(x, [parts, channels / sets, ...imageSizes]);
  const sampled = { datatype, shape: [parts, channels / sets, taps * rows, columns] };
  const samples = writer.made('GridSample', [image, grid], sampled);
  const masked =
    mask === undefined ? samples : writer.map('Mul', [samples, writer.viewed(mask, [parts, 1, taps * rows, columns])]);
  const result = writer.made(
    'MatMul',
    [
      writer.viewed(weight, [groups, filters / groups, perGroup * taps]),
      writer.viewed(masked, [images, groups, perGroup * taps, rows * columns]),
    ],
    { datatype, shape: [images, groups, filters / groups, rows * columns] },
  );
  const whole = writer.viewed(result, writer.output.shape);
  writer.give(bias === undefined ? whole : writer.map('Add', [whole, writer.viewed(bias, [filters, 1, 1])]));
};

export const vision = {
  ...each('GridSample com.microsoft.GridSample', { ...unfollowed, rows: rows.alongFirst(0, 1) }),
  AffineGrid: { ...unfollowed, arguments: sizedFrom(1), write: affineGrid },
  ...each('RoiAlign MaxRoiPool', unfollowed),
  DeformConv: { ...unfollowed, layer: 'conv', write: deformConv },
} satisfies Record<string, OperatorFacts>;
