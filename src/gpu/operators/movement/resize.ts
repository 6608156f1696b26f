/** Resize and Upsample: nearest, linear and cubic, along any axes, with and without antialiasing. */
import {
  Unsupported,
  floats,
  requireDatatype,
  findAttribute,
  knownNumbers,
  floatLiteral,
} from '../../../operators/index.ts';
import type { DataType } from '../../../tensor/index.ts';
import type { Emitter, Kernels, Value } from '../types.ts';
import { axisOf, coordinates, stridesOf, weightedSum } from '../common/indexing.ts';
import { asDeclared, requiredOutput } from '../common/inputs.ts';
import { forEachElement, written, asBits } from '../common/elements.ts';

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

/**
 * C expression of the input coordinate for output coordinate `at`, a float, by the ONNX operator specification, opset
 * 19. It rounds in the same steps as ONNX Runtime, since a difference in the last bit may pick another neighbour.
 */
function inputCoordinate(mode: string, at: string, { input, output, scale, from, to }: Axis): string {
  const divided = (step: string): string => `__fsub_rn(__fadd_rn(${at}, 0.5f) / ${step}, 0.5f)`;
  switch (mode) {
    case 'half_pixel':
      return divided(floatLiteral(scale));
    case 'half_pixel_symmetric': {
      const adjustment = Math.fround(output / Math.fround(Math.fround(scale) * input));
      const offset = Math.fround((input / 2) * Math.fround(1 - adjustment));
      return `(float)(${floatLiteral(offset, 'double')} + (${at} + 0.5) / ${floatLiteral(Math.fround(scale), 'double')} - 0.5)`;
    }
    case 'pytorch_half_pixel':
      return output > 1 ? divided(floatLiteral(scale)) : '0.0f';
    case 'align_corners':
      return output === 1 ? '0.0f' : `${at} * ${floatLiteral(input - 1)} / ${floatLiteral(output - 1)}`;
    case 'asymmetric':
      return `${at} / ${floatLiteral(scale)}`;
    case 'tf_crop_and_resize': {
      if (output === 1) return floatLiteral(0.5 * Math.fround(from + to) * (input - 1));
      const moved = `${at} * ${floatLiteral(to - from)} * ${floatLiteral(input - 1)} / ${floatLiteral(output - 1)}`;
      return `__fadd_rn(${floatLiteral(from * (input - 1))}, ${moved})`;
    }
    default:
      throw new Unsupported(`its coordinate transformation '${mode}' is not covered`);
  }
}

/** Whether ONNX Runtime takes a coordinate for the middle between two elements: it is within 1e-6 of it, in floats. */
const isMiddle = (x: string): string => `fabsf(${x} - floorf(${x}) - 0.5f) < 1e-6f`;

const roundings: Readonly<Record<string, (x: string) => string>> = {
  round_prefer_floor: (x) => `(${isMiddle(x)} ? floorf(${x}) : roundf(${x}))`,
  round_prefer_ceil: (x) => `(${isMiddle(x)} ? ceilf(${x}) : roundf(${x}))`,
  floor: (x) => `floorf(${x})`,
  ceil: (x) => `ceilf(${x})`,
};

const clamped = (x: string, size: number): string => `(${x} < 0 ? 0 : ${x} > ${size - 1} ? ${size - 1} : ${x})`;

function changedAxes(emitter: Emitter, input: Value, output: Value, crops: boolean): Axis[] {
  const axes = emitter.attribute<readonly number[]>('axes', []).map((axis) => axisOf(axis, input.shape.length));
  const named = axes.length > 0 ? axes : input.shape.map((_, axis) => axis);
  const scales = input.shape.map((size, axis) => output.shape[axis]! / size);
  // Opset 10 has no region of interest between the input and the scales; before opset 9 the scales are an attribute.
  const given =
    emitter.opset < 9
      ? (findAttribute(emitter, 'scales')?.floats ?? [])
      : (knownNumbers(emitter, emitter.opset < 11 ? 1 : 2, 'scales') ?? []);
  for (const [index, scale] of given.entries()) scales[named[index]!] = scale;
  const policy = emitter.attribute<string>('keep_aspect_ratio_policy', 'stretch');
  const sizes = policy === 'stretch' || given.length > 0 ? undefined : knownNumbers(emitter, 3, 'sizes');
  if (sizes !== undefined) {
    const wanted = sizes.map((size, index) => size / input.shape[named[index]!]!);
    const scale = policy === 'not_larger' ? Math.min(...wanted) : Math.max(...wanted);
    for (const axis of named) scales[axis] = scale;
  }
  const region = crops ? (knownNumbers(emitter, 1, 'region of interest') ?? []) : [];
  // ONNX Runtime applies a region for all axes of the input to all of them, even if only some are named.
  const ofAll = region.length === 2 * input.shape.length;
  const bounded = ofAll ? input.shape.map((_, axis) => axis) : named;
  return input.shape.flatMap((size, axis) => {
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

type Mode = 'nearest' | 'linear' | 'cubic';

function modeOf(emitter: Emitter): Mode {
  const mode = emitter.attribute<string>('mode', 'nearest');
  if (mode === 'bilinear' || mode === 'linear') return 'linear';
  if (mode !== 'nearest' && mode !== 'cubic') throw new Unsupported(`its mode '${mode}' is not covered`);
  return mode;
}

/**
 * A weighted sum over the corners of the cell that an output is in. Products and sums are rounded one after the other
 * in ONNX Runtime's order, in which the last axis moves first. For integers the result is truncated, so the last bit
 * matters.
 */
function interpolated(
  axes: readonly Axis[],
  places: readonly string[],
  strides: readonly number[],
  of: { readonly load: (at: string) => string; readonly exact: 'float' | 'double' },
): string {
  const [times, plus] = ['mul', 'add'].map((name) => `__${of.exact === 'float' ? 'f' : 'd'}${name}_rn`) as [
    string,
    string,
  ];
  const moving = axes.toReversed();
  const corners = Array.from({ length: 2 ** moving.length }, (_, corner) => {
    const moved = [...places];
    const weights = moving.map(({ axis }, bit) => {
      const upper = ((corner >> bit) & 1) === 1;
      moved[axis] = `${upper ? 'high' : 'low'}${axis}`;
      return `${upper ? 'share' : 'rest'}${axis}`;
    });
    return [...weights, `(${of.exact})${of.load(weightedSum(moved, strides))}`].reduce(
      (a, b) => `${times}(${a}, ${b})`,
    );
  });
  return corners.reduce((a, b) => `${plus}(${a}, ${b})`);
}

/**
 * The axes to interpolate along. For integers ONNX Runtime interpolates along its two or three last axes even if their
 * sizes do not change, which affects rounding at the ends.
 */
function interpolatedAxes(input: Value, output: Value, changed: readonly Axis[]): readonly Axis[] {
  const rank = input.shape.length;
  if (!wholeNumbers.includes(input.datatype)) return changed;
  const first = Math.max(0, rank - (rank % 2 === 0 ? 2 : 3));
  if (changed.some(({ axis }) => axis < first))
    throw new Unsupported(`it interpolates ${input.datatype} along axis ${changed[0]!.axis} of ${rank}`);
  return Array.from({ length: rank - first }, (_, place): Axis => {
    const axis = first + place;
    const size = input.shape[axis]!;
    const own = changed.find((one) => one.axis === axis);
    return own ?? { axis, input: size, output: output.shape[axis]!, scale: 1, from: 0, to: 1 };
  });
}

/**
 * C statements that compute the weights along an axis: a filter around the coordinate, with antialiasing as wide as an
 * element of the output. Elements beyond an end are those at the end, or excluded.
 */
function weighed(
  emitter: Emitter,
  mode: Mode,
  { axis, input, scale }: Axis,
): { readonly lines: string[]; readonly taps: number } {
  const smooths = emitter.attribute('antialias', 0) === 1 && scale < 1;
  const narrow = smooths ? scale : 1;
  const support = (mode === 'cubic' ? 2 : 1) / narrow;
  const taps = Math.ceil(2 * support) + 2;
  const a = floatLiteral(emitter.attribute('cubic_coeff_a', -0.75));
  const filter =
    mode === 'linear'
      ? 'd < 1.0f ? 1.0f - d : 0.0f'
      : `d <= 1.0f ? ((${a} + 2.0f) * d - (${a} + 3.0f)) * d * d + 1.0f : d < 2.0f ? ((${a} * d - 5.0f * ${a}) * d + 8.0f * ${a}) * d - 4.0f * ${a} : 0.0f`;
  const excluded = emitter.attribute('exclude_outside', 0) === 1;
  return {
    taps,
    lines: [
      `const float center${axis} = x${axis} + 0.5f;`,
      `const int first${axis} = (int)floorf(center${axis} - ${floatLiteral(support)} + 0.5f);`,
      `const int count${axis} = (int)floorf(center${axis} + ${floatLiteral(support)} + 0.5f) - first${axis};`,
      `float weights${axis}[${taps}];`,
      `float total${axis} = 0;`,
      `for (int tap = 0; tap < count${axis}; tap++) {`,
      `  const float d = fabsf((first${axis} + tap - center${axis} + 0.5f) * ${floatLiteral(narrow)});`,
      `  const int place = first${axis} + tap;`,
      `  weights${axis}[tap] = ${excluded ? `place < 0 || place >= ${input} ? 0.0f : ` : ''}(${filter});`,
      `  total${axis} += weights${axis}[tap];`,
      '}',
    ],
  };
}

/** Upsample ends with opset 9, and has only the coordinate transformation that Resize had before 11. */
function emitResize(emitter: Emitter): void {
  const given = emitter.required(0);
  const mode = modeOf(emitter);
  if (mode !== 'nearest') requireDatatype(given, mode === 'linear' ? [...floats, ...wholeNumbers] : floats);
  const output = requiredOutput(emitter);
  if (output.elements === 0) return;
  const early = emitter.opset < 11;
  const transformation = early
    ? 'asymmetric'
    : emitter.attribute<string>('coordinate_transformation_mode', 'half_pixel');
  const nearestMode = early ? 'floor' : emitter.attribute<string>('nearest_mode', 'round_prefer_floor');
  const rounding = roundings[nearestMode];
  if (rounding === undefined) throw new Unsupported(`its nearest mode '${nearestMode}' is not covered`);
  const crops = transformation === 'tf_crop_and_resize';
  const axes = changedAxes(emitter, given, output, crops);
  const isSmoothed = emitter.attribute('antialias', 0) === 1;
  if (isSmoothed && wholeNumbers.includes(given.datatype))
    throw new Unsupported(`it smooths ${given.datatype} (antialias), which ONNX Runtime rounds after each axis`);
  const smooths = isSmoothed && axes.some(({ scale }) => scale < 1);
  if (mode === 'linear' && !smooths && axes.length > 3) {
    throw new Unsupported(`it interpolates along ${axes.length} axes`);
  }
  const places = coordinates('i', output.shape);
  const lines = axes.map(
    (one) => `const float x${one.axis} = ${inputCoordinate(transformation, `(float)${places[one.axis]}`, one)};`,
  );
  const isMoved = mode === 'nearest' && !crops;
  const input = isMoved ? asDeclared(emitter, given) : given;
  const strides = stridesOf(input.shape);
  const exact = input.datatype === 'FP64' ? 'double' : 'float';
  const tensors = isMoved
    ? { input: asBits(input), output: asBits(written(output)) }
    : { input, output: written(output) };
  forEachElement(emitter, 'resize', output.elements, tensors, (of) => {
    if (crops) {
      const beyond = axes.map(({ axis, input: size }) => `x${axis} < 0 || x${axis} > ${size - 1}`);
      const value = floatLiteral(emitter.attribute('extrapolation_value', 0));
      if (beyond.length > 0) lines.push(`if (${beyond.join(' || ')}) {`, of.output.set('i', value), 'return;', '}');
    }
    if (mode === 'nearest') {
      const moved = [...places];
      for (const { axis, input: size } of axes) {
        lines.push(`const int n${axis} = (int)${rounding(`x${axis}`)};`);
        moved[axis] = clamped(`n${axis}`, size);
      }
      lines.push(of.output.set('i', of.input.at(weightedSum(moved, strides))));
    } else if (mode === 'linear' && !smooths) {
      const along = interpolatedAxes(input, output, axes);
      for (const one of along) {
        const { axis, input: size } = one;
        const place = axes.includes(one) ? `x${axis}` : `(float)${places[axis]}`;
        lines.push(
          `const float inside${axis} = ${clamped(place, size)};`,
          `const int low${axis} = (int)inside${axis};`,
          `const int high${axis} = low${axis} < ${size - 1} ? low${axis} + 1 : ${size - 1};`,
          `const ${exact} share${axis} = low${axis} == high${axis} ? 0.5f : inside${axis} - low${axis};`,
          `const ${exact} rest${axis} = low${axis} == high${axis} ? 0.5f : high${axis} - inside${axis};`,
        );
      }
      const sum = interpolated(along, places, strides, { load: of.input.at, exact });
      lines.push(of.output.set('i', `(${exact})(${sum})`));
    } else {
      const moved = [...places];
      const factors: string[] = [];
      for (const axis of axes) lines.push(...weighed(emitter, mode, axis).lines);
      lines.push(`${exact} sum = 0;`);
      for (const { axis, input: size } of axes) {
        lines.push(
          `for (int tap${axis} = 0; tap${axis} < count${axis}; tap${axis}++) {`,
          `const int reached${axis} = first${axis} + tap${axis};`,
          `const int place${axis} = ${clamped(`reached${axis}`, size)};`,
        );
        moved[axis] = `place${axis}`;
        factors.push(`weights${axis}[tap${axis}] / total${axis}`);
      }
      lines.push(`sum += ${[...factors, of.input.at(weightedSum(moved, strides))].join(' * ')};`);
      lines.push(...axes.map(() => '}'), of.output.set('i', 'sum'));
    }
    return lines;
  });
}

export const resizeOperators = [
  { type: 'Resize', emit: emitResize },
  { type: 'Upsample', emit: emitResize },
] as const satisfies readonly Kernels[];
