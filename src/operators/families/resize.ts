/**
 * Resize and Upsample: nearest, linear and cubic, along any axes, with and without antialiasing. Sizes are known, so
 * which elements a coordinate reads, and by what weights, are tables of each axis: constants of one kernel.
 */
import { axisFromFront } from '../../onnx/index.ts';
import type { DataType } from '../../tensor/index.ts';
import {
  findAttribute,
  floats,
  knownNumbers,
  requireDatatype,
  Unsupported,
  type Write,
  type Writer,
} from '../writing.ts';

/** An axis whose size changes, by the factor `scale` before rounding. */
interface Axis {
  readonly axis: number;
  readonly input: number;
  readonly output: number;
  readonly scale: number;
  /** Begin and end of the region of interest, in [0, 1] of the axis. */
  readonly from: number;
  readonly to: number;
}

/** The elements that a coordinate reads, and their weights. */
export type Taps = readonly (readonly [place: number, weight: number])[];

const f32 = Math.fround;

/**
 * Input coordinates by the ONNX operator specification, opset 19. They round in the same steps as ONNX Runtime's floats,
 * since a difference in the last bit may pick another neighbour.
 */
const coordinates: Readonly<Record<string, (at: number, axis: Axis) => number>> = {
  half_pixel: (at, { scale }) => f32(f32(f32(at + 0.5) / f32(scale)) - 0.5),
  half_pixel_symmetric(at, { input, output, scale }) {
    const adjustment = f32(output / f32(f32(scale) * input));
    return f32(f32((input / 2) * f32(1 - adjustment)) + (at + 0.5) / f32(scale) - 0.5);
  },
  pytorch_half_pixel: (at, axis) => (axis.output > 1 ? coordinates['half_pixel']!(at, axis) : 0),
  align_corners: (at, { input, output }) => (output === 1 ? 0 : f32(f32(at * (input - 1)) / (output - 1))),
  asymmetric: (at, { scale }) => f32(at / f32(scale)),
  tf_crop_and_resize(at, { input, output, from, to }) {
    if (output === 1) return f32(0.5 * f32(from + to) * (input - 1));
    const moved = f32(f32(f32(at * f32(to - from)) * (input - 1)) / (output - 1));
    return f32(f32(from * (input - 1)) + moved);
  },
};

/** Whether ONNX Runtime takes a coordinate for the middle between two elements: it is within 1e-6 of it, in floats. */
const isMiddle = (x: number): boolean => Math.abs(f32(f32(x - Math.floor(x)) - 0.5)) < f32(1e-6);
/** Halves away from 0, as in C. */
const round = (x: number): number => Math.sign(x) * Math.floor(Math.abs(x) + 0.5);

const roundings: Readonly<Record<string, (x: number) => number>> = {
  round_prefer_floor: (x) => (isMiddle(x) ? Math.floor(x) : round(x)),
  round_prefer_ceil: (x) => (isMiddle(x) ? Math.ceil(x) : round(x)),
  floor: Math.floor,
  ceil: Math.ceil,
};

const clamped = (x: number, size: number): number => Math.min(size - 1, Math.max(0, x));

function changedAxes(writer: Writer, input: readonly number[], crops: boolean): Axis[] {
  const { output } = writer;
  const axes = writer.attribute<readonly number[]>('axes', []).map((axis) => axisFromFront(axis, input.length));
  const named = axes.length > 0 ? axes : input.map((_, axis) => axis);
  const scales = input.map((size, axis) => output.shape[axis]! / size);
  // Opset 10 has no region of interest between the input and the scales; before opset 9 the scales are an attribute.
  const given =
    writer.opset < 9
      ? (findAttribute(writer, 'scales')?.floats ?? [])
      : (knownNumbers(writer, writer.opset < 11 ? 1 : 2, 'scales') ?? []);
  for (const [index, scale] of given.entries()) scales[named[index]!] = scale;
  const policy = writer.attribute<string>('keep_aspect_ratio_policy', 'stretch');
  const sizes = policy === 'stretch' || given.length > 0 ? undefined : knownNumbers(writer, 3, 'sizes');
  if (sizes !== undefined) {
    const wanted = sizes.map((size, index) => size / input[named[index]!]!);
    const scale = policy === 'not_larger' ? Math.min(...wanted) : Math.max(...wanted);
    for (const axis of named) scales[axis] = scale;
  }
  const region = crops ? (knownNumbers(writer, 1, 'region of interest') ?? []) : [];
  // ONNX Runtime applies a region for all axes of the input to all of them, even if only some are named.
  const bounded = region.length === 2 * input.length ? input.map((_, axis) => axis) : named;
  return input.flatMap((size, axis) => {
    const scale = scales[axis]!;
    const place = bounded.indexOf(axis);
    const from = place < 0 ? 0 : (region[place] ?? 0);
    const to = place < 0 ? 1 : (region[place + bounded.length] ?? 1);
    // ONNX Runtime leaves an axis of scale 1 and equal size as it is, even with a region of interest.
    return scale === 1 && size === output.shape[axis]
      ? []
      : [{ axis, input: size, output: output.shape[axis]!, scale, from, to }];
  });
}

const wholeNumbers: readonly DataType[] = ['INT8', 'UINT8', 'INT32'];

/**
 * The axes to interpolate along. For integers ONNX Runtime interpolates along its two or three last axes even if their
 * sizes do not change, which affects rounding at the ends.
 */
function interpolatedAxes(shape: readonly number[], datatype: DataType, changed: readonly Axis[]): readonly Axis[] {
  const rank = shape.length;
  if (!wholeNumbers.includes(datatype)) return changed;
  const first = Math.max(0, rank - (rank % 2 === 0 ? 2 : 3));
  if (changed.some(({ axis }) => axis < first))
    throw new Unsupported(`it interpolates ${datatype} along axis ${changed[0]!.axis} of ${rank}`);
  return Array.from({ length: rank - first }, (_, place): Axis => {
    const axis = first + place;
    const own = changed.find((one) => one.axis === axis);
    return own ?? { axis, input: shape[axis]!, output: shape[axis]!, scale: 1, from: 0, to: 1 };
  });
}

/** Two neighbours. At the ends both are the same element. */
function linear(x: number, size: number): Taps {
  const inside = clamped(x, size);
  const low = Math.trunc(inside);
  const high = Math.min(low + 1, size - 1);
  const shares = low === high ? [0.5, 0.5] : [f32(high - inside), f32(inside - low)];
  return [
    [low, shares[0]!],
    [high, shares[1]!],
  ];
}

/**
 * A filter around the coordinate, with antialiasing as wide as an element of the output. Elements beyond an end are
 * those at the end, or excluded.
 */
function filtered(writer: Writer, mode: 'linear' | 'cubic', { input, scale }: Axis): (x: number) => Taps {
  const narrow = writer.attribute('antialias', 0) === 1 && scale < 1 ? f32(scale) : 1;
  const support = f32((mode === 'cubic' ? 2 : 1) / narrow);
  const a = writer.attribute('cubic_coeff_a', -0.75);
  const weightOf = (d: number): number => {
    if (mode === 'linear') return Math.max(0, 1 - d);
    if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
  };
  const isExcluded = writer.attribute('exclude_outside', 0) === 1;
  return (x) => {
    const center = f32(x + 0.5);
    const first = Math.floor(f32(f32(center - support) + 0.5));
    const count = Math.floor(f32(f32(center + support) + 0.5)) - first;
    const places = Array.from({ length: count }, (_, tap) => first + tap);
    const weights = places.map((place) =>
      isExcluded && (place < 0 || place >= input) ? 0 : f32(weightOf(Math.abs(f32((place - center + 0.5) * narrow)))),
    );
    const total = weights.reduce((sum, weight) => f32(sum + weight), 0);
    return places.map((place, tap) => [clamped(place, input), f32(weights[tap]! / total)]);
  };
}

type Table = readonly [shape: readonly number[], numbers: readonly number[]];

/** Places and weights of each coordinate. A place of -1 ends its list: one without places is beyond the image. */
export function tapTables(taps: readonly Taps[]): readonly [places: Table, weights: Table] {
  const most = Math.max(1, ...taps.map(({ length }) => length));
  const padded = taps.flatMap((each) => Array.from({ length: most }, (_, tap) => each[tap] ?? ([-1, 0] as const)));
  const shape = [taps.length, most];
  return [
    [shape, padded.map(([place]) => place)],
    [shape, padded.map(([, weight]) => weight)],
  ];
}

/** Upsample ends with opset 9, and has only the coordinate transformation that Resize had before 11. */
export const resize: Write = (writer) => {
  const x = writer.required(0);
  const named = writer.attribute<string>('mode', 'nearest').replace('bilinear', 'linear');
  if (named !== 'nearest' && named !== 'linear' && named !== 'cubic')
    throw new Unsupported(`its mode '${named}' is not covered`);
  if (named !== 'nearest') requireDatatype(x, named === 'linear' ? [...floats, ...wholeNumbers] : floats);
  const isEarly = writer.opset < 11;
  const transformation = isEarly ? 'asymmetric' : writer.attribute('coordinate_transformation_mode', 'half_pixel');
  const coordinate = coordinates[transformation];
  if (coordinate === undefined)
    throw new Unsupported(`its coordinate transformation '${transformation}' is not covered`);
  const nearestMode = isEarly ? 'floor' : writer.attribute('nearest_mode', 'round_prefer_floor');
  const rounding = roundings[nearestMode];
  if (rounding === undefined) throw new Unsupported(`its nearest mode '${nearestMode}' is not covered`);
  const crops = transformation === 'tf_crop_and_resize';
  const changed = changedAxes(writer, x.shape, crops);
  const isSmoothed = writer.attribute('antialias', 0) === 1;
  if (isSmoothed && wholeNumbers.includes(x.datatype))
    throw new Unsupported(`it smooths ${x.datatype} (antialias), which ONNX Runtime rounds after each axis`);
  const isFiltered = named === 'cubic' || (isSmoothed && changed.some(({ scale }) => scale < 1));
  const isLinear = named === 'linear' && !isFiltered;
  if (isLinear && changed.length > 3) throw new Unsupported(`it interpolates along ${changed.length} axes`);
  const axes = isLinear ? interpolatedAxes(x.shape, x.datatype, changed) : changed;
  const tables = axes.flatMap((axis) => {
    const { input, output } = axis;
    const filter = named === 'nearest' ? undefined : filtered(writer, named, axis);
    const taps = Array.from({ length: output }, (_, at): Taps => {
      const place = changed.includes(axis) ? coordinate(at, axis) : at;
      if (crops && (place < 0 || place > input - 1)) return [];
      if (filter === undefined) return [[clamped(rounding(place), input), 1]];
      return isLinear ? linear(place, input) : filter(place);
    });
    const [places, weights] = tapTables(taps);
    return [writer.numbers('INT32', ...places), named === 'nearest' ? undefined : writer.numbers('FP32', ...weights)];
  });
  const beyond = crops ? writer.number(x.datatype, writer.attribute('extrapolation_value', 0)) : undefined;
  const attributes = { axes: axes.map(({ axis }) => axis) };
  writer.give(writer.made('turntable.Resample', [x, beyond, ...tables], writer.output, attributes));
};
