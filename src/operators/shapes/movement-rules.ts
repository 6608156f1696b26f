/**
 * Shapes of operators that move elements. Shapes are computed with these operators, so small whole numbers are tracked.
 */
import { axisFromFront } from '../../onnx/index.ts';
import { elementCount } from '../../tensor/index.ts';
import { broadcast, sliceRange } from './dims.ts';
import { isOpen, one, reshaped, type Rule } from './rule.ts';

export const gather: Rule = ({ inputs: [data, indices], attribute }) => {
  if (data === undefined || indices === undefined) return undefined;
  const axis = axisFromFront(attribute('axis', 0), data.dims.length);
  const dims = [...data.dims.slice(0, axis), ...indices.dims, ...data.dims.slice(axis + 1)];
  if (data.dims.length !== 1 || data.ints === undefined || indices.ints === undefined) return one(dims);
  const ints = indices.ints.map((index) => data.ints![axisFromFront(index, data.ints!.length)] ?? 0);
  return [{ dims, ints }];
};

export const reshape: Rule = ({ inputs: [data, shape], attribute }) => {
  const wanted = shape?.ints ?? attribute('shape', undefined);
  if (data === undefined || wanted === undefined) return undefined;
  const keepZero = attribute('allowzero', 0) === 1;
  const dims = wanted.map((size, axis) => (size === 0 && !keepZero ? (data.dims[axis] ?? 0) : size));
  const open = dims.indexOf(-1);
  if (open >= 0) {
    const rest = dims.reduce((product, size, axis) => (axis === open ? product : product * size), 1);
    dims[open] = rest === 0 ? 0 : elementCount(data.dims) / rest;
  }
  return elementCount(dims) === elementCount(data.dims) ? reshaped(data, dims) : undefined;
};

export const flatten: Rule = ({ inputs: [data], attribute }) => {
  if (data === undefined) return undefined;
  const axis = axisFromFront(attribute('axis', 1), data.dims.length);
  return reshaped(data, [elementCount(data.dims.slice(0, axis)), elementCount(data.dims.slice(axis))]);
};

export const transpose: Rule = ({ inputs: [data], attribute }) => {
  if (data === undefined) return undefined;
  const order = attribute('perm', undefined) ?? data.dims.map((_, axis) => data.dims.length - 1 - axis);
  return one(order.map((axis) => data.dims[axis] ?? 1));
};

export const squeeze: Rule = (input) => {
  const {
    inputs: [data, given],
    attribute,
  } = input;
  if (data === undefined || isOpen(input, 1)) return undefined;
  const axes = (given?.ints ?? attribute('axes', undefined))?.map((axis) => axisFromFront(axis, data.dims.length));
  return reshaped(
    data,
    data.dims.filter((size, axis) => (axes === undefined ? size !== 1 : !axes.includes(axis))),
  );
};

export const unsqueeze: Rule = ({ inputs: [data, given], attribute }) => {
  const axes = given?.ints ?? attribute('axes', undefined);
  if (data === undefined || axes === undefined) return undefined;
  const rank = data.dims.length + axes.length;
  const added = new Set(axes.map((axis) => axisFromFront(axis, rank)));
  const rest = [...data.dims];
  return reshaped(
    data,
    Array.from({ length: rank }, (_, axis) => (added.has(axis) ? 1 : rest.shift()!)),
  );
};

export const concat: Rule = ({ inputs, attribute }) => {
  const known = inputs.filter((input) => input !== undefined);
  const [first] = known;
  if (first === undefined || known.length < inputs.length) return undefined;
  const axis = axisFromFront(attribute('axis', 0), first.dims.length);
  const size = known.reduce((sum, { dims }) => sum + (dims[axis] ?? 0), 0);
  const dims = first.dims.with(axis, size);
  const ints =
    first.dims.length === 1 && known.every((each) => each.ints) ? known.flatMap((each) => each.ints!) : undefined;
  return [{ dims, ints }];
};

export const split: Rule = (input) => {
  const {
    inputs: [data, given],
    attribute,
    outputCount,
  } = input;
  if (data === undefined || isOpen(input, 1)) return undefined;
  const axis = axisFromFront(attribute('axis', 0), data.dims.length);
  const size = data.dims[axis]!;
  const part = Math.ceil(size / outputCount);
  const sizes =
    given?.ints ??
    attribute('split', undefined) ??
    Array.from({ length: outputCount }, (_, index) => Math.min(part, size - index * part));
  return sizes.map((own) => ({ dims: data.dims.with(axis, own) }));
};

export const slice: Rule = (input) => {
  const {
    inputs: [data, starts, ends, axes, steps],
    attribute,
  } = input;
  if (isOpen(input, 3) || isOpen(input, 4)) return undefined;
  const from = starts?.ints ?? attribute('starts', undefined);
  const to = ends?.ints ?? attribute('ends', undefined);
  if (data === undefined || from === undefined || to === undefined) return undefined;
  const along = axes?.ints ?? attribute('axes', undefined) ?? from.map((_, axis) => axis);
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

export const expand: Rule = ({ inputs: [data, shape] }) => {
  if (data === undefined || shape?.ints === undefined) return undefined;
  const dims = broadcast([data.dims, shape.ints]);
  if (dims === undefined) return undefined;
  const only = data.ints?.length === 1 ? data.ints[0] : undefined;
  const count = elementCount(dims);
  return [{ dims, ints: only !== undefined && count <= 64 ? Array.from({ length: count }, () => only) : undefined }];
};

export const tile: Rule = ({ inputs: [data, repeats] }) =>
  data === undefined || repeats?.ints === undefined
    ? undefined
    : one(data.dims.map((size, axis) => size * (repeats.ints![axis] ?? 1)));

export const pad: Rule = (input) => {
  const {
    inputs: [data, pads, , axes],
    attribute,
  } = input;
  const given = pads?.ints ?? attribute('pads', undefined);
  if (data === undefined || given === undefined || isOpen(input, 3)) return undefined;
  const along = axes?.ints?.map((axis) => axisFromFront(axis, data.dims.length)) ?? data.dims.map((_, axis) => axis);
  const dims = [...data.dims];
  for (const [place, axis] of along.entries()) {
    dims[axis] = (dims[axis] ?? 0) + (given[place] ?? 0) + (given[place + along.length] ?? 0);
  }
  return one(dims);
};
